"""The log: who did what, a line each."""

from __future__ import annotations

import re

from tests.conftest import run_python

SAYS = """
import logging
from dashboard.audit import audit, show_log
show_log(); show_log()
audit("ann\\n2026-01-01T00:00:00Z audit: eve", "did\\x1b[31m this\\u202e")
logging.getLogger("dashboard.pages").warning("odd")
logging.getLogger("dashboard.pages").info("not shown")
logging.getLogger("others").info("not shown")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("dashboard.app").exception("a callback failed")
"""


def test_a_line_each_and_no_name_makes_two_of_one() -> None:
    audit, warning, error, *traceback = run_python("-c", SAYS).stderr.splitlines()
    moment = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert re.fullmatch(rf"{moment} audit: ann 2026-01-01T00:00:00Z audit: eve: did\?\[31m this\?", audit)
    assert re.fullmatch(rf"{moment} warning: odd", warning)
    assert re.fullmatch(rf"{moment} error: a callback failed", error)
    assert traceback[0].startswith("Traceback")
    assert traceback[-1] == "ZeroDivisionError: division by zero"

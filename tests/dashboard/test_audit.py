"""The log: who did what, a line each."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import pytest

from dashboard.access.audit import ACTION, audit, audit_stranger
from dashboard.pages.report import send_tried
from fallow.actors import ANONYMOUS, LINK, TOKEN, Actor
from tests.conftest import run_python
from tests.dashboard.acting import PLAN, VIEW_ALPHA, held_lake
from tests.dashboard.conftest import page, words
from tests.lakes import made_lake

if TYPE_CHECKING:
    from pathlib import Path

    from dashboard.access.people import Reader
    from fallow.lake import Lake

SAYS = """
import logging
from dashboard.access.audit import audit, show_log
from fallow.actors import Actor
from tests.lakes import made_lake
show_log(); show_log()
audit(Actor("ann\\n2026-01-01T00:00:00Z audit: eve"), "did\\x1b[31m this\\u202e", "action")
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
    assert re.fullmatch(rf'{moment} audit: person "ann 2026-01-01T00:00:00Z audit: eve": did\?\[31m this\?', audit)
    assert re.fullmatch(rf"{moment} warning: odd", warning)
    assert re.fullmatch(rf"{moment} error: a callback failed", error)
    assert traceback[0].startswith("    Traceback")
    assert traceback[-1] == "    ZeroDivisionError: division by zero"


@pytest.mark.parametrize(("who", "said"), [
    (Actor("ann"), "person ann: did it"),
    (Actor("ann@example.org"), "person ann@example.org: did it"),
    (Actor("EXAMPLE\\ann"), "person EXAMPLE\\ann: did it"),
    (Actor("boss: signed in as admin"), 'person "boss: signed in as admin": did it'),
    (Actor("anonymous at 10.0.0.1"), "person anonymous at 10.0.0.1: did it"),
    (Actor("token prometheus"), "person token prometheus: did it"),
    (Actor("prometheus", TOKEN), "token prometheus: did it"),
    (Actor("everybody"), "person everybody: did it"),
    (Actor("everybody", ANONYMOUS), "anonymous everybody: did it"),
    (Actor("ann@example.org", LINK), "link ann@example.org: did it"),
    (Actor('"boss": signed in'), 'person "\\"boss\\": signed in": did it'),
    (Actor(""), 'person "": did it'),
])  # fmt: skip
def test_a_name_does_not_pass_for_what_an_actor_did(who: Actor, said: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "dashboard.access.audit"):
        audit(who, "did it", ACTION)
        audit_stranger("10.0.0.1", "did it")
    assert caplog.messages == [said, "anonymous at 10.0.0.1: did it"]


@pytest.mark.parametrize(("who", "target", "lines"), [
    (VIEW_ALPHA, "{folder}", ["person vic: refused sending as viewer of team alpha: a report"]),
    (PLAN, "/etc", ["person pia: asks to send as planner: the report of 2025-W46 to /etc",
                    "person pia: did not send as planner: the report of 2025-W46: report.to does not name /etc"]),
    (PLAN, "{folder}", ["person pia: asks to send as planner: the report of 2025-W46 to {folder}",
                        "person pia: sending as planner: the report of 2025-W46 to {folder}: sent"]),
])  # fmt: skip
def test_a_line_says_who_sent_a_report_and_what_became_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, who: Reader, target: str, lines: list[str]
) -> None:
    held = held_lake(made_lake(tmp_path / "lake"), tmp_path)
    out = tmp_path / "out"
    held.config.write_text(f'{held.config.read_text(encoding="utf-8")}[report]\nto = ["{out}"]\n', encoding="utf-8")
    pages = held.pages(who)
    with caplog.at_level(logging.INFO, "dashboard.access.audit"), pages.app.server.test_request_context("/"):
        pages.app.server.preprocess_request()
        week = "?start=2025-W46"
        send_tried(pages.source, week, {"search": week, "targets": [target.format(folder=f"file:{out}")]})
    said = [each.getMessage() for each in caplog.records if each.name == "dashboard.access.audit"]
    assert said == [each.format(folder=f"file:{out}") for each in lines]


def test_a_page_that_is_not_for_a_reader_is_written_down(
    lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = held_lake(lake, tmp_path).pages(PLAN).client
    with caplog.at_level(logging.INFO, "dashboard.access.audit"):
        assert "not for you" in words(page(client, "/settings", "?span=all"))
    assert caplog.messages == ["person pia: refused the page /settings as planner: it takes the role admin"]


def test_what_an_error_repeats_does_not_pass_for_a_line_of_the_log() -> None:
    forged = "2026-01-01T00:00:00Z audit: boss: signed in as admin"
    says = (
        "import logging\nfrom dashboard.access.audit import show_log\nshow_log()\n"
        f"try:\n    raise LookupError('no such thing: \\n{forged}\\u2028{forged}\\x85{forged}\\x1b[2K')\n"
        "except LookupError:\n    logging.getLogger('dashboard').exception('Exception on /x')\n"
    )
    first, *others = run_python("-c", says).stderr.splitlines()
    assert first.endswith("error: Exception on /x")
    assert sum(forged in each for each in others) == 3
    assert all(each.startswith("    ") and each.isprintable() for each in others)

"""Log lines: one per record whatever it holds, for terminals, the journal and machines."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from agent.logs import JsonFormatter, TextFormatter
from tests.conftest import REPOSITORY, clean_environment, run_python

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import logging, sys
from agent import logs
logs.configure(sys.argv[1], "info")
logs.configure(sys.argv[1], "info")  # as after a reload: nothing is said twice
log = logging.getLogger("fallow.agent")
log.debug("unseen")
log.warning("GPU %d went\\nastray\\x1b[31m", 3, extra={"kind": "gpu_lost", "gpu": "GPU-1"})
try:
    1 / 0
except ZeroDivisionError:
    log.exception("no luck")
"""
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def lines(form: str, **environment: str) -> list[str]:
    done = run_python("-c", PROGRAM, form, **environment)
    assert (done.returncode, done.stdout, done.stderr[-1]) == (0, "", "\n")
    return done.stderr.splitlines()


def test_text_has_the_time_and_the_level() -> None:
    """Also where a service's child, whose standard error was redirected, inherits the journal's variable."""
    first, second = lines("text", JOURNAL_STREAM="1:1")
    assert re.fullmatch(TIME + r" warning GPU 3 went\\nastray\\x1b\[31m", first)
    assert re.match(TIME + r" error no luck \[Traceback .*\\n.*ZeroDivisionError: division by zero\]$", second)


def test_json_has_fields() -> None:
    first, second = (json.loads(line) for line in lines("json"))
    assert re.fullmatch(TIME, first.pop("time"))
    assert first == {"level": "warning", "message": "GPU 3 went\nastray\x1b[31m", "kind": "gpu_lost", "gpu": "GPU-1"}
    assert (second["level"], second["message"]) == ("error", "no luck")
    assert second["traceback"].endswith("ZeroDivisionError: division by zero")


def test_the_journal_gets_its_severity_and_keeps_its_own_time(tmp_path: Path) -> None:
    """What systemd does: standard error is a stream whose device and inode stand in the environment."""
    with (tmp_path / "journal").open("w") as journal:
        found = os.fstat(journal.fileno())
        environment = clean_environment({"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"})
        subprocess.run(
            [sys.executable, "-c", PROGRAM, "text"],
            stderr=journal,
            check=True,
            timeout=60,
            cwd=REPOSITORY,
            env=environment,
        )
    first, second = (tmp_path / "journal").read_text().splitlines()
    assert first == r"<4>GPU 3 went\nastray\x1b[31m"
    assert second.startswith("<3>no luck [Traceback")


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter(journald=False), TextFormatter(journald=True)])
@pytest.mark.parametrize(
    "breaker", ["\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\x00", "\x9b", "\u202e", "\u200b"]
)
def test_no_record_is_more_than_one_line(formatter: logging.Formatter, breaker: str) -> None:
    record = logging.LogRecord("fallow.agent", logging.INFO, "", 0, f"one{breaker}two", (), None)
    line = formatter.format(record)
    assert line.splitlines() == [line]
    assert line.isprintable()


def test_what_json_lacks_is_shown_as_text(tmp_path: Path) -> None:
    record = logging.makeLogRecord({"msg": "x", "levelname": "INFO", "path": tmp_path, "message": "shadow"})
    assert json.loads(JsonFormatter().format(record)) == {
        "time": json.loads(JsonFormatter().format(record))["time"],
        "level": "info",
        "message": "x",
        "path": str(tmp_path),
    }

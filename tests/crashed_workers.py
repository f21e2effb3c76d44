"""A test whose worker process died of a signal is run again, in a new worker, and the summary names it.

A test that kills its process does so again and fails; a fault of the machine hits another place the next time. Without
this a single such fault fails a run of some thousand tests, and a rerun of the whole run would say less. Such faults come
together: several processes of one processor within two seconds, so that a test may be hit twice.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

_AGAIN = "crashed"
_MOST = 2
"""Deaths of its worker after which a test is run again."""

_deaths: Counter[str] = Counter()
_came_back: set[str] = set()


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport) -> None:
    """The first deaths of a worker in a test are no failure: with `--dist loadfile` xdist hands the test out again."""
    _deaths[crashitem] += 1
    if _deaths[crashitem] <= _MOST:
        report.outcome = _AGAIN  # type: ignore[assignment]


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """`C` among the dots."""
    return (_AGAIN, "C", "CRASHED") if report.outcome == _AGAIN else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes that a test whose worker died has run to its end since, or was skipped."""
    if report.nodeid in _deaths and report.when == "teardown" and report.outcome != _AGAIN:
        _came_back.add(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A test that did not come back is a failure."""
    if _deaths.keys() - _came_back and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Names every test that lost its worker."""
    if not _deaths:
        return
    terminalreporter.section("worker processes that died of a signal")
    for test, deaths in sorted(_deaths.items()):
        became = "ran to its end in a new worker" if test in _came_back else "did not come back"
        terminalreporter.line(f"{test}: {deaths} times, {became}" if deaths > 1 else f"{test}: {became}")

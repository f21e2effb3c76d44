"""A test whose worker process died of a signal is run once more, in a new worker, and the summary names it.

A test that kills its process does so again and fails; a fault of the machine hits another place the next time. Without
this a single such fault fails a run of some thousand tests, and a rerun of the whole run would say less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

_ONCE_MORE = "crashed"
_died: dict[str, bool] = {}
"""By test: whether it has passed since its worker died."""


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport) -> None:
    """Only the first death of a worker in a test is no failure: with `--dist loadfile` xdist hands the test out again."""
    if crashitem not in _died:
        _died[crashitem] = False
        report.outcome = _ONCE_MORE  # type: ignore[assignment]


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """`C` among the dots."""
    return (_ONCE_MORE, "C", "CRASHED") if report.outcome == _ONCE_MORE else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes that a test whose worker died has run to its end since, or was skipped."""
    if report.nodeid in _died and report.when == "teardown" and report.outcome != _ONCE_MORE:
        _died[report.nodeid] = True


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A test that did not come back is a failure."""
    if not all(_died.values()) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Names every test that lost its worker."""
    if not _died:
        return
    terminalreporter.section("worker processes that died of a signal")
    for test, came_back in sorted(_died.items()):
        became: Literal["ran to its end in a new worker", "did not come back"]
        became = "ran to its end in a new worker" if came_back else "did not come back"
        terminalreporter.line(f"{test}: {became}")

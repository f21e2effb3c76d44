"""A second and third chance for tests of the agent, which look at a clock that goes on while the machine does other work.

Intervals of a second and calls that may block for one leave no room for a machine that gives a process no CPU for as long. What
fails three times is a fault. Tests that needed more than one attempt are named at the end of the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from _pytest.runner import runtestprotocol

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

ATTEMPTS = 3
_REAL_TIME = "tests/agent/"
_NAME = "attempts"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs a test in real time until it passes, three times at most; the last attempt is the one that counts."""
    if not item.nodeid.startswith(_REAL_TIME):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    attempt, is_over = 0, False
    while not is_over:
        attempt += 1
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        is_over = attempt == ATTEMPTS or not any(each.failed for each in reports)
    for report in reports:
        report.user_properties.append((_NAME, attempt))
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Names those that needed more than one."""
    again = {
        report.nodeid: dict(report.user_properties).get(_NAME, 1)
        for kind in ("passed", "failed")
        for report in terminalreporter.getreports(kind)
        if dict(report.user_properties).get(_NAME, 1) > 1
    }
    if again:
        terminalreporter.section("tests in real time that were tried again")
        for nodeid, attempts in sorted(again.items()):
            terminalreporter.line(f"{attempts} attempts: {nodeid}")

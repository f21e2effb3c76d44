"""Runs every check; one that fails itself is a finding, and never hides the others."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from agent.doctor.case import Case, Check, Options
from agent.doctor.checks import CHECKS
from agent.doctor.finding import Finding, Result, Status, error
from agent.doctor.kernel import read_kernel
from agent.doctor.look import look_at_driver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.doctor.host import Host


def examine(host: Host, options: Options, checks: tuple[Check, ...] = CHECKS) -> list[Result]:
    """Every check's findings, in the order of the checks; the driver is asked once."""
    case = Case(host, read_kernel(host), look_at_driver(host, options.timeout_s), options)
    return [Result(check.id, finding) for check in checks for finding in _findings(check, case)]


def _findings(check: Check, case: Case) -> Iterator[Finding]:
    try:
        yield from check.look(case)
    except Exception as broken:  # noqa: BLE001  # a check must never take the others along
        yield error(
            f"this check itself failed: {broken!r}", "report it, with the output of --json", "fallow doctor --json"
        )


def counts(results: list[Result]) -> dict[Status, int]:
    """How many findings of each status, all four always there."""
    counted = Counter(result.finding.status for result in results)
    return {status: counted[status] for status in Status}

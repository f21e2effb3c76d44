"""The findings that a reader sees first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analytics.findings.model import Finding
    from analytics.report.model import Report

_APART = "efficiency"
"""The category that has a table of its own: nothing there is to take back."""


def by_cost(findings: Iterable[Finding]) -> list[Finding]:
    """The costliest first; those without a price last, by GPU time."""
    return sorted(findings, key=lambda each: (each.cost is None, -(each.cost or 0.0), -each.gpu_ms, each.finding_id))


def costliest(report: Report) -> list[Finding]:
    """The findings that are about GPUs to take back or to change, the costliest first."""
    return by_cost(finding for finding in report.findings if finding.category != _APART)


def busy_but_inefficient(report: Report) -> list[Finding]:
    """The findings about GPUs that work but could do more, the costliest first."""
    return by_cost(finding for finding in report.findings if finding.category == _APART)

"""Findings of one rule on a fleet of a few lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.findings.conftest import findings

if TYPE_CHECKING:
    from analytics.workloads.model import Finding
    from fallow.lake import Lake
    from tests.findings.scenarios.builder import Fleet


def of_rule(rule: str, fleet: Fleet, lake: Lake, since: str | None = None) -> list[Finding]:
    """What the rule finds, by subject."""
    found = findings(fleet.write(lake), since)
    return sorted((each for each in found if each.rule == rule), key=lambda each: each.subject)


def only_of(rule: str, fleet: Fleet, lake: Lake, since: str | None = None) -> Finding:
    """The one finding of the rule."""
    (found,) = of_rule(rule, fleet, lake, since)
    return found

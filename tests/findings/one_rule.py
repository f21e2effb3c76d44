"""One rule on one fleet, as the commands would have it while the newest row is being written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.findings.conftest import context_of

if TYPE_CHECKING:
    from analytics.workloads.model import Finding, Rule
    from fallow.lake import Lake
    from tests.findings.scenarios.builder import Fleet


def found(rule: Rule, fleet: Fleet, lake: Lake, since: str | None = None, until: str | None = None) -> list[Finding]:
    """What the rule says of the fleet, by subject."""
    fleet.write(lake)
    return again(rule, lake, since, until)


def again(rule: Rule, lake: Lake, since: str | None = None, until: str | None = None) -> list[Finding]:
    """What the rule says of a lake that is filled."""
    context = context_of(lake, since, until)
    return sorted(rule.find(context), key=lambda finding: (finding.host, finding.subject))

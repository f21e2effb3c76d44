"""One rule on one fleet, as the commands would have it while the newest row is being written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.decide.review import run_rules
from analytics.rules import RULES
from tests.findings.conftest import context_of

if TYPE_CHECKING:
    from analytics.workloads.model import Finding, Rule
    from tests.findings.conftest import Site
    from tests.findings.scenarios.builder import Fleet


def found(rule: Rule, fleet: Fleet, since: str | None = None, until: str | None = None) -> list[Finding]:
    """What the rule says of the fleet, by subject."""
    return found_in(rule, fleet.recording(), since, until)


def found_in(rule: Rule, site: Site, since: str | None = None, until: str | None = None) -> list[Finding]:
    """What the rule says of a lake or a recording, by host and subject."""
    context = context_of(site, since, until)
    return sorted(run_rules(context, [rule]), key=lambda finding: (finding.host, finding.subject))


def of_rule(name: str, fleet: Fleet, since: str | None = None) -> list[Finding]:
    """What the rule of that name says of the fleet, by subject."""
    (rule,) = (each for each in RULES if each.name == name)
    return sorted(found(rule, fleet, since), key=lambda finding: finding.subject)


def only_of(name: str, fleet: Fleet, since: str | None = None) -> Finding:
    """The one finding of the rule."""
    (finding,) = of_rule(name, fleet, since)
    return finding

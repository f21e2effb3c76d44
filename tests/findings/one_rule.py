"""One rule on one fleet, as the commands would have it while the newest row is being written."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from analytics.decide.review import run_rules
from analytics.rules import RULES_BY_NAME
from tests.findings.conftest import context_of
from tests.findings.scenarios.builder import H100, Fleet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from _pytest.mark import ParameterSet

    from analytics.workloads.model import Finding
    from tests.findings.conftest import Site
    from tests.findings.scenarios.builder import SimulatedCard

Numbers = dict[str, Any]


def found(rule: str, site: Site | Fleet, since: str | None = None, until: str | None = None) -> list[Finding]:
    """What the rule of that name says of a fleet, a lake or a recording, by host and subject."""
    context = context_of(site.recording() if isinstance(site, Fleet) else site, since, until)
    return sorted(run_rules(context, [RULES_BY_NAME[rule]]), key=lambda finding: (finding.host, finding.subject))


def only_of(rule: str, site: Site | Fleet, since: str | None = None, until: str | None = None) -> Finding:
    """The one finding of the rule."""
    (finding,) = found(rule, site, since, until)
    return finding


def numbers_of(rule: str, fleet: Fleet) -> Numbers:
    """The evidence of the one finding of the rule."""
    return dict(only_of(rule, fleet).evidence.numbers)


def one_host(
    card: SimulatedCard = H100,
    gpus: int = 1,
    *,
    days: float = 2,
    interval_s: float = 300,
    user: str = "ann",
    **work: Any,
) -> Fleet:
    """A fleet of one host whose GPUs do one work; levels that need the grid are functions of the fleet."""
    fleet = Fleet(days, interval_s=interval_s)
    levels = {name: value(fleet) if callable(value) else value for name, value in work.items()}
    fleet.run(fleet.host("h1", card, gpus), user, levels.pop("when", None), **({"util": 95.0} | levels))
    return fleet


def edges(rule: str, *rows: tuple[str, int | Mapping[Any, int], Callable[..., Fleet]]) -> list[ParameterSet]:
    """Cases of `finds_so_many`: what is promised, how many findings there are by the value at the edge, and the fleet of it.

    Where the promise has no edge there is one number of findings; a tuple is several arguments.
    """
    cases = []
    for promise, counts, build in rows:
        for value, count in ({(): counts} if isinstance(counts, int) else counts).items():
            made = partial(build, *value) if isinstance(value, tuple) else partial(build, value)
            cases.append(pytest.param(rule, made, count, id=f"{rule}: {promise} {value if value != () else ''}"))
    return cases


def finds_so_many(rule: str, build: Callable[[], Fleet], count: int) -> None:
    assert len(found(rule, build())) == count

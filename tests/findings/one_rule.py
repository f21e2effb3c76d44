"""One rule on one fleet, as the commands would have it while the newest row is being written."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from analytics.decide.review import run_rules
from analytics.rules import RULES_BY_NAME
from tests.findings.conftest import context_of
from tests.findings.scenarios.builder import H100, Fleet
from tests.ledger.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from _pytest.mark import ParameterSet

    from analytics.workloads.model import Finding
    from fallow import schema
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


Case = tuple[str, "Callable[[], Fleet]", int]
"""What is promised, a fleet, and how many findings there are in it."""


def edges(
    rule: str, *rows: tuple[str, int | Mapping[Any, int], Callable[..., Fleet]], apart: bool = False
) -> ParameterSet:
    """The cases of a rule for `finds_so_many`: the promise, the number of findings per value at its edge, the fleet.

    A promise without an edge has one number of findings; a tuple is several arguments. A rule that compares users or
    cards of a whole site has its cases `apart`.
    """
    cases: list[Case] = []
    for promise, counts, build in rows:
        for value, count in ({(): counts} if isinstance(counts, int) else counts).items():
            made = partial(build, *value) if isinstance(value, tuple) else partial(build, value)
            cases.append((f"{promise} {value if value != () else ''}".strip(), made, count))
    return pytest.param(rule, cases, apart, id=rule)


def finds_so_many(rule: str, cases: Sequence[Case], *, apart: bool) -> None:
    """Unless they are apart, the fleets of one length and pace are one site: the rule runs once over all of them."""
    sites: dict[object, list[tuple[int, Fleet]]] = {}
    for number, (_, build, _) in enumerate(cases):
        fleet = build()
        key = number if apart else (fleet.start_ms, fleet.interval_ms, fleet.process_interval_ms)
        sites.setdefault(key, []).append((number, fleet))
    counts = Counter(number_of(finding) for fleets in sites.values() for finding in found(rule, together(fleets)))
    assert [(promise, counts[number]) for number, (promise, _, _) in enumerate(cases)] == [
        (promise, count) for promise, _, count in cases
    ]


NAMES = ("gpu", "parent_gpu", "pool", "user", "account", "slurm_account", "slurm_job_id", "allocation_id", "namespace")
"""Columns whose names get the number of their fleet, so that no fleet knows of another."""


def together(fleets: Sequence[tuple[int, Fleet]], host: str = "{}-{:03}") -> Recording:
    """One site with all these fleets, whose names end with three digits of their number."""
    site = Recording()
    for number, fleet in fleets:
        for table, name, rows in fleet.recording().tables():
            site.add(table, host.format(name, number), numbered(rows, table, number))
    return site


def number_of(finding: Finding) -> int:
    """The fleet of `together` that a finding is about."""
    return int(finding.gpus[0][-3:])


def numbered(rows: pa.Table, table: schema.LakeTable, number: int) -> pa.Table:
    """The rows with the number at the end of their names."""
    for name in set(NAMES) & set(table.names):
        values = [value and f"{value}{number:03}" for value in rows[name].to_pylist()]
        field = rows.schema.field(name)
        rows = rows.set_column(rows.schema.get_field_index(name), field, pa.array(values, field.type))
    return rows

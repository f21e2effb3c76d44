"""What would lie together on one card, of the small works of one pool and model: by MIG where cards can be split, else by sharing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from analytics.workloads.mig_layouts import fewest_cards
from analytics.workloads.mig_profiles import MigFit, fits, profile_for
from analytics.workloads.model import Context
from analytics.workloads.packing_model import MIG, SHARING
from analytics.workloads.packing_places import Bin
from analytics.workloads.sharing import BUSY_MAX_PCT, MEMORY_MAX_SHARE, Candidate, candidates, is_best_effort
from analytics.workloads.sharing_groups import best_sharing


@dataclass(frozen=True)
class Plan:
    """What lies together, by GPU: `places` has profile and start of each GPU in a split card, `at_most` the bound on freed GPUs."""

    kind: str
    bins: tuple[Bin, ...]
    at_most: int
    places: Mapping[str, tuple[MigFit, int]]
    members: Mapping[str, Candidate]


def plan_of(context: Context, works: pl.DataFrame) -> Plan:
    """The best plan for works of one pool and model (columns of `small_works`)."""
    return _split(works) if fits(works["model"][0]) else _shared(context, works)


def _split(works: pl.DataFrame) -> Plan:
    """The GPUs as instances on the fewest cards; a GPU with work for no instance is left out, as is one that would be alone."""
    order = {each.profile.name: place for place, each in enumerate(fits(works["model"][0]))}
    needs: dict[str, MigFit | None] = {}
    for row in works.iter_rows(named=True):
        fit, before = profile_for(row), needs.get(row["gpu"])
        if row["gpu"] not in needs or (
            before and (fit is None or order[fit.profile.name] > order[before.profile.name])
        ):
            needs[row["gpu"]] = fit
    known = [(gpu, fit) for gpu, fit in needs.items() if fit is not None]
    layouts = fewest_cards([fit for _, fit in known])
    several = [each for each in layouts if len(each) > 1]
    places = {known[one.number][0]: (known[one.number][1], one.start) for each in several for one in each}
    bins = tuple(tuple(known[one.number][0] for one in each) for each in several)
    return Plan(MIG, bins, len(known) - len(layouts), places, {})


def _shared(context: Context, works: pl.DataFrame) -> Plan:
    """The GPUs in pairs and triples that leave room for one another and of which one at most may not be slowed down."""
    fitting = works.filter(
        (pl.col("util_mean_pct") <= BUSY_MAX_PCT).all().over("gpu"),
        (pl.col("q98_bytes") < MEMORY_MAX_SHARE * pl.col("card_bytes")).all().over("gpu"),
    )
    fitting = fitting.with_columns(number=pl.col("gpu").rank("dense").cast(pl.Int64))
    yielding = [is_best_effort(context.owners, *names) for names in fitting.select("holder", "account").iter_rows()]
    fitting = fitting.with_columns(yielding=pl.Series(yielding, dtype=pl.Boolean))
    gives_way = fitting.group_by("number").agg(pl.col("yielding").all()).filter("yielding")["number"]
    if gives_way.is_empty():
        return Plan(SHARING, (), 0, {}, {})
    those = list(candidates(context, fitting, "number").values())
    found = best_sharing(those, frozenset(gives_way), int(fitting["card_bytes"].bottom_k(1)[0]))
    bins = tuple(tuple(each.gpu for each in group.members) for group in found.groups)
    return Plan(SHARING, bins, found.at_most, {}, {each.gpu: each for each in those})

"""Which workloads together fill which cards, and how many whole cards that frees in this fleet.

A part of a card that nobody else uses saves nothing; a card comes free where all of its work finds room on others. So it is
GPUs that are packed, pool by pool and model by model: those on which every run of the window was small work of one GPU.
What ran on a GPU one after the other needs one place, as large as the largest of it wants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from analytics.language.sentences import tr, tr_many
from analytics.workloads.commands import monitor_command
from analytics.workloads.confidence import grade, known_holder, observe, right_clocks, watched_enough
from analytics.workloads.mig_profiles import part_measured, split_command
from analytics.workloads.model import Confidence, Context, once_per_context
from analytics.workloads.packing_model import BUSY_TIME, SHARING, SM_ACTIVITY, PackedCard, PackedWork, Packing
from analytics.workloads.packing_places import Bin, targets, wholly_freed
from analytics.workloads.packing_plans import Plan, plan_of
from analytics.workloads.runs import stretches_of
from analytics.workloads.sharing import holders_apart
from analytics.workloads.slowdown import Slowdown, in_a_part, on_a_shared_card
from analytics.workloads.small_works import short_runs_beside, small_works
from analytics.workloads.window_end import still_going
from analytics.workloads.workloads import runs_of, seen_long_enough


@once_per_context
def packings(context: Context) -> tuple[Packing, ...]:
    """Every packing that frees a card, the largest saving first."""
    return packings_without(context, frozenset())


def packings_without(context: Context, gpus: frozenset[str]) -> tuple[Packing, ...]:
    """The same without the work on some GPUs, of which something else was decided."""
    found = (_packing(context, items) for items in _pools(context, gpus))
    freeing = [each for each in found if each is not None]
    return tuple(sorted(freeing, key=lambda each: (-(each.saving or 0.0), -len(each.freed_gpus), each.packing_id)))


def _pools(context: Context, without: frozenset[str]) -> Iterator[pl.DataFrame]:
    """The small works of GPUs that may come free, of each pool and model with several of them."""
    small, short = small_works(context), short_runs_beside(context)
    if not short:
        return
    chosen = [gpu in short and gpu not in without for gpu in small["gpu"]]
    for works in small.filter(pl.Series(chosen, dtype=pl.Boolean)).partition_by("pool", "model", maintain_order=True):
        if works["gpu"].n_unique() > 1:
            yield works


def _packing(context: Context, works: pl.DataFrame) -> Packing | None:
    """What packing these works of one pool and model frees; None where that is no card."""
    plan = plan_of(context, works)
    if not plan.bins:
        return None
    cards = tuple(_card(context, works, plan, gpus, target) for gpus, target in targets(context, plan.bins))
    gpus = {gpu for each in plan.bins for gpu in each}
    freed = tuple(sorted(gpus - {each.gpu for each in cards}))
    own = works.filter(pl.col("gpu").is_in(sorted(gpus)))
    moved = stretches_of(context, runs_of(context, own.filter(pl.col("gpu").is_in(freed))))
    saving = context.costs.of(moved)
    return Packing(
        kind=plan.kind,
        pool=works["pool"][0],
        model=works["model"][0],
        cards=cards,
        freed_gpus=freed,
        freed_hosts=wholly_freed(context, freed),
        at_most=plan.at_most,
        measured_by=BUSY_TIME if plan.kind == SHARING or own["sm_pct"].null_count() else SM_ACTIVITY,
        saving=saving or None,
        currency=context.costs.currency,
        confidence=_confidence(context, own, plan),
        simulated=all(context.inventory.simulated(gpu) for gpu in gpus),
    )


def _card(context: Context, works: pl.DataFrame, plan: Plan, gpus: Bin, target: str) -> PackedCard:
    rows = works.filter(pl.col("gpu").is_in(gpus)).sort("began", "work").iter_rows(named=True)
    packed = tuple(sorted((_work(row, plan, gpus) for row in rows), key=lambda each: (each.start or 0, each.gpu)))
    host = context.inventory.devices[target].host
    if plan.kind == SHARING:
        return PackedCard(host, target, packed, monitor_command(host, (target,)))
    instances = sorted((start, fit.profile.name) for fit, start in (plan.places[gpu] for gpu in gpus))
    asked = ",".join(f"{name}:{start}" for start, name in instances)
    certain = context.latest and host not in context.ahead
    return PackedCard(host, target, packed, split_command(host, (target,), asked, certain=certain))


def _work(row: Mapping[str, Any], plan: Plan, gpus: Bin) -> PackedWork:
    fit, start = plan.places.get(row["gpu"], (None, None))
    return PackedWork(
        holder=row["holder"],
        account=row["account"],
        job=row["job"],
        host=row["host"],
        gpu=row["gpu"],
        gpu_ms=row["gpu_ms"],
        memory_bytes=row["q98_bytes"] if fit is None else max(row["need_bytes"], row["peak_bytes"]),
        busy_pct=row["busy95_pct"],
        sm_pct=row["sm95_pct"],
        slowdown=_slowdown(row, plan, gpus),
        profile=None if fit is None else fit.profile.name,
        start=start,
    )


def _slowdown(row: Mapping[str, Any], plan: Plan, gpus: Bin) -> Slowdown:
    gpu = row["gpu"]
    if gpu in plan.members:
        return on_a_shared_card(plan.members[gpu], (plan.members[each] for each in gpus if each != gpu))
    fit, _ = plan.places[gpu]
    return in_a_part(
        fit.sm_share,
        used_pct=row["busy95_pct"] if row["sm95_pct"] is None else row["sm95_pct"],
        busy_mean_pct=row["util_mean_pct"],
        sm_mean_pct=row["sm_mean_pct"],
    )


def _confidence(context: Context, own: pl.DataFrame, plan: Plan) -> Confidence:
    """How sure it is that the works fit and stay: each condition that fails for any of them, once."""
    gpus = own["gpu"].unique().sort().to_list()
    rows = stretches_of(context, runs_of(context, own))
    holders = own.select("holder_source", "holder").unique(maintain_order=True).iter_rows()
    specific = _not_measured(own, plan) if plan.places else _not_shielded(own, plan)
    failed = [
        *watched_enough(observe(context, gpus, rows)),
        *right_clocks(context, rows),
        *(failure for each in holders for failure in known_holder(*each)),
        *seen_long_enough(own),
        *specific,
        *([] if set(still_going(context, rows)) == set(gpus) else [tr("not all of them are still running")]),
        *_short_runs(context, gpus),
    ]
    return grade(list(dict.fromkeys(failed)))


def _not_measured(own: pl.DataFrame, plan: Plan) -> Iterator[str]:
    """Failures to have measured what the works need of an instance's SMs, by the size of the instances."""
    shares = pl.Series([plan.places[gpu][0].sm_share for gpu in own["gpu"]], dtype=pl.Float64)
    for works in own.with_columns(share=shares).partition_by("share"):
        yield from part_measured(works, works["share"][0])


def _not_shielded(own: pl.DataFrame, plan: Plan) -> Iterator[str]:
    """Failures that any shared card has, and those of cards that several users would share."""
    yield tr("interference cannot be measured: try it, and compare the time per step")
    for gpus in plan.bins:
        yield from holders_apart(own.filter(pl.col("gpu").is_in(gpus)))


def _short_runs(context: Context, gpus: Sequence[str]) -> list[str]:
    short = sum(short_runs_beside(context)[gpu] for gpu in gpus)
    if not short:
        return []
    return [
        tr_many(
            "{number} run of less than an hour was on these GPUs as well, and would need another place",
            "{number} runs of less than an hour were on these GPUs as well, and would need another place",
            short,
        )
    ]

"""Workloads that fill cards together, and the whole cards that this frees in the fleet.

An unused part of a card saves nothing; a card becomes free if all of its work fits on other cards. So GPUs are packed,
by pool and
model: those on which every run of the window was small work of a single GPU. Consecutive runs of a GPU need one place,
as large as
the largest run wants.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from analytics.language.sentences import tr, tr_many
from analytics.workloads.cards import present_gpus
from analytics.workloads.commands import monitor_command
from analytics.workloads.confidence import grade, known_user, observe, right_clocks, watched_enough
from analytics.workloads.mig_profiles import MigFit, fewest_cards, fits, part_measured, profile_for, split_command
from analytics.workloads.model import Confidence, Context, once_per_context
from analytics.workloads.runs import NEED_SHARE, runs, segments_of
from analytics.workloads.sharing import (
    BUSY_MAX_PCT,
    MEMORY_MAX_SHARE,
    CardSharer,
    Slowdown,
    best_sharing,
    candidates,
    in_a_part,
    is_best_effort,
    on_a_shared_card,
    users_apart,
)
from analytics.workloads.window_end import still_going
from analytics.workloads.workloads import (
    REPORTED_FROM_GPU_MS,
    RUN_MIN_MS,
    nvlinked,
    runs_of,
    runs_with_workload,
    seen_long_enough,
    with_demand,
    workloads,
)

MIG, SHARING = "mig", "sharing"
"""Kinds of packings: instances of split cards, and whole cards that several workloads share in turns."""

BUSY_TIME, SM_ACTIVITY = "busy time", "sm"
"""Measures of a workload's part of a card: SM activity, or the time with any kernel, which is never less."""


@dataclass(frozen=True)
class PackedWork:
    """A workload of a user on a GPU, and its place in the packing."""

    user: str | None
    account: str | None
    job: str | None
    host: str
    gpu: str
    gpu_ms: float
    memory_bytes: int
    """Memory need: the 98th percentile; for MIG with its margin, or the peak if that is larger."""
    busy_pct: float
    """Value that the time with any kernel does not exceed for 95 % of the time."""
    sm_pct: float | None
    """Value that SM activity does not exceed for 95 % of the time; None if not measured."""
    slowdown: Slowdown
    profile: str | None = None
    """Profile of the instance. Workloads of a GPU follow each other in the same instance."""
    start: int | None = None
    """Memory slice at which the instance begins."""


@dataclass(frozen=True)
class PackedCard:
    """A card of the fleet, the workloads that it would hold, and the command that prepares it."""

    host: str
    gpu: str
    workloads: tuple[PackedWork, ...]
    command: str

    @property
    def gpus(self) -> tuple[str, ...]:
        """Return the GPUs on which its workloads are now."""
        return tuple(sorted({each.gpu for each in self.workloads}))


@dataclass(frozen=True)
class Packing:
    """GPUs that a packing would free in a pool of a model, and how."""

    kind: str
    pool: str
    model: str
    cards: tuple[PackedCard, ...]
    freed_gpus: tuple[str, ...]
    freed_hosts: tuple[str, ...]
    at_most: int
    """No packing of these workloads frees more. Equal to the freed GPUs if the packing is proven the best."""
    measured_by: str
    saving: float | None
    """Price of the moved workloads' time on freed GPUs in the window, without idle time; None if a price is missing.

    The recommendation has the value of a year.
    """
    currency: str
    confidence: Confidence
    simulated: bool

    @property
    def packing_id(self) -> str:
        """Return an id that is stable over weeks: from kind, pool and model."""
        return "P-" + hashlib.sha256(f"{self.kind}\0{self.pool}\0{self.model}".encode()).hexdigest()[:10]

    @property
    def recommendation_id(self) -> str:
        """Return the id of the recommendation to pack, which has the same digits."""
        return "R" + self.packing_id[1:]

    @property
    def workloads(self) -> tuple[PackedWork, ...]:
        return tuple(work for each in self.cards for work in each.workloads)

    @property
    def gpus(self) -> tuple[str, ...]:
        """Return the GPUs on which its workloads are now: those that stay and those that become free."""
        return tuple(sorted({gpu for each in self.cards for gpu in each.gpus}))

    @property
    def users(self) -> frozenset[str | None]:
        return frozenset(each.user for each in self.workloads)


@once_per_context
def small_workloads(context: Context) -> pl.DataFrame:
    """Return workloads of one GPU that may leave room on it.

    Columns: those of `with_demand` for NEED_SHARE, busy95_pct, sm95_pct, util_mean, sm_mean, host, gpu and pool.
    """
    alone = workloads(context).filter(
        (pl.col("gpu_count") == 1) & (pl.col("gpus") == 1) & pl.col("need_bytes").is_not_null()
    )
    alone = alone.join(nvlinked(context), on="work", how="anti")
    if alone.is_empty():
        return alone
    where = runs_of(context, alone).join(runs(context).select("run", "sm_mean_pct"), on="run", suffix="_of_run")
    where = where.group_by("work").agg(pl.col("host", "gpu", "sm_mean_pct").first())
    usual = with_demand(context, alone.select("work")).select("work", busy95_pct="util_pct", sm95_pct="sm_pct")
    found = with_demand(context, alone, NEED_SHARE).filter(pl.col("util_pct") > 0)
    found = found.join(where, on="work").join(usual, on="work")
    pools = [context.inventory.pool(gpu) for gpu in found["gpu"]]
    return found.with_columns(pool=pl.Series(pools, dtype=pl.String)).sort("pool", "model", "host", "gpu", "work")


@once_per_context
def short_runs_beside(context: Context) -> Mapping[str, int]:
    """Return the GPUs with small work only, and the number of short runs beside it."""
    small = small_workloads(context)
    if small.is_empty():
        return {}
    own = runs_with_workload(context).filter(~pl.col("service"))
    is_short = (pl.col("ended") - pl.col("began") < RUN_MIN_MS).alias("short")
    rest = (
        own.join(small.select("work"), on="work", how="anti")
        .group_by("gpu")
        .agg(short=is_short.sum(), others=(~is_short).sum())
    )
    per_gpu = (
        small.group_by("gpu")
        .agg(pl.col("gpu_ms").sum())
        .join(rest, on="gpu", how="left")
        .with_columns(pl.col("short", "others").fill_null(0))
    )
    kept = per_gpu.filter((pl.col("others") == 0) & (pl.col("gpu_ms") > REPORTED_FROM_GPU_MS))
    there = present_gpus(context)
    return {gpu: short for gpu, short in kept.select("gpu", "short").iter_rows() if gpu in there}


Bin = tuple[str, ...]
"""GPUs whose work lies together on a card."""


def targets(context: Context, bins: Sequence[Bin]) -> list[tuple[Bin, str]]:
    """Return each bin with its card, one of the GPUs on which the bins' workloads are now.

    A bin stays on a card of its own, unless more whole hosts become free otherwise.
    """
    packed = {gpu for each in bins for gpu in each}
    ranks = {gpu: _rank(context, gpu, packed) for gpu in packed}
    own = [(each, min(each, key=ranks.__getitem__)) for each in bins]
    kept = sorted(packed, key=ranks.__getitem__)[: len(bins)]
    moved = _placed_bins(bins, kept)
    freed = [wholly_freed(context, packed - {target for _, target in each}) for each in (own, moved)]
    return moved if len(freed[1]) > len(freed[0]) else own


def _rank(context: Context, gpu: str, packed: Collection[str]) -> tuple[bool, int, str, str]:
    """Return the rank of cards to keep: first on hosts that cannot become free, then on the largest hosts."""
    host = context.inventory.devices[gpu].host
    there = gpus_of_hosts(context).get(host, frozenset())
    return there <= set(packed), -len(there), host, gpu


def _placed_bins(bins: Sequence[Bin], kept: Sequence[str]) -> list[tuple[Bin, str]]:
    """Return the bins on these cards, each on a card of its own if it is among them."""
    left = set(kept)
    found: dict[Bin, str] = {}
    for each in bins:
        target = next((gpu for gpu in each if gpu in left), None)
        if target is not None:
            found[each] = target
            left.remove(target)
    rest = iter(sorted(left))
    return [(each, found[each] if each in found else next(rest)) for each in bins]


@once_per_context
def gpus_of_hosts(context: Context) -> dict[str, frozenset[str]]:
    """Return the whole GPUs of each host at the window's end."""
    there = present_gpus(context)
    found: dict[str, set[str]] = {}
    for gpu, device in context.inventory.devices.items():
        if gpu in there and device.parent_gpu is None:
            found.setdefault(device.host, set()).add(gpu)
    return {host: frozenset(gpus) for host, gpus in found.items()}


def wholly_freed(context: Context, freed: Collection[str]) -> tuple[str, ...]:
    """Return the hosts whose GPUs all become free."""
    devices = context.inventory.devices
    counts = Counter(devices[gpu].host for gpu in freed)
    return tuple(sorted(host for host, count in counts.items() if count == len(gpus_of_hosts(context)[host])))


@dataclass(frozen=True)
class Plan:
    """GPUs whose work lies together."""

    kind: str
    bins: tuple[Bin, ...]
    at_most: int
    """Upper bound of freed GPUs."""
    places: Mapping[str, tuple[MigFit, int]]
    """Profile and start of each GPU in a split card."""
    members: Mapping[str, CardSharer]


def _split_plan(group: pl.DataFrame) -> Plan:
    """Return the GPUs as instances on the fewest cards.

    GPUs whose work fits no instance, or that would be alone, are left out.
    """
    order = {each.profile.name: place for place, each in enumerate(fits(group["model"][0]))}
    needs: dict[str, MigFit | None] = {}
    for row in group.iter_rows(named=True):
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


def _sharing_plan(context: Context, group: pl.DataFrame) -> Plan:
    """Return pairs and triples of GPUs that leave room for each other, at most one of them not best-effort."""
    fitting = group.filter(
        (pl.col("util_mean_pct") <= BUSY_MAX_PCT).all().over("gpu"),
        (pl.col("q98_bytes") < MEMORY_MAX_SHARE * pl.col("card_bytes")).all().over("gpu"),
    )
    fitting = fitting.with_columns(number=pl.col("gpu").rank("dense").cast(pl.Int64))
    yielding = [is_best_effort(context.owners, *names) for names in fitting.select("user", "account").iter_rows()]
    fitting = fitting.with_columns(yielding=pl.Series(yielding, dtype=pl.Boolean))
    gives_way = fitting.group_by("number").agg(pl.col("yielding").all()).filter("yielding")["number"]
    if gives_way.is_empty():
        return Plan(SHARING, (), 0, {}, {})
    those = list(candidates(context, fitting, "number").values())
    found = best_sharing(those, frozenset(gives_way), int(fitting["card_bytes"].bottom_k(1)[0]))
    bins = tuple(tuple(each.gpu for each in group.members) for group in found.groups)
    return Plan(SHARING, bins, found.at_most, {}, {each.gpu: each for each in those})


def packings(context: Context, without: frozenset[str] = frozenset()) -> tuple[Packing, ...]:
    """Return every packing that frees a card, the largest saving first, without the work on some GPUs."""
    found = (_packing(context, items) for items in _pools(context, without))
    freeing = [each for each in found if each is not None]
    return tuple(sorted(freeing, key=lambda each: (-(each.saving or 0.0), -len(each.freed_gpus), each.packing_id)))


def _pools(context: Context, without: frozenset[str]) -> Iterator[pl.DataFrame]:
    """Yield the small workloads of GPUs that may become free, by pool and model with several such GPUs."""
    small, short = small_workloads(context), short_runs_beside(context)
    if not short:
        return
    chosen = [gpu in short and gpu not in without for gpu in small["gpu"]]
    for group in small.filter(pl.Series(chosen, dtype=pl.Boolean)).partition_by("pool", "model", maintain_order=True):
        if group["gpu"].n_unique() > 1:
            yield group


def _packing(context: Context, group: pl.DataFrame) -> Packing | None:
    """Return the packing of these workloads of a pool and model; None if it frees no card."""
    plan = _split_plan(group) if fits(group["model"][0]) else _sharing_plan(context, group)
    if not plan.bins:
        return None
    cards = tuple(_card(context, group, plan, gpus, target) for gpus, target in targets(context, plan.bins))
    gpus = {gpu for each in plan.bins for gpu in each}
    freed = tuple(sorted(gpus - {each.gpu for each in cards}))
    own = group.filter(pl.col("gpu").is_in(sorted(gpus)))
    moved = segments_of(context, runs_of(context, own.filter(pl.col("gpu").is_in(freed))))
    saving = context.costs.of(moved)
    return Packing(
        kind=plan.kind,
        pool=group["pool"][0],
        model=group["model"][0],
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


def _card(context: Context, group: pl.DataFrame, plan: Plan, gpus: Bin, target: str) -> PackedCard:
    rows = group.filter(pl.col("gpu").is_in(gpus)).sort("began", "work").iter_rows(named=True)
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
        user=row["user"],
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
    """Return the confidence that the workloads fit and stay: each condition that fails for any of them, once."""
    gpus = own["gpu"].unique().sort().to_list()
    rows = segments_of(context, runs_of(context, own))
    users = own.select("user_source", "user").unique(maintain_order=True).iter_rows()
    specific = _measurement_failures(own, plan) if plan.places else _isolation_failures(own, plan)
    short = sum(short_runs_beside(context)[gpu] for gpu in gpus)
    short_runs = tr_many(
        "{number} {run|runs} of less than an hour also used these GPUs and would need another GPU", short
    )
    failed = [
        *watched_enough(observe(context, gpus, rows)),
        *right_clocks(context, rows["host"]),
        *(failure for each in users for failure in known_user(*each)),
        *seen_long_enough(own),
        *specific,
        *([] if set(still_going(context, rows)) == set(gpus) else [tr("not all of these workloads are still running")]),
        *([short_runs] if short else []),
    ]
    return grade(list(dict.fromkeys(failed)))


def _measurement_failures(own: pl.DataFrame, plan: Plan) -> Iterator[str]:
    """Yield the failures to measure what the workloads need of an instance's SMs, by the size of the instances."""
    shares = pl.Series([plan.places[gpu][0].sm_share for gpu in own["gpu"]], dtype=pl.Float64)
    for group in own.with_columns(share=shares).partition_by("share"):
        yield from part_measured(group, group["share"][0])


def _isolation_failures(own: pl.DataFrame, plan: Plan) -> Iterator[str]:
    """Yield the failures of any shared card, and those of cards that several users would share."""
    yield tr("interference cannot be measured: test the workloads together, and compare the time per step")
    for gpus in plan.bins:
        yield from users_apart(own.filter(pl.col("gpu").is_in(gpus)))

"""The GPUs on which jobs are replayed: hosts alike in groups, with what their GPUs have, cost and draw."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from analytics.capacity.jobs import POOL_MODEL
from analytics.intervals import SPAN_MS
from analytics.states import ALLOCATED, IDLE_ALLOCATED
from analytics.workloads.row_sums import ENERGY_KNOWN_MIN
from fallow.clock import HOUR_MS


@dataclass(frozen=True)
class HostGroup:
    """Equal hosts: their pool, the model and number of a host's GPUs, and a GPU's memory, price and draws.

    None is unknown. `slowdown` is how many times as long a job takes here that ran on another model.
    """

    pool: str
    model: str
    hosts: int
    gpus_per_host: int
    mem_bytes: int | None = None
    hourly_price: float | None = None
    idle_w: float | None = None
    busy_w: float | None = None
    slowdown: float = 1.0
    held_w: float | None = None
    partitions: frozenset[str] | None = None

    @property
    def gpus(self) -> int:
        return self.hosts * self.gpus_per_host


@dataclass(frozen=True)
class ReplayFleet:
    """All groups of hosts; a pool may have several, of several models or widths."""

    groups: tuple[HostGroup, ...]

    @property
    def gpus(self) -> int:
        return sum(group.gpus for group in self.groups)


LATELY_MS = HOUR_MS
"""A GPU is there at the end of the window where it has a row so shortly before it."""

FactOf = Callable[[str], float | None]


@dataclass(frozen=True)
class GpuFacts:
    """What is known of each GPU by its UUID; None is unknown: its memory in bytes, and what an hour of it costs."""

    memory: Callable[[str], int | None]
    hourly: FactOf


def fleet_today(
    whole: pl.DataFrame, blocks: Mapping[tuple[str, str], Iterable[str]], facts: GpuFacts, until_ms: int
) -> ReplayFleet:
    """Return the hosts with whole GPUs at the end of a window.

    `whole` has POOL_MODEL. `blocks` has, by partition (as in REPLAY_JOB_SCHEMA) and pool, the hosts on which its jobs
    ever ran; the others are not open to it.
    """
    newest = whole.group_by("gpu").agg(pl.col("host", *POOL_MODEL).sort_by("end").last(), pl.col("end").max())
    there = newest.filter(pl.col("end") >= until_ms - LATELY_MS).sort("host", "gpu")
    open_to = _partitions(blocks)
    fenced_pools = {pool for _, pool in blocks}
    alike: Counter[tuple[str, str, int, frozenset[str] | None]] = Counter()
    gpus: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (host, pool, model), on_host in there.group_by("host", *POOL_MODEL, maintain_order=True):
        partitions = open_to.get((str(host), str(pool)), frozenset()) if pool in fenced_pools else None
        alike[str(pool), str(model), on_host.height, partitions] += 1
        gpus[str(pool), str(model)] += on_host["gpu"].to_list()
    draws = _draws(whole)
    groups = []
    for (pool, model, width, partitions), hosts in sorted(
        alike.items(), key=lambda each: (*each[0][:3], sorted(each[0][3] or ()))
    ):
        own = gpus[pool, model]
        free_w, busy_w, held_w = draws.get(model, (None, None, None))
        groups.append(
            HostGroup(
                pool,
                model,
                hosts,
                width,
                mem_bytes=_least(own, facts.memory),
                hourly_price=_mean(own, facts.hourly),
                idle_w=free_w,
                busy_w=busy_w,
                held_w=held_w,
                partitions=partitions,
            )
        )
    return ReplayFleet(tuple(groups))


def _partitions(blocks: Mapping[tuple[str, str], Iterable[str]]) -> dict[tuple[str, str], frozenset[str]]:
    """Return the partitions that use each host of a pool."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for (partition, pool), hosts in blocks.items():
        for host in hosts:
            found[host, pool].add(partition)
    return {place: frozenset(own) for place, own in found.items()}


def _least(gpus: Sequence[str], fact: Callable[[str], int | None]) -> int | None:
    known = [each for each in map(fact, gpus) if each is not None]
    return min(known) if len(known) == len(gpus) else None


def _mean(gpus: Sequence[str], fact: FactOf) -> float | None:
    known = [each for each in map(fact, gpus) if each is not None]
    return sum(known) / len(known) if len(known) == len(gpus) else None


def _draws(whole: pl.DataFrame) -> dict[str, tuple[float | None, float | None, float | None]]:
    """Return, by model, the watts of a free, an allocated and an idle allocated GPU.

    None where energy is known for less than 90 % of that time.
    """

    def watts(states: Iterable[str]) -> pl.Expr:
        own = pl.col("state").is_in(list(states))
        known = pl.col("energy_ms").filter(own).sum()
        mean = pl.col("energy_mj").filter(own).sum() / known  # a millijoule in a millisecond is a watt
        return pl.when((known > 0) & (known >= ENERGY_KNOWN_MIN * SPAN_MS.filter(own).sum())).then(mean)

    if "energy_ms" not in whole.columns:
        return {}
    found = whole.group_by("model").agg(free=watts(("free",)), busy=watts(ALLOCATED), held=watts(IDLE_ALLOCATED))
    return {model: (free, busy, held) for model, free, busy, held in found.iter_rows()}

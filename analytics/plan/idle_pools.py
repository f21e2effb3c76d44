"""Which GPUs stood idle when, by pool and host: what waits are held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from analytics.intervals import clip
from analytics.plan.idle_pool import Counts, IdlePool, counts_of
from analytics.plan.waiting_jobs import PLACE, Place
from analytics.states import IDLE_ALLOCATED, PERHAPS_FREE
from fallow.clock import MINUTE_MS


@dataclass(frozen=True)
class IdlePools:
    """By pool and model, with the GPUs that nobody had: free by the ledger, and not more than jobs left of the host.

    `spans` are the rows of `idle_spans`, `claimed` those of `claimed_spans` in the window, `there` the GPUs of each host.
    """

    pools: Mapping[Place, IdlePool]
    spans: pl.DataFrame
    claimed: pl.DataFrame
    there: Mapping[str, int]

    def unused(self, pool: IdlePool, moved: Sequence[int]) -> Counts:
        """GPUs that somebody had and did not use, also where nobody knows which of a host's they were.

        Those of the moved jobs (numbers of `claimed`) are left out: they have been given back already.
        """
        left = self.claimed.filter(~pl.col("number").is_in(moved))
        gone = self.claimed.filter(pl.col("number").is_in(moved))["job"].unique()
        own = self.spans.filter(pl.col("kind") == "unused", ~pl.col("job").is_in(gone.implode()).fill_null(value=False))
        free = _counts(self.spans.filter(pl.col("kind") == "free"), pool)
        return _counts(own, pool) + free - _unclaimed(free, _counts(left, pool), pool, self.there)

    def unknown(self, pool: IdlePool) -> Counts:
        """GPUs that nobody observed."""
        return _counts(self.spans.filter(pl.col("kind") == "unknown"), pool)


def idle_pools(
    placed: pl.DataFrame,
    claimed: pl.DataFrame,
    memory_gib: Mapping[str, int | None],
    window: tuple[int, int],
    held_min_ms: int,
) -> IdlePools:
    """The idle GPUs of a window.

    Args:
        placed: the ledger's rows with `pool` and `model`.
        claimed: what jobs had, see `claimed_spans`.
        memory_gib: of the cards of each model.
        window: its start and end, in ms.
        held_min_ms: see `idle_spans`.
    """
    whole = placed.filter(pl.col("gpu_share") == 1)
    there = dict(whole.group_by("host").agg(pl.col("gpu").n_unique()).iter_rows())
    spans, taken = idle_spans(whole, window, held_min_ms), clip(claimed, *window, sums=())
    pools = {}
    for place, hosts in sorted(hosts_of_pools(whole).items()):
        moments = _moments([each.filter(pl.col("host").is_in(hosts)) for each in (spans, taken)], window)
        free = counts_of(spans.filter(pl.col("kind") == "free"), hosts, moments)
        pool = IdlePool(hosts, max(there[host] for host in hosts), memory_gib.get(place[1]), moments, free)
        pool.add(_unclaimed(free, _counts(taken, pool), pool, there) - free)
        pools[place] = pool
    return IdlePools(pools, spans, taken, there)


def hosts_of_pools(placed: pl.DataFrame) -> dict[Place, tuple[str, ...]]:
    """The hosts of each pool and model, each in the one that most of its GPU time was in; those with most hosts first."""
    times = placed.group_by("host", *PLACE).agg(time=(pl.col("end") - pl.col("time")).sum())
    most = times.sort("host", "time", *PLACE, descending=[False, True, False, False]).unique(
        "host", keep="first", maintain_order=True
    )
    by_place = most.group_by(PLACE).agg(pl.col("host").sort())
    hosts = by_place.sort(pl.col("host").list.len(), *PLACE, descending=[True, False, False])
    return {(pool, model): tuple(own) for pool, model, own in hosts.iter_rows()}


def idle_spans(placed: pl.DataFrame, window: tuple[int, int], held_min_ms: int) -> pl.DataFrame:
    """The time of GPUs that did nothing or were not observed: `pool`, `host`, `time`, `end`, `job`, `gpus` (1) and `kind`.

    `kind` is `free`, `unknown`, or `unused`: reserved or held for at least `held_min_ms`, for less is a pause.
    """
    is_long = pl.col("stretch_end") - pl.col("stretch_start") >= held_min_ms
    kind = (
        pl.when(pl.col("state").is_in(PERHAPS_FREE))
        .then("state")
        .when(pl.col("state").is_in(IDLE_ALLOCATED) & is_long)
        .then(pl.lit("unused"))
    )
    rows = placed.with_columns(kind=kind, gpus=pl.lit(1)).drop_nulls("kind")
    return clip(rows.select("pool", "host", "time", "end", "job", "gpus", "kind"), *window, sums=())


def claimed_spans(jobs: pl.DataFrame) -> pl.DataFrame:
    """What each job had on each host: `number`, `job` (as the ledger calls it), `host`, `time`, `end` (null: runs) and `gpus`.

    A job's GPUs are spread evenly over its hosts.

    Args:
        jobs: with JOB_SCHEMA, `number` and `ledger_job`.
    """
    ran = jobs.filter(pl.col("start").is_not_null(), pl.col("gpus") > 0, pl.col("hosts").list.len() > 0)
    hosts, place = pl.col("hosts").list.len(), pl.int_ranges(pl.col("hosts").list.len())
    spread = ran.select("number", "gpus", "end", host="hosts", job="ledger_job", time="start", place=place, hosts=hosts)
    own = spread.explode("host", "place")
    share = pl.col("gpus") // pl.col("hosts") + (pl.col("place") < pl.col("gpus") % pl.col("hosts"))
    return own.select("number", "job", "host", "time", "end", gpus=share).filter(pl.col("gpus") > 0)


def _moments(spans: Sequence[pl.DataFrame], window: tuple[int, int]) -> list[int]:
    """Whenever anything changes, and every full minute: a job that is moved ends at the next moment after its real length."""
    changes = [each[name] for each in spans for name in ("time", "end")]
    minutes = pl.int_range(*window, MINUTE_MS, dtype=pl.Int64, eager=True)
    return pl.concat([pl.Series(window, dtype=pl.Int64), minutes, *changes]).unique().sort().to_list()


def _counts(spans: pl.DataFrame, pool: IdlePool) -> Counts:
    return counts_of(spans, pool.hosts, pool.moments)


def _unclaimed(free: Counts, claimed: Counts, pool: IdlePool, there: Mapping[str, int]) -> Counts:
    """Free GPUs of which no job counts one: of a job that is on none yet, nobody sees which it has."""
    whole = np.array([[there[host]] for host in pool.hosts], np.int16)
    found: Counts = np.minimum(free, (whole - claimed).clip(min=0))
    return found

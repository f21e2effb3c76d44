"""Which GPUs stood idle when, by pool and host: what waits are held against."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from analytics.intervals import clip
from analytics.plan.idle_pool import Counts, IdlePool, counts_of
from analytics.plan.waiting_jobs import PoolModel, hosts_of_pools
from analytics.states import IDLE_ALLOCATED, PERHAPS_FREE
from fallow.clock import MINUTE_MS


@dataclass(frozen=True)
class IdlePools:
    """By pool and model, with the GPUs that nobody had: free by the ledger, and not more than jobs left of the host.

    `spans` are the rows of `idle_spans`, `split` the jobs that the ledger saw on GPU instances: they have no whole GPUs.
    """

    pools: Mapping[PoolModel, IdlePool]
    spans: pl.DataFrame
    split: frozenset[str]

    def add_unused(self, moved: Collection[str], staying: Collection[str]) -> bool:
        """Adds the GPUs that somebody had and did not use, also where nobody knows which of a host's they were; whether there are any.

        Args:
            moved: jobs that have given back theirs already, as the ledger calls them.
            staying: those that may do so from now on.
        """
        unused = self.spans.filter(pl.col("kind") == "unused", ~pl.col("job").is_in(moved).fill_null(value=False))
        is_named = pl.col("job").is_in(staying).fill_null(value=False)
        found = False
        for pool in self.pools.values():
            free = _counts(self.spans.filter(pl.col("kind") == "free"), pool)
            nameless = _counts(unused.filter("is_nameless"), pool)
            idle = free + nameless
            # claims are first for what is busy, then for what somebody holds, then for free GPUs; who left has given back
            left = _hidden(nameless, pool.excess_at_first + idle) - _hidden(nameless, pool.excess + idle)
            more = _counts(unused, pool) - left + _hidden(free, pool.excess + free)
            pool.add(more)
            pool.excess += idle
            for job, host, since_ms, until_ms in (
                unused.filter(is_named, ~pl.col("is_nameless"), pl.col("host").is_in(pool.hosts))
                .select("job", "host", "time", "end")
                .iter_rows()
            ):
                pool.unused_of.setdefault(job, []).append(pool.given([host], [-1], since_ms, until_ms))
            found |= bool(more.any())
        return found

    def add_unknown(self) -> bool:
        """Adds the GPUs that nobody observed; whether there are any."""
        spans = self.spans.filter(pl.col("kind") == "unknown")
        for pool in self.pools.values():
            more = _counts(spans, pool)
            pool.add(more)
            pool.excess += more
        return spans.height > 0


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
    is_whole = pl.col("gpu_share") == 1
    split = frozenset(placed.filter(~is_whole)["job"].drop_nulls().str.split("+").explode())
    taken = clip(claimed.filter(~pl.col("job").is_in(split)), *window, sums=())
    rows = _claimable(placed, taken)
    spans = idle_spans(rows.filter(is_whole), window, held_min_ms)
    theirs = clip(rows.filter("is_claimable").select("host", "time", "end", gpus=pl.lit(1)), *window, sums=())
    widths = dict(rows.filter(is_whole).group_by("host").agg(pl.col("gpu").n_unique()).iter_rows())
    pools = {}
    for place, hosts in sorted(hosts_of_pools(placed.filter(is_whole)).items()):
        moments = _moments([each.filter(pl.col("host").is_in(hosts)) for each in (spans, taken)], window)
        free = counts_of(spans.filter(pl.col("kind") == "free"), hosts, moments)
        excess = counts_of(taken, hosts, moments) - counts_of(theirs, hosts, moments)
        pools[place] = IdlePool(
            hosts,
            max(widths[host] for host in hosts),
            memory_gib.get(place[1]),
            moments,
            free - _hidden(free, excess + free),
            excess,
        )
    return IdlePools(pools, spans, split)


def _claimable(placed: pl.DataFrame, claimed: pl.DataFrame) -> pl.DataFrame:
    """With `is_claimable`, whether a claim of which only a number is known may be for it, and `is_nameless`, whether it may be and is held.

    It may be for all whole GPUs but those of somebody who has no claim on the host, and for instances of which no job is known.
    """
    people = claimed.select("host", holder="user").drop_nulls().unique().with_columns(has_claim=pl.lit(value=True))
    found = placed.join(people, on=("host", "holder"), how="left", maintain_order="left")
    is_others = pl.col("job").is_null() & pl.col("holder").is_not_null() & pl.col("has_claim").is_null()
    is_known = pl.col("job").is_in(claimed["job"].unique().implode()).fill_null(value=False)
    return found.with_columns(
        is_claimable=pl.when(pl.col("gpu_share") == 1).then(~is_others).otherwise(pl.col("job").is_null()),
        is_nameless=~is_others & ~is_known,
    )


def idle_spans(placed: pl.DataFrame, window: tuple[int, int], held_min_ms: int) -> pl.DataFrame:
    """The time of GPUs that did nothing or were not observed: `pool`, `model`, `host`, `time`, `end`, `job`, `gpus` (1), `kind` and `is_nameless`.

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
    return clip(
        rows.select("pool", "model", "host", "time", "end", "job", "gpus", "kind", "is_nameless"), *window, sums=()
    )


def _moments(spans: Sequence[pl.DataFrame], window: tuple[int, int]) -> list[int]:
    """Whenever anything changes, and every full minute: a job that is moved ends at the next moment after its real length."""
    changes = [each[name] for each in spans for name in ("time", "end")]
    minutes = pl.int_range(*window, MINUTE_MS, dtype=pl.Int64, eager=True)
    return pl.concat([pl.Series(window, dtype=pl.Int64), minutes, *changes]).unique().sort().to_list()


def _counts(spans: pl.DataFrame, pool: IdlePool) -> Counts:
    return counts_of(spans, pool.hosts, pool.moments)


def _hidden(free: Counts, beyond: Counts) -> Counts:
    """Free GPUs that a job counts all the same: as many as claims are beyond the others of the host; nobody sees which they are."""
    found: Counts = np.minimum(free, beyond.clip(min=0))
    return found

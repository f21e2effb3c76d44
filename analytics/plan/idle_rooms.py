"""Which GPUs stood idle when, by pool and host: what waits are held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from analytics.intervals import clip
from analytics.plan.room import Counts, PoolRoom, counts_of
from analytics.states import IDLE_ALLOCATED, PERHAPS_FREE


@dataclass(frozen=True)
class IdleRooms:
    """The pools by name, with the GPUs that nobody had: free by the ledger, and not more than jobs left of the host.

    `spans` are the rows of `idle_spans`, `claimed` those of `claimed_spans` in the window, `there` the GPUs of each host.
    """

    rooms: Mapping[str, PoolRoom]
    spans: pl.DataFrame
    claimed: pl.DataFrame
    there: Mapping[str, int]

    def unused(self, room: PoolRoom, moved: Sequence[int]) -> Counts:
        """GPUs that somebody had and did not use, also where nobody knows which of a host's they were.

        Those of the moved jobs (numbers of `claimed`) are left out: they have been given back already.
        """
        left = self.claimed.filter(~pl.col("number").is_in(moved))
        gone = self.claimed.filter(pl.col("number").is_in(moved))["job"].unique()
        own = self.spans.filter(pl.col("kind") == "unused", ~pl.col("job").is_in(gone.implode()).fill_null(value=False))
        free = _counts(self.spans.filter(pl.col("kind") == "free"), room)
        return _counts(own, room) + free - _unclaimed(free, _counts(left, room), room, self.there)

    def unknown(self, room: PoolRoom) -> Counts:
        """GPUs that nobody observed."""
        return _counts(self.spans.filter(pl.col("kind") == "unknown"), room)


def idle_rooms(
    placed: pl.DataFrame, claimed: pl.DataFrame, memory_gib: Mapping[str, int | None], window: tuple[int, int], held_min_ms: int
) -> IdleRooms:
    """The idle GPUs of a window.

    Args:
        placed: the ledger's rows with `pool`.
        claimed: what jobs had, see `claimed_spans`.
        memory_gib: of the cards of each pool.
        window: its start and end, in ms.
        held_min_ms: see `idle_spans`.
    """
    whole = placed.filter(pl.col("gpu_share") == 1)
    there = dict(whole.group_by("host").agg(pl.col("gpu").n_unique()).iter_rows())
    spans, taken = idle_spans(whole, window, held_min_ms), clip(claimed, *window, sums=())
    rooms = {}
    for pool, hosts in sorted(hosts_of_pools(whole).items()):
        moments = _moments([each.filter(pl.col("host").is_in(hosts)) for each in (spans, taken)], window)
        free = counts_of(spans.filter(pl.col("kind") == "free"), hosts, moments)
        room = PoolRoom(pool, hosts, max(there[host] for host in hosts), memory_gib.get(pool), moments, free)
        room.free[:] = _unclaimed(free, _counts(taken, room), room, there)
        rooms[pool] = room
    return IdleRooms(rooms, spans, taken, there)


def hosts_of_pools(placed: pl.DataFrame) -> dict[str, tuple[str, ...]]:
    """The hosts of each pool, each in the one that most of its GPU time was in."""
    times = placed.group_by("host", "pool").agg(time=(pl.col("end") - pl.col("time")).sum())
    most = times.sort("host", "time", "pool", descending=[False, True, False]).unique("host", keep="first", maintain_order=True)
    return {pool: tuple(hosts) for pool, hosts in most.group_by("pool").agg(pl.col("host").sort()).iter_rows()}


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
    changes = [each[name] for each in spans for name in ("time", "end")]
    return pl.concat([pl.Series(window, dtype=pl.Int64), *changes]).unique().sort().to_list()


def _counts(spans: pl.DataFrame, room: PoolRoom) -> Counts:
    return counts_of(spans, room.hosts, room.moments)


def _unclaimed(free: Counts, claimed: Counts, room: PoolRoom, there: Mapping[str, int]) -> Counts:
    """Free GPUs of which no job counts one: of a job that is on none yet, nobody sees which it has."""
    whole = np.array([[there[host]] for host in room.hosts], np.int16)
    return np.minimum(free, (whole - claimed).clip(min=0)).astype(np.int16)

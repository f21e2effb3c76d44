"""Who waited how long for GPUs, and why: each job's wait, cut to the window, with the time of each cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from analytics.allocations.spans import ledger_job
from analytics.plan.idle_rooms import IdleRooms, claimed_spans, hosts_of_pools, idle_rooms
from analytics.plan.room import PoolRoom, Want
from analytics.plan.wait_causes import CAUSES, REMEDIES, SHORTAGE, Waiter, real_place, try_remedy

SIZES = {1: "1", 2: "2-3", 4: "4-7", 8: "8", 9: "9-16", 17: "17-64", 65: "65+"}
"""Sizes of jobs in GPUs, by the least of each."""

TIME_OF = {cause: f"{cause}_ms" for cause in CAUSES}
"""By cause the column with its time."""


@dataclass(frozen=True)
class Waits:
    """The waits of a window, and what could not be counted.

    `rows` has a row for each job that asked for GPUs before the end of the window and did not have them before its start, those
    without any wait among them: `job`, `user`, `team`, `pool`, `model`, `partition`, `rank`, `size`, `gpus`, `begin`, `until`,
    `is_open` (it still waited at the end), and the time of each cause in ms (TIME_OF), which add up to `until - begin`.
    `unasked` jobs have no time at which they asked, `uncounted` no number of GPUs; of `elsewhere` nobody knows the pool, and of
    `ambiguous` ones it is the one of several in which most jobs of their partition ran.
    """

    rows: pl.DataFrame
    since_ms: int
    until_ms: int
    jobs: int
    unasked: int
    uncounted: int
    ambiguous: int
    elsewhere: int


def find_waits(
    jobs: pl.DataFrame,
    placed: pl.DataFrame,
    memory_gib: Mapping[str, int | None],
    window: tuple[int, int],
    held_min_ms: int,
    team_of: Callable[[str | None, str | None], str | None],
) -> Waits:
    """The waits of a window and their causes.

    Args:
        jobs: with JOB_SCHEMA; also those before the window, which say which hosts a partition uses.
        placed: the ledger's rows of the window with `pool`.
        memory_gib: of the cards of each pool, None where it is not known.
        window: its start and end, in ms.
        held_min_ms: held and reserved GPUs count as idle from this length on.
        team_of: the team of a user and an account.
    """
    named = jobs.with_columns(ledger_job=ledger_job("job")).with_row_index("number")
    claimed = claimed_spans(named)
    pools = _pools(named, claimed, hosts_of_pools(placed))
    there = _in_window(pools, window)
    waiting = there.filter(pl.col("asked").is_not_null(), pl.col("gpus") > 0)
    inside = idle_rooms(placed, _closed(claimed, window), memory_gib, window, held_min_ms)
    caused = _caused(waiting, inside, _blocks(pools, claimed, inside), window)
    return Waits(
        rows=_described(caused, team_of),
        since_ms=window[0],
        until_ms=window[1],
        jobs=there.height,
        unasked=int(there["asked"].null_count()),
        uncounted=there.filter(pl.col("asked").is_not_null()).height - waiting.height,
        ambiguous=int(waiting["is_ambiguous"].sum()),
        elsewhere=int(waiting["pool"].null_count()),
    )


def _closed(claimed: pl.DataFrame, window: tuple[int, int]) -> pl.DataFrame:
    """The claims with the window's end where they run on."""
    return claimed.with_columns(pl.col("end").fill_null(window[1]))


def _pools(jobs: pl.DataFrame, claimed: pl.DataFrame, hosts: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """The jobs with `pool`: that of most of their GPUs, else of most jobs of their partition; `is_ambiguous` where those had several."""
    pool_of = {host: pool for pool, own in hosts.items() for host in own}
    there = claimed.with_columns(
        pool=pl.col("host").replace_strict(pool_of, default=None, return_dtype=pl.String)
    ).drop_nulls("pool")
    parts = there.group_by("number", "pool").agg(pl.col("gpus").sum())
    own = parts.sort("number", "gpus", "pool", descending=[False, True, False]).unique("number", keep="first", maintain_order=True)
    found = jobs.join(own.select("number", "pool"), on="number", how="left", maintain_order="left")
    partition = ("scheduler", "partition")
    usual = (
        found.drop_nulls(["pool", "partition"])
        .group_by(*partition, "pool")
        .len()
        .sort("len", "pool", descending=[True, False])
        .group_by(partition, maintain_order=True)
        .agg(usual=pl.col("pool").first(), several=pl.len() > 1)
    )
    found = found.join(usual, on=partition, how="left", nulls_equal=False, maintain_order="left")
    guessed = pl.col("pool").is_null()
    return found.with_columns(
        pool=pl.coalesce("pool", "usual"), is_ambiguous=(guessed & pl.col("several")).fill_null(value=False)
    ).drop("usual", "several")


def _in_window(jobs: pl.DataFrame, window: tuple[int, int]) -> pl.DataFrame:
    """Jobs that waited for GPUs or got them in the window, with `asked`, `begin`, `until` and `is_open`."""
    since, until = window
    over = pl.coalesce("start", "withdrawn")
    last = pl.coalesce(over, pl.min_horizontal("as_of", pl.lit(until)))
    asked = pl.coalesce("eligible", "submitted")
    timed = jobs.with_columns(asked=asked, last=last).filter(
        pl.coalesce("asked", "last") < until, pl.col("last") >= since
    )
    stop = pl.min_horizontal("last", pl.lit(until))
    return timed.with_columns(
        begin=pl.max_horizontal(pl.min_horizontal("asked", stop), pl.lit(since)),
        until=stop,
        is_open=over.is_null() | (over >= until),
    ).sort("last", "begin", pl.col("priority").fill_null(0), "number", descending=[False, False, True, False])


def _blocks(jobs: pl.DataFrame, claimed: pl.DataFrame, inside: IdleRooms) -> Mapping[tuple[str | None, str | None, str], int]:
    """Of each scheduler's partition and pool the area that its jobs ever ran in."""
    ran = claimed.join(jobs.select("number", "scheduler", "partition", "pool"), on="number").drop_nulls("partition")
    hosts = ran.group_by("scheduler", "partition", "pool").agg(pl.col("host").unique())
    return {
        (scheduler, partition, pool): inside.rooms[pool].area(own)
        for scheduler, partition, pool, own in hosts.sort("scheduler", "partition", "pool").iter_rows()
        if pool in inside.rooms
    }


def _caused(
    waiting: pl.DataFrame,
    inside: IdleRooms,
    blocks: Mapping[tuple[str | None, str | None, str], int],
    window: tuple[int, int],
) -> pl.DataFrame:
    """The waits with the time of each cause."""
    late = waiting.filter(pl.col("begin") < pl.col("until"))
    waiters = [_waiter(row, inside.rooms, blocks, window[1]) for row in late.iter_rows(named=True)]
    numbers = late["number"].to_list()
    times: dict[str, list[int]] = {}
    for remedy in REMEDIES:
        before = [each.start for each in waiters]
        if remedy.cause == "unused":
            moved = [number for number, each in zip(numbers, waiters, strict=True) if each.start < each.until]
            for room in inside.rooms.values():
                room.add(inside.unused(room, moved))
        if remedy.cause == "unknown":
            for room in inside.rooms.values():
                room.add(inside.unknown(room))
        try_remedy(waiters, remedy)
        times[remedy.cause] = [was - each.start for was, each in zip(before, waiters, strict=True)]
    times["unknown"] = [
        time + (each.start - each.begin if each.home is None else 0)
        for time, each in zip(times["unknown"], waiters, strict=True)
    ]
    times[SHORTAGE] = [each.start - each.begin if each.home is not None else 0 for each in waiters]
    named = {TIME_OF[cause]: time for cause, time in times.items()}
    columns = pl.DataFrame({"number": numbers, **named}, schema={"number": pl.UInt32, **dict.fromkeys(named, pl.Int64)})
    return waiting.join(columns, on="number", how="left", maintain_order="left").with_columns(
        pl.col(*named).fill_null(0)
    )


def _waiter(
    row: Mapping[str, object],
    rooms: Mapping[str, PoolRoom],
    blocks: Mapping[tuple[str | None, str | None, str], int],
    until_ms: int,
) -> Waiter:
    home = rooms.get(row["pool"])
    limit, start, end = row["time_limit_ms"], row["start"], row["end"]
    run = (until_ms if end is None else end) - start if start is not None else limit or until_ms - row["begin"]
    others = () if home is None or home.memory_gib is None else [
        room for room in rooms.values()
        if room is not home and room.memory_gib is not None and room.memory_gib >= home.memory_gib
    ]
    return Waiter(
        begin=row["begin"], until=row["until"], want=_want(row, home), run_ms=run, limit_ms=limit or run, home=home,
        area=blocks.get((row["scheduler"], row["partition"], row["pool"]), 0), others=others,
        ran=None if home is None or start is None or not row["hosts"] else real_place(home, row["hosts"], row["gpus"], start, end if end is not None else until_ms),
        start=row["until"],
    )


def _want(row, home) -> Want:
    gpus, hosts = row["gpus"], row["host_count"]
    if hosts and gpus % hosts == 0:
        return Want(gpus, gpus // hosts)
    if hosts or home is None:
        return Want(gpus)
    if gpus <= home.width:
        return Want(gpus, gpus)
    return Want(gpus, home.width) if gpus % home.width == 0 else Want(gpus)


def _described(waits: pl.DataFrame, team_of: Callable[[str | None, str | None], str | None]) -> pl.DataFrame:
    pairs = waits.select("user", "account").unique()
    teams = pairs.with_columns(team=pl.Series([team_of(*pair) for pair in pairs.rows()], dtype=pl.String))
    size = pl.col("gpus").cut(list(SIZES)[1:], labels=list(SIZES.values()), left_closed=True).cast(pl.String)
    found = waits.join(teams, on=("user", "account"), how="left", nulls_equal=True, maintain_order="left")
    return found.with_columns(size=size, rank="qos").select(
        "job", "user", "team", "pool", "partition", "rank", "size", "gpus", "begin", "until", "is_open", "state", "start", "end", *TIME_OF.values()
    )

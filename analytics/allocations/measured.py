"""Allocations compared with measurements: time nobody measured, use nobody asked for, counts and hosts that cannot be right."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from difflib import SequenceMatcher

import polars as pl

from analytics.allocations.spans import FOREVER_MS, known_allocations
from analytics.intervals import SPAN_MS, clip, merge
from analytics.states import OCCUPIED

UNSEEN_COLUMNS = (
    "host",
    "gpu",
    "time",
    "end",
    "claim_id",
    "scheduler",
    "user",
    "account",
    "gpu_count",
    "gpu_ms",
    "why",
)


def allocations_without_telemetry(
    allocations: pl.DataFrame,
    ledger_gpus: Collection[str],
    ledger_hosts: Collection[str],
    *,
    since_ms: int,
    until_ms: int,
) -> pl.DataFrame:
    """Allocations on GPUs that are not in the ledger, or on hosts that are not: nobody can say what became of that time.

    Args:
        allocations: rows of the `claim` table with `spans.ALLOCATION_COLUMNS` and `host`.
        ledger_gpus: UUIDs in the ledger.
        ledger_hosts: hosts in the ledger.
        since_ms: start of the window.
        until_ms: its end; allocations that run on count up to here.

    Returns:
        One row per allocation, host and GPU with UNSEEN_COLUMNS: `gpu_count` and `gpu_ms` (GPU time inside the window) are
        null where nobody knows how many GPUs were allocated on that host; `why` says who never reported.
    """
    rows = clip(known_allocations(allocations), since_ms, until_ms, start="start")
    no_host = ~pl.col("host").is_in(list(ledger_hosts))
    no_gpu = pl.col("gpu").is_not_null() & ~pl.col("gpu").is_in(list(ledger_gpus))
    why = pl.when(no_host).then(pl.lit("the host never reported")).when(no_gpu).then(pl.lit("the GPU never reported"))
    count = pl.when(pl.col("gpu").is_not_null()).then(1).otherwise("host_gpu_count").cast(pl.Int64)
    unseen = rows.with_columns(why=why, time="start", gpu_count=count).filter(pl.col("why").is_not_null())
    return unseen.with_columns(gpu_ms=SPAN_MS * pl.col("gpu_count")).select(UNSEEN_COLUMNS)


def telemetry_without_allocations(allocations: pl.DataFrame, stretches: pl.DataFrame) -> pl.DataFrame:
    """Stretches in which somebody had the GPU and no allocation covers some of the time, on hosts that have allocations at all.

    Only the time that allocations are known of counts: from the start of the first to the end of the last. While an allocation is
    on the host and nobody knows on which of its GPUs, none of them counts as unallocated.

    Args:
        allocations: rows of the `claim` table with `spans.ALLOCATION_COLUMNS` and `host`.
        stretches: rows of the ledger.

    Returns:
        Those stretches with their columns and `unclaimed_ms`, the GPU time without an allocation (by `gpu_share`).
    """
    rows = known_allocations(allocations)
    if rows.is_empty():
        return stretches.clear().with_columns(unclaimed_ms=pl.lit(0, pl.Int64))
    since_ms, until_ms = int(rows["start"].min()), int(rows["end"].max())  # type: ignore[arg-type]  # integers
    work = stretches.filter(pl.col("state").is_in(OCCUPIED) & pl.col("host").is_in(rows["host"].unique().implode()))
    whole = work.with_columns(_start="time", _end="end")
    work = clip(whole, since_ms, until_ms, sums=()).with_row_index("_row")
    covered = _covered(rows, work.select("host", "gpu").unique())
    unallocated = SPAN_MS - (_allocated_until(work, covered, "end") - _allocated_until(work, covered, "time"))
    found = work.with_columns(unclaimed_ms=(unallocated * pl.col("gpu_share")).round().cast(pl.Int64))
    return (
        found.filter(pl.col("unclaimed_ms") > 0).with_columns(time="_start", end="_end").drop("_row", "_start", "_end")
    )


def _covered(rows: pl.DataFrame, gpus: pl.DataFrame) -> pl.DataFrame:
    """Disjoint spans (gpu, start, end, before) of allocated time, `before` being the allocated time up to the start."""
    named = rows.filter(pl.col("gpu").is_not_null()).select("gpu", "start", "end")
    counted = rows.filter(pl.col("gpu").is_null()).select("host", "start", "end")
    spans = pl.concat([named, counted.join(gpus, on="host").select("gpu", "start", "end")])
    merged = merge(spans, start="start")
    length = pl.col("end") - pl.col("start")
    # an allocation without an end is the last of its GPU: sums before it stay small
    return merged.with_columns(before=length.cum_sum().over("gpu") - length)


def _allocated_until(work: pl.DataFrame, covered: pl.DataFrame, moment: str) -> pl.Series:
    """How much of each row's GPU was allocated before the row's moment."""
    spans = covered.rename({"start": "_span", "end": "_span_end"}).sort("_span")
    met = (
        work.select("_row", "gpu", moment)
        .sort(moment)
        .join_asof(spans, left_on=moment, right_on="_span", by="gpu", strategy="backward", check_sortedness=False)
        .sort("_row")
    )
    inside = pl.min_horizontal(pl.col(moment), "_span_end") - pl.col("_span")
    return met.select((pl.col("before") + inside).fill_null(0)).to_series()


def since_and_until(stretches: pl.DataFrame) -> tuple[int, int]:
    """The window that stretches fill; (0, FOREVER_MS) for none."""
    if stretches.is_empty():
        return 0, FOREVER_MS
    return int(stretches["time"].min()), int(stretches["end"].max())  # type: ignore[arg-type]  # integers


_ALIKE_MIN = 0.8
_DIGITS = re.compile(r"\d+")


def oversized_allocations(
    allocations: pl.DataFrame, stretches: pl.DataFrame, *, since_ms: int, until_ms: int
) -> pl.DataFrame:
    """Allocations of a window that name or count more GPUs of a host than it ever showed, MIG instances included.

    Args:
        allocations: rows of the `claim` table with `spans.ALLOCATION_COLUMNS` and `host`.
        stretches: rows of the whole ledger.
        since_ms: start of the window.
        until_ms: its end.

    Returns:
        claim_id, user, account, host, `claimed` and `present`, the most GPUs first.
    """
    rows = known_allocations(allocations).filter((pl.col("start") < until_ms) & (pl.col("end") > since_ms))
    run = ("scheduler", "claim_id", "user", "account", "host", "start")
    gpus = pl.when(pl.col("gpu").is_null()).then(pl.col("host_gpu_count").cast(pl.Int64)).otherwise(1)
    claimed = rows.group_by(run).agg(claimed=gpus.sum())
    present = stretches.group_by("host").agg(present=pl.col("gpu").n_unique().cast(pl.Int64))
    over = claimed.join(present, on="host").filter(pl.col("claimed") > pl.col("present"))
    ordered = over.sort("claimed", "claim_id", "host", "start", descending=[True, False, False, False])
    return ordered.select("claim_id", "user", "account", "host", "claimed", "present")


def resembling_hosts(strangers: Iterable[str], hosts: Iterable[str]) -> dict[str, str]:
    """For hosts that never reported the one that each is most like; hosts that differ by their number are two hosts."""
    known = sorted(hosts)
    numbers = {host: _numbers(host) for host in known}
    found = {}
    for stranger in sorted(set(strangers) - set(known)):
        alike = [
            (SequenceMatcher(None, stranger.lower(), host.lower()).ratio(), host)
            for host in known
            if numbers[host] == _numbers(stranger)
        ]
        ratio, host = max(alike, default=(0.0, ""))
        if ratio >= _ALIKE_MIN:
            found[stranger] = host
    return found


def _numbers(host: str) -> list[int]:
    return [int(digits) for digits in _DIGITS.findall(host)]

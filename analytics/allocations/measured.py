"""Compares allocations with measurements: unmeasured time, use without an allocation, impossible counts and hosts.

`allocations` are rows of the `allocation` table with `spans.ALLOCATION_COLUMNS` and `host`, `segments` rows of the
ledger, and `since_ms` and `until_ms` the window: running allocations count up to its end.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from difflib import SequenceMatcher

import polars as pl

from analytics.allocations.spans import FOREVER_MS, SHARE, UNPLACED_MS, allocation_spans, known_allocations
from analytics.intervals import SPAN_MS, clip, merge
from analytics.states import OCCUPIED

UNSEEN_COLUMNS = (
    "host",
    "gpu",
    "time",
    "end",
    "allocation_id",
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
    """Return the allocations on GPUs or hosts that the ledger lacks: how that time was used is unknown.

    One row per allocation, host and GPU with UNSEEN_COLUMNS: `gpu_count` and `gpu_ms` (GPU time in the window, a
    share's by size) are null where the GPUs allocated on that host are not counted; `why` names what never reported.
    """
    rows = clip(known_allocations(allocations), since_ms, until_ms, start="start")
    no_host = ~pl.col("host").is_in(list(ledger_hosts))
    no_gpu = pl.col("gpu").is_not_null() & ~pl.col("gpu").is_in(list(ledger_gpus))
    why = pl.when(no_host).then(pl.lit("the host never reported")).when(no_gpu).then(pl.lit("the GPU never reported"))
    count = pl.when(pl.col("gpu").is_not_null()).then(1).otherwise("host_gpu_count").cast(pl.Int64)
    unseen = rows.with_columns(why=why, time="start", gpu_count=count).filter(pl.col("why").is_not_null())
    return unseen.with_columns(gpu_ms=(SPAN_MS * pl.col("gpu_count") * SHARE).round().cast(pl.Int64)).select(
        UNSEEN_COLUMNS
    )


def telemetry_without_allocations(allocations: pl.DataFrame, segments: pl.DataFrame) -> pl.DataFrame:
    """Return used segments that no allocation covers for some of their time, on hosts that have allocations at all.

    `unallocated_ms` is the GPU time without an allocation (by `gpu_share`), from the first known allocation's start to
    the last one's end. While a host has an allocation whose GPUs are unknown, none of its segments counts.
    """
    rows = known_allocations(allocations)
    if rows.is_empty():
        return segments.clear().with_columns(unallocated_ms=pl.lit(0, pl.Int64))
    since_ms, until_ms = int(rows["start"].min()), int(rows["end"].max())  # type: ignore[arg-type]  # integers
    work = segments.filter(pl.col("state").is_in(OCCUPIED) & pl.col("host").is_in(rows["host"].unique().implode()))
    whole = work.with_columns(_start="time", _end="end")
    work = clip(whole, since_ms, until_ms, sums=()).with_row_index("_row")
    covered = _allocated_intervals(rows, work.select("host", "gpu").unique())
    unallocated = SPAN_MS - (_allocated_until(work, covered, "end") - _allocated_until(work, covered, "time"))
    found = work.with_columns(unallocated_ms=(unallocated * pl.col("gpu_share")).round().cast(pl.Int64))
    return (
        found.filter(pl.col("unallocated_ms") > 0)
        .with_columns(time="_start", end="_end")
        .drop("_row", "_start", "_end")
    )


def _allocated_intervals(rows: pl.DataFrame, gpus: pl.DataFrame) -> pl.DataFrame:
    """Return disjoint allocated intervals (gpu, start, end, before); `before` is the allocated time up to the start."""
    named = rows.filter(pl.col("gpu").is_not_null()).select("gpu", "start", "end")
    counted = rows.filter(pl.col("gpu").is_null()).select("host", "start", "end")
    spans = pl.concat([named, counted.join(gpus, on="host").select("gpu", "start", "end")])
    merged = merge(spans, start="start")
    length = pl.col("end") - pl.col("start")
    # an allocation without an end is the last of its GPU, so the sums before it stay small
    return merged.with_columns(before=length.cum_sum().over("gpu") - length)


def _allocated_until(work: pl.DataFrame, covered: pl.DataFrame, moment: str) -> pl.Series:
    """Return how long each row's GPU was allocated before the row's moment."""
    spans = covered.rename({"start": "_span", "end": "_span_end"}).sort("_span")
    met = (
        work.select("_row", "gpu", moment)
        .sort(moment)
        .join_asof(spans, left_on=moment, right_on="_span", by="gpu", strategy="backward", check_sortedness=False)
        .sort("_row")
    )
    inside = pl.min_horizontal(pl.col(moment), "_span_end") - pl.col("_span")
    return met.select((pl.col("before") + inside).fill_null(0)).to_series()


def unplaced_allocations(
    allocations: pl.DataFrame, segments: pl.DataFrame, *, since_ms: int, until_ms: int
) -> pl.DataFrame:
    """Return allocations of a number of GPUs that the ledger cannot place on GPUs: which ones they have is unknown.

    Their time counts as `free` where no process shows; no other figure shows it. Rows with `spans.UNPLACED_SCHEMA` and
    `gpu_ms`, null where the number of GPUs is unknown. Hosts outside the ledger were never measured, and are left out.
    """
    gpus = dict(segments.filter(pl.col("gpu_share") > 0).group_by("host").agg(pl.col("gpu").unique()).iter_rows())
    shown = segments.select("gpu", "host", "time", "end", "job").drop_nulls("job")
    there = allocations.filter(pl.col("host").is_in(list(gpus)))
    found = allocation_spans(there, gpus, shown, since_ms=since_ms, until_ms=until_ms).unplaced
    return found.with_columns(gpu_ms=UNPLACED_MS)


def since_and_until(segments: pl.DataFrame) -> tuple[int, int]:
    """Return the window that the segments fill; (0, FOREVER_MS) for none."""
    if segments.is_empty():
        return 0, FOREVER_MS
    return int(segments["time"].min()), int(segments["end"].max())  # type: ignore[arg-type]  # integers


_ALIKE_MIN = 0.8
_DIGITS = re.compile(r"\d+")


def oversized_allocations(
    allocations: pl.DataFrame, segments: pl.DataFrame, *, since_ms: int, until_ms: int
) -> pl.DataFrame:
    """Return a window's allocations of more GPUs, named or counted, than their host ever reported (MIG instances too).

    The columns are allocation_id, user, account, host, `allocated` and `present`, the most GPUs first.
    """
    rows = known_allocations(allocations).filter((pl.col("start") < until_ms) & (pl.col("end") > since_ms))
    run = ("scheduler", "allocation_id", "user", "account", "host", "start")
    gpus = pl.when(pl.col("gpu").is_null()).then(pl.col("host_gpu_count").cast(pl.Int64)).otherwise(1)
    allocated = rows.group_by(run).agg(allocated=gpus.sum())
    present = segments.group_by("host").agg(present=pl.col("gpu").n_unique().cast(pl.Int64))
    over = allocated.join(present, on="host").filter(pl.col("allocated") > pl.col("present"))
    ordered = over.sort("allocated", "allocation_id", "host", "start", descending=[True, False, False, False])
    return ordered.select("allocation_id", "user", "account", "host", "allocated", "present")


def resembling_hosts(strangers: Iterable[str], hosts: Iterable[str]) -> dict[str, str]:
    """Return the most similar known host of each unreported host; hosts that differ only by number are not similar."""
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

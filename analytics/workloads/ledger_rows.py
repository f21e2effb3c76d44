"""Ledger rows for rules: sums, cuts, rows of jobs, unbroken occupancy, whole hours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.intervals import SPAN_MS, clip, islands
from analytics.ledger.usage import has_several_jobs, job_names
from analytics.names import joined_names
from analytics.states import ALLOCATED, OCCUPIED
from analytics.workloads.model import Context, EvidenceValue, once_per_context
from analytics.workloads.row_sums import CANDIDATE, by_candidate, numbered, parts_of
from fallow.clock import HOUR_MS, MINUTE_MS

GPU_MS = SPAN_MS * pl.col("gpu_share")
"""GPU milliseconds of a ledger row; a MIG instance counts its share."""


def joined(segments: pl.DataFrame, column: str) -> str | None:
    """Return the `joined_names` of a column."""
    return joined_names(segments[column].to_list())


def whole_number(frame: pl.DataFrame, value: pl.Expr) -> int:
    """Return an integer from a frame; 0 for the sum or extreme of no rows."""
    return int(frame.select(value).item() or 0)


def highest(rows: pl.DataFrame, column: str) -> Any:
    """Return the largest known value of a column; None without any."""
    return rows[column].max()


def lowest(rows: pl.DataFrame, column: str) -> Any:
    """Return the smallest known value of a column; None without any."""
    return rows[column].min()


def sum_of(rows: pl.DataFrame, column: str) -> Any:
    """Return the sum of the known values of a column; 0 without any."""
    return rows[column].sum()


def mean_of(rows: pl.DataFrame, column: str) -> Any:
    """Return the mean of the known values of a column; None without any."""
    return rows[column].cast(pl.Float64).mean()


def gpus_on(rows: pl.DataFrame, host: str) -> list[str]:
    """Return the GPUs of these rows on a host, in order."""
    return sorted(set(rows["gpu"].filter(rows["host"] == host).to_list()))


def first_ms(rows: pl.DataFrame) -> int:
    """Return the start of the first row. There must be a row."""
    return int(lowest(rows, "time"))


def gpu_ms_of(segments: pl.DataFrame) -> float:
    return float(((segments["end"] - segments["time"]) * segments["gpu_share"]).sum())


THRESHOLDS_MIN = (30, 60, 120)
"""Printed beside every idle headline, because the threshold changes the headline several times over."""


SEGMENT_MS = pl.col("segment_end") - pl.col("segment_start")
"""Whole length of a row's segment, before cuts at midnight and at the window's start."""


def held_gpu_hours(segments: pl.DataFrame) -> dict[int, float]:
    """Return the GPU-hours in the ledger's `held` segments of at least each of THRESHOLDS_MIN, by minutes.

    Only time inside the window counts.
    """
    spans = segments.select("state", "segment_start", "segment_end", "time", "end", "gpu_share")
    held = spans.filter(pl.col("state") == "held")
    return {each: gpu_ms_of(held.filter(each * MINUTE_MS <= SEGMENT_MS)) / HOUR_MS for each in THRESHOLDS_MIN}


def idle_numbers(
    what: str, every: pl.DataFrame, rows: pl.DataFrame, now: Mapping[int, Sequence[str]], sources: Sequence[str | None]
) -> list[dict[str, EvidenceValue]]:
    """Return by CANDIDATE figures on GPUs that were `held` or `reserved` without use.

    `every` are all such rows, `rows` those that are long enough, `now` the GPUs that are so at the end of the window.
    """
    long = [every.filter(each * MINUTE_MS <= SEGMENT_MS) for each in THRESHOLDS_MIN]
    gpu_ms = [dict(by_candidate(each).agg(GPU_MS.sum()).iter_rows()) for each in long]
    figures = by_candidate(rows).agg(
        segment_count=pl.struct("gpu", "segment_start").n_unique(),
        longest_ms=SEGMENT_MS.max(),
        mem_used_max_bytes=pl.col("mem_used_max_bytes").max(),
    )
    return [
        {
            **{
                f"{what}_gpu_hours_in_segments_of_{each}_min": sums.get(number, 0.0) / HOUR_MS
                for each, sums in zip(THRESHOLDS_MIN, gpu_ms, strict=True)
            },
            "user_source": sources[number],
            f"gpus_{what}_now": len(now.get(number, ())),
            "segment_count": segment_count,
            "longest_h": longest_ms / HOUR_MS,
            "mem_used_max_bytes": most_bytes,
        }
        for number, segment_count, longest_ms, most_bytes in figures.iter_rows()
    ]


def longest_h(rows: pl.DataFrame) -> float:
    """Return the hours of the longest segment with any of these rows, before cuts."""
    return int(rows.select(SEGMENT_MS.max()).item()) / HOUR_MS


class RowIndex:
    """The rows of a frame by the value of a key, which need not be a column of it."""

    def __init__(self, frame: pl.DataFrame, key: pl.Series) -> None:
        self._frame = frame
        found = key.rename("key").to_frame().with_row_index("rows").group_by("key").agg("rows")
        self._order = found["rows"].explode().cast(pl.Int64).to_numpy()
        edges = np.cumsum([0, *found["rows"].list.len().to_list()]).tolist()
        self._slices = {value: slice(*both) for value, both in zip(found["key"], pairwise(edges), strict=True)}

    def rows(self, values: Iterable[object]) -> pl.DataFrame:
        """Return the rows with any of these values, in the frame's order."""
        return self.parts([values])[0]

    def parts(self, groups: Iterable[Iterable[object]]) -> list[pl.DataFrame]:
        """Return the same for each group of values. The rows of all are copied at once: the cost is in the calls."""
        places = [self._rows(values) for values in groups]
        found = self._frame[np.concatenate([np.zeros(0, np.intp), *places])]
        edges = np.cumsum([0, *map(len, places)]).tolist()
        return [found.slice(start, end - start) for start, end in pairwise(edges)]

    def _rows(self, values: Iterable[object]) -> NDArray[np.intp]:
        parts = [self._order[self._slices[value]] for value in set(values) if value in self._slices]
        return np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.intp)


SEVERAL = "+"
"""Joins the names of users who share a GPU."""

_JOB_NAMES = r"(^|\+)(?:slurm|pod|ray|allocation):"


def by_job(segments: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of jobs, once for each of their jobs, named in `work`."""
    named = segments.filter(pl.col("job").is_not_null() & pl.col("state").is_in(ALLOCATED))
    if not named.select(has_several_jobs().any()).item():
        return named.with_columns(work="job")
    return named.with_columns(work=job_names()).explode("work")


def one_job() -> pl.Expr:
    return (pl.col("job").str.count_matches(_JOB_NAMES) == 1).fill_null(value=False)


def occupancies(segments: pl.DataFrame) -> pl.DataFrame:
    """Return a row per GPU and unbroken time with processes of the same user, account and job: `time` to `end`."""
    names = ("host", "gpu", "user", "account", "job")
    rows = segments.filter(pl.col("state").is_in(OCCUPIED)).select(*names, "time", "end").sort("gpu", "host", "time")
    return (
        rows.with_columns(stay=islands(names))
        .group_by("stay", maintain_order=True)
        .agg(*(pl.col(name).first() for name in names), pl.col("time").min(), pl.col("end").max())
        .drop("stay")
    )


@once_per_context
def whole_hours(context: Context) -> pl.DataFrame:
    """Return the rows of `hourly` in the window that are wholly inside a stay, with its user, account and job.

    Hours with a change of users are left out, because their means belong to no single user.
    """
    inside = (pl.col("time") >= context.since_ms) & (pl.col("time") + HOUR_MS <= context.until_ms)
    # both come sorted by GPU, host and time
    hours = context.rollups.hourly(since_ms=context.since_ms).filter(inside & (pl.col("observed_ms") > 0))
    # the hours of stalled time say nothing of how work uses its GPU
    owned = occupancies(context.inside.segments.filter(pl.col("state") != "stalled")).select(
        pl.all().exclude("end"), stay_end="end"
    )
    found = hours.join_asof(owned, on="time", by=("host", "gpu"), strategy="backward", check_sortedness=False)
    return found.filter(pl.col("time") + HOUR_MS <= pl.col("stay_end")).drop("stay_end")


@once_per_context
def _rows_by_gpu(context: Context) -> RowIndex:
    return RowIndex(context.inside.segments, context.inside.segments["gpu"])


def within_hours(context: Context, hours: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """Return the window's ledger rows in each frame of hours (host, gpu, time, energy_mj, energy_ms of `hourly`).

    Energy is that of the hours themselves; other sums are divided by time.
    """
    if not hours:
        return []
    names = ("host", "gpu", "time", "energy_mj", "energy_ms")
    wanted = numbered([each.select(names) for each in hours], names).select(
        CANDIDATE, "host", "gpu", hour=pl.col("time") // HOUR_MS, hour_mj=pl.col("energy_mj"), hour_ms="energy_ms"
    )
    rows = _rows_by_gpu(context).rows(wanted["gpu"].to_list()).filter(pl.col("state").is_in(ALLOCATED))
    first, last = pl.col("time") // HOUR_MS, (pl.col("end") - 1) // HOUR_MS
    each_hour = rows.select("host", "gpu", hour=pl.int_ranges(first, last + 1)).with_row_index("row").explode("hour")
    met = each_hour.join(wanted, on=("host", "gpu", "hour"))
    pieces = rows[met["row"]].hstack(met.drop("host", "gpu", "row"))
    hour_start = pl.col("hour") * HOUR_MS
    parts = clip(pieces, hour_start, hour_start + HOUR_MS)
    share = (pl.col("end") - pl.col("time")) / HOUR_MS
    found = parts.with_columns(
        energy_mj=(pl.col("hour_mj") * share).fill_null(0.0),
        energy_ms=(pl.col("hour_ms") * share).fill_null(0).round().cast(pl.Int64),
    ).drop("hour", "hour_mj", "hour_ms")
    return parts_of(found, len(hours))


NEWEST_SOURCE = pl.col("user_source").sort_by("time", "gpu").last()
"""How the newest of some rows knows its user."""


def newest_source(segments: pl.DataFrame) -> str | None:
    """Return how the newest of these rows knows its user; None if it does not."""
    source = segments.select(NEWEST_SOURCE).item()
    return None if source is None else str(source)

"""The ledger's rows as rules need them: sums, cuts, rows of jobs, unbroken occupancy, whole hours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.intervals import SPAN_MS, clip, islands
from analytics.ledger.usage import job_names
from analytics.states import ALLOCATED, OCCUPIED
from analytics.workloads.model import Context, EvidenceValue, once_per_context
from fallow.clock import HOUR_MS, MINUTE_MS

GPU_MS = SPAN_MS * pl.col("gpu_share")
"""GPU milliseconds of a ledger row: a MIG instance counts its share."""


def joined(stretches: pl.DataFrame, column: str) -> str | None:
    """The distinct values of a column, sorted and joined by `+`; None where there are none."""
    return "+".join(sorted(set(stretches[column].to_list()) - {None})) or None


def whole_number(frame: pl.DataFrame, value: pl.Expr) -> int:
    """One integer out of a frame; 0 for the sum or extreme of nothing."""
    return int(frame.select(value).item() or 0)


def highest(rows: pl.DataFrame, column: str) -> Any:
    """The largest known value of a column; None where there is none."""
    return rows[column].max()


def mean_of(rows: pl.DataFrame, column: str) -> Any:
    """The mean of the known values of a column; None where there is none."""
    return rows[column].cast(pl.Float64).mean()


def gpus_on(rows: pl.DataFrame, host: str) -> list[str]:
    """The GPUs of these rows on one host, in order."""
    return rows.filter(pl.col("host") == host)["gpu"].unique().sort().to_list()


def first_ms(rows: pl.DataFrame) -> int:
    """The moment at which the first of some rows begins; there must be one."""
    return int(rows.select(pl.col("time").min()).item())


def rows_since(rows: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Of each GPU in `spans` what lies after its moment `since`; by the other columns of `spans` too."""
    late = rows.join(spans, on=[name for name in spans.columns if name != "since"])
    return clip(late.filter(pl.col("end") > pl.col("since")), "since").drop("since")


def gpu_ms_of(stretches: pl.DataFrame) -> float:
    return float(((stretches["end"] - stretches["time"]) * stretches["gpu_share"]).sum())


ENERGY_KNOWN_MIN = 0.9
"""Below it the sum would be a part that looks like the whole."""


def energy_kwh(stretches: pl.DataFrame) -> float | None:
    """Energy of ledger rows in kWh; None where it is known for less than 90 % of their time."""
    total_ms = int((stretches["end"] - stretches["time"]).sum())
    if not total_ms or int(stretches["energy_ms"].sum()) < ENERGY_KNOWN_MIN * total_ms:
        return None
    return float(stretches["energy_mj"].sum()) / 3.6e9


THRESHOLDS_MIN = (30, 60, 120)
"""Printed beside every idle headline, because the choice of threshold moves it several times over."""


def held_gpu_hours(stretches: pl.DataFrame) -> dict[int, float]:
    """GPU-hours in the ledger's `held` stretches of at least each of THRESHOLDS_MIN, by minutes."""
    return _by_length(stretches.filter(pl.col("state") == "held"))


def _by_length(rows: pl.DataFrame) -> dict[int, float]:
    """GPU-hours in stretches of at least each of THRESHOLDS_MIN, by minutes.

    A stretch counts with its whole length, before cuts at midnight and at the window's start; its time is that inside.
    """
    long_ms = rows["stretch_end"] - rows["stretch_start"]
    return {each: gpu_ms_of(rows.filter(long_ms >= each * MINUTE_MS)) / HOUR_MS for each in THRESHOLDS_MIN}


def idle_numbers(
    what: str, every: pl.DataFrame, rows: pl.DataFrame, now: Sequence[str], source: str | None
) -> dict[str, EvidenceValue]:
    """Claims about GPUs that were `held` or `reserved` for nothing: by all such rows, and by those long enough to tell."""
    return {
        **{f"{what}_gpu_hours_in_stretches_of_{each}_min": hours for each, hours in _by_length(every).items()},
        "holder_source": source,
        f"gpus_{what}_now": len(now),
        "stretch_count": len(set(zip(rows["gpu"], rows["stretch_start"], strict=True))),
        "longest_h": longest_h(rows),
        "mem_used_max_bytes": highest(rows, "mem_used_max_bytes"),
    }


def longest_h(rows: pl.DataFrame) -> float:
    """Hours of the longest of the stretches to which some rows belong, before cuts."""
    return float(highest(rows.select(span=pl.col("stretch_end") - pl.col("stretch_start")), "span")) / HOUR_MS


class RowIndex:
    """The rows of a frame by the values of one column."""

    def __init__(self, frame: pl.DataFrame, column: str) -> None:
        self._frame = frame
        values = frame[column].unique(maintain_order=True)
        self._codes = {value: code for code, value in enumerate(values.to_list())}
        codes = frame[column].replace_strict(values, range(len(values))).to_numpy() if len(values) else np.zeros(0)
        self._order = np.argsort(codes, kind="stable")
        self._starts = np.searchsorted(codes[self._order], np.arange(len(values) + 1))

    def rows(self, values: Iterable[object]) -> pl.DataFrame:
        """The rows with any of these values, in the frame's order."""
        return self._frame[self._rows({self._codes[value] for value in values if value in self._codes})]

    def _rows(self, codes: Iterable[int]) -> NDArray[np.intp]:
        parts = [self._order[self._starts[code] : self._starts[code + 1]] for code in codes]
        return np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.intp)


SEVERAL = "+"
"""Joins the names of those who share a GPU."""

_JOB_NAMES = r"(^|\+)(?:slurm|pod|ray|claim):"


def by_job(stretches: pl.DataFrame) -> pl.DataFrame:
    """The rows that belong to jobs, once for each job of theirs, named in `work`."""
    named = stretches.filter(pl.col("job").is_not_null() & pl.col("state").is_in(ALLOCATED))
    return named.with_columns(work=job_names()).explode("work")


def one_job() -> pl.Expr:
    return (pl.col("job").str.count_matches(_JOB_NAMES) == 1).fill_null(value=False)


def occupancies(stretches: pl.DataFrame) -> pl.DataFrame:
    """One row per GPU and unbroken time with processes of the same holder, account and job: `time` to `end`."""
    names = ("host", "gpu", "holder", "account", "job")
    rows = stretches.filter(pl.col("state").is_in(OCCUPIED)).select(*names, "time", "end").sort("gpu", "host", "time")
    return (
        rows.with_columns(stay=islands(names))
        .group_by("stay", maintain_order=True)
        .agg(*(pl.col(name).first() for name in names), pl.col("time").min(), pl.col("end").max())
        .drop("stay")
    )


@once_per_context
def whole_hours(context: Context) -> pl.DataFrame:
    """Rows of `hourly` in the window, each wholly inside one stay, with its holder, account and job.

    Hours in which holders changed are left out, for nobody can say whose their means are.
    """
    inside = (pl.col("time") >= context.since_ms) & (pl.col("time") + HOUR_MS <= context.until_ms)
    # both come sorted by GPU, host and time
    hours = context.rollups.hourly(since_ms=context.since_ms).filter(inside & (pl.col("observed_ms") > 0))
    owned = occupancies(context.inside.stretches).select(pl.all().exclude("end"), stay_end="end")
    found = hours.join_asof(owned, on="time", by=("host", "gpu"), strategy="backward", check_sortedness=False)
    return found.filter(pl.col("time") + HOUR_MS <= pl.col("stay_end")).drop("stay_end")


@once_per_context
def _rows_by_gpu(context: Context) -> RowIndex:
    return RowIndex(context.inside.stretches, "gpu")


def within_hours(context: Context, hours: pl.DataFrame) -> pl.DataFrame:
    """The parts of the window's ledger rows that lie in these hours (host, gpu, time, energy_mj, energy_ms of `hourly`).

    Energy is that of the hours themselves; other sums are shared by time.
    """
    wanted = hours.select(
        "host", "gpu", hour=pl.col("time") // HOUR_MS, hour_mj=pl.col("energy_mj"), hour_ms=pl.col("energy_ms")
    )
    rows = _rows_by_gpu(context).rows(hours["gpu"].to_list()).filter(pl.col("state").is_in(ALLOCATED))
    first, last = pl.col("time") // HOUR_MS, (pl.col("end") - 1) // HOUR_MS
    pieces = (
        rows.with_columns(hour=pl.int_ranges(first, last + 1)).explode("hour").join(wanted, on=("host", "gpu", "hour"))
    )
    hour_start = pl.col("hour") * HOUR_MS
    parts = clip(pieces, hour_start, hour_start + HOUR_MS)
    share = (pl.col("end") - pl.col("time")) / HOUR_MS
    return parts.with_columns(
        energy_mj=(pl.col("hour_mj") * share).fill_null(0.0),
        energy_ms=(pl.col("hour_ms") * share).fill_null(0).round().cast(pl.Int64),
    ).drop("hour", "hour_mj", "hour_ms")


def newest_source(stretches: pl.DataFrame) -> str | None:
    """How the newest of these rows knows its holder; None where it does not."""
    newest = stretches.select("time", "gpu", "holder_source").filter(stretches["time"] == stretches["time"].max())
    source = newest.sort("gpu")["holder_source"][-1]
    return None if source is None else str(source)

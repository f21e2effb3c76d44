"""Whose work has faded: gaps longer than theirs have been, or activity that fell and no new process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.states import IN_USE
from analytics.workloads.finding_parts import GPU_MS
from fallow.clock import DAY_MS, HOUR_MS

if TYPE_CHECKING:
    from analytics.workloads.model import Context

GAP_RATIO = 1.5
GAPS_MIN = 10
GAP_MIN_MS = 3 * DAY_MS
PAUSE_MS = HOUR_MS
RECENT_DAYS = 3
PRIOR_DAYS = 14
PRIOR_MIN_DAYS = 7
FALL_MAX = 0.2
NO_START_MS = 2 * DAY_MS
LULL_MAX = 0.5
LULL_HOLDERS_MIN = 3

_DAYS = RECENT_DAYS + PRIOR_DAYS + 6
"""Two weekends may have to be left out of the days before, and one of the last ones."""
_SATURDAY, _EPOCH_WEEKDAY = 5, 3


def split_holders(stretches: pl.DataFrame) -> pl.DataFrame:
    """The rows with a holder, once for each of those who share the GPU, named in `who`."""
    return (
        stretches.filter(pl.col("holder").is_not_null())
        .with_columns(who=pl.col("holder").str.split("+"))
        .explode("who")
    )


def fading(context: Context, names: pl.Series) -> pl.DataFrame:
    """Those of the holders whose work has faded.

    Columns: who, since (from when on), by_gap, gap_ms, gap_p95_ms, gap_count, recent_ms and prior_ms (active GPU time a
    day), no_start_ms (since a process of theirs began).
    """
    work = split_holders(context.whole.stretches.filter(pl.col("state").is_in(IN_USE)))
    own = work.filter(pl.col("who").is_in(names.implode()))
    until_ms = context.until_ms
    found = (
        _gaps(own, until_ms)
        .join(_fall(context, work, names), on="who", how="left")
        .join(_starts(context), on="who", how="left")
        .with_columns(
            by_gap=(pl.col("gap_count") >= GAPS_MIN)
            & (pl.col("gap_ms") > GAP_RATIO * pl.col("gap_p95_ms"))
            & (pl.col("gap_ms") > GAP_MIN_MS),
            by_fall=(pl.col("recent_ms") <= FALL_MAX * pl.col("prior_ms"))
            & (pl.col("prior_ms") > 0)
            & (pl.col("prior_days") >= PRIOR_MIN_DAYS)
            & (pl.col("no_start_ms") >= NO_START_MS).fill_null(value=True),
        )
        .with_columns(pl.col("by_gap", "by_fall", "lull").fill_null(value=False))
    )
    return (
        found.filter((pl.col("by_gap") | pl.col("by_fall")) & ~pl.col("lull"))
        .with_columns(
            since=pl.when("by_gap").then(until_ms - pl.col("gap_ms")).otherwise(until_ms - RECENT_DAYS * DAY_MS)
        )
        .sort("who")
    )


def _gaps(work: pl.DataFrame, until_ms: int) -> pl.DataFrame:
    """Per holder the time since the last activity on any GPU, and past gaps: who, gap_ms, gap_p95_ms, gap_count."""
    ordered = work.select("who", "time", "end").sort("who", "time")
    gap = pl.col("time") - pl.col("end").cum_max().over("who").shift(1)
    same = pl.col("who") == pl.col("who").shift(1)
    gaps = ordered.with_columns(past=pl.when(same).then(gap))
    real = pl.col("past").filter(pl.col("past") >= PAUSE_MS)
    return gaps.group_by("who").agg(
        gap_ms=until_ms - pl.col("end").max(),
        gap_p95_ms=real.quantile(0.95, "higher"),
        gap_count=real.len(),
    )


def _fall(context: Context, work: pl.DataFrame, names: pl.Series) -> pl.DataFrame:
    """Per holder recent_ms, prior_ms and prior_days, and whether there is a `lull` with the others too."""
    per_day = _daily(work, context.until_ms)
    history_ms = context.until_ms - int(context.whole.stretches.select(pl.col("time").min()).item() or 0)
    days = pl.DataFrame({"day": range(min(_DAYS, history_ms // DAY_MS))}, schema={"day": pl.Int64})
    middle = (context.until_ms - DAY_MS * pl.col("day") - DAY_MS // 2) // DAY_MS
    days = days.with_columns(weekend=(middle + _EPOCH_WEEKDAY) % 7 >= _SATURDAY)
    fleet = per_day.group_by("day").agg(fleet_ms=pl.col("active_ms").sum())
    grid = (
        names.to_frame("who")
        .join(days, how="cross")
        .join(per_day, on=("who", "day"), how="left")
        .join(fleet, on="day", how="left")
        .with_columns(pl.col("active_ms", "fleet_ms").fill_null(0))
        .with_columns(others_ms=pl.col("fleet_ms") - pl.col("active_ms"))
    )
    worked = _on_their_days(grid).sort("who", "day").with_columns(number=pl.int_range(pl.len()).over("who"))
    recent = pl.col("number") < RECENT_DAYS
    prior = (pl.col("number") >= RECENT_DAYS) & (pl.col("number") < RECENT_DAYS + PRIOR_DAYS)
    others = per_day.filter(pl.col("day") >= RECENT_DAYS)["who"].n_unique() - 1
    fell = pl.col("others_ms").filter(recent).mean() <= LULL_MAX * pl.col("others_ms").filter(prior).median()
    return worked.group_by("who").agg(
        recent_ms=pl.col("active_ms").filter(recent).mean(),
        prior_ms=pl.col("active_ms").filter(prior).median(),
        prior_days=prior.sum(),
        lull=fell & (others >= LULL_HOLDERS_MIN),
    )


def _daily(work: pl.DataFrame, until_ms: int) -> pl.DataFrame:
    """Active GPU time per holder and day back from the end (0: the last 24 h). Ledger rows are no longer than a day."""
    rows = work.filter(pl.col("end") > until_ms - _DAYS * DAY_MS).select("who", "time", "end", gpu_ms=GPU_MS)
    newer, older = (until_ms - pl.col("end")) // DAY_MS, (until_ms - 1 - pl.col("time")) // DAY_MS
    edge_ms = until_ms - older * DAY_MS
    late = pl.when(older > newer).then(pl.col("end") - edge_ms).otherwise(0) / (pl.col("end") - pl.col("time"))
    parts = [
        rows.select("who", day=older, active_ms=pl.col("gpu_ms") * (1 - late)),
        rows.select("who", day=newer, active_ms=pl.col("gpu_ms") * late),
    ]
    return pl.concat(parts).group_by("who", "day").agg(pl.col("active_ms").sum())


def _on_their_days(grid: pl.DataFrame) -> pl.DataFrame:
    """Without the weekends of those who do not work on weekends."""
    before = pl.col("day") >= RECENT_DAYS
    at_weekends = pl.col("active_ms").filter(before & pl.col("weekend")).median().over("who")
    on_weekdays = pl.col("active_ms").filter(before & ~pl.col("weekend")).median().over("who")
    never = (at_weekends <= FALL_MAX * on_weekdays).fill_null(value=False)
    return grid.filter(~(pl.col("weekend") & never))


def _starts(context: Context) -> pl.DataFrame:
    """Per holder the time since a process of theirs was first seen or, where that is known, began: who, no_start_ms."""
    began = pl.coalesce("started", "time")
    newest = context.rollups.processes().group_by(who="user").agg(newest=began.max())
    return newest.filter(pl.col("who").is_not_null()).select("who", no_start_ms=context.until_ms - pl.col("newest"))

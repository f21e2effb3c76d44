"""Whose work has faded: the time since a user's last activity, and how much less of it there is than before."""

from __future__ import annotations

import polars as pl

from analytics.states import IN_USE
from analytics.workloads.ledger_rows import GPU_MS
from analytics.workloads.model import Context
from fallow.clock import DAY_MS, HOUR_MS

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

FOLLOWED_DAYS = 35
"""How long ago a fall may have been: of the six weeks that findings look at, one is left to compare with."""
_LENGTHS = (*range(RECENT_DAYS, FOLLOWED_DAYS - 6), FOLLOWED_DAYS)
"""In days, of what is compared with what was before it. The last serves falls of 29 days and more: six days of work in 35 are below FALL_MAX."""

_DAYS = FOLLOWED_DAYS + PRIOR_DAYS + 6
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
        .with_columns(
            by_gap=(pl.col("gap_count") >= GAPS_MIN)
            & (pl.col("gap_ms") > GAP_RATIO * pl.col("gap_p95_ms"))
            & (pl.col("gap_ms") > GAP_MIN_MS)
        )
        .join(_falls(context, work, names), on="who", how="left")
        .join(_starts(context), on="who", how="left")
        .with_columns(
            by_gap=pl.col("by_gap") & _at_the_gap(),
            by_fall=pl.col("fell") & (pl.col("no_start_ms") >= NO_START_MS).fill_null(value=True),
        )
        .with_columns(pl.col("by_gap", "by_fall", "lull").fill_null(value=False))
    )
    told = found.filter((pl.col("by_gap") | pl.col("by_fall")) & ~pl.col("lull"))
    # the whole of a long fall, not its last days alone
    longest = told.sort("by_gap", "by_fall", "days", descending=True).unique("who", keep="first")
    fell_ms = pl.col("days") * DAY_MS
    return longest.with_columns(
        since=until_ms - pl.when("by_gap").then("gap_ms").otherwise(fell_ms).cast(pl.Int64)
    ).sort("who")


def _at_the_gap() -> pl.Expr:
    """Whether a row of `_falls` is about the days of the gap, or as near to them as there is one."""
    gap_days = (pl.col("gap_ms") // DAY_MS).clip(RECENT_DAYS, pl.col("days").max().over("who"))
    return pl.col("days").is_null() | (pl.col("days") == gap_days)


def _gaps(work: pl.DataFrame, until_ms: int) -> pl.DataFrame:
    """Per holder the time since the last activity on any GPU, and past gaps: who, gap_ms, gap_p95_ms, gap_count."""
    ordered = work.select("who", "time", "end").sort("who", "time")
    gap = pl.col("time") - pl.col("end").cum_max().over("who").shift(1)
    same = pl.col("who") == pl.col("who").shift(1)
    gaps = ordered.with_columns(past=pl.when(same).then(gap))
    real = pl.col("past").filter(pl.col("past") >= PAUSE_MS)
    return gaps.group_by("who").agg(
        gap_ms=until_ms - pl.col("end").max(), gap_p95_ms=real.quantile(0.95, "higher"), gap_count=real.len()
    )


def _falls(context: Context, work: pl.DataFrame, names: pl.Series) -> pl.DataFrame:
    """Per holder and number of `days` up to the end: recent_ms, prior_ms, whether the work `fell` and whether it is a `lull`."""
    per_day = _daily(work, context.until_ms)
    history_ms = context.until_ms - int(context.whole.stretches.select(pl.col("time").min()).item() or 0)
    known_days = min(_DAYS, history_ms // DAY_MS)
    days = pl.DataFrame({"day": range(known_days)}, schema={"day": pl.Int64})
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
    longest = max(RECENT_DAYS, known_days - PRIOR_MIN_DAYS)
    return pl.concat([_fall(grid, per_day, length) for length in _LENGTHS if length <= longest])


def _fall(grid: pl.DataFrame, per_day: pl.DataFrame, length: int) -> pl.DataFrame:
    """`_falls` of one length."""
    worked = _on_their_days(grid, length).sort("who", "day").with_columns(number=pl.int_range(pl.len()).over("who"))
    since = pl.col("day") < length
    last = pl.col("number") < RECENT_DAYS
    recent = since | last
    prior = ~recent & (pl.col("number") < recent.sum().over("who") + PRIOR_DAYS)
    others = per_day.filter(pl.col("day") >= length)["who"].n_unique() - 1
    fell = pl.col("others_ms").filter(recent).mean() <= LULL_MAX * pl.col("others_ms").filter(prior).median()
    return (
        worked.group_by("who")
        .agg(
            recent_ms=pl.col("active_ms").filter(recent).mean(),
            last_ms=pl.col("active_ms").filter(last).mean(),
            prior_ms=pl.col("active_ms").filter(prior).median(),
            prior_days=prior.sum(),
            lull=fell & (others >= LULL_HOLDERS_MIN),
        )
        .select(
            "who",
            "recent_ms",
            "prior_ms",
            "lull",
            days=pl.lit(length, pl.Int64),
            fell=(pl.max_horizontal("recent_ms", "last_ms") <= FALL_MAX * pl.col("prior_ms"))
            & (pl.col("prior_ms") > 0)
            & (pl.col("prior_days") >= PRIOR_MIN_DAYS),
        )
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


def _on_their_days(grid: pl.DataFrame, length: int) -> pl.DataFrame:
    """Without the weekends of those who did not work on weekends before the last so many days."""
    before = pl.col("day") >= length
    at_weekends = pl.col("active_ms").filter(before & pl.col("weekend")).median().over("who")
    on_weekdays = pl.col("active_ms").filter(before & ~pl.col("weekend")).median().over("who")
    never = (at_weekends <= FALL_MAX * on_weekdays).fill_null(value=False)
    return grid.filter(~(pl.col("weekend") & never))


def _starts(context: Context) -> pl.DataFrame:
    """Per holder the time since a process of theirs was first seen or, where that is known, began: who, no_start_ms."""
    began = pl.coalesce("started", "time")
    newest = context.rollups.processes().group_by(who="user").agg(newest=began.max())
    return newest.filter(pl.col("who").is_not_null()).select("who", no_start_ms=context.until_ms - pl.col("newest"))

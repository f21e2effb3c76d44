"""Half-open intervals [time, end) in integer milliseconds: the one clip, cut, merge, islands and levels of all tables.

The sums of a ledger row (SUMS) are divided by time whenever a row is shortened, so that no part has the energy of the
whole. Whole numbers stay whole, so parts may differ from the row by half a millisecond each.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo

import numpy as np
import polars as pl

from fallow.clock import HOUR_MS, from_ms, to_ms

Bound = int | str | pl.Expr | None
"""A moment, the column that has one per row, or None for no bound."""

SUMS = (
    "zero_ms",
    "util_ms",
    "sample_count",
    "energy_mj",
    "energy_ms",
    "counter_ms",
    "sampled_ms",
    "perhaps_idle_ms",
    "perhaps_stalled_ms",
    "no_process_ms",
    "quiet_ms",
    "unconfirmed_ms",
    "likely_ms",
    "confirmed_ms",
)
"""Columns of the ledger that grow with the time of their row."""

SPAN_MS = pl.col("end") - pl.col("time")
"""The length of a row."""


def clip(
    rows: pl.DataFrame, since: Bound = None, until: Bound = None, *, start: str = "time", sums: Sequence[str] = SUMS
) -> pl.DataFrame:
    """Return the part of each row in [since, until), in the rows' order; rows outside are left out.

    Args:
        rows: `end` and the column that `start` names; a null end is open and ends with `until`.
        since: start of the time kept.
        until: its end.
        start: the column in which a row begins.
        sums: columns that are divided by time where the rows have them.
    """
    if _is_inside(rows, start, since, until):
        return rows
    begin, stop = pl.col(start), pl.col("end")
    if since is not None:
        begin = pl.max_horizontal(begin, _moment(since))
    if until is not None:
        stop = pl.min_horizontal(stop, _moment(until))
    part = (stop - begin) / (pl.col("end") - pl.col(start))
    inside = rows.filter(begin < stop)
    return inside.with_columns(*shared(inside, part, sums), begin.alias(start), stop.alias("end"))


def _moment(bound: int | str | pl.Expr) -> pl.Expr:
    if isinstance(bound, int):
        return pl.lit(bound, pl.Int64)
    return pl.col(bound) if isinstance(bound, str) else bound


def _is_inside(rows: pl.DataFrame, start: str, since: Bound, until: Bound) -> bool:
    """Return whether all rows lie inside: most windows have no end, and the copy of a week may take 100 MB."""
    if not (isinstance(since, int | None) and isinstance(until, int | None)):
        return False
    first, last, length, open_ended = rows.select(
        pl.col(start).min().alias("first"),
        pl.col("end").max(),
        (pl.col("end") - pl.col(start)).min().alias("length"),
        pl.col("end").is_null().any().alias("open"),
    ).row(0)
    if first is None:
        return True
    return length > 0 and not open_ended and (since is None or since <= first) and (until is None or until >= last)


def shared(rows: pl.DataFrame, part: pl.Expr, sums: Sequence[str] = SUMS) -> list[pl.Expr]:
    """Return the sums for the kept part of each row; whole numbers are rounded."""
    return [
        (pl.col(name) * part).round().cast(pl.Int64) if rows.schema[name] == pl.Int64 else pl.col(name) * part
        for name in sums
        if name in rows.columns
    ]


def cut(rows: pl.DataFrame, step_ms: int, name: str, *, sums: Sequence[str] = SUMS) -> pl.DataFrame:
    """Return the rows cut at the whole steps of UTC, with the column `name`: the number of the step since the epoch.

    Rows inside one step come first, in their order; the parts of the others follow.
    """
    marked = rows.with_columns(pl.col("time").floordiv(step_ms).alias(name), _last=(pl.col("end") - 1) // step_ms)
    inside = marked.filter(pl.col(name) == pl.col("_last")).drop("_last")
    over = marked.filter(pl.col(name) < pl.col("_last"))
    if over.is_empty():
        return inside
    steps = over.with_columns(pl.int_ranges(name, pl.col("_last") + 1).alias(name)).explode(name).drop("_last")
    number = pl.col(name)
    return pl.concat([inside, clip(steps, number * step_ms, (number + 1) * step_ms, sums=sums)])


def by_hour(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows cut at the full hours of UTC, with `hour`: the millisecond at which it begins."""
    return cut(rows, HOUR_MS, "hour").with_columns(pl.col("hour") * HOUR_MS)


def by_day(rows: pl.DataFrame, zone: tzinfo) -> pl.DataFrame:
    """Return the rows cut at the zone's midnights, with `day` (`2026-11-20`); parts of cut rows follow uncut rows."""
    if rows.is_empty():
        return rows.with_columns(day=pl.lit("", pl.String))
    dates, midnights = _midnights(
        int(rows["time"].min()),  # type: ignore[arg-type]  # of integers
        int(rows["end"].max()),  # type: ignore[arg-type]  # of integers
        zone,
    )
    first, last = (np.searchsorted(midnights, moments, side="right") - 1 for moments in (rows["time"], rows["end"] - 1))
    marked = rows.with_columns(day=pl.Series(first, dtype=pl.Int64), _last=pl.Series(last, dtype=pl.Int64))
    over = marked.filter(pl.col("day") < pl.col("_last"))
    parts = over.with_columns(day=pl.int_ranges("day", pl.col("_last") + 1)).explode("day")
    since, until = (pl.Series(midnights).gather(parts["day"] + after) for after in (0, 1))
    parts = clip(parts.with_columns(_since=since, _until=until), "_since", "_until").drop("_since", "_until")
    cut_rows = pl.concat([marked.filter(pl.col("day") >= pl.col("_last")), parts]).drop("_last")
    return cut_rows.with_columns(day=pl.Series(dates).gather(cut_rows["day"]))


def _midnights(first_ms: int, last_ms: int, zone: tzinfo) -> tuple[list[str], list[int]]:
    """Return the dates of a time range in the zone and the start of each, followed by the end of the last date.

    Where clocks skip midnight, a date begins when they change.
    """
    first, last = (from_ms(moment).astimezone(zone).date() for moment in (first_ms, last_ms))
    dates = [first + timedelta(number) for number in range((last - first).days + 2)]
    midnights = [to_ms(datetime.combine(each, datetime.min.time(), zone)) for each in dates]
    return [str(each) for each in dates], midnights


def merge(spans: pl.DataFrame, by: Sequence[str] = ("gpu",), *, tail_ms: int = 0, start: str = "time") -> pl.DataFrame:
    """Return intervals joined where they touch or overlap, each lengthened by `tail_ms`: `by`, `start`, `end`, sorted.

    `gpu_share` is the largest of the joined intervals, where they have it.
    """
    share = ["gpu_share"] if "gpu_share" in spans.columns else []
    ordered = spans.select(*by, start, *share, end=pl.col("end") + tail_ms).sort(*by, start)
    reach = pl.col("end").cum_max()
    return (
        ordered.with_columns(reach=reach.over(*by) if by else reach)
        .with_columns(block=islands(by, start=start, end="reach"))
        .group_by("block", maintain_order=True)
        .agg(*(pl.col(name).first() for name in by), pl.col(start).min(), pl.col("end").max(), *map(pl.max, share))
        .drop("block")
    )


def islands(by: Sequence[str], gap_ms: int | None = 0, *, start: str = "time", end: str = "end") -> pl.Expr:
    """Return the number of each row's island: adjacent rows that agree in all of `by`, with no long gap between them.

    Numbers rise with the rows. A null agrees with a null only.

    Args:
        by: columns in which the rows of an island agree.
        gap_ms: longest time from the end of the row before to the start of a row of the same island; None for any time.
        start: column in which a row begins.
        end: column in which a row ends. Where rows overlap, name a column with the latest end so far.
    """
    apart = [pl.col(name).ne_missing(pl.col(name).shift(1)) for name in by]
    if gap_ms is not None:
        apart.append((pl.col(start) - pl.col(end).shift(1) > gap_ms).fill_null(value=True))
    return pl.any_horizontal(apart).cum_sum()


def one_row_each(rows: pl.DataFrame, island: pl.Expr, last: Sequence[str] = ("end",)) -> pl.DataFrame:
    """Return the first row of each island, with the `last` columns of its last row.

    Grouping hashes every row and takes four times as long.
    """
    number = rows.select(island).to_series()
    begins = number.ne_missing(number.shift(1))
    ends = begins.shift(-1, fill_value=True)
    return rows.filter(begins).with_columns(rows[name].filter(ends) for name in last)


def levels(spans: pl.DataFrame, by: Sequence[str] = (), *, weight: pl.Expr | None = None) -> pl.DataFrame:
    """Return the number of simultaneous intervals: `by`, `time`, `end` and `level`, sorted by `by` and `time`.

    A row lasts from one moment at which an interval of its `by` begins or ends to the next, also where the level stays
    equal or is 0. The last row of each `by` begins where the last interval ends: its level is 0 and its `end` null.

    Args:
        spans: rows with `by`, `time` and `end`.
        by: columns that separate the counts.
        weight: the weight of each interval; None counts 1.
    """
    weight = pl.lit(1, pl.Int64) if weight is None else weight
    rows = spans.select(*by, "time", "end", level=weight)
    # groups by number, in the order of their names: sorting by names takes several times as long, and by two columns at
    # once four times as long as by one after the other
    groups = rows.select(by).unique().sort(by).with_row_index("_group") if by else pl.DataFrame({"_group": [0]})
    rows = rows.join(groups, on=by, nulls_equal=True) if by else rows.join(groups, how="cross")
    begins, ends = rows.select("_group", "time", "level"), rows.select("_group", time="end", level=-pl.col("level"))
    changes = pl.concat([begins, ends]).sort("time", maintain_order=True).sort("_group", maintain_order=True)
    is_last = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift(-1)) for name in ("_group", "time"))
    found = changes.with_columns(level=pl.col("level").cum_sum().over("_group")).filter(is_last)
    found = found.with_columns(end=pl.col("time").shift(-1).over("_group"))
    return found.join(groups, on="_group", maintain_order="left").select(*by, "time", "end", "level")

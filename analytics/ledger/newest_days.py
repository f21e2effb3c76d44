"""The newest days put together again, with the proof that the days before them stay as they are kept.

A row of the ledger depends on days that come later in three ways: the last row before them stands for as long as they say, a
spell at zero may turn out long enough to be `held`, and a stretch of work is `low` or `active` by the mean of the whole of it.
A GPU that was seen on the day before the changed ones settles the first two for everything before that day. The third is
worked out, and where it comes out differently, or where anything is in doubt, there is no answer.
Pure functions from frames to frames; integer milliseconds throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from analytics.ledger.settings import LedgerSettings
from analytics.ledger.stitch import stitch
from analytics.states import IN_USE

_UNIT = ("host", "gpu")
_OWNER = ("holder", "holder_source", "account", "job", "gpu_share")
_UTIL = ("gpu_util_mean_pct", "util_ms")
_PERCENT_MAX = 100.0
_ROUNDED = 1e-9
"""Relative error of sums of floats, with room to spare."""


@dataclass(frozen=True)
class Bounds:
    """UTC midnights: parts are read from `parts_ms` on, rows made again from `rows_ms` on, changes begin at `changed_ms`."""

    parts_ms: int
    rows_ms: int
    changed_ms: int


@dataclass(frozen=True)
class KeptRows:
    """What the lake keeps: rows of `ledger` and of `spell`, and pairs of `host` and `gpu`.

    `stretches` and `spells` are those of the day before `rows_ms`, `replaced` the rows of the ledger from there on. In
    `seen_before_parts` and `seen_before_rows` are the GPUs that had been seen by then.
    """

    stretches: pl.DataFrame
    spells: pl.DataFrame
    replaced: pl.DataFrame
    seen_before_parts: pl.DataFrame
    seen_before_rows: pl.DataFrame


RowsSince = Callable[[int], pl.DataFrame | None]
"""The kept rows of `ledger` from the day of a moment up to the rows that are made again; None where they cannot be had."""


def restitch(
    parts: tuple[pl.DataFrame, pl.DataFrame],
    kept: KeptRows,
    bounds: Bounds,
    settings: LedgerSettings,
    rows_since: RowsSince,
) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    """The rows of `ledger` and `spell` from `rows_ms` on, as all days together would give them, without their ends.

    None where the days before would change, or may. No GPU is on several hosts, and none is a MIG instance.

    Args:
        parts: `ledger_part` and `spell_part` from `parts_ms` on.
        kept: what the lake keeps.
        bounds: what is read, made and changed.
        settings: the thresholds; `idle_after_ms` is at most a day.
        rows_since: reads kept rows of the ledger.
    """
    if not _is_settled(parts[0], kept, bounds):
        return None
    stretches, spells = stitch(*parts, settings)
    joined = _joined(_with_label(stretches), _with_label(kept.stretches), "stretch", ("label", *_OWNER), bounds)
    joined_spells = _joined(spells, kept.spells, "spell", (), bounds)
    if joined is None or joined_spells is None:
        return None
    judged = _judged(joined, kept, bounds, settings, rows_since)
    return None if judged is None else (judged.drop("label", "loaded_start"), joined_spells.drop("loaded_start"))


def _is_settled(parts: pl.DataFrame, kept: KeptRows, bounds: Bounds) -> bool:
    """Whether the parts that were read say all that rows from `rows_ms` on need, and rows before it need no changed day.

    For a GPU that has rows among the changed days, or had some, one between `rows_ms` and `changed_ms` tells how long all that was
    before stood for; one before `rows_ms` does the same for what lies before the parts. Rows that say nothing (`unknown`)
    end gaps, but lengthen nothing: they do where no others follow.
    """
    known, time = pl.col("label") != "unknown", pl.col("time")
    spans = {
        "context": time < bounds.rows_ms,
        "settling": time.is_between(bounds.rows_ms, bounds.changed_ms, closed="left"),
        "changed": time >= bounds.changed_ms,
    }
    found = parts.group_by(_UNIT).agg(
        *(span.any().alias(name) for name, span in spans.items()),
        *((known & span).any().alias(f"known_{name}") for name, span in spans.items()),
        has_parts=pl.lit(value=True),
    )
    replaced = kept.replaced.filter(time >= bounds.changed_ms)
    was = replaced.group_by(_UNIT).agg(known_was=(pl.col("state") != "unknown").any(), was=pl.lit(value=True))
    units = found.join(was, on=_UNIT, how="full", coalesce=True)
    for name in ("seen_before_parts", "seen_before_rows"):
        seen = getattr(kept, name).select(*_UNIT, pl.lit(value=True).alias(name)).unique()
        units = units.join(seen, on=_UNIT, how="left")
    is_ = {name: pl.col(name).fill_null(value=False) for name in units.columns if name not in _UNIT}
    known_later = is_["known_changed"] | is_["known_was"]
    settled = (
        ~(is_["changed"] | is_["was"])
        | is_["known_settling"]
        | (is_["settling"] & ~known_later)
        | ~(is_["seen_before_rows"] | is_["context"])
    )
    complete = (
        ~is_["has_parts"]
        | is_["known_context"]
        | ~is_["seen_before_parts"]
        | (is_["context"] & ~is_["known_settling"] & ~known_later)
    )
    return bool(units.select((settled & complete).all()).item())


def _with_label(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with `label`: their state, in which low and active are one."""
    return rows.with_columns(label=pl.when(pl.col("state").is_in(IN_USE)).then(pl.lit("busy")).otherwise("state"))


def _joined(
    rows: pl.DataFrame, kept: pl.DataFrame, name: str, same: tuple[str, ...], bounds: Bounds
) -> pl.DataFrame | None:
    """The rows from `rows_ms` on, those that go on from before it with the kept start; None where they do not meet what is kept.

    `loaded_start` is the start as far as the parts tell.
    """
    start = f"{name}_start"
    meets = pl.col("end") == bounds.rows_ms
    columns = (*_UNIT, *same)
    before = kept.filter(meets)
    if not rows.filter(meets).select(columns).sort(_UNIT).equals(before.select(columns).sort(_UNIT)):
        return None
    after = rows.filter(pl.col("time") >= bounds.rows_ms)
    met = after.join(before.select(*_UNIT, kept_start=start), on=_UNIT, how="left", maintain_order="left")
    goes_on = pl.col(start) < bounds.rows_ms
    return met.with_columns(pl.when(goes_on).then("kept_start").otherwise(start).alias(start), loaded_start=start).drop(
        "kept_start"
    )


def _judged(
    rows: pl.DataFrame, kept: KeptRows, bounds: Bounds, settings: LedgerSettings, rows_since: RowsSince
) -> pl.DataFrame | None:
    """The rows with `low` or `active` by the whole of each stretch; None where that of a kept row would change, or may."""
    goes_on = (pl.col("stretch_start") < bounds.rows_ms) & (pl.col("label") == "busy")
    was = kept.stretches.filter(pl.col("end") == bounds.rows_ms).select(*_UNIT, kept_state="state")
    now = rows.filter(goes_on).join(was, on=_UNIT, how="left")
    if now.is_empty():
        return rows
    is_whole = pl.col("loaded_start") == pl.col("stretch_start")
    if not now.filter(is_whole, pl.col("state") != pl.col("kept_state")).is_empty():
        return None
    doubtful = _doubtful(now.filter(~is_whole), kept.replaced, settings)
    if not doubtful.is_empty():
        older = rows_since(int(doubtful["stretch_start"].min()))  # type: ignore[arg-type]  # of integers
        if older is None or not _stay(doubtful, older, settings):
            return None
    states = rows.join(was, on=_UNIT, how="left", maintain_order="left")
    return states.with_columns(state=pl.when(goes_on).then("kept_state").otherwise("state")).drop("kept_state")


def _doubtful(now: pl.DataFrame, replaced: pl.DataFrame, settings: LedgerSettings) -> pl.DataFrame:
    """The rows of those stretches that what has changed since they were judged may have turned over.

    What was at least the threshold in the mean stays so if what came in is, too.
    """
    whole = (*_UNIT, "stretch_start")
    row = (*whole, "time", "end", *_UTIL)
    was = replaced.join(now.select(whole).unique(), on=whole, how="semi")
    differ = [left.join(right, on=row, how="anti", nulls_equal=True) for left, right in ((now, was), (was, now))]
    changed = pl.concat([each.select(whole) for each in differ]).unique()
    sums = (
        _sums(now, whole)
        .join(changed, on=whole, how="semi")
        .join(_sums(was, whole), on=whole, how="left", suffix="_was")
    )
    sums = sums.with_columns(pl.col("util_sum_was", "util_ms_was", "rounded_ms_was").fill_null(0))
    states = now.select(*whole, "kept_state").unique()
    low_below = settings.low_below_pct
    more_sum = pl.col("util_sum") - pl.col("util_sum_was")
    more_ms = pl.col("util_ms") - pl.col("util_ms_was")
    excess = more_sum - low_below * more_ms
    error = (_PERCENT_MAX + low_below) * (pl.col("rounded_ms") + pl.col("rounded_ms_was")) + _ROUNDED * (
        pl.col("util_sum") + pl.col("util_sum_was")
    )
    stays = pl.when(pl.col("kept_state") == "active").then(excess >= error).otherwise(excess <= -error)
    doubtful = sums.join(states, on=whole).filter(~stays)
    return now.join(doubtful.select(whole), on=whole, how="semi")


def _stay(now: pl.DataFrame, older: pl.DataFrame, settings: LedgerSettings) -> bool:
    """Whether stretches, all of whose rows are here, certainly stay what they are."""
    whole = (*_UNIT, "stretch_start")
    states = now.select(*whole, "kept_state").unique()
    mine = older.join(states, on=whole, how="semi")
    columns = (*whole, *_UTIL)
    sums = _sums(pl.concat([mine.select(columns), now.select(columns)], how="vertical_relaxed"), whole)
    low_below, error_ms = settings.low_below_pct, pl.col("rounded_ms")
    error = _ROUNDED * pl.col("util_sum")
    is_active = pl.col("util_sum") - error >= low_below * (pl.col("util_ms") + error_ms)
    is_low = pl.col("util_sum") + _PERCENT_MAX * error_ms + error < low_below * (pl.col("util_ms") - error_ms)
    stays = pl.when(pl.col("kept_state") == "active").then(is_active).otherwise(is_low)
    return bool(sums.join(states, on=whole).select(stays.all()).item())


def _sums(rows: pl.DataFrame, by: tuple[str, ...]) -> pl.DataFrame:
    """Utilization times time, its time, and by how much the rounding of rows that midnight cuts may have changed it."""
    util_ms = pl.col("util_ms")
    return rows.group_by(by).agg(
        util_sum=(pl.col("gpu_util_mean_pct") * util_ms).sum(),
        util_ms=util_ms.sum(),
        rounded_ms=2 * pl.len().cast(pl.Int64) + 2,
    )

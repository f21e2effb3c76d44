"""Brings a kept ledger up to date where only its newest days have changed: the cost does not depend on the days before.

The manifest describes the other days, and rows that are read of them are compared with it. Later days change a row in
three ways: they decide how long the last row before them lasts; an idle interval may become long enough to be `held`;
and a segment of work is `low` or `active` by its mean over all days. A GPU that was observed on the day before the
changed ones settles the first two for everything before that day. The third is computed.

The build of the whole ledger handles the rest: a GPU on several hosts, MIG instances, days that lost all files, and
segments of work that would change between `low` and `active`, or that continue after more days than are reread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from analytics.inventory import Inventory, load_inventory
from analytics.ledger.cache import Manifest, expired_days, keep_tables
from analytics.ledger.day import SOURCES, HostAllocations, HostDay, load_allocations
from analytics.ledger.lifetimes import by_day
from analytics.ledger.made_days import MadeDays, host_days, method_of, print_of_day, prints_of
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.stitch import on_several_hosts, stitch
from analytics.ledger.workers import Workers
from analytics.mig import MIG_PREFIX
from analytics.states import IN_USE
from fallow import schema
from fallow.clock import DAY_MS, SystemClock, parse_day_ms, utc_day
from fallow.errors import LakeError
from fallow.lake import Lake

_UNIT = ("host", "gpu")
_OWNER = ("user", "user_source", "account", "job", "gpu_share")
_UTIL = ("gpu_util_mean_pct", "util_ms")
_PERCENT_MAX = 100.0
_ROUNDED = 1e-9
"""Relative error of sums of floats, with room to spare."""


@dataclass(frozen=True)
class KeptRows:
    """The kept rows of the rebuilt days and of the days around them. Moments are UTC midnights."""

    ledger: KeptLedger
    parts_ms: int
    """Parts are read from this moment on."""
    rows_ms: int
    """Rows are rebuilt from this moment on."""
    changed_ms: int
    """Changes begin at this moment."""
    segments: pl.DataFrame
    """Rows of `ledger` of the day before `rows_ms`."""
    idle_intervals: pl.DataFrame
    """Rows of `idle_interval` of that day."""
    replaced: pl.DataFrame
    """Rows of `ledger` from `rows_ms` on."""
    lifetimes_before_parts: pl.DataFrame
    """The GPUs that had been observed by `parts_ms`."""
    lifetimes: pl.DataFrame
    """The GPUs that had been observed by `rows_ms`."""


def restitch(
    shares: Iterable[tuple[pl.DataFrame, pl.DataFrame]], kept: KeptRows
) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    """Return the rows of `ledger` and `idle_interval` from `rows_ms` on, as built from all days, without their ends.

    None where the state of a kept row would change, or may. The caller ensures that the parts suffice (`_is_settled`),
    that no GPU is on several hosts, that none is a MIG instance, and that `idle_after_ms` is at most a day.

    Args:
        shares: `ledger_part` and `idle_interval_part` from `parts_ms` on, a share of the hosts at a time.
        kept: the rows that the lake keeps.
    """
    stitched = [stitch(*parts, kept.ledger.settings) for parts in shares]
    segments, idle_intervals = (pl.concat(frames) for frames in zip(*stitched, strict=True))
    joined = _joined_rows(
        _with_label(segments), _with_label(kept.segments), "segment", ("label", *_OWNER), kept.rows_ms
    )
    joined_idle_intervals = _joined_rows(idle_intervals, kept.idle_intervals, "idle_interval", (), kept.rows_ms)
    if joined is None or joined_idle_intervals is None:
        return None
    judged = _judged_rows(joined, kept)
    return (
        None if judged is None else (judged.drop("label", "loaded_start"), joined_idle_intervals.drop("loaded_start"))
    )


def _is_settled(parts: pl.DataFrame, kept: KeptRows) -> bool:
    """Return whether the parts suffice for all rows from `rows_ms` on, and rows before it need no changed day.

    `parts` has `host`, `gpu`, `time` and `label`.

    This matters for a GPU that has rows among the changed days, or had some. A row between `rows_ms` and `changed_ms`
    then settles how long all earlier rows lasted; a row before `rows_ms` does the same for rows before the parts. Rows
    with state `unknown` end gaps but lengthen nothing, except where no other rows follow.
    """
    known, time = pl.col("label") != "unknown", pl.col("time")
    periods = {
        "context": time < kept.rows_ms,
        "settling": time.is_between(kept.rows_ms, kept.changed_ms, closed="left"),
        "changed": time >= kept.changed_ms,
    }
    found = parts.group_by(_UNIT).agg(
        *(period.any().alias(name) for name, period in periods.items()),
        *((known & period).any().alias(f"known_{name}") for name, period in periods.items()),
        has_parts=pl.lit(value=True),
    )
    replaced = kept.replaced.filter(time >= kept.changed_ms)
    was = replaced.group_by(_UNIT).agg(known_was=(pl.col("state") != "unknown").any(), was=pl.lit(value=True))
    units = found.join(was, on=_UNIT, how="full", coalesce=True)
    seen = {"seen_before_parts": kept.lifetimes_before_parts, "seen_before_rows": kept.lifetimes}
    for name, rows in seen.items():
        units = units.join(rows.select(*_UNIT, pl.lit(value=True).alias(name)), on=_UNIT, how="left")
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
    """Return the rows with `label`: their state, with low and active as one."""
    return rows.with_columns(label=pl.when(pl.col("state").is_in(IN_USE)).then(pl.lit("busy")).otherwise("state"))


def _joined_rows(
    rows: pl.DataFrame, kept: pl.DataFrame, name: str, same: tuple[str, ...], rows_ms: int
) -> pl.DataFrame | None:
    """Return the rows from `rows_ms` on, with the kept start where they continue an earlier row.

    None where they do not fit the kept rows. `loaded_start` is the start that the parts show.
    """
    start = f"{name}_start"
    meets = pl.col("end") == rows_ms
    columns = (*_UNIT, *same)
    before = kept.filter(meets)
    if not rows.filter(meets).select(columns).sort(_UNIT).equals(before.select(columns).sort(_UNIT)):
        return None
    after = rows.filter(pl.col("time") >= rows_ms)
    met = after.join(before.select(*_UNIT, kept_start=start), on=_UNIT, how="left", maintain_order="left")
    goes_on = pl.col(start) < rows_ms
    return met.with_columns(pl.when(goes_on).then("kept_start").otherwise(start).alias(start), loaded_start=start).drop(
        "kept_start"
    )


def _judged_rows(rows: pl.DataFrame, kept: KeptRows) -> pl.DataFrame | None:
    """Return the rows with the state of each whole segment; None where the state of a kept row might change."""
    settings = kept.ledger.settings
    goes_on = (pl.col("segment_start") < kept.rows_ms) & (pl.col("label") == "busy")
    was = kept.segments.filter(pl.col("end") == kept.rows_ms).select(*_UNIT, kept_state="state")
    now = rows.filter(goes_on).join(was, on=_UNIT, how="left")
    if now.is_empty():
        return rows
    is_whole = pl.col("loaded_start") == pl.col("segment_start")
    if not now.filter(is_whole, pl.col("state") != pl.col("kept_state")).is_empty():
        return None
    doubtful = _doubtful_rows(now.filter(~is_whole), kept.replaced, settings)
    if not doubtful.is_empty():
        first_ms = int(doubtful["segment_start"].min()) // DAY_MS * DAY_MS  # type: ignore[arg-type]  # of integers
        older = kept.ledger.rows(schema.LEDGER, first_ms, kept.rows_ms)
        if older is None or not _is_unchanged(doubtful, older, settings):
            return None
    states = rows.join(was, on=_UNIT, how="left", maintain_order="left")
    return states.with_columns(state=pl.when(goes_on).then("kept_state").otherwise("state")).drop("kept_state")


def _doubtful_rows(now: pl.DataFrame, replaced: pl.DataFrame, settings: LedgerSettings) -> pl.DataFrame:
    """Return the rows of segments whose state may differ because of later changes.

    A mean that was at or above the threshold stays there if the added rows are at or above it, too.
    """
    whole = (*_UNIT, "segment_start")
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


def _is_unchanged(now: pl.DataFrame, older: pl.DataFrame, settings: LedgerSettings) -> bool:
    """Return whether segments certainly keep their state; all of their rows are given."""
    whole = (*_UNIT, "segment_start")
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
    """Return utilization times time, its time, and the largest change that rounding at midnight may have caused."""
    util_ms = pl.col("util_ms")
    return rows.group_by(by).agg(
        util_sum=(pl.col("gpu_util_mean_pct") * util_ms).sum(),
        util_ms=util_ms.sum(),
        rounded_ms=2 * pl.len().cast(pl.Int64) + 2,
    )


_BACK_DAYS = (1, 2, 4, 8, 16)
"""How many days before the changed ones are rebuilt, tried in turn: a host that was away over a weekend needs four."""

Days = Mapping[str, Mapping[str, HostDay]]


@dataclass(frozen=True)
class KeptLedger:
    """A lake with a kept ledger, and the sources of its days."""

    lake: Lake
    settings: LedgerSettings
    manifest: Manifest
    inventory: Inventory
    allocations: HostAllocations
    expired: frozenset[str]

    @classmethod
    def of(cls, lake: Lake, settings: LedgerSettings) -> KeptLedger | None:
        """Return the kept ledger; None where other settings made it."""
        manifest = manifest_of(lake, method_of(settings))
        if manifest is None:
            return None
        inventory = load_inventory(lake)
        return cls(lake, settings, manifest, inventory, load_allocations(lake, inventory), expired_days(lake))

    def again(self) -> KeptLedger | None:
        """Return the same with the manifest that the lake has now; None where that is missing or of other settings."""
        manifest = manifest_of(self.lake, self.manifest.method)
        return None if manifest is None else replace(self, manifest=manifest)

    @cached_property
    def kept_dates(self) -> list[str]:
        """Return the days of `gpu_lifetime`, in order."""
        return kept_dates_of(self.manifest)

    def newest_ms(self) -> int:
        """Return a moment on the last day that may have rows: the day after today, or after the newest kept day."""
        return max(parse_day_ms(self.kept_dates[-1]), SystemClock().now_ms()) + DAY_MS

    def dates(self, first_ms: int, until_ms: int | None) -> list[str]:
        """Return the days from a midnight up to the day after a window's end that can have rows."""
        newest_ms = self.newest_ms()
        end_ms = newest_ms if until_ms is None else min(until_ms + DAY_MS, newest_ms)
        return dates_between(first_ms, 1 + end_ms)

    def rebuilt_dates(self, first_ms: int) -> list[str]:
        """Return the days that `catch_up` may read or write where none before a midnight has changed."""
        before_ms = 2 * max(_BACK_DAYS) * DAY_MS
        return dates_between(max(0, first_ms - before_ms - DAY_MS), 1 + self.newest_ms() + DAY_MS)

    def days(self, dates: Sequence[str]) -> dict[str, dict[str, HostDay]]:
        """Return days by date and host, as the lake has them now. Expired days have no hosts: they stay as kept."""
        files = {table.name: self.lake.files(table.name, dates=dates) for table in SOURCES}
        found = host_days(self.inventory, self.allocations, files, self.expired)
        return found | {date: {} for date in dates if date in self.expired and date in self.manifest.days}

    def prints_of(self, days: Days) -> dict[str, str]:
        """Return, by date, a digest of each day's sources; for an expired day that of the manifest."""
        return {
            date: self.manifest.prints[date] if date in self.expired else print_of_day(prints_of(hosts, self.settings))
            for date, hosts in days.items()
        }

    def first_changed(self, days: Days, dates: Collection[str]) -> str | None:
        """Return the first of some dates whose sources differ from those in the lake now; `days` are the lake's."""
        return self.manifest.first_changed(self.prints_of(days), dates)

    def lifetimes_of(self, date: str | None) -> pl.DataFrame | None:
        """Return the rows of `gpu_lifetime` of a date, none without a date; None if they differ from the manifest."""
        return self.manifest.rows(self.lake, schema.GPU_LIFETIME, [] if date is None else [date])

    def lifetimes_before(self, moment_ms: int) -> pl.DataFrame | None:
        """Return the rows of `gpu_lifetime` of the last day before a midnight; None as above."""
        dates = [date for date in self.kept_dates if date < utc_day(moment_ms)]
        return self.lifetimes_of(dates[-1] if dates else None)

    def rows(self, table: schema.LakeTable, first_ms: int, until_ms: int) -> pl.DataFrame | None:
        """Return kept rows of `ledger` or `idle_interval` for some days; None if they differ from the manifest."""
        return self.manifest.rows(self.lake, table, dates_between(first_ms, until_ms))


def manifest_of(lake: Lake, method: str) -> Manifest | None:
    """Return the manifest of the lake; None where it has none, or one of another method or without any day."""
    manifest = Manifest.read(lake.newest_files(schema.GPU_LIFETIME.name))
    return manifest if manifest is not None and manifest.method == method and kept_dates_of(manifest) else None


def kept_dates_of(manifest: Manifest) -> list[str]:
    """Return the days for which a lake keeps `gpu_lifetime`, in order."""
    return sorted(manifest.contents[schema.GPU_LIFETIME.name])


def dates_between(first_ms: int, until_ms: int) -> list[str]:
    """Return the UTC days of a time range that begins at midnight."""
    return [utc_day(day_ms) for day_ms in range(first_ms, until_ms, DAY_MS)]


def catch_up(kept: KeptLedger, changed: str, workers: Workers, progress: Callable[[float], None]) -> bool:
    """Rebuild the days from `changed` on, and keep them as the whole ledger would. Return whether this succeeded.

    After False, the lake may hold days that are built and not yet joined.
    """

    def made_days(dates: Sequence[str]) -> MadeDays:
        days = kept.days(dates)
        expired = kept.expired & days.keys()
        made = MadeDays(kept.lake, kept.settings, lambda _: None, dates=dates, expired=expired)
        made.build({date: hosts for date, hosts in days.items() if date not in expired}, workers, progress)
        return made

    return join_newest(kept, changed, made_days)


def join_newest(kept: KeptLedger, changed: str, made_days: Callable[[Sequence[str]], MadeDays]) -> bool:
    """Join the days from `changed` on with the kept days before, and keep the result. Return whether this succeeded.

    `made_days` returns the MadeDays of some dates.
    """
    changed_ms = parse_day_ms(changed)
    until_ms = kept.newest_ms() // DAY_MS * DAY_MS + DAY_MS
    if kept.settings.idle_after_ms > DAY_MS:
        return False
    try:
        for back in _BACK_DAYS:
            parts_ms, rows_ms = (changed_ms - days * back * DAY_MS for days in (2, 1))
            dates = dates_between(parts_ms, until_ms)
            around = _kept_rows(kept, (parts_ms, rows_ms, changed_ms), until_ms)
            if around is None:
                return False
            made = made_days(dates)
            if not made.is_kept or made.lacks_files or not _only_newest_changed(around, dates, made.manifest.prints):
                return False
            done = _join(around, made, dates)
            if done is not None:
                return done
    except LakeError:
        pass  # the build of the whole ledger reports the error
    return False


def _join(around: KeptRows, made: MadeDays, dates: Sequence[str]) -> bool | None:
    """Join some days with the kept days around them, and keep them. Return whether that succeeded.

    None where more days before might help. Raises LakeError where the lake cannot be read or written.
    """
    kept = around.ledger
    outline = made.rows(schema.LEDGER_PART, dates, (*_UNIT, "time", "label"))
    if _is_entangled(around, outline):
        return False
    found = restitch(made.parts_by_share(dates), around) if _is_settled(outline, around) else None
    if found is None:
        return None
    segments, idle_intervals = found
    if segments.is_empty():
        return False
    manifest = replace(kept.manifest, days={**kept.manifest.days, **made.manifest.days})
    rows = {"ledger": segments, "idle_interval": idle_intervals, "gpu_lifetime": by_day(segments, around.lifetimes)}
    keep_tables(kept.lake, rows, manifest, [date for date in dates if date >= utc_day(around.rows_ms)])
    return True


def _only_newest_changed(around: KeptRows, dates: Sequence[str], prints: Mapping[str, str]) -> bool:
    """Return whether only days from the changed one on differ from the manifest.

    False also where a day has lost all of its files, or `prints` have a day outside `dates`.
    """
    before, now = (
        {date: of for date, of in each.items() if date >= dates[0]} for each in (around.ledger.manifest.prints, prints)
    )
    changed = utc_day(around.changed_ms)
    settled = [{date: of for date, of in each.items() if date < changed} for each in (before, now)]
    return settled[0] == settled[1] and before.keys() <= now.keys() <= set(dates)


def _kept_rows(kept: KeptLedger, moments: tuple[int, int, int], until_ms: int) -> KeptRows | None:
    parts_ms, rows_ms, _ = moments
    segments, idle_intervals = (
        kept.rows(table, rows_ms - DAY_MS, rows_ms) for table in (schema.LEDGER, schema.IDLE_INTERVAL)
    )
    replaced = kept.rows(schema.LEDGER, rows_ms, until_ms)
    seen, lifetimes = (kept.lifetimes_before(moment) for moment in (parts_ms, rows_ms))
    if segments is None or idle_intervals is None or replaced is None or seen is None or lifetimes is None:
        return None
    return KeptRows(kept, *moments, segments, idle_intervals, replaced, seen, lifetimes)


def _is_entangled(kept: KeptRows, parts: pl.DataFrame) -> bool:
    """Return whether the rows of a GPU depend on another GPU, or on another host's rows."""
    named = [each.select("host", "gpu") for each in (kept.replaced, parts)]
    is_instance = pl.concat(named).select(pl.col("gpu").str.starts_with(MIG_PREFIX).any()).item()
    return bool(is_instance) or on_several_hosts(pl.concat([*named, kept.lifetimes.select("host", "gpu")]))

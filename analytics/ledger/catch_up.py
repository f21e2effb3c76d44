"""Brings a kept ledger up to date where only its newest days have changed: what it costs does not depend on the days before.

Other days are known by what the manifest says of them, and what is read of them is compared with it. A row depends on days that
come later in three ways: the last row before them stands for as long as they say, a spell at zero may turn out long enough to be
`held`, and a stretch of work is `low` or `active` by the mean of the whole of it. A GPU that was seen on the day before the changed
ones settles the first two for everything before that day. The third is worked out.

What cannot be brought up to date so is left to the build of the whole ledger: a GPU on several hosts, MIG instances, days that
lost all of their files, and stretches of work that would be judged differently or came back after a longer time than is looked
back for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from analytics.inventory import Inventory, load_inventory
from analytics.ledger.cache import Manifest, expired_days, keep_tables
from analytics.ledger.day import SOURCES, HostAllocations, HostDay, load_allocations
from analytics.ledger.lifetimes import by_day
from analytics.ledger.made_days import MadeDays, host_days, method_of, print_of_day, prints_of
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.stitch import on_several_hosts, stitch
from analytics.mig import MIG_PREFIX
from analytics.states import IN_USE
from fallow import schema
from fallow.clock import DAY_MS, SystemClock, parse_day_ms, utc_day
from fallow.errors import LakeError
from fallow.lake import Lake, LakeFile

_UNIT = ("host", "gpu")
_OWNER = ("holder", "holder_source", "account", "job", "gpu_share")
_UTIL = ("gpu_util_mean_pct", "util_ms")
_PERCENT_MAX = 100.0
_ROUNDED = 1e-9
"""Relative error of sums of floats, with room to spare."""


@dataclass(frozen=True)
class KeptRows:
    """What a lake keeps of the days that are made again and of those around them: rows of `ledger`, `spell` and `gpu_lifetime`.

    UTC midnights: parts are read from `parts_ms` on, rows made again from `rows_ms` on, changes begin at `changed_ms`.
    """

    ledger: KeptLedger
    parts_ms: int
    rows_ms: int
    changed_ms: int
    stretches: pl.DataFrame
    """Rows of `ledger` of the day before `rows_ms`."""
    spells: pl.DataFrame
    """Rows of `spell` of that day."""
    replaced: pl.DataFrame
    """Rows of `ledger` from `rows_ms` on."""
    lifetimes_before_parts: pl.DataFrame
    """The GPUs that had been seen by `parts_ms`."""
    lifetimes: pl.DataFrame
    """The GPUs that had been seen by `rows_ms`."""


def restitch(parts: tuple[pl.DataFrame, pl.DataFrame], kept: KeptRows) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    """The rows of `ledger` and `spell` from `rows_ms` on, as all days together would give them, without their ends.

    None where the days before would change, or may. No GPU is on several hosts, and none is a MIG instance; `idle_after_ms`
    is at most a day.

    Args:
        parts: `ledger_part` and `spell_part` from `parts_ms` on.
        kept: what the lake keeps.
    """
    if not _is_settled(parts[0], kept):
        return None
    stretches, spells = stitch(*parts, kept.ledger.settings)
    joined = _joined(_with_label(stretches), _with_label(kept.stretches), "stretch", ("label", *_OWNER), kept.rows_ms)
    joined_spells = _joined(spells, kept.spells, "spell", (), kept.rows_ms)
    if joined is None or joined_spells is None:
        return None
    judged = _judged(joined, kept)
    return None if judged is None else (judged.drop("label", "loaded_start"), joined_spells.drop("loaded_start"))


def _is_settled(parts: pl.DataFrame, kept: KeptRows) -> bool:
    """Whether the parts that were read say all that rows from `rows_ms` on need, and rows before it need no changed day.

    For a GPU that has rows among the changed days, or had some, one between `rows_ms` and `changed_ms` tells how long all that was
    before stood for; one before `rows_ms` does the same for what lies before the parts. Rows that say nothing (`unknown`)
    end gaps, but lengthen nothing: they do where no others follow.
    """
    known, time = pl.col("label") != "unknown", pl.col("time")
    spans = {
        "context": time < kept.rows_ms,
        "settling": time.is_between(kept.rows_ms, kept.changed_ms, closed="left"),
        "changed": time >= kept.changed_ms,
    }
    found = parts.group_by(_UNIT).agg(
        *(span.any().alias(name) for name, span in spans.items()),
        *((known & span).any().alias(f"known_{name}") for name, span in spans.items()),
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
    """The rows with `label`: their state, in which low and active are one."""
    return rows.with_columns(label=pl.when(pl.col("state").is_in(IN_USE)).then(pl.lit("busy")).otherwise("state"))


def _joined(
    rows: pl.DataFrame, kept: pl.DataFrame, name: str, same: tuple[str, ...], rows_ms: int
) -> pl.DataFrame | None:
    """The rows from `rows_ms` on, those that go on from before it with the kept start; None where they do not meet what is kept.

    `loaded_start` is the start as far as the parts tell.
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


def _judged(rows: pl.DataFrame, kept: KeptRows) -> pl.DataFrame | None:
    """The rows with `low` or `active` by the whole of each stretch; None where that of a kept row would change, or may."""
    settings = kept.ledger.settings
    goes_on = (pl.col("stretch_start") < kept.rows_ms) & (pl.col("label") == "busy")
    was = kept.stretches.filter(pl.col("end") == kept.rows_ms).select(*_UNIT, kept_state="state")
    now = rows.filter(goes_on).join(was, on=_UNIT, how="left")
    if now.is_empty():
        return rows
    is_whole = pl.col("loaded_start") == pl.col("stretch_start")
    if not now.filter(is_whole, pl.col("state") != pl.col("kept_state")).is_empty():
        return None
    doubtful = _doubtful(now.filter(~is_whole), kept.replaced, settings)
    if not doubtful.is_empty():
        first_ms = int(doubtful["stretch_start"].min()) // DAY_MS * DAY_MS  # type: ignore[arg-type]  # of integers
        older = kept.ledger.rows(schema.LEDGER, first_ms, kept.rows_ms)
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


_BACK_DAYS = (1, 2, 4, 8, 16)
"""How many days before the changed ones are made again, tried in turn: a host that was gone over a weekend needs four."""

Days = Mapping[str, Mapping[str, HostDay]]


@dataclass(frozen=True)
class KeptLedger:
    """A lake with a kept ledger, and what its days are made from: `lifetimes` are the files of `gpu_lifetime`, in order."""

    lake: Lake
    settings: LedgerSettings
    manifest: Manifest
    lifetimes: Sequence[LakeFile]
    inventory: Inventory
    claims: HostAllocations
    expired: frozenset[str]

    @classmethod
    def of(cls, lake: Lake, settings: LedgerSettings) -> KeptLedger | None:
        """Return what the lake keeps; None where it was not made by these settings."""
        lifetimes = lake.all_files(schema.GPU_LIFETIME.name)
        manifest = Manifest.read(lifetimes)
        if manifest is None or manifest.method != method_of(settings):
            return None
        inventory = load_inventory(lake)
        claims = load_allocations(lake, inventory)
        return cls(lake, settings, manifest, lifetimes, inventory, claims, expired_days(lake))

    def again(self) -> KeptLedger | None:
        """Return the same with the manifest that the lake has by now; None where that is missing or of other settings."""
        lifetimes = self.lake.all_files(schema.GPU_LIFETIME.name)
        manifest = Manifest.read(lifetimes)
        if manifest is None or manifest.method != self.manifest.method:
            return None
        return replace(self, manifest=manifest, lifetimes=lifetimes)

    def newest_ms(self) -> int:
        """A moment on the last day that may have rows: the one after today, or after the newest that is kept."""
        return max(parse_day_ms(self.lifetimes[-1].date), SystemClock().now_ms()) + DAY_MS

    def dates(self, first_ms: int, until_ms: int | None) -> list[str]:
        """The days from a midnight up to the day after a window's end, as far as there can be rows."""
        newest_ms = self.newest_ms()
        end_ms = newest_ms if until_ms is None else min(until_ms + DAY_MS, newest_ms)
        return dates_between(first_ms, 1 + end_ms)

    def days(self, dates: Sequence[str]) -> dict[str, dict[str, HostDay]]:
        """Some days by date and host, as the lake has them now; expired ones without hosts, for they stay as they are kept."""
        files = {table.name: self.lake.files(table.name, dates=dates) for table in SOURCES}
        found = host_days(self.inventory, self.claims, files, self.expired)
        return found | {date: {} for date in dates if date in self.expired and date in self.manifest.days}

    def prints_of(self, days: Days) -> dict[str, str]:
        """By date a digest of what each day is made from; of an expired one that of the manifest."""
        return {
            date: self.manifest.prints[date] if date in self.expired else print_of_day(prints_of(hosts, self.settings))
            for date, hosts in days.items()
        }

    def first_changed(self, days: Days, dates: Collection[str]) -> str | None:
        """Return the first of some dates that was made of something else than the lake has now; `days` are those it has."""
        before = {date: of for date, of in self.manifest.prints.items() if date in set(dates)}
        now = self.prints_of(days)
        return min((date for date in before.keys() | now.keys() if before.get(date) != now.get(date)), default=None)

    def lifetimes_of(self, date: str | None) -> pl.DataFrame | None:
        """The rows of `gpu_lifetime` of a date, of none without one; None where they are not those that the manifest names."""
        return self.manifest.rows(self.lake, schema.GPU_LIFETIME, [] if date is None else [date])

    def lifetimes_before(self, moment_ms: int) -> pl.DataFrame | None:
        """The same of the last day before a midnight."""
        dates = [file.date for file in self.lifetimes if file.date < utc_day(moment_ms)]
        return self.lifetimes_of(dates[-1] if dates else None)

    def rows(self, table: schema.LakeTable, first_ms: int, until_ms: int) -> pl.DataFrame | None:
        """The kept rows of `ledger` or `spell` of the days in a time; None where they are not those that the manifest names."""
        return self.manifest.rows(self.lake, table, dates_between(first_ms, until_ms))


def dates_between(first_ms: int, until_ms: int) -> list[str]:
    """The UTC days of a time that begins at midnight."""
    return [utc_day(day_ms) for day_ms in range(first_ms, until_ms, DAY_MS)]


def catch_up(kept: KeptLedger, changed: str, workers: int, progress: Callable[[float], None]) -> bool:
    """Makes the days from `changed` on again and keeps them as the whole ledger would be kept.

    False where that cannot be; the lake may then hold days that are built and not yet put together.
    """
    changed_ms = parse_day_ms(changed)
    until_ms = kept.newest_ms() // DAY_MS * DAY_MS + DAY_MS
    if kept.settings.idle_after_ms > DAY_MS:
        return False
    try:
        for back in _BACK_DAYS:
            parts_ms, rows_ms = (changed_ms - days * back * DAY_MS for days in (2, 1))
            around = _kept_rows(kept, (parts_ms, rows_ms, changed_ms), until_ms)
            if around is None:
                return False
            done = _made_again(around, dates_between(parts_ms, until_ms), workers, progress)
            if done is not None:
                return done
    except LakeError:
        pass  # the whole ledger says what is wrong
    return False


def _made_again(around: KeptRows, dates: Sequence[str], workers: int, progress: Callable[[float], None]) -> bool | None:
    """Make the changed days again with some days before them, and keep them: whether that is done.

    None where more days before might do it. Raises LakeError where the lake cannot be written.
    """
    kept = around.ledger
    days = kept.days(dates)
    if not _only_newest_changed(around, kept.prints_of(days)):
        return False
    failures: list[str] = []
    expired = kept.expired & days.keys()
    made = MadeDays(kept.lake, kept.settings, failures.append, dates=dates, expired=expired)
    made.build({date: hosts for date, hosts in days.items() if date not in expired}, workers, progress)
    parts = made.parts()
    if failures or made.lacks_files or _is_entangled(around, parts[0]):
        return False
    found = restitch(parts, around)
    if found is None:
        return None
    stretches, spells = found
    if stretches.is_empty():
        return False
    manifest = replace(kept.manifest, days={**kept.manifest.days, **made.manifest.days})
    rows = {"ledger": stretches, "spell": spells, "gpu_lifetime": by_day(stretches, around.lifetimes)}
    keep_tables(kept.lake, rows, manifest, [date for date in dates if date >= utc_day(around.rows_ms)])
    return True


def _only_newest_changed(around: KeptRows, prints: Mapping[str, str]) -> bool:
    """Whether the days before the changed ones are those of the manifest, and no day has lost all of its files."""
    first, changed = utc_day(around.parts_ms), utc_day(around.changed_ms)
    before = {date: print_ for date, print_ in around.ledger.manifest.prints.items() if date >= first}
    settled = [{date: of for date, of in each.items() if date < changed} for each in (before, prints)]
    return settled[0] == settled[1] and before.keys() <= prints.keys()


def _kept_rows(kept: KeptLedger, moments: tuple[int, int, int], until_ms: int) -> KeptRows | None:
    parts_ms, rows_ms, _ = moments
    stretches, spells = (kept.rows(table, rows_ms - DAY_MS, rows_ms) for table in (schema.LEDGER, schema.SPELL))
    replaced = kept.rows(schema.LEDGER, rows_ms, until_ms)
    seen, lifetimes = (kept.lifetimes_before(moment) for moment in (parts_ms, rows_ms))
    if stretches is None or spells is None or replaced is None or seen is None or lifetimes is None:
        return None
    return KeptRows(kept, *moments, stretches, spells, replaced, seen, lifetimes)


def _is_entangled(kept: KeptRows, parts: pl.DataFrame) -> bool:
    """Whether what one GPU did depends on another one, or on another host's rows."""
    named = [each.select("host", "gpu") for each in (kept.replaced, parts)]
    is_instance = pl.concat(named).select(pl.col("gpu").str.starts_with(MIG_PREFIX).any()).item()
    return bool(is_instance) or on_several_hosts(pl.concat([*named, kept.lifetimes.select("host", "gpu")]))

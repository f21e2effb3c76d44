"""Brings a kept ledger up to date where only its newest days have changed: what it costs does not depend on the days before.

Other days are known by what the manifest says of them, and what is read of them is compared with it. What cannot be brought up
to date so is left to the build of the whole ledger: a GPU on several hosts, MIG instances, days that lost all of their files, and
stretches of work that would be judged differently or came back after a longer time than is looked back for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from analytics.decode import read_days
from analytics.inventory import Inventory
from analytics.ledger import cache as keep
from analytics.ledger.day import SOURCES, HostDay
from analytics.ledger.demand import HostAllocations
from analytics.ledger.lifetimes import by_day
from analytics.ledger.made_days import MadeDays, host_days, method_of, print_of_day, whole_of
from analytics.ledger.manifest import Manifest, files_of, keep_lifetimes, sizes_of
from analytics.ledger.moved_gpus import on_several_hosts
from analytics.ledger.newest_days import Bounds, KeptRows, restitch
from analytics.ledger.settings import LedgerSettings
from analytics.mig import MIG_PREFIX
from fallow import schema
from fallow.clock import DAY_MS, SystemClock, parse_day_ms, utc_day
from fallow.errors import LakeError
from fallow.lake import Lake, LakeFile

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
    expired: frozenset[str] = frozenset()

    def again(self) -> KeptLedger | None:
        """The same with the manifest that the lake has by now."""
        lifetimes = sorted(self.lake.all_files(schema.GPU_LIFETIME.name))
        manifest = Manifest.read(lifetimes)
        return None if manifest is None else replace(self, manifest=manifest, lifetimes=lifetimes)

    def newest_ms(self) -> int:
        """A moment on the last day that may have rows: the one after today, or after the newest that is kept."""
        return max(parse_day_ms(self.lifetimes[-1].date), SystemClock().now_ms()) + DAY_MS

    def days(self, dates: Sequence[str]) -> dict[str, dict[str, HostDay]]:
        """Some days by date and host, as the lake has them now; expired ones without hosts, for they stay as they are kept."""
        files = {table.name: self.lake.files(table.name, dates=dates) for table in SOURCES}
        found = host_days(self.inventory, self.claims, files, self.expired)
        return found | {date: {} for date in dates if date in self.expired and date in self.manifest.days}

    def prints_of(self, days: Days) -> dict[str, str]:
        """By date a digest of what each day is made from; of an expired one that of the manifest."""
        return {
            date: self.manifest.prints[date] if date in self.expired else print_of_day(self.settings, hosts)
            for date, hosts in days.items()
        }

    def lifetimes_before(self, moment_ms: int) -> pl.DataFrame:
        """The rows of `gpu_lifetime` of the last day before a midnight; LakeError where they cannot be read."""
        files = [file for file in self.lifetimes if file.date < utc_day(moment_ms)]
        return read_days(files[-1:], schema.GPU_LIFETIME, schema.GPU_LIFETIME.names)

    def rows(self, table: schema.LakeTable, first_ms: int, until_ms: int) -> pl.DataFrame | None:
        """The kept rows of `ledger` or `spell` of the days in a time; None where they are not those that the manifest names."""
        return keep.verified_rows(
            self.lake, table, dates_between(first_ms, until_ms), self.manifest.contents[table.name]
        )


def dates_between(first_ms: int, until_ms: int) -> list[str]:
    """The UTC days of a time that begins at midnight."""
    return [utc_day(day_ms) for day_ms in range(first_ms, until_ms, DAY_MS)]


def catch_up(kept: KeptLedger, changed: str, workers: int, progress: Callable[[float], None]) -> bool:
    """Makes the days from `changed` on again and keeps them as the whole ledger would be kept.

    False where that cannot be; the lake may then hold days that are built and not yet put together.
    """
    changed_ms = parse_day_ms(changed)
    until_ms = kept.newest_ms() // DAY_MS * DAY_MS + DAY_MS
    if kept.settings.idle_after_ms > DAY_MS or not _is_finished(kept):
        return False
    try:
        for back in _BACK_DAYS:
            bounds = Bounds(changed_ms - 2 * back * DAY_MS, changed_ms - back * DAY_MS, changed_ms)
            done = _Attempt(kept, bounds, until_ms).run(workers, progress)
            if done is not None:
                return done
    except LakeError:
        pass  # the whole ledger says what is wrong
    return False


def _is_finished(kept: KeptLedger) -> bool:
    """Whether ledger and spells were kept as a whole with the days that the manifest names."""
    whole = whole_of(kept.settings, kept.manifest.prints)
    return all(
        keep.says_whole(kept.lake, table, kept.manifest.contents[table.name], whole)
        for table in (schema.LEDGER, schema.SPELL)
    )


@dataclass(frozen=True)
class _Attempt:
    """One try to make the newest days again with some days before them."""

    kept: KeptLedger
    bounds: Bounds
    until_ms: int

    def run(self, workers: int, progress: Callable[[float], None]) -> bool | None:
        """Whether it is done; None where more days before might do it."""
        days = self.kept.days(dates_between(self.bounds.parts_ms, self.until_ms))
        prints = self.kept.prints_of(days)
        if not self._only_newest_changed(prints):
            return False
        around = self._kept_rows()
        parts = self._parts(days, workers, progress)
        if around is None or parts is None or _is_entangled(around, parts[0]):
            return False
        rows_ms = self.bounds.rows_ms
        found = restitch(
            parts,
            around,
            self.bounds,
            self.kept.settings,
            lambda first_ms: self.kept.rows(schema.LEDGER, first_ms // DAY_MS * DAY_MS, rows_ms),
        )
        if found is None:
            return None
        return not found[0].is_empty() and self._keep(*found, prints)

    def _only_newest_changed(self, prints: Mapping[str, str]) -> bool:
        """Whether the days before the changed ones are those of the manifest, and no day has lost all of its files."""
        first, changed = utc_day(self.bounds.parts_ms), utc_day(self.bounds.changed_ms)
        before = {date: print_ for date, print_ in self.kept.manifest.prints.items() if date >= first}
        settled = [{date: of for date, of in each.items() if date < changed} for each in (before, prints)]
        return settled[0] == settled[1] and before.keys() <= prints.keys()

    def _kept_rows(self) -> KeptRows | None:
        rows_ms = self.bounds.rows_ms
        stretches = self.kept.rows(schema.LEDGER, rows_ms - DAY_MS, rows_ms)
        spells = self.kept.rows(schema.SPELL, rows_ms - DAY_MS, rows_ms)
        replaced = self.kept.rows(schema.LEDGER, rows_ms, self.until_ms)
        if stretches is None or spells is None or replaced is None:
            return None
        seen = [self.kept.lifetimes_before(each).select("host", "gpu") for each in (self.bounds.parts_ms, rows_ms)]
        return KeptRows(stretches, spells, replaced, *seen)

    def _parts(
        self, days: Days, workers: int, progress: Callable[[float], None]
    ) -> tuple[pl.DataFrame, pl.DataFrame] | None:
        """The parts of the days, built and kept where they are not; None where that cannot be."""
        dates = dates_between(self.bounds.parts_ms, self.until_ms)
        expired = self.kept.expired & days.keys()
        kept = keep.kept_days(self.kept.lake, dates)
        if not expired <= kept.days.keys():
            return None
        made = MadeDays(self.kept.lake, kept, self.kept.settings, lambda _: None, expired)
        made.build({date: hosts for date, hosts in days.items() if date not in expired}, workers, progress)
        if not made.is_kept or made.lacks_files:
            return None
        return made.frame(schema.LEDGER_PART), made.frame(schema.SPELL_PART)

    def _keep(self, stretches: pl.DataFrame, spells: pl.DataFrame, prints: Mapping[str, str]) -> bool:
        """Keeps the rows, then the lifetimes, and last the manifest; LakeError where the lake cannot be written."""
        kept, manifest = self.kept, self.kept.manifest
        first = utc_day(self.bounds.rows_ms)
        dates = set(dates_between(self.bounds.rows_ms, self.until_ms))
        all_prints = manifest.prints | {**prints}
        whole = whole_of(kept.settings, all_prints)
        contents, refreshed = {}, set(dates)
        for table, made in ((schema.LEDGER, stretches), (schema.SPELL, spells)):
            earlier = {date: of for date, of in manifest.contents[table.name].items() if date < first}
            rows = self._with_newest(table, made, earlier)
            if rows is None:
                return False
            written = dates | {utc_day(day_ms) for day_ms in rows["time"].unique()}
            staying = {date: of for date, of in earlier.items() if date not in written}
            files = kept.lake.all_files(table.name, dates=written)
            contents[table.name] = keep.keep_table(kept.lake, table, rows, files, whole, earlier=staying)
            refreshed |= written
        files_now = files_of(kept.lake, refreshed)
        days = {date: (of, sizes_of(files_now.get(date, {}))) for date, of in all_prints.items() if date in refreshed}
        lifetimes = by_day(stretches, kept.lifetimes_before(self.bounds.rows_ms))
        newer = Manifest(method_of(kept.settings), {**manifest.days, **days}, contents)
        keep_lifetimes(kept.lake, lifetimes, newer, first)
        return True

    def _with_newest(
        self, table: schema.LakeTable, rows: pl.DataFrame, earlier: Mapping[str, str]
    ) -> pl.DataFrame | None:
        """The rows, or where there are none those of the newest day before: it says what all days are made from.

        None where they cannot be read.
        """
        if not rows.is_empty() or not earlier:
            return rows
        return keep.verified_rows(self.kept.lake, table, [max(earlier)], earlier)


def _is_entangled(kept: KeptRows, parts: pl.DataFrame) -> bool:
    """Whether what one GPU did depends on another one, or on another host's rows."""
    named = [each.select("host", "gpu") for each in (kept.replaced, parts)]
    is_instance = pl.concat(named).select(pl.col("gpu").str.starts_with(MIG_PREFIX).any()).item()
    return bool(is_instance) or on_several_hosts(pl.concat([*named, kept.seen_before_rows]))

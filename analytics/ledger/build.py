"""The ledger of a lake: built per host and day from the samples, kept there, and rebuilt where sources changed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import polars as pl

from analytics.inventory import Inventory, load_inventory
from analytics.ledger.cache import expired_days, files_of, in_turn, sizes_of
from analytics.ledger.catch_up import Days, KeptLedger, catch_up, join_newest, manifest_of
from analytics.ledger.day import SOURCES, load_allocations
from analytics.ledger.gpu_states import STATES_OF_GPUS
from analytics.ledger.lifetimes import HISTORY_COLUMNS, Earlier, activity, lifetimes
from analytics.ledger.made_days import MadeDays, host_days, rollup_files
from analytics.ledger.rollups import Rollups
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.stitch import counted_once, idle_intervals_counted_once, put_in_order, stitch
from analytics.ledger.unused_files import discarding
from analytics.ledger.workers import HERE, Workers
from fallow import schema
from fallow.clock import DAY_MS, WEEK_MS, Window, floor_ms, parse_day_ms, utc_day
from fallow.lake import Lake
from fallow.output import say_lines

_IDLE_INTERVALS_MS = 6 * WEEK_MS
"""Time before a window in which findings read idle intervals: decisions rest on up to five weeks before its end, and
follow up the findings of the week before those."""


_T = TypeVar("_T")


@dataclass(frozen=True)
class Ledger:
    """The ledger of a lake, times as integer milliseconds."""

    segments: pl.DataFrame
    """Columns of the ledger table, and `segment_end`."""
    idle_intervals: pl.DataFrame
    """Columns of the idle_interval table, and `idle_interval_end`."""
    rollups: Rollups = field(default_factory=lambda: Rollups({}))
    """The hourly and daily tables."""
    inventory: Inventory | None = None
    """The facts about the GPUs."""
    earlier: Earlier = field(default_factory=Earlier)
    """History of the days before the ledger."""
    _computed: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)
    """Values of `once` for this ledger and all ledgers that are cut from it."""

    def once(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return what `make` returns, made once for every window that is cut from one reading of a lake.

        Two threads that come first at the same time both make it, and get equal results.
        """
        if key not in self._computed:
            self._computed[key] = make()
        found: _T = self._computed[key]
        return found

    @cached_property
    def lifetimes(self) -> pl.DataFrame:
        """Return the history of each GPU on each host up to the ledger's end, with the days before; see `lifetimes`."""
        return lifetimes(self.segments, self.earlier.rows)

    @cached_property
    def first_ms(self) -> int:
        """Return the time of the first observation; 0 for an empty ledger."""
        return int(self.lifetimes["first_seen"].min() or 0)  # type: ignore[arg-type]  # of integers

    @cached_property
    def host_ends(self) -> dict[str, int]:
        """Return when each host was last observed by the lake's rows, also after the days that were read."""
        newest = self.lifetimes if self.earlier.newest is None else self.earlier.newest
        return dict(newest.group_by("host").agg(pl.col("last_seen").max()).sort("host").iter_rows())

    def activity(self, since_ms: int) -> pl.DataFrame:
        """Return known and active time per GPU and day, from the day of a moment on; see `lifetimes.ACTIVITY`."""
        rows = activity(self.segments).filter(pl.col("time") >= floor_ms(since_ms, DAY_MS))
        start_ms = self.segments["time"].min()
        if isinstance(start_ms, int) and since_ms >= start_ms:
            return rows
        return pl.concat([self.earlier.activity(since_ms), rows], how="vertical_relaxed")

    def states(self, since_ms: int) -> pl.DataFrame:
        """Return the states of each GPU (STATES_OF_GPUS) from a moment's day on, with days before the ledger's."""
        rows = self.segments.select(STATES_OF_GPUS).filter(pl.col("time") >= floor_ms(since_ms, DAY_MS))
        return pl.concat([self.earlier.states(since_ms), rows], how="vertical_relaxed")


def recent(ledger: Ledger, first_ms: int) -> Ledger:
    """Return the ledger from a moment's day on, with all lifetimes; hourly and daily tables stay as they are."""
    is_before = pl.col("time") < floor_ms(first_ms, DAY_MS)
    before = ledger.segments.select(HISTORY_COLUMNS).filter(is_before)
    if before.is_empty():
        return ledger
    known = ledger.earlier
    days = [activity(before), *([] if known.days is None else [known.days])]
    parts = [before.select(STATES_OF_GPUS), *([] if known.older_states is None else [known.older_states])]
    earlier = replace(
        known,
        rows=lifetimes(before, known.rows),
        days=pl.concat(days, how="vertical_relaxed"),
        older_states=pl.concat(parts, how="vertical_relaxed"),
    )
    return replace(
        ledger,
        segments=ledger.segments.filter(~is_before),
        idle_intervals=ledger.idle_intervals.filter(~is_before),
        earlier=earlier,
    )


def load_recent(
    lake: Lake,
    settings: LedgerSettings,
    window: Window,
    first_ms: int,
    *,
    workers: Workers = HERE,
    progress: Callable[[float], None] = lambda _: None,
) -> Ledger | None:
    """Return the kept ledger of a window with a start and of the time before it; None where it must be rebuilt whole.

    Only the days from `first_ms` up to the one after the window are compared with their sources, and brought up to
    date. No file of other days is opened, and idle intervals begin _IDLE_INTERVALS_MS before the window. Raises
    LakeError and its kinds.
    """
    found = KeptLedger.of(lake.require(), settings)
    if found is None:
        return None
    dates = found.dates(floor_ms(first_ms, DAY_MS), window.until_ms)
    days = found.days(dates)
    kept = caught_up(found, days, dates, workers, progress)
    idle_intervals_from_ms = (window.since_ms or 0) - _IDLE_INTERVALS_MS
    return None if kept is None or not days else _kept_days_ledger(kept, days, dates, idle_intervals_from_ms)


def caught_up(
    found: KeptLedger, days: Days, dates: Sequence[str], workers: Workers, progress: Callable[[float], None]
) -> KeptLedger | None:
    """Return the kept ledger, current for the days of some dates in a row; None where the whole ledger must be rebuilt.

    Where the newest of them have changed, they are rebuilt with a few days before them. Raises LakeError.
    """

    def rebuilt(turn: Lake) -> bool:
        newest = replace(found, lake=turn).again()
        changed = None if newest is None else newest.first_changed(days, dates)
        return newest is not None and (changed is None or catch_up(newest, changed, workers, progress))

    if found.first_changed(days, dates) is None:
        return found
    touched = found.rebuilt_dates(parse_day_ms(dates[0]))
    return found.again() if in_turn(found.lake, rebuilt, dates=touched) else None


def newest_kept_ms(lake: Lake) -> int | None:
    """Return the start of the newest day of the ledger that the lake keeps; None without one. Raises LakeError."""
    files = lake.require().newest_files(schema.GPU_LIFETIME.name)
    return parse_day_ms(files[0].date) if files else None


def _kept_days_ledger(kept: KeptLedger, days: Days, dates: Sequence[str], idle_intervals_from_ms: int) -> Ledger | None:
    """Return days of a kept ledger, idle intervals from a moment on; None where a file differs from the manifest."""
    lake, manifest = kept.lake, kept.manifest
    # days without samples have time too: unobserved time, and the last row before them
    files = files_of(lake, dates)
    if any(date not in manifest.days or sizes_of(files.get(date, {})) != manifest.days[date][1] for date in days):
        return None
    rows = manifest.ledger(
        lake, dates, [date for date in dates if date >= utc_day(max(idle_intervals_from_ms - DAY_MS, 0))]
    )
    before = [date for date in kept.kept_dates if date < min(days)]
    newest = kept.kept_dates[-1]
    known = kept.lifetimes_of(before[-1] if before else None)
    known_now = kept.lifetimes_of(newest) if newest > max(days) else None
    if rows is None or known is None or (newest > max(days) and known_now is None):
        return None
    contents = manifest.contents[schema.LEDGER.name]
    earlier = Earlier(known, known_now, before, lake, contents, on_unusable=discarding(lake.delete))
    rollups = Rollups(rollup_files(files), allocations=kept.allocations.rows, discard=lake.delete)
    return Ledger(*rows, rollups, kept.inventory, earlier)


def load_ledger(
    lake: Lake,
    settings: LedgerSettings,
    *,
    progress: Callable[[float], None] = lambda _: None,
    warn: Callable[[str], None] = say_lines,
    workers: Workers = HERE,
) -> Ledger:
    """Return the ledger of the whole lake. Rebuild host-days whose samples, allocations or settings have changed.

    The rebuilt days are kept; where the lake cannot be written, a warning says so. Raises LakeError and its kinds for a
    lake that is missing, empty or broken.
    """

    def load(lake: Lake) -> Ledger:
        inventory = load_inventory(lake, compare_all=True)
        allocations = load_allocations(lake, inventory, compare_all=True)
        expired = expired_days(lake)
        gpu_files = lake.files("gpu") if expired else lake.require_files("gpu")
        files = {"gpu": gpu_files} | {table.name: lake.files(table.name) for table in SOURCES[1:]}
        days = host_days(inventory, allocations, files, expired)
        made = MadeDays(lake, settings, warn, expired=expired)
        made.build(days, workers, progress)
        now = made.manifest
        manifest = manifest_of(lake, now.method)
        changed = None if manifest is None else manifest.first_changed(now.prints)
        if manifest is not None and changed is not None:
            known = KeptLedger(lake, settings, manifest, inventory, allocations, expired)
            if join_newest(known, changed, lambda _: made):
                manifest, changed = manifest_of(lake, now.method), None
        kept = manifest.ledger(lake) if manifest is not None and changed is None else None
        segments, idle_intervals = kept or put_together(made.parts_by_share(), settings, inventory)
        if (
            kept is None
            or manifest is None
            or manifest.days != now.days
            or not manifest.names(schema.GPU_LIFETIME, lake.all_files(schema.GPU_LIFETIME.name))
        ):
            made.keep(segments, idle_intervals)
        return Ledger(segments, idle_intervals, made.rollups(allocations.rows), inventory)

    return in_turn(lake.require(), load, warn)


def put_together(
    shares: Iterable[tuple[pl.DataFrame, pl.DataFrame]], settings: LedgerSettings, inventory: Inventory
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the segments and idle intervals of all days.

    `shares` has the rows of `ledger_part` and `idle_interval_part`, a share of the hosts at a time, because stitching
    takes many times the memory of its result.
    """
    stitched = [stitch(*parts, settings, inventory.parents) for parts in shares]
    twice, idle_intervals_twice = (pl.concat(frames) for frames in zip(*stitched, strict=True))
    del stitched
    segments = counted_once(put_in_order(twice))
    idle_intervals_twice = put_in_order(idle_intervals_twice)
    return segments, idle_intervals_counted_once(idle_intervals_twice, segments)

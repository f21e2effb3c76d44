"""The ledger of a lake: built per host and day from the samples, kept in the lake, and built again where sources changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import polars as pl

from analytics.inventory import Inventory, load_inventory
from analytics.ledger.cache import Manifest, expired_days, files_of, in_turn, sizes_of
from analytics.ledger.catch_up import Days, KeptLedger, catch_up
from analytics.ledger.day import SOURCES, load_allocations
from analytics.ledger.lifetimes import Earlier, activity, lifetimes
from analytics.ledger.made_days import MadeDays, host_days, rollup_files
from analytics.ledger.rollups import Rollups
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.stitch import counted_once, spells_counted_once, stitch
from analytics.ledger.unused_files import discarding
from fallow import schema
from fallow.clock import DAY_MS, WEEK_MS, Window, floor_ms, parse_day_ms, utc_day
from fallow.lake import Lake
from fallow.output import say_lines


@dataclass(frozen=True)
class Ledger:
    """The ledger of a lake, times as integer milliseconds.

    `stretches` has the columns of the ledger table and `stretch_end`, `spells` those of spell and `spell_end`; `rollups` are
    the hourly and daily tables beside them. `inventory` says what the GPUs are.
    """

    stretches: pl.DataFrame
    spells: pl.DataFrame
    rollups: Rollups = field(default_factory=lambda: Rollups({}))
    inventory: Inventory | None = None
    earlier: Earlier = field(default_factory=Earlier)

    @cached_property
    def lifetimes(self) -> pl.DataFrame:
        """What is known of each GPU on each host up to the ledger's end, the days before it included; see `lifetimes`."""
        return lifetimes(self.stretches, self.earlier.rows)

    @cached_property
    def first_ms(self) -> int:
        """When anything was first seen; 0 of an empty ledger."""
        return int(self.lifetimes["first_seen"].min() or 0)  # type: ignore[arg-type]  # of integers

    @cached_property
    def host_ends(self) -> dict[str, int]:
        """When each host was last seen, as far as the lake knows: also after the days that were read."""
        newest = self.lifetimes if self.earlier.newest is None else self.earlier.newest
        return dict(newest.group_by("host").agg(pl.col("last_seen").max()).sort("host").iter_rows())

    def activity(self, since_ms: int) -> pl.DataFrame:
        """Known and active time per GPU and day, from the day of a moment on; see `lifetimes.ACTIVITY`."""
        rows = activity(self.stretches).filter(pl.col("time") >= floor_ms(since_ms, DAY_MS))
        start_ms = self.stretches["time"].min()
        if isinstance(start_ms, int) and since_ms >= start_ms:
            return rows
        return pl.concat([self.earlier.activity(since_ms), rows], how="vertical_relaxed")


def recent(ledger: Ledger, first_ms: int) -> Ledger:
    """The ledger from the day of a moment on, with the lifetimes of its GPUs; hourly and daily tables stay as they are."""
    is_before = pl.col("time") < floor_ms(first_ms, DAY_MS)
    before = ledger.stretches.filter(is_before)
    if before.is_empty():
        return ledger
    known = ledger.earlier
    days = [activity(before), *([] if known.days is None else [known.days])]
    earlier = replace(known, rows=lifetimes(before, known.rows), days=pl.concat(days, how="vertical_relaxed"))
    return replace(
        ledger,
        stretches=ledger.stretches.filter(~is_before),
        spells=ledger.spells.filter(~is_before),
        earlier=earlier,
    )


def load_recent(
    lake: Lake,
    settings: LedgerSettings,
    window: Window,
    first_ms: int,
    *,
    workers: int = 1,
    progress: Callable[[float], None] = lambda _: None,
) -> Ledger | None:
    """The ledger of a window with a start and of the time before it as it is kept; None where all of it has to be made anew.

    Only the days from `first_ms` up to the one after the window are compared with what they were made of; where the newest
    of them have changed, they are made again with a few days before them. No file of other days is opened. Spells begin a
    week before the window, for what became of the findings of the week before. Raises LakeError and its kinds.
    """
    found = KeptLedger.of(lake.require(), settings)
    if found is None:
        return None
    dates = found.dates(floor_ms(first_ms, DAY_MS), window.until_ms)
    days = found.days(dates)

    def caught_up(turn: Lake) -> bool:
        newest = replace(found, lake=turn).again()
        changed = None if newest is None else newest.first_changed(days, dates)
        return newest is not None and (changed is None or catch_up(newest, changed, workers, progress))

    is_current = found.first_changed(days, dates) is None
    kept = found if is_current else found.again() if in_turn(lake, caught_up) else None
    spells_from_ms = (window.since_ms or 0) - WEEK_MS
    return None if kept is None or not days else _read(kept, days, dates, spells_from_ms)


def newest_kept_ms(lake: Lake) -> int | None:
    """The start of the newest day of the ledger that the lake keeps; None where it keeps none. Raises LakeError."""
    dates = [file.date for file in lake.require().all_files(schema.GPU_LIFETIME.name)]
    return parse_day_ms(max(dates)) if dates else None


def _read(kept: KeptLedger, days: Days, dates: Sequence[str], spells_from_ms: int) -> Ledger | None:
    """Some days of a kept ledger, with spells from a moment on; None where a file is not the one that the manifest names."""
    lake, manifest = kept.lake, kept.manifest
    # days without samples have time too: what nobody observed, and the last row before them
    files = files_of(lake, dates)
    if any(date not in manifest.days or sizes_of(files.get(date, {})) != manifest.days[date][1] for date in days):
        return None
    rows = manifest.ledger(lake, dates, [date for date in dates if date >= utc_day(max(spells_from_ms - DAY_MS, 0))])
    before = [file for file in kept.lifetimes if file.date < min(days)]
    newest = kept.lifetimes[-1].date
    known = kept.lifetimes_of(before[-1].date if before else None)
    known_now = kept.lifetimes_of(newest) if newest > max(days) else None
    if rows is None or known is None or (newest > max(days) and known_now is None):
        return None
    earlier = Earlier(known, known_now, before, on_unusable=discarding(lake.delete))
    rollups = Rollups(rollup_files(files), claims=kept.claims.rows, discard=lake.delete)
    return Ledger(*rows, rollups, kept.inventory, earlier)


def load_ledger(
    lake: Lake,
    settings: LedgerSettings,
    *,
    progress: Callable[[float], None] = lambda _: None,
    warn: Callable[[str], None] = say_lines,
    workers: int = 1,
) -> Ledger:
    """The whole lake's ledger; days of hosts whose samples, claims or settings changed are built again and kept in the lake.

    Where the lake cannot be written, the ledger is built all the same and a warning says so. `workers` processes build it, 0:
    as many as there are CPUs. Raises LakeError and its kinds for a lake that is missing, empty or broken.
    """

    def load(lake: Lake) -> Ledger:
        inventory = load_inventory(lake)
        claims = load_allocations(lake, inventory)
        expired = expired_days(lake)
        gpu_files = lake.files("gpu") if expired else lake.require_files("gpu")
        files = {"gpu": gpu_files} | {table.name: lake.files(table.name) for table in SOURCES[1:]}
        days = host_days(inventory, claims, files, expired)
        made = MadeDays(lake, settings, warn, expired=expired)
        made.build(days, workers, progress)
        lifetime_files = lake.all_files(schema.GPU_LIFETIME.name)
        now, before = made.manifest, Manifest.read(lifetime_files)
        is_of_these = before is not None and (before.method, before.prints) == (now.method, now.prints)
        kept = before.ledger(lake) if before is not None and is_of_these else None
        stretches, spells = kept or put_together(*made.parts(), settings, inventory)
        if (
            kept is None
            or before is None
            or before.days != now.days
            or not before.names(schema.GPU_LIFETIME, lifetime_files)
        ):
            made.keep(stretches, spells)
        return Ledger(stretches, spells, made.rollups(claims.rows), inventory)

    return in_turn(lake.require(), load, warn)


def put_together(
    parts: pl.DataFrame, spell_parts: pl.DataFrame, settings: LedgerSettings, inventory: Inventory
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the stretches and spells of the parts of all days: rows of `ledger_part` and `spell_part`."""
    twice, spells_twice = stitch(parts, spell_parts, settings, inventory.parents)
    stretches = counted_once(twice)
    return stretches, spells_counted_once(spells_twice, stretches)

"""The ledger of a lake: built per host and day from the samples, kept in the lake, and built again where sources changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import polars as pl

from analytics.frames import read_frame
from analytics.inventory import Inventory, load_inventory
from analytics.ledger import cache as keep
from analytics.ledger.cache import KeptMeanwhile, Manifest, TurnToKeep, expired_days, files_of, sizes_of
from analytics.ledger.catch_up import Days, KeptLedger, catch_up, dates_between
from analytics.ledger.day import SOURCES, HostDay, load_allocations
from analytics.ledger.lifetimes import Earlier, activity, lifetimes
from analytics.ledger.made_days import MadeDays, host_days, method_of
from analytics.ledger.rollups import TABLES, Rollups
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.stitch import counted_once, spells_counted_once, stitch
from analytics.ledger.unused_files import discarding
from fallow import schema
from fallow.clock import DAY_MS, Window, floor_ms, parse_day_ms, utc_day
from fallow.lake import Lake, LakeFile
from fallow.output import say_lines


@dataclass(frozen=True)
class Ledger:
    """The ledger of a lake, times as integer milliseconds.

    `stretches` has the columns of the ledger table and `stretch_end`, `spells` those of spell and `spell_end`; `rollups` are
    the hourly and daily tables beside them. `files` are the gpu files that it rests on, `inventory` says what the GPUs are.
    """

    stretches: pl.DataFrame
    spells: pl.DataFrame
    files: tuple[LakeFile, ...]
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
    of them have changed, they are made again with a few days before them. No file of other days is opened. Spells are those
    of the window alone. Raises LakeError and its kinds.
    """
    found = kept_ledger(lake.require(), settings)
    if found is None:
        return None
    asked = _Asked(floor_ms(first_ms, DAY_MS), window.since_ms or 0, window.until_ms)
    days = found.days(asked.dates(found))
    if _changed(found, days, asked.dates(found)) is not None:
        with TurnToKeep(lake) as turn:
            newer = _caught_up(replace(found, lake=turn), asked, workers, progress)
        if newer is None:
            return None
        found, days = replace(newer[0], lake=lake), newer[1]
    return _read(found, days, asked.dates(found), asked.since_ms) if days else None


@dataclass(frozen=True)
class _Asked:
    """What is asked for: days from the first, and a window that ends with `until_ms`, None where it is open."""

    first_ms: int
    since_ms: int
    until_ms: int | None

    def dates(self, kept: KeptLedger) -> list[str]:
        """The days from the first up to the day after the window, as far as there can be rows."""
        newest_ms = kept.newest_ms()
        end_ms = newest_ms if self.until_ms is None else min(self.until_ms + DAY_MS, newest_ms)
        return dates_between(self.first_ms, 1 + end_ms)


def _changed(kept: KeptLedger, days: Days, dates: Sequence[str]) -> str | None:
    """The first of these dates that was made of something else than the lake has now."""
    before = {date: of for date, of in kept.manifest.prints.items() if date in set(dates)}
    now = kept.prints_of(days)
    return min((date for date in before.keys() | now.keys() if before.get(date) != now.get(date)), default=None)


def _caught_up(
    kept: KeptLedger, asked: _Asked, workers: int, progress: Callable[[float], None]
) -> tuple[KeptLedger, dict[str, dict[str, HostDay]]] | None:
    """The kept ledger with its newest days as they are now, and those asked for; None where all has to be made anew."""
    found = kept.again()
    if found is None or found.manifest.method != method_of(kept.settings):
        return None
    days = found.days(asked.dates(found))
    changed = _changed(found, days, asked.dates(found))
    try:
        if changed is not None and not catch_up(found, changed, workers, progress):
            return None
    except KeptMeanwhile:
        return _caught_up(kept, asked, workers, progress)
    newer = found.again()
    return None if newer is None else (newer, days)


def newest_kept_ms(lake: Lake) -> int | None:
    """The start of the newest day of the ledger that the lake keeps; None where it keeps none. Raises LakeError."""
    dates = [file.date for file in lake.require().all_files(schema.GPU_LIFETIME.name)]
    return parse_day_ms(max(dates)) if dates else None


def kept_ledger(lake: Lake, settings: LedgerSettings) -> KeptLedger | None:
    """What the lake keeps, if it was made by these settings."""
    lifetimes = sorted(lake.all_files(schema.GPU_LIFETIME.name))
    manifest = Manifest.read(lifetimes)
    if manifest is None or manifest.method != method_of(settings):
        return None
    inventory = load_inventory(lake)
    claims = load_allocations(lake, inventory)
    return KeptLedger(lake, settings, manifest, lifetimes, inventory, claims, expired_days(lake))


def _read(
    found: KeptLedger, days: Mapping[str, Mapping[str, HostDay]], dates: Sequence[str], since_ms: int
) -> Ledger | None:
    """The days of a kept ledger; None where a file is not the one that the manifest names."""
    # days without samples have time too: what nobody observed, and the last row before them
    files = files_of(found.lake, dates)
    if any(sizes_of(files.get(date, {})) != found.manifest.days[date][1] for date in days):
        return None
    contents, recent_dates = found.manifest.contents, [date for date in dates if date >= utc_day(since_ms - DAY_MS)]
    stretches = keep.recent_table(found.lake, schema.LEDGER, dates, contents["ledger"])
    spells = keep.recent_table(found.lake, schema.SPELL, recent_dates, contents["spell"])
    if stretches is None or spells is None:
        return None
    rollup_files = {
        table.name: [own[table.name] for _, own in sorted(files.items()) if table.name in own] for table in TABLES
    }
    rollups = Rollups(rollup_files, claims=found.claims.rows, discard=found.lake.delete)
    gpu_files = tuple(file for hosts in days.values() for day in hosts.values() for file in day.files["gpu"])
    earlier = _earlier(found.lake, found.lifetimes, min(days), max(days))
    return Ledger(stretches, spells, gpu_files, rollups, found.inventory, earlier)


def _earlier(lake: Lake, kept: Sequence[LakeFile], first: str, last: str) -> Earlier:
    damaged = discarding(lake.delete)
    before = [file for file in kept if file.date < first]
    read = partial(read_frame, table=schema.GPU_LIFETIME, on_unusable=damaged)
    return Earlier(
        rows=read(before[-1:]),
        newest=read(kept[-1:]) if kept[-1].date > last else None,
        files=tuple(before),
        on_unusable=damaged,
    )


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
    lake.require()
    with TurnToKeep(lake, warn) as turn:
        try:
            return _load(turn, settings, progress, warn, workers)
        except KeptMeanwhile:
            return _load(turn, settings, progress, warn, workers)


def _load(
    lake: Lake,
    settings: LedgerSettings,
    progress: Callable[[float], None],
    warn: Callable[[str], None],
    workers: int,
) -> Ledger:
    inventory = load_inventory(lake)
    claims = load_allocations(lake, inventory)
    expired = expired_days(lake)
    gpu_files = lake.files("gpu") if expired else lake.require_files("gpu")
    files = {"gpu": gpu_files} | {table.name: lake.files(table.name) for table in SOURCES[1:]}
    days = host_days(inventory, claims, files, expired)
    kept = keep.kept_days(lake)
    made = MadeDays(lake, kept, settings, warn, expired)
    made.build(days, workers, progress)
    hosts = {host for own in days.values() for host in own} | made.hosts_of_expired()
    stretches, spells = made.kept_ledger() or _put_together(made, settings, inventory, hosts)
    made.keep_lifetimes(stretches)
    used = tuple(file for own in days.values() for day in own.values() for file in day.files["gpu"])
    return Ledger(stretches, spells, used, made.rollups(claims.rows), inventory)


def _put_together(
    made: MadeDays, settings: LedgerSettings, inventory: Inventory, hosts: Collection[str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The stretches and spells of all parts, kept where the parts are."""
    parts, spell_parts = (made.frame(table) for table in (schema.LEDGER_PART, schema.SPELL_PART))
    # of every MIG instance, by host and UUID, the GPU that it is a part of
    parents = {(host, uuid): each.parent for host in hosts for uuid, each in inventory.instances(host).items()}
    twice, spells_twice = stitch(parts, spell_parts, settings, parents)
    stretches = counted_once(twice)
    spells = spells_counted_once(spells_twice, stretches)
    made.keep_ledger(stretches, spells)
    return stretches, spells

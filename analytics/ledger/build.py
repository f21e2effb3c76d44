"""The ledger of a lake: built per host and day from the samples, kept in the lake, and built again where sources changed."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial

import polars as pl

from analytics.frames import digest, read_frame
from analytics.inventory import Inventory, load_inventory
from analytics.ledger import cache as keep
from analytics.ledger.cache import Kept
from analytics.ledger.day import PARTS, SOURCES, HostDay, build_day
from analytics.ledger.demand import Claims, load_claims
from analytics.ledger.lifetimes import Earlier, activity, by_day, lifetimes
from analytics.ledger.moved_gpus import counted_once, spells_counted_once
from analytics.ledger.rollups import TABLES, Rollups
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.stitch import stitch
from analytics.ledger.workers import build_days
from fallow import schema
from fallow.clock import DAY_MS, SystemClock, Window, floor_ms, parse_day_ms, utc_day
from fallow.errors import LakeError
from fallow.lake import Lake, LakeFile

METHOD = 7
"""Raised when the same samples would give another ledger, so that kept ledgers are built again."""


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


def load_recent(lake: Lake, settings: LedgerSettings, window: Window, first_ms: int) -> Ledger | None:
    """The ledger of a window with a start and of the time before it as it is kept; None where it has to be made anew.

    No file of other days is opened: only the days from `first_ms` up to the one after the window are compared with
    what they were made of. Spells are those of the window alone. Raises LakeError and its kinds.
    """
    since_ms, until_ms = window.since_ms or 0, window.until_ms
    kept = sorted(file for file in lake.require().all_files(schema.GPU_LIFETIME.name))
    manifest = keep.Manifest.read(kept)
    if manifest is None or manifest.method != _method(settings):
        return None
    newest_ms = max(parse_day_ms(kept[-1].date), SystemClock().now_ms()) + DAY_MS
    last_ms = newest_ms if until_ms is None else min(until_ms + DAY_MS, newest_ms)
    dates = {utc_day(day_ms) for day_ms in range(floor_ms(first_ms, DAY_MS), last_ms + 1, DAY_MS)}
    inventory = load_inventory(lake)
    claims = load_claims(lake, inventory)
    days = _host_days(inventory, claims, {table.name: lake.files(table.name, dates=dates) for table in SOURCES})
    made = {date: of for date, (of, _) in manifest.days.items() if date in dates}
    if not made or made != {date: _print_of_day(settings, hosts) for date, hosts in days.items()}:
        return None
    # days without samples have time too: what nobody observed, and the last row before them
    files = keep.files_of(lake, dates)
    if any(keep.sizes_of(files.get(date, {})) != manifest.days[date][1] for date in made):
        return None
    of_table = {
        table.name: [own[table.name] for _, own in sorted(files.items()) if table.name in own] for table in keep.DERIVED
    }
    of_table["spell"] = [file for file in of_table["spell"] if file.date >= utc_day(since_ms - DAY_MS)]
    stretches, spells = (keep.recent_table(table, of_table[table.name]) for table in (schema.LEDGER, schema.SPELL))
    if stretches is None or spells is None:
        return None
    rollups = Rollups({table.name: of_table[table.name] for table in TABLES}, claims=claims.rows)
    gpu_files = tuple(file for hosts in days.values() for day in hosts.values() for file in day.files["gpu"])
    return Ledger(stretches, spells, gpu_files, rollups, inventory, _earlier(kept, min(made), max(made)))


def _earlier(kept: Sequence[LakeFile], first: str, last: str) -> Earlier:
    before = [file for file in kept if file.date < first]
    read = partial(read_frame, table=schema.GPU_LIFETIME)
    return Earlier(
        rows=read(before[-1:]), newest=read(kept[-1:]) if kept[-1].date > last else None, files=tuple(before)
    )


def load_ledger(
    lake: Lake,
    settings: LedgerSettings,
    *,
    progress: Callable[[float], None] = lambda _: None,
    warn: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
    workers: int = 1,
) -> Ledger:
    """The whole lake's ledger; days of hosts whose samples, claims or settings changed are built again and kept in the lake.

    Where the lake cannot be written, the ledger is built all the same and a warning says so. `workers` processes build it, 0:
    as many as there are CPUs. Raises LakeError and its kinds for a lake that is missing, empty or broken.
    """
    inventory = load_inventory(lake)
    claims = load_claims(lake, inventory)
    gpu_files = lake.require_files("gpu")
    days = _host_days(
        inventory, claims, {"gpu": gpu_files} | {table.name: lake.files(table.name) for table in SOURCES[1:]}
    )
    kept = keep.kept_days(lake)
    made = _Made(lake, kept, settings, warn)
    stale = {date: hosts for date, hosts in days.items() if (made.stale(date, hosts))}
    wanted = [day for date, hosts in sorted(stale.items()) for day in made.changed(date, hosts)]
    done = 0
    for batch, frames in build_days(wanted, settings, workers):
        made.add(batch, frames, stale[batch[0].date])
        done += len(batch)
        progress(done / len(wanted))
    made.finish(stale, set(days))
    stretches, spells = made.kept_ledger() or _put_together(made, settings, days)
    made.keep_lifetimes(stretches)
    files = tuple(file for hosts in days.values() for day in hosts.values() for file in day.files["gpu"])
    return Ledger(stretches, spells, files, made.rollups(claims.rows), inventory)


def _put_together(
    made: _Made, settings: LedgerSettings, days: Mapping[str, Mapping[str, HostDay]]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The stretches and spells of all parts, kept where the parts are."""
    parts, spell_parts = (made.frame(table) for table in (schema.LEDGER_PART, schema.SPELL_PART))
    twice, spells_twice = stitch(parts, spell_parts, settings, _parents(days))
    stretches = counted_once(twice)
    spells = spells_counted_once(spells_twice, stretches)
    made.keep_ledger(stretches, spells)
    return stretches, spells


def _parents(days: Mapping[str, Mapping[str, HostDay]]) -> dict[tuple[str, str], str]:
    """Of every MIG instance, by host and UUID, the GPU that it is a part of."""
    return {
        (day.host, uuid): instance.parent
        for hosts in days.values()
        for day in hosts.values()
        for uuid, instance in day.instances.items()
    }


def _host_days(
    inventory: Inventory, claims: Claims, files: Mapping[str, Sequence[LakeFile]]
) -> dict[str, dict[str, HostDay]]:
    """Per date and host what its part is made of; only hosts and days with gpu rows."""
    found: dict[str, dict[str, dict[str, list[LakeFile]]]] = defaultdict(dict)
    for file in files["gpu"]:
        found[file.date].setdefault(file.host, {table.name: [] for table in SOURCES})["gpu"].append(file)
    for table in SOURCES[1:]:
        for file in files[table.name]:
            if file.host in found.get(file.date, ()):
                found[file.date][file.host][table.name].append(file)
    return {
        date: {host: _host_day(host, date, own, inventory, claims) for host, own in hosts.items()}
        for date, hosts in found.items()
    }


def _host_day(
    host: str, date: str, files: Mapping[str, Sequence[LakeFile]], inventory: Inventory, claims: Claims
) -> HostDay:
    placed, unplaced = claims.of(host, date)
    return HostDay(host, date, files, placed, unplaced, inventory.instances(host))


def _method(settings: LedgerSettings) -> str:
    return digest(METHOD, asdict(settings))


def _print(settings: LedgerSettings, day: HostDay) -> str:
    return digest(METHOD, asdict(settings), day.fingerprint())


def _print_of_day(settings: LedgerSettings, hosts: Mapping[str, HostDay]) -> str:
    return digest(sorted((host, _print(settings, day)) for host, day in hosts.items()))


class _Made:
    """The days as they are put together: kept ones as files, built ones as files once they are kept, else as frames."""

    def __init__(self, lake: Lake, kept: Kept, settings: LedgerSettings, warn: Callable[[str], None]) -> None:
        self._lake, self._kept, self._settings, self._warn = lake, kept, settings, warn
        self._warned = False
        self._building: dict[str, tuple[set[str], list[dict[str, pl.DataFrame]]]] = {}
        self._files: dict[str, list[LakeFile]] = {table.name: [] for table in PARTS}
        self._loose: dict[str, list[pl.DataFrame]] = {table.name: [] for table in PARTS}
        self._prints: dict[tuple[str, str], str] = {}

    def stale(self, date: str, hosts: Mapping[str, HostDay]) -> bool:
        """Whether a day has to be made again; a day that has not is taken as it is kept."""
        day = self._kept.days.get(date)
        prints = {host: self._print(each) for host, each in hosts.items()}
        if day is None or day.hosts != prints:
            return True
        for table, file in day.files.items():
            self._files[table].append(file)
        return False

    def changed(self, date: str, hosts: Mapping[str, HostDay]) -> list[HostDay]:
        """The hosts of a stale day that have to be built; the others' rows are taken from what is kept."""
        kept = self._kept.days[date].hosts if date in self._kept.days else {}
        return [day for host, day in sorted(hosts.items()) if kept.get(host) != self._print(day)]

    def add(self, batch: Sequence[HostDay], frames: dict[str, pl.DataFrame], hosts: Mapping[str, HostDay]) -> None:
        """Takes some built host-days of one date; the last ones put the date together and keep it."""
        date = batch[0].date
        built, parts = self._building.setdefault(date, (set(), []))
        built.update(day.host for day in batch)
        parts.append(frames)
        if len(built) == len(self.changed(date, hosts)):
            self._close(date, hosts)

    def finish(self, stale: Mapping[str, Mapping[str, HostDay]], dates: set[str]) -> None:
        """Puts together dates of which only hosts have gone, and forgets those without any samples."""
        for date, hosts in stale.items():
            if not self.changed(date, hosts):
                self._close(date, hosts)
        gone = {file.date for table in PARTS for file in self._kept.files[table.name]} - dates
        if gone:
            self._try(lambda: keep.forget_days(self._lake, gone, self._kept))

    def _close(self, date: str, hosts: Mapping[str, HostDay]) -> None:
        built, parts = self._building.pop(date, (set(), []))
        rows = {table.name: [frames[table.name] for frames in parts] for table in PARTS}
        staying = [host for host in hosts if host not in built]
        if date in self._kept.days and staying:
            for name, frame in self._staying(date, hosts, staying).items():
                rows[name].append(frame)
        frames = {name: pl.concat(each) for name, each in rows.items()}
        prints = {host: self._print(day) for host, day in hosts.items()}
        written: dict[str, LakeFile] = {}
        if self._try(lambda: written.update(keep.keep_day(self._lake, date, frames, prints, self._kept))):
            for name, file in written.items():
                self._files[name].append(file)
        else:
            for name, frame in frames.items():
                self._loose[name].append(frame)

    def _staying(self, date: str, hosts: Mapping[str, HostDay], staying: Sequence[str]) -> dict[str, pl.DataFrame]:
        """The rows of a date's hosts that need not be built; built all the same where another command has replaced them."""
        files = self._kept.days[date].files
        mine = pl.col("host").is_in(staying)
        frames = {
            table.name: read_frame([files[table.name]], table).filter(mine).select(table.names) for table in PARTS
        }
        if keep.still_those(self._kept.days[date]):
            return frames
        return build_day([hosts[host] for host in staying], self._settings)

    def kept_ledger(self) -> tuple[pl.DataFrame, pl.DataFrame] | None:
        """The stretches and spells as they are kept; None where they were made of anything but these parts."""
        stretches, spells = (
            keep.kept_table(table, self._kept, self._whole()) for table in (schema.LEDGER, schema.SPELL)
        )
        return None if stretches is None or spells is None else (stretches, spells)

    def keep_ledger(self, stretches: pl.DataFrame, spells: pl.DataFrame) -> None:
        """Writes the days of the ledger and of the spells that are not those that the lake holds."""
        if any(self._loose.values()):
            return  # what it would rest on could not be kept either
        for table, frame in ((schema.LEDGER, stretches), (schema.SPELL, spells)):
            self._try(partial(keep.keep_table, self._lake, table, frame, self._kept, self._whole()))

    def keep_lifetimes(self, stretches: pl.DataFrame) -> None:
        """Writes what is known of each GPU's life, and with it what all days were made from."""
        if any(self._loose.values()) or self._warned:
            return
        prints: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for (date, host), print_ in sorted(self._prints.items()):
            prints[date].append((host, print_))
        files = keep.files_of(self._lake, None)
        days = {date: (digest(each), keep.sizes_of(files.get(date, {}))) for date, each in prints.items()}
        manifest = keep.Manifest(_method(self._settings), days)
        if manifest == keep.Manifest.read(self._lake.all_files(schema.GPU_LIFETIME.name)):
            return
        self._try(lambda: keep.keep_lifetimes(self._lake, by_day(stretches), manifest))

    def _whole(self) -> str:
        return digest(METHOD, asdict(self._settings), sorted(self._prints.items()))

    def frame(self, table: schema.Table) -> pl.DataFrame:
        """All rows of a part table."""
        rows = read_frame(self._files[table.name], table).select(table.names)
        return pl.concat([rows, *self._loose[table.name]], how="vertical_relaxed")

    def rollups(self, claims: pl.DataFrame) -> Rollups:
        """The tables beside the ledger."""
        names = [table.name for table in TABLES]
        files = {name: self._files[name] for name in names}
        return Rollups(files, {name: self._loose[name] for name in names}, claims=claims)

    def _print(self, day: HostDay) -> str:
        key = (day.date, day.host)
        if key not in self._prints:
            self._prints[key] = _print(self._settings, day)
        return self._prints[key]

    def _try(self, write: Callable[[], None]) -> bool:
        """Whether it could be written; the first failure is said once."""
        try:
            if not self._warned:
                write()
                return True
        except LakeError as error:
            self._warn(f"fallow: the ledger is not kept: {error}")
            self._warned = True
        return False

"""The ledger of a lake: built per host and day from the samples, kept in the lake, and built again where sources changed."""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from analytics.frames import read_frame
from analytics.inventory import Inventory, load_inventory
from analytics.ledger import cache as keep
from analytics.ledger.day import PARTS, SOURCES, HostDay, build_day
from analytics.ledger.demand import Claims, load_claims
from analytics.ledger.moved_gpus import counted_once, spells_counted_once
from analytics.ledger.rollups import TABLES, Rollups
from analytics.ledger.stitch import stitch
from analytics.ledger.workers import build_days
from fallow import schema
from fallow.errors import LakeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from analytics.ledger.cache import Kept
    from analytics.ledger.settings import LedgerSettings
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
    days = _host_days(lake, inventory, claims)
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


def _host_days(lake: Lake, inventory: Inventory, claims: Claims) -> dict[str, dict[str, HostDay]]:
    """Per date and host what its part is made of; only hosts and days with gpu rows."""
    found: dict[str, dict[str, dict[str, list[LakeFile]]]] = defaultdict(dict)
    for file in lake.require_files("gpu"):
        found[file.date].setdefault(file.host, {table.name: [] for table in SOURCES})["gpu"].append(file)
    for table in SOURCES[1:]:
        for file in lake.files(table.name):
            if file.host in found.get(file.date, ()):
                found[file.date][file.host][table.name].append(file)
    return {
        date: {host: _host_day(host, date, files, inventory, claims) for host, files in hosts.items()}
        for date, hosts in found.items()
    }


def _host_day(
    host: str, date: str, files: Mapping[str, Sequence[LakeFile]], inventory: Inventory, claims: Claims
) -> HostDay:
    placed, unplaced = claims.of(host, date)
    return HostDay(host, date, files, placed, unplaced, inventory.instances(host))


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

    def _whole(self) -> str:
        return keep.digest(METHOD, asdict(self._settings), sorted(self._prints.items()))

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
            self._prints[key] = keep.digest(METHOD, asdict(self._settings), day.fingerprint())
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

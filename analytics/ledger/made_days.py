"""The days of a ledger as they are put together: kept ones as files, built ones as files once they are kept, else as frames.

Host-days are built one after the other, or in several processes where there is enough to do.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict

import polars as pl

from analytics.frames import digest, read_frame
from analytics.inventory import Inventory
from analytics.ledger import cache as keep
from analytics.ledger.cache import Kept, Manifest, files_of, keep_lifetimes, sizes_of
from analytics.ledger.day import PARTS, SOURCES, HostAllocations, HostDay, build_day
from analytics.ledger.lifetimes import by_day
from analytics.ledger.rollups import TABLES, Rollups
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.unused_files import discarding, hosts_to_read_again
from fallow import schema
from fallow.errors import FallowError, LakeError
from fallow.lake import Lake, LakeFile

Built = dict[str, pl.DataFrame]

WORTH_A_POOL_BYTES = 64 * 2**20
"""Of Parquet; below it, starting processes takes longer than the work."""

_BATCH_BYTES = 2 * 2**20
"""Of Parquet in one task, some 200,000 rows: enough that calls cost nothing, little enough for a processor's cache."""


def build_days(
    days: Sequence[HostDay], settings: LedgerSettings, workers: int
) -> Iterator[tuple[Sequence[HostDay], Built]]:
    """Host-days of one date with their parts, all in the order given, which is by date.

    Raises LakeError and its kinds, FallowError where a process died.
    """
    batches = list(_batches(days))
    count = min(workers or len(os.sched_getaffinity(0)), len(batches))
    if count < 2 or sum(map(_size, days)) < WORTH_A_POOL_BYTES:
        for batch in batches:
            yield batch, build_day(batch, settings)
        return
    try:
        with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
            yield from build_in(pool, batches, settings, ahead=2 * count)
    except BrokenProcessPool as error:
        raise FallowError(
            "a process that built the ledger was killed, probably for want of memory",
            "set ledger.workers to 1 (FALLOW_LEDGER_WORKERS=1) and run the command again",
        ) from error


def build_in(
    pool: Executor, batches: Sequence[Sequence[HostDay]], settings: LedgerSettings, *, ahead: int
) -> Iterator[tuple[Sequence[HostDay], Built]]:
    """The same through any executor; at most `ahead` tasks are under way, so that results never pile up in memory."""
    waiting: deque[tuple[Sequence[HostDay], Future[Built]]] = deque()
    for batch in batches:
        waiting.append((batch, pool.submit(build_day, batch, settings)))
        if len(waiting) >= ahead:
            done, future = waiting.popleft()
            yield done, future.result()
    for done, future in waiting:
        yield done, future.result()


def _batches(days: Sequence[HostDay]) -> Iterator[Sequence[HostDay]]:
    """Host-days of one date that follow each other, as many as make a batch."""
    batch: list[HostDay] = []
    size = 0
    for day in days:
        if batch and (day.date != batch[-1].date or size + _size(day) > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(day)
        size += _size(day)
    if batch:
        yield batch


def _size(day: HostDay) -> int:
    return sum(file.size_bytes for file in day.files["gpu"])


METHOD = 12
"""Raised when the same samples would give another ledger, so that kept ledgers are built again."""


def host_days(
    inventory: Inventory,
    claims: HostAllocations,
    files: Mapping[str, Sequence[LakeFile]],
    expired: Collection[str] = frozenset(),
) -> dict[str, dict[str, HostDay]]:
    """Per date and host what its part is made of; only hosts and days with gpu rows, and no host of `expired` dates."""
    found: dict[str, dict[str, dict[str, list[LakeFile]]]] = defaultdict(dict)
    for file in files["gpu"]:
        if file.date not in expired:
            found[file.date].setdefault(file.host, {table.name: [] for table in SOURCES})["gpu"].append(file)
    for table in SOURCES[1:]:
        for file in files[table.name]:
            if file.host in found.get(file.date, ()):
                found[file.date][file.host][table.name].append(file)
    return {
        date: {
            host: HostDay(host, date, own, *claims.of(host, date), inventory.instances(host))
            for host, own in hosts.items()
        }
        for date, hosts in found.items()
    }


def method_of(settings: LedgerSettings) -> str:
    return digest(METHOD, asdict(settings))


def _print(chosen: Mapping[str, object], day: HostDay) -> str:
    """`chosen` is what the settings say, as a dict."""
    return digest(METHOD, chosen, day.fingerprint())


def whole_of(settings: LedgerSettings, prints: Mapping[str, str]) -> str:
    """A digest of what a ledger is made from: by date that of its hosts' days."""
    return digest(method_of(settings), sorted(prints.items()))


def print_of_day(settings: LedgerSettings, hosts: Mapping[str, HostDay]) -> str:
    chosen = asdict(settings)
    return digest(sorted((host, _print(chosen, day)) for host, day in hosts.items()))


class MadeDays:
    """The days as they are put together: kept ones as files, built ones as files once they are kept, else as frames."""

    def __init__(
        self,
        lake: Lake,
        kept: Kept,
        settings: LedgerSettings,
        warn: Callable[[str], None],
        expired: Collection[str] = frozenset(),
    ) -> None:
        """`expired` are the dates whose parts stay as they are kept."""
        self._lake, self._kept, self._settings, self._warn, self._expired = lake, kept, settings, warn, expired
        self._warned = False
        self._damaged = discarding(lake.delete)
        self.lacks_files = False
        """Whether a built day lacks a file that may be readable the next time."""
        self._building: dict[str, tuple[set[str], list[dict[str, pl.DataFrame]]]] = {}
        self._files: dict[str, list[LakeFile]] = {table.name: [] for table in PARTS}
        self._loose: dict[str, list[pl.DataFrame]] = {table.name: [] for table in PARTS}
        self._prints: dict[tuple[str, str], str] = {}
        self._contents: dict[str, dict[str, str]] = {}

    @property
    def is_kept(self) -> bool:
        """Whether the lake holds all days; it does not where one could not be written."""
        return not self._warned and not any(self._loose.values())

    def build(self, days: Mapping[str, Mapping[str, HostDay]], workers: int, progress: Callable[[float], None]) -> None:
        """Makes all days, by date and host: what is kept is taken as it is, the rest is built."""
        for date in self._expired:
            self._take_expired(date)
        stale = {date: hosts for date, hosts in days.items() if self.stale(date, hosts)}
        wanted = [day for date, hosts in sorted(stale.items()) for day in self.changed(date, hosts)]
        done = 0
        for batch, frames in build_days(wanted, self._settings, workers):
            self.add(batch, frames, stale[batch[0].date])
            done += len(batch)
            progress(done / len(wanted))
        self.finish(stale, {*days, *self._expired})

    def _take_expired(self, date: str) -> None:
        """A day that nothing could make again, as it is kept."""
        if (day := self._kept.days.get(date)) is None:
            self._warn(
                f"fallow: the ledger lacks {date}: its samples have expired, and its kept files are missing or damaged; "
                "bring them back from a backup"
            )
            return
        for table, file in day.files.items():
            self._files[table].append(file)
        self._prints.update({(date, host): print_ for host, print_ in day.hosts.items()})

    def hosts_of_expired(self) -> set[str]:
        return {host for date in self._expired if date in self._kept.days for host in self._kept.days[date].hosts}

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
        self._mark(batch, frames["quality"])
        built, parts = self._building.setdefault(date, (set(), []))
        built.update(day.host for day in batch)
        parts.append(frames)
        if len(built) == len(self.changed(date, hosts)):
            self._close(date, hosts)

    def _mark(self, batch: Sequence[HostDay], quality: pl.DataFrame) -> None:
        """Gives days that lack a file that may be readable again a print that no other command finds."""
        again = hosts_to_read_again(quality)
        for day in batch:
            if day.host in again:
                self._prints[day.date, day.host] = secrets.token_hex(8)
                self.lacks_files = True

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
        if self._try(lambda: written.update(keep.keep_day(self._lake, date, frames, prints))):
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
            table.name: read_frame([files[table.name]], table, None, self._damaged).filter(mine).select(table.names)
            for table in PARTS
        }
        if keep.still_those(self._kept.days[date]):
            return frames
        return build_day([hosts[host] for host in staying], self._settings)

    def kept_ledger(self) -> tuple[pl.DataFrame, pl.DataFrame] | None:
        """The stretches and spells as they are kept; None where they were made of anything but these parts."""
        stretches, spells = (
            keep.kept_table(table, self._kept.files.get(table.name, ()), self._whole(), self._damaged)
            for table in (schema.LEDGER, schema.SPELL)
        )
        if stretches is None or spells is None:
            return None
        self._contents = {"ledger": stretches[1], "spell": spells[1]}
        return stretches[0], spells[0]

    def keep_ledger(self, stretches: pl.DataFrame, spells: pl.DataFrame) -> None:
        """Writes the days of the ledger and of the spells that are not those that the lake holds."""
        if any(self._loose.values()):
            return  # what it would rest on could not be kept either

        def write(table: schema.LakeTable, frame: pl.DataFrame) -> None:
            files = self._kept.files.get(table.name, ())
            self._contents[table.name] = keep.keep_table(self._lake, table, frame, files, self._whole())

        self._try(lambda: write(schema.LEDGER, stretches))
        self._try(lambda: write(schema.SPELL, spells))

    def keep_lifetimes(self, stretches: pl.DataFrame) -> None:
        """Writes what is known of each GPU's life, and with it what all days were made from."""
        if not self.is_kept:
            return
        files = files_of(self._lake, None)
        days = {date: (print_, sizes_of(files.get(date, {}))) for date, print_ in self.prints().items()}
        manifest = Manifest(method_of(self._settings), days, self._contents)
        if manifest == Manifest.read(self._lake.all_files(schema.GPU_LIFETIME.name)):
            return
        self._try(lambda: keep_lifetimes(self._lake, by_day(stretches), manifest))

    def prints(self) -> dict[str, str]:
        """By date a digest of what its hosts' days are made of, as `print_of_day` gives it."""
        of_date: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for (date, host), print_ in sorted(self._prints.items()):
            of_date[date].append((host, print_))
        return {date: digest(each) for date, each in of_date.items()}

    def _whole(self) -> str:
        return whole_of(self._settings, self.prints())

    def frame(self, table: schema.LakeTable) -> pl.DataFrame:
        """All rows of a part table."""
        rows = read_frame(self._files[table.name], table, None, self._damaged).select(table.names)
        return pl.concat([rows, *self._loose[table.name]], how="vertical_relaxed")

    def rollups(self, claims: pl.DataFrame) -> Rollups:
        """The tables beside the ledger."""
        names = [table.name for table in TABLES]
        files = {name: self._files[name] for name in names}
        return Rollups(files, {name: self._loose[name] for name in names}, claims=claims, discard=self._lake.delete)

    def _print(self, day: HostDay) -> str:
        key = (day.date, day.host)
        if key not in self._prints:
            self._prints[key] = _print(asdict(self._settings), day)
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

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
from itertools import groupby

import polars as pl

from analytics.decode import read_days
from analytics.frames import digest
from analytics.inventory import Inventory
from analytics.ledger import cache as keep
from analytics.ledger.cache import KeptDay, Manifest, keep_tables, sizes_of
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
    """Return a digest of what the same samples are made into a ledger by."""
    return digest(METHOD, asdict(settings))


def prints_of(hosts: Mapping[str, HostDay], settings: LedgerSettings) -> dict[str, str]:
    """Return by host a digest of all that its day is made from."""
    chosen = asdict(settings)
    return {host: digest(METHOD, chosen, day.fingerprint()) for host, day in hosts.items()}


def print_of_day(prints: Mapping[str, str]) -> str:
    """Return one digest of those of a day's hosts."""
    return digest(sorted(prints.items()))


class MadeDays:
    """The days as they are put together: kept ones as files, built ones as files once they are kept, else as frames."""

    def __init__(
        self,
        lake: Lake,
        settings: LedgerSettings,
        warn: Callable[[str], None],
        *,
        dates: Collection[str] | None = None,
        expired: Collection[str] = frozenset(),
    ) -> None:
        """`dates` are the days in question, all by default; of those in `expired` the parts stay as they are kept."""
        self._lake, self._settings, self._warn, self._expired = lake, settings, warn, expired
        self._kept = keep.kept_days(lake, dates)
        self._warned = False
        self._damaged = discarding(lake.delete)
        self.lacks_files = False
        """Whether a built day lacks a file that may be readable the next time."""
        self._files: dict[str, Mapping[str, LakeFile]] = {}
        self._loose: list[Built] = []
        self._prints: dict[str, dict[str, str]] = {}

    @property
    def manifest(self) -> Manifest:
        """What the days are made from; nothing of the tables that they give together."""
        prints = {date: print_of_day(each) for date, each in self._prints.items()}
        days = {date: (of, sizes_of(self._files.get(date, {}))) for date, of in prints.items()}
        return Manifest(method_of(self._settings), days)

    def build(self, days: Mapping[str, Mapping[str, HostDay]], workers: int, progress: Callable[[float], None]) -> None:
        """Make all days, by date and host: what is kept is taken as it is, the rest is built."""
        for date in self._expired:
            self._take_expired(date)
        stale: dict[str, list[HostDay]] = {}
        for date, hosts in sorted(days.items()):
            prints = self._prints[date] = prints_of(hosts, self._settings)
            kept = self._kept.get(date)
            if kept is not None and kept.hosts == prints:
                self._files[date] = kept.files
            else:
                before = {} if kept is None else kept.hosts
                stale[date] = [day for host, day in sorted(hosts.items()) if before.get(host) != prints[host]]
        wanted = [day for own in stale.values() for day in own]
        done = 0
        for date, batches in groupby(build_days(wanted, self._settings, workers), lambda each: each[0][0].date):
            frames = []
            for batch, built in batches:
                self._mark(batch, built["quality"])
                frames.append(built)
                done += len(batch)
                progress(done / len(wanted))
            self._close(date, days[date], {day.host for day in stale.pop(date)}, frames)
        for date in stale:  # of these days only hosts have gone
            self._close(date, days[date], set(), [])
        if gone := self._kept.keys() - days.keys() - set(self._expired):
            self._try(lambda: keep.forget_days(self._lake, gone))

    def _take_expired(self, date: str) -> None:
        """Take a day that nothing could make again as it is kept."""
        if (day := self._kept.get(date)) is None:
            self._warn(
                f"fallow: the ledger lacks {date}: its samples have expired, and its kept files are missing or damaged; "
                "bring them back from a backup"
            )
            return
        self._files[date] = day.files
        self._prints[date] = dict(day.hosts)

    def _mark(self, batch: Sequence[HostDay], quality: pl.DataFrame) -> None:
        """Give days that lack a file that may be readable again a print that no other command finds."""
        again = hosts_to_read_again(quality)
        for day in batch:
            if day.host in again:
                self._prints[day.date][day.host] = secrets.token_hex(8)
                self.lacks_files = True

    def _close(self, date: str, hosts: Mapping[str, HostDay], built: Collection[str], frames: list[Built]) -> None:
        """Put a date together and keep it: the hosts that were built, and the others' rows as they are kept."""
        kept, staying = self._kept.get(date), [day for host, day in hosts.items() if host not in built]
        if kept is not None and staying:
            frames.append(self._staying(kept, staying))
        rows = {table.name: pl.concat([each[table.name] for each in frames]) for table in PARTS}

        def write() -> None:
            self._files[date] = keep.keep_day(self._lake, date, rows, self._prints[date])

        if not self._try(write):
            self._loose.append(rows)

    def _staying(self, kept: KeptDay, staying: Sequence[HostDay]) -> Built:
        """Return the kept rows of hosts that need not be built; built all the same where another command has replaced them."""
        mine = pl.col("host").is_in([day.host for day in staying])
        frames = {
            table.name: read_days([kept.files[table.name]], table, table.names, self._damaged).filter(mine)
            for table in PARTS
        }
        return frames if keep.hosts_of(kept.files) == kept.hosts else build_day(staying, self._settings)

    def keep(self, stretches: pl.DataFrame, spells: pl.DataFrame) -> None:
        """Keep the tables that all days together give; not where a day could not be kept."""
        if not self._warned and not self._loose:
            rows = {"ledger": stretches, "spell": spells, "gpu_lifetime": by_day(stretches)}
            self._try(lambda: keep_tables(self._lake, rows, self.manifest))

    def parts(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return all rows of `ledger_part` and of `spell_part`."""
        return self._frame(schema.LEDGER_PART), self._frame(schema.SPELL_PART)

    def _frame(self, table: schema.LakeTable) -> pl.DataFrame:
        files = [files[table.name] for _, files in sorted(self._files.items())]
        rows = read_days(files, table, table.names, self._damaged)
        return pl.concat([rows, *(each[table.name] for each in self._loose)], how="vertical_relaxed")

    def rollups(self, claims: pl.DataFrame) -> Rollups:
        """Return the tables beside the ledger."""
        loose = {table.name: [each[table.name] for each in self._loose] for table in TABLES}
        return Rollups(rollup_files(self._files), loose, claims=claims, discard=self._lake.delete)

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


def rollup_files(files: Mapping[str, Mapping[str, LakeFile]]) -> dict[str, list[LakeFile]]:
    """Return the files of the tables beside the ledger, by table, from those by date and table."""
    dated = [own for _, own in sorted(files.items())]
    return {table.name: [own[table.name] for own in dated if table.name in own] for table in TABLES}

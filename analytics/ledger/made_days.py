"""The days of a ledger before they are joined: as files where the lake keeps them, else as frames.

Host-days are built one by one, in several processes where there is enough to do, or by a scheduler's workers.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from itertools import groupby

import polars as pl

from analytics.decode import read_days
from analytics.frames import digest, empty
from analytics.inventory import Inventory
from analytics.ledger import cache as keep
from analytics.ledger.cache import HostShare, Manifest, keep_tables, shares_of_hosts, sizes_of, take_turn
from analytics.ledger.day import SOURCES, HostAllocations, HostDay, build_day
from analytics.ledger.day_files import Built, DayTask, WorkOrder, WrittenDay, joined_rows, lake_id_of, with_incomplete
from analytics.ledger.lifetimes import by_day
from analytics.ledger.resting_draws import resting_draws
from analytics.ledger.rollups import TABLES, Rollups
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.unused_files import discarding
from analytics.ledger.workers import Workers, run_tasks
from fallow import __version__, schema
from fallow.errors import FallowError, LakeError
from fallow.lake import Lake, LakeFile

WORTH_A_POOL_BYTES = 64 * 2**20
"""Bytes of Parquet; below this, starting processes takes longer than the work."""

_STITCHED_BYTES, _MOST_READINGS = 12 * 2**20, 8
"""Bytes of Parquet of `ledger_part` that are joined at a time: 300,000 rows, which take half a GiB. Each of the shares
of hosts is read from the files of all days, so there are at most this many for it."""

_FILES_AT_ONCE = 16
"""Files of days that are read together where only the rows of a share stay."""

_BATCH_BYTES = 3 * 2**20
"""Bytes of Parquet in one task, some 300,000 rows: calls cost nothing, and they fit into a processor's cache."""


def build_days(
    days: Sequence[HostDay], settings: LedgerSettings, workers: int
) -> Iterator[tuple[Sequence[HostDay], Built]]:
    """Return host-days of one date with their parts, all in the order given, which is by date.

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
            "a process that built the ledger was killed, probably because memory ran out",
            "set ledger.workers to 1 (FALLOW_LEDGER_WORKERS=1) and run the command again",
        ) from error


def build_in(
    pool: Executor, batches: Sequence[Sequence[HostDay]], settings: LedgerSettings, *, ahead: int
) -> Iterator[tuple[Sequence[HostDay], Built]]:
    """Return the same through any executor; at most `ahead` tasks are under way, so results never pile up in memory."""
    waiting: deque[tuple[Sequence[HostDay], Future[Built]]] = deque()
    for batch in batches:
        waiting.append((batch, pool.submit(build_day, batch, settings)))
        if len(waiting) >= ahead:
            done, future = waiting.popleft()
            yield done, future.result()
    for done, future in waiting:
        yield done, future.result()


def _batches(days: Sequence[HostDay]) -> Iterator[Sequence[HostDay]]:
    """Return batches of adjacent host-days of one date, each of the size of one task."""
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


METHOD = 19
"""Raised when the same samples would give another ledger, so that kept ledgers are built again."""


def host_days(
    inventory: Inventory,
    allocations: HostAllocations,
    files: Mapping[str, Sequence[LakeFile]],
    expired: Collection[str] = frozenset(),
) -> dict[str, dict[str, HostDay]]:
    """Return each part's sources by date and host, for hosts and days with gpu rows, without `expired` dates."""
    found: dict[str, dict[str, dict[str, list[LakeFile]]]] = defaultdict(dict)
    for file in files["gpu"]:
        if file.date not in expired:
            found[file.date].setdefault(file.host, {table.name: [] for table in SOURCES})["gpu"].append(file)
    for table in SOURCES[1:]:
        for file in files[table.name]:
            if file.host in found.get(file.date, ()):
                found[file.date][file.host][table.name].append(file)
    draws = resting_draws(inventory)
    allocated = allocations.on_days(found)
    return {
        date: {
            host: HostDay(host, date, own, *allocated.of(host, date), inventory.instances(host), draws.get(host, {}))
            for host, own in hosts.items()
        }
        for date, hosts in found.items()
    }


def method_of(settings: LedgerSettings) -> str:
    """Return a digest of the method and settings that make a ledger from samples."""
    return digest(METHOD, asdict(settings))


def prints_of(hosts: Mapping[str, HostDay], settings: LedgerSettings) -> dict[str, str]:
    """Return, by host, a digest of all sources of its day."""
    chosen = asdict(settings)
    return {host: digest(METHOD, chosen, day.fingerprint()) for host, day in hosts.items()}


def print_of_day(prints: Mapping[str, str]) -> str:
    """Return one digest of the digests of a day's hosts."""
    return digest(sorted(prints.items()))


def make_day(order: WorkOrder) -> WrittenDay:
    """Write the files of a task, on a worker. Return them.

    Raises FallowError where the worker has another fallow, and LakeError where it has another lake or cannot use it.
    """
    task, here = order.task, socket.gethostname()
    if (mine := (__version__, METHOD)) != order.maker:
        versions = [f"fallow {version} (method {method})" for version, method in (mine, order.maker)]
        raise FallowError(
            f"the worker on {here} has {versions[0]}, and this command {versions[1]}",
            "install the same version of fallow[dask] for this command and every worker",
        )
    lake = Lake.at(order.location)
    try:
        found = lake_id_of(lake.require())
    except LakeError as error:
        raise LakeError(
            f"the worker on {here} does not reach the lake: {error.message}",
            "every worker needs the lake under the command's address, with rights to write; for a store also its"
            " credentials",
        ) from error
    if found != order.lake_id:
        raise LakeError(
            f"the worker on {here} has another lake at {order.location}", "mount the same lake there on every worker"
        )
    built = [build_day(batch, order.settings) for batch in _batches(task.built)]
    rows = joined_rows(lake, task, built, order.settings)
    prints = with_incomplete(task.prints, rows["quality"])
    return WrittenDay(keep.keep_day(lake, task.date, task.share, rows, prints), prints)


_ALL = HostShare(0, 1)


class MadeDays:
    """The days before they are joined: kept days as files, built days as files once they are kept, else as frames."""

    def __init__(
        self,
        lake: Lake,
        settings: LedgerSettings,
        warn: Callable[[str], None],
        *,
        dates: Collection[str] | None = None,
        expired: Collection[str] = frozenset(),
    ) -> None:
        """`dates` are the days in question, all by default; the parts of those in `expired` stay as they are kept."""
        self._lake, self._settings, self._warn, self._expired = lake, settings, warn, expired
        self._kept = keep.kept_days(lake, dates)
        self._warned = False
        self._damaged = discarding(lake.delete)
        self.lacks_files = False
        """True where a built day lacks a file that may be readable the next time."""
        self._files: dict[str, dict[HostShare, Mapping[str, LakeFile]]] = defaultdict(dict)
        self._loose: list[Built] = []
        self._prints: dict[str, dict[str, str]] = {}

    @property
    def manifest(self) -> Manifest:
        """Return the sources of the days, without the tables over all days."""
        prints = {date: print_of_day(each) for date, each in self._prints.items()}
        files = self.files
        days = {date: (of, sizes_of(files.get(date, {}))) for date, of in prints.items()}
        return Manifest(method_of(self._settings), days)

    @property
    def files(self) -> dict[str, dict[str, list[LakeFile]]]:
        """Return the kept files by date and table."""
        return {
            date: {name: [files[name] for _, files in sorted(shares.items())] for name in next(iter(shares.values()))}
            for date, shares in sorted(self._files.items())
        }

    def build(
        self, days: Mapping[str, Mapping[str, HostDay]], workers: Workers, progress: Callable[[float], None]
    ) -> None:
        """Make all days, by date and host: kept parts are used as they are, the other parts are built."""
        for date in self._expired:
            self._take_expired(date)
        tasks: list[DayTask] = []
        for date, hosts in sorted(days.items()):
            self._prints[date] = prints_of(hosts, self._settings)
            tasks += self._tasks_of(date, hosts)
        finished = self._written_by(workers, tasks) if workers.scheduler else self._built_here(workers.count, tasks)
        count, done = sum(len(task.built) for task in tasks), 0
        for built in finished:
            done += built
            progress(done / count)
        gone = {
            date: self._files.get(date, {})
            for date, kept in self._kept.items()
            if kept.keys() - self._files.get(date, {}).keys() and (date in self._files or date not in self._expired)
        }
        if gone:
            self._is_written(lambda: keep.forget_days(self._lake, gone))

    def _tasks_of(self, date: str, hosts: Mapping[str, HostDay]) -> Iterator[DayTask]:
        """Yield the shares of a day that have changed; the files of the others stay."""
        for share in shares_of_hosts(len(hosts)):
            own = [day for host, day in sorted(hosts.items()) if share.holds(host)]
            prints = {day.host: self._prints[date][day.host] for day in own}
            kept = self._kept.get(date, {}).get(share)
            if kept is not None and kept.hosts == prints:
                self._files[date][share] = kept.files
                continue
            before = {} if kept is None else kept.hosts
            stale = [day for day in own if before.get(day.host) != prints[day.host]]
            staying = [day for day in own if before.get(day.host) == prints[day.host]]
            yield DayTask(date, share, stale, staying, kept, prints)

    def _written_by(self, workers: Workers, tasks: Sequence[DayTask]) -> Iterator[int]:
        """Let a scheduler's workers make the files. Yield how many host-days each task has built."""
        if not tasks:
            return
        take_turn(self._lake)
        common = (self._settings, self._lake.root, lake_id_of(self._lake), (__version__, METHOD))
        for order, written in run_tasks(workers.scheduler, make_day, [WorkOrder(task, *common) for task in tasks]):
            task = order.task
            self._files[task.date][task.share] = written.files
            self._note_prints(task, written.prints)
            yield len(task.built)

    def _built_here(self, count: int, tasks: Sequence[DayTask]) -> Iterator[int]:
        """Build the days on this machine, and keep them. Yield how many host-days each batch had."""
        wanted = [day for task in tasks for day in task.built]
        of_date = {date: list(own) for date, own in groupby(tasks, lambda task: task.date)}
        for date, batches in groupby(build_days(wanted, self._settings, count), lambda each: each[0][0].date):
            frames = []
            for batch, built in batches:
                frames.append(built)
                yield len(batch)
            for task in of_date.pop(date):
                self._join_and_keep(task, frames)
        for task in (task for own in of_date.values() for task in own):  # hosts have gone, which is the only change
            self._join_and_keep(task, [])

    def _take_expired(self, date: str) -> None:
        """Use the kept parts of an expired day, which cannot be built again."""
        kept = {share: day for share, day in self._kept.get(date, {}).items() if day is not None}
        totals = sorted({share.total for share in kept})
        total = next(
            (total for total in totals if all(HostShare(number, total) in kept for number in range(total))), None
        )
        if total is None:
            self._warn(
                f"fallow: the ledger lacks {date}: its samples have expired, and its kept files are missing or damaged;"
                " restore them from a backup"
            )
            return
        shares = {share: day for share, day in kept.items() if share.total == total}
        self._files[date] = {share: day.files for share, day in shares.items()}
        self._prints[date] = {host: of for day in shares.values() for host, of in day.hosts.items()}

    def _note_prints(self, task: DayTask, prints: Mapping[str, str]) -> None:
        self.lacks_files = self.lacks_files or prints != task.prints
        self._prints[task.date].update(prints)

    def _join_and_keep(self, task: DayTask, frames: Sequence[Built]) -> None:
        """Join a day's share and keep it: the hosts that were built, and the kept rows of the others."""
        rows = joined_rows(self._lake, task, frames, self._settings)
        prints = with_incomplete(task.prints, rows["quality"])
        self._note_prints(task, prints)

        def write() -> None:
            self._files[task.date][task.share] = keep.keep_day(self._lake, task.date, task.share, rows, prints)

        if not self._is_written(write):
            self._loose.append(rows)

    @property
    def is_kept(self) -> bool:
        """True where the lake keeps every day so far."""
        return not self._warned and not self._loose

    def keep(self, segments: pl.DataFrame, idle_intervals: pl.DataFrame) -> None:
        """Keep the tables over all days, unless a day could not be kept."""
        if self.is_kept:
            rows = {"ledger": segments, "idle_interval": idle_intervals, "gpu_lifetime": by_day(segments)}
            self._is_written(lambda: keep_tables(self._lake, rows, self.manifest))

    def parts_by_share(self, dates: Collection[str] | None = None) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
        """Yield the rows of `ledger_part` and `idle_interval_part` of all days or some, by share of the hosts."""
        wanted = self._files if dates is None else self._files.keys() & set(dates)
        stored = [(share, files) for date in wanted for share, files in self._files[date].items()]
        size = sum(files[schema.LEDGER_PART.name].size_bytes for _, files in stored)
        total = max((share.total for share, _ in stored), default=1)
        while size > total * _STITCHED_BYTES and total < _MOST_READINGS:
            total *= 2
        for number in range(total):
            share = HostShare(number, total)
            parts = (
                self.rows(table, wanted, table.names, share)
                for table in (schema.LEDGER_PART, schema.IDLE_INTERVAL_PART)
            )
            yield next(parts), next(parts)

    def rows(
        self, table: schema.LakeTable, dates: Collection[str], columns: Sequence[str], share: HostShare = _ALL
    ) -> pl.DataFrame:
        """Return columns of a table for a share's hosts: of some days, and of all that could not be kept."""
        wanted = set(dates)
        stored = [each for date, own in sorted(self._files.items()) if date in wanted for each in sorted(own.items())]
        files = [files[table.name] for own, files in stored if share.overlaps(own)]
        loose = (each[table.name].select(columns) for each in self._loose)
        if share == _ALL:
            return pl.concat([read_days(files, table, columns, self._damaged), *loose], how="vertical_relaxed")
        # the files have rows of other shares, too: read together they would be as large as the ledger
        batches = (files[start : start + _FILES_AT_ONCE] for start in range(0, len(files), _FILES_AT_ONCE))
        read = (read_days(batch, table, columns, self._damaged) for batch in batches)
        own = [
            each.filter(pl.col("host").is_in(list(filter(share.holds, each["host"].unique()))))
            for each in (*read, *loose)
        ]
        return pl.concat([empty(table).select(columns), *own], how="vertical_relaxed")

    def rollups(self, allocations: pl.DataFrame) -> Rollups:
        """Return the tables beside the ledger."""
        loose = {table.name: [each[table.name] for each in self._loose] for table in TABLES}
        return Rollups(rollup_files(self.files), loose, allocations=allocations, discard=self._lake.delete)

    def _is_written(self, write: Callable[[], None]) -> bool:
        """Return whether the write succeeded; only the first failure is reported."""
        try:
            if not self._warned:
                write()
                return True
        except LakeError as error:
            self._warn(f"fallow: the ledger is not kept: {error}")
            self._warned = True
        return False


def rollup_files(files: Mapping[str, Mapping[str, Sequence[LakeFile]]]) -> dict[str, list[LakeFile]]:
    """Return the files of the tables beside the ledger, by table, from those by date and table."""
    dated = [own for _, own in sorted(files.items())]
    return {table.name: [file for own in dated for file in own.get(table.name, ())] for table in TABLES}

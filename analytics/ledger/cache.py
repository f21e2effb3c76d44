"""The ledger and its sister tables as the lake keeps them: per UTC day one file of each table over all hosts.

A large fleet's day has several files of each table, each over a share of the hosts. Their metadata state a fingerprint
per host of all its sources, so a share of which only some tables were written is built again. The manifest states, for
every day, its sources and its rows in the tables over all days, so a command compares only the days that it reads.

Days whose samples were deleted on purpose can never be built again. `.expired/date=D.json` in the lake records such a
day, and is written before the first of its files is deleted. Rows that a host publishes later for that day do not
count.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

import polars as pl

from analytics.decode import read_days
from analytics.frames import arrow, rows_digest
from analytics.ledger.day import PARTS
from analytics.ledger.stitch import on_several_hosts, put_in_order
from analytics.ledger.unused_files import discarding
from fallow import parquet, schema
from fallow.clock import DAY_MS, utc_day
from fallow.errors import LakeError
from fallow.lake import ALL_HOSTS, Lake, LakeFile, SameLake
from fallow.leases import DEFAULT_TIMES, leased
from fallow.output import say

FOLDER = ".expired"
"""Prefix of the records in the lake; no table has this name."""

_KEY = re.compile(rf"{re.escape(FOLDER)}/date=(\d{{4}}-\d\d-\d\d)\.json", re.ASCII)


def expired_days(lake: Lake) -> frozenset[str]:
    """Return the dates whose samples have expired. Raises LakeError where the lake cannot be listed."""
    keys = (_KEY.fullmatch(stored.key) for stored in lake.store.list(FOLDER) if not stored.fault)
    return frozenset(match[1] for match in keys if match is not None)


def record_expiry(lake: Lake, date: str, facts: Mapping[str, object]) -> None:
    """Record, with `facts` for human readers, that samples of a day are deleted. Raises LakeError if it cannot."""
    key, data = f"{FOLDER}/date={date}.json", (json.dumps(facts, indent=2, sort_keys=True) + "\n").encode()
    lake.store.put(key, data)
    lake.store.confirm(key, data)


HOSTS_A_FILE = 128
"""Most hosts, on average, whose rows of a day share a file: 1,024 GPUs, whose histograms take 160 MB of memory."""


class HostShare(NamedTuple):
    """A share of the hosts of a day: those whose name has this number when names are divided among `total` shares."""

    number: int
    total: int
    """A power of two, so that the shares of days with other totals divide evenly."""

    @classmethod
    def of_file(cls, seq: int) -> HostShare:
        """Return the share whose rows a file with this sequence number has."""
        total = 1 << ((seq + 1).bit_length() - 1)
        return cls(seq + 1 - total, total)

    @property
    def seq(self) -> int:
        """Return the sequence number of the share's files. No other share has it, whatever its total."""
        return self.total - 1 + self.number

    def holds(self, host: str) -> bool:
        """Return whether a host belongs to the share: always the same, whatever other hosts there are."""
        return zlib.crc32(host.encode()) % self.total == self.number

    def overlaps(self, other: HostShare) -> bool:
        """Return whether both may have the same host."""
        total = min(self.total, other.total)
        return self.number % total == other.number % total


def shares_of_hosts(count: int) -> list[HostShare]:
    """Return the shares of a day, by its number of hosts."""
    shares = 1 << (max(count - 1, 0) // HOSTS_A_FILE).bit_length()
    return [HostShare(number, shares) for number in range(shares)]


@dataclass(frozen=True)
class KeptDay:
    """The files of PARTS of one day and share by table, and the fingerprint of each host that they hold."""

    files: Mapping[str, LakeFile]
    hosts: Mapping[str, str]


def files_of(lake: Lake, dates: Collection[str] | None) -> dict[str, dict[str, list[LakeFile]]]:
    """Return the files over all hosts of PARTS, by date and table, in the order of the shares."""
    found: dict[str, dict[str, list[LakeFile]]] = {}
    for table in PARTS:
        for file in lake.all_files(table.name, dates=dates):
            if file.host == ALL_HOSTS:
                found.setdefault(file.date, {}).setdefault(table.name, []).append(file)
    return found


def kept_days(lake: Lake, dates: Collection[str] | None = None) -> dict[str, dict[HostShare, KeptDay | None]]:
    """Return the days, or some of them, by share; None for a share with parts missing, damaged or of two builds."""
    kept: dict[str, dict[HostShare, KeptDay | None]] = {}
    for date, tables in files_of(lake, dates).items():
        kept[date] = {}
        by_seq: dict[int, dict[str, LakeFile]] = {}
        for name, files in tables.items():
            for file in files:
                by_seq.setdefault(file.first_seq, {})[name] = file
        for seq, own in by_seq.items():
            hosts = hosts_of(own) if len(own) == len(PARTS) else None
            kept[date][HostShare.of_file(seq)] = None if hosts is None else KeptDay(own, hosts)
    return kept


def hosts_of(files: Mapping[str, LakeFile]) -> dict[str, str] | None:
    """Return the fingerprint of each host in the files of a day and share; None unless all files state the same."""
    try:
        stated = {parquet.metadata(file)["hosts"] for file in files.values()}
        (hosts,) = map(json.loads, stated)
    except (LakeError, KeyError, ValueError):
        return None  # half-written or from a newer version: derived data is built again
    return hosts if isinstance(hosts, dict) else None


def keep_day(
    lake: Lake, date: str, share: HostShare, frames: Mapping[str, pl.DataFrame], hosts: Mapping[str, str]
) -> dict[str, LakeFile]:
    """Write the parts of one day and share. Return the files. Raises LakeError where they cannot be written."""
    facts = {"hosts": json.dumps(hosts, sort_keys=True)}
    written = {}
    for table in PARTS:
        file = LakeFile(table.name, date, ALL_HOSTS, share.seq, share.seq)
        written[table.name] = lake.put(file, parquet.encode(table, arrow(frames[table.name], table), facts))
    return written


def forget_days(lake: Lake, keeping: Mapping[str, Collection[HostShare]]) -> None:
    """Remove the parts of days without samples or with other shares. `keeping` has the shares that stay, by date."""
    for date, files in files_of(lake, keeping).items():
        for file in (file for own in files.values() for file in own):
            if HostShare.of_file(file.first_seq) not in keeping[date]:
                lake.delete(file)


OVER_DAYS = (schema.LEDGER, schema.IDLE_INTERVAL, schema.GPU_LIFETIME)
"""The tables over all days together, in the order in which they are written."""


def facts_of(file: LakeFile) -> dict[str, str]:
    """Return the metadata of a kept file; empty for a file that cannot be read."""
    try:
        return parquet.metadata(file)
    except LakeError:
        return {}


@dataclass(frozen=True)
class Manifest:
    """The sources of every day of the ledger, from the newest file of `gpu_lifetime`, which is written last.

    A command uses only those files of OVER_DAYS whose rows the manifest names.
    """

    method: str
    """A digest of the method and the settings."""
    days: Mapping[str, tuple[str, Mapping[str, Sequence[int]]]]
    """By date a digest of its hosts' fingerprints, and the sizes of its files of PARTS."""
    contents: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: {table.name: {} for table in OVER_DAYS})
    """By table of OVER_DAYS and date a digest of the rows."""

    @classmethod
    def read(cls, lifetimes: Sequence[LakeFile]) -> Manifest | None:
        """Return the manifest of the lake; None where no manifest can be read."""
        try:
            facts = parquet.metadata(lifetimes[-1])
            days = json.loads(facts["days"])
            contents = json.loads(facts["contents"])
            return cls(
                facts["method"],
                {date: (of, sizes) for date, (of, sizes) in days.items()},
                {table.name: dict(contents[table.name]) for table in OVER_DAYS},
            )
        except (LakeError, LookupError, ValueError, AttributeError, TypeError):
            return None

    @cached_property
    def prints(self) -> dict[str, str]:
        """Return, by date, the digest of its hosts' fingerprints."""
        return {date: of for date, (of, _) in self.days.items()}

    def first_changed(self, prints: Mapping[str, str], dates: Collection[str] | None = None) -> str | None:
        """Return the first date whose sources are not these, of all dates or some; None where all are the same."""
        before = self.prints if dates is None else {date: self.prints[date] for date in dates if date in self.days}
        return min(
            (date for date in before.keys() | prints.keys() if before.get(date) != prints.get(date)), default=None
        )

    def facts(self) -> dict[str, str]:
        """Return the manifest as the metadata of a file."""
        parts = {"days": self.days, "contents": self.contents}
        return {"method": self.method} | {name: json.dumps(part, sort_keys=True) for name, part in parts.items()}

    def names(self, table: schema.LakeTable, files: Sequence[LakeFile], dates: Collection[str] | None = None) -> bool:
        """Return whether these files of a table of OVER_DAYS, of all days or some, have the manifest's rows."""
        named = self.contents[table.name]
        expected = named if dates is None else {date: named[date] for date in dates if date in named}
        found = {file.date: facts_of(file).get("content", "") for file in files}
        return len(found) == len(files) and found == expected

    def rows(self, lake: Lake, table: schema.LakeTable, dates: Collection[str] | None = None) -> pl.DataFrame | None:
        """Return the rows of a table of OVER_DAYS; None where they differ from the manifest, or a file is unreadable.

        A file's metadata are compared after its rows are read, because another command may replace it before.
        """
        files = lake.all_files(table.name, dates=dates)
        try:
            rows = read_days(files, table, table.names, discarding(lake.delete))
        except LakeError:
            return None
        return rows if self.names(table, files, dates) else None

    def ledger(
        self, lake: Lake, dates: Collection[str] | None = None, idle_interval_dates: Collection[str] | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame] | None:
        """Return segments and idle intervals as `stitch` gives them, of all days or some.

        None where the lake has other rows than the manifest names, and where a GPU was on several hosts: its rows are
        cut to count once, so their whole length is unknown.
        """
        segments, idle_intervals = (
            self.rows(lake, schema.LEDGER, dates),
            self.rows(lake, schema.IDLE_INTERVAL, idle_interval_dates),
        )
        if segments is None or idle_intervals is None or on_several_hosts(segments) or on_several_hosts(idle_intervals):
            return None
        return _with_ends(segments, "segment"), _with_ends(idle_intervals, "idle_interval")


def _with_ends(rows: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return the rows in order, with the ends of whole segments or idle intervals instead of cuts at midnight.

    `rows` itself loses its columns.
    """
    start, end = f"{name}_start", f"{name}_end"
    cut = (pl.col("end") % DAY_MS == 0) | (pl.col("time") != pl.col(start))
    over = rows.select("host", "gpu", start, "time", "end").with_row_index("row").filter(cut)
    ends = rows["end"].to_numpy().copy()
    ends[over["row"].to_numpy()] = over.select(pl.col("end").max().over("host", "gpu", start)).to_series().to_numpy()
    return put_in_order(rows.insert_column(rows.width, pl.Series(end, ends)))


def keep_tables(
    lake: Lake, rows: Mapping[str, pl.DataFrame], manifest: Manifest, dates: Collection[str] | None = None
) -> None:
    """Write the days of OVER_DAYS whose rows have changed, remove those without rows, and write the manifest last.

    Args:
        lake: the lake that keeps them.
        rows: by table the rows of all days, or of `dates`.
        manifest: the sources of all days; its `contents` stay for days that are not rebuilt.
        dates: the days that are rebuilt; None for all.

    Raises LakeError where the lake cannot be written.
    """
    contents: dict[str, dict[str, str]] = {}
    for table in OVER_DAYS:
        day = rows[table.name]["time"] // DAY_MS
        new_days = {utc_day(number * DAY_MS): number for number in day.unique().sort()}
        before = {}
        for file in lake.all_files(table.name, dates=dates):
            if file.date not in new_days:
                lake.delete(file)
            elif file.host == ALL_HOSTS:
                before[file.date] = file
        known = manifest.contents[table.name]
        contents[table.name] = {} if dates is None else {date: of for date, of in known.items() if date not in dates}
        for date, number in new_days.items():  # one day at a time: all of them are as large as the ledger
            own = rows[table.name].filter(day == number).select(table.names)
            contents[table.name][date] = rows_digest(own)
            facts = {"content": contents[table.name][date]}
            if table is schema.GPU_LIFETIME and date == max(new_days):
                facts |= replace(manifest, contents=contents).facts()
            if date not in before or not facts.items() <= facts_of(before[date]).items():
                lake.put(LakeFile(table.name, date, ALL_HOSTS, 0, 0), parquet.encode(table, arrow(own, table), facts))


def sizes_of(files: Mapping[str, Sequence[LakeFile]]) -> dict[str, list[int]]:
    """Return the sizes of one day's files, by table."""
    return {name: [file.size_bytes for file in own] for name, own in sorted(files.items())}


_TIMES = replace(DEFAULT_TIMES, wait_s=300)
"""A command that has waited this long builds the tables for itself alone."""

_T = TypeVar("_T")


def in_turn(
    lake: Lake,
    keep: Callable[[Lake], _T],
    tell: Callable[[str], None] = say,
    *,
    dates: Collection[str] | None = None,
) -> _T:
    """Return the result of a function on a lake whose derived tables it may keep, one command at a time.

    The turn begins with the first file that the function writes or removes. Where another command has kept other tables
    since the function was called, the function is called again, in its turn. `dates` are the days that the function
    reads, None for all. Raises LakeError as `leased` does.
    """
    with _TurnToKeep(lake, tell, dates) as turn:
        try:
            return keep(turn)
        except _KeptMeanwhile:
            return keep(turn)


def take_turn(lake: Lake) -> None:
    """Begin the turn of a function that `in_turn` has called, before other processes write files for it."""
    if isinstance(lake, _TurnToKeep):
        lake.lake_in_turn()


class _KeptMeanwhile(Exception):  # noqa: N818  # nothing is wrong
    """Another command has kept other tables since this command read them."""


class _TurnToKeep(SameLake):
    """The lake, which takes the turn before its first `put` or `delete`."""

    def __init__(self, lake: Lake, tell: Callable[[str], None], dates: Collection[str] | None) -> None:
        super().__init__(lake)
        self._tell, self._dates = tell, dates
        self._leases = ExitStack()
        self._mine: Lake | None = None
        self._seen = self._derived_files()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mine = None
        self._leases.close()

    def put(self, file: LakeFile, data: bytes) -> LakeFile:
        return self.lake_in_turn().put(file, data)

    def delete(self, file: LakeFile) -> None:
        self.lake_in_turn().delete(file)

    def lake_in_turn(self) -> Lake:
        if self._mine is None:
            self._mine = self._leases.enter_context(leased(self, "ledger", "the ledger", times=_TIMES, tell=self._tell))
            if self._derived_files() != self._seen:
                raise _KeptMeanwhile
        return self._mine

    def _derived_files(self) -> set[tuple[str, int, str]]:
        files = [file for table in (*PARTS, *OVER_DAYS) for file in self.all_files(table.name, dates=self._dates)]
        return {(file.key, file.size_bytes, file.version) for file in files}

"""What is kept in the lake of the ledger and its sister tables: per UTC day one file of each over all hosts.

A day's parts state, in their files' metadata, a fingerprint per host of all that they were made from, so that a day of which only
some tables were written is built again. The manifest says of every day what it was made from, and which rows the tables that all
days together give have of it: a command compares the days that it reads alone.

Days whose samples were deleted on purpose can never be built again: `.expired/date=D.json` in the lake says so of one day, and
stands before the first of its files goes. What a host publishes later for such a day is not counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self, TypeVar

import polars as pl

from analytics.decode import read_days
from analytics.frames import arrow, digest
from analytics.ledger.day import PARTS
from analytics.ledger.stitch import on_several_hosts
from analytics.ledger.unused_files import discarding
from fallow import parquet, schema
from fallow.clock import DAY_MS, utc_day
from fallow.errors import LakeError
from fallow.lake import ALL_HOSTS, Lake, LakeFile, SameLake
from fallow.leases import DEFAULT_TIMES, leased
from fallow.output import say

FOLDER = ".expired"
"""Where the records lie in the lake: no table has this name."""

_KEY = re.compile(rf"{re.escape(FOLDER)}/date=(\d{{4}}-\d\d-\d\d)\.json", re.ASCII)


def expired_days(lake: Lake) -> frozenset[str]:
    """The dates whose samples have expired; LakeError where the lake cannot be listed."""
    keys = (_KEY.fullmatch(stored.key) for stored in lake.store.list(FOLDER) if not stored.fault)
    return frozenset(match[1] for match in keys if match is not None)


def record_expiry(lake: Lake, date: str, facts: Mapping[str, object]) -> None:
    """Notes that samples of a day go; `facts` are for whoever reads the record. LakeError where it cannot be kept."""
    key, data = f"{FOLDER}/date={date}.json", (json.dumps(facts, indent=2, sort_keys=True) + "\n").encode()
    lake.store.put(key, data)
    lake.store.confirm(key, data)


@dataclass(frozen=True)
class KeptDay:
    """One day's files of PARTS by table, and the fingerprint of each host that they hold."""

    files: Mapping[str, LakeFile]
    hosts: Mapping[str, str]


def files_of(lake: Lake, dates: Collection[str] | None) -> dict[str, dict[str, LakeFile]]:
    """Return the files over all hosts of PARTS, by date and table."""
    found: dict[str, dict[str, LakeFile]] = {}
    for table in PARTS:
        for file in lake.all_files(table.name, dates=dates):
            if file.host == ALL_HOSTS:
                found.setdefault(file.date, {})[table.name] = file
    return found


def kept_days(lake: Lake, dates: Collection[str] | None = None) -> dict[str, KeptDay | None]:
    """Return the days, or some of them, of which any part is there; None where parts are missing, damaged or of two builds."""
    kept: dict[str, KeptDay | None] = {}
    for date, files in files_of(lake, dates).items():
        hosts = hosts_of(files) if len(files) == len(PARTS) else None
        kept[date] = None if hosts is None else KeptDay(files, hosts)
    return kept


def hosts_of(files: Mapping[str, LakeFile]) -> dict[str, str] | None:
    """Return the fingerprint of each host in one day's files; None unless all files state the same."""
    try:
        stated = {parquet.metadata(file)["hosts"] for file in files.values()}
        (hosts,) = map(json.loads, stated)
    except (LakeError, KeyError, ValueError):
        return None  # half-written or from a newer version: derived data is simply built again
    return hosts if isinstance(hosts, dict) else None


def keep_day(
    lake: Lake, date: str, frames: Mapping[str, pl.DataFrame], hosts: Mapping[str, str]
) -> dict[str, LakeFile]:
    """Write one day's parts; return the files. LakeError where they cannot be written."""
    facts = {"hosts": json.dumps(hosts, sort_keys=True)}
    written = {}
    for table in PARTS:
        file = LakeFile(table.name, date, ALL_HOSTS, 0, 0)
        written[table.name] = lake.put(file, parquet.encode(table, arrow(frames[table.name], table), facts))
    return written


def forget_days(lake: Lake, dates: Collection[str]) -> None:
    """Remove the parts of days that no longer have samples."""
    for table in PARTS:
        for file in lake.all_files(table.name, dates=dates):
            lake.delete(file)


OVER_DAYS = (schema.LEDGER, schema.SPELL, schema.GPU_LIFETIME)
"""The tables that all days together give, in the order in which they are written."""


def facts_of(file: LakeFile) -> dict[str, str]:
    """Return the metadata of a kept file; nothing of one that cannot be read."""
    try:
        return parquet.metadata(file)
    except LakeError:
        return {}


def digest_of(rows: pl.DataFrame) -> str:
    """Return a fingerprint of rows in any order."""
    flat = rows.with_columns(
        pl.col(name).cast(pl.List(pl.String)).list.join("+")
        for name, kind in rows.schema.items()
        if isinstance(kind, pl.List)
    )
    return digest(int(flat.hash_rows(seed=1).sum()), len(rows), int(rows["time"].sum()))


@dataclass(frozen=True)
class Manifest:
    """What every day of the ledger was made from, as the newest file of `gpu_lifetime` says: it is written last.

    A command believes no other file of OVER_DAYS than those whose rows the manifest names.
    """

    method: str
    """By which method and settings."""
    days: Mapping[str, tuple[str, Mapping[str, int]]]
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

    @property
    def prints(self) -> dict[str, str]:
        """By date the digest of its hosts' fingerprints."""
        return {date: of for date, (of, _) in self.days.items()}

    def facts(self) -> dict[str, str]:
        """Return the manifest as the metadata of a file."""
        parts = {"days": self.days, "contents": self.contents}
        return {"method": self.method} | {name: json.dumps(part, sort_keys=True) for name, part in parts.items()}

    def names(self, table: schema.LakeTable, files: Sequence[LakeFile], dates: Collection[str] | None = None) -> bool:
        """Return whether these are the files of a table of OVER_DAYS, of all days or some, with the rows that are named."""
        named = self.contents[table.name]
        expected = named if dates is None else {date: named[date] for date in dates if date in named}
        found = {file.date: facts_of(file).get("content", "") for file in files}
        return len(found) == len(files) and found == expected

    def rows(self, lake: Lake, table: schema.LakeTable, dates: Collection[str] | None = None) -> pl.DataFrame | None:
        """Return the rows of a table of OVER_DAYS; None where the lake has other rows than are named, or one cannot be read.

        What a file states is looked at once its rows are read: another command may have replaced it before.
        """
        files = lake.all_files(table.name, dates=dates)
        try:
            rows = read_days(files, table, table.names, discarding(lake.delete))
        except LakeError:
            return None
        return rows if self.names(table, files, dates) else None

    def ledger(
        self, lake: Lake, dates: Collection[str] | None = None, spell_dates: Collection[str] | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame] | None:
        """Return stretches and spells as `stitch` gives them, of all days or some.

        None where the lake has other rows than are named, and where a GPU was on several hosts: its rows are cut to count
        once, and do not tell their whole length.
        """
        stretches, spells = self.rows(lake, schema.LEDGER, dates), self.rows(lake, schema.SPELL, spell_dates)
        if stretches is None or spells is None or on_several_hosts(stretches) or on_several_hosts(spells):
            return None
        return _with_ends(stretches, "stretch"), _with_ends(spells, "spell")


def _with_ends(rows: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return the rows in order, each with the end of the whole stretch or spell: only what midnight has cut ends elsewhere."""
    start, end = f"{name}_start", f"{name}_end"
    cut = (pl.col("end") % DAY_MS == 0) | (pl.col("time") != pl.col(start))
    over = rows.select("host", "gpu", start, "time", "end").with_row_index("row").filter(cut)
    ends = rows["end"].to_numpy().copy()
    ends[over["row"].to_numpy()] = over.select(pl.col("end").max().over("host", "gpu", start)).to_series().to_numpy()
    return rows.with_columns(pl.Series(end, ends)).sort("gpu", "time", "host")


def keep_tables(
    lake: Lake, rows: Mapping[str, pl.DataFrame], manifest: Manifest, dates: Collection[str] | None = None
) -> None:
    """Write the days of OVER_DAYS whose rows have changed, remove those without rows, and last write the manifest.

    Args:
        lake: where they are kept.
        rows: by table the rows of all days, or of `dates`.
        manifest: what all days are made from; its `contents` stay for days that are not made again.
        dates: the days that are made again; None for all.

    Raises LakeError where the lake cannot be written.
    """
    days: dict[str, dict[str, pl.DataFrame]] = {}
    contents: dict[str, dict[str, str]] = {}
    for table in OVER_DAYS:
        own = rows[table.name].with_columns(day=pl.col("time") // DAY_MS)
        parted = sorted(own.partition_by("day", as_dict=True, include_key=False).items())
        days[table.name] = {utc_day(int(day) * DAY_MS): each for (day,), each in parted}
        staying = {} if dates is None else {d: of for d, of in manifest.contents[table.name].items() if d not in dates}
        made = {date: digest_of(each.select(table.names)) for date, each in days[table.name].items()}
        contents[table.name] = staying | made
    last = replace(manifest, contents=contents).facts()
    for table in OVER_DAYS:
        before = {}
        for file in lake.all_files(table.name, dates=dates):
            if file.date not in days[table.name]:
                lake.delete(file)
            elif file.host == ALL_HOSTS:
                before[file.date] = file
        for date, each in days[table.name].items():
            facts = {"content": contents[table.name][date]}
            if table is schema.GPU_LIFETIME and date == max(days[table.name]):
                facts |= last
            if date not in before or not facts.items() <= facts_of(before[date]).items():
                lake.put(LakeFile(table.name, date, ALL_HOSTS, 0, 0), parquet.encode(table, arrow(each, table), facts))


def sizes_of(files: Mapping[str, LakeFile]) -> dict[str, int]:
    """Return the sizes of one day's files."""
    return {name: file.size_bytes for name, file in sorted(files.items())}


_TIMES = replace(DEFAULT_TIMES, wait_s=300)
"""A command that has waited so long builds the tables for itself alone."""

_T = TypeVar("_T")


def in_turn(lake: Lake, keep: Callable[[Lake], _T], tell: Callable[[str], None] = say) -> _T:
    """Return what a function makes of a lake whose derived tables it may keep: one command at a time.

    The turn begins with the first file that the function writes or removes. Where another command has kept other tables since
    the function was called, it is called again, in its turn. Raises LakeError as `leased` does.
    """
    with _TurnToKeep(lake, tell) as turn:
        try:
            return keep(turn)
        except _KeptMeanwhile:
            return keep(turn)


class _KeptMeanwhile(Exception):  # noqa: N818  # nothing is wrong
    """Another command has kept other tables since this one looked."""


class _TurnToKeep(SameLake):
    """The lake, which takes the turn before its first `put` or `delete`."""

    def __init__(self, lake: Lake, tell: Callable[[str], None]) -> None:
        super().__init__(lake)
        self._tell = tell
        self._leases = ExitStack()
        self._mine: Lake | None = None
        self._seen = self._derived()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mine = None
        self._leases.close()

    def put(self, file: LakeFile, data: bytes) -> LakeFile:
        return self._taken().put(file, data)

    def delete(self, file: LakeFile) -> None:
        self._taken().delete(file)

    def _taken(self) -> Lake:
        if self._mine is None:
            self._mine = self._leases.enter_context(leased(self, "ledger", "the ledger", times=_TIMES, tell=self._tell))
            if self._derived() != self._seen:
                raise _KeptMeanwhile
        return self._mine

    def _derived(self) -> set[tuple[str, int, str]]:
        files = [file for table in (*PARTS, *OVER_DAYS) for file in self.all_files(table.name)]
        return {(file.key, file.size_bytes, file.version) for file in files}

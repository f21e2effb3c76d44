"""What is kept in the lake of the ledger and its sister tables: per UTC day one file of each over all hosts.

The parts carry, in their files' metadata, a fingerprint per host of all that they were made from, and the build that
they belong to, so that a day of which only some tables were written is built again. The manifest says of every day what it was
made from, so that a command compares the days that it reads alone.

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
from typing import Self

import polars as pl

from analytics.decode import read_days
from analytics.frames import arrow, digest, read_frame
from analytics.ledger.day import PARTS
from analytics.ledger.stitch import on_several_hosts
from analytics.ledger.unused_files import discarding
from fallow import parquet, schema
from fallow.clock import DAY_MS, utc_day
from fallow.errors import LakeError
from fallow.lake import ALL_HOSTS, Lake, LakeFile, SameLake
from fallow.leases import DEFAULT_TIMES, leased
from fallow.output import say
from fallow.quarantine import OnUnusable

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
    """One day's part files by table, and the fingerprint of each host that they hold."""

    files: Mapping[str, LakeFile]
    hosts: Mapping[str, str]


@dataclass
class Kept:
    """What the lake holds: whole days by date, and every derived file, whole or not, to be replaced."""

    days: dict[str, KeptDay] = field(default_factory=dict)
    files: dict[str, list[LakeFile]] = field(default_factory=dict)


def kept_days(lake: Lake, dates: Collection[str] | None = None) -> Kept:
    """The days, or some of them, whose every table is there, of one build and readable."""
    kept = Kept()
    by_day: dict[str, dict[str, LakeFile]] = {}
    for table in PARTS:
        kept.files[table.name] = lake.all_files(table.name, dates=dates)
        for file in kept.files[table.name]:
            if file.host == ALL_HOSTS:
                by_day.setdefault(file.date, {})[table.name] = file
    for table in (schema.LEDGER, schema.SPELL):
        kept.files[table.name] = lake.all_files(table.name, dates=dates)
    for date, files in by_day.items():
        if len(files) == len(PARTS) and (hosts := _hosts(files)) is not None:
            kept.days[date] = KeptDay(files, hosts)
    return kept


def _hosts(files: Mapping[str, LakeFile]) -> dict[str, str] | None:
    """The fingerprints of one day if all its files belong together."""
    try:
        facts = [parquet.metadata(file) for file in files.values()]
    except LakeError:
        return None  # half-written or from a newer version: derived data is simply built again
    builds = {fact.get("build") for fact in facts}
    if len(builds) != 1 or None in builds:
        return None
    try:
        hosts = json.loads(facts[0]["hosts"])
    except (KeyError, ValueError):
        return None
    return hosts if isinstance(hosts, dict) else None


def still_those(day: KeptDay) -> bool:
    """Whether a day's files are still those that were found: another command may have replaced them meanwhile."""
    return _hosts(day.files) == day.hosts


def keep_day(
    lake: Lake, date: str, frames: Mapping[str, pl.DataFrame], hosts: Mapping[str, str]
) -> dict[str, LakeFile]:
    """Writes one day's parts; returns the files. LakeError where it cannot be written."""
    facts = {"hosts": json.dumps(hosts, sort_keys=True), "build": digest(date, sorted(hosts.items()))}
    written = {}
    for table in PARTS:
        file = LakeFile(table.name, date, ALL_HOSTS, 0, 0)
        written[table.name] = lake.put(file, parquet.encode(table, arrow(frames[table.name], table), facts))
    return written


def forget_days(lake: Lake, dates: set[str], kept: Kept) -> None:
    """Removes the parts of days that no longer have samples."""
    for table in PARTS:
        for file in kept.files[table.name]:
            if file.date in dates:
                lake.delete(file)


def recent_table(
    lake: Lake, table: schema.LakeTable, dates: Collection[str], contents: Mapping[str, str]
) -> pl.DataFrame | None:
    """The rows of `ledger` or `spell` of some days; None as `verified_rows` has it, and where a GPU was on several hosts."""
    rows = verified_rows(lake, table, dates, contents)
    if rows is None or on_several_hosts(rows):
        return None
    return _with_ends(rows, table.name.replace("ledger", "stretch"))


def kept_table(
    table: schema.LakeTable, files: Sequence[LakeFile], whole: str, on_unusable: OnUnusable
) -> tuple[pl.DataFrame, dict[str, str]] | None:
    """The rows of `ledger` or `spell` as `stitch` gives them, and by date a digest of each day's.

    None where the lake holds anything but those of this whole. The newest day says what all days were made from and what is
    in each: it is written last.
    """
    contents = {file.date: facts_of(file).get("content", "") for file in files}
    if len(contents) < len(files) or not files or facts_of(max(files)).get("whole") != _whole(whole, contents):
        return None
    try:
        rows = read_frame(sorted(files), table, None, on_unusable).select(table.names)
    except LakeError:
        return None
    # of what was cut to count once, nothing here tells the whole
    return None if on_several_hosts(rows) else (_with_ends(rows, table.name.replace("ledger", "stretch")), contents)


def says_whole(lake: Lake, table: schema.LakeTable, contents: Mapping[str, str], whole: str) -> bool:
    """Whether the newest day of `ledger` or `spell` says that all days are those of this whole, with these contents."""
    if not contents:
        return True
    files = lake.all_files(table.name, dates=[max(contents)])
    return len(files) == 1 and facts_of(files[0]).get("whole") == _whole(whole, contents)


def verified_rows(
    lake: Lake, table: schema.LakeTable, dates: Collection[str], contents: Mapping[str, str]
) -> pl.DataFrame | None:
    """The rows of some days of `ledger` or `spell`; None where a file is not there, or has other content than is said."""
    files = lake.all_files(table.name, dates=dates)
    found = {file.date: facts_of(file).get("content", "") for file in files}
    if len(found) < len(files) or found != {date: contents[date] for date in dates if date in contents}:
        return None
    try:
        return read_days(files, table, table.names, discarding(lake.delete))
    except LakeError:
        return None


def _with_ends(rows: pl.DataFrame, name: str) -> pl.DataFrame:
    """The rows in order, each with the end of the whole stretch or spell: only what midnight has cut ends elsewhere."""
    start, end = f"{name}_start", f"{name}_end"
    cut = (pl.col("end") % DAY_MS == 0) | (pl.col("time") != pl.col(start))
    over = rows.select("host", "gpu", start, "time", "end").with_row_index("row").filter(cut)
    ends = rows["end"].to_numpy().copy()
    ends[over["row"].to_numpy()] = over.select(pl.col("end").max().over("host", "gpu", start)).to_series().to_numpy()
    return rows.with_columns(pl.Series(end, ends)).sort("gpu", "time", "host")


def _whole(whole: str, contents: Mapping[str, str]) -> str:
    return digest(whole, sorted(contents.items()))


def facts_of(file: LakeFile) -> dict[str, str]:
    """The metadata of a kept file; nothing of one that cannot be read."""
    try:
        return parquet.metadata(file)
    except LakeError:
        return {}


def keep_table(
    lake: Lake,
    table: schema.LakeTable,
    frame: pl.DataFrame,
    files: Sequence[LakeFile],
    whole: str,
    *,
    earlier: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Writes the days of `ledger` or `spell` whose rows have changed and removes those that have none any more.

    Args:
        lake: where they are kept.
        table: ledger or spell.
        frame: the rows of all days but those of `earlier`.
        files: what the lake holds of these days.
        whole: what all days are made from.
        earlier: by date a digest of the rows of days that stay as they are; all of them before those of `frame`.

    Returns:
        By date a digest of each day's rows. Raises LakeError where the lake cannot be written.
    """
    days = frame.with_columns(day=frame["time"] // DAY_MS).partition_by("day", as_dict=True, include_key=False)
    rows_of = {utc_day(int(day) * DAY_MS): rows for (day,), rows in sorted(days.items())}
    contents = {**(earlier or {}), **{date: digest_of(rows.select(table.names)) for date, rows in rows_of.items()}}
    _keep_days(lake, table, rows_of, files, contents=contents, newest={"whole": _whole(whole, contents)})
    return contents


def _keep_days(
    lake: Lake,
    table: schema.LakeTable,
    rows_of: Mapping[str, pl.DataFrame],
    files: Sequence[LakeFile],
    *,
    contents: Mapping[str, str],
    newest: Mapping[str, str],
) -> None:
    """Writes the days whose facts the lake's files do not state, the newest last and with its own, and removes the others."""
    before = {file.date: file for file in files if file.host == ALL_HOSTS}
    for file in files:
        if file.date not in rows_of:
            lake.delete(file)
    for date, rows in sorted(rows_of.items()):
        facts = {"content": contents[date], **(newest if date == max(rows_of) else {})}
        if date not in before or not facts.items() <= facts_of(before[date]).items():
            lake.put(LakeFile(table.name, date, ALL_HOSTS, 0, 0), parquet.encode(table, arrow(rows, table), facts))


def digest_of(rows: pl.DataFrame) -> str:
    """A fingerprint of rows in any order."""
    flat = rows.with_columns(
        pl.col(name).cast(pl.List(pl.String)).list.join("+")
        for name, kind in rows.schema.items()
        if isinstance(kind, pl.List)
    )
    return digest(int(flat.hash_rows(seed=1).sum()), len(rows), int(rows["time"].sum()))


@dataclass(frozen=True)
class Manifest:
    """What every day of the ledger was made from: it stands in the newest file of `gpu_lifetime`, which is written last.

    `method` says by what, `days` of each date a digest of its hosts' fingerprints and the sizes of the files made of it, and
    `contents` by table (`ledger`, `spell`) and date a digest of the rows. A command that reads some days compares those alone.
    """

    method: str
    days: Mapping[str, tuple[str, Mapping[str, int]]]
    contents: Mapping[str, Mapping[str, str]]

    @classmethod
    def read(cls, lifetimes: Sequence[LakeFile]) -> Manifest | None:
        """The manifest of the lake; None where there is none that can be read."""
        try:
            facts = parquet.metadata(lifetimes[-1])
            days = json.loads(facts["days"])
            contents = json.loads(facts["contents"])
            return cls(
                facts["method"],
                {date: (of, sizes) for date, (of, sizes) in days.items()},
                {table.name: dict(contents[table.name]) for table in (schema.LEDGER, schema.SPELL)},
            )
        except (LakeError, LookupError, ValueError, AttributeError, TypeError):
            return None

    @property
    def prints(self) -> dict[str, str]:
        """By date the digest of its hosts' fingerprints."""
        return {date: of for date, (of, _) in self.days.items()}

    def facts(self) -> dict[str, str]:
        """As the metadata of a file."""
        parts = {"days": self.days, "contents": self.contents}
        return {"method": self.method} | {name: json.dumps(part, sort_keys=True) for name, part in parts.items()}


DERIVED = (*PARTS, schema.LEDGER, schema.SPELL)
"""The tables of which a day has one file."""


def files_of(lake: Lake, dates: Collection[str] | None) -> dict[str, dict[str, LakeFile]]:
    """The files over all hosts of DERIVED, by date and table."""
    found: dict[str, dict[str, LakeFile]] = {}
    for table in DERIVED:
        for file in lake.all_files(table.name, dates=dates):
            if file.host == ALL_HOSTS:
                found.setdefault(file.date, {})[table.name] = file
    return found


def sizes_of(files: Mapping[str, LakeFile]) -> dict[str, int]:
    """The sizes of one day's files."""
    return {name: file.size_bytes for name, file in sorted(files.items())}


def keep_lifetimes(lake: Lake, rows: pl.DataFrame, manifest: Manifest, first: str = "") -> None:
    """Writes the days of `gpu_lifetime` that have changed, the newest with the manifest; LakeError where it cannot be written.

    `rows` are those of all days from the date `first` on; what was kept before it stays.
    """
    table = schema.GPU_LIFETIME
    days = {utc_day(int(day)): own for (day,), own in rows.partition_by("time", as_dict=True).items()}
    files = [file for file in lake.all_files(table.name) if file.date >= first]
    contents = {date: digest_of(own) for date, own in days.items()}
    _keep_days(lake, table, days, files, contents=contents, newest=manifest.facts())


_TIMES = replace(DEFAULT_TIMES, wait_s=300)
"""Whoever has waited so long builds the tables for itself alone."""

_TABLES = (*DERIVED, schema.GPU_LIFETIME)


class KeptMeanwhile(Exception):  # noqa: N818  # nothing is wrong
    """Another command has kept other tables since this one looked: look again. This one has the turn by now."""


class TurnToKeep(SameLake):
    """The lake as its derived tables are kept by one command at a time; what was read is compared when the turn comes.

    `put` and `delete` raise KeptMeanwhile, and LakeError as `leased` does.
    """

    def __init__(self, lake: Lake, tell: Callable[[str], None] = say) -> None:
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
                raise KeptMeanwhile
        return self._mine

    def _derived(self) -> set[tuple[str, int, str]]:
        files = [file for table in _TABLES for file in self.all_files(table.name)]
        return {(file.key, file.size_bytes, file.version) for file in files}

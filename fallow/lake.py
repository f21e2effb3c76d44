"""The lake's layout: where each file goes, what its name says and which files a reader sees.

`<lake>/<table>/date=YYYY-MM-DD/host=H/<first seq>-<last seq>.parquet`; a derived table's day is one file over all hosts,
`<lake>/<table>/date=YYYY-MM-DD/0-0.parquet`, whose rows name their host. The writer owns its host's sequence numbers, so
publishing a stretch twice lands on the same name. A file whose range lies inside another file's range of the same
table, date and host is hidden: that is how a wider file replaces narrower ones without a rename.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from fallow import schema
from fallow.errors import EmptyLakeError, LakeError, NoLakeError
from fallow.lake_marker import MARKER_KEY
from fallow.quarantine import FAULTS, LeftOut, Quarantine
from fallow.stores import Store, Stored, open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_KEY = re.compile(r"(\w+)/date=([^/]+)/(?:host=([^/]+)/)?(\d+)-(\d+)\.parquet", re.ASCII)
_FIRST_YEAR, _LAST_YEAR = 1970, 2199
"""Of the dates that a file can have; beyond them no clock of a computer is right."""

_OBSERVED = frozenset(table.name for table in schema.TABLES if not table.derived)

ALL_HOSTS = ""
"""The host of a file over all hosts."""

MOST_READ_BYTES = 256 << 20
"""Of a file that is held whole: a day of 56 MIG instances at 1 s takes a quarter of it."""

AGENT_FIRST_SEQ = 10**14
"""Sequence numbers of agents begin here; importers' are below it. Files of the two are never merged."""


@dataclass(frozen=True, order=True)
class LakeFile:
    """One Parquet file of the lake and what its name says."""

    table: str
    date: str
    host: str
    first_seq: int
    last_seq: int
    url: str = ""
    size_bytes: int = 0
    version: str = field(default="", compare=False)
    modified_ms: int = field(default=0, compare=False)
    """When it was stored, by the store's clock; 0 where that is not known."""
    hides: tuple[LakeFile, ...] = field(default=(), compare=False, repr=False)
    """The files that this one covers: what is left of it where it cannot be read."""

    @property
    def key(self) -> str:
        host = f"host={quote(self.host, safe='')}/" if self.host != ALL_HOSTS else ""
        return f"{self.table}/date={self.date}/{host}{self.first_seq}-{self.last_seq}.parquet"

    def covers(self, other: LakeFile) -> bool:
        """Whether the other file's range lies inside this one's, in the same table, date and host."""
        return (
            (self.table, self.date, self.host) == (other.table, other.date, other.host)
            and self.first_seq <= other.first_seq
            and other.last_seq <= self.last_seq
        )


class Lake:
    """Where rows lie. `left_out` is what its listings passed over and its readers did not use, so far."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.left_out = Quarantine()
        self._had_marker: bool | None = None

    @classmethod
    def at(cls, location: str) -> Lake:
        """The lake at a location, whether it exists yet or not; nothing is contacted. UsageError for a wrong address."""
        return cls(open_store(location))

    @property
    def root(self) -> str:
        return self.store.root

    def require(self) -> Lake:
        """This lake, known to exist; LakeError otherwise."""
        if not self.store.exists():
            raise LakeError(
                f"there is no lake at {self.root}",
                f"check the address and the mount, or make one with `fallow lake init --lake {self.root}`",
            )
        self._check_mounted()
        return self

    def require_known(self) -> Lake:
        """This lake, with a marker or a table in it: an empty place is no lake, and all would be well in it. LakeError otherwise."""
        self.require()
        tables = {table.name for table in schema.TABLES}
        if self.store.look(MARKER_KEY) is None and not tables & {*self.store.folders("")}:
            raise LakeError(
                f"there is no fallow lake at {self.root}",
                f"check the address and the mount, or make one with `fallow lake init --lake {self.root}`",
            )
        return self

    def _check_mounted(self) -> None:
        """LakeError where a marker was seen and is gone: what is written now would fill the disk below a mount that is away."""
        if not self.store.may_vanish:
            return
        has_marker = self.store.look(MARKER_KEY) is not None
        if self._had_marker and not has_marker:
            raise NoLakeError(
                f"the lake at {self.root} has gone: its {MARKER_KEY} is no longer there", "mount it again"
            )
        self._had_marker = has_marker

    def files(
        self, table: str, *, hosts: Iterable[str] | None = None, dates: Iterable[str] | None = None
    ) -> list[LakeFile]:
        """The visible files of a table, sorted by date, host and range; optionally of some hosts and dates only."""
        return visible(self.all_files(table, hosts=hosts, dates=dates))

    def all_files(
        self, table: str, *, hosts: Iterable[str] | None = None, dates: Iterable[str] | None = None
    ) -> list[LakeFile]:
        """Like `files`, with those that a wider file hides."""
        wanted_hosts = None if hosts is None else set(hosts)
        wanted_dates = None if dates is None else set(dates)
        found = []
        for stored in self._listed(table, wanted_hosts, wanted_dates):
            file = self._file(stored)
            if (
                file is not None
                and (wanted_hosts is None or file.host in wanted_hosts)
                and (wanted_dates is None or file.date in wanted_dates)
            ):
                found.append(file)
        return sorted(found)

    def _file(self, stored: Stored) -> LakeFile | None:
        """The file of a name; None where it is none of the lake's, which is noted where it looks like one."""
        match = _KEY.fullmatch(stored.key)
        host = None if match is None else _host(match[3])
        fault = stored.fault
        if match is None:
            fault = fault or ("no_name" if stored.key.endswith(".parquet") else "")
        elif not fault:
            fault = "no_host" if host is None else "" if _is_date(match[2]) else "no_date"
        if fault:
            sentence = f"{self.store.url(stored.key)} {stored.detail or FAULTS[fault]}"
            if stored.key in _OBSERVED:  # nothing at all would be known of it
                raise LakeError(
                    f"{sentence}, where the lake has a folder",
                    "move it out of the lake (what lies on another disk is mounted there, not linked)",
                )
            self.left_out.add(LeftOut(stored.key, fault, sentence))
        if fault or match is None or host is None:
            return None
        url = self.store.url(stored.key)
        return LakeFile(
            match[1],
            match[2],
            host,
            int(match[4]),
            int(match[5]),
            url,
            stored.size_bytes,
            stored.version,
            stored.modified_ms,
        )

    def _listed(self, table: str, hosts: set[str] | None, dates: set[str] | None) -> Iterator[Stored]:
        """Lists no more than is asked for: a publisher lists its own folders only."""
        if dates is None:
            yield from self.store.list(table)
        elif hosts is None:
            for date in dates:
                yield from self.store.list(f"{table}/date={date}")
        else:
            for date in dates:
                for host in hosts:
                    yield from self.store.list(f"{table}/date={date}/host={quote(host, safe='')}")

    def strays(self) -> list[LeftOut]:
        """Folders of observed tables that are named for a date that is none: the listing of a window never meets them."""
        met = {"/".join(each.key.split("/")[:2]) for each in self.left_out.found}
        return [
            LeftOut(key, "no_date", f"{self.store.url(key)} {FAULTS['no_date']}")
            for table in schema.TABLES
            if not table.derived
            for name in self.store.folders(table.name)
            if name.startswith("date=") and not _is_date(name.removeprefix("date="))
            if (key := f"{table.name}/{name}") not in met
        ]

    def require_files(self, table: str) -> list[LakeFile]:
        """The visible files of a table; EmptyLakeError where there are none, LakeError where there is no lake."""
        files = self.require().files(table)
        if not files:
            raise EmptyLakeError(
                f"the lake at {self.root} holds no {table} rows yet",
                "start `fallow agent run` or `fallow follow`, or bring history in with `fallow import`",
            )
        return files

    def put(self, file: LakeFile, data: bytes) -> LakeFile:
        """Publishes one file atomically and returns it with its address; the same name again replaces it."""
        if file.host == ALL_HOSTS and not schema.table(file.table).derived:
            raise LakeError(f"{file.table} rows of {file.date} name no host", "give --host")
        self._check_mounted()
        self.store.put(file.key, data, self._before_put)
        return LakeFile(
            file.table, file.date, file.host, file.first_seq, file.last_seq, self.store.url(file.key), len(data)
        )

    def _before_put(self) -> None:
        """Called right before a file gets its name; LakeError keeps it from that."""
        self._check_mounted()

    def put_confirmed(self, file: LakeFile, data: bytes) -> LakeFile:
        """Like `put`, and asks the store whether it holds the file; LakeError where it does not."""
        written = self.put(file, data)
        self.store.confirm(file.key, data)
        return written

    def read(self, file: LakeFile) -> bytes:
        """The file's content; FileNotFoundError where it is gone, LakeError where it is larger than agents write or unreadable."""
        content = self.store.read_small(file.key, MOST_READ_BYTES)
        if content is None:
            raise FileNotFoundError(file.url or file.key)
        return content

    def delete(self, file: LakeFile) -> None:
        self.store.delete(file.key)


class SameLake(Lake):
    """Another lake and what is noted about it, for a writer that does more when it puts and deletes."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake.store)
        vars(self).update(vars(lake))


@functools.lru_cache(maxsize=16_384)
def _host(quoted: str | None) -> str | None:
    """The host that a folder is named for; None where that is not UTF-8."""
    try:
        return ALL_HOSTS if quoted is None else unquote(quoted, errors="strict")
    except UnicodeDecodeError:
        return None


@functools.lru_cache(maxsize=4096)
def _is_date(text: str) -> bool:
    """Whether a folder's name is a day on which a computer can have measured."""
    try:
        return len(text) == len("2026-11-20") and _FIRST_YEAR <= dt.date.fromisoformat(text).year <= _LAST_YEAR
    except ValueError:
        return False


def visible(files: Iterable[LakeFile]) -> list[LakeFile]:
    """The files that no other one covers, in order, each with those that it `hides`; of two equal ranges there is only ever one name."""
    kept: list[LakeFile] = []
    hidden: dict[int, list[LakeFile]] = {}
    # widest first within a partition, so that a file that hides another comes before it
    for file in sorted(files, key=lambda each: (each.table, each.date, each.host, each.first_seq, -each.last_seq)):
        if kept and kept[-1].covers(file):
            hidden.setdefault(len(kept) - 1, []).append(file)
        else:
            kept.append(file)
    for number, own in hidden.items():
        kept[number] = replace(kept[number], hides=tuple(own))
    return kept

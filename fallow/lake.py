"""The layout of the lake: the path of each file, the meaning of its name, and the files that readers see.

`<lake>/<table>/date=YYYY-MM-DD/host=H/<first seq>-<last seq>.parquet`; a derived table's day is one file over all
hosts, `<lake>/<table>/date=YYYY-MM-DD/0-0.parquet`, whose rows name their host; a large fleet's day has several, each
over a share of the hosts (`analytics/ledger/cache.py`). The writer owns its host's sequence numbers, so publishing a
segment twice lands on the same name. A file whose range lies inside another file's range of the same table, date and
host is hidden: so a wider file replaces narrower ones without a rename.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from fallow import schema
from fallow.clock import SystemClock, utc_day
from fallow.errors import EmptyLakeError, LakeError, NoLakeError
from fallow.lake_marker import MARKER_KEY
from fallow.quarantine import FAULTS, LeftOut, Quarantine
from fallow.stores import Store, Stored, open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_KEY = re.compile(r"(\w+)/date=([^/]+)/(?:host=([^/]+)/)?(\d+)-(\d+)\.parquet", re.ASCII)
_FIRST_YEAR, _LAST_YEAR = 1970, 2199
"""Years that the date of a file can have; a clock beyond these years is wrong."""

_OBSERVED = frozenset(table.name for table in schema.TABLES if not table.derived)

ALL_HOSTS = ""
"""The host of a file over all hosts."""

MOST_READ_BYTES = 256 << 20
"""Largest file that is read at once; a day of 56 MIG instances at 1 s has a quarter."""

MONTH_LAST_SEQ = 31
"""Last sequence number of a file that has the rows of a whole month."""

KEPT_BY_MONTH = {
    each.name: f"{each.name}_day" for each in (schema.DEVICE, schema.ALLOCATION, schema.REQUEST, schema.EVENT)
}
"""Observed tables of which a derived table keeps the rows by month."""

AGENT_FIRST_SEQ = 10**14
"""First sequence number of agents; importers' numbers are lower. Files of agents and importers are never merged."""


@dataclass(frozen=True, order=True)
class LakeFile:
    """A Parquet file of the lake, with the facts in its name."""

    table: str
    date: str
    host: str
    first_seq: int
    last_seq: int
    url: str = ""
    size_bytes: int = 0
    version: str = field(default="", compare=False)
    modified_ms: int = field(default=0, compare=False)
    """Time of the last change, by the store's clock; 0 if unknown."""
    hides: tuple[LakeFile, ...] = field(default=(), compare=False, repr=False)
    """The files that this file replaces; readers use them if this file cannot be read."""

    @property
    def key(self) -> str:
        host = f"host={quote(self.host, safe='')}/" if self.host != ALL_HOSTS else ""
        return f"{self.table}/date={self.date}/{host}{self.first_seq}-{self.last_seq}.parquet"

    def covers(self, other: LakeFile) -> bool:
        """Return whether this range contains the other file's range, in the same table, date and host."""
        return (
            (self.table, self.date, self.host) == (other.table, other.date, other.host)
            and self.first_seq <= other.first_seq
            and other.last_seq <= self.last_seq
        )


class Lake:
    """A lake. `left_out` has the files and names that listings and readers have left out so far."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.left_out = Quarantine()
        self._had_marker: bool | None = None

    @classmethod
    def at(cls, location: str) -> Lake:
        """Return the lake at a location, without contacting it; it need not exist. Raises as `open_store` does."""
        return cls(open_store(location))

    @property
    def root(self) -> str:
        return self.store.root

    def require(self) -> Lake:
        """Return this lake; raises LakeError if it does not exist."""
        if not self.store.exists():
            raise LakeError(
                f"there is no lake at {self.root}",
                f"check the address and the mount, or create a lake with `fallow lake init --lake {self.root}`",
            )
        self._check_mounted()
        return self

    def require_known(self) -> Lake:
        """Return this lake; raises LakeError if it has no marker and no table: an empty folder passes every check."""
        self.require()
        tables = {table.name for table in schema.TABLES}
        if self.store.look(MARKER_KEY) is None and not tables & {*self.store.folders("")}:
            raise LakeError(
                f"there is no fallow lake at {self.root}",
                f"check the address and the mount, or create a lake with `fallow lake init --lake {self.root}`",
            )
        return self

    def _check_mounted(self) -> None:
        """Raise LakeError if a marker disappeared: a write would fill the disk below a missing mount."""
        if not self.store.may_vanish:
            return
        has_marker = self.store.look(MARKER_KEY) is not None
        if self._had_marker and not has_marker:
            raise NoLakeError(f"the lake at {self.root} disappeared: {MARKER_KEY} is missing", "mount it again")
        self._had_marker = has_marker

    def files(
        self, table: str, *, hosts: Iterable[str] | None = None, dates: Iterable[str] | None = None
    ) -> list[LakeFile]:
        """Return the visible files of a table, sorted by date, host and range; optionally of some hosts and dates."""
        return visible(self.all_files(table, hosts=hosts, dates=dates))

    def all_files(
        self, table: str, *, hosts: Iterable[str] | None = None, dates: Iterable[str] | None = None
    ) -> list[LakeFile]:
        """Return what `files` returns, with hidden files."""
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
        """Return the file with a name; None for other names, which are recorded if they resemble a file of the lake."""
        match = _KEY.fullmatch(stored.key)
        host = None if match is None else _host(match[3])
        fault = stored.fault
        if match is None:
            fault = fault or ("no_name" if stored.key.endswith(".parquet") else "")
        elif not fault:
            fault = "no_host" if host is None else "" if _is_date(match[2]) else "no_date"
        if fault:
            sentence = f"{self.store.url(stored.key)} {stored.detail or FAULTS[fault]}"
            if stored.key in _OBSERVED:  # otherwise nothing would report it
                raise LakeError(
                    f"{sentence}; the lake needs a folder here",
                    "move it out of the lake (mount another disk here, and do not link it)",
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
        """Yield the stored files of the requested hosts and dates; a publisher lists only its own folders."""
        if dates is None:
            yield from self.store.list(table)
        elif hosts is None:
            for first, last in _spans_of(dates):
                yield from self.store.list_between(table, f"date={first}", f"date={last}")
        else:
            for date in dates:
                for host in hosts:
                    yield from self.store.list(f"{table}/date={date}/host={quote(host, safe='')}")

    def dates(self, table: str) -> list[str]:
        """Return the dates for which a table has a folder, perhaps empty, in order. Raises LakeError like `files`."""
        names = (name.removeprefix("date=") for name in self.store.folders(table) if name.startswith("date="))
        found = sorted(name for name in names if _is_date(name))
        # a table that is no folder is an error, which the listing states
        return found or sorted({file.date for file in self.all_files(table)})

    def newest_files(self, table: str) -> list[LakeFile]:
        """Return the visible files of the newest date that has any, without a listing of the dates before."""
        each_date = (self.files(table, dates=[date]) for date in reversed(self.dates(table)))
        return next(filter(None, each_date), [])

    def strays(self) -> list[LeftOut]:
        """Return the folders of observed tables whose name is not a date; a window's listing does not include them."""
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
        """Return the visible files of a table; raises EmptyLakeError without files, LakeError without a lake."""
        files = self.require().files(table)
        if not files:
            raise EmptyLakeError(
                f"the lake at {self.root} holds no {table} rows yet",
                "start `fallow agent run` or `fallow follow`, or import history with `fallow import`",
            )
        return files

    def put(self, file: LakeFile, data: bytes) -> LakeFile:
        """Publish a file atomically and return it with its address; a file with the same name is replaced."""
        if file.host == ALL_HOSTS and not schema.table(file.table).derived:
            raise LakeError(f"{file.table} rows of {file.date} name no host", "give --host")
        self._check_mounted()
        self.store.put(file.key, data, self._before_put)
        self._forget_month(file)
        return LakeFile(
            file.table, file.date, file.host, file.first_seq, file.last_seq, self.store.url(file.key), len(data)
        )

    def _before_put(self) -> None:
        """Runs just before a file gets its name; a LakeError cancels the write."""
        self._check_mounted()

    def put_confirmed(self, file: LakeFile, data: bytes) -> LakeFile:
        """Publish a file like `put`, and check that the store has it; raises LakeError otherwise."""
        written = self.put(file, data)
        self.store.confirm(file.key, data)
        return written

    def read(self, file: LakeFile) -> bytes:
        """Return a file's content; raises FileNotFoundError if it is missing, LakeError if too large or unreadable."""
        content = self.store.read_small(file.key, MOST_READ_BYTES)
        if content is None:
            raise FileNotFoundError(file.url or file.key)
        return content

    def delete(self, file: LakeFile) -> None:
        self.store.delete(file.key)
        self._forget_month(file)

    def _forget_month(self, file: LakeFile) -> None:
        """Remove the kept rows of a past month that has changed: readers do not compare them with its files.

        A host may lack the right to remove them; then the next build of the whole ledger compares them.
        """
        if file.table in KEPT_BY_MONTH and file.date[:7] < utc_day(SystemClock().now_ms())[:7]:
            with contextlib.suppress(LakeError):
                self.store.delete(month_file(file.table, file.date[:7]).key)


def month_file(table: str, month: str) -> LakeFile:
    """Return the file that keeps the rows of a month, such as `2026-11`, of a table of KEPT_BY_MONTH."""
    return LakeFile(KEPT_BY_MONTH[table], f"{month}-01", ALL_HOSTS, 0, MONTH_LAST_SEQ)


class SameLake(Lake):
    """A lake with the same records as another `Lake`, for writers that extend `put` and `delete`."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake.store)
        vars(self).update(vars(lake))


@functools.lru_cache(maxsize=16_384)
def _host(quoted: str | None) -> str | None:
    """Return the host in the name of a folder; None if the name is not UTF-8."""
    try:
        return ALL_HOSTS if quoted is None else unquote(quoted, errors="strict")
    except UnicodeDecodeError:
        return None


@functools.lru_cache(maxsize=4096)
def _is_date(text: str) -> bool:
    """Return whether the name of a folder is a plausible date."""
    try:
        return len(text) == len("2026-11-20") and _FIRST_YEAR <= dt.date.fromisoformat(text).year <= _LAST_YEAR
    except ValueError:
        return False


def _spans_of(dates: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the first and the last date of each span of dates without a gap."""
    days = sorted(map(dt.date.fromisoformat, dates))
    first = 0
    for number, day in enumerate(days, start=1):
        if number == len(days) or (days[number] - day).days > 1:
            yield days[first].isoformat(), day.isoformat()
            first = number


def visible(files: Iterable[LakeFile]) -> list[LakeFile]:
    """Return the files that no other covers, in order, each with the files that it hides; equal ranges share a name."""
    kept: list[LakeFile] = []
    hidden: dict[int, list[LakeFile]] = {}
    # widest first in a partition, so that a file comes before the files that it hides
    for file in sorted(files, key=lambda each: (each.table, each.date, each.host, each.first_seq, -each.last_seq)):
        if kept and kept[-1].covers(file):
            hidden.setdefault(len(kept) - 1, []).append(file)
        else:
            kept.append(file)
    for number, own in hidden.items():
        kept[number] = replace(kept[number], hides=tuple(own))
    return kept

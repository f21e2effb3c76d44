"""The lake's layout: where each file goes, what its name says and which files a reader sees.

`<lake>/<table>/date=YYYY-MM-DD/host=H/<first seq>-<last seq>.parquet`; a derived table's day is one file over all hosts,
`<lake>/<table>/date=YYYY-MM-DD/0-0.parquet`, whose rows name their host. The writer owns its host's sequence numbers, so
publishing a stretch twice lands on the same name. A file whose range lies inside another file's range of the same
table, date and host is hidden: that is how a wider file replaces narrower ones without a rename.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from fallow import schema
from fallow.errors import EmptyLakeError, LakeError
from fallow.stores import Store, Stored, open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_KEY = re.compile(r"(\w+)/date=(\d{4}-\d{2}-\d{2})/(?:host=([^/]+)/)?(\d+)-(\d+)\.parquet")

ALL_HOSTS = ""
"""The host of a file over all hosts."""


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
    def __init__(self, store: Store) -> None:
        self.store = store

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
                "check the address, or fill one with `fallow agent run --lake ...` or `fallow import ... --lake ...`",
            )
        return self

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
            match = _KEY.fullmatch(stored.key)
            if match is None:
                continue
            host = ALL_HOSTS if match[3] is None else unquote(match[3])
            if (wanted_hosts is None or host in wanted_hosts) and (wanted_dates is None or match[2] in wanted_dates):
                url = self.store.url(stored.key)
                found.append(
                    LakeFile(
                        match[1], match[2], host, int(match[4]), int(match[5]), url, stored.size_bytes, stored.version
                    )
                )
        return sorted(found)

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

    def require_files(self, table: str) -> list[LakeFile]:
        """The visible files of a table; EmptyLakeError where there are none, LakeError where there is no lake."""
        files = self.require().files(table)
        if not files:
            raise EmptyLakeError(
                f"the lake at {self.root} holds no {table} rows yet",
                "start `fallow agent run --lake ...`, or bring history in with `fallow import`",
            )
        return files

    def put(self, file: LakeFile, data: bytes) -> LakeFile:
        """Publishes one file atomically and returns it with its address; the same name again replaces it."""
        if file.host == ALL_HOSTS and not schema.table(file.table).derived:
            raise LakeError(f"{file.table} rows of {file.date} name no host", "give --host")
        self.store.put(file.key, data)
        return LakeFile(
            file.table, file.date, file.host, file.first_seq, file.last_seq, self.store.url(file.key), len(data)
        )

    def confirm(self, file: LakeFile, data: bytes) -> None:
        """Asks the store whether it holds the file that was put; LakeError where it does not."""
        self.store.confirm(file.key, data)

    def delete(self, file: LakeFile) -> None:
        self.store.delete(file.key)


def visible(files: list[LakeFile]) -> list[LakeFile]:
    """The files that no other one covers, in order; of two equal ranges there is only ever one name."""
    kept: list[LakeFile] = []
    # widest first within a partition, so that a file that hides another comes before it
    for file in sorted(files, key=lambda each: (each.table, each.date, each.host, each.first_seq, -each.last_seq)):
        if not (kept and kept[-1].covers(file)):
            kept.append(file)
    return kept

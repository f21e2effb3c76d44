"""What became of a fleet's rows: every interval once, files as promised, and what they cost to read over day files."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fallow import parquet, schema
from fallow.clock import DAY_MS, parse_day_ms, utc_day
from fallow.errors import FallowError
from fallow.lake import Lake, LakeFile
from fallow.stores import objects
from tests.lakes import made_lake

if TYPE_CHECKING:
    import subprocess
    from random import Random

    from tests.fleet.hosts import FleetHost
    from tests.fleet.places import Place

_TABLES = (schema.GPU, schema.HOST, schema.AGENT)
"""Tables with one row for each interval, of each GPU or of the host."""

_READINGS = 15
_MOST_READ_COST = 1.2


@dataclass
class Judge:
    lake: Lake
    place: Place
    hosts: list[FleetHost] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    seen: dict[str, object] = field(default_factory=dict)
    """Figures, by what they are."""
    looks: int = 0
    _checked_until_ms: int = 0

    def look(self, chance: Random, now_ms: int) -> None:
        """A reader in the middle of everything: what is not there yet may still come, and nothing is there twice.

        Intervals that are just being closed are left out: what the agents do meanwhile is noted afterwards.
        """
        host, date = chance.choice(self.hosts), utc_day(now_ms - chance.choice((0, 0, 1, 2)) * DAY_MS)
        table = chance.choice(_TABLES)
        with contextlib.suppress(FallowError):  # the lake is away
            files = self.lake.files(table.name, hosts=[host.name], dates=[date])
            settled_ms = host.clock.now_ms() - 2 * host.expected.interval_ms
            for gpu, times in self._times(table, files).items():
                self._tell(
                    f"while it was written, {table.name} {gpu or host.name}",
                    host,
                    times,
                    until_ms=settled_ms,
                    only=("doubled",),
                )
            self.looks += 1

    def before_expiry(self, now_ms: int, keep_days: int) -> None:
        """Compares the days that retention is about to remove, but for what still waits in a spool."""
        until_ms = (now_ms // DAY_MS - keep_days) * DAY_MS
        if until_ms > self._checked_until_ms:
            self._compare(self._checked_until_ms, until_ms)
            self._checked_until_ms = until_ms

    def everything(self, check: subprocess.CompletedProcess[str], folder: Path) -> None:
        """All that is left to compare, once every agent has ended."""
        self._compare(self._checked_until_ms, None)
        self.seen["looks in the middle of it"] = self.looks
        self.seen["rows expected"] = sum(sum(host.expected.at_least.values()) for host in self.hosts) * (
            len(self.hosts[0].gpus) + 2
        )
        if check.returncode:
            self.wrong.append(f"lake check: {check.stdout[-500:]}{check.stderr[-500:]}")
        self.seen["lake check"] = (check.stdout.strip() or check.stderr.strip()).splitlines()[-1:]
        if self.place.strays:
            self.wrong.append(f"{self.place.strays} files were written where the lake was not")
        self._count_files()
        self._compare_costs(folder)

    def _compare(self, since_ms: int, until_ms: int | None) -> None:
        for table in _TABLES:
            by_host: dict[str, list[LakeFile]] = defaultdict(list)
            for file in self.lake.files(table.name):
                if since_ms <= parse_day_ms(file.date) and (until_ms is None or parse_day_ms(file.date) < until_ms):
                    by_host[file.host].append(file)
            for host in self.hosts:
                found = self._times(table, by_host[host.name])
                for gpu in host.gpus if table is schema.GPU else ("",):
                    self._tell(
                        f"{table.name} {gpu or host.name}",
                        host,
                        found.get(gpu, Counter()),
                        since_ms=since_ms,
                        until_ms=until_ms,
                    )
                strange = found.keys() - set(host.gpus) - {""}
                if strange:
                    self.wrong.append(f"{table.name} of {host.name} has rows of {strange}")

    def _tell(
        self, what: str, host: FleetHost, times: Counter[int], *, since_ms: int = 0, until_ms: int | None = None,
        only: tuple[str, ...] = ("missing", "doubled", "foreign"),
    ) -> None:  # fmt: skip
        for fault, starts in host.expected.wrong(times, since_ms, until_ms).items():
            if fault in only:
                first = ", ".join(
                    f"{utc_day(each)} {each % DAY_MS // 60_000 // 60:02}:{each // 60_000 % 60:02}"
                    for each in starts[:4]
                )
                self.wrong.append(f"{what}: {len(starts)} {fault}: {first}")

    @staticmethod
    def _times(table: schema.LakeTable, files: list[LakeFile]) -> dict[str, Counter[int]]:
        """How often each start of an interval is there, by GPU."""
        names = ["time", "gpu"] if "gpu" in table.names else ["time"]
        if not files:
            return {}
        data = parquet.read(files, table, names)
        times = data.column("time").cast("int64").to_pylist()
        gpus = data.column("gpu").to_pylist() if "gpu" in names else [""] * len(times)
        found: dict[str, Counter[int]] = defaultdict(Counter)
        for gpu, start_ms in zip(gpus, times, strict=True):
            found[gpu][start_ms] += 1
        return found

    def _count_files(self) -> None:
        """Files of each host, table and day that is over."""
        counts: Counter[int] = Counter()
        most: dict[str, int] = {}
        last = max((file.date for table in _TABLES for file in self.lake.files(table.name)), default="")
        for table in (each for each in schema.TABLES if not each.derived):
            days = Counter((file.host, file.date) for file in self.lake.files(table.name) if file.date < last)
            counts.update(days.values())
            if days:
                most[table.name] = max(days.values())
        self.seen["host-days by files of a table"] = dict(sorted(counts.items()))
        self.seen["most files of a host-day"] = most

    def _compare_costs(self, folder: Path) -> None:
        """CPU to read the past days of the gpu table, as stored and as one sorted file each, both from a local disk."""
        files_there = self.lake.files("gpu")
        last = max((file.date for file in files_there), default="")
        by_day: dict[tuple[str, str], list[LakeFile]] = defaultdict(list)
        for file in files_there:
            if file.date < last:
                by_day[file.host, file.date].append(file)
        as_it_lies, ideal = made_lake(folder / "as-it-lies"), made_lake(folder / "day-files")
        for (host, date), files in by_day.items():
            for file in files:
                as_it_lies.store.put(file.key, _content(file))
            rows = parquet.read(files, schema.GPU).sort_by([("gpu", "ascending"), ("time", "ascending")])
            day = LakeFile("gpu", date, host, files[0].first_seq, files[-1].last_seq)
            ideal.store.put(day.key, parquet.encode(schema.GPU, rows, {"host": host}))
        readings = [
            (_read_s(as_it_lies), _read_s(ideal)) for _ in range(_READINGS)
        ]  # in turn: both meet the same machine
        now_s, ideal_s = (
            min(each) for each in zip(*readings, strict=True)
        )  # what others made slower is no cost of theirs
        ratio = now_s / ideal_s
        self.seen["gpu files, and host-days"] = (sum(map(len, by_day.values())), len(by_day))
        self.seen["read cost over day files"] = round(ratio, 3)
        if ratio > _MOST_READ_COST:
            self.wrong.append(f"reading takes {ratio:.2f} times what day files take")


def _content(file: LakeFile) -> bytes:
    return objects.read(file.url) if "://" in file.url else Path(file.url).read_bytes()


def _read_s(lake: Lake) -> float:
    """CPU seconds to list and read the gpu table."""
    began_s = time.process_time()
    parquet.read(lake.files("gpu"), schema.GPU)
    return time.process_time() - began_s

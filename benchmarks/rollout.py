"""One host's requests to an object store in a day; benchmarks/rollout_sizing.py sizes a fleet by them.

The agent's rows of ten simulated minutes (8 GPUs, 32 processes, 10 s) are repeated for two days. Its own publisher and
compaction write them into a store in memory. The requests are those of the second day, which also merges the first
day's files. The clock is simulated, so this takes seconds. docs/deploying.md has the fleet's figures.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from obstore.store import MemoryStore

from agent.settings import Compaction
from agent.spool.publisher import Publisher
from agent.spool.spool import Spool
from benchmarks.gpu_host import FLEET, PROCESSES
from benchmarks.measure import Figure
from fallow import schema
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, utc_day
from fallow.stores import objects
from tests.agent.simulation import START_MS, SimulatedHost
from tests.fakes.nvml import library_folder, standard_fleet
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.rows import Rows
    from fallow.lake import Lake

INTERVAL_MS = 10_000
PUBLISH_MS = 5 * MINUTE_MS
RECORDED_S = 600
FIRST_MS = START_MS // DAY_MS * DAY_MS
_ONCE_A_DAY = ("device", "event")
_PAGE = 1000
"""Maximum number of names in one answer to a listing."""


@dataclass
class SetClock:
    """A `fallow.clock.Clock` that stays at its set time."""

    ms: int

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000


@dataclass
class CountedStore:
    """A store in memory that counts the items of a bill: PUT and LIST, GET and HEAD, DELETE, and bytes both ways."""

    store: MemoryStore = field(default_factory=MemoryStore)
    requests: Counter[str] = field(default_factory=Counter)

    def put(self, path: str, data: bytes, **options: Any) -> Any:
        self._count("put", len(data))
        return self.store.put(path, data, **options)

    def get(self, path: str) -> Any:
        found = self.store.get(path)
        self._count("get", found.meta["size"])
        return found

    def get_range(self, path: str, *, start: int, end: int) -> Any:
        self._count("get", end - start)
        return self.store.get_range(path, start=start, end=end)

    def head(self, path: str) -> Any:
        self._count("get")
        return self.store.head(path)

    def delete(self, path: str) -> Any:
        self._count("delete")
        return self.store.delete(path)

    def list(self, prefix: str | None = None) -> Any:
        found = [each for batch in self.store.list(prefix) for each in batch]
        self._count("list", pages=len(found) // _PAGE + 1)
        self.requests["listed"] += len(found)
        return [found]

    def list_with_delimiter(self, prefix: str) -> Any:
        self._count("list")
        return self.store.list_with_delimiter(prefix)

    def _count(self, what: str, size_bytes: int = 0, pages: int = 1) -> None:
        self.requests[what] += pages
        self.requests[f"{what}_bytes"] += size_bytes


def measure() -> Iterator[Figure]:
    """Yield figures of a host's day: requests, objects, bytes, and the size of its spool without publishing."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        folder = Path(name)
        recorded = recorded_rows(folder / "recorded", patched)
        counted = CountedStore()
        patched.setattr(objects, "_client", lambda *_: counted)
        lake = made_lake("s3://bench/fallow")
        spool = Spool(str(folder / "spool"), for_agent=True)
        live_day(spool, lake, recorded, counted, FIRST_MS)
        counted.requests.clear()
        most = live_day(spool, lake, recorded, counted, FIRST_MS + DAY_MS)
        spool.close()
        left = _objects(counted, utc_day(FIRST_MS))
        spool_bytes = _day_in_spool(folder, recorded)
    how = f"one host-day, {FLEET}, 10 s rows, published every 5 min"
    for what in ("put", "list", "get", "delete"):
        yield Figure(f"rollout_{what}_requests", counted.requests[what], "1", how)
    yield Figure("rollout_sent", counted.requests["put_bytes"] / 1e6, "MB", f"{how}, merged files included")
    yield Figure("rollout_received", counted.requests["get_bytes"] / 1e6, "MB", how)
    yield Figure("rollout_objects_most", most, "1", f"{how}: at one moment")
    yield Figure("rollout_objects_left", left, "1", f"{how}: of a day that was merged")
    yield Figure("rollout_spool", spool_bytes / 1e6, "MB", "a day that nothing was published, same host")


def recorded_rows(folder: Path, patched: pytest.MonkeyPatch) -> dict[int, Rows]:
    """Return rows of every table by tick, as offset from the first; times are offsets too."""
    folder.mkdir()
    users = [subprocess.Popen(["sleep", "3600"]) for _ in range(PROCESSES)]
    try:
        scenario = standard_fleet(START_MS - 60_000, [user.pid for user in users])
        host = SimulatedHost(folder, library_folder(), made_lake(folder / "lake"), scenario, patched)
        host.run(RECORDED_S, "10s")
    finally:
        for user in users:
            user.kill()
            user.wait()
    ticks: dict[int, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for table in schema.TABLES:
        for row in [] if table.derived else host.rows(table.name):
            tick = 0 if table.name in _ONCE_A_DAY else (row["time"] - START_MS) // INTERVAL_MS
            ticks[max(0, tick)][table.name].append(
                {key: each for key, each in row.items() if each is not None and key in table.names}
            )
    return {tick: dict(rows) for tick, rows in ticks.items()}


def live_day(
    spool: Spool,
    lake: Lake,
    recorded: dict[int, Rows],
    counted: CountedStore,
    day_ms: int,
    *,
    host: str = "bench",
    hours: range = range(24),
) -> int:
    """Publish a day or some hours of it, and run its due merges. Return the maximum number of objects."""
    clock, most = SetClock(day_ms), 0
    first_ms, end_ms = (day_ms + hour * HOUR_MS for hour in (hours.start, hours.stop))
    for now_ms in range(first_ms + PUBLISH_MS, end_ms + 1, PUBLISH_MS):
        clock.ms = now_ms
        _append(spool, recorded, day_ms, now_ms - PUBLISH_MS, now_ms)
        Publisher(spool, lake, host, clock=clock, compaction=Compaction()).run()
        most = max(most, _objects(counted))
    return most


def _append(spool: Spool, recorded: dict[int, Rows], day_ms: int, since_ms: int, until_ms: int) -> None:
    count = RECORDED_S * 1000 // INTERVAL_MS
    for time_ms in range(since_ms, until_ms, INTERVAL_MS):
        number = (time_ms - day_ms) // INTERVAL_MS
        rows = recorded.get(number % count, {})
        spool.append({
            table: [row | {"time": time_ms} for row in found]
            for table, found in rows.items() if number == 0 or table not in _ONCE_A_DAY
        })  # fmt: skip


def _day_in_spool(folder: Path, recorded: dict[int, Rows]) -> int:
    spool = Spool(str(folder / "away"), for_agent=True)
    _append(spool, recorded, FIRST_MS, FIRST_MS, FIRST_MS + DAY_MS)
    spool.close()
    return sum(path.stat().st_size for path in (folder / "away").glob("spool.sqlite*"))


def _objects(counted: CountedStore, date: str = "") -> int:
    """Return the number of the lake's files, of a date or of all dates."""
    return sum(f"/date={date}" in each["path"] for batch in counted.store.list(None) for each in batch)

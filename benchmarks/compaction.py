"""The cost of small files for a reader, and of merging them: by the agent every hour, and by the service at once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.settings import Compaction
from agent.spool.compaction import CompactionNotes, OwnFilesCompactor, Small
from agent.spool.spool import Spool
from benchmarks.measure import Figure, cpu_s
from fallow.clock import DAY_MS, HOUR_MS, floor_ms, parse_day_ms
from fallow.lake import Lake

if TYPE_CHECKING:
    from collections.abc import Iterator

_PAUSE_S = 0.01
_HOST = "sim-h100-01"
"""The host of the fleet that has eight GPUs."""


def measure() -> Iterator[Figure]:
    """Yield the costs for a day of one host with 8 GPUs at 10 s, published every five minutes."""
    from benchmarks.fleet_lake import PUBLISHED_EVERY_MS, as_agents_write, fleet_of
    from fallow import parquet, schema

    with tempfile.TemporaryDirectory() as folder, as_agents_write(fleet_of(24, 1), PUBLISHED_EVERY_MS) as made:
        small, own, service = (Path(folder) / name for name in ("small", "own", "service"))
        for place in (small, own, service):
            for folder_of_host in Path(made.root).glob(f"*/*/host={_HOST}"):
                shutil.copytree(folder_of_host, place / folder_of_host.relative_to(made.root))
        rows = parquet.read(Lake.at(str(small)).files("gpu"), schema.GPU, ["time"]).num_rows
        how = f"a host's day of 8 GPUs, {rows:,} gpu rows of 10 s"
        yield from _sizes("small", small, how)
        yield from _by_agent(own, how)
        yield from _by_service(service, how)
        yield from _sizes("compacted", own, how)
        yield from _reading(small, own, service, how)


def _sizes(name: str, place: Path, how: str) -> Iterator[Figure]:
    files = [file for file in place.rglob("*.parquet") if file.is_file()]
    yield Figure(f"host_day_files_{name}", len(files), "files", how)
    yield Figure(f"host_day_bytes_{name}", sum(file.stat().st_size for file in files), "bytes", how)


def _by_agent(place: Path, how: str) -> Iterator[Figure]:
    """Yield the costs of an agent's merging, in a separate process: each hour at its end, and the day at its end."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.compaction", str(place)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    yield Figure("own_compaction_cpu", found["cpu_s"], "s", f"the agent's hours and day, {how}")
    yield Figure(
        "own_compaction_core_share", 100 * found["cpu_s"] * 1000 / DAY_MS, "%", f"of one core over the day, {how}"
    )
    yield Figure("own_compaction_day_wall", found["day_wall_s"], "s", f"of which the day at once takes, {how}")
    yield Figure(
        "own_compaction_pss_before", found["pss_before_mib"], "MiB", "the process with arro3, before it merges"
    )
    yield Figure("own_compaction_pss_hour", found["pss_hour_mib"], "MiB", f"its most while hours are merged, {how}")
    yield Figure("own_compaction_pss_day", found["pss_day_mib"], "MiB", f"its most while the day is merged, {how}")


def _by_service(place: Path, how: str) -> Iterator[Figure]:
    from fallow.compaction import LakeCompactor as Service

    before = cpu_s()
    Service(Lake.at(str(place)), 10**15, DAY_MS, HOUR_MS).run()
    yield Figure(
        "service_compaction_cpu", cpu_s() - before, "s", f"`fallow lake compact`, read back and compared, {how}"
    )


def _reading(small: Path, own: Path, service: Path, how: str) -> Iterator[Figure]:
    """Yield the CPU seconds to read all columns of all tables of agents, median of 5."""
    from benchmarks.measure import timed
    from fallow import parquet, schema

    def read(place: Path) -> None:
        lake = Lake.at(str(place))
        for table in schema.OF_AGENTS:
            parquet.read(lake.files(table.name), table)

    read(small)  # the first read includes one-time loading
    places = {"small": small, "own": own, "service": service}
    costs = {name: timed(partial(read, place), 5)[0] for name, place in places.items()}
    yield Figure("host_day_read_small_cpu", 1000 * costs["small"], "ms", f"all tables of {how}, five-minute files")
    yield Figure("host_day_read_compacted_cpu", 1000 * costs["own"], "ms", f"the same as the agent merged them, {how}")
    yield Figure(
        "host_day_read_service_cpu", 1000 * costs["service"], "ms", f"the same as the service merged them, {how}"
    )
    yield Figure(
        "host_day_read_ratio", costs["own"] / costs["service"], "ratio", f"agent's day files over the service's, {how}"
    )


@dataclass
class _Clock:
    moment_ms: int

    def now_ms(self) -> int:
        return self.moment_ms

    def monotonic_s(self) -> float:
        return self.moment_ms / 1000


class _Most:
    """The largest proportional set size of this process since the last query, in MiB."""

    def __init__(self) -> None:
        self._most = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self._most = max(self._most, pss_mib())
            time.sleep(_PAUSE_S)

    def take(self) -> float:
        taken, self._most = self._most, pss_mib()
        return taken


def pss_mib() -> float:
    for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ValueError


def main() -> None:
    """`python -m benchmarks.compaction LAKE`: merge a host's day as its agent would, and print the cost as JSON."""
    from agent.own_process import bound_memory, trim_memory

    bound_memory()
    lake = Lake.at(sys.argv[1])
    files = lake.files("gpu")
    date, host = files[0].date, files[0].host
    day_ms = parse_day_ms(date)
    with tempfile.TemporaryDirectory() as folder, closing(Spool(folder, for_agent=True)) as spool:
        clock = _Clock(day_ms)
        compactor = OwnFilesCompactor(spool, lake, host, Compaction(), clock)
        notes = CompactionNotes(lake.root, host, days={date: 0})
        for table in sorted({path.name for path in Path(lake.root).iterdir() if path.is_dir()}):
            for file in lake.files(table, dates=[date]):
                hour_ms = floor_ms(file.last_seq // 1000, HOUR_MS)
                notes.small.append(Small(table, date, hour_ms, file.first_seq, file.last_seq))
        notes.write(spool)
        most, before_mib, hour_mib = _Most(), pss_mib(), 0.0
        began_s = cpu_s()
        for hour in range(1, 25):
            clock.moment_ms = day_ms + hour * HOUR_MS + HOUR_MS // 12
            compactor.run()
            hour_mib = max(hour_mib, most.take())
            trim_memory()
        clock.moment_ms = day_ms + DAY_MS + 2 * HOUR_MS
        most.take()
        day_began_s = time.perf_counter()
        compactor.run()
        day_wall_s, day_mib = time.perf_counter() - day_began_s, most.take()
        cpu = cpu_s() - began_s
        for hours in (2, 4):
            clock.moment_ms += hours * HOUR_MS
            compactor.run()
    print(
        json.dumps(
            {
                "cpu_s": cpu,
                "day_wall_s": day_wall_s,
                "pss_before_mib": before_mib,
                "pss_hour_mib": hour_mib,
                "pss_day_mib": day_mib,
            }
        )
    )


if __name__ == "__main__":
    main()

"""Two processes import into one lake at the same moment, repeatedly; the lake must hold the union, nothing twice."""

from __future__ import annotations

import multiprocessing
import queue
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from analytics.allocations.model import ROW_SCHEMA, ReadAllocations
from analytics.allocations.publish import publish_allocations
from analytics.frames import empty
from analytics.importers.model import Imported
from analytics.importers.publish import publish
from analytics.importers.times import on_grid
from analytics.importers.values import conform
from fallow import parquet
from fallow.schema import ALLOCATION, DEVICE, GPU, REQUEST, LakeTable
from tests.attacks.writers import MIDNIGHT_MS
from tests.lakes import made_lake

if TYPE_CHECKING:
    from fallow.lake import Lake

RACERS = 2
ROWS = 300
"""Of one import in one race; two of them share a third."""

_WAIT_S = 300


@dataclass(frozen=True)
class RaceOutcome:
    """What so many races did; `failed` are imports that ended in an error."""

    races: int
    rows: int
    lost: int
    doubled: int
    failed: tuple[str, ...]


def races(count: int, lakes: str) -> RaceOutcome:
    """Each race has a lake of its own below a location: samples, allocations and the same file twice, in turn."""
    context = multiprocessing.get_context("spawn")
    start, failed = context.Barrier(RACERS), context.SimpleQueue()
    racers = [context.Process(target=_race, args=(each, count, lakes, start, failed)) for each in range(RACERS)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    return _outcome(count, lakes, failed, [f"a racer ended with {each.exitcode}" for each in racers if each.exitcode])


def races_of_threads(count: int, lakes: str) -> RaceOutcome:
    """The same within this process, which takes no time to start."""
    start, failed = threading.Barrier(RACERS), queue.SimpleQueue()
    with ThreadPoolExecutor(RACERS) as pool:
        list(pool.map(lambda racer: _race(racer, count, lakes, start, failed), range(RACERS)))
    return _outcome(count, lakes, failed, [])


def _outcome(count: int, lakes: str, failed: Any, errors: list[str]) -> RaceOutcome:
    while not failed.empty():
        errors.append(failed.get())
    rows = lost = doubled = 0
    for number in range(count):
        expected = set().union(*(_rows(number, racer) for racer in range(RACERS)))
        seen = Counter(found(_lake(lakes, number), ALLOCATION if number % 3 == 1 else GPU))
        rows += len(expected)
        lost += len(expected - seen.keys())
        doubled += seen.total() - len(seen)
    return RaceOutcome(count, rows, lost, doubled, tuple(errors))


def _race(racer: int, count: int, lakes: str, start: Any, failed: Any) -> None:
    for number in range(count):
        lake, rows = _lake(lakes, number), _rows(number, racer)
        start.wait(_WAIT_S)
        try:
            if number % 3 == 1:
                publish_allocations(lake, _allocations(rows), replace=False)
            else:
                publish(lake, samples(rows))
        except Exception as error:  # noqa: BLE001  # whatever it is, the race has failed
            failed.put(f"race {number}: {type(error).__name__}: {error}")


def _lake(lakes: str, number: int) -> Lake:
    return made_lake(f"{lakes}/{number}")


def _rows(number: int, racer: int) -> set[int]:
    """What a racer imports: both of them the same in every third race, else every third row."""
    if number % 3 == 2:
        return set(range(ROWS))
    return {row for row in range(2 * ROWS) if row % 3 in (racer, 2)}


def samples(rows: set[int]) -> Imported:
    """Rows by the number of their ten seconds, over two days."""
    frame = pl.DataFrame([{"gpu": "a", "true_ms": MIDNIGHT_MS + 300_000 * row, "gpu_util_pct": 5.0} for row in rows])
    frame, _ = on_grid(frame, 10_000)
    device = frame.sort("time").group_by("gpu", pl.col("time").dt.date().alias("day")).agg(pl.col("time").first())
    return Imported("h", frame, conform(device, DEVICE), (), "", "")


def _allocations(rows: set[int]) -> ReadAllocations:
    same = {"host": "h", "scheduler": "slurm", "gpu": "a"}
    begun = {row: MIDNIGHT_MS + 300_000 * row for row in rows}
    found = [same | {"allocation_id": f"{row}", "time": at_ms, "end": at_ms + 60_000} for row, at_ms in begun.items()]
    frame = pl.DataFrame(found, schema=ROW_SCHEMA)
    return ReadAllocations(frame, empty(REQUEST), (), "UTC", None)


def found(lake: Lake, table: LakeTable = GPU) -> list[int]:
    """The rows that a reader sees, by their numbers."""
    times = pl.Series(parquet.read(lake.files(table.name), table, ["time"]).column("time"))
    return [(moment - MIDNIGHT_MS) // 300_000 for moment in times.dt.epoch("ms")]

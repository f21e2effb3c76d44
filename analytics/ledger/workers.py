"""Builds host-days one after the other, or in several processes where there is enough to do."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import polars as pl

from analytics.ledger.day import HostDay, build_day
from analytics.ledger.settings import LedgerSettings
from fallow.errors import FallowError

Built = dict[str, pl.DataFrame]

WORTH_A_POOL_BYTES = 64 * 2**20
"""Of Parquet; below it, starting processes takes longer than the work."""

_BATCH_BYTES = 2 * 2**20
"""Of Parquet in one task, some 200,000 rows: enough that calls cost nothing, little enough for a processor's cache."""


def build_days(
    days: Sequence[HostDay], settings: LedgerSettings, workers: int
) -> Iterator[tuple[Sequence[HostDay], Built]]:
    """Host-days of one date with their parts, all in the order given, which is by date.

    Raises LakeError and its kinds, FallowError where a process died.
    """
    batches = list(_batches(days))
    count = min(workers or len(os.sched_getaffinity(0)), len(batches))
    if count < 2 or sum(map(_size, days)) < WORTH_A_POOL_BYTES:
        for batch in batches:
            yield batch, build_day(batch, settings)
        return
    try:
        with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
            yield from build_in(pool, batches, settings, ahead=2 * count)
    except BrokenProcessPool as error:
        raise FallowError(
            "a process that built the ledger was killed, probably for want of memory",
            "set ledger.workers to 1 (FALLOW_LEDGER_WORKERS=1) and run the command again",
        ) from error


def build_in(
    pool: Executor, batches: Sequence[Sequence[HostDay]], settings: LedgerSettings, *, ahead: int
) -> Iterator[tuple[Sequence[HostDay], Built]]:
    """The same through any executor; at most `ahead` tasks are under way, so that results never pile up in memory."""
    waiting: deque[tuple[Sequence[HostDay], Future[Built]]] = deque()
    for batch in batches:
        waiting.append((batch, pool.submit(build_day, batch, settings)))
        if len(waiting) >= ahead:
            done, future = waiting.popleft()
            yield done, future.result()
    for done, future in waiting:
        yield done, future.result()


def _batches(days: Sequence[HostDay]) -> Iterator[Sequence[HostDay]]:
    """Host-days of one date that follow each other, as many as make a batch."""
    batch: list[HostDay] = []
    size = 0
    for day in days:
        if batch and (day.date != batch[-1].date or size + _size(day) > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(day)
        size += _size(day)
    if batch:
        yield batch


def _size(day: HostDay) -> int:
    return sum(file.size_bytes for file in day.files["gpu"])

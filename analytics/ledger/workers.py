"""Builds host-days one after the other, or in several processes where there is enough to do."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING

from analytics.ledger.day import build_day
from fallow.errors import FallowError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    import polars as pl

    from analytics.ledger.day import HostDay
    from analytics.ledger.settings import LedgerSettings

    Built = list[dict[str, pl.DataFrame]]

WORTH_A_POOL_BYTES = 64 * 2**20
"""Of Parquet; below it, starting processes takes longer than the work."""

_BATCH = 8
"""Host-days a task, so that handing over results costs little."""


def build_days(
    days: Sequence[HostDay], settings: LedgerSettings, workers: int
) -> Iterator[tuple[HostDay, dict[str, pl.DataFrame]]]:
    """Each host-day with its parts, in the order given. Raises LakeError and its kinds, FallowError where a process died."""
    count = min(workers or len(os.sched_getaffinity(0)), len(days))
    size = sum(file.size_bytes for day in days for file in day.files["gpu"])
    if count < 2 or size < WORTH_A_POOL_BYTES:
        for day in days:
            yield day, build_day(day, settings)
        return
    try:
        with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
            yield from build_in(pool, days, settings, ahead=2 * count)
    except BrokenProcessPool as error:
        raise FallowError(
            "a process that built the ledger was killed, probably for want of memory",
            "set ledger.workers to 1 (FALLOW_LEDGER_WORKERS=1) and run the command again",
        ) from error


def build_in(
    pool: Executor, days: Sequence[HostDay], settings: LedgerSettings, *, ahead: int
) -> Iterator[tuple[HostDay, dict[str, pl.DataFrame]]]:
    """The same through any executor; at most `ahead` tasks are under way, so that results never pile up in memory."""
    waiting: deque[tuple[Sequence[HostDay], Future[Built]]] = deque()
    batches = [days[at : at + _BATCH] for at in range(0, len(days), _BATCH)]
    for batch in batches:
        waiting.append((batch, pool.submit(_build_batch, batch, settings)))
        if len(waiting) >= ahead:
            yield from _finished(*waiting.popleft())
    while waiting:
        yield from _finished(*waiting.popleft())


def _finished(batch: Sequence[HostDay], future: Future[Built]) -> Iterator[tuple[HostDay, dict[str, pl.DataFrame]]]:
    yield from zip(batch, future.result(), strict=True)


def _build_batch(days: Sequence[HostDay], settings: LedgerSettings) -> Built:
    return [build_day(day, settings) for day in days]

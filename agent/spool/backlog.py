"""The supervisor's way into the spool. Rows that the spool cannot take wait in bounded memory, in order.

On a full disk first the ballast goes, then published rows, the oldest first. Then new rows wait in memory, and
`pressure` asks for fewer rows. At last the oldest rows in memory are dropped and counted.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.spool.spool import EncodedRow, Spool, encoded
from agent.spool.spool_file import BALLAST_BYTES, Ballast, is_damaged, is_full
from fallow.clock import format_ms
from fallow.errors import SpoolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.rows import EventRow, Rows

MEMORY_BYTES = 2 << 20
"""The memory for rows: half an hour of eight GPUs, or about five hours because the agent then samples less often."""

ROOM_BYTES = 16 << 20
"""Free disk space above which a full disk no longer counts as full."""

CALM_S = 300.0
"""How long the load must stay lower before `pressure` falls by one, so that sampling does not change back and forth."""

_ROW_BYTES = 150  # Python's memory for a row besides its text
_WRITTEN_AT_ONCE_BYTES = 1 << 16  # the log of a commit has to fit on a nearly full disk
_ALMOST_FULL = (0.75, 0.9)  # shares of the largest size from which on pressure is 1 and 2
_MEMORY_FULL = (0.1, 0.5)  # shares of the rows that memory may hold

log = logging.getLogger("fallow.agent")


@dataclass
class _Entry:
    """The rows and facts of one `append`. They reach the spool in one commit."""

    rows: list[EncodedRow]
    facts: dict[str, str]
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.size_bytes = sum(len(body) + _ROW_BYTES for _, _, body in self.rows)


@dataclass
class _Dropped:
    """The count and the times of rows that fitted neither on the disk nor in memory."""

    count: int = 0
    first_ms: int = 0
    last_ms: int = 0

    def add(self, rows: list[EncodedRow]) -> None:
        times = [time_ms for _, time_ms, _ in rows] + ([self.first_ms, self.last_ms] if self.count else [])
        self.count += len(rows)
        self.first_ms, self.last_ms = min(times), max(times)

    def __str__(self) -> str:
        return f"{self.count} rows from {format_ms(self.first_ms)} to {format_ms(self.last_ms)} were dropped"


class Backlog:
    """Rows that wait for a spool of limited size."""

    def __init__(
        self,
        spool: Spool,
        spool_max_bytes: int,
        *,
        memory_bytes: int = MEMORY_BYTES,
        ballast_bytes: int = BALLAST_BYTES,
        room_bytes: int = ROOM_BYTES,
        calm_s: float = CALM_S,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spool_max_bytes = spool_max_bytes
        self.pressure = 0
        """0: none, 1: sample less, 2: sample as little as possible."""
        self._spool = spool
        self._memory_bytes = memory_bytes
        self._ballast_bytes = ballast_bytes
        self._room_bytes = room_bytes
        self._calm_s = calm_s
        self._monotonic_s = monotonic_s
        self._queue: deque[_Entry] = deque()
        self._queue_bytes = 0
        self._dropped = _Dropped()
        self._full = self._at_limit = self._failing = False
        self._calm_since_s = monotonic_s()
        self._incidents: list[EventRow] = []
        self._ballast = Ballast(spool.folder, ballast_bytes)
        self._ballast_held = self._ballast.take()
        if spool.mended:
            self._tell("spool_failed", spool.mended)

    @property
    def memory_rows(self) -> int:
        """Return the number of rows that wait in memory for the spool."""
        return sum(len(entry.rows) for entry in self._queue)

    def take_incidents(self) -> list[EventRow]:
        """Return the events since the last call: kind (disk_full, spool_failed, rows_dropped) and detail."""
        taken, self._incidents = self._incidents, []
        return taken

    def append(self, rows: Rows, facts: Mapping[str, str] | None = None) -> None:
        """Spool rows and facts in one commit, now or as soon as possible; never raises SpoolError."""
        self._queue.append(entry := _Entry(encoded(rows), dict(facts or {})))
        self._queue_bytes += entry.size_bytes
        self._flush()
        self._drop_oldest()
        self._adapt()

    def close(self) -> None:
        """Write the rows in memory, and log the number of rows that are lost with this process."""
        self._flush()
        if self._queue:
            log.error("%d rows in memory are lost: they could not be written to the spool", self.memory_rows)

    def _flush(self) -> None:
        """Write the rows in memory, the oldest first, until all are written or the spool takes no more."""
        tried = False
        while self._queue and self._has_room():
            chunk = self._chunk()
            facts: dict[str, str] = {}
            for entry in chunk:
                facts |= entry.facts
            try:
                self._spool.write([row for entry in chunk for row in entry.rows], facts)
            except SpoolError as error:
                if not self._help(error, again=tried):
                    return
                tried = True
                continue
            for entry in chunk:
                self._queue.popleft()
                self._queue_bytes -= entry.size_bytes
        if not self._queue:
            self._failing = self._at_limit = False
            if self._dropped.count:
                self._tell("rows_dropped", f"{self._dropped}: neither the disk nor memory had room for them")
                self._dropped = _Dropped()

    def _chunk(self) -> list[_Entry]:
        """Return the oldest entries, as many as fit into one commit, but at least one."""
        chunk: list[_Entry] = []
        size_bytes = 0
        for entry in self._queue:
            size_bytes += entry.size_bytes
            if chunk and size_bytes > _WRITTEN_AT_ONCE_BYTES:
                break
            chunk.append(entry)
        return chunk

    def _has_room(self) -> bool:
        """Return whether the next rows fit, after published rows made room for them.

        The last free space of a full disk stays free: publishing needs that space, and frees more.
        """
        if not self._full and self._spool.file_bytes < _ALMOST_FULL[0] * self.spool_max_bytes:
            return True
        needed_bytes = 2 * self._queue[0].size_bytes + _WRITTEN_AT_ONCE_BYTES
        while (live_bytes := self._live_bytes()) is not None:
            room_bytes = self._spool.file_bytes - live_bytes
            room_bytes += max(0, self._spool.free_disk_bytes() - self._ballast_bytes)
            too_large = live_bytes + needed_bytes > self.spool_max_bytes
            if not too_large and not (self._full and room_bytes < needed_bytes):
                return True
            if not self._forget_published():
                if too_large and not self._at_limit:
                    self._at_limit = True
                    self._tell("disk_full", "the spool has grown to agent.spool_max: rows wait in memory")
                return False
        return True  # the write itself will show the error

    def _help(self, error: SpoolError, *, again: bool) -> bool:
        """Handle an error of the spool. Return False where rows have to wait in memory."""
        if is_full(error):
            if not self._full:
                self._full = True
                self._tell("disk_full", f"the disk of the spool {self._spool.folder} is full: rows wait in memory")
            if again:
                return self._forget_published()
            self._ballast.release()
            self._ballast_held = False
            with contextlib.suppress(SpoolError):
                self._spool.checkpoint()  # a log that restarts needs no more space
            return True
        if is_damaged(error) and not again:
            with contextlib.suppress(SpoolError):
                self._tell("spool_failed", self._spool.quarantine())
                return True
        if not self._failing:
            self._failing = True
            self._tell("spool_failed", f"rows wait in memory: {error}")
        return False

    def _drop_oldest(self) -> None:
        """Drop the oldest rows, to bound memory. Facts of dropped entries stay, because later rows may need them."""
        while self._queue_bytes > self._memory_bytes and len(self._queue) > 1:
            entry = self._queue.popleft()
            self._queue_bytes -= entry.size_bytes
            self._queue[0].facts = entry.facts | self._queue[0].facts
            if entry.rows:
                if not self._dropped.count:
                    log.error("the spool takes no rows, and the memory for them is full: the oldest rows are dropped")
                self._dropped.add(entry.rows)

    def _adapt(self) -> None:
        """Update whether the disk is full, and `pressure`, which rises at once and falls in steps."""
        if not self._ballast_held and self._spool.free_disk_bytes() >= self._room_bytes and not self._queue:
            self._full = False
            self._ballast_held = self._ballast.take()
        level = max(_level(self._queue_bytes / self._memory_bytes, _MEMORY_FULL), _level(self._share(), _ALMOST_FULL))
        level = max(level, int(self._full), 2 * int(self._at_limit))
        now_s = self._monotonic_s()
        if level >= self.pressure:
            self.pressure, self._calm_since_s = level, now_s
        elif now_s - self._calm_since_s >= self._calm_s:
            self.pressure, self._calm_since_s = self.pressure - 1, now_s

    def _share(self) -> float:
        """Return the used share of the spool's maximum size, without published rows, which can go at any time."""
        if self._spool.file_bytes < _ALMOST_FULL[0] * self.spool_max_bytes:
            return 0.0
        while (live_bytes := self._live_bytes()) is not None:
            share = live_bytes / self.spool_max_bytes
            if share < _ALMOST_FULL[0] or not self._forget_published():
                return share
        return 0.0

    def _live_bytes(self) -> int | None:
        with contextlib.suppress(SpoolError):
            return self._spool.live_bytes()
        return None

    def _forget_published(self) -> bool:
        """Delete the oldest published batch. Return False where there is none."""
        with contextlib.suppress(SpoolError):
            batch = self._spool.oldest_batch()
            if batch is not None:
                self._spool.forget_until(batch)
                return True
        return False

    def _tell(self, kind: str, detail: str) -> None:
        self._incidents.append({"kind": kind, "detail": detail})


def _level(share: float, steps: tuple[float, float]) -> int:
    return sum(share >= step for step in steps)

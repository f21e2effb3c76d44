"""Follows one server: every few minutes what is new, with a little of what was read before, for samples that came late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from analytics.scraped.chunks import days
from analytics.scraped.following.day_merging import DayMerging
from analytics.scraped.following.newest_hour import newest_hour_ms
from analytics.scraped.following.status import StatusBoard
from analytics.scraped.journal import ReadSpan
from analytics.scraped.lake_writer import LakeWriter, WriterSettings
from analytics.scraped.reading import ReadChunk, ReadingStoppedError, SiteReader
from analytics.scraped.server.metrics_server import MetricsServer
from analytics.scraped.source import ScrapedSource
from analytics.scraped.totals import ReadTotals
from analytics.scraped.windows import WindowWork
from fallow.clock import DAY_MS, HOUR_MS, SECOND_MS, Clock, floor_ms, format_duration, format_ms
from fallow.errors import FallowError, InputError, LakeError, NoLakeError
from fallow.lake import Lake
from fallow.lake_init import require_marker
from fallow.pseudonyms import Pseudonyms

_FIRST_PAUSE_MS = 10 * SECOND_MS
_CLOCKS_APART_MS = 2 * SECOND_MS


@dataclass(frozen=True)
class FollowSettings:
    """Milliseconds."""

    every_ms: int
    late_ms: int
    first_ms: int
    """How far back a follower begins that finds neither a journal nor rows of scraped hours."""

    lateness_ms: int
    grace_ms: int
    pseudonyms: Pseudonyms | None = None


@dataclass
class Follower:
    """`round` does what is due; whoever calls it waits in between for as long as it says."""

    source: ScrapedSource
    lake: Lake
    settings: FollowSettings
    clock: Clock
    board: StatusBoard
    say: Callable[[str], None]
    stopped: Callable[[], bool] = lambda: False
    connect: Callable[[], MetricsServer] | None = None
    _open: ExitStack = field(default_factory=ExitStack)
    _reading: WindowWork | None = None
    _failures: int = 0
    _said: str = ""
    _lake_id: str = ""

    def __post_init__(self) -> None:
        self._merging = DayMerging(self.lake, self.settings.grace_ms, self.settings.lateness_ms, self.stopped)

    def round(self) -> int:
        """Reads up to now; returns how many milliseconds to wait. Raises ReadingStoppedError and nothing that may pass by itself."""
        try:
            self._catch_up()
        except FallowError as error:
            return self._failed(error)
        self._failures, self._said = 0, ""
        now_ms = self.clock.now_ms()
        return self.settings.every_ms - now_ms % self.settings.every_ms

    def close(self) -> None:
        self._open.close()
        self._reading = None

    def _failed(self, error: FallowError) -> int:
        """Says what is wrong once, and waits longer each time."""
        if str(error) != self._said:
            self._said = str(error)
            self.say(str(error))
        kind = (
            "the lake"
            if isinstance(error, LakeError)
            else "the metrics server"
            if isinstance(error, InputError)
            else "this host"
        )
        status = self.board.status
        self.board.status = replace(status, refusals=status.refusals + 1, failing=f"{kind} fails: the log says how")
        if isinstance(error, InputError):  # a server that was replaced may be read another way
            self.close()
        self._failures += 1
        return int(min(self.settings.every_ms, _FIRST_PAUSE_MS * 2 ** (self._failures - 1)))

    def _catch_up(self) -> None:
        """All windows up to now. Raises FallowError and ReadingStoppedError."""
        self._require_lake()
        work = self._connected()
        offset_ms = work.server.measured_offset_ms()
        self.board.status = replace(self.board.status, offset_ms=offset_ms)
        now_ms = self.clock.now_ms() + (offset_ms or 0)
        span = self._position(now_ms)
        for start_ms, end_ms in _windows(span.until_ms, now_ms):
            work.writer.settings = replace(work.writer.settings, hourly=end_ms - start_ms <= HOUR_MS)
            self._run_window(work, start_ms, end_ms)
            settled_ms = max(span.until_ms, min(end_ms, now_ms - self.settings.late_ms))
            self.source.journal(self.lake).add(ReadSpan(span.since_ms, settled_ms))
        merged = self._merging.run(now_ms, self.clock.now_ms())
        self.board.status = replace(self.board.status, merged_days=self.board.status.merged_days + merged)

    def _require_lake(self) -> None:
        """Raises NoLakeError where the lake, or the lake of before, is not there."""
        marker = require_marker(self.lake)
        if self._lake_id not in {"", marker.id}:
            raise NoLakeError(
                f"the lake at {self.lake.root} is another one than before: its id is {marker.id}, and was {self._lake_id}",
                "mount the right one, or start the follower anew",
            )
        self._lake_id = marker.id

    def _run_window(self, work: WindowWork, start_ms: int, end_ms: int) -> None:
        totals = ReadTotals()
        work.writer.totals = totals
        targets = len({instance for host in work.run(start_ms, end_ms).hosts for instance in host.instances})
        self.board.status = self.board.status.after(totals, end_ms, targets, self.clock.now_ms())

    def _position(self, now_ms: int) -> ReadSpan:
        """Up to where all is in the lake: as the journal has it, else as the files of scraped hours have it.

        What is not yet old enough to be complete counts as unread, whatever was read while the server's clock was ahead.
        Of several stretches the first one of the last week counts: somebody may have imported an hour while the follower was away.
        """
        found = self.source.journal(self.lake).read()
        if found:
            span = next((each for each in found if each.until_ms >= now_ms - 7 * DAY_MS), found[-1])
            return replace(span, until_ms=max(span.since_ms, min(span.until_ms, now_ms - self.settings.late_ms)))
        newest_ms = newest_hour_ms(self.lake, now_ms)
        start_ms = now_ms - self.settings.first_ms if newest_ms is None else newest_ms
        self.say(f"begins at {format_ms(start_ms)}")
        return ReadSpan(start_ms, start_ms)

    def _connected(self) -> WindowWork:
        if self._reading is None:
            server = self._open.enter_context(self.connect() if self.connect else self.source.connect())
            reader = self._open.enter_context(SiteReader(server, self.source, self.stopped))
            writer = LakeWriter(
                self.lake, WriterSettings(hourly=True, pseudonyms=self.settings.pseudonyms), ReadTotals()
            )
            self._reading = WindowWork(server, reader, writer, self.source.match, lambda _: None, self._told)
            self._say_connected(server)
        return self._reading

    def _say_connected(self, server: MetricsServer) -> None:
        offset_ms = server.clock_offset_ms()
        self.board.status = replace(self.board.status, offset_ms=offset_ms)
        self.say(f"follows {server.name} at {self.source.address.url}, by {server.way}")
        if offset_ms is not None and abs(offset_ms) >= _CLOCKS_APART_MS:
            apart = format_duration(abs(offset_ms) // SECOND_MS * SECOND_MS)
            self.say(
                f"the server's clock is {apart} {'ahead of' if offset_ms > 0 else 'behind'} this host's; the server's counts"
            )

    def _told(self, _: ReadChunk) -> None:
        self.board.status = replace(self.board.status, worked_at_ms=self.clock.now_ms())
        if self.stopped():
            raise ReadingStoppedError


def _windows(since_ms: int, until_ms: int) -> Iterator[tuple[int, int]]:
    """Whole days up to yesterday, whose rows go into files of a day as an import's do, and then hours."""
    recent_ms = max(since_ms, floor_ms(until_ms, DAY_MS) - DAY_MS)
    yield from days(since_ms, recent_ms)
    yield from days(recent_ms, until_ms, HOUR_MS)

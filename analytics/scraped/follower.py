"""`fallow follow prometheus`: copies a metrics server's new samples into the lake every few minutes until stopped."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from analytics.importers.kinds import add_key_argument, pseudonyms_of
from analytics.scraped.lake_writer import DayMerging, LakeWriter, WriterSettings
from analytics.scraped.reading import ReadChunk, ReadingStoppedError, SiteReader, days
from analytics.scraped.server.metrics_server import MetricsServer
from analytics.scraped.service import Stop, open_pages, patience_ms
from analytics.scraped.source import ReadSpan, ScrapedSource, add_server_flags, server_settings
from analytics.scraped.totals import ReadTotals
from analytics.scraped.windows import WindowWork
from fallow.clock import (
    DAY_MS,
    HOUR_MS,
    SECOND_MS,
    Clock,
    SystemClock,
    floor_ms,
    format_duration,
    format_ms,
    parse_duration_ms,
    utc_day,
)
from fallow.config import Config
from fallow.errors import FallowError, InputError, LakeError, NoLakeError
from fallow.exposition import ExposedSamples, Family
from fallow.lake import AGENT_FIRST_SEQ, Lake
from fallow.lake_init import require_marker
from fallow.output import say
from fallow.pseudonyms import Pseudonyms
from fallow.schema import GPU

_BACK_DAYS = 7


def newest_hour_ms(lake: Lake, now_ms: int) -> int | None:
    """Return the start of the newest hour that followers wrote, for the host that is furthest behind, or None.

    Only the last week counts. Several followers may share a lake, and one of them may have been away. Their files are
    named for whole hours, unlike those of other imports; an incomplete hour is read again. Raises LakeError.
    """
    if not lake.store.exists():
        return None
    newest: dict[str, int] = {}
    for file in lake.files(GPU.name, dates=[utc_day(now_ms - back * DAY_MS) for back in range(_BACK_DAYS + 1)]):
        end_ms = file.last_seq + 1
        if file.last_seq < AGENT_FIRST_SEQ and file.first_seq % HOUR_MS == 0 and end_ms % HOUR_MS == 0:
            newest[file.host] = max(end_ms - HOUR_MS, newest.get(file.host, 0))
    return min(newest.values(), default=None)


def _seconds(name: str, meaning: str) -> Family:
    return Family(f"fallow_follow_{name}", "s", meaning, "", 0.001)


def _count(name: str, meaning: str) -> Family:
    return Family(f"fallow_follow_{name}", "1", meaning, "", kind="counter" if name.endswith("_total") else "gauge")


_FAMILIES: Mapping[str, Family] = {
    "lag_ms": _seconds("lag_seconds", "time since the end of the newest window that is in the lake"),
    "position_ms": _seconds("position_timestamp_seconds", "time up to which all data is in the lake, since the epoch"),
    "offset_ms": _seconds("clock_offset_seconds", "seconds by which the server's clock is ahead of this host's"),
    "targets": _count("targets", "targets with samples in the newest window"),
    "gpus": _count("gpus", "GPUs with samples in the newest window"),
    "silent_gpus": _count("silent_gpus", "GPUs of the last 24 hours without samples in the newest window"),
    "windows": _count("windows_total", "windows that are in the lake"),
    "samples": _count("samples_total", "samples read, those of overlaps again"),
    "new_rows": _count("new_rows_total", "rows written that were not there"),
    "changed_rows": _count("changed_rows_total", "rows that got other values"),
    "agent_rows": _count("agent_rows_total", "rows left out because agents have them"),
    "dropped": _count("dropped_total", "samples and values that make no row"),
    "refusals": _count("refusals_total", "rounds that ended with an error"),
    "merged_days": _count("merged_days_total", "days of hosts and tables made one file"),
}


@dataclass(frozen=True)
class FollowStatus:
    """Counts since the start; None where nothing is known yet."""

    position_ms: int | None = None
    worked_at_ms: int | None = None
    """Time at which the newest part of a window was finished, by this host's clock."""

    offset_ms: int | None = None
    targets: int | None = None
    gpus: int | None = None
    silent_gpus: int | None = None
    windows: int = 0
    samples: int = 0
    new_rows: int = 0
    changed_rows: int = 0
    agent_rows: int = 0
    dropped: int = 0
    refusals: int = 0
    merged_days: int = 0
    failing: str = ""
    """The kind of failure, without names and addresses, because anyone may ask."""

    last_seen_ms: Mapping[str, int] = field(default_factory=dict)
    """When each GPU of the last 24 hours last had samples."""

    def after(self, totals: ReadTotals, end_ms: int, targets: int, at_ms: int) -> FollowStatus:
        """Return the status after a window that ended at `end_ms` and is in the lake."""
        seen = {gpu: last for gpu, last in self.last_seen_ms.items() if last > end_ms - DAY_MS}
        seen |= dict.fromkeys(totals.gpus, end_ms)
        published = totals.published.values()
        return replace(
            self,
            position_ms=end_ms,
            worked_at_ms=at_ms,
            targets=targets,
            gpus=len(totals.gpus),
            silent_gpus=len(seen) - len(totals.gpus),
            windows=self.windows + 1,
            samples=self.samples + totals.samples,
            new_rows=self.new_rows + sum(each.new for each in published),
            changed_rows=self.changed_rows + sum(each.replaced for each in published),
            agent_rows=self.agent_rows + totals.of_agents,
            dropped=self.dropped + totals.dropped.total(),
            failing="",
            last_seen_ms=seen,
        )


class StatusBoard:
    """The newest status, written by one thread and read by others."""

    def __init__(self, clock: Clock, every_ms: int) -> None:
        self._clock = clock
        self._began_ms = clock.now_ms()
        self._patience_ms = patience_ms(every_ms)
        self.status = FollowStatus()

    def metrics(self) -> ExposedSamples:
        status, samples = self.status, ExposedSamples()
        now_ms = self._clock.now_ms() + (status.offset_ms or 0)
        values = vars(status) | {"lag_ms": None if status.position_ms is None else max(0, now_ms - status.position_ms)}
        for name, family in _FAMILIES.items():
            value = values[name]
            samples.add(family, value if value is None or family.factor == 1 else round(value * family.factor, 3))
        return samples

    def health(self) -> tuple[int, dict[str, object]]:
        """Return 503 where nothing was finished for a while: a restart may help, or the log names the fault."""
        status = self.status
        quiet_ms = self._clock.now_ms() - (status.worked_at_ms or self._began_ms)
        content: dict[str, object] = {"status": "starting" if status.position_ms is None else "ok"}
        if status.position_ms is not None:
            content["position"] = format_ms(status.position_ms)
        if status.failing:
            content |= {"status": "failing", "reason": status.failing}
        if quiet_ms > self._patience_ms:
            content |= {"status": "stale", "quiet_seconds": quiet_ms // SECOND_MS}
            return 503, content
        return 200, content


_FIRST_PAUSE_MS = 10 * SECOND_MS
_CLOCKS_APART_MS = 2 * SECOND_MS


@dataclass(frozen=True)
class FollowSettings:
    """Milliseconds."""

    every_ms: int
    late_ms: int
    first_ms: int
    """The time before now at which a follower without a journal and without rows of scraped hours starts."""

    lateness_ms: int
    grace_ms: int
    pseudonyms: Pseudonyms | None = None


@dataclass
class Follower:
    """`round` does all work that is due; its caller waits for the returned time between rounds."""

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
    _reported: str = ""
    _lake_id: str = ""

    def __post_init__(self) -> None:
        self._merging = DayMerging(self.lake, self.settings.grace_ms, self.settings.lateness_ms, self.stopped)

    def round(self) -> int:
        """Read up to now, and return the milliseconds to wait.

        Raises ReadingStoppedError, but no error that may pass by itself.
        """
        try:
            self._catch_up()
        except FallowError as error:
            return self._wait_after_failure(error)
        self._failures, self._reported = 0, ""
        now_ms = self.clock.now_ms()
        return self.settings.every_ms - now_ms % self.settings.every_ms

    def close(self) -> None:
        self._open.close()
        self._reading = None

    def _wait_after_failure(self, error: FallowError) -> int:
        """Report the error once, and return a longer wait each time."""
        if str(error) != self._reported:
            self._reported = str(error)
            self.say(str(error))
        kind = (
            "the lake"
            if isinstance(error, LakeError)
            else "the metrics server"
            if isinstance(error, InputError)
            else "this host"
        )
        status = self.board.status
        self.board.status = replace(
            status, refusals=status.refusals + 1, failing=f"{kind} fails: the log has the details"
        )
        if isinstance(error, InputError):  # a server that was replaced may need another way of reading
            self.close()
        self._failures += 1
        return int(min(self.settings.every_ms, _FIRST_PAUSE_MS * 2 ** (self._failures - 1)))

    def _catch_up(self) -> None:
        """Read all windows up to now. Raises FallowError and ReadingStoppedError."""
        self._require_lake()
        work = self._connected_work()
        offset_ms = work.server.measured_offset_ms()
        self.board.status = replace(self.board.status, offset_ms=offset_ms)
        now_ms = self.clock.now_ms() + (offset_ms or 0)
        interval = self._position(now_ms)
        for start_ms, end_ms in _windows(interval.until_ms, now_ms):
            work.writer.settings = replace(work.writer.settings, hourly=end_ms - start_ms <= HOUR_MS)
            totals = ReadTotals()
            work.writer.totals = totals
            targets = len({instance for host in work.run(start_ms, end_ms).hosts for instance in host.instances})
            self.board.status = self.board.status.after(totals, end_ms, targets, self.clock.now_ms())
            settled_ms = max(interval.until_ms, min(end_ms, now_ms - self.settings.late_ms))
            self.source.journal(self.lake).add(ReadSpan(interval.since_ms, settled_ms))
        merged = self._merging.run(now_ms, self.clock.now_ms())
        self.board.status = replace(self.board.status, merged_days=self.board.status.merged_days + merged)

    def _require_lake(self) -> None:
        """Raise NoLakeError where the lake is missing, or is another lake than before."""
        marker = require_marker(self.lake)
        if self._lake_id not in {"", marker.id}:
            raise NoLakeError(
                f"the lake at {self.lake.root} is not the same as before: its id is {marker.id}, and was"
                f" {self._lake_id}",
                "mount the right lake, or restart the follower",
            )
        self._lake_id = marker.id

    def _position(self, now_ms: int) -> ReadSpan:
        """Return the interval up to which all data is in the lake, by the journal, else by the files of scraped hours.

        Data that is too recent to be complete counts as unread, even if it was read while the server's clock was ahead.
        Of several intervals the first one of the last week counts: an hour may have been imported while the follower
        was away.
        """
        found = self.source.journal(self.lake).read()
        if found:
            interval = next((each for each in found if each.until_ms >= now_ms - 7 * DAY_MS), found[-1])
            return replace(
                interval, until_ms=max(interval.since_ms, min(interval.until_ms, now_ms - self.settings.late_ms))
            )
        newest_ms = newest_hour_ms(self.lake, now_ms)
        start_ms = now_ms - self.settings.first_ms if newest_ms is None else newest_ms
        self.say(f"begins at {format_ms(start_ms)}")
        return ReadSpan(start_ms, start_ms)

    def _connected_work(self) -> WindowWork:
        if self._reading is None:
            server = self._open.enter_context(self.connect() if self.connect else self.source.connect())
            reader = self._open.enter_context(SiteReader(server, self.source, self.stopped))
            writer = LakeWriter(
                self.lake, WriterSettings(hourly=True, pseudonyms=self.settings.pseudonyms), ReadTotals()
            )
            self._reading = WindowWork(self.source, server, reader, writer, lambda _: None, self._add_chunk)
            self._say_connected(server)
        return self._reading

    def _say_connected(self, server: MetricsServer) -> None:
        offset_ms = server.clock_offset_ms()
        self.board.status = replace(self.board.status, offset_ms=offset_ms)
        self.say(f"follows {server.name} at {self.source.address.url}, by {server.way}")
        if offset_ms is not None and abs(offset_ms) >= _CLOCKS_APART_MS:
            apart = format_duration(abs(offset_ms) // SECOND_MS * SECOND_MS)
            self.say(
                f"the server's clock is {apart} {'ahead of' if offset_ms > 0 else 'behind'} this host's; the server's"
                " counts"
            )

    def _add_chunk(self, _: ReadChunk) -> None:
        self.board.status = replace(self.board.status, worked_at_ms=self.clock.now_ms())
        if self.stopped():
            raise ReadingStoppedError


def _windows(since_ms: int, until_ms: int) -> Iterator[tuple[int, int]]:
    """Yield whole days up to yesterday, whose rows go into files of a day as in an import, and then hours."""
    recent_ms = max(since_ms, floor_ms(until_ms, DAY_MS) - DAY_MS)
    yield from days(since_ms, recent_ms)
    yield from days(recent_ms, until_ms, HOUR_MS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_server_flags(parser)
    parser.add_argument("--every", metavar="DURATION", help="how often to read (default: prometheus.every)")
    parser.add_argument(
        "--late", metavar="DURATION", help="time that is read again before the newest sample (default: prometheus.late)"
    )
    parser.add_argument(
        "--since", default="1h", metavar="DURATION", help="how far back to start on the first run (default: 1h)"
    )
    parser.add_argument(
        "--listen", metavar="ADDRESS", help="address:port of /metrics and /healthz (default: follow.listen)"
    )
    parser.add_argument("--once", action="store_true", help="read once and exit")
    parser.add_argument("--lake", help="location of the lake (default: lake.path)")
    parser.add_argument("--config", metavar="FILE", help="config file (default: /etc/fallow/fallow.toml)")
    add_key_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Return after SIGTERM or Ctrl-C. Raises ConfigError and UsageError, and LakeError where there is no lake."""
    settings = server_settings(
        args, prometheus__every=args.every, prometheus__late=args.late, follow__listen=args.listen
    )
    clock, stop = SystemClock(), Stop()
    board = StatusBoard(clock, settings.integer("prometheus.every"))
    lake = Lake.at(settings.require("lake.path", "--lake"))
    require_marker(lake)
    follower = Follower(
        ScrapedSource.of(settings), lake, _follow_settings(args, settings), clock, board, say, stop.is_asked
    )
    with ExitStack() as opened:
        opened.callback(follower.close)
        open_pages(opened, settings, board.metrics, board.health)
        return _follow(follower, stop, once=args.once)


def _follow(follower: Follower, stop: Stop, *, once: bool) -> int:
    try:
        while not stop.is_asked():
            pause_ms = follower.round()
            if once:
                return 1 if follower.board.status.failing else 0
            stop.wait(pause_ms / SECOND_MS)
    except ReadingStoppedError:
        pass
    say(f"stopped following {follower.source.address.url}; the next start continues from here")
    return 0


def _follow_settings(args: argparse.Namespace, settings: Config) -> FollowSettings:
    return FollowSettings(
        every_ms=settings.integer("prometheus.every"),
        late_ms=settings.integer("prometheus.late"),
        first_ms=parse_duration_ms(args.since),
        lateness_ms=settings.integer("compaction.lateness"),
        grace_ms=settings.integer("compaction.grace"),
        pseudonyms=pseudonyms_of(args, settings),
    )

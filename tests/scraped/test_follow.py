"""`fallow follow prometheus`, an hour in seconds: outages, late samples, restarts, ends of days, its own metrics."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from analytics.mapping.mapping_file import load_exporters
from analytics.scraped.follower import Follower, FollowSettings, StatusBoard, newest_hour_ms
from analytics.scraped.lake_writer import DayMerging
from analytics.scraped.reading import ReadingStoppedError, SiteReader
from analytics.scraped.server.address import ServerAddress
from analytics.scraped.server.connection import ServerLimits
from analytics.scraped.server.metrics_server import MetricsServer
from analytics.scraped.source import ReadSpan, ScrapedSource
from fallow import parquet
from fallow.clock import HOUR_MS, MINUTE_MS, SystemClock
from fallow.http_server import HttpServer, MetricsPages
from fallow.lake import LakeFile
from fallow.schema import GPU
from tests.conftest import REPOSITORY, clean_environment
from tests.delivery.hands import Hands
from tests.in_process import run_in_process
from tests.lakes import made_lake
from tests.scraped.exposed import DCGM, Exposed, facts_in, facts_of
from tests.scraped.gateway import Answered, Gateway
from tests.scraped.held_server import HeldServer
from tests.scraped.servers import wait_until
from tests.scraped.site import GPUS, dcgm, labels_of, site_samples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from analytics.scraped.samples import Labels
    from fallow.lake import Lake
    from tests.scraped.gateway import Asked
    from tests.scraped.servers import MetricsProcess

MIDNIGHT_MS = 1_795_651_200_000  # 2026-11-26T00:00Z
SITE = GPUS[3:5]
"""A busy card on gn001, and one on gn002 that is held and idle."""

EVERY_MS = 5 * MINUTE_MS
SOURCE = ScrapedSource(ServerAddress("http://held:9090"), ServerLimits(), load_exporters(), "", None, "")


class Site:
    """A server, a lake and the follower between them, whose clock the test moves."""

    def __init__(self, lake: Lake, start_ms: int, end_ms: int, first_ms: int = EVERY_MS) -> None:
        self.lake, self.clock = lake, Hands(start_ms)
        self.samples: Sequence[Exposed] = list(site_samples(dcgm, range(start_ms, end_ms, MINUTE_MS), SITE))
        self.server = HeldServer(now_ms=self.clock.now_ms)
        self.server.write(self.samples)
        self.said: list[str] = []
        self.stopping = False
        self._first_ms = first_ms
        self.start()

    def start(self) -> None:
        """A new process, as after kill -9."""
        self.board = StatusBoard(self.clock, EVERY_MS)
        settings = FollowSettings(EVERY_MS, 10 * MINUTE_MS, self._first_ms, 15 * MINUTE_MS, HOUR_MS)
        self.follower = Follower(
            SOURCE, self.lake, settings, self.clock, self.board, self.said.append, lambda: self.stopping,
            lambda: self.server,  # type: ignore[arg-type,return-value]
        )  # fmt: skip

    def run_until(self, end_ms: int) -> None:
        while self.clock.at_ms < end_ms:
            self.clock.at_ms += self.follower.round()

    @property
    def lag_ms(self) -> int:
        assert self.board.status.position_ms is not None
        return self.clock.at_ms - self.board.status.position_ms


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_every_sample_is_there_once_whatever_happened(lake: Lake, state: Path) -> None:
    """Across midnight: samples up to 9 minutes late, the server away, another import of 2 minutes, a lost journal."""
    start_ms, end_ms = MIDNIGHT_MS - 30 * MINUTE_MS, MIDNIGHT_MS + 45 * MINUTE_MS
    site = Site(lake, start_ms, end_ms)

    def late(labels: Labels, time_ms: int) -> int:
        return time_ms + (time_ms // MINUTE_MS % 10 * MINUTE_MS if labels["UUID"] == SITE[0].uuid else 0)

    site.server.arrives = late
    site.run_until(start_ms + 20 * MINUTE_MS)
    site.server.away = True
    site.run_until(start_ms + 45 * MINUTE_MS)
    site.server.away = False
    SOURCE.journal(lake).add(ReadSpan(start_ms + 42 * MINUTE_MS, start_ms + 44 * MINUTE_MS))
    site.start()
    site.run_until(start_ms + 60 * MINUTE_MS)
    for journal in (state / "fallow/prometheus").iterdir():
        journal.unlink()
    site.start()
    site.run_until(end_ms + 15 * MINUTE_MS)
    assert facts_in(lake, DCGM) == facts_of(site.samples, DCGM)
    assert site.lag_ms <= EVERY_MS
    assert site.said.count("no connection to the server; start it") == 1
    assert [(file.host, file.date) for file in lake.files("gpu")] == [
        (host, date) for date in ("2026-11-25", "2026-11-26") for host in ("gn001", "gn002")
    ]


def test_without_a_journal_it_goes_on_where_the_host_that_is_furthest_behind_is(lake: Lake) -> None:
    """Two followers, one for each host, share the lake: one of them has been away for hours."""
    for host, hours in (("gn001", (8, 9)), ("gn002", (8, 14))):
        for hour in hours:
            start_ms = MIDNIGHT_MS + hour * HOUR_MS
            rows = parquet.table_from_rows(GPU, [{"time": start_ms, "gpu": host, "interval_ms": MINUTE_MS}])
            lake.put(LakeFile("gpu", "2026-11-26", host, start_ms, start_ms + HOUR_MS - 1), parquet.encode(GPU, rows))
    assert newest_hour_ms(lake, MIDNIGHT_MS + 15 * HOUR_MS) == MIDNIGHT_MS + 9 * HOUR_MS


def test_what_was_found_of_an_exporter_stays_while_its_values_stand_still() -> None:
    """Means of 30 s, scraped every 15 s: at work the values show it, and at night they show nothing."""
    server, labels = HeldServer(), labels_of(UUID="GPU-a", Hostname="gn001", instance="gn001:9400", job="dcgm-exporter")
    for hour, busy in ((0, 1), (7, 0)):
        times = range(MIDNIGHT_MS + hour * HOUR_MS, MIDNIGHT_MS + (hour + 1) * HOUR_MS + EVERY_MS, 15_000)
        server.write(
            Exposed("DCGM_FI_PROF_GR_ENGINE_ACTIVE", labels, busy * (at // 30_000 % 7) / 7, at) for at in times
        )
    with SiteReader(server, SOURCE) as reader:  # type: ignore[arg-type]  # what it is to its users
        for hour in (1, 8):
            since_ms = MIDNIGHT_MS + hour * HOUR_MS
            (chunk,) = reader.read(reader.look(since_ms, since_ms + EVERY_MS))
            assert chunk.hosts[0].gpu["gpu_util_coverage_ratio"].to_list() == [1] * 10


@pytest.mark.long
def test_the_interval_of_rows_is_found_though_a_target_begins_and_changes_while_it_is_followed(lake: Lake) -> None:
    """Scraped every ten minutes from the follower's start on, and after eight hours every four."""
    site, change_ms = Site(lake, MIDNIGHT_MS, MIDNIGHT_MS), MIDNIGHT_MS + 8 * HOUR_MS
    before, after = (
        range(MIDNIGHT_MS, change_ms, 10 * MINUTE_MS),
        range(change_ms, change_ms + 8 * HOUR_MS, 4 * MINUTE_MS),
    )
    site.server.write(site_samples(dcgm, [*before, *after], SITE[:1]))
    site.run_until(after[-1])
    rows = parquet.read(lake.files("gpu"), GPU, ["time", "interval_ms"]).to_pylist()
    found = [(row["time"].hour, row["interval_ms"] // MINUTE_MS) for row in rows]
    assert {minutes for hour, minutes in found if 1 <= hour < 8} == {10}
    assert {minutes for hour, minutes in found if hour >= 14} == {4}


@pytest.mark.long
def test_a_day_that_is_over_becomes_one_file_and_its_hours_go_after_the_grace(lake: Lake) -> None:
    site = Site(lake, MIDNIGHT_MS - 3 * HOUR_MS, MIDNIGHT_MS + HOUR_MS, first_ms=4 * HOUR_MS)
    site.clock.at_ms = MIDNIGHT_MS + 5 * MINUTE_MS
    site.run_until(MIDNIGHT_MS + 6 * MINUTE_MS)
    assert len(lake.files("gpu", dates=["2026-11-25"])) == 3 * len(SITE)
    site.run_until(MIDNIGHT_MS + 30 * MINUTE_MS)
    assert len(lake.files("gpu", dates=["2026-11-25"])) == len(SITE)
    assert len(lake.all_files("gpu", dates=["2026-11-25"])) == 4 * len(SITE)
    assert site.board.status.merged_days == len(SITE)
    for file in lake.all_files("gpu", dates=["2026-11-25"]):  # the files' times are this machine's
        os.utime(file.url, (site.clock.at_ms / 1000 - 7200,) * 2)
    site.run_until(MIDNIGHT_MS + 40 * MINUTE_MS)
    assert len(lake.all_files("gpu", dates=["2026-11-25"])) == len(SITE)
    seen = [each for each in site.samples if each.time_ms < site.board.status.position_ms]  # type: ignore[operator]
    assert facts_in(lake, DCGM) == facts_of(seen, DCGM)
    assert DayMerging(lake, 0, 0).run(MIDNIGHT_MS + HOUR_MS, site.clock.at_ms) == 0


@pytest.mark.long
def test_an_import_and_a_follower_may_write_the_same_day(
    lake: Lake, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The import finds what the follower wrote, makes one file of the day, and the follower goes on in it."""
    site = Site(lake, MIDNIGHT_MS, MIDNIGHT_MS + HOUR_MS)
    site.run_until(MIDNIGHT_MS + 30 * MINUTE_MS)
    monkeypatch.setattr(MetricsServer, "connect", lambda *_: site.server)
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: site.clock.at_ms)
    done = run_in_process(
        "import", "prometheus", "--url", "http://held:9090", "--since", "2026-11-26", "--lake", lake.root, "--restart",
        XDG_STATE_HOME=str(state),
    )  # fmt: skip
    assert f"gpu: {5 * len(SITE)} rows new, {25 * len(SITE)} already there, 0 replaced" in done.stdout
    site.run_until(MIDNIGHT_MS + HOUR_MS + EVERY_MS)
    assert facts_in(lake, DCGM) == facts_of(site.samples, DCGM)


def test_a_host_whose_clock_is_set_skips_nothing(lake: Lake) -> None:
    """It is half an hour ahead for a quarter of an hour; the server's is right."""
    site = Site(lake, MIDNIGHT_MS, MIDNIGHT_MS + 40 * MINUTE_MS)
    site.server.now_ms = lambda: site.clock.at_ms + (site.server.offset_ms or 0)
    for until_minute, ahead_ms in ((10, 0), (25, 30 * MINUTE_MS), (45, 0)):
        site.clock.at_ms = site.server.now_ms() + ahead_ms
        site.server.offset_ms = -ahead_ms
        site.run_until(MIDNIGHT_MS + until_minute * MINUTE_MS + ahead_ms)
    assert facts_in(lake, DCGM) == facts_of(site.samples, DCGM)


def test_a_server_that_once_gives_a_time_ahead_of_its_samples_loses_none(lake: Lake) -> None:
    site = Site(lake, MIDNIGHT_MS, MIDNIGHT_MS + 40 * MINUTE_MS)
    site.run_until(MIDNIGHT_MS + 10 * MINUTE_MS)
    site.server.offset_ms = 30 * MINUTE_MS
    site.follower.round()
    site.server.offset_ms = 0
    site.run_until(MIDNIGHT_MS + 45 * MINUTE_MS)
    assert facts_in(lake, DCGM) == facts_of(site.samples, DCGM)


def test_who_asks_it_to_stop_gets_no_half_window(lake: Lake) -> None:
    site = Site(lake, MIDNIGHT_MS, MIDNIGHT_MS + HOUR_MS)
    site.run_until(MIDNIGHT_MS + 20 * MINUTE_MS)
    before = facts_in(lake, DCGM)
    site.stopping = True
    with pytest.raises(ReadingStoppedError):
        site.follower.round()
    assert facts_in(lake, DCGM) == before
    site.stopping = False
    site.start()
    site.run_until(MIDNIGHT_MS + 30 * MINUTE_MS)
    assert facts_in(lake, DCGM) == facts_of(
        [each for each in site.samples if each.time_ms < MIDNIGHT_MS + 25 * MINUTE_MS], DCGM
    )


def test_it_says_how_it_is(lake: Lake) -> None:
    site = Site(lake, MIDNIGHT_MS, MIDNIGHT_MS + HOUR_MS)
    site.server.offset_ms = 120_000
    pages = MetricsPages("fallow follow", site.board.health, site.board.metrics)
    page = HttpServer(("127.0.0.1", 0), pages.respond, "/metrics and /healthz", "none")
    page.start()
    try:
        site.run_until(MIDNIGHT_MS + 10 * MINUTE_MS)
        metrics = asked(page, "/metrics")
        assert "fallow_follow_gpus 2\n" in metrics
        assert "fallow_follow_targets 2\n" in metrics
        assert "fallow_follow_clock_offset_seconds 120.0\n" in metrics
        assert "fallow_follow_lag_seconds 300.0\n" in metrics
        assert json.loads(asked(page, "/healthz"))["status"] == "ok"
        assert "the server's clock is 2min ahead of this host's; the server's counts" in site.said
        site.server.away = True
        site.run_until(MIDNIGHT_MS + 27 * MINUTE_MS)
        assert site.board.health()[0] == 503
        assert site.board.health()[1]["reason"] == "the metrics server fails: the log has the details"
        assert "fallow_follow_refusals_total" in asked(page, "/metrics")
    finally:
        page.close()


def asked(page: HttpServer, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{page.port}{path}") as answer:
        content: bytes = answer.read()
    return content.decode()


_STEP_MS = 15_000
_LATE_MS = 4 * MINUTE_MS
_SKEW_MS = 90_000


class World:
    """A site whose samples get into a server as time goes on; one of its two hosts is four minutes late."""

    def __init__(self, server: MetricsProcess, clock: Hands) -> None:
        self.server, self.clock = server, clock
        self.written: list[Exposed] = []
        self.silent: set[str] = set()
        """Hosts that cannot be scraped."""
        self._queue: list[Exposed] = []
        self._ended: set[str] = set()

    def go_on(self, minutes: int, then: Callable[[], object] = lambda: None) -> None:
        """So many minutes, scraped every 15 s; `then` is called after each."""
        for _ in range(minutes):
            for _ in range(MINUTE_MS // _STEP_MS):
                self.clock.at_ms += _STEP_MS
                self._queue += self._scraped()
            self.deliver(self.clock.at_ms)
            then()

    def deliver(self, now_ms: int, late_ms: int = _LATE_MS) -> None:
        """What has arrived by then."""
        due = [each for each in self._queue if each.label("Hostname") == "gn001" or each.time_ms <= now_ms - late_ms]
        self._queue = [each for each in self._queue if each not in due]
        self.server.write(due)
        self.written += due

    def _scraped(self) -> list[Exposed]:
        """The samples of this moment; where a host went silent, the ends of its series."""
        samples = list(site_samples(dcgm, [self.clock.at_ms], GPUS[:8]))
        ends = [replace(each, value=None) for each in samples if each.label("Hostname") in self.silent - self._ended]
        self._ended = set(self.silent)
        return [each for each in samples if each.label("Hostname") not in self.silent] + ends


@pytest.mark.long
def test_an_hour_with_outages_has_every_sample_once(server_type: type[MetricsProcess], tmp_path: Path) -> None:
    followed, imported = (made_lake(tmp_path / name, str(uuid.uuid4())) for name in ("followed", "imported"))
    clock = Hands(time.time_ns() // 3_600_000_000_000 * HOUR_MS - 3 * HOUR_MS)
    faults: list[Answered] = []
    refused = Answered(502, b"Bad Gateway\n")

    def fault(_: Asked, pass_on: Callable[[], Answered]) -> Answered:
        return faults[0] if faults else pass_on()

    with server_type(tmp_path / "server") as server, Gateway(fault, server.port) as gateway:
        gateway.now_s = lambda: (clock.at_ms + _SKEW_MS) / 1000
        world = World(server, clock)
        follower = Followers(gateway.url, followed, clock)
        world.go_on(12, follower.step)
        # the server is away: nothing is scraped, nothing answers
        faults.append(refused)
        clock.at_ms += 12 * MINUTE_MS
        follower.step()
        faults.clear()
        world.go_on(7, follower.step)
        # the target of one host is down, then killed and started again
        world.silent.add("gn002")
        world.go_on(6, follower.step)
        world.silent.clear()
        follower.kill()
        world.go_on(9)
        world.go_on(3, follower.step)
        # the server is restarted, and for a while only scraping goes on
        server.stop()
        server.start()
        faults.append(refused)
        world.go_on(8, follower.step)
        faults.clear()
        world.go_on(16, follower.step)
        world.deliver(clock.at_ms, 0)
        clock.at_ms += 11 * MINUTE_MS
        follower.step()
        kept = [sample for name in DCGM for sample in server.kept(name, "6h")]
        done = run_in_process(
            "import", "prometheus", "--url", server.url, "--since", "1d", "--lake", imported.root, "--yes"
        )
    assert done.returncode == 0, done.stderr
    written = [each for each in world.written if each.value is not None]
    assert facts_of(kept, DCGM) == facts_of(written, DCGM)
    assert sum("502" in each for each in follower.said) == 2, "one sentence for each outage"
    assert facts_in(followed, DCGM) == facts_of(written, DCGM)
    assert facts_in(imported, DCGM) == facts_of(written, DCGM)


class Followers:
    """One follower after the other, each going on where the one before was killed."""

    def __init__(self, url: str, lake: Lake, clock: Hands) -> None:
        limits = ServerLimits(attempts=1, rate=1000)
        self.source = ScrapedSource(ServerAddress(url), limits, load_exporters(()), "", None, "")
        self.lake, self.clock = lake, clock
        self.said: list[str] = []
        self._follower: Follower | None = None
        self._due_ms = 0

    def step(self) -> None:
        """A round, if it is time for one."""
        if self.clock.at_ms < self._due_ms:
            return
        if self._follower is None:
            settings = FollowSettings(5 * MINUTE_MS, 10 * MINUTE_MS, HOUR_MS, HOUR_MS, HOUR_MS)
            board = StatusBoard(self.clock, settings.every_ms)
            self._follower = Follower(
                self.source, self.lake, settings, self.clock, board, self.said.append, connect=self._connected
            )
        self._due_ms = self.clock.at_ms + self._follower.round()

    def _connected(self) -> MetricsServer:
        return MetricsServer.connect(self.source.address, self.source.limits, self.clock)

    def kill(self) -> None:
        """The next step is that of a new process, which knows only what is on the disk."""
        self._follower = None
        self._due_ms = 0


@pytest.mark.long
def test_killed_again_and_again_it_has_every_sample_once_and_ends_when_asked(
    server_type: type[MetricsProcess], lake: Lake, tmp_path: Path
) -> None:
    now_ms = time.time_ns() // 10**6
    samples = list(site_samples(dcgm, range(now_ms - 150 * MINUTE_MS, now_ms, MINUTE_MS), SITE))
    with server_type(tmp_path / "server") as server:
        server.write(samples)
        for patience_s in (2.0, 3.0, 2.5, 3.5):
            with followed(server, lake, tmp_path) as process:
                time.sleep(patience_s)  # it is killed wherever it is then
                process.send_signal(signal.SIGKILL)
        process = followed(server, lake, tmp_path)
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said.startswith("fallow: follows ")
        wait_until(lambda: len(facts_in(lake, DCGM)) >= len(facts_of(samples, DCGM)), lambda: "not caught up")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=90)
    assert process.returncode == 0, said
    assert said.splitlines()[-1] == f"fallow: stopped following {server.url}; the next start continues from here"
    assert facts_in(lake, DCGM) == facts_of(samples, DCGM)


def followed(server: MetricsProcess, lake: Lake, tmp_path: Path) -> subprocess.Popen[str]:
    arguments = ("--url", server.url, "--lake", lake.root, "--since", "3h", "--every", "1s", "--listen", "")
    return subprocess.Popen(
        [sys.executable, "-m", "fallow", "follow", "prometheus", *arguments],
        env=clean_environment({"XDG_STATE_HOME": str(tmp_path)}),
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        text=True,
    )

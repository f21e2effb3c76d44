"""`fallow follow prometheus`, an hour of it in seconds: outages, late samples, restarts, days that end, and what it says of itself."""

from __future__ import annotations

import json
import os
import urllib.request
from typing import TYPE_CHECKING

import pytest

from analytics.importers.publish import merge_day
from analytics.scraped.following.follower import Follower, FollowSettings
from analytics.scraped.following.follower_page import FollowerPage
from analytics.scraped.following.status import StatusBoard
from analytics.scraped.mapping.loading import load_exporters
from analytics.scraped.reading import ReadingStoppedError
from analytics.scraped.server.address import ServerAddress
from analytics.scraped.server.limits import ServerLimits
from analytics.scraped.server.metrics_server import MetricsServer
from analytics.scraped.source import ScrapedSource
from fallow.clock import HOUR_MS, MINUTE_MS, SystemClock
from fallow.schema import GPU
from tests.in_process import run_in_process
from tests.scraped.facts import DCGM, facts_in, facts_of
from tests.scraped.held_server import HeldServer
from tests.scraped.site import GPUS, dcgm, site_samples

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from analytics.scraped.samples import Labels
    from fallow.lake import Lake
    from tests.scraped.exposed import Exposed

MIDNIGHT_MS = 1_795_651_200_000  # 2026-11-26T00:00Z
SITE = GPUS[3:5]
"""A busy card on gn001, and one on gn002 that is held and idle."""

EVERY_MS = 5 * MINUTE_MS
SOURCE = ScrapedSource(ServerAddress("http://held:9090"), ServerLimits(), load_exporters(), "", None, "")


class HandClock:
    """Moved by the test."""

    def __init__(self, now_ms: int) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000


class Site:
    """A server, a lake and the follower between them, whose clock the test moves."""

    def __init__(self, lake: Lake, start_ms: int, end_ms: int, first_ms: int = EVERY_MS) -> None:
        self.lake, self.clock = lake, HandClock(start_ms)
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
        while self.clock.ms < end_ms:
            self.clock.ms += self.follower.round()

    @property
    def lag_ms(self) -> int:
        assert self.board.status.position_ms is not None
        return self.clock.ms - self.board.status.position_ms


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_every_sample_is_there_once_whatever_happened(lake: Lake, state: Path) -> None:
    """Across a midnight: a card's samples come up to nine minutes late, the server is away, and so is the journal."""
    start_ms, end_ms = MIDNIGHT_MS - 30 * MINUTE_MS, MIDNIGHT_MS + 45 * MINUTE_MS
    site = Site(lake, start_ms, end_ms)

    def late(labels: Labels, time_ms: int) -> int:
        return time_ms + (time_ms // MINUTE_MS % 10 * MINUTE_MS if labels["UUID"] == SITE[0].uuid else 0)

    site.server.arrives = late
    site.run_until(start_ms + 20 * MINUTE_MS)
    site.server.away = True
    site.run_until(start_ms + 45 * MINUTE_MS)
    site.server.away = False
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


def test_a_day_that_is_over_becomes_one_file_and_its_hours_go_after_the_grace(lake: Lake) -> None:
    site = Site(lake, MIDNIGHT_MS - 3 * HOUR_MS, MIDNIGHT_MS + HOUR_MS, first_ms=4 * HOUR_MS)
    site.clock.ms = MIDNIGHT_MS + 5 * MINUTE_MS
    site.run_until(MIDNIGHT_MS + 6 * MINUTE_MS)
    assert len(lake.files("gpu", dates=["2026-11-25"])) == 3 * len(SITE)
    site.run_until(MIDNIGHT_MS + 30 * MINUTE_MS)
    assert len(lake.files("gpu", dates=["2026-11-25"])) == len(SITE)
    assert len(lake.all_files("gpu", dates=["2026-11-25"])) == 4 * len(SITE)
    assert site.board.status.merged_days == len(SITE)
    for file in lake.all_files("gpu", dates=["2026-11-25"]):  # the files' times are this machine's
        os.utime(file.url, (site.clock.ms / 1000 - 7200,) * 2)
    site.run_until(MIDNIGHT_MS + 40 * MINUTE_MS)
    assert len(lake.all_files("gpu", dates=["2026-11-25"])) == len(SITE)
    seen = [each for each in site.samples if each.time_ms < site.board.status.position_ms]  # type: ignore[operator]
    assert facts_in(lake, DCGM) == facts_of(seen, DCGM)
    assert merge_day(lake, GPU, "gn001", "2026-11-25", grace_ms=0, now_ms=site.clock.ms) == 0


def test_an_import_and_a_follower_may_write_the_same_day(
    lake: Lake, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The import finds what the follower wrote, makes one file of the day, and the follower goes on in it."""
    site = Site(lake, MIDNIGHT_MS, MIDNIGHT_MS + HOUR_MS)
    site.run_until(MIDNIGHT_MS + 30 * MINUTE_MS)
    monkeypatch.setattr(MetricsServer, "connect", lambda *_: site.server)
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: site.clock.ms)
    done = run_in_process(
        "import", "prometheus", "--url", "http://held:9090", "--since", "2026-11-26", "--lake", lake.root, "--restart",
        XDG_STATE_HOME=str(state),
    )  # fmt: skip
    assert f"gpu: {5 * len(SITE)} rows new, {25 * len(SITE)} already there, 0 replaced" in done.stdout
    site.run_until(MIDNIGHT_MS + HOUR_MS + EVERY_MS)
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
    page = FollowerPage("127.0.0.1", 0, site.board.metrics, site.board.health)
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
        assert site.board.health()[1]["reason"] == "the metrics server fails: the log says how"
        assert "fallow_follow_refusals_total" in asked(page, "/metrics")
    finally:
        page.close()


def asked(page: FollowerPage, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{page.port}{path}") as answer:
        content: bytes = answer.read()
    return content.decode()

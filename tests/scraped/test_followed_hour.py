"""An hour and more by the test's clock, with everything that goes wrong in it: every sample is in the lake once."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from analytics.mapping.mapping_file import load_exporters
from analytics.scraped.follower import Follower, FollowSettings, StatusBoard
from analytics.scraped.server.address import ServerAddress
from analytics.scraped.server.connection import ServerLimits
from analytics.scraped.server.metrics_server import MetricsServer
from analytics.scraped.source import ScrapedSource
from tests.delivery.hands import Hands
from tests.in_process import run_in_process
from tests.lakes import made_lake
from tests.scraped.facts import DCGM, facts_in, facts_of
from tests.scraped.gateway import Answered, Gateway
from tests.scraped.site import GPUS, HOUR_MS, MINUTE_MS, dcgm, site_samples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fallow.lake import Lake
    from tests.scraped.exposed import Exposed
    from tests.scraped.gateway import Asked
    from tests.scraped.servers import MetricsProcess

pytestmark = pytest.mark.long
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

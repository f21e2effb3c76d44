"""/healthz, also on an address of its own: it fails where `fallow agent status` does, and a kubelet needs nothing but the address."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agent.command import is_stale
from agent.metrics import MetricsSettings, metrics_server
from agent.metrics.server import judge
from agent.snapshot import PublishingStatus, SnapshotBoard
from agent.supervise.control import AgentStatus
from fallow import config
from fallow.errors import ConfigError
from tests.agent.snapshots import BUSY, HELD, gpu_row, snapshot
from tests.agent.test_metrics_server import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.snapshot import Snapshot
    from fallow.http_server import HttpServer

NOW_MS = 1_795_000_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the machine's clocks, on which boards and statuses age."""
    now_s = NOW_MS / 1000

    def put(seconds: float) -> None:
        nonlocal now_s
        now_s = NOW_MS / 1000 + seconds

    monkeypatch.setattr("agent.snapshot.time.clock_gettime", lambda _: now_s)
    monkeypatch.setattr("agent.snapshot.time.time", lambda: now_s)
    return put


def verdict(
    clock: Callable[[float], None], seen: Snapshot | None, age_s: float, interval_ms: int = 10_000
) -> tuple[int, str]:
    """What is answered so long after the interval's end, or after the start where there is none."""
    clock(0)
    board = SnapshotBoard(interval_ms)
    if seen is not None:
        board.publish(seen)
    clock(age_s)
    status, answer = judge(board)
    return status, answer["status"]


def of_gpus(*health: str) -> Snapshot:
    gpus = tuple(gpu_row(gpu, NOW_MS, health=each) for gpu, each in zip((BUSY, HELD), health, strict=False))
    return replace(snapshot(NOW_MS), gpus=gpus)


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (None, "starting"),
        (snapshot(NOW_MS), "ok"),
        (replace(snapshot(NOW_MS), mode="released"), "released"),
        (of_gpus("driver_down", "driver_down"), "driver_down"),
        (of_gpus("lost", "wedged"), "gpus_gone"),
        (of_gpus("asleep"), "ok"),
        (of_gpus("unknown", "unknown"), "ok"),
        (replace(snapshot(NOW_MS), publishing=PublishingStatus(failing_since_ms=1, last_error="gone")), "ok"),
    ],
    ids=["starting", "ok", "released", "driver", "gpus", "asleep", "unknown", "store"],
)
def test_only_a_loop_that_stands_still_fails(
    clock: Callable[[float], None], seen: Snapshot | None, status: str
) -> None:
    assert verdict(clock, seen, 1) == (200, status)
    assert verdict(clock, seen, 119) == (200, status)
    assert verdict(clock, seen, 121) == (503, "stale")


@pytest.mark.parametrize("interval_ms", [1_000, 10_000, 60_000, 300_000])
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "none closed"])
def test_it_fails_exactly_where_the_command_does(
    clock: Callable[[float], None], interval_ms: int, *, closed: bool
) -> None:
    seen = replace(snapshot(NOW_MS), interval_ms=interval_ms) if closed else None
    status = AgentStatus("running", 1, "gn001", "0.2.0", NOW_MS if seen is None else NOW_MS - 10**6, interval_ms)
    if seen is not None:
        status = replace(status, time_ms=seen.time_ms)
    verdicts = []
    for age_s in (1, 31, 119, 120, 121, 179, 181, 899, 901):
        fails = verdict(clock, seen, age_s, interval_ms)[0] == 503
        assert fails == is_stale(status, NOW_MS + age_s * 1000)
        verdicts.append(fails)
    assert len({*verdicts}) == 2, "each length of an interval has its own limit among these ages"


@pytest.fixture
def health() -> Iterator[HttpServer]:
    board = SnapshotBoard(10_000)
    board.publish(snapshot())
    server = metrics_server(MetricsSettings("127.0.0.1", 0, health_only=True), board)
    server.start()
    with contextlib.closing(server):
        yield server


def test_its_own_address_shows_nothing_else(health: HttpServer) -> None:
    status, _, body = ask(health, "/healthz")
    assert (status, json.loads(body)["status"]) == (200, "ok")
    assert ask(health, "/metrics")[0] == 404
    assert b"/metrics" not in ask(health, "/")[2]
    said = str([ask(health, path)[2] for path in ("/healthz", "/", "/metrics")])
    seen = snapshot()
    names: list[Any] = [row["user"] for row in seen.processes if row["user"]]
    assert names
    assert not [name for name in [*names, BUSY, seen.host, seen.pool] if name in said]


def test_settings_are_those_of_the_address_alone() -> None:
    loaded = config.load({"metrics.health_listen": ":9478", "metrics.token_file": "/nowhere"}, environment={})
    assert MetricsSettings.for_health(loaded) == MetricsSettings("127.0.0.1", 9478, health_only=True)
    with pytest.raises(ConfigError, match=r"metrics\.health_listen is 'here'"):
        MetricsSettings.for_health(config.load({"metrics.health_listen": "here"}, environment={}))

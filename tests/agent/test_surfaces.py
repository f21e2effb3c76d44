"""What the agent reports of itself: settings that change at run time; /healthz fails as `fallow agent status` does."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agent.command import is_stale
from agent.metrics import MetricsSettings, metrics_server
from agent.metrics.server import judge
from agent.snapshot import PublishingStatus, SnapshotBoard
from agent.supervise.control import AgentStatus
from agent.supervise.surfaces import Surfaces
from fallow import config
from fallow.errors import ConfigError, FallowError
from tests.agent.snapshots import BUSY, HELD, gpu_row, snapshot
from tests.agent.test_metrics_server import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Make = Callable[..., Surfaces]
    from agent.snapshot import Snapshot
    from fallow.http_server import HttpServer


def settings(port: int | str, **values: str) -> config.Config:
    flags = {"metrics.listen": f"127.0.0.1:{port}"} | {f"metrics.{name}": text for name, text in values.items()}
    return config.load(flags, environment={})


def taken() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def free_port() -> int:
    with taken() as listening:
        return int(listening.getsockname()[1])


def status(port: int) -> int:
    """What /metrics answers; 0 where nobody listens."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        try:
            connection.request("GET", "/metrics")
        except ConnectionRefusedError:
            return 0
        return connection.getresponse().status


@pytest.fixture
def make() -> Iterator[Make]:
    board = SnapshotBoard()
    board.publish(snapshot())
    with contextlib.ExitStack() as running:

        def build(loaded: config.Config) -> Surfaces:
            surfaces = Surfaces(loaded, board)
            running.callback(surfaces.close)
            return surfaces

        yield build


def test_an_address_that_is_taken_is_said_and_tried_again(make: Make) -> None:
    with taken() as other:
        port = int(other.getsockname()[1])
        surfaces = make(settings(port))
        assert f"cannot listen on 127.0.0.1:{port}" in (surfaces.start() or "")
    assert surfaces.start() is None
    assert status(port) == 200
    assert surfaces.start() is None, "it is served already"


def test_wrong_settings_end_the_start(make: Make, tmp_path: Path) -> None:
    for wrong in (settings("70000"), settings(0, token_file=str(tmp_path / "none"))):
        with pytest.raises(ConfigError):
            make(wrong)


def test_a_reload_that_fails_leaves_all_as_it_was(make: Make, tmp_path: Path) -> None:
    port = free_port()
    surfaces = make(settings(port))
    assert surfaces.start() is None
    with taken() as other:
        for wrong in (
            settings(int(other.getsockname()[1])),
            settings(port, token_file=str(tmp_path / "none")),
            settings("70000"),
        ):
            with pytest.raises(FallowError):
                surfaces.reload(wrong)
            assert status(port) == 200


def test_one_port_goes_over_to_other_settings(make: Make, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o600)
    port = free_port()
    surfaces = make(settings(port))
    assert surfaces.start() is None
    surfaces.reload(settings(port, token_file=str(token)))
    assert status(port) == 401


def test_the_old_server_comes_back_where_the_new_one_cannot_listen(make: Make) -> None:
    port = free_port()
    surfaces = make(settings(port))
    assert surfaces.start() is None
    with pytest.raises(FallowError, match="cannot listen"):
        surfaces.reload(config.load({"metrics.listen": f"192.0.2.1:{port}"}, environment={}))
    assert status(port) == 200


def test_switched_on_and_off_by_reloads(make: Make) -> None:
    off, port = config.load({}, environment={}), free_port()
    surfaces = make(off)
    assert surfaces.start() is None
    surfaces.reload(settings(port))
    assert status(port) == 200
    surfaces.reload(off)
    assert status(port) == 0


def test_health_checks_have_an_address_of_their_own_which_reloads_move(make: Make) -> None:
    ports = [free_port() for _ in range(3)]

    def both(metrics: int, health: int) -> config.Config:
        return settings(metrics, health_listen=f"127.0.0.1:{health}")

    surfaces = make(both(ports[0], ports[1]))
    assert surfaces.start() is None
    assert [status(port) for port in ports] == [200, 404, 0]
    surfaces.reload(both(ports[0], ports[2]))
    assert [status(port) for port in ports] == [200, 0, 404]
    with taken() as other:  # the first of the two has moved by then: it goes back
        with pytest.raises(FallowError, match="cannot listen"):
            surfaces.reload(both(ports[1], int(other.getsockname()[1])))
        assert [status(port) for port in ports] == [200, 0, 404]
    surfaces.reload(config.load({"metrics.health_listen": f"127.0.0.1:{ports[1]}"}, environment={}))
    assert [status(port) for port in ports] == [0, 404, 0]


def test_of_two_addresses_that_are_taken_both_are_said(make: Make) -> None:
    with taken() as one, taken() as two:
        ports = [int(each.getsockname()[1]) for each in (one, two)]
        said = make(settings(ports[0], health_listen=f"127.0.0.1:{ports[1]}")).start() or ""
    assert f"127.0.0.1:{ports[0]} for /metrics" in said
    assert f"127.0.0.1:{ports[1]} for /healthz" in said


def test_a_failed_start_closes_nobody_elses_files() -> None:
    with taken() as other:
        server = metrics_server(MetricsSettings("127.0.0.1", int(other.getsockname()[1])), SnapshotBoard())
        with pytest.raises(FallowError):
            server.start()
        read_end, write_end = os.pipe()  # gets the numbers that the server's own pipe may have had
        server.close()
        server.close()
        assert os.write(write_end, b"x") == 1
        os.close(read_end)
        os.close(write_end)


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

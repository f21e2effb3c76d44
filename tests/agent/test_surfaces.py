"""What the agent shows of itself: an address that is taken, and settings that change while it runs."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
from typing import TYPE_CHECKING

import pytest

from agent.metrics import MetricsSettings, metrics_server
from agent.snapshot import SnapshotBoard
from agent.supervise.surfaces import Surfaces
from fallow import config
from fallow.errors import ConfigError, FallowError
from tests.agent.snapshots import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Make = Callable[..., Surfaces]


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
        for tried in (surfaces.start, surfaces.retry):
            assert f"cannot listen on 127.0.0.1:{port}" in (tried() or "")
    assert surfaces.retry() is None
    assert status(port) == 200
    assert surfaces.retry() is None, "it is served already"


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

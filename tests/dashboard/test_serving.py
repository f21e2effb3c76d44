"""`fallow dashboard` and `fallow demo` as servers: the clients that they answer, their start, their requested end."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fallow.lake import Lake
from tests.conftest import RunFallow
from tests.dashboard.servers import answer, children, serving, threads

pytestmark = pytest.mark.long


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_answers_and_ends_quietly(fleet_lake: Lake, number: signal.Signals) -> None:
    with serving("dashboard", "--lake", fleet_lake.root, "--port", "0") as (server, address):
        assert '<html lang="en">' in answer(address)
        server.send_signal(number)
        _, errors = server.communicate(timeout=120)
        assert (server.returncode, errors) == (0, "")


def test_the_demo_serves_what_it_made_on_the_next_free_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = ("--gpus", "1", "--days", "1", "--out", str(tmp_path), "--port", str(port))
        with serving("demo", *flags) as (server, address):
            assert f":{port}/" not in address
            assert "fallow" in answer(address)
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=120)
            assert server.returncode == 0


def test_a_taken_port_is_one_sentence(fleet_lake: Lake, run_fallow: RunFallow) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run_fallow("dashboard", "--lake", fleet_lake.root, "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "--port" in done.stderr


@pytest.mark.parametrize("host", ["203.0.113.9", "no-such-host.invalid"])
def test_an_address_that_is_not_this_machines_is_one_sentence(
    fleet_lake: Lake, run_fallow: RunFallow, host: str
) -> None:
    done = run_fallow("dashboard", "--lake", fleet_lake.root, "--host", host, "--port", "0", "--insecure")
    assert done.returncode == 1
    assert re.fullmatch(rf"fallow: cannot serve on {host} port 0: [\w -]+; give --host [\w ]+\n", done.stderr)


EVERYWHERE = ["0.0.0.0", "::", "gpu-host.example", "192.168.1.4", ""]  # noqa: S104  # must be refused


@pytest.mark.parametrize("host", EVERYWHERE)
def test_without_a_sign_in_only_this_machine_is_served(fleet_lake: Lake, run_fallow: RunFallow, host: str) -> None:
    done = run_fallow("dashboard", "--lake", fleet_lake.root, "--host", host)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    for remedy in ("dashboard.proxy_header", "dashboard.oidc_issuer", "--insecure", "ssh -L"):
        assert remedy in done.stderr


def test_insecure_warns_and_serves(fleet_lake: Lake) -> None:
    flags = ("--host", "0.0.0.0", "--port", "0", "--insecure")  # noqa: S104  # ended with the test
    with serving("dashboard", "--lake", fleet_lake.root, *flags) as (server, address):
        port = urlsplit(address).port
        assert '<html lang="en">' in answer(f"http://127.0.0.1:{port}/")
        server.terminate()
        assert "everybody who can reach 0.0.0.0 sees everything" in server.communicate(timeout=120)[1]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_reload_takes_new_processes_and_loses_no_request(fleet_lake: Lake, tmp_path: Path) -> None:
    settings = tmp_path / "fallow.toml"
    settings.write_text('[report]\nlanguage = "en"\n')
    flags = ("--lake", fleet_lake.root, "--port", "0", "--workers", "2", "--config", str(settings))
    with serving("dashboard", *flags) as (server, address):
        before = set(children(server.pid))
        assert len(before) == 2
        server.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 60
        while before <= set(children(server.pid)) and time.monotonic() < deadline:
            assert answer(f"{address}healthz") == "ok\n"
        # the first of the old ones has gone: the new ones have read the lake by then
        new = set(children(server.pid)) - before
        assert len(new) == 2
        assert all("polars-0" in threads(each) for each in new)
        while before & set(children(server.pid)) and time.monotonic() < deadline:
            assert answer(f"{address}healthz") == "ok\n"
        assert set(children(server.pid)) == new
        # settings that are wrong change nothing
        settings.write_text("[dashboard]\nproxies = 5\n")
        server.send_signal(signal.SIGHUP)
        time.sleep(1)
        assert answer(f"{address}healthz") == "ok\n"
        server.terminate()
        errors = server.communicate(timeout=120)[1]
        assert "dashboard.proxies is set and dashboard.proxy_header is not" in errors
        assert server.returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_health_on_its_own_port_is_answered_while_nothing_else_can_be(fleet_lake: Lake) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    flags = ("--lake", fleet_lake.root, "--port", "0", "--health-port", str(port))
    with serving("dashboard", *flags) as (server, _):
        [worker] = [each for each in children(server.pid) if "polars-0" in threads(each)]
        os.kill(worker, signal.SIGSTOP)
        try:
            assert answer(f"http://127.0.0.1:{port}/healthz") == "ok\n"
        finally:
            os.kill(worker, signal.SIGCONT)
        processes = children(server.pid)
        server.terminate()
        assert server.communicate(timeout=120)[1] == ""
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{each}").exists() for each in processes) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [each for each in processes if Path(f"/proc/{each}").exists()]


def test_a_connection_is_kept(fleet_lake: Lake) -> None:
    with serving("dashboard", "--lake", fleet_lake.root, "--port", "0") as (_, address):
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
        try:
            for path in ("/", "/healthz", "/_dash-layout"):
                connection.request("GET", path)
                response = connection.getresponse()
                response.read()
                assert (response.status, response.will_close) == (200, False)
        finally:
            connection.close()


def test_a_missing_lake_is_reported_at_once(tmp_path: Path, run_fallow: RunFallow) -> None:
    done = run_fallow("dashboard", "--lake", str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert "there is no lake" in done.stderr


@pytest.mark.parametrize("flags", [("--port", "70000"), ("--since", "yesterday"), ("--workers", "0")])
def test_wrong_use_is_refused_at_once(fleet_lake: Lake, run_fallow: RunFallow, flags: tuple[str, str]) -> None:
    done = run_fallow("dashboard", "--lake", fleet_lake.root, *flags)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_it_tells_systemd_that_it_is_there(fleet_lake: Lake, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        flags = ("--lake", fleet_lake.root, "--port", "0")
        with serving("dashboard", *flags, NOTIFY_SOCKET=str(tmp_path / "notify")):
            assert manager.recv(1000).startswith(b"READY=1")


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_process_that_starts_the_others_has_no_threads_that_a_fork_would_lose(fleet_lake: Lake) -> None:
    with serving("dashboard", "--lake", fleet_lake.root, "--port", "0") as (server, address):
        names = threads(server.pid)
        [worker] = children(server.pid)
        assert "fallow" in answer(address)
        assert "polars-0" in threads(worker)
    assert not {each for each in names if each.startswith(("polars-0", "tokio", "async-executor"))}

"""`fallow dashboard` and `fallow demo` as servers: they answer on this machine and end when told to."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.conftest import REPOSITORY, clean_environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fallow.lake import Lake
    from tests.conftest import RunFallow


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running server and its address; it is ended with the block, whatever happens in it."""
    command = [sys.executable, "-W", "error", "-m", "fallow", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY, env=clean_environment()
    ) as server:
        try:
            assert server.stdout is not None
            found = next((match for line in server.stdout if (match := re.search(r"http://\S+/", line))), None)
            assert found, server.communicate()[1]
            yield server, found[0]
        finally:
            server.kill()


def answer(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as response:  # noqa: S310  # our own server's address
        return str(response.read().decode())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_answers_and_ends_quietly(fleet_lake: Lake, number: signal.Signals) -> None:
    with serving("dashboard", "--lake", fleet_lake.root, "--port", "0") as (server, address):
        assert '<html lang="en">' in answer(address)
        server.send_signal(number)
        _, errors = server.communicate(timeout=30)
        assert (server.returncode, errors) == (0, "")


def test_the_demo_serves_what_it_made_on_the_next_free_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = ("--gpus", "1", "--days", "1", "--out", str(tmp_path), "--port", str(port))
        with serving("demo", *flags) as (server, address):
            assert f":{port}/" not in address
            assert "fallow" in answer(address)
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=30)
            assert server.returncode == 0


def test_a_taken_port_is_one_sentence(fleet_lake: Lake, run_fallow: RunFallow) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run_fallow("dashboard", "--lake", fleet_lake.root, "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "--port" in done.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "gpu-host.example", "192.168.1.4", ""])  # noqa: S104  # must be refused
def test_only_this_machine_is_served(fleet_lake: Lake, run_fallow: RunFallow, host: str) -> None:
    done = run_fallow("dashboard", "--lake", fleet_lake.root, "--host", host)
    assert done.returncode == 2
    assert "ssh -L" in done.stderr


def test_no_lake_is_said_at_once(tmp_path: Path, run_fallow: RunFallow) -> None:
    done = run_fallow("dashboard", "--lake", str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert "there is no lake" in done.stderr


@pytest.mark.parametrize("flags", [("--port", "70000"), ("--since", "yesterday")])
def test_wrong_use_is_said_at_once(fleet_lake: Lake, run_fallow: RunFallow, flags: tuple[str, str]) -> None:
    done = run_fallow("dashboard", "--lake", fleet_lake.root, *flags)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1

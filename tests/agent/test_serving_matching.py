"""From a listening port to a process and on to GPUs, with real listening processes and real ones on the GPUs."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.serving import processes
from agent.serving.processes import find_listener

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

LISTEN = """
import json, os, socket, subprocess, sys
listening = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
listening.bind((sys.argv[1], 0))
listening.listen()
workers = [subprocess.Popen(["sleep", "600"]) for _ in range(int(sys.argv[2]))]
if sys.argv[3] == "shared" and os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
if sys.argv[3] == "renamed":
    open("/proc/self/comm", "w").write("docker-proxy")
print(json.dumps([listening.getsockname()[1], os.getpid(), [worker.pid for worker in workers]]), flush=True)
sys.stdin.read()
for worker in workers:
    worker.kill()
    worker.wait()
"""

LAUNCH = """
import subprocess, sys
worker = subprocess.Popen(["sleep", "600"], process_group=0)
print(worker.pid, flush=True)
router = subprocess.Popen([sys.executable, "-c", sys.argv[1], "127.0.0.1", "0", "plain"], process_group=0)
router.wait()
worker.kill()
worker.wait()
"""


@dataclass(frozen=True)
class Tree:
    """A listening process and what it started."""

    port: int
    pid: int
    workers: tuple[int, ...]


@contextlib.contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A program that ends when nobody reads from it any more."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            assert running.stdin is not None
            running.stdin.close()
            running.wait(30)


def told(running: subprocess.Popen[str]) -> Tree:
    assert running.stdout is not None
    port, pid, workers = json.loads(running.stdout.readline())
    return Tree(port, pid, tuple(workers))


@contextlib.contextmanager
def listener(workers: int = 0, address: str = "127.0.0.1", kind: str = "plain") -> Iterator[Tree]:
    with process(sys.executable, "-c", LISTEN, address, str(workers), kind) as running:
        yield told(running)


def find(port: int, address: str = "127.0.0.1", likely: Collection[int] = ()) -> int | None:
    return find_listener("/proc", address, port, likely)


def gpus(pid: int, gpu_pids: dict[str, tuple[int, ...]]) -> tuple[str, ...]:
    everyone = {each for pids in gpu_pids.values() for each in pids}
    return processes.gpus_of("/proc", pid, gpu_pids, processes.families("/proc", everyone))


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])  # noqa: S104  # as servers do by default
def test_the_process_that_listens_is_found(address: str) -> None:
    with listener(address=address) as tree:
        assert find(tree.port) == tree.pid
        assert find(tree.port, likely={tree.pid}) == tree.pid
        assert find(tree.port, likely={os.getpid(), 2**22 - 1}) == tree.pid


def test_the_process_that_listens_over_ipv6_is_found() -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with listener(address="::1") as tree:
        assert find(tree.port, "::1") == tree.pid
        assert find(tree.port, "127.0.0.1") is None
    with listener(address="::") as tree:
        assert find(tree.port, "::1") == tree.pid
        assert find(tree.port, "127.0.0.1") == tree.pid


def test_another_address_of_the_same_port_is_another_server() -> None:
    with listener(address="127.0.0.2") as tree:
        assert find(tree.port, "127.0.0.1") is None
        with socket.socket() as own:
            own.bind(("127.0.0.1", tree.port))
            own.listen()
            assert find(tree.port, "127.0.0.1") == os.getpid()
        assert find(tree.port, "127.0.0.2") == tree.pid


def test_of_processes_that_share_a_socket_it_is_the_first() -> None:
    with listener(kind="shared") as tree:
        assert find(tree.port) == tree.pid


def test_who_only_passes_connections_on_is_nobody() -> None:
    with listener(kind="renamed") as tree:
        assert find(tree.port) is None


def test_a_port_that_is_connected_and_not_listened_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert find(client.getsockname()[1]) is None
        assert find(server.getsockname()[1]) == os.getpid()


def test_without_a_proc_nothing_is_known(tmp_path: Path) -> None:
    assert find_listener(str(tmp_path), "127.0.0.1", 8000, ()) is None
    assert processes.gpus_of(str(tmp_path), 5, {"GPU-a": (6,)}, processes.families(str(tmp_path), {6})) == ()
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_bytes(b"\xff garbage\n\n 0: 0100007F:zzzz 0 0A 0 0 0 0 0 77\nx y z 0A\n")
    assert find_listener(str(tmp_path), "127.0.0.1", 8000, ()) is None


def test_a_server_whose_workers_hold_the_gpus() -> None:
    with listener(workers=2) as tree, listener(workers=1) as other:
        held = {"GPU-a": (tree.workers[0],), "GPU-b": (tree.workers[1],), "GPU-c": other.workers, "GPU-d": ()}
        assert gpus(tree.pid, held) == ("GPU-a", "GPU-b")
        assert gpus(other.pid, held) == ("GPU-c",)


def test_a_server_that_a_process_on_a_gpu_has_started() -> None:
    with listener() as tree:
        assert gpus(tree.pid, {"GPU-a": (os.getpid(),)}) == ("GPU-a",)


def test_a_server_beside_its_workers_under_one_launcher() -> None:
    with process(sys.executable, "-c", LAUNCH, LISTEN) as running:
        assert running.stdout is not None
        worker = int(running.stdout.readline())
        assert gpus(told(running).pid, {"GPU-a": (worker,), "GPU-b": (1,)}) == ("GPU-a",)


def test_programs_started_from_one_shell_are_strangers() -> None:
    script = 'sleep 600 & stranger=$!; echo $stranger; "$0" -c "$1" 127.0.0.1 0 plain; kill $stranger; wait'
    with process("sh", "-c", script, sys.executable, LISTEN) as running:
        assert running.stdout is not None
        stranger = int(running.stdout.readline())
        tree = told(running)
        shell = processes.parent("/proc", tree.pid) or 0
        assert processes.command("/proc", shell) in {b"sh", b"dash", b"bash", b"busybox"}
        assert gpus(tree.pid, {"GPU-a": (stranger,)}) == ()


def test_a_process_is_another_when_its_number_is_used_again() -> None:
    with listener() as tree:
        known = processes.start_of("/proc", tree.pid)
        assert known == processes.start_of("/proc", tree.pid) != processes.start_of("/proc", os.getpid())
    assert processes.start_of("/proc", tree.pid) is None


def test_a_name_with_brackets_and_spaces_is_no_riddle() -> None:
    before = Path("/proc/self/comm").read_text(encoding="utf-8")
    try:
        Path("/proc/self/comm").write_text("a) R 1 (b", encoding="utf-8")
        assert processes.parent("/proc", os.getpid()) == os.getppid()
        assert processes.command("/proc", os.getpid()) == b"a) R 1 (b"
    finally:
        Path("/proc/self/comm").write_text(before, encoding="utf-8")

"""What the agent tells systemd, heard at a real datagram socket."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from agent.supervise.surfaces import Notifier

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Ear:
    """The service manager's end."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self.socket.setblocking(False)  # noqa: FBT003  # its only argument

    def heard(self) -> list[list[str]]:
        """Every message since the last call, as lines; a datagram between two local sockets arrives when it is sent."""
        messages = []
        while True:
            try:
                messages.append(self.socket.recv(4096).decode().split("\n"))
            except BlockingIOError:
                return messages


@pytest.fixture(params=["path", "abstract"])
def ear(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ear]:
    monkeypatch.chdir(tmp_path)  # the path of a socket may not be longer than 107 bytes, and pytest's folders are long
    ear = Ear(f"@fallow-test-{os.getpid()}-{time.monotonic_ns()}" if request.param == "abstract" else "notify")
    with ear.socket:
        yield ear


def notifier(ear: Ear, **watchdog: str) -> Notifier:
    # the relative path of the test's socket stands for systemd's absolute one
    return Notifier(ear.address, Notifier.from_environment({"NOTIFY_SOCKET": "/any", **watchdog}).watchdog_s)


def test_every_message_arrives_as_systemd_reads_it(ear: Ear) -> None:
    telling = notifier(ear)
    telling.ready("8 GPUs, a row every 10 s")
    telling.ready("one GPU is wedged\nREADY=0")
    telling.reloading()
    telling.stopping()
    ready, status, reloading, stopping = ear.heard()
    assert ready == ["READY=1", "STATUS=8 GPUs, a row every 10 s"]
    assert status == ["READY=1", "STATUS=one GPU is wedged READY=0"]
    assert reloading[0] == "RELOADING=1"
    assert abs(int(reloading[1].removeprefix("MONOTONIC_USEC=")) - time.monotonic_ns() // 1000) < 60_000_000
    assert stopping == ["STOPPING=1"]


def test_a_sign_of_life_is_sent_at_once_and_then_every_third_of_the_time(ear: Ear) -> None:
    telling = notifier(ear, WATCHDOG_USEC="3000000000")  # so long that a second one in this test would be wrong
    for _ in range(100):
        telling.watchdog()
    assert ear.heard() == [["WATCHDOG=1"]]
    telling = notifier(ear, WATCHDOG_USEC="3")  # so short that every round is due
    telling.watchdog()
    time.sleep(0.001)
    telling.watchdog()
    assert ear.heard() == [["WATCHDOG=1"]] * 2


NOT_ASKED: list[dict[str, str]] = [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "soon"}]
NOT_ASKED.append({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"})  # another process's


def test_no_sign_of_life_where_nobody_waits_for_one(ear: Ear) -> None:
    for watchdog in NOT_ASKED:
        notifier(ear, **watchdog).watchdog()
    assert ear.heard() == []
    told = {"NOTIFY_SOCKET": "/any", "WATCHDOG_USEC": "90000000", "WATCHDOG_PID": str(os.getpid())}
    assert Notifier.from_environment(told).watchdog_s == 90, "this process"


def test_the_children_inherit_no_address(ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    monkeypatch.setenv("WATCHDOG_USEC", "90000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    monkeypatch.setenv("FALLOW_TEST", ear.address)
    assert Notifier.from_environment() == Notifier("/run/systemd/notify", 90.0)
    child = "import os; print(sorted(name for name in os.environ if name[:6] in ('NOTIFY', 'WATCHD', 'FALLOW')))"
    seen = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True)
    assert seen.stdout == "['FALLOW_TEST']\n"


@pytest.mark.parametrize(
    "address",
    ["", "/nowhere/at/all", "@nobody-listens-here", "vsock:2:1234", "relative", "/" + "long" * 100, "/with\0zero"],
)
def test_a_missing_listener_is_no_error(address: str) -> None:
    telling = Notifier.from_environment({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1"})
    assert (telling.address is not None) == address.startswith(("/", "@"))
    telling.ready("up")
    telling.ready("fine")
    telling.watchdog()
    telling.reloading()
    telling.stopping()


def test_a_manager_that_does_not_read_holds_nothing_up(ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.supervise.surfaces._PATIENCE_S", 0.01)
    filler = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with filler, contextlib.suppress(BlockingIOError):
        filler.setblocking(False)  # noqa: FBT003  # its only argument
        while True:  # until the queue is full
            filler.sendto(b"filler", f"\0{ear.address[1:]}" if ear.address.startswith("@") else ear.address)
    notifier(ear).ready("too much")
    heard = ear.heard()
    assert heard
    assert ["STATUS=too much"] not in heard

"""`fallow top` and `fallow agent once` as commands: asked once, and on a real terminal, over the fake driver."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agent.snapshot import Snapshot
from agent.supervise.control import ControlServer
from agent.top.single_look import table_text
from tests.agent.conftest import login_name
from tests.agent.snapshots import BUSY, GIB, HELD, snapshot
from tests.conftest import REPOSITORY, clean_environment
from tests.fakes.nvml import Fault, Gpu, Process, Scenario, constant, ms_ago
from tests.fakes.pci import put_on_bus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.agent.conftest import FakeHost

    MakeHost = Callable[[Scenario], FakeHost]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Path]:
    """The spool of an agent that runs and has seen four GPUs."""

    def answer(*_: object) -> dict[str, object]:
        return snapshot(time.time_ns() // 1_000_000).as_json()

    server = ControlServer(str(tmp_path), answer)
    server.start()
    yield tmp_path
    server.close()


def two_gpus(pid: int, **options: object) -> Scenario:
    """One GPU at work and one that a process holds without using it."""
    held = Gpu(HELD, mem_used=constant(10 * GIB), processes=(Process(pid, mem_bytes=9 * GIB),))
    busy = Gpu(BUSY, util=constant(60), gpm={2: constant(40)}, processes=(Process(pid, mem_bytes=GIB),))
    return Scenario(gpus=(busy, held), start_ms=ms_ago(120), **options)  # type: ignore[arg-type]


def environment(host: FakeHost, **more: str) -> dict[str, str]:
    return host.environment | {"TERM": "xterm", "LANG": "C.UTF-8"} | more


def top(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", PROGRAM, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, cwd=REPOSITORY, env=environment
    )


def test_without_an_agent_it_looks_for_itself(
    fake_host: MakeHost, sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    host = environment(fake_host(two_gpus(sleeper.pid)), FALLOW_AGENT_SEES_ALL_PROCESSES="yes")
    done = top(host, "--once", "--spool", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "\x1b" not in done.stdout
    assert lines[1:3] == ["driver: means of 1s", f"no agent runs on the spool {tmp_path}"]
    assert lines[3] == f"1 of 2 GPUs idle while held, 10.0 GiB held idle: {login_name()} 1 (10.0 GiB)"
    assert re.search(r"0  active +60 % .* 40 % ", line_of(lines, "0"))
    assert re.search(rf"1  idle +0 % .* 10\.0/80 .*  {login_name()} +>\d+s$", line_of(lines, "1").rstrip())
    assert re.search(rf"{sleeper.pid}  {login_name()} +sleep +9\.0 ", done.stdout)


def test_json_is_one_object_a_line(fake_host: MakeHost, sleeper: subprocess.Popen[bytes]) -> None:
    done = top(environment(fake_host(two_gpus(sleeper.pid))), "--once", "--json", "-n", "0.5")
    assert (done.returncode, done.stderr) == (0, "")
    [line] = done.stdout.splitlines()
    seen = Snapshot.from_json(json.loads(line))
    assert seen.interval_ms == 500
    assert {row["gpu"]: row["gpu_util_pct"] for row in seen.gpus} == {BUSY: pytest.approx(60, abs=1), HELD: 0}


def test_a_running_agent_is_asked_and_the_driver_left_alone(agent: Path) -> None:
    nowhere = clean_environment({"LD_LIBRARY_PATH": "/nonexistent"})
    done = top(nowhere, "--once", "--spool", str(agent))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1].startswith("agent 0.2.0: means of 10s")
    done = top(nowhere, "--once")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("fallow: there is no NVIDIA driver")


@pytest.fixture
def terminal(agent: Path) -> Iterator[Callable[..., Terminal]]:
    plain = clean_environment({"TERM": "xterm", "LANG": "C.UTF-8"})
    with contextlib.ExitStack() as opened:

        def start(*arguments: str, columns: int = 100, environment: dict[str, str] = plain) -> Terminal:
            made = Terminal(environment, columns, 30, *(arguments or ("--spool", str(agent))))
            opened.callback(made.close)
            return made

        yield start


COLOURED = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")
ENTER, LEAVE = re.escape("\x1b[?1049h"), "\x1b[?1049l"


def test_keys_on_a_real_terminal(terminal: Callable[..., Terminal]) -> None:
    view = terminal()
    assert COLOURED.search(view.await_text(ENTER + ".*idle while held.*PID.*sort: memory"))
    view.press(b"s")
    view.await_text("sort: GPU")
    view.press(b"p")
    assert "PID" not in view.await_text("active.* processes   ")
    view.press(b"xq")
    assert view.ended() == (0, True)
    assert view.written.rstrip().endswith(LEAVE) or LEAVE in view.written[-40:]


@pytest.mark.parametrize("way_out", [b"\x03", signal.SIGTERM, signal.SIGHUP])
def test_every_usual_way_out_leaves_the_terminal_as_it_was(
    terminal: Callable[..., Terminal], way_out: bytes | signal.Signals
) -> None:
    view = terminal()
    view.await_text("idle while held")
    if isinstance(way_out, bytes):
        view.press(way_out)
    else:
        view.process.send_signal(way_out)
    assert view.ended() == (0 if isinstance(way_out, bytes) else 128 + way_out, True)
    assert LEAVE in view.written
    assert "Traceback" not in view.written


def test_a_new_size_is_drawn_at_once(terminal: Callable[..., Terminal]) -> None:
    view = terminal(columns=60)
    view.await_text("MEMORY GiB[^A-Z]*USER")
    view.resize(140, 30)
    view.process.send_signal(signal.SIGWINCH)
    view.await_text("MEMORY GiB[^A-Z]*POWER[^A-Z]*TEMP[^A-Z]*USER")
    view.press(b"q")
    assert view.ended() == (0, True)


def test_suspended_and_taken_up_again(terminal: Callable[..., Terminal]) -> None:
    view = terminal()
    view.await_text("idle while held")
    view.press(b"\x1a")
    view.await_text(re.escape(LEAVE))
    _, status = os.waitpid(view.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert termios.tcgetattr(view._child) == view.before  # noqa: SLF001  # what the shell would find
    view.process.send_signal(signal.SIGCONT)
    view.await_text(ENTER + ".*idle while held")
    view.press(b"q")
    assert view.ended() == (0, True)


def test_no_color_is_respected(terminal: Callable[..., Terminal]) -> None:
    view = terminal(environment=clean_environment({"TERM": "xterm", "NO_COLOR": "1"}))
    assert not COLOURED.search(view.await_text("idle while held.*sort: memory"))


@pytest.mark.long
def test_a_gpu_that_blocks_does_not_freeze_the_view(
    terminal: Callable[..., Terminal], fake_host: MakeHost, sleeper: subprocess.Popen[bytes]
) -> None:
    hang = Fault("hang", gpu=1, start_s=125)  # some seconds after the view has begun
    settings = {"FALLOW_AGENT_CALL_TIMEOUT": "1s", "FALLOW_AGENT_SEES_ALL_PROCESSES": "yes"}
    view = terminal("-n", "0.5s", environment=environment(fake_host(two_gpus(sleeper.pid, faults=(hang,))), **settings))
    view.await_text("1 of 2 GPUs idle while held")
    view.await_text("active.*wedged")
    view.await_text("0 of 1 watched GPUs idle while held.*1 wedged")
    view.press(b"q")
    assert view.ended() == (0, True)


def three_gpus(*faults: Fault) -> Scenario:
    return Scenario(tuple(Gpu(f"GPU-{name}", util=constant(60)) for name in "abc"), ms_ago(20), faults)


def healths(host: FakeHost) -> dict[str, str]:
    finished = host.once("--json")
    assert (finished.returncode, finished.stderr) == (0, "")
    return {row["gpu"]: row["health"] for row in json.loads(finished.stdout)["gpus"]}


@pytest.mark.long
def test_a_gpu_that_blocks_is_wedged_and_the_others_are_shown(fake_host: MakeHost) -> None:
    host = fake_host(three_gpus(Fault("hang", gpu=1, function="nvmlDeviceGetPowerUsage", start_s=0)))
    host.environment["FALLOW_AGENT_CALL_TIMEOUT"] = "4s"
    assert healths(host) == {"GPU-a": "ok", "GPU-b": "wedged", "GPU-c": "ok"}


def test_a_gpu_without_a_name_goes_by_its_position(fake_host: MakeHost) -> None:
    host = fake_host(three_gpus(Fault("lost", gpu=1, start_s=0)))
    assert healths(host) == {"GPU-a": "ok", "fakehost/gpu-1": "missing", "GPU-c": "ok"}
    lines = top(environment(host), "--once").stdout.splitlines()
    assert lines[3].startswith("1 missing")
    assert re.search(r"1  -? *missing ", line_of(lines, "1"))


def test_a_driver_that_is_not_loaded_is_said_and_not_waited_for(fake_host: MakeHost, tmp_path: Path) -> None:
    host = fake_host(three_gpus(Fault("driver_not_loaded")))
    put_on_bus(tmp_path / "sys", "0000:17:00.0")
    host.environment["NVIDIA_VISIBLE_DEVICES"] = "all"
    done = host.once()
    assert (done.returncode, done.stdout) == (1, "")
    assert "modprobe nvidia" in done.stderr


@pytest.mark.parametrize(("users", "shown"), [(4, "u0, u1, u2, u3"), (7, "u0, u1, u2, u3 +3")])
def test_long_values_find_room(users: int, shown: str) -> None:
    rows = [{"gpu": "GPU-a", "health": "reset_required"}, {"gpu": "GPU-b", "health": "ok"}]
    processes = [{"gpu": "GPU-a", "pid": n, "kind": "compute", "user": f"u{n}"} for n in range(users)]
    look: Any = replace(snapshot(), gpus=tuple(rows), processes=tuple(processes), devices={})
    lines = table_text(look).splitlines()
    assert lines[2].endswith(f"  {shown}")
    assert " reset_required " in lines[2]
    assert len({line.index("  - ", 30) for line in (lines[2], lines[3])}) == 1, "the columns stand below one another"


PROGRAM = (
    "import argparse, sys\n"
    "from agent.top import command\n"
    "from fallow.errors import FallowError\n"
    "parser = argparse.ArgumentParser()\n"
    "command.add_arguments(parser)\n"
    "try:\n"
    "    sys.exit(command.run(parser.parse_args()))\n"
    "except FallowError as error:\n"
    "    sys.exit(f'fallow: {error}')\n"
)


def line_of(lines: list[str], label: str) -> str:
    """The line of the GPU table for a GPU's label."""
    [found] = [line for line in lines[5:] if line.split()[:1] == [label]][:1]
    return found


class Terminal:
    """A program on a pseudo-terminal, and all that it has written."""

    def __init__(self, environment: dict[str, str], columns: int, rows: int, *arguments: str) -> None:
        self.main, child = pty.openpty()
        self.resize(columns, rows)
        self._child = child
        self.before = termios.tcgetattr(child)
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", PROGRAM, *arguments],
            stdin=child,
            stdout=child,
            stderr=child,
            cwd=REPOSITORY,
            env=environment,
            start_new_session=True,
        )
        self.written = ""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: bytes) -> None:
        os.write(self.main, keys)

    def await_text(self, pattern: str, timeout_s: float = 120) -> str:
        """What was written up to here, when the pattern has come since the last call."""
        since, deadline = "", time.monotonic() + timeout_s
        while not re.search(pattern, since, re.DOTALL):
            assert time.monotonic() < deadline, f"{pattern!r} never came: {since[-3000:]!r}"
            since += self._read()
        return since

    def ended(self) -> tuple[int, bool]:
        """The exit code, and whether the terminal is as it was before."""
        code = self.process.wait(120)
        while self._read():
            pass
        return code, termios.tcgetattr(self._child) == self.before

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.main)
        os.close(self._child)

    def _read(self) -> str:
        if not select.select([self.main], [], [], 0.2)[0]:
            return ""
        piece = os.read(self.main, 65536).decode(errors="replace")
        self.written += piece
        return piece

"""The control socket: what the agent hears, who may speak, and what no client can do to it."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.command import status_text
from agent.snapshot import PublishingStatus, Snapshot
from agent.supervise.control import SOCKET_NAME, AgentStatus, Blocked, ControlServer, NoAgentError, ask
from fallow.cli import main
from fallow.errors import FallowError, SpoolError, UsageError
from tests.agent.snapshots import snapshot
from tests.conftest import REPOSITORY, clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Listen = Callable[..., ControlServer]
    Tell = Callable[..., tuple[int, str, str]]

NOW = AgentStatus(
    mode="running", pid=77, host="gn001", version="0.2.0", started_ms=1_795_000_000_000, interval_ms=10_000
)


def echo(verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"verb": verb, **arguments}


@pytest.fixture
def listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listen]:
    monkeypatch.setattr("agent.supervise.control._PATIENCE_S", 60.0)  # no client is so slow on a busy machine
    servers: list[ControlServer] = []

    def start(handler: Callable[..., dict[str, Any]] = echo, folder: Path = tmp_path) -> ControlServer:
        server = ControlServer(str(folder), handler)
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


def test_question_and_answer(listen: Listen, tmp_path: Path) -> None:
    server = listen()
    mode = (tmp_path / SOCKET_NAME).stat().st_mode
    assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600), "nobody else may speak"
    assert ask(str(tmp_path), "release", 60, for_ms=7_200_000) == {"verb": "release", "for_ms": 7_200_000}
    server.close()
    assert not (tmp_path / SOCKET_NAME).exists()
    server.close()  # twice does no harm


def test_a_whole_snapshot_comes_through(listen: Listen, tmp_path: Path) -> None:
    seen = snapshot(pool="p" * 3_000_000)  # more than any socket buffer
    listen(lambda *_: seen.as_json())
    assert Snapshot.from_json(ask(str(tmp_path), "snapshot", 60)) == seen


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_is_told_what_to_do(listen: Listen) -> None:
    code = "import os, sys; from agent.supervise.control import ask; os.setuid(65534); ask(sys.argv[1], 'status', 60)"
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders let nobody else pass
        Path(folder).chmod(0o755)
        listen(folder=Path(folder))
        done = subprocess.run(
            [sys.executable, "-c", code, folder],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            cwd=REPOSITORY,
            env=clean_environment(),
        )
    assert "may not talk to the agent" in done.stderr
    assert "sudo" in done.stderr


def test_where_no_agent_runs_and_one_that_replaces_a_killed_ones_socket(listen: Listen, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as killed:  # a socket file that nobody listens on any more
        killed.bind(str(tmp_path / SOCKET_NAME))
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NoAgentError, match="no agent runs on the spool"):
            ask(str(folder), "status", 60)
    listen()
    assert ask(str(tmp_path), "status", 60) == {"verb": "status"}


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / SOCKET_NAME).write_text("somebody's notes")
    with pytest.raises(SpoolError, match="cannot listen on"):
        ControlServer(str(tmp_path), echo).start()
    assert (tmp_path / SOCKET_NAME).read_text() == "somebody's notes"


def test_a_path_longer_than_a_socket_address(listen: Listen, tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["long-name-of-a-folder"] * 10)
    deep.mkdir(parents=True)
    assert len(str(deep)) > 107
    listen(folder=deep)
    assert ask(str(deep), "status", 60) == {"verb": "status"}


def test_errors_of_the_handler_are_sentences(listen: Listen, tmp_path: Path) -> None:
    def fail(verb: str, _: dict[str, Any]) -> dict[str, Any]:
        if verb == "release":
            raise UsageError("that is wrong", "write it right")
        raise RuntimeError("broken")

    listen(fail)
    with pytest.raises(FallowError, match="that is wrong; write it right"):
        ask(str(tmp_path), "release", 60)
    with pytest.raises(FallowError, match="failed to answer"):
        ask(str(tmp_path), "status", 60)
    with pytest.raises(FallowError, match="knows no verb 'halt'"):
        ask(str(tmp_path), "halt", 60)


GARBAGE = (
    b"\n", b"\xff\xfe\x00\n", b"[1]\n", b'{"no": "verb"}\n', b'{"verb": ["status"]}\n', b"[" * 10_000 + b"\n",
    b"status", b"", b"x" * (8 << 20),
)  # fmt: skip


@pytest.mark.parametrize("sent", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_does_no_harm(listen: Listen, tmp_path: Path, sent: bytes) -> None:
    listen()
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(str(tmp_path / SOCKET_NAME))
        try:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            answer = client.recv(1 << 16)
        except OSError:  # it was shown the door
            answer = b""
    assert answer == b"" or "error" in json.loads(answer)
    assert ask(str(tmp_path), "status", 60) == {"verb": "status"}


def test_a_client_that_hangs_is_let_go(listen: Listen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.supervise.control._PATIENCE_S", 0.1)
    listen()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.settimeout(60)
        silent.connect(str(tmp_path / SOCKET_NAME))
        while silent.recv(1 << 16):  # what is wrong, and then the end
            pass
        monkeypatch.setattr("agent.supervise.control._PATIENCE_S", 60)
        assert ask(str(tmp_path), "status", 60) == {"verb": "status"}


def test_an_agent_that_hangs_is_told_of(listen: Listen, tmp_path: Path) -> None:
    gate = threading.Event()
    listen(lambda *_: {"in_time": gate.wait(20)})
    with pytest.raises(FallowError, match=r"does not answer within 0\.2 s"):
        ask(str(tmp_path), "status", 0.2)
    gate.set()


def test_closing_leaves_nothing_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        server = ControlServer(str(tmp_path), echo)
        server.start()
        ask(str(tmp_path), "status", 60)
        server.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


class Agent:
    """An agent that lets go of its driver when it has been asked about it a few times."""

    def __init__(self, blocked: tuple[Blocked, ...] = (), after: int = 2) -> None:
        self.now = replace(NOW, blocked=blocked)
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self._left = after

    def handle(self, verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.heard.append((verb, arguments))
        if verb == "release":
            until_ms = None if arguments["for_ms"] is None else NOW.started_ms + arguments["for_ms"]
            self.now = replace(self.now, mode="releasing", released_until_ms=until_ms)
        elif verb == "resume":
            self.now = replace(self.now, mode="running")
        elif self.now.mode == "releasing":
            self._left -= 1
            self.now = replace(self.now, mode="released" if self._left <= 0 else "releasing")
        return self.now.as_json()


@pytest.fixture
def tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Tell:
    """Runs a verb of `fallow agent` on this spool: exit code, output, errors."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["agent", *words, "--spool", str(tmp_path)])
        return code, *capsys.readouterr()

    return run


def test_release_waits_until_the_driver_is_free_and_resume_uses_it_again(listen: Listen, tell: Tell) -> None:
    agent = Agent()
    listen(agent.handle)
    assert tell("resume") == (0, "The agent on gn001 had not released the driver; nothing has changed.\n", "")
    agent.heard.clear()
    free = (
        "The driver is free: the agent on gn001 no longer holds any /dev/nvidia*; `fallow agent resume` uses it again, "
        "and the agent resumes by itself at 2026-11-18T13:06:40Z.\n"
    )
    assert tell("release", "--for", "2h") == (0, free, "")
    assert agent.heard == [("release", {"for_ms": 7_200_000}), ("status", {}), ("status", {})]
    assert tell("resume") == (0, "The agent on gn001 uses the driver again; its next row is due within 20s.\n", "")


def test_release_names_who_blocks(listen: Listen, tell: Tell) -> None:
    agent = Agent((Blocked(4242, "GPU-1", 3, "nvmlDeviceGetSamples"), Blocked(4243, None, None, "nvmlInit")))
    listen(agent.handle)
    code, output, errors = tell("release")
    assert (code, output) == (1, "")
    assert errors.startswith(
        "fallow: the driver is still held on gn001: worker 4242 is stuck in nvmlDeviceGetSamples on GPU 3 (GPU-1); "
        "worker 4243 is stuck in nvmlInit on an unknown GPU; "
    )
    code, output, _ = tell("release", "--json")
    assert (code, AgentStatus.from_json(json.loads(output)).blocked) == (1, agent.now.blocked)


def test_release_gives_up_when_told_to(listen: Listen, tell: Tell) -> None:
    listen(Agent(after=1_000_000).handle)
    code, _, errors = tell("release", "--wait", "300ms")
    assert code == 1
    assert "has not released the driver within 300ms" in errors


def test_status_for_people_and_machines(listen: Listen, tell: Tell, tmp_path: Path) -> None:
    none = f"fallow: no agent runs on the spool {tmp_path}; check --spool, or start it: `fallow agent run`\n"
    assert tell("status") == (1, "", none)
    listen(lambda *_: NOW.as_json())
    assert tell("status")[1].startswith("fallow 0.2.0 on gn001, process 77, running\n")
    assert AgentStatus.from_json(json.loads(tell("status", "--json")[1])) == NOW


def test_the_whole_status() -> None:
    now_ms = NOW.started_ms + 3_600_000
    publishing = PublishingStatus(now_ms - 90_000, now_ms - 30_000, "no route to host", 1234, 3 << 20)
    whole = replace(
        NOW,
        mode="released",
        time_ms=now_ms - 4_321,
        gpus={"ok": 7, "lost": 1},
        released_until_ms=now_ms + 60_000,
        blocked=(Blocked(5, "GPU-1", 2, "nvmlX"),),
        publishing=publishing,
    )
    assert (
        status_text(whole, now_ms)
        == "fallow 0.2.0 on gn001, process 77, released until 2026-11-18T12:07:40Z: it holds no /dev/nvidia*\n  rows   "
        "     one every 10s, the newest ended 4s ago; started 2026-11-18T11:06:40Z\n  GPUs        1 lost, 7 ok\n "
        " publishing  last 1min 30s ago, 1,234 rows wait in 3.0 MiB; failing since 2026-11-18T12:06:10Z: no route to"
        " host\n  blocked     worker 5 is stuck in nvmlX on GPU 2 (GPU-1)"
    )
    assert AgentStatus.from_json(json.loads(json.dumps(whole.as_json()))) == whole

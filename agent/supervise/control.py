"""The control socket of the running agent, for its status, for releasing the driver and for resuming its use.

The socket is in the spool folder, for the agent's own user and root; request and answer are one JSON line each. A
request is `{"verb": "status"}`, further keys are arguments. The answer is the handler's result, or
`{"error": ..., "hint": ...}`. Verbs: status, snapshot, release (for_ms or null), resume. `snapshot` answers with
`Snapshot.as_json()`, the others with `AgentStatus.as_json()` after the verb's effect.

The control thread receives requests. The sampling loop executes those that concern the workers, between its own
requests, because a worker answers one request at a time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Any

from agent.snapshot import PublishingStatus
from fallow import __version__
from fallow.clock import seconds_left
from fallow.errors import FallowError, SpoolError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.settings import AgentSettings
    from agent.snapshot import SnapshotBoard
    from agent.spool.spool import Spool
    from agent.supervise.fleet import HostGpus
    from agent.supervise.recorder import Recorder
    from fallow.bell import Bell
    from fallow.clock import Clock


@dataclass(frozen=True)
class Blocked:
    """A worker process that cannot release the driver, because a driver call does not return."""

    pid: int
    gpu: str | None
    """UUID of the GPU; None where the driver has not reported it yet."""
    gpu_index: int | None
    call: str


@dataclass(frozen=True)
class AgentStatus:
    mode: str
    """`running`, `releasing` (the workers have not all ended yet) or `released`."""
    pid: int
    host: str
    version: str
    started_ms: int
    interval_ms: int
    time_ms: int | None = None
    """End of the newest closed interval; None before the first."""
    missed_at_start: int | None = None
    """Intervals without a row between the run before and this one; None where no run is known before this one."""
    gpus: Mapping[str, int] = field(default_factory=dict)
    """Number of GPUs and MIG instances in each state of health."""
    released_until_ms: int | None = None
    """When the agent uses the driver again without a request; None: only on request."""
    blocked: tuple[Blocked, ...] = ()
    publishing: PublishingStatus = field(default_factory=PublishingStatus)

    def as_json(self) -> dict[str, Any]:
        """Return the status as JSON values; `from_json` reads them back."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> AgentStatus:
        """Return the status that `as_json` wrote, without the unknown fields of a newer agent."""
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        known["blocked"] = tuple(Blocked(**each) for each in known.get("blocked", ()))
        known["publishing"] = PublishingStatus(**known.get("publishing", {}))
        return cls(**known)


SOCKET_NAME = "agent.sock"
VERBS = ("status", "snapshot", "release", "resume")

Handler = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Returns the answer to a verb and its arguments. Runs in the control thread; may raise FallowError."""

_LONGEST_REQUEST = 1 << 14
_LONGEST_ANSWER = 1 << 26
_PATIENCE_S = 2.0  # time for a client to send its request, and again to read the answer

log = logging.getLogger("fallow.agent")


class NoAgentError(FallowError):
    """No agent listens on this spool."""


class ControlServer:
    """Listens in its own thread and serves one client at a time, with a time limit for each."""

    def __init__(self, folder: str, handler: Handler) -> None:
        self._folder = folder
        self._handler = handler
        self._wake, self._waker = os.pipe()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread = threading.Thread(target=self._serve, name="control", daemon=True)

    def start(self) -> None:
        """Begin to listen, and replace the socket that a killed agent left. The caller must hold the spool's lock.

        Raises SpoolError where the folder cannot hold a socket.
        """
        try:
            with _short(self._folder) as path:
                if _is_socket(path):
                    path.unlink()
                self._socket.bind(str(path))
                path.chmod(0o600)  # no client can connect before listen()
            self._socket.listen(8)
        except OSError as error:
            self._release()
            raise SpoolError(
                f"cannot listen on {self._folder}/{SOCKET_NAME}: {error.strerror}",
                "keep the spool on a local disk, in a folder that the agent's user can write to",
            ) from error
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            os.write(self._waker, b"x")
            self._thread.join()
            with contextlib.suppress(OSError), _short(self._folder) as path:
                path.unlink()
        self._release()

    def _release(self) -> None:
        """Close every descriptor once: after a close, its number may belong to another file."""
        self._socket.close()
        descriptors, self._wake, self._waker = (self._wake, self._waker), -1, -1
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)

    def _serve(self) -> None:
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        waiting.register(self._wake, select.POLLIN)
        while True:
            if any(descriptor == self._wake for descriptor, _ in waiting.poll()):
                return
            with contextlib.suppress(OSError):  # the client went away
                client, _ = self._socket.accept()
                with client:
                    self._converse(client)

    def _converse(self, client: socket.socket) -> None:
        try:
            answer = self._answer(_read_line(client, _LONGEST_REQUEST, time.monotonic() + _PATIENCE_S))
        except FallowError as error:
            answer = {"error": error.message, "hint": error.hint}
        except Exception as error:  # whatever fails in the handler, the agent goes on
            log.exception("a request on the control socket failed")
            answer = {"error": f"the agent failed to answer: {error!r}", "hint": "its log holds more"}
        client.settimeout(_PATIENCE_S)
        client.sendall(json.dumps(answer).encode() + b"\n")

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            verb = request.pop("verb")
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
            raise FallowError(
                "the request is not a JSON object with a verb", f"send one of {', '.join(VERBS)}"
            ) from None
        if verb not in VERBS:
            raise FallowError(f"the agent knows no verb {verb!r}", f"say one of {', '.join(VERBS)}")
        return self._handler(verb, request)


def ask(folder: str, verb: str, timeout_s: float, **arguments: Any) -> dict[str, Any]:
    """Return the answer of the agent that runs on the spool in `folder`.

    Raises NoAgentError where no agent runs there. Raises FallowError where this user may not ask it, where it does not
    answer within `timeout_s`, and where it answers with an error.
    """
    deadline_s = time.monotonic() + timeout_s
    try:
        with _connected(folder, timeout_s) as agent:
            agent.sendall(json.dumps({"verb": verb} | arguments).encode() + b"\n")
            line = _read_line(agent, _LONGEST_ANSWER, deadline_s)
        answer: dict[str, Any] = json.loads(line)
    except PermissionError as error:
        raise FallowError(
            f"this user may not talk to the agent on {folder}", "run it as the agent's user or as root (sudo)"
        ) from error
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
        raise NoAgentError(
            f"no agent runs on the spool {folder}", "check --spool, or start it: `fallow agent run`"
        ) from error
    except (OSError, ValueError) as error:
        why = f"within {timeout_s:g} s" if isinstance(error, TimeoutError) else f"({error})"
        raise FallowError(f"the agent on {folder} does not answer {why}", "read its log for the reason") from error
    if "error" in answer:
        raise FallowError(str(answer["error"]), str(answer.get("hint", "")))
    return answer


@contextlib.contextmanager
def _connected(folder: str, timeout_s: float) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
        agent.settimeout(timeout_s)
        with _short(folder) as path:
            agent.connect(str(path))
        yield agent


@contextlib.contextmanager
def _short(folder: str) -> Iterator[Path]:
    """Yield a short path of the socket, through an open descriptor of its folder: an address has at most 107 bytes."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield Path("/proc/self/fd", str(descriptor), SOCKET_NAME)
    finally:
        os.close(descriptor)


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _read_line(peer: socket.socket, longest: int, deadline_s: float) -> bytes:
    """Return one line; TimeoutError at the deadline, even while bytes arrive, and FallowError where it is too long."""
    received = bytearray()
    while b"\n" not in received:
        if len(received) > longest:
            raise FallowError(f"more than {longest} bytes in one line", "")
        peer.settimeout(seconds_left(deadline_s))
        part = peer.recv(1 << 16)
        if not part:
            raise ConnectionError("the peer closed the connection")
        received += part
    return bytes(received.partition(b"\n")[0])


_OBEYED_S = 8.0  # the client waits for ten


class Orders:
    """Keeps whether the driver is released, even across restarts within one boot of the machine."""

    def __init__(
        self, settings: AgentSettings, fleet: HostGpus, board: SnapshotBoard, bell: Bell, clock: Clock
    ) -> None:
        self.settings = settings
        self._fleet = fleet
        self._board = board
        self._bell = bell
        self._clock = clock
        self._started_ms = clock.now_ms()
        self._asked: SimpleQueue[tuple[str, int | None, Event]] = SimpleQueue()
        self._until_ms: int | None = None
        self._releasing = False
        self._blocked: tuple[Blocked, ...] = ()
        self.missed_at_start: int | None = None

    def remember(self, spool: Spool, boot_id: str) -> bool:
        """Return whether an earlier run of this boot released the driver, and the release still holds."""
        from agent.spool.spool import read_fact  # loaded here, because clients of the agent do not need it

        known = read_fact(spool, "released", dict, {})
        until_ms = known.get("until_ms")
        over = isinstance(until_ms, int) and until_ms <= self._clock.now_ms()
        if known.get("boot_id") != boot_id or not boot_id or over:
            return False
        self._until_ms = until_ms
        return bool(known)

    def handle(self, verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a verb, in the control thread; raises FallowError for a request it cannot fulfil."""
        if verb == "snapshot":
            snapshot = self._board.latest()
            if snapshot is None:
                raise FallowError("the agent has not closed an interval yet", "ask again after its first interval")
            return snapshot.as_json()
        if verb in ("release", "resume"):
            for_ms = arguments.get("for_ms")
            if for_ms is not None and (not isinstance(for_ms, int) or for_ms <= 0):
                raise UsageError(
                    f"cannot release the driver for {for_ms!r} ms", "name a whole number above 0, or omit it"
                )
            done = Event()
            self._releasing = self._releasing or verb == "release"
            self._asked.put((verb, for_ms, done))
            self._bell.ring()
            done.wait(_OBEYED_S)  # the loop waits for a running call; the client asks again
        return self._status().as_json()

    def obey(self, recorder: Recorder, boot_id: str) -> None:
        """Execute the requests since the last call, and resume when the time of a release is over."""
        if self._fleet.released and self._until_ms is not None and self._clock.now_ms() >= self._until_ms:
            self._resume(recorder, "the time of the release is over")
        while not self._asked.empty():
            verb, for_ms, done = self._asked.get()
            if verb == "resume" and self._fleet.released:
                self._resume(recorder, "on request")
            elif verb == "release":
                self._until_ms = None if for_ms is None else self._clock.now_ms() + for_ms
                if not self._fleet.released:
                    self._blocked = tuple(
                        Blocked(pid, uuid, None if uuid is None else self._fleet.known.indexes.get(uuid), call)
                        for pid, uuid, call in self._fleet.release()
                    )
                    recorder.note("released", "the agent has released the driver on request")
                recorder.write_now({"released": json.dumps({"boot_id": boot_id, "until_ms": self._until_ms})})
            self._releasing = False
            done.set()

    def _resume(self, recorder: Recorder, why: str) -> None:
        self._fleet.resume()
        self._until_ms = None
        self._blocked = ()
        recorder.note("resumed", f"the agent uses the driver again: {why}")
        recorder.write_now({"released": "{}"})

    def _status(self) -> AgentStatus:
        snapshot = self._board.latest()
        mode = "releasing" if self._releasing else "released" if self._fleet.released else "running"
        return AgentStatus(
            mode=mode,
            pid=os.getpid(),
            host=self.settings.host,
            version=__version__,
            started_ms=self._started_ms,
            interval_ms=self.settings.interval_ms if snapshot is None else snapshot.interval_ms,
            time_ms=None if snapshot is None else snapshot.time_ms,
            gpus={} if snapshot is None else dict(Counter(row["health"] for row in snapshot.gpus)),
            missed_at_start=self.missed_at_start,
            released_until_ms=self._until_ms,
            blocked=tuple(each for each in self._blocked if _alive(each.pid)),
            publishing=PublishingStatus() if snapshot is None else snapshot.publishing,
        )


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True

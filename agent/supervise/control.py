"""The agent's control socket in its spool folder: for the agent's own user and root, one JSON line each way.

A request is `{"verb": "status"}`, further keys are arguments. The answer is what the handler returns, or
`{"error": ..., "hint": ...}`. Verbs: status, snapshot, release (for_ms or null), resume. `snapshot` answers with
`Snapshot.as_json()`, the others with `AgentStatus.as_json()` as it is after the verb was obeyed.
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
from typing import TYPE_CHECKING, Any

from agent.snapshot import PublishingStatus
from fallow.errors import FallowError, SpoolError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.snapshot import Snapshot


@dataclass(frozen=True)
class Blocked:
    """A worker process that cannot release the driver, because one of its calls does not return."""

    pid: int
    gpu: str | None
    """UUID, None where the driver did not get as far as naming it."""
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
    """When the agent uses the driver again on its own; None: on request."""
    blocked: tuple[Blocked, ...] = ()
    publishing: PublishingStatus = field(default_factory=PublishingStatus)

    def as_json(self) -> dict[str, Any]:
        """The status as JSON values; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> AgentStatus:
        """The status that `as_json` wrote; fields that a newer agent may have added are left out."""
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        known["blocked"] = tuple(Blocked(**each) for each in known.get("blocked", ()))
        known["publishing"] = PublishingStatus(**known.get("publishing", {}))
        return cls(**known)


def count_health(snapshot: Snapshot | None) -> dict[str, int]:
    """How many GPUs and MIG instances are in each state of health."""
    return {} if snapshot is None else dict(Counter(row["health"] for row in snapshot.gpus))


SOCKET_NAME = "agent.sock"
VERBS = ("status", "snapshot", "release", "resume")

Handler = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Answers a verb and its arguments; runs in the control thread; may raise FallowError."""

_LONGEST_REQUEST = 1 << 14
_LONGEST_ANSWER = 1 << 26
_PATIENCE_S = 2.0  # for a client to say what it wants, and again to read the answer

log = logging.getLogger("fallow.agent")


class NoAgentError(FallowError):
    """No agent listens on this spool."""


class ControlServer:
    """Listens in a thread of its own; one client at a time, none for longer than it takes to answer a living one."""

    def __init__(self, folder: str, handler: Handler) -> None:
        self._folder = folder
        self._handler = handler
        self._wake, self._waker = os.pipe()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread = threading.Thread(target=self._serve, name="control", daemon=True)

    def start(self) -> None:
        """Begins to listen, in place of a socket that a killed agent left; the caller holds the spool's lock.

        Raises SpoolError where the folder cannot hold a socket.
        """
        try:
            with _short(self._folder) as path:
                if _is_socket(path):
                    path.unlink()
                self._socket.bind(str(path))
                path.chmod(0o600)  # nobody can connect before listen()
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
        """Closes everything once: the numbers may by now be those of somebody else's files."""
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
                "the request is not a JSON object with a verb", f"say one of {', '.join(VERBS)}"
            ) from None
        if verb not in VERBS:
            raise FallowError(f"the agent knows no verb {verb!r}", f"say one of {', '.join(VERBS)}")
        return self._handler(verb, request)


def ask(folder: str, verb: str, timeout_s: float, **arguments: Any) -> dict[str, Any]:
    """The answer of the agent that runs on the spool in `folder`.

    Raises NoAgentError where none runs there, FallowError where it may not be asked, does not answer within
    `timeout_s` or answers with an error.
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
        raise FallowError(f"the agent on {folder} does not answer {why}", "its log says what it is doing") from error
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
    """The socket's path through an open descriptor of its folder: an address holds only 107 bytes."""
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
    """One line; TimeoutError at the deadline, however slowly it drips in, and FallowError where it is too long."""
    received = bytearray()
    while b"\n" not in received:
        if len(received) > longest:
            raise FallowError(f"more than {longest} bytes in one line", "")
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        peer.settimeout(left_s)
        part = peer.recv(1 << 16)
        if not part:
            raise ConnectionError("the peer closed the connection")
        received += part
    return bytes(received.partition(b"\n")[0])

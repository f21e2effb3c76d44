"""Runs what may block for ever (the driver, a dead file server, a far store) in a process that can be left behind."""

from __future__ import annotations

import contextlib
import json
import selectors
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PATIENCE_S = 1.0
_left_behind: list[subprocess.Popen[bytes]] = []
"""Processes that did not end when asked: kept, so that nothing waits for them."""


@dataclass(frozen=True)
class Outcome:
    """What a probe said before it ended, one JSON object a line, and how it ended.

    `ending` is `done`, `hung` (no line for the whole timeout) or `crashed` (with the signal or exit code in `detail`).
    """

    lines: tuple[dict[str, Any], ...]
    ending: str
    detail: str = ""

    @property
    def step(self) -> str:
        """What it was about to do when it ended."""
        return next((str(line["step"]) for line in reversed(self.lines) if "step" in line), "")

    def last(self, key: str) -> Any:
        """The newest value under a key; None where it was never said."""
        return next((line[key] for line in reversed(self.lines) if key in line), None)

    def every(self, key: str) -> list[Any]:
        """All values under a key, in order."""
        return [line[key] for line in self.lines if key in line]


def run_isolated(module: str, arguments: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> Outcome:
    """Runs a probe module; `timeout_s` is how long it may take from one line to the next.

    A probe that hangs gets SIGTERM and is then left alone: SIGKILL on a process that is stuck in the driver has frozen
    GPUs.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, env=dict(environment),
    )  # fmt: skip
    assert process.stdout is not None  # noqa: S101  # a pipe was asked for
    with process.stdout as output, selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        text, hung = b"", False
        while selector.select(timeout_s):
            piece = output.read(1 << 16)
            if not piece:
                break
            text += piece
        else:
            hung = True
    lines = tuple(json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n"))
    return Outcome(lines, *_end(process, hung=hung))


def announce(step: str) -> None:
    """In a probe: says what comes next, so that a call that never returns can be named."""
    say(step=step)


def say(**values: Any) -> None:
    """In a probe: one line of the answer."""
    print(json.dumps(values), flush=True)


def _end(process: subprocess.Popen[bytes], *, hung: bool) -> tuple[str, str]:
    if hung:
        process.terminate()
    deadline_s = time.monotonic() + _PATIENCE_S
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, deadline_s - time.monotonic()))
    if hung or process.returncode is None:
        if process.returncode is None:
            _left_behind.append(process)
        return "hung", ""
    if process.returncode == 0:
        return "done", ""
    code = process.returncode
    return "crashed", f"signal {-code}" if code < 0 else f"exit code {code}"

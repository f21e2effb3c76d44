"""One look at the driver through a process of its own; nothing here ever loads the driver's library.

What may block for ever (the driver, a dead file server, a far store) runs in a process that can be left behind.
"""

from __future__ import annotations

import contextlib
import json
import re
import selectors
import subprocess
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent.own_process import module_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.doctor.host import HostFiles

_PATIENCE_S = 1.0
_left_behind: list[subprocess.Popen[bytes]] = []
"""Processes that did not end when asked: kept, so that nothing waits for them."""


@dataclass(frozen=True)
class LookOutcome:
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
        return [line[key] for line in self.lines if key in line]


def run_isolated(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], timeout_s: float
) -> LookOutcome:
    """Runs a probe module; `timeout_s` is how long it may take from one line to the next.

    A probe that hangs gets SIGTERM and is then left alone: SIGKILL on a process that is stuck in the driver has frozen
    GPUs.
    """
    process = subprocess.Popen(
        module_command(module, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        env=dict(environment),
    )
    assert process.stdout is not None  # noqa: S101  # a pipe was asked for
    with process.stdout as output, selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        text, hung = b"", False
        while selector.select(timeout_s):
            part = output.read(1 << 16)
            if not part:
                break
            text += part
        else:
            hung = True
    lines = tuple(json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n"))
    return LookOutcome(lines, *_end(process, hung=hung))


def announce(step: str) -> None:
    """In a probe: says what comes next, so that a call that never returns can be named."""
    tr(step=step)


def tr(**values: Any) -> None:
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


_MOST_HUNG_GPUS = 2
"""After so many GPUs that block, the rest is not waited for."""
_HUNG_GPU = re.compile(r"GPU (\d+): ")


@dataclass(frozen=True)
class GpuLook:
    """What the driver says of one GPU; None is unknown, `error` is not empty where it cannot be used."""

    index: int
    uuid: str = ""
    model: str = ""
    capability: tuple[int, int] | None = None
    minor: int | None = None
    pci: str | None = None
    persistence: bool | None = None
    mig: bool | None = None
    mig_instances: int | None = None
    error: str = ""
    denied: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"GPU {self.index} ({self.model})" if self.model else f"GPU {self.index}"


@dataclass(frozen=True)
class DriverLook:
    """What the driver says of itself, as far as it answered.

    `state` is `ok`, `refused` (nvmlInit returned `code`), `hung` or `crashed` (in `step`).
    """

    state: str
    step: str = ""
    detail: str = ""
    code: int = 0
    message: str = ""
    library: str | None = None
    driver_version: str | None = None
    nvml_version: str | None = None
    cuda_version: tuple[int, int] | None = None
    control_errno: int | None = None
    gpu_count: int | None = None
    gpus: tuple[GpuLook, ...] = ()
    hung: tuple[str, ...] = ()
    """`GPU 3: nvmlDeviceGetName` for each GPU whose call did not return."""


def look_at_driver(host: HostFiles, timeout_s: float) -> DriverLook:
    """Asks once, and again without the GPU that blocks; `timeout_s` is the longest wait for one call."""
    skip: list[str] = []
    hung: list[str] = []
    gpus: dict[int, GpuLook] = {}
    while True:
        outcome = run_isolated("agent.doctor.probe", [str(host.dev), *skip], host.environment, timeout_s)
        gpus |= {each["index"]: _gpu(each) for each in outcome.every("gpu")}
        blocked = _HUNG_GPU.match(outcome.step) if outcome.ending == "hung" else None
        if blocked is None:
            break
        hung.append(outcome.step)
        skip.append(blocked[1])
        if len(hung) == _MOST_HUNG_GPUS:
            break
    look = _driver(outcome)
    if hung and look.driver_version is not None:
        look = replace(look, state="ok")  # the driver answers; it is a GPU that does not
    return replace(look, gpus=tuple(gpus[index] for index in sorted(gpus)), hung=tuple(hung))


def _driver(outcome: LookOutcome) -> DriverLook:
    said = {name: value for line in outcome.lines for name, value in line.items()}
    refused, cuda = said.get("refused"), said.get("cuda_version")
    return DriverLook(
        state="refused" if refused else "ok" if outcome.ending == "done" else outcome.ending,
        step=outcome.step,
        detail=outcome.detail,
        **refused or {},
        library=said.get("library"),
        driver_version=said.get("driver_version"),
        nvml_version=said.get("nvml_version"),
        cuda_version=None if cuda is None else (cuda // 1000, cuda % 1000 // 10),
        control_errno=said.get("control_errno"),
        gpu_count=said.get("count"),
    )


def _gpu(answer: dict[str, Any]) -> GpuLook:
    """What the probe says of a GPU: JSON has lists in place of tuples, and NVML numbers in place of switches."""
    tuples = {name: tuple(value) for name, value in answer.items() if isinstance(value, list)}
    switches = {name: bool(answer[name]) for name in ("persistence", "mig") if answer.get(name) is not None}
    return GpuLook(**{**answer, **tuples, **switches, "model": answer.get("model") or ""})

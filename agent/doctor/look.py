"""Queries of the driver in a child process, because this process never loads the driver's library.

A call that may block for ever (driver, file server, remote store) runs in a child, which the doctor can abandon.
"""

from __future__ import annotations

import contextlib
import json
import re
import selectors
import subprocess
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent.own_process import module_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.doctor.host import HostFiles

_PATIENCE_S = 1.0
_left_behind: list[subprocess.Popen[bytes]] = []
"""Children that did not end after SIGTERM. A reference to them is kept, so that Python does not wait for them."""


@dataclass(frozen=True)
class LookOutcome:
    """The output of a probe, and how it ended."""

    lines: tuple[dict[str, Any], ...]
    """One JSON object per line."""
    ending: str
    """`done`, `hung` (no line within the timeout) or `crashed`."""
    detail: str = ""
    """The signal or the exit code of a crash."""

    @property
    def step(self) -> str:
        """Return the step that the probe announced last."""
        return next((str(line["step"]) for line in reversed(self.lines) if "step" in line), "")

    def last(self, key: str) -> Any:
        """Return the newest value of a key; None where no line has the key."""
        return next((line[key] for line in reversed(self.lines) if key in line), None)

    def every(self, key: str) -> list[Any]:
        return [line[key] for line in self.lines if key in line]


def run_isolated(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], timeout_s: float
) -> LookOutcome:
    """Run a probe module and return its output; `timeout_s` limits the time from one line to the next.

    A probe that hangs gets SIGTERM, never SIGKILL, which has frozen GPUs when the process was stuck in the driver.
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
    return LookOutcome(lines, *_ending(process, hung=hung))


def announce(step: str) -> None:
    """Write, in a probe, the name of the next step, so that the parent can name a call that never returns."""
    write_answer(step=step)


def write_answer(**values: Any) -> None:
    """Write, in a probe, one line of JSON for the parent."""
    print(json.dumps(values), flush=True)


def _ending(process: subprocess.Popen[bytes], *, hung: bool) -> tuple[str, str]:
    if hung:
        process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_PATIENCE_S)
    if process.returncode is None:
        _left_behind.append(process)
    if hung or process.returncode is None:
        return "hung", ""
    if process.returncode == 0:
        return "done", ""
    code = process.returncode
    return "crashed", f"signal {-code}" if code < 0 else f"exit code {code}"


_MOST_HUNG_GPUS = 2
"""After this number of GPUs that block, the doctor does not query the remaining GPUs."""
_HUNG_GPU = re.compile(r"GPU (\d+): ")


@dataclass(frozen=True)
class GpuLook:
    """The driver's answers about one GPU; None is unknown. `error` is not empty where the GPU is unusable."""

    index: int
    uuid: str = ""
    model: str = ""
    capability: tuple[int, int] | None = None
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
    """The driver's answers about itself; None is unknown."""

    state: str
    """`ok`, `refused` (nvmlInit returned `code`), `hung` or `crashed` (both in `step`)."""
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
    """Return the driver's answers. After a GPU blocks, ask again without that GPU. `timeout_s` limits one call."""
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
        look = replace(look, state="ok")  # the driver answers, only a GPU does not
    return replace(look, gpus=tuple(gpus[index] for index in sorted(gpus)), hung=tuple(hung))


def _driver(outcome: LookOutcome) -> DriverLook:
    answers = {name: value for line in outcome.lines for name, value in line.items()}
    refused, cuda = answers.get("refused"), answers.get("cuda_version")
    return DriverLook(
        state="refused" if refused else "ok" if outcome.ending == "done" else outcome.ending,
        step=outcome.step,
        detail=outcome.detail,
        **refused or {},
        library=answers.get("library"),
        driver_version=answers.get("driver_version"),
        nvml_version=answers.get("nvml_version"),
        cuda_version=None if cuda is None else (cuda // 1000, cuda % 1000 // 10),
        control_errno=answers.get("control_errno"),
        gpu_count=answers.get("count"),
    )


def _gpu(answer: dict[str, Any]) -> GpuLook:
    """Return a GPU's answers from a probe's JSON, which has lists for tuples, and NVML's numbers for booleans."""
    tuples = {name: tuple(value) for name, value in answer.items() if isinstance(value, list)}
    switches = {name: bool(answer[name]) for name in ("persistence", "mig") if answer.get(name) is not None}
    return GpuLook(**{**answer, **tuples, **switches, "model": answer.get("model") or ""})

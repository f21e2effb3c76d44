"""One look at the driver through a process of its own; nothing here ever loads the driver's library."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent.doctor.isolated import Outcome, run_isolated

if TYPE_CHECKING:
    from agent.doctor.host import Host

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
        """How a sentence calls it."""
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


def look_at_driver(host: Host, timeout_s: float) -> DriverLook:
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


def _driver(outcome: Outcome) -> DriverLook:
    refused = outcome.last("refused")
    cuda = outcome.last("cuda_version")
    return DriverLook(
        state="refused" if refused else "ok" if outcome.ending == "done" else outcome.ending,
        step=outcome.step,
        detail=outcome.detail,
        code=refused["code"] if refused else 0,
        message=refused["message"] if refused else "",
        library=outcome.last("library"),
        driver_version=outcome.last("driver_version"),
        nvml_version=outcome.last("nvml_version"),
        cuda_version=None if cuda is None else (cuda // 1000, cuda % 1000 // 10),
        control_errno=outcome.last("control_errno"),
        gpu_count=outcome.last("count"),
    )


def _gpu(answer: dict[str, Any]) -> GpuLook:
    capability = answer.get("capability")
    return GpuLook(
        index=answer["index"],
        uuid=answer.get("uuid") or "",
        model=answer.get("model") or "",
        capability=None if capability is None else (capability[0], capability[1]),
        minor=answer.get("minor"),
        pci=answer.get("pci"),
        persistence=_switch(answer.get("persistence")),
        mig=_switch(answer.get("mig")),
        mig_instances=answer.get("mig_instances"),
        error=answer.get("error", ""),
        denied=tuple(answer.get("denied", ())),
        unsupported=tuple(answer.get("unsupported", ())),
    )


def _switch(value: int | None) -> bool | None:
    return None if value is None else bool(value)

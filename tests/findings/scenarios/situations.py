"""Labelled situations: what happened on a fleet, and what each rule has to make of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.findings.scenarios.builder import GB, Fleet, Gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.findings.scenarios.builder import Level, Mask

KERNEL: dict[str, Any] = {"command": "python3", "arguments": "python3 -m ipykernel_launcher -f kernel-1.json"}


@dataclass(frozen=True)
class Scenario:
    """One situation.

    `fires` are the rules that must fire; `may` are rules that also apply, though the situation is not about them. Every
    other rule that fires is a false positive of that rule. `look_alike_of` names the rules that a careless tool would
    fire here: the suite counts them as tried. `owners` is the content of the file of owners, where the site has one.
    """

    name: str
    describe: Callable[[Fleet], object]
    days: float
    interval_s: float
    fires: frozenset[str]
    may: frozenset[str]
    look_alike_of: frozenset[str]
    owners: str

    def fleet(self) -> Fleet:
        fleet = Fleet(self.days, interval_s=self.interval_s)
        self.describe(fleet)
        return fleet


def situation(
    *,
    days: float = 8,
    interval_s: float = 300,
    fires: str = "",
    may: str = "",
    look_alike_of: str = "",
    owners: str = "",
) -> Callable[[Callable[[Fleet], object]], Scenario]:
    """Makes a scenario of the function that describes its fleet; labels are names of rules with spaces between."""
    must, not_to_be = frozenset(fires.split()), frozenset(look_alike_of.split())
    also = frozenset(may.split()) - must - not_to_be
    return lambda describe: Scenario(
        describe.__name__,
        describe,
        days,
        interval_s,
        must,
        also,
        not_to_be,
        owners,  # type: ignore[attr-defined]
    )


def train(
    fleet: Fleet,
    gpus: Gpu | Sequence[Gpu],
    user: str,
    when: Mask | None = None,
    *,
    util: Level | Sequence[Level] = 95.0,
    job: str | None = "1001",
    **rest: object,
) -> None:
    """Training that needs its cards: 80 % of the memory, well used, in one Slurm job."""
    card = (gpus if isinstance(gpus, Gpu) else gpus[0]).card
    memory = {"mem_gb": 0.8 * card.mem_total_bytes / GB, "command": "python3"}
    settled = memory | {"slurm_job_id": job, "slurm_account": f"{user}-lab"}
    fleet.run(gpus, user, when, util=util, **(settled | rest))  # type: ignore[arg-type]  # run names each of them


def hang(
    fleet: Fleet, gpus: Sequence[Gpu], hung: Mask, *, sm: float = 14.0, power_w: float = 120.0, **process: Any
) -> None:
    """A training job of ann whose kernels only wait while it hangs."""
    train(
        fleet,
        gpus,
        "ann",
        util=np.where(hung, 100.0, 96.0),
        sm=np.where(hung, sm, 82.0),
        power_w=np.where(hung, power_w, 650.0),
        **process,
    )
    spin(gpus, hung)


def spin(gpus: Sequence[Gpu], when: Mask) -> None:
    """Kernels that use no unit of the card."""
    for gpu in gpus:
        gpu.dram, gpu.tensor = np.where(when, 0.1, gpu.dram), np.where(when, 0.0, gpu.tensor)


def serve(
    fleet: Fleet,
    gpus: Gpu | Sequence[Gpu],
    when: Mask | None = None,
    *,
    util: Level | Sequence[Level],
    pod: str = "llm-0",
    **rest: object,
) -> None:
    """An inference server in a pod."""
    settled = {"command": "vllm", "pod": pod, "namespace": "serving", "container_id": f"c-{pod}", "mem_gb": 50}
    fleet.run(gpus, "serving", when, util=util, **(settled | rest))  # type: ignore[arg-type]  # run names each of them

"""How the situations from the field are written down: a fleet, and labels as words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.findings.scenarios.builder import GB, Fleet, Gpu
from tests.findings.scenarios.model import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.findings.scenarios.builder import Level, Mask


def situation(
    describe: Callable[[Fleet], object],
    *,
    days: float = 8,
    interval_s: float = 300,
    fires: str = "",
    may: str = "",
    look_alike_of: str = "",
    settings: Mapping[str, str] | None = None,
    lists: Mapping[str, str] | None = None,
) -> Scenario:
    """A scenario named like the function that describes its fleet; labels are names of rules with spaces between."""

    def described() -> Fleet:
        fleet = Fleet(days, interval_s=interval_s)
        describe(fleet)
        return fleet

    return Scenario(
        describe.__name__,
        described,
        frozenset(fires.split()),
        frozenset(may.split()),
        frozenset(look_alike_of.split()),
        settings or {},
        lists or {},
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
    settled: dict[str, object] = {
        "mem_gb": 0.8 * card.mem_total_bytes / GB,
        "command": "python3",
        "slurm_job_id": job,
        "slurm_account": f"{user}-lab",
    }
    fleet.run(gpus, user, when, util=util, **(settled | rest))  # type: ignore[arg-type]  # run names each of them


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
    settled: dict[str, object] = {
        "command": "vllm",
        "pod": pod,
        "namespace": "serving",
        "container_id": f"c-{pod}",
        "mem_gb": 50,
    }
    fleet.run(gpus, "serving", when, util=util, **(settled | rest))  # type: ignore[arg-type]  # run names each of them

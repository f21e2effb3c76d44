"""A small lake that holds one of everything, and the report command over it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from fallow.cli import main
from tests.in_process import run_in_process
from tests.lakes import made_lake
from tests.ledger.rows import GB, allocation, device, fill, ms, processes, samples
from tests.shared_results import sharing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fallow.lake import Lake
    from tests.conftest import RunFallow

DAY, HOUR = 86_400, 3600
EVERY: dict[str, Any] = {"every_s": 300, "gpu_util_coverage_ratio": 1.0}
BUSY: dict[str, Any] = {"gpu_util_pct": 85.0, "process_count": 1, "power_w": 520.0, "mem_used_bytes": 60 * GB} | EVERY
HELD: dict[str, Any] = {"gpu_util_pct": 0.0, "process_count": 1, "power_w": 110.0, "mem_used_bytes": 40 * GB} | EVERY
FREE: dict[str, Any] = {"gpu_util_pct": 0.0, "process_count": 0, "power_w": 70.0, "mem_used_bytes": 0} | EVERY
LOST: dict[str, Any] = {"gpu_util_pct": None, "process_count": None, "health": "lost", "every_s": 300}
IMPORTED: dict[str, Any] = {"gpu_util_pct": 0.0, "process_count": None, "mem_used_bytes": 20 * GB, "every_s": 300}


BACK_S = 60 * DAY


def before(gpu: str, first_s: float, last_s: float, **values: Any) -> list[dict[str, Any]]:
    return samples(gpu, first_s - BACK_S, last_s - BACK_S, **values)


def before_lists(gpu: str, *times_s: float, **values: Any) -> list[dict[str, Any]]:
    return processes(gpu, *(at - BACK_S for at in times_s), **values)


def everything(lake: Lake) -> Lake:
    """Two weeks of a training host, two days of a serving host, and a day of an imported GPU that fell silent.

    It all lies before T0, so that no day of it is ever in the future.
    """
    rows = before("GPU-0", 0, 10 * DAY, **BUSY) + before("GPU-0", 10 * DAY, 14 * DAY, **HELD)
    rows += before("GPU-1", 0, 14 * DAY, **FREE)
    rows += before("GPU-2", 0, 7 * DAY, **BUSY) + before("GPU-2", 7 * DAY, 14 * DAY, **LOST)
    lists = before_lists("GPU-0", *range(0, 14 * DAY, 300), every_s=300, slurm_job_id="4711")
    lists += before_lists("GPU-2", *range(0, 7 * DAY, 300), every_s=300, user="bob", pid=12)
    models = [device(f"GPU-{number}", time=ms(-BACK_S)) for number in range(3)]
    fill(lake, rows, lists, [allocation("GPU-1", 9 * DAY - BACK_S, None, "greta")], devices=models, host="train-01")
    serving = before("GPU-8", 12 * DAY, 12 * DAY + 6 * HOUR, **BUSY | {"gpu_util_pct": 4.0})
    serving += before("GPU-8", 12 * DAY + 9 * HOUR, 14 * DAY, **HELD)
    fill(
        lake,
        serving,
        before_lists("GPU-8", *range(12 * DAY, 14 * DAY, 300), every_s=300, user="svc", pod="chat-0"),
        devices=[device("GPU-8", model="NVIDIA L40S", pool="serving", time=ms(-BACK_S))],
        host="serve-01",
    )
    return fill(lake, before("pod-77", 13 * DAY, 13 * DAY + 3 * HOUR, **IMPORTED), host="import")


@dataclass(frozen=True)
class Outcome:
    """Exit code and what was printed."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True, scope="module")
def _one_ledger_for_many_reports() -> Iterator[None]:
    with sharing():
        yield


@pytest.fixture
def run_fallow() -> RunFallow:
    """The command in this process; `run_python` runs it in one of its own."""
    return run_in_process


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """`fallow report` in this process, or another verb: all of it, not the first screen."""

    def run(lake: Lake | str, *arguments: str, command: str = "report") -> Outcome:
        whole = ["--all"] if command in ("report", "ledger") else []
        code = main([command, "--lake", lake if isinstance(lake, str) else lake.root, *whole, *arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The lake of `everything`; tests only read it."""
    return everything(made_lake(tmp_path_factory.mktemp("full") / "lake"))

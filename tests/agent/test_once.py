"""`fallow agent once` where a GPU blocks or cannot be opened: the others are shown, and it too, as what it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from agent.top.once import Look, table_text
from agent.top.sources import UnnamedGpus
from tests.fakes.nvml import Fault, Gpu, Scenario, constant, ms_ago

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.agent.conftest import FakeHost

    MakeHost = Callable[[Scenario], FakeHost]


def three_gpus(*faults: Fault) -> Scenario:
    return Scenario(tuple(Gpu(f"GPU-{name}", util=constant(60)) for name in "abc"), ms_ago(20), faults)


def healths(host: FakeHost) -> dict[str, str]:
    finished = host.once("--json")
    assert (finished.returncode, finished.stderr) == (0, "")
    return {row["gpu"]: row["health"] for row in json.loads(finished.stdout)["gpus"]}


def test_a_gpu_that_blocks_is_wedged_and_the_others_are_shown(fake_host: MakeHost) -> None:
    host = fake_host(three_gpus(Fault("hang", gpu=1, function="nvmlDeviceGetPowerUsage", start_s=0)))
    host.environment["FALLOW_AGENT_CALL_TIMEOUT"] = "4s"
    assert healths(host) == {"GPU-a": "ok", "GPU-b": "wedged", "GPU-c": "ok"}


def test_a_gpu_without_a_name_goes_by_its_position(fake_host: MakeHost) -> None:
    host = fake_host(three_gpus(Fault("lost", gpu=1, start_s=0)))
    assert healths(host) == {"GPU-a": "ok", "#1": "lost", "GPU-c": "ok"}
    assert [line.split()[:3] for line in host.once().stdout.splitlines() if "lost" in line] == [["1", "-", "lost"]]


def test_a_position_with_a_name_is_no_unnamed_gpu() -> None:
    unnamed = UnnamedGpus()
    unnamed.hear(
        [
            {"kind": "gpu_wedged", "gpu": None, "detail": "GPU 1: nvmlDeviceGetUUID has not returned for 5 s"},
            {"kind": "gpu_lost", "gpu": None, "detail": "GPU 12 cannot be opened: GPU is lost"},
            {"kind": "gpu_lost", "gpu": "GPU-c", "detail": "GPU 3 is lost"},
            {"kind": "worker_restart", "gpu": None, "detail": "GPU 4 was there"},
        ]
    )
    assert [(row["gpu"], row["health"]) for row in unnamed.rows([0], 0, 1000)] == [("#1", "wedged"), ("#12", "lost")]
    assert [row["gpu"] for row in unnamed.rows([0, 1, None], 0, 1000)] == ["#12"]


@pytest.mark.parametrize(("users", "shown"), [(4, "u0, u1, u2, u3"), (7, "u0, u1, u2, u3 +3")])
def test_long_values_find_room(users: int, shown: str) -> None:
    rows = [{"gpu": "GPU-a", "health": "reset_required"}, {"gpu": "GPU-b", "health": "ok"}]
    processes = [{"gpu": "GPU-a", "pid": n, "kind": "compute", "user": f"u{n}"} for n in range(users)]
    lines = table_text(Look("gn001", 0, rows, processes, [])).splitlines()
    assert lines[2].endswith(f"  {shown}")
    assert " reset_required " in lines[2]
    assert len({line.index("  - ", 30) for line in (lines[2], lines[3])}) == 1, "the columns stand below one another"

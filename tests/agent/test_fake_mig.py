"""The fake driver's MIG instances: enumeration, reuse of places, mode, readings."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent.player import UUID, Player, ms_ago, one
from tests.fakes.nvml import GIB, Gpu, MigInstance, Process, Scenario, Steps, constant


def mig_gpu() -> Gpu:
    return Gpu(
        UUID,
        util=constant(50),
        gpm={2: constant(70)},
        mig=(
            MigInstance(
                "MIG-a", 1, 0, slot=0, mem_used=constant(2 * GIB), processes=(Process(201),), gpm={2: constant(40)}
            ),
            MigInstance("MIG-b", 2, 0, slot=2, profile="3g.40gb", gpu_slices=3, compute_slices=3, end_s=30),
            MigInstance("MIG-c", 5, 0, slot=2, profile="2g.20gb", gpu_slices=2, compute_slices=2, start_s=40),
        ),
    )


def test_mig_enumeration(player: Player) -> None:
    out = player.ask(
        one(mig_gpu()),
        """
        out = [nv.nvmlDeviceGetMigMode(gpu), nv.nvmlDeviceGetMaxMigDeviceCount(gpu),
               attempt(nv.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 1)]
        for slot in (0, 2):
            mig = nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu, slot)
            parent = nv.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
            out.append((nv.nvmlDeviceGetUUID(mig), nv.nvmlDeviceGetName(mig), nv.nvmlDeviceGetGpuInstanceId(mig),
                        nv.nvmlDeviceGetComputeInstanceId(mig), nv.nvmlDeviceIsMigDeviceHandle(mig).value,
                        nv.nvmlDeviceGetUUID(parent), nv.nvmlDeviceGetAttributes_v2(mig).gpuInstanceSliceCount))
        out.append(nv.nvmlDeviceGetUUID(nv.nvmlDeviceGetHandleByUUID("MIG-c")))
        """,
    )

    name = "NVIDIA H100 80GB HBM3 MIG"
    first, third = ("MIG-a", f"{name} 1g.10gb", 1, 0, 1, UUID, 1), ("MIG-c", f"{name} 2g.20gb", 5, 0, 1, UUID, 2)
    assert out == [[1, 1], 7, "NVMLError_NotFound", first, third, "MIG-c"]


def test_mig_readings(player: Player) -> None:
    out = player.ask(
        one(mig_gpu()),
        """
        mig = nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
        out = [nv.nvmlDeviceGetMemoryInfo(mig, nv.nvmlMemory_v2).used]
        for handle in (mig, gpu):
            out.append([(p.pid, p.gpuInstanceId) for p in nv.nvmlDeviceGetComputeRunningProcesses_v3(handle)])
            out.append([attempt(nv.nvmlDeviceGetUtilizationRates, handle), attempt(samples, handle),
                        attempt(nv.nvmlDeviceGetProcessUtilization, handle, 0)])
        out.append(attempt(nv.nvmlDeviceGetPowerUsage, mig))
        """,
    )

    unsupported = ["NVMLError_NotSupported"] * 3
    process = [(201, 1)]
    assert out == [2 * GIB, process, unsupported, process, unsupported, "NVMLError_InvalidArgument"]


@pytest.mark.parametrize(("capable", "mode"), [(False, "NVMLError_NotSupported"), (True, [0, 0])])
def test_gpu_that_is_not_split(player: Player, *, capable: bool, mode: Any) -> None:
    gpu = Gpu(UUID, mig_capable=capable)
    out = player.ask(one(gpu), "out = (attempt(nv.nvmlDeviceGetMigMode, gpu), nv.nvmlDeviceGetMaxMigDeviceCount(gpu))")

    assert out == (mode, 0)


def reshaped(start_ms: int) -> Scenario:
    """A GPU whose place 0 holds one instance after the other, and whose mode goes off at 4 s and on again at 5 s."""
    gpu = Gpu(
        UUID,
        mig=(
            MigInstance("MIG-old", 1, slot=0, processes=(Process(301),), end_s=2),
            MigInstance("MIG-new", 7, slot=0, profile="2g.20gb", gpu_slices=2, processes=(Process(302),), start_s=2),
            MigInstance("MIG-beside", 8, slot=3, start_s=3),
        ),
        mig_mode=Steps(((0, 1), (4, 0), (5, 1))),
        util=constant(50),
    )
    return Scenario(gpus=(gpu,), start_ms=start_ms)


RESHAPED = """
nv.nvmlInit()
gpu = nv.nvmlDeviceGetHandleByIndex(0)
def shape():
    handles = [attempt(nv.nvmlDeviceGetMigDeviceHandleByIndex, gpu, slot) for slot in range(nv.nvmlDeviceGetMaxMigDeviceCount(gpu))]
    found = [nv.nvmlDeviceGetUUID(handle) for handle in handles if not isinstance(handle, str)]
    return found, sorted(p.pid for p in nv.nvmlDeviceGetComputeRunningProcesses_v3(gpu))
"""


@pytest.mark.parametrize(
    ("ago_s", "shape"),
    [
        (1.0, (["MIG-old"], [301])),
        (2.3, (["MIG-new"], [302])),
        (3.3, (["MIG-new", "MIG-beside"], [302])),
        (4.3, ([], [])),
        (60.0, (["MIG-new", "MIG-beside"], [302])),
    ],
)
def test_instances_come_and_go(player: Player, ago_s: float, shape: Any) -> None:
    assert player.play(reshaped(ms_ago(ago_s)), RESHAPED + "out = shape()") == shape


def test_a_handle_is_taken_over_by_the_next_instance(player: Player) -> None:
    start_ms = ms_ago(0)
    out = player.play(
        reshaped(start_ms),
        RESHAPED
        + f"""
def wait_until(seconds):
    time.sleep(max(0.0, {start_ms / 1000} + seconds - time.time()))
handle = nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
out = []
for moment in (1.0, 2.2, 4.2, 5.2):
    wait_until(moment)
    out.append((attempt(nv.nvmlDeviceGetUUID, handle), attempt(nv.nvmlDeviceGetGpuInstanceId, handle),
                isinstance(attempt(nv.nvmlDeviceGetUtilizationRates, gpu), str), nv.nvmlDeviceGetMigMode(gpu)[0]))
""",
    )

    gone = "NVMLError_InvalidArgument"
    assert out == [("MIG-old", 1, True, 1), ("MIG-new", 7, True, 1), (gone, gone, False, 0), ("MIG-new", 7, True, 1)]

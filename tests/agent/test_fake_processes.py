"""The fake driver's process lists, MIG instances, GPM values and events."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent.player import OTHER_UUID, UUID, Player, one
from tests.fakes.nvml import (
    GIB,
    Gpu,
    MigInstance,
    Process,
    Scenario,
    Steps,
    Xid,
    constant,
    ms_ago,
)

# -- processes


def test_process_lists(player: Player) -> None:
    gpu = Gpu(
        UUID,
        processes=(
            Process(101, mem_bytes=5 * GIB),
            Process(102, mem_bytes=None),
            Process(103, kind="graphics"),
            Process(104, kind="mps"),
            Process(105, end_s=30),
            Process(106, start_s=1000),
        ),
    )
    out = player.ask(
        one(gpu),
        """
        from ctypes import byref, c_uint
        lists = (nv.nvmlDeviceGetComputeRunningProcesses_v3, nv.nvmlDeviceGetGraphicsRunningProcesses_v3,
                 nv.nvmlDeviceGetMPSComputeRunningProcesses_v3)
        out = [[(p.pid, p.usedGpuMemory, p.gpuInstanceId) for p in each(gpu)] for each in lists]
        count, room = c_uint(1), (nv.c_nvmlProcessInfo_v3_t * 1)()
        status = nv.nvmlLib.nvmlDeviceGetComputeRunningProcesses_v3(gpu, byref(count), room)
        out.append((status, count.value))
        """,
    )

    whole = 0xFFFFFFFF
    compute = [(101, 5 * GIB, whole), (102, None, whole)]
    insufficient_size = (7, 2)
    assert out == [compute, [(103, GIB, whole)], [(104, GIB, whole)], insufficient_size]


def test_process_utilization(player: Player) -> None:
    scenario = Scenario(
        gpus=(
            Gpu(UUID, util=constant(75), processes=(Process(101), Process(102))),
            Gpu(OTHER_UUID, processes=(Process(103),)),
            Gpu("GPU-empty", util=constant(75)),
        ),
        start_ms=ms_ago(60),
    )
    out = player.ask(
        scenario,
        """
        found = nv.nvmlDeviceGetProcessUtilization(gpu, 0)
        out = [sorted((s.pid, s.smUtil) for s in found)]
        for index in (1, 2):
            try:
                nv.nvmlDeviceGetProcessUtilization(nv.nvmlDeviceGetHandleByIndex(index), 0)
            except nv.NVMLError as error:
                out.append(error.value)
        """,
    )

    assert out == [[(101, 75), (102, 75)], 6, 0]


# -- MIG


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


# -- GPM


GPM = """
def between(take, ids, wait_s=0.0):
    first, second = nv.nvmlGpmSampleAlloc(), nv.nvmlGpmSampleAlloc()
    started = time.time(); take(first); time.sleep(wait_s); take(second); ended = time.time()
    get = nv.c_nvmlGpmMetricsGet_t(version=nv.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(ids), sample1=first, sample2=second)
    for place, metric in enumerate(ids):
        get.metrics[place].metricId = metric
    nv.nvmlGpmMetricsGet(get)
    for sample in (first, second):
        nv.nvmlGpmSampleFree(sample)
    return started, ended, [(m.nvmlReturn, repr(m.value)) for m in get.metrics[:len(ids)]]
"""


def test_gpm_averages_between_two_samples(player: Player) -> None:
    # A change in the middle of the two samples: only a true average can lie between the two values.
    ramp = Steps(tuple((t / 100, float(t % 100)) for t in range(5000, 8000)))
    gpu = Gpu(UUID, gpm={2: ramp, 3: constant(41.25)}, gpm_nan=(5,))
    scenario = one(gpu)
    started, ended, metrics = player.ask(
        scenario, GPM + "out = between(lambda s: nv.nvmlGpmSampleGet(gpu, s), [2, 3, 5, 10], 0.2)"
    )

    assert [status for status, _ in metrics] == [0, 0, 0, 3]
    assert metrics[1:] == [(0, "41.25"), (0, "nan"), (3, "nan")]
    assert float(metrics[0][1]) == pytest.approx(ramp.mean(scenario.seconds(started), scenario.seconds(ended)), abs=3)


def test_gpm_of_a_mig_instance(player: Player) -> None:
    out = player.ask(
        one(mig_gpu()),
        GPM
        + """
out = [between(lambda s: nv.nvmlGpmMigSampleGet(gpu, 1, s), [2], 0.01)[2],
       attempt(nv.nvmlGpmMigSampleGet, gpu, 9, nv.nvmlGpmSampleAlloc()), nv.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice]
""",
    )

    assert out == [[(0, "40.0")], "NVMLError_NotFound", 1]


def test_gpu_without_gpm(player: Player) -> None:
    out = player.ask(
        one(),
        """
        out = (nv.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice,
               attempt(nv.nvmlGpmSampleGet, gpu, nv.nvmlGpmSampleAlloc()))
        """,
    )

    assert out == (0, "NVMLError_NotSupported")


# -- events


def test_events_arrive_and_waiting_times_out(player: Player) -> None:
    scenario = one(xids=(Xid(0, 1, 13), Xid(0, 62, 79)), ago_s=60)
    out = player.ask(
        scenario,
        """
        events = nv.nvmlEventSetCreate()
        nv.nvmlDeviceRegisterEvents(gpu, nv.nvmlEventTypeXidCriticalError, events)
        out = [attempt(nv.nvmlEventSetWait_v2, events, 10), bool(nv.nvmlDeviceGetSupportedEventTypes(gpu) & 8)]
        data = nv.nvmlEventSetWait_v2(events, 5000)
        out += [data.eventType, data.eventData, nv.nvmlDeviceGetUUID(data.device)]
        nv.nvmlEventSetFree(events)
        """,
    )

    assert out == ["NVMLError_Timeout", True, 8, 79, UUID]

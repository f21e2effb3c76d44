"""The fake driver's MIG instances, and GPM values of whole GPUs and of instances."""

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


ALL = (1, 2, 3, 5, 10, 11, 12, 13, 20, 21, 60, 61)

GPM = """
def between(take, ids, wait_s=0.0):
    first, second = nv.nvmlGpmSampleAlloc(), nv.nvmlGpmSampleAlloc()
    moments = [time.time()]; take(first); moments.append(time.time())
    time.sleep(wait_s)
    moments.append(time.time()); take(second); moments.append(time.time())
    get = nv.c_nvmlGpmMetricsGet_t(version=nv.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(ids), sample1=first, sample2=second)
    for place, metric in enumerate(ids):
        get.metrics[place].metricId = metric
    nv.nvmlGpmMetricsGet(get)
    for sample in (first, second):
        nv.nvmlGpmSampleFree(sample)
    return moments, [(m.nvmlReturn, repr(m.value)) for m in get.metrics[:len(ids)]]
"""


def test_gpm_values_are_exact_between_two_samples(player: Player) -> None:
    # All the work lies between the samples: the mean tells the time between them, to the microsecond.
    scenario = Scenario(
        gpus=(Gpu(UUID, gpm={2: Steps(((0, 0), (2.1, 100), (2.15, 0))), 3: Steps(((0, 0), (2.0, 40), (2.125, 0)))}),),
        start_ms=ms_ago(0),
    )
    moments, ((_, short), (_, long)) = player.ask(
        scenario,
        GPM + f"time.sleep(max(0.0, {scenario.start_ms / 1000 + 1.9} - time.time()))\n"
        "out = between(lambda s: nv.nvmlGpmSampleGet(gpu, s), [2, 3], 0.4)",
    )

    span_s = 100 * 0.05 / float(short)
    assert moments[2] - moments[1] - 2e-6 <= span_s <= moments[3] - moments[0] + 2e-6
    assert float(long) == pytest.approx(float(short), rel=1e-12)


def test_gpm_statuses(player: Player) -> None:
    gpu = Gpu(UUID, gpm={3: constant(41.25)}, gpm_nan=(5,), util=constant(33))
    _, metrics = player.ask(one(gpu), GPM + "out = between(lambda s: nv.nvmlGpmSampleGet(gpu, s), [1, 3, 5, 10], 0.01)")

    assert metrics == [(0, "33.0"), (0, "41.25"), (0, "nan"), (3, "nan")]


def test_every_metric_of_a_whole_gpu(player: Player) -> None:
    gpu = Gpu(
        UUID,
        util=constant(50),
        nvlink_group=0,
        nvlink_rx_mib_per_s=constant(600),
        nvlink_tx_mib_per_s=constant(610),
        gpm={metric: constant(metric + 0.5) for metric in ALL if metric not in (1, 60, 61)},
    )
    _, metrics = player.ask(one(gpu), GPM + f"out = between(lambda s: nv.nvmlGpmSampleGet(gpu, s), {ALL}, 0.01)")

    expected = {1: 50.0, 60: 600.0, 61: 610.0} | {metric: metric + 0.5 for metric in ALL if metric not in (1, 60, 61)}
    assert [(status, float(value)) for status, value in metrics] == [(0, expected[metric]) for metric in ALL]


def split_gpu() -> Gpu:
    """A parent with a value of its own, an instance with values, and one that says nothing but its utilization."""
    return Gpu(
        UUID,
        gpm={2: constant(70)},
        util=constant(35),
        mig=(
            MigInstance("MIG-a", 1, slot=0, gpm={metric: constant(metric) for metric in ALL}),
            MigInstance("MIG-b", 2, slot=2, util=constant(12.5), gpm_nan=(2,)),
        ),
    )


def test_gpm_of_a_mig_instance_and_of_its_parent(player: Player) -> None:
    out = player.ask(
        one(split_gpu()),
        GPM
        + f"""
out = [between(lambda s: nv.nvmlGpmMigSampleGet(gpu, 1, s), {ALL}, 0.01)[1],
       between(lambda s: nv.nvmlGpmMigSampleGet(gpu, 2, s), [1, 2, 3], 0.01)[1],
       between(lambda s: nv.nvmlGpmSampleGet(gpu, s), [1, 2], 0.01)[1],
       attempt(nv.nvmlGpmMigSampleGet, gpu, 9, nv.nvmlGpmSampleAlloc()), nv.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice]
""",
    )

    first = [(0, repr(float(metric))) for metric in ALL]
    second, parent = [(0, "12.5"), (0, "nan"), (3, "nan")], [(0, "35.0"), (0, "70.0")]
    assert out == [first, second, parent, "NVMLError_NotFound", 1]


def test_samples_of_different_devices_do_not_mix(player: Player) -> None:
    out = player.ask(
        one(split_gpu()),
        """
        first, second = nv.nvmlGpmSampleAlloc(), nv.nvmlGpmSampleAlloc()
        get = nv.c_nvmlGpmMetricsGet_t(version=nv.NVML_GPM_METRICS_GET_VERSION, numMetrics=1, sample1=first, sample2=second)
        out = [attempt(nv.nvmlGpmMetricsGet, get)]
        nv.nvmlGpmSampleGet(gpu, first); nv.nvmlGpmMigSampleGet(gpu, 1, second)
        out.append(attempt(nv.nvmlGpmMetricsGet, get))
        """,
    )

    assert out == ["NVMLError_InvalidArgument"] * 2


def test_a_card_with_gpm_has_its_utilization_without_being_told(player: Player) -> None:
    _, metrics = player.ask(
        one(Gpu(UUID, util=constant(64), gpm_supported=True)),
        GPM + "out = between(lambda s: nv.nvmlGpmSampleGet(gpu, s), [1, 2, 60], 0.01)",
    )

    assert metrics == [(0, "64.0"), (3, "nan"), (3, "nan")]


def test_gpu_without_gpm(player: Player) -> None:
    out = player.ask(
        one(),
        """
        out = (nv.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice,
               attempt(nv.nvmlGpmSampleGet, gpu, nv.nvmlGpmSampleAlloc()))
        """,
    )

    assert out == (0, "NVMLError_NotSupported")

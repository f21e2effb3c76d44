"""The fake driver's GPM values: true averages between two samples, of whole GPUs and of MIG instances."""

from __future__ import annotations

import pytest

from tests.agent.player import UUID, Player, ms_ago, one
from tests.fakes.nvml import Gpu, MigInstance, Scenario, Steps, constant

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


def mig_gpu() -> Gpu:
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
        one(mig_gpu()),
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
        one(mig_gpu()),
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

"""The fake driver's sample ring and rates behave like the driver's."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.agent.player import NOW_MS, OTHER_UUID, UUID, Player, ms_ago, one
from tests.fakes.nvml import (
    RING_SIZE,
    Gpu,
    Scenario,
    Steps,
    constant,
)

# -- the sample ring


def test_ring_holds_the_last_ten_seconds(player: Player) -> None:
    gpu = Gpu(UUID, util=Steps(((0, 80.0), (53.217, 33.4), (56.7, 100))), mem_util=constant(12.5))
    scenario = one(gpu)
    util, mem_util = player.ask(scenario, "out = samples(gpu), samples(gpu, nv.NVML_MEMORY_UTILIZATION_SAMPLES)")

    stamps = [stamp for stamp, _ in util]
    assert len(util) == RING_SIZE == 72
    assert {later - earlier for earlier, later in pairwise(stamps)} == {138_888, 138_889}
    assert abs(NOW_MS * 1e3 - stamps[-1]) < 1e6
    expected = scenario.ring(0, stamps[0] - 1, stamps[-1])
    assert util == [(entry.timestamp_us, entry.util_pct) for entry in expected]
    assert {value for _, value in mem_util} == {13}
    assert len({value for _, value in util}) > 3, "entries astride a step are means"


def test_ring_gives_only_what_is_newer_than_last_seen(player: Player) -> None:
    out = player.ask(
        one(Gpu(UUID, util=constant(50))),
        """
        first = samples(gpu)
        while (nothing := attempt(samples, gpu, 1, first[-1][0])) != "NVMLError_NotFound":
            first = samples(gpu)
        time.sleep(0.3)
        out = (first, samples(gpu, 1, first[-1][0]))
        """,
    )
    first, second = out

    assert 2 <= len(second) < RING_SIZE
    assert second[0][0] - first[-1][0] in {138_888, 138_889}


def test_ring_size_is_asked_with_a_null_pointer(player: Player) -> None:
    out = player.ask(
        one(),
        """
        from ctypes import byref, c_uint, c_ulonglong
        kind, count = c_uint(), c_uint()
        status = nv.nvmlLib.nvmlDeviceGetSamples(gpu, 1, c_ulonglong(0), byref(kind), byref(count), None)
        out = (status, count.value, kind.value)
        """,
    )

    assert out == (0, RING_SIZE, 1)


def test_idle_gpu_gives_no_samples(player: Player) -> None:
    scenario = Scenario(
        gpus=(Gpu(UUID, util=Steps(((0, 90), (40, 0)))), Gpu(OTHER_UUID, samples_while_idle=True)), start_ms=ms_ago(60)
    )
    out = player.ask(
        scenario,
        """
        zeros = samples(nv.nvmlDeviceGetHandleByIndex(1))
        out = (attempt(samples, gpu), nv.nvmlDeviceGetUtilizationRates(gpu).gpu, len(zeros), {v for _, v in zeros})
        """,
    )

    assert out == ("NVMLError_NotFound", 0, RING_SIZE, {0})


def test_ring_skips_idle_periods_only(player: Player) -> None:
    gpu = Gpu(UUID, util=Steps(((0, 90), (52, 0), (55, 70))))
    scenario = one(gpu)
    entries = player.ask(scenario, "out = samples(gpu)")

    assert tuple(stamp for stamp, _ in entries) == tuple(
        entry.timestamp_us for entry in scenario.ring(0, entries[0][0] - 1, entries[-1][0])
    )
    assert len(entries) < RING_SIZE
    assert max(b - a for (a, _), (b, _) in pairwise(entries)) == pytest.approx(3e6, abs=3e5)


def test_ring_may_keep_old_entries(player: Player) -> None:
    gpu = Gpu(UUID, util=Steps(((0, 90), (20, 0))), ring_keeps_old=True)
    scenario = one(gpu)
    entries = player.ask(scenario, "out = samples(gpu)")

    assert len(entries) == RING_SIZE
    assert scenario.seconds(entries[-1][0] / 1e6) == pytest.approx(20, abs=0.14)


def test_ring_knows_nothing_from_before_the_start(player: Player) -> None:
    scenario = one(Gpu(UUID, util=constant(60)), ago_s=2)
    entries = player.ask(scenario, "out = samples(gpu)")

    assert 13 <= len(entries) < RING_SIZE
    assert entries[0][0] > scenario.start_ms * 1000


def test_ring_in_another_clock_domain(player: Player) -> None:
    offset_us = -1_000_000_000_000
    scenario = one(Gpu(UUID, util=constant(60)), sample_clock_offset_us=offset_us)
    out = player.ask(scenario, "first = samples(gpu); out = (first, samples(gpu, 1, first[-9][0]))")

    first, second = out
    assert NOW_MS * 1e3 + offset_us - first[-1][0] < 1e6
    assert second[0] == first[-8]
    assert [stamp for stamp, _ in first] == [e.timestamp_us for e in scenario.ring(0, first[0][0] - 1, first[-1][0])]


def test_ring_garbage(player: Player) -> None:
    out = player.ask(one(Gpu(UUID, util=constant(60), ring_garbage=True), ago_s=3), "out = samples(gpu)")

    assert [value for stamp, value in out if stamp == 0] == [55]
    assert [value for _, value in out if value > 100] == [4_000_000_000]
    assert len([value for stamp, value in out if stamp > 0 and value == 60]) == len(out) - 2


def test_rates_are_the_last_finished_period(player: Player) -> None:
    gpu = Gpu(UUID, util=Steps(((0, 5), (30, 64))), mem_util=constant(31))
    out = player.ask(one(gpu), "rates = nv.nvmlDeviceGetUtilizationRates(gpu); out = (rates.gpu, rates.memory)")

    assert out == (64, 31)


def test_power_and_clock_samples(player: Player) -> None:
    gpu = Gpu(UUID, power_w=constant(250.5), samples_while_idle=True)
    out = player.ask(
        one(gpu),
        """
        kinds = (nv.NVML_TOTAL_POWER_SAMPLES, nv.NVML_PROCESSOR_CLK_SAMPLES, nv.NVML_MEMORY_CLK_SAMPLES)
        out = [{value for _, value in samples(gpu, kind)} for kind in kinds]
        out.append(attempt(samples, gpu, nv.NVML_ENC_UTILIZATION_SAMPLES))
        """,
    )

    assert out == [{250_500}, {1980}, {2619}, "NVMLError_NotSupported"]

"""The fake driver's sample ring and rates behave like the driver's; process lists, and utilization by process."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.agent.player import NOW_MS, OTHER_UUID, UUID, Player, ms_ago, one
from tests.fakes.nvml import (
    GIB,
    RING_SIZE,
    Gpu,
    Process,
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


def test_utilization_of_each_process(player: Player) -> None:
    processes = (Process(101, util=Steps(((0, 90), (30, 40)))), Process(102, util=constant(0)), Process(103, end_s=30))
    out = player.ask(
        one(Gpu(UUID, util=constant(75), mem_util=constant(12), processes=processes)),
        "out = sorted((s.pid, s.smUtil, s.memUtil) for s in nv.nvmlDeviceGetProcessUtilization(gpu, 0))",
    )

    assert out == [(101, 40, 12), (102, 0, 12)]


def test_each_driver_sample_names_one_process_and_later_ones_are_asked_for(player: Player) -> None:
    processes = tuple(Process(pid) for pid in range(100, 110))
    scenario = one(Gpu(UUID, util=constant(75), processes=processes))
    first, third, newer, nothing = player.ask(
        scenario,
        """
        def pids(last_seen):
            found = attempt(nv.nvmlDeviceGetProcessUtilization, gpu, last_seen)
            return found if isinstance(found, str) else [(s.timeStamp, s.pid) for s in found]
        first = sorted(pids(0))
        out = [first, pids(first[-3][0])]
        time.sleep(0.3)
        later = pids(first[-1][0])
        out += [later, pids(max(later)[0] + 10**6)]
        """,
    )

    assert sorted(pid for _, pid in first) == list(range(100, 110)), "each once, with its newest sample"
    stamps = [stamp for stamp, _ in first]
    assert stamps == [entry.timestamp_us for entry in scenario.ring(0, stamps[0] - 1, stamps[-1])]
    assert first[-2:] == sorted(third)[:2]
    assert {pid for _, pid in newer} < set(range(100, 110))
    assert nothing == "NVMLError_NotFound"


def test_odd_answers_about_processes(player: Player) -> None:
    processes = (Process(101),)
    gpus = (
        Gpu(UUID, util=constant(75), processes=processes, process_util_over_100=True),
        Gpu(OTHER_UUID, util=constant(75), processes=processes, process_util_empty=True),
    )
    out = player.play(
        Scenario(gpus=gpus, start_ms=ms_ago(60)),
        """
        nv.nvmlInit()
        out = [[s.smUtil for s in nv.nvmlDeviceGetProcessUtilization(nv.nvmlDeviceGetHandleByIndex(0), 0)]]
        try:
            nv.nvmlDeviceGetProcessUtilization(nv.nvmlDeviceGetHandleByIndex(1), 0)
        except nv.NVMLError as error:
            out.append(error.value)
        """,
    )

    assert out == [[4_000_000_000], 0]

"""The fake driver's process lists, and how it attributes utilization to processes."""

from __future__ import annotations

from tests.agent.player import OTHER_UUID, UUID, Player, ms_ago, one
from tests.fakes.nvml import GIB, Gpu, Process, Scenario, Steps, constant

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

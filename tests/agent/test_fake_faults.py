"""What can go wrong in the fake driver goes wrong as told, when told and where told; critical errors reach whoever waits."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

import pytest

from tests.agent.player import OTHER_UUID, START, UUID, Player, failing, ms_ago, one
from tests.fakes.nvml import (
    Fault,
    Gpu,
    Scenario,
    Xid,
)

# -- faults

ONE_FAULT_PROGRAM = """
nv.nvmlInit()
handles = [attempt(nv.nvmlDeviceGetHandleByIndex, index) for index in (0, 1)]
out = [handle if isinstance(handle, str) else
       (attempt(nv.nvmlDeviceGetPowerUsage, handle), attempt(nv.nvmlDeviceGetTemperature, handle, 0)) for handle in handles]
"""
HEALTHY = (70_000, 35)


@pytest.mark.parametrize(
    ("kind", "error"), [("lost", "GpuIsLost"), ("reset_required", "ResetRequired"), ("unknown", "Unknown")]
)
def test_fault_of_one_gpu_leaves_the_others(player: Player, kind: Any, error: str) -> None:
    out = player.play(failing(Fault(kind, gpu=0)), ONE_FAULT_PROGRAM)

    assert out == [f"NVMLError_{error}", HEALTHY]


ERRORS: dict[Any, tuple[str, str]] = {
    "not_supported": ("nvmlDeviceGetPowerUsage", "NotSupported"),
    "no_permission": ("nvmlDeviceGetName", "NoPermission"),
    "function_not_found": ("nvmlDeviceGetUUID", "FunctionNotFound"),
    "timeout": ("nvmlDeviceGetSerial", "Timeout"),
    "insufficient_power": ("nvmlDeviceGetMinorNumber", "InsufficientPower"),
    "in_use": ("nvmlDeviceGetEccMode", "InUse"),
    "not_ready": ("nvmlDeviceGetIndex", "NotReady"),
    "no_data": ("nvmlDeviceGetPersistenceMode", "NoData"),
    "gpu_not_found": ("nvmlDeviceGetTotalEnergyConsumption", "GpuNotFound"),
    "operating_system": ("nvmlDeviceGetPciInfo_v3", "OperatingSystem"),
}


def test_faults_of_one_function_leave_the_other_gpu_and_the_other_functions(player: Player) -> None:
    calls = [call for call, _ in ERRORS.values()]
    healthy, faulty, temperature = player.play(
        failing(*(Fault(kind, gpu=1, function=call) for kind, (call, _) in ERRORS.items())),
        f"""
        nv.nvmlInit()
        handles = [nv.nvmlDeviceGetHandleByIndex(index) for index in (0, 1)]
        out = [[str(attempt(getattr(nv, call), handle)) for call in {calls}] for handle in handles]
        out.append(nv.nvmlDeviceGetTemperature(handles[1], 0))
        """,
    )

    assert faulty == [f"NVMLError_{error}" for _, error in ERRORS.values()]
    assert not [each for each in healthy if each.startswith("NVMLError")]
    assert temperature == 35


def test_fault_by_name_without_version_in_its_time(player: Player) -> None:
    past = Fault("lost", end_s=30)
    future = Fault("lost", start_s=1000)
    memory = Fault("not_supported", function="nvmlDeviceGetMemoryInfo")
    out = player.ask(
        failing(past, future, memory),
        "out = [attempt(nv.nvmlDeviceGetMemoryInfo, gpu, v) for v in (None, nv.nvmlMemory_v2)], nv.nvmlDeviceGetPowerUsage(gpu)",
    )

    assert out == (["NVMLError_NotSupported"] * 2, 70_000)


def test_a_gpu_is_lost_while_it_is_watched(player: Player) -> None:
    scenario = Scenario(gpus=(Gpu(UUID),), start_ms=ms_ago(0), faults=(Fault("lost", gpu=0, start_s=2.0),))
    out = player.ask(
        scenario,
        """
        out = [nv.nvmlDeviceGetPowerUsage(gpu)]
        while not isinstance(answer := attempt(nv.nvmlDeviceGetPowerUsage, gpu), str):
            time.sleep(0.01)
        out += [answer, time.time()]
        """,
    )

    assert out[:2] == [70_000, "NVMLError_GpuIsLost"]
    assert scenario.seconds(out[2]) == pytest.approx(2.0, abs=0.011)


@pytest.mark.parametrize(
    ("fault", "program"),
    [
        (Fault("hang", function="nvmlInit"), "nv.nvmlInit(); out = 0"),
        (Fault("hang", gpu=0, function="nvmlDeviceGetPowerUsage"), START + "out = nv.nvmlDeviceGetPowerUsage(gpu)"),
        (Fault("hang", gpu=0), "nv.nvmlInit(); out = nv.nvmlDeviceGetHandleByIndex(0)"),
    ],
)
def test_hang_blocks_for_ever(player: Player, fault: Fault, program: str) -> None:
    process = player.start(failing(fault), "print('calling', flush=True)\n" + program)
    assert process.stdout is not None
    assert process.stdout.readline() == "calling\n"

    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.4)
    process.kill()
    process.communicate()


def test_hang_of_one_gpu_leaves_the_others(player: Player) -> None:
    program = "nv.nvmlInit(); out = nv.nvmlDeviceGetPowerUsage(nv.nvmlDeviceGetHandleByIndex(1))"

    assert player.play(failing(Fault("hang", gpu=0)), program) == 70_000


def test_hang_may_end(player: Player) -> None:
    scenario = Scenario(gpus=(Gpu(UUID),), start_ms=ms_ago(0), faults=(Fault("hang", gpu=0, end_s=0.8),))
    woken, power = player.ask(scenario, "out = (time.time(), nv.nvmlDeviceGetPowerUsage(gpu))")

    assert scenario.seconds(woken) == pytest.approx(0.8)
    assert power == 70_000


def test_slow_calls(player: Player) -> None:
    fault = Fault("slow", function="nvmlDeviceGetPowerUsage", delay_s=0.15)
    out = player.ask(
        failing(fault), "t = time.time(); power = nv.nvmlDeviceGetPowerUsage(gpu); out = (power, time.time() - t)"
    )

    assert out[0] == 70_000
    assert out[1] == pytest.approx(0.15, abs=1e-5)


def test_driver_not_loaded(player: Player) -> None:
    assert player.play(failing(Fault("driver_not_loaded")), "out = attempt(nv.nvmlInit)") == "NVMLError_DriverNotLoaded"


def test_mismatch_strikes_init(player: Player) -> None:
    assert player.play(failing(Fault("mismatch")), "out = attempt(nv.nvmlInit)") == "NVMLError_LibRmVersionMismatch"


def test_mismatch_stays_with_a_process_from_before_the_upgrade(player: Player) -> None:
    start_ms = ms_ago(0)
    scenario = Scenario(gpus=(Gpu(UUID),), start_ms=start_ms, faults=(Fault("mismatch", start_s=2.0, end_s=2.1),))
    old = player.ask(
        scenario,
        f"""
        out = [nv.nvmlDeviceGetPowerUsage(gpu)]
        time.sleep({start_ms / 1000 + 2.15} - time.time())
        out += [attempt(nv.nvmlDeviceGetPowerUsage, gpu), attempt(nv.nvmlInit)]
        """,
    )

    mismatch = "NVMLError_LibRmVersionMismatch"
    assert old == [70_000, mismatch, mismatch]
    assert player.ask(scenario, "out = nv.nvmlDeviceGetPowerUsage(gpu)") == 70_000


# -- crashes, and GPUs that come and go


@pytest.mark.parametrize(
    ("fault", "program"),
    [
        (Fault("crash", gpu=0, function="nvmlDeviceGetPowerUsage"), START + "out = nv.nvmlDeviceGetPowerUsage(gpu)"),
        (Fault("crash", gpu=0), "nv.nvmlInit(); out = nv.nvmlDeviceGetHandleByIndex(0)"),
        (Fault("crash"), "nv.nvmlInit(); out = 0"),
    ],
)
def test_a_crash_ends_the_process(player: Player, fault: Fault, program: str) -> None:
    process = player.start(failing(fault), program)
    process.communicate(timeout=30)

    assert process.returncode == -signal.SIGSEGV


def test_a_crash_of_one_gpu_leaves_the_others(player: Player) -> None:
    program = "nv.nvmlInit(); out = nv.nvmlDeviceGetPowerUsage(nv.nvmlDeviceGetHandleByIndex(1))"

    assert player.play(failing(Fault("crash", gpu=0)), program) == 70_000


LISTED = """
def listed():
    handles = [nv.nvmlDeviceGetHandleByIndex(index) for index in range(nv.nvmlDeviceGetCount())]
    return [attempt(nv.nvmlDeviceGetUUID, handle) for handle in handles]
"""


def test_a_gpu_that_is_out_is_not_listed_and_the_next_one_moves_up(player: Player) -> None:
    out = player.play(
        failing(Fault("unplug", gpu=0)),
        LISTED
        + f"""
nv.nvmlInit()
out = (listed(), nv.nvmlDeviceGetIndex(nv.nvmlDeviceGetHandleByIndex(0)), nv.nvmlDeviceGetMinorNumber(nv.nvmlDeviceGetHandleByIndex(0)),
       attempt(nv.nvmlDeviceGetHandleByIndex, 1), attempt(nv.nvmlDeviceGetHandleByUUID, "{UUID}"))
""",
    )

    assert out == ([OTHER_UUID], 0, 1, "NVMLError_InvalidArgument", "NVMLError_NotFound")


def test_a_gpu_is_taken_out_and_put_back_under_a_library(player: Player) -> None:
    start_ms = ms_ago(0)
    scenario = Scenario((Gpu(UUID), Gpu(OTHER_UUID)), start_ms, (Fault("unplug", gpu=0, start_s=2.0, end_s=2.4),))
    out = player.play(
        scenario,
        LISTED
        + f"""
def wait_until(seconds):
    time.sleep(max(0.0, {start_ms / 1000} + seconds - time.time()))
nv.nvmlInit()
gpu, other = (nv.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
out = [listed()]
for moment in (2.1, 2.5):
    wait_until(moment)
    out.append((nv.nvmlDeviceGetCount(), attempt(nv.nvmlDeviceGetPowerUsage, gpu), attempt(nv.nvmlDeviceGetPowerUsage, other),
                attempt(nv.nvmlDeviceGetHandleByIndex, 0)))
nv.nvmlShutdown()
nv.nvmlInit()
out.append(listed())
""",
    )

    gone = (2, "NVMLError_GpuIsLost", 70_000, "NVMLError_GpuIsLost")
    assert out == [[UUID, OTHER_UUID], gone, gone, [UUID, OTHER_UUID]]


def test_a_gpu_that_is_added_later_is_listed_by_the_next_library(player: Player) -> None:
    scenario = Scenario((Gpu(UUID), Gpu(OTHER_UUID)), ms_ago(0), (Fault("unplug", gpu=1, end_s=1.5),))
    out = player.play(
        scenario,
        LISTED
        + f"""
nv.nvmlInit()
out = [listed()]
time.sleep(max(0.0, {scenario.start_ms / 1000 + 1.6} - time.time()))
out.append(listed())
nv.nvmlShutdown()
nv.nvmlInit()
out.append(listed())
""",
    )

    assert out == [[UUID], [UUID], [UUID, OTHER_UUID]]


LISTEN = (
    START
    + """
events = nv.nvmlEventSetCreate()
nv.nvmlDeviceRegisterEvents(gpu, nv.nvmlEventTypeXidCriticalError, events)
"""
)


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


def test_only_the_registered_gpus_errors_arrive_and_in_order(player: Player) -> None:
    xids = (Xid(0, 3.2, 31), Xid(1, 3.0, 79), Xid(0, 3.0, 13))
    scenario = Scenario(gpus=(Gpu(UUID), Gpu(OTHER_UUID)), start_ms=ms_ago(0), xids=xids)
    out = player.play(
        scenario,
        LISTEN
        + """
out = [(nv.nvmlEventSetWait_v2(events, 20000).eventData, time.time()) for _ in range(2)]
out.append(attempt(nv.nvmlEventSetWait_v2, events, 50))
""",
    )

    (first, first_at), (second, second_at), last = out
    assert (first, second, last) == (13, 31, "NVMLError_Timeout")
    assert scenario.seconds(first_at) == pytest.approx(3.0)
    assert scenario.seconds(second_at) == pytest.approx(3.2)


def test_waiting_costs_no_cpu_and_wakes_for_nothing(player: Player) -> None:
    out = player.play(
        one(xids=(Xid(0, 1000, 13),)),
        LISTEN
        + """
import resource
def switches():
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
before = switches()
out = [attempt(nv.nvmlEventSetWait_v2, events, 500), switches() - before]
""",
        real_time=True,
    )

    assert out[0] == "NVMLError_Timeout"
    assert out[1] <= 5, "one sleep, where a poll would have slept dozens of times"


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault("lost", gpu=0, start_s=2.5), "NVMLError_GpuIsLost"),
        (Fault("unplug", gpu=0, start_s=2.5), "NVMLError_GpuIsLost"),
        (Fault("driver_not_loaded", start_s=2.5), "NVMLError_DriverNotLoaded"),
        (Fault("lost", gpu=1, start_s=2.5), "NVMLError_Timeout"),
    ],
)
def test_a_fault_ends_the_wait(player: Player, fault: Fault, error: Any) -> None:
    scenario = Scenario(gpus=(Gpu(UUID), Gpu(OTHER_UUID)), start_ms=ms_ago(0), faults=(fault,))
    out = player.play(scenario, LISTEN + "out = [attempt(nv.nvmlEventSetWait_v2, events, 4000), time.time()]")

    assert out[0] == error
    assert scenario.seconds(out[1]) == pytest.approx(4.0 if error == "NVMLError_Timeout" else 2.5)

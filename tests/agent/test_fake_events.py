"""The fake driver's events: critical errors reach whoever waits, and waiting costs nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent.player import OTHER_UUID, START, UUID, Player, ms_ago, one
from tests.fakes.nvml import Fault, Gpu, Scenario, Xid

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

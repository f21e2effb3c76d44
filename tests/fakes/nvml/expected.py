"""Which health the agent should report of a GPU, given what goes wrong in a scenario: the truth of the fault tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fakes.nvml.faults import Fault
    from tests.fakes.nvml.scenario import Scenario

STATES = {
    "lost": "lost",
    "reset_required": "reset_required",
    "unplug": "lost",
    "hang": "wedged",
    "crash": "wedged",
    "unknown": "degraded",
    "timeout": "degraded",
    "mismatch": "driver_down",
    "driver_not_loaded": "driver_down",
    "slow": "ok",
}
"""What a fault that strikes every call of a GPU makes of it."""

NO_NUMBERS = ("lost", "missing", "reset_required", "wedged", "driver_down", "unknown")
"""States in which nothing of a GPU is known."""

_NOTICED = {"unknown": 4, "timeout": 4}
"""Whole intervals until the agent says so, where not at the next reading: three failures in a row, and a margin."""

_LOADED_ANEW = ("hang", "crash", "mismatch", "driver_not_loaded", "unplug")
"""After these a new worker opens every GPU."""

_LOOKED_AT_AGAIN = {
    "lost": 8,
    "reset_required": 8,
    "mismatch": 9,
    "driver_not_loaded": 9,
    "hang": 4,
    "crash": 20,
    "unknown": 9,
    "timeout": 9,
}
"""Intervals after the end of a fault in which its state may still be shown, because of the agent's growing pauses."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the agent under test is."""

    interval_s: float = 1.0
    call_timeout_s: float = 1.0
    slowness_s: float = 2.0
    """How late a busy machine may be."""

    def read_until_s(self, scenario: Scenario, end_s: float) -> float:
        """When the row of an interval that ends at `end_s` has surely been read: blocked calls hold it up."""
        hangs = sum(fault.kind == "hang" for fault in scenario.faults)
        return end_s + self.slowness_s + hangs * self.call_timeout_s


def faults_of(scenario: Scenario, gpu: int) -> list[Fault]:
    """The faults that strike every call of a GPU; those of one function are a matter of single columns."""
    return [fault for fault in scenario.faults if fault.gpu in (None, gpu) and fault.function is None]


def shown_until_s(fault: Fault, pace: Pace) -> float:
    """The last moment at which a fault's state may still be shown; endless for what needs a new library to be seen."""
    if fault.end_s is None or fault.kind == "unplug":
        return float("inf")
    return fault.end_s + _LOOKED_AT_AGAIN.get(fault.kind, 3) * pace.interval_s + pace.slowness_s


def expected_states(scenario: Scenario, gpu: int, t0: float, t1: float, pace: Pace) -> frozenset[str]:
    """Every health that a row of the interval [t0, t1) may show, in seconds since the scenario's start.

    "ok" is among them unless some fault holds from before the reading until after it, and long enough to be noticed; a
    fault's state is from its start until the agent has had time to look again.
    """
    read_until_s = pace.read_until_s(scenario, t1)
    allowed = {"ok"}
    for fault in faults_of(scenario, gpu):
        if fault.start_s <= read_until_s and t0 <= shown_until_s(fault, pace):
            allowed.add(STATES[fault.kind])
            if fault.kind in _NOTICED and any(other.kind in _LOADED_ANEW for other in scenario.faults):
                allowed.add("lost")  # a new worker could not open it
    if any(each.kind in _LOADED_ANEW and each.start_s <= read_until_s for each in scenario.faults) and len(allowed) > 1:
        allowed.add("unknown")  # a new worker came after the interval, and finds the GPU in a state of now
    for fault in faults_of(scenario, gpu):
        noticed_s = fault.start_s + _NOTICED.get(fault.kind, 0) * pace.interval_s
        if STATES[fault.kind] != "ok" and noticed_s <= t1 and covers(fault, t1, read_until_s):
            allowed.discard("ok")
    return frozenset(allowed)


def covers(fault: Fault, t0: float, t1: float) -> bool:
    """Whether the fault holds all the time from t0 to t1 seconds."""
    return fault.start_s <= t0 and (fault.end_s is None or t1 <= fault.end_s)


def is_silent(scenario: Scenario, gpu: int, t0: float, t1: float, pace: Pace) -> bool:
    """Whether a fault keeps everything of the interval [t0, t1) from the agent, so that no number may be shown."""
    read_until_s = pace.read_until_s(scenario, t1)
    faults = faults_of(scenario, gpu)
    return any(STATES[fault.kind] != "ok" and covers(fault, t0, read_until_s) for fault in faults)

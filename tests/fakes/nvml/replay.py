"""A recording of a real driver (record.py) as a scenario, so that tests play what a real card once answered."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from agent.nvml.driver import field_numbers, parsed_version
from tests.fakes.nvml.devices import Gpu, Process, ThrottleReason
from tests.fakes.nvml.faults import Fault, FaultKind
from tests.fakes.nvml.scenario import Scenario
from tests.fakes.nvml.steps import Steps, constant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fakes.nvml.capture import Capture

FIRST_PID = 4_194_305
"""Beyond the largest process id of Linux: the recording's processes are nobody's here."""

_THROTTLED: tuple[ThrottleReason, ...] = ("power_cap", "sync_boost", "sw_thermal", "hw_thermal", "power_brake")
_FAULTS: dict[int, FaultKind] = {
    3: "not_supported",
    4: "no_permission",
    10: "timeout",
    13: "function_not_found",
    15: "lost",
    16: "reset_required",
    999: "unknown",
}
_LISTS = {"Compute": "compute", "Graphics": "graphics", "MPSCompute": "mps"}


def replay(capture: Capture, start_ms: int) -> Scenario:
    """The recording as a scenario; what it began and ended with also holds before and after it."""
    count = capture.about["gpus"]
    return Scenario(
        gpus=tuple(_gpu(capture, index) for index in range(count)),
        start_ms=start_ms,
        faults=tuple(fault for index in range(count) for fault in _faults(capture, index)),
        driver_version=capture.result("nvmlSystemGetDriverVersion", None),
        cuda_driver_version=capture.result("nvmlSystemGetCudaDriverVersion_v2", None, 0),
        sample_clock_offset_us=capture.ring_offset_us(),
    )


def _gpu(capture: Capture, index: int) -> Gpu:
    memory = capture.values("nvmlDeviceGetMemoryInfo_v2", index) or [(0.0, (0, 0, 0))]
    total, reserved, _ = memory[0][1]
    rates = capture.values("nvmlDeviceGetUtilizationRates", index) or [(0.0, (0, 0))]
    energy_power, energy_offset = _rate(capture.values("nvmlDeviceGetTotalEnergyConsumption", index), 1.0)
    power = _steps(capture.values("nvmlDeviceGetPowerUsage", index), 0.001)
    return Gpu(
        uuid=f"GPU-{index:08d}-0000-0000-0000-{index:012d}",
        model=capture.result("nvmlDeviceGetName", index),
        serial=f"{index:013d}",
        mem_total_bytes=total,
        mem_reserved_bytes=reserved,
        mem_used=_steps([(t_s, used) for t_s, (_, _, used) in memory]),
        util=_ring_steps(capture.ring(index, 1)),
        mem_util=_ring_steps(capture.ring(index, 2)),
        rates=(_steps([(t_s, gpu) for t_s, (gpu, _) in rates]), _steps([(t_s, mem) for t_s, (_, mem) in rates])),
        ring_recorded=tuple([(t_s, value, None) for t_s, value in capture.ring(index, 1)])
        + tuple([(t_s, None, value) for t_s, value in capture.ring(index, 2)]),
        power_w=power,
        energy_power_w=energy_power or power,
        energy_offset_mj=energy_offset,
        temperature_c=_steps(capture.values("nvmlDeviceGetTemperature", index)),
        mem_temperature_c=_steps(capture.values("field(82)", index)),
        sm_clock=_steps(capture.values("nvmlDeviceGetClockInfo(1)", index)),
        mem_clock=_steps(capture.values("nvmlDeviceGetClockInfo(2)", index)),
        throttle=_steps(capture.values("nvmlDeviceGetCurrentClocksEventReasons", index)),
        gpm_supported=bool(capture.result("nvmlGpmQueryDeviceSupport", index, 0)),
        gpm=_gpm(capture, index),
        processes=tuple(_processes(capture, index)),
        **_facts(capture, index),
        nvlink_group=_nvlink_group(capture, index),
        **_counters(capture, index),
    )


def _facts(capture: Capture, index: int) -> dict[str, Any]:
    ecc = capture.result("nvmlDeviceGetEccMode", index)
    mig = capture.answers("nvmlDeviceGetMigMode", index)
    limit = capture.result("nvmlDeviceGetEnforcedPowerLimit", index, 0)
    return {
        "architecture": capture.result("nvmlDeviceGetArchitecture", index, 0),
        "compute_capability": tuple(capture.result("nvmlDeviceGetCudaComputeCapability", index, (0, 0))),
        "minor": capture.result("nvmlDeviceGetMinorNumber", index, index),
        "persistence": bool(capture.result("nvmlDeviceGetPersistenceMode", index, 0)),
        "ecc": bool(ecc and ecc[0]),
        "mig_capable": bool(mig) and mig[0].error is None,
        "mig_mode": constant(mig[0].result[0] if mig and mig[0].error is None else 0),
        "power_limit_w": limit / 1000,
        "max_sm_clock": capture.result("nvmlDeviceGetMaxClockInfo(1)", index, 0),
        "max_mem_clock": capture.result("nvmlDeviceGetMaxClockInfo(2)", index, 0),
        "pci_bus_id": str(capture.result("nvmlDeviceGetPciInfo", index, "0000:00:00.0")).rpartition(".")[0],
    }


def _nvlink_group(capture: Capture, index: int) -> int | None:
    """A group is named by its first GPU; None where the GPU has no link."""
    count = capture.about["gpus"]
    reached = [
        other
        for other in range(count)
        if other != index and capture.result(f"nvmlDeviceGetP2PStatus({max(index, other)})", min(index, other)) == 0
    ]
    return min([index, *reached]) if reached or capture.result("nvlinks", index) else None


def _counters(capture: Capture, index: int) -> dict[str, Any]:
    """Field values: counters as what they gain, the others as they were; and which fields the card has not."""
    throttled, offsets = {}, {}
    numbers = field_numbers(parsed_version(capture.result("nvmlSystemGetDriverVersion", None)))
    for reason in _THROTTLED:
        field = numbers.get(f"throttled_{reason}_ms")
        share, offset_ns = _rate([] if field is None else capture.values(f"field({field})", index), 1e-6)
        throttled[reason], offsets[reason] = share or constant(0), offset_ns
    corrected, uncorrected = (capture.values(f"field({field})", index) for field in (3, 4))
    kept = [capture.result(f"field({field})", index, 0) for field in (5, 6)]
    errors = {
        field: answers[0].error
        for call, answers in capture.calls(index)
        if call.startswith("field(") and answers[0].error is not None
        for field in (int(call[6:-1]),)
    }
    return {
        "throttled": throttled,
        "throttled_offset_ns": offsets,
        "ecc_corrected": _steps(corrected),
        "ecc_uncorrected": _steps(uncorrected),
        "ecc_corrected_offset": kept[0] - (corrected[0][1] if corrected else 0),
        "ecc_uncorrected_offset": kept[1] - (uncorrected[0][1] if uncorrected else 0),
        "remapped_corrected": _steps(capture.values("field(142)", index)),
        "remapped_uncorrected": _steps(capture.values("field(143)", index)),
        "remap_pending": _steps(capture.values("field(144)", index)),
        "remap_failed": _steps(capture.values("field(145)", index)),
        "pcie_replay": _steps(capture.values("field(94)", index)),
        "recovery_action": _steps(capture.values("field(230)", index)),
        "field_errors": errors,
    }


def _gpm(capture: Capture, index: int) -> dict[int, Steps]:
    found: dict[int, list[tuple[float, float]]] = {}
    for _, values in capture.values("nvmlGpmMetricsGet", index):
        for metric, value in values.items():
            if metric != "since_s" and value is not None:
                found.setdefault(int(metric), []).append((values["since_s"], value))
    return {metric: _steps(points) for metric, points in found.items()}


def _processes(capture: Capture, index: int) -> Iterator[Process]:
    """So many processes as were counted, each with a number of its own."""
    for place, (name, kind) in enumerate(_LISTS.items()):
        counts = capture.values(f"nvmlDeviceGet{name}RunningProcesses_v3", index)
        ends = [t_s for t_s, _ in counts[1:]] + [None]
        for number in range(max((count for _, count in counts), default=0)):
            pid = FIRST_PID + index * 3000 + place * 1000 + number
            for (t_s, count), end_s in zip(counts, ends, strict=True):
                if count > number:
                    start_s = 0.0 if t_s == counts[0][0] else t_s
                    yield Process(pid, start_s, end_s, mem_bytes=None, kind=kind)  # type: ignore[arg-type]


def _faults(capture: Capture, index: int) -> Iterator[Fault]:
    """Calls that failed, for as long as they did."""
    for call, answers in capture.calls(index):
        function = call.partition("(")[0]
        if not function.startswith("nvml"):
            continue
        idle_intervals = [
            (error, [each.t_s for each in group]) for error, group in groupby(answers, lambda each: each.error)
        ]
        ends = [moments[0] for _, moments in idle_intervals[1:]] + [None]
        for place, ((error, moments), end_s) in enumerate(zip(idle_intervals, ends, strict=True)):
            if error in _FAULTS:
                yield Fault(_FAULTS[error], index, function, 0.0 if place == 0 else moments[0], end_s)


def _steps(values: list[tuple[float, Any]], factor: float = 1) -> Steps:
    """Values that hold from one reading to the next; 0 where there is none."""
    by_ms = {round(t_s * 1000): value * factor for t_s, value in values}
    return Steps(tuple((t_ms / 1000, value) for t_ms, value in sorted(by_ms.items()))) if by_ms else constant(0)


def _rate(readings: list[tuple[float, int]], unit: float) -> tuple[Steps | None, int]:
    """How fast a counter grows between two readings, and what it held when the recording began.

    `unit` times the counter's gain in a millisecond is the rate. What rounding a rate loses is made up for in the next
    segment, so that the counter is right again at every reading.
    """
    if not readings:
        return None, 0
    if len(readings) == 1:
        return constant(0), readings[0][1]
    held = float(readings[0][1])
    points = []
    for (t_s, _), (end_s, value) in pairwise(readings):
        length_ms = round(end_s * 1000) - round(t_s * 1000)
        rate = round((value - held) * unit / length_ms, 3)
        held += rate * length_ms / unit
        points.append((t_s, rate))
    before = points[0][1] * round(readings[0][0] * 1000) / unit
    return _steps([*points, (readings[-1][0], points[-1][1])]), max(0, round(readings[0][1] - before))


def _ring_steps(entries: list[tuple[float, int]]) -> Steps:
    """Utilization as the ring tells it: each entry stands for the time since the one before, silence for none."""
    points: dict[int, float] = {0: 0.0}
    before_s = None
    for t_s, value in entries:
        begun_s = t_s - 1 / 6 if before_s is None or t_s - before_s > 1 else before_s
        points[round(begun_s * 1000)] = min(value, 100)
        points[round(t_s * 1000)] = 0.0
        before_s = t_s
    return Steps(tuple((t_ms / 1000, value) for t_ms, value in sorted(points.items())))

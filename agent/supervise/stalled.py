"""Stalled suspects: GPUs whose kernels run for minutes while independent witnesses agree that no work is done.

The witnesses are the power sensor, the activity counters (GPM) and the process list. Two must agree, and none may show
work. The rows that the agent writes anyway are the only source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agent.snapshot import WATCHED, SinceClock
from fallow.clock import format_duration
from fallow.stall_evidence import ACTIVITY_MOST, ACTIVITY_NEEDED, HELD_DOWN_MOST, RESIDENT_PCT, resting_draw

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.rows import DeviceRow, EventRow, GpuRow

_WITNESSES = 2
_HELD_DOWN = (
    "throttled_power_cap_ms",
    "throttled_power_brake_ms",
    "throttled_sw_thermal_ms",
    "throttled_hw_thermal_ms",
)
_OBSERVED_FROM = 0.9  # the driver's short averages alone cover less, and are point samples


class Judgement(NamedTuple):
    """Whether a row shows kernels without work (None: unknown), and the columns that decide it."""

    stalled: bool | None
    columns: tuple[str, ...] = ()


_UNKNOWN = Judgement(None)


def judge(row: GpuRow, before: GpuRow | None, device: DeviceRow) -> Judgement:
    """Return what the witnesses of a row agree on; `before` is the GPU's last row."""
    values: Mapping[str, Any] = row
    util_pct, coverage = row.get("gpu_util_pct"), row.get("gpu_util_coverage_ratio")
    if row["health"] not in WATCHED or util_pct is None or coverage is None or coverage < _OBSERVED_FROM:
        return _UNKNOWN
    if util_pct < RESIDENT_PCT:
        return Judgement(stalled=False, columns=("gpu_util_pct",))
    for column, most in ACTIVITY_MOST.items():
        if (value := values.get(column)) is not None and value > most:
            return Judgement(stalled=False, columns=(column,))
    for column in _HELD_DOWN:
        if (_rise(row, before, column) or 0.0) > HELD_DOWN_MOST:
            return Judgement(stalled=False, columns=(column,))
    draw_w, resting = _draw_w(row, before), resting_draw(device.get("model"), device.get("power_limit_w"))
    witnesses, columns = 0, tuple[str, ...]()
    if draw_w is not None and resting is not None and draw_w >= resting.least_w:
        if draw_w > resting.spinning_w:
            return Judgement(stalled=False, columns=("power_w",))
        witnesses, columns = 1, ("power_w",)
    if None not in map(values.get, ACTIVITY_NEEDED):
        witnesses, columns = witnesses + 1, columns + ACTIVITY_NEEDED
    if row.get("process_count") == 0:
        witnesses, columns = witnesses + 1, (*columns, "process_count")
    return Judgement(stalled=True, columns=columns) if witnesses >= _WITNESSES else _UNKNOWN


def _draw_w(row: GpuRow, before: GpuRow | None) -> float | None:
    """Return the power reading or the mean by the energy counter since the last row, whichever is higher, in W.

    The reading is of one second, and work may keep step with it; the counter covers the whole interval.
    """
    power_w, mean_w = row.get("power_w"), _rise(row, before, "energy_mj")
    return power_w if mean_w is None else mean_w if power_w is None else max(power_w, mean_w)


def _rise(row: GpuRow, before: GpuRow | None, column: str) -> float | None:
    """Return the rise of a counter per millisecond since the last row; None where it is unknown."""
    if before is None or row.get("counters_since") != before.get("counters_since"):
        return None
    values: Mapping[str, Any] = row
    earlier: Mapping[str, Any] = before
    now, then, elapsed_ms = values.get(column), earlier.get(column), _read_ms(row) - _read_ms(before)
    return None if now is None or then is None or elapsed_ms <= 0 else (now - then) / elapsed_ms


def _read_ms(row: GpuRow) -> int:
    return row["time"] + row["interval_ms"] + (row.get("read_delay_ms") or 0)


class StalledWatch:
    """Judges the rows of each interval, and reports the start and the end of a suspicion as events."""

    def __init__(self, after_ms: int) -> None:
        """A GPU is a suspect after `after_ms` of unbroken agreement."""
        self.after_ms = after_ms
        self._rows: dict[str, GpuRow] = {}
        self._judged: dict[str, Judgement] = {}
        self._clock = SinceClock(lambda row: self._judged[row["gpu"]].stalled is True)
        self._suspects: dict[str, int] = {}
        """How long they have been without work (ms), by UUID."""
        self._incidents: list[EventRow] = []

    def feed(self, rows: Sequence[GpuRow], devices: Mapping[str, DeviceRow]) -> dict[str, bool | None]:
        """Add the `gpu` rows of one interval. Return by UUID whether the GPU is a suspect; None: unknown."""
        last, self._rows = self._rows, {row["gpu"]: row for row in rows}
        self._judged = {gpu: judge(row, last.get(gpu), devices.get(gpu, {})) for gpu, row in self._rows.items()}
        lasted = {gpu: self._end_ms(gpu) - since for gpu, since in self._clock.feed(rows).items() if since is not None}
        before, self._suspects = self._suspects, {gpu: ms for gpu, ms in lasted.items() if ms >= self.after_ms}
        for gpu in self._suspects.keys() - before.keys():
            detail = f"kernels have run for {format_duration(lasted[gpu])} without work: {self._shown(gpu, last)}"
            self._incidents.append({"kind": "stalled_suspect", "gpu": gpu, "detail": detail, "time": self._end_ms(gpu)})
        for gpu in before.keys() - self._suspects.keys():
            reason = "time without observation" if gpu in lasted else self._shown(gpu, last)
            detail = f"no stalled suspect now: {reason}"
            self._incidents.append({"kind": "stalled_over", "gpu": gpu, "detail": detail})
        return {gpu: None if each.stalled is None else gpu in self._suspects for gpu, each in self._judged.items()}

    def take_incidents(self) -> list[EventRow]:
        taken, self._incidents = self._incidents, []
        return taken

    def _end_ms(self, gpu: str) -> int:
        return self._rows[gpu]["time"] + self._rows[gpu]["interval_ms"]

    def _shown(self, gpu: str, last: Mapping[str, GpuRow]) -> str:
        """Return the values that decide the newest row."""
        if gpu not in self._rows or not self._judged[gpu].columns:
            return "too little is known"
        values: Mapping[str, Any] = {**self._rows[gpu], "power_w": _draw_w(self._rows[gpu], last.get(gpu))}
        return ", ".join(f"{column} {round(values[column], 2)}" for column in self._judged[gpu].columns)

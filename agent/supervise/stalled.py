"""Stalled suspects: GPUs whose kernels run for minutes while independent witnesses agree that no work is done.

The witnesses are the power sensor, the activity counters (GPM), the process list and the memory in use. Two must agree, and none
may show work. The rows that the agent writes anyway are the only source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.snapshot import WATCHED, SinceClock
from fallow.clock import format_duration
from fallow.stall_evidence import (
    ACTIVITY_MOST,
    ACTIVITY_NEEDED,
    CONTEXT_LEAST_BYTES,
    KERNELS_FROM_PCT,
    spinning_most_w,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.rows import DeviceRow, EventRow, GpuRow

_WITNESSES = 2
_OBSERVED_FROM = 0.9  # the driver's short averages alone cover less, and are point samples


@dataclass(frozen=True)
class Judgement:
    """Whether a row shows kernels without work, and the reason in words; None where too few witnesses are known."""

    stalled: bool | None
    reason: str


def judge(row: GpuRow, device: DeviceRow, draw_w: float | None) -> Judgement:
    """Return what the witnesses of one row agree on, with the highest known power of its interval in W."""
    util_pct, coverage = row.get("gpu_util_pct"), row.get("gpu_util_coverage_ratio")
    if row["health"] not in WATCHED or util_pct is None or coverage is None or coverage < _OBSERVED_FROM:
        return Judgement(None, "utilization was not observed")
    if util_pct < KERNELS_FROM_PCT:
        return Judgement(stalled=False, reason=f"utilization is {util_pct:g} %")
    for column, most in ACTIVITY_MOST.items():
        value: float | None = row.get(column)  # type: ignore[assignment]  # all of them are numbers
        if value is not None and value > most:
            return Judgement(stalled=False, reason=f"{column} is {value:g}")
    spinning_w = spinning_most_w(device.get("model"), device.get("power_limit_w"))
    mem_bytes, agreeing = row.get("mem_used_bytes"), []
    if draw_w is not None and spinning_w is not None:
        if draw_w > spinning_w:
            return Judgement(stalled=False, reason=f"power is {draw_w:.0f} W")
        agreeing.append(f"power is {draw_w:.0f} W, and spinning kernels draw up to {spinning_w:.0f} W")
    if all(row.get(column) is not None for column in ACTIVITY_NEEDED):
        agreeing.append("no pipe, memory or link is active")
    if row.get("process_count") == 0:
        agreeing.append("no process has a context")
    if mem_bytes is not None and mem_bytes < CONTEXT_LEAST_BYTES:
        agreeing.append("the memory in use holds no context")
    if len(agreeing) < _WITNESSES:
        return Judgement(None, "too few witnesses are known")
    return Judgement(stalled=True, reason="; ".join(agreeing))


class StalledWatch:
    """Judges the rows of each interval, and reports the start and the end of a suspicion as events."""

    def __init__(self, after_ms: int) -> None:
        """A GPU is a suspect after `after_ms` of unbroken agreement."""
        self.after_ms = after_ms
        self._clock = SinceClock(lambda row: self._judged[row["gpu"]].stalled is True)
        self._judged: dict[str, Judgement] = {}
        self._energy: dict[str, tuple[int, int | None, int]] = {}
        self._suspects: dict[str, int] = {}
        """Start of the agreement (epoch ms) by UUID."""
        self._incidents: list[EventRow] = []

    def feed(self, rows: Sequence[GpuRow], devices: Mapping[str, DeviceRow]) -> dict[str, bool | None]:
        """Add the `gpu` rows of one interval. Return by UUID whether the GPU is a suspect; None: unknown."""
        self._judged = {row["gpu"]: judge(row, devices.get(row["gpu"], {}), self._draw_w(row)) for row in rows}
        end_ms = {row["gpu"]: row["time"] + row["interval_ms"] for row in rows}
        since_ms, before = self._clock.feed(rows), self._suspects
        self._suspects = {
            gpu: since for gpu, since in since_ms.items() if since is not None and end_ms[gpu] - since >= self.after_ms
        }
        for gpu in self._suspects.keys() - before.keys():
            lasted = format_duration(end_ms[gpu] - self._suspects[gpu])
            detail = f"kernels have run for {lasted} without work: {self._judged[gpu].reason}"
            self._incidents.append({"kind": "stalled_suspect", "gpu": gpu, "detail": detail, "time": end_ms[gpu]})
        for gpu in before.keys() - self._suspects.keys():
            reason = self._judged[gpu].reason if gpu in self._judged else "it is not listed"
            self._incidents.append({"kind": "stalled_over", "gpu": gpu, "detail": f"no stalled suspect now: {reason}"})
        return {gpu: None if found.stalled is None else gpu in self._suspects for gpu, found in self._judged.items()}

    def take_incidents(self) -> list[EventRow]:
        taken, self._incidents = self._incidents, []
        return taken

    def _draw_w(self, row: GpuRow) -> float | None:
        """Return the power reading or the mean by the energy counter since the last row, whichever is higher, in W.

        The reading is of one second, and work may keep step with it; the counter covers the whole interval.
        """
        gpu, energy_mj, power_w = row["gpu"], row.get("energy_mj"), row.get("power_w")
        before = self._energy.pop(gpu, None)
        if energy_mj is None:
            return power_w
        read_ms = row["time"] + row["interval_ms"] + (row.get("read_delay_ms") or 0)
        epoch_ms = row.get("counters_since")
        self._energy[gpu] = energy_mj, epoch_ms, read_ms
        if before is None or before[1] != epoch_ms or read_ms <= before[2]:
            return power_w
        mean_w = (energy_mj - before[0]) / (read_ms - before[2])
        return mean_w if power_w is None else max(power_w, mean_w)

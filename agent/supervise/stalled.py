"""Stalled suspects: GPUs whose kernels run for minutes while independent witnesses agree that no work is done.

The witnesses are the power sensor, the activity counters (GPM), the process list and the memory in use. Two must agree, and none
may show work. The rows that the agent writes anyway are the only source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

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


class Judgement(NamedTuple):
    """Whether a row shows kernels without work (None: unknown), and the columns that decide it."""

    stalled: bool | None
    columns: tuple[str, ...] = ()


_UNKNOWN = Judgement(None)


def judge(row: Mapping[str, Any], device: DeviceRow) -> Judgement:
    """Return what the witnesses of one row of the `gpu` table agree on."""
    util_pct, coverage = row.get("gpu_util_pct"), row.get("gpu_util_coverage_ratio")
    if row["health"] not in WATCHED or util_pct is None or coverage is None or coverage < _OBSERVED_FROM:
        return _UNKNOWN
    if util_pct < KERNELS_FROM_PCT:
        return Judgement(stalled=False, columns=("gpu_util_pct",))
    for column, most in ACTIVITY_MOST.items():
        if (value := row.get(column)) is not None and value > most:
            return Judgement(stalled=False, columns=(column,))
    power_w, spinning_w = row.get("power_w"), spinning_most_w(device.get("model"), device.get("power_limit_w"))
    agreeing: list[tuple[str, ...]] = []
    if power_w is not None and spinning_w is not None:
        if power_w > spinning_w:
            return Judgement(stalled=False, columns=("power_w",))
        agreeing.append(("power_w",))
    if None not in [row.get(column) for column in ACTIVITY_NEEDED]:
        agreeing.append(ACTIVITY_NEEDED)
    if row.get("process_count") == 0:
        agreeing.append(("process_count",))
    mem_used_bytes = row.get("mem_used_bytes")
    if mem_used_bytes is not None and mem_used_bytes < CONTEXT_LEAST_BYTES:
        agreeing.append(("mem_used_bytes",))
    return Judgement(stalled=True, columns=sum(agreeing, ())) if len(agreeing) >= _WITNESSES else _UNKNOWN


class StalledWatch:
    """Judges the rows of each interval, and reports the start and the end of a suspicion as events."""

    def __init__(self, after_ms: int) -> None:
        """A GPU is a suspect after `after_ms` of unbroken agreement."""
        self.after_ms = after_ms
        self._judged: dict[str, Judgement] = {}
        self._clock = SinceClock(lambda row: self._judged[row["gpu"]].stalled is True)
        self._energy: dict[str, tuple[int, int | None, int]] = {}
        """Counter, its epoch, and the time of reading, by UUID."""
        self._suspects: dict[str, bool] = {}
        self._incidents: list[EventRow] = []

    def feed(self, rows: Sequence[GpuRow], devices: Mapping[str, DeviceRow]) -> dict[str, bool | None]:
        """Add the `gpu` rows of one interval. Return by UUID whether the GPU is a suspect; None: unknown."""
        drawn = [self._with_mean_power(row) for row in rows]
        self._judged = {row["gpu"]: judge(row, devices.get(row["gpu"], {})) for row in drawn}
        since_ms, before, self._suspects = self._clock.feed(rows), self._suspects, {}
        for row in drawn:
            gpu, end_ms = row["gpu"], row["time"] + row["interval_ms"]
            judged, since = self._judged[gpu], since_ms[gpu]
            suspect = since is not None and end_ms - since >= self.after_ms
            self._suspects[gpu] = suspect
            if suspect == before.pop(gpu, False):
                continue
            values = (
                ", ".join(f"{column} {round(row[column], 2)}" for column in judged.columns) or "too little is known"
            )
            if since is not None and suspect:
                detail = f"kernels have run for {format_duration(end_ms - since)} without work: {values}"
                self._incidents.append({"kind": "stalled_suspect", "gpu": gpu, "detail": detail, "time": end_ms})
            else:
                self._over(gpu, values)
        for gpu in [gpu for gpu, suspect in before.items() if suspect]:
            self._over(gpu, "it is not listed")
        return {gpu: None if found.stalled is None else self._suspects[gpu] for gpu, found in self._judged.items()}

    def take_incidents(self) -> list[EventRow]:
        taken, self._incidents = self._incidents, []
        return taken

    def _over(self, gpu: str, reason: str) -> None:
        self._incidents.append({"kind": "stalled_over", "gpu": gpu, "detail": f"no stalled suspect now: {reason}"})

    def _with_mean_power(self, row: GpuRow) -> Mapping[str, Any]:
        """Return the row with the mean power by the energy counter since the last row, where that is more than the reading.

        The reading is of one second, and work may keep step with it; the counter covers the whole interval.
        """
        gpu, energy_mj, power_w = row["gpu"], row.get("energy_mj"), row.get("power_w")
        before = self._energy.pop(gpu, None)
        if energy_mj is None:
            return row
        read_ms = row["time"] + row["interval_ms"] + (row.get("read_delay_ms") or 0)
        epoch_ms = row.get("counters_since")
        self._energy[gpu] = energy_mj, epoch_ms, read_ms
        if before is None or before[1] != epoch_ms or read_ms <= before[2]:
            return row
        mean_w = (energy_mj - before[0]) / (read_ms - before[2])
        return row if power_w is not None and power_w >= mean_w else {**row, "power_w": mean_w}

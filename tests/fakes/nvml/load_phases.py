"""What benchmarks/hardware_load.py made a real GPU do, phase by phase."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fakes.nvml.capture import Capture


@dataclass(frozen=True)
class LoadPhase:
    """One kind of work, with the share of its time in which a kernel ran."""

    name: str
    begin: datetime
    end: datetime
    busy_pct: float

    def within(self, capture: Capture) -> tuple[float, float]:
        """Its begin and end, in seconds since the recording's start."""
        begun_s = capture.about["begun_us"] / 1e6
        return self.begin.timestamp() - begun_s, self.end.timestamp() - begun_s


def load_phases(path: Path) -> list[LoadPhase]:
    """Reads the file that the load wrote."""
    return [_phase(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _phase(line: dict[str, float]) -> LoadPhase:
    begin_s, end_s = line["begin_s"], line["end_s"]
    moments = (datetime.fromtimestamp(each, UTC) for each in (begin_s, end_s))
    return LoadPhase(str(line["phase"]), *moments, line["busy_ms"] / (end_s - begin_s) / 10)

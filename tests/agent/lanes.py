"""An NVML worker over the fake driver, asked for short intervals of a clock that only the test moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.supervise.workers import WorkerClient

if TYPE_CHECKING:
    from pathlib import Path

    from agent.nvml.gpu import Entries, IntervalRequest
    from tests.fakes.clock import FakeClock
    from tests.fakes.nvml import Scenario

PAST_S = 30.0
STEP_MS = 500


class Lanes:
    """A worker over a scenario that began PAST_S ago, asked for short intervals of the fake clock."""

    def __init__(self, scenario: Scenario, sys: Path, clock: FakeClock, step_ms: int = STEP_MS) -> None:
        self.clock = clock
        with clock.for_new_processes():
            self.worker = WorkerClient(sys_path=str(sys), alive=self._alive, clock=clock)
        self.opened = self.worker.open(10)
        self.scenario = scenario
        self._step_ms = step_ms
        self._next_ms = clock.now_ms() // step_ms * step_ms + step_ms

    def skip(self, intervals: int) -> None:
        self._next_ms += intervals * self._step_ms

    def row(self, *, lists: bool = True, devices: Entries = "none", errors: bool = False) -> Any:
        start_ms, self._next_ms = self._next_ms, self._next_ms + self._step_ms
        end_ms = self._next_ms
        self.clock.sleep((end_ms + 250 - self.clock.now_ms()) / 1000)
        wanted: IntervalRequest = {
            "op": "row",
            "start_ms": start_ms,
            "end_ms": end_ms,
            "list_processes": lists,
            "devices": devices,
            "errors": errors,
        }
        return self.worker.interval(wanted, 10)

    def _alive(self) -> bool:
        self.clock.while_blocked(1.0)
        return True


def of(answer: dict[str, Any], gpu: str, table: str = "gpu") -> dict[str, Any]:
    (row,) = [row for row in answer[table] if row["gpu"] == gpu]
    return row

"""The agent over the fake driver by a clock that only the test moves: minutes pass in tenths of a second.

The supervisor runs in the test's process, the NVML workers in processes of their own, as they always do. The
publisher's code writes the rows to the lake at the end of a run.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.attribution.lookups import Background
from agent.settings import AgentSettings
from agent.spool.publisher import Publisher
from agent.spool.publishing import Publishing
from agent.spool.spool import Spool
from agent.supervise.supervisor import Supervisor
from fallow import config
from tests.agent.spooled import rows_of
from tests.fakes.clock import FakeClock
from tests.publishing.rows import adopted

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from fallow.bell import Bell
    from fallow.config import Config
    from fallow.lake import Lake
    from tests.fakes.nvml import Gpu, Scenario

Row = dict[str, Any]

_BROKEN_S = 60.0  # only a thread that hangs takes so long

HOST = "fakehost"
CALL_TIMEOUT_S = 0.4
START_MS = time.time_ns() // 1_000_000 // 60_000 * 60_000
"""A whole minute near the machine's time, by which processes have started."""


class _Questions:
    """What the agent asks in threads beside the sampling: answered before time passes."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self._threads: list[threading.Thread] = []
        original = Background.ask

        def ask(background: Background[Any], question: Callable[[], Any]) -> None:
            original(background, question)
            self._threads += [] if background._thread is None else [background._thread]  # noqa: SLF001

        patched.setattr(Background, "ask", ask)

    def wait(self) -> None:
        while self._threads:
            self._threads.pop().join(_BROKEN_S)


class _SimulatedBell:
    """Waits by the fake clock."""

    def __init__(self, bell: Bell, clock: FakeClock, questions: _Questions) -> None:
        self._bell, self._clock, self._questions = bell, clock, questions

    def ring(self) -> None:
        self._bell.ring()

    def close(self) -> None:
        self._bell.close()

    def wait(self, seconds: float) -> bool:
        rung = False

        def is_over() -> bool:
            nonlocal rung
            rung = rung or self._bell.wait(0)
            return rung

        self._questions.wait()
        self._clock.sleep(seconds, is_over)
        return is_over()


class _SimulatedSupervisor(Supervisor):
    """Time passes while it waits for the end of an interval, or for a driver that blocks."""

    def __init__(
        self, load: Callable[[], tuple[Config, AgentSettings]], spool: Spool, clock: FakeClock, questions: _Questions
    ) -> None:
        self._fake_clock = clock
        super().__init__(load, spool, clock)
        self._bell = self._orders._bell = _SimulatedBell(  # type: ignore[assignment]  # noqa: SLF001
            self._bell, clock, questions
        )

    def _alive(self) -> bool:
        self._fake_clock.while_blocked(self._settings.call_timeout_s / 4)
        return super()._alive()


@dataclass
class SimulatedHost:
    """One host: a scenario that plays, a clock, a spool and a lake."""

    folder: Path
    library: Path
    lake: Lake
    scenario: Scenario
    monkeypatch: pytest.MonkeyPatch
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "sys").mkdir(exist_ok=True)
        self.monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "all")  # also where the tests run in a container
        self.clock = FakeClock(self.folder, self.library, START_MS)
        self.play(self.scenario)

    def play(self, scenario: Scenario) -> None:
        """Workers that start from now on see this scenario."""
        self.scenario = scenario
        for name, value in scenario.environment(self.library, scenario.write(self.folder / "scenario")).items():
            self.monkeypatch.setenv(name, value)

    def at(self, seconds: float, action: Callable[[Supervisor], object]) -> None:
        """Does something to the running agent that many seconds after the simulation's start."""
        self.clock.at(START_MS + round(seconds * 1000), lambda: action(self.supervisor))

    def run(self, seconds: float, interval: str = "1s") -> SimulatedHost:
        """Runs the agent for so long, and publishes what it has spooled; raises what it raises."""
        given = {
            "lake.path": self.lake.root,
            "agent.spool": str(self.folder / "spool"),
            "agent.host": HOST,
            "agent.sys": str(self.folder / "sys"),
            "agent.interval": interval,
            "agent.call_timeout": f"{CALL_TIMEOUT_S * 1000:.0f}ms",
        }

        def load() -> tuple[Config, AgentSettings]:
            loaded = config.load(given | self.settings, None)
            return loaded, AgentSettings.from_config(loaded, f"{seconds * 1000:.0f}ms")

        spool = Spool(str(self.folder / "spool"), for_agent=True)
        try:
            adopted(spool, self.lake)
            with self.monkeypatch.context() as patched, self.clock.for_new_processes():
                patched.setattr(Publishing, "_start", lambda *_, **__: False)
                # by the machine's clock: how soon it is seen that a worker blocks
                patched.setattr("agent.supervise.workers._LONGEST_LOOK_S", 0.01)
                # freezing the collector's objects is for processes that live for months
                patched.setattr("agent.supervise.supervisor.settle_memory", lambda: None)
                self.supervisor = _SimulatedSupervisor(load, spool, self.clock, _Questions(patched))
                self.supervisor.run()
            Publisher(spool, self.lake, HOST).publish()
        finally:
            spool.close()
        return self

    def rows(self, table: str) -> list[Row]:
        """The rows of a table in the lake, times as integer milliseconds, sorted by time and GPU."""
        return rows_of(self.lake, table)

    def of(self, gpu: str) -> list[Row]:
        return [row for row in self.rows("gpu") if row["gpu"] == gpu]

    def events(self, kind: str) -> list[Row]:
        return [row for row in self.rows("event") if row["kind"] == kind]

    def kinds(self) -> list[str]:
        return [row["kind"] for row in self.rows("event")]

    def span_s(self, row: Row) -> tuple[float, float]:
        """The interval of a row, in seconds of the scenario."""
        start_s = (row["time"] - self.scenario.start_ms) / 1000
        return start_s, start_s + row["interval_ms"] / 1000

    def gpu(self, uuid: str) -> Gpu:
        return next(gpu for gpu in self.scenario.gpus if gpu.uuid == uuid)

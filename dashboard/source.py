"""What the pages show: the report's numbers and the ledger behind them, read again when the lake has changed."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from analytics.inputs import Inputs, WindowLedger, load_window_ledger
from analytics.report.model import Report, build_report
from fallow.clock import MINUTE_MS, SystemClock
from fallow.errors import FallowError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fallow.clock import Clock
    from fallow.lake import LakeFile

_TABLES = ("gpu", "process", "claim", "device")
"""What a page rests on: a new file in any of them makes a new view."""


@dataclass(frozen=True, eq=False)
class View:
    """One window of one version of the lake. Two views are equal only if they are the same."""

    report: Report
    ledger: WindowLedger
    as_of_ms: int
    """End of the newest row in the window."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Why there is nothing to show, and what to do about it."""

    message: str
    hint: str


@dataclass(frozen=True)
class _Kept:
    files: tuple[LakeFile, ...]
    view: View
    read_ms: int


class Source:
    """Hands out the view of now. Safe to ask from many threads: one reads, the others wait for it."""

    def __init__(self, open_inputs: Callable[[], Inputs], clock: Clock | None = None) -> None:
        self._open = open_inputs
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._kept: _Kept | None = None

    def look(self) -> View | Problem:
        """The view, or what stands in its way."""
        with self._lock:
            try:
                return self._view()
            except FallowError as error:
                return Problem(error.message, error.hint)

    def _view(self) -> View:
        inputs = self._open()
        now_ms = self._clock.now_ms()
        files = tuple(file for table in _TABLES for file in inputs.lake.files(table))
        # a window such as `7d` moves with every moment; a minute makes no difference to a planner
        if self._kept is None or self._kept.files != files or now_ms - self._kept.read_ms >= MINUTE_MS:
            ledger = load_window_ledger(inputs)
            newest = int(ledger.inside.stretches.select(pl.col("end").max()).item())
            self._kept = _Kept(files, View(build_report(inputs, ledger), ledger, newest), now_ms)
        return self._kept.view

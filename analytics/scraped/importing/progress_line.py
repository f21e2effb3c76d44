"""How far an import has come: a bar with samples, rate and time left on a terminal, a line a minute elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from fallow.clock import SECOND_MS, Clock, format_duration
from fallow.output import say

_LINE_EVERY_S = 60.0


class ProgressLine:
    """Of one window; `advance` is told of what was done."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("left, {task.fields[read]}"),
        )
        self._bar = Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
        self._task = self._bar.add_task("reading", total=1.0, read="nothing read yet")
        self._began_s = self._told_s = clock.monotonic_s()
        self._done, self._samples = 0.0, 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves the terminal to a question."""
        self._bar.stop()
        yield
        self._bar.start()

    @property
    def passed_s(self) -> float:
        return self._clock.monotonic_s() - self._began_s

    def advance(self, share: float, samples: int) -> None:
        """`share` of the whole is done, with so many samples."""
        self._done, self._samples = self._done + share, self._samples + samples
        passed_s = max(self.passed_s, 0.001)
        read = f"{self._samples:,} samples, {self._samples / passed_s:,.0f}/s"
        self._bar.update(self._task, completed=self._done, read=read)
        if not self._console.is_terminal and self._clock.monotonic_s() - self._told_s >= _LINE_EVERY_S:
            self._told_s = self._clock.monotonic_s()
            left_s = round(passed_s * (1 - self._done) / max(self._done, 1e-6))
            say(f"{self._done:.0%} read, {read}, about {format_duration(max(left_s, 1) * SECOND_MS)} left")

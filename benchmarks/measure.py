"""Figures with their units, and the machine of the measurement."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Figure:
    """One measured number: its name, its unit, its method, and the value that it must not exceed."""

    name: str
    value: float
    unit: str
    how: str
    goal: float | None = None


def cpu_s() -> float:
    """Return the CPU seconds of this process and its ended children; wall time varies more on a shared machine."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def timed(work: Callable[[], object], repeats: int = 3) -> tuple[float, float]:
    """Return median CPU seconds and median wall seconds of a function."""
    cpu, wall = [], []
    for _ in range(repeats):
        before_cpu, before_wall = cpu_s(), time.perf_counter()
        work()
        cpu.append(cpu_s() - before_cpu)
        wall.append(time.perf_counter() - before_wall)
    return statistics.median(cpu), statistics.median(wall)


def between_marks(page: str, mark: str, tables: str) -> str:
    """Return the page with new tables between `<!-- mark -->` and the next `<!-- end -->`."""
    before, tail = page.split(f"<!-- {mark} -->\n", 1)
    _, after = tail.split("<!-- end -->", 1)
    return f"{before}<!-- {mark} -->\n\n{tables}\n<!-- end -->{after}"


def machine() -> dict[str, object]:
    """Return the facts about the machine that a comparison needs."""
    return {
        "processors": os.cpu_count(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "versions": {
            name: version(name) for name in ("fallow", "duckdb", "polars", "pyarrow", "psutil", "nvidia-ml-py")
        },
    }

"""Planted faults in simulated clusters: their true cost in hours, and the hours that `fallow plan queue` reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.capacity.causes import CAUSES
from benchmarks.measure import Figure
from tests.plan.scheduler import planted, worst

if TYPE_CHECKING:
    from collections.abc import Iterator

SEEDS = (1, 2, 3)


def measure() -> Iterator[Figure]:
    """Yield for each fault the true and the reported hours of its causes, and the largest error."""
    for seed in SEEDS:
        for case in planted(seed):
            name = f"queue_{case.name.replace(' ', '_')}_{seed}"
            true, found = case.true_hours(), case.found_hours()
            for cause in (each.name for each in CAUSES):
                if true[cause] or found[cause] >= 1:
                    yield Figure(
                        f"{name}_{cause}",
                        found[cause],
                        "h",
                        f"true: {true[cause]:.0f} h, by running the scheduler without it",
                    )
            yield Figure(f"{name}_off", 100 * worst(true, found), "%", "the worst cause, of all hours waited")

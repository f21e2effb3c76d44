"""What is read of each GPU at the end of an interval: one collector per subject, all of the same shape.

A collector asks the driver and returns columns of the `gpu` table; what it cannot know it leaves out (null). One that
fails sinks none of the others: `Driver.ask` has turned failures into None already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.nvml.driver import Driver
    from agent.nvml.gpu import Gpu

Value = int | float | str | bool | None


class Collector(Protocol):
    """One subject of a GPU's row."""

    name: str

    def read(self, driver: Driver, gpu: Gpu) -> Mapping[str, Value]:
        """Columns of the `gpu` table with their values; raises GpuGoneError and DriverGoneError."""
        ...

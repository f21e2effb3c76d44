"""The shape of what is read of a GPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agent.nvml.driver import Driver
    from agent.nvml.gpu import DriverGpu
    from agent.rows import GpuRow


class Clocks(Protocol):
    """The wall clock and a clock that never steps, both in microseconds."""

    def __call__(self) -> tuple[int, int]: ...


@dataclass(frozen=True)
class CollectedSpan:
    """The interval [start_us, end_us) that has just ended, and the clocks to read it by."""

    start_us: int
    end_us: int
    clocks: Clocks


class GpuCollector(ABC):
    """One subject of a GPU's row; each GPU has an object of its own. All methods raise GpuGoneError and DriverGoneError."""

    name = ""
    of_instances = False
    """Whether MIG instances have it too; the rest belongs to their parent."""

    @abstractmethod
    def collect(self, driver: Driver, gpu: DriverGpu, span: CollectedSpan) -> GpuRow:
        """Columns of the `gpu` table; what cannot be known is left out."""

    def drain(self, driver: Driver, gpu: DriverGpu, clocks: Clocks) -> None:  # noqa: B027  # most need none
        """Takes what the driver would soon forget; called between intervals."""

    def settle(self, driver: Driver, gpu: DriverGpu, clocks: Clocks) -> None:  # noqa: B027  # most need none
        """Prepares for the end of an interval; called before anything of it is collected."""

    def hear(self, row: GpuRow) -> None:  # noqa: B027  # most do not mind
        """Told of the whole row that it has had a part in."""

    def forget(self) -> None:  # noqa: B027  # most keep nothing
        """Drops what does not outlive a GPU that was lost or slept."""

    @property
    def wants_every_second(self) -> bool:
        """Whether it sees the more the more often it drains."""
        return False

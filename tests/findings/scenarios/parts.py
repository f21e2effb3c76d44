"""What a fleet of a scenario is made of: hosts, GPUs and stays of processes, each over the fleet's grid."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tests.findings.scenarios.cards import SimulatedCard

Mask = NDArray[np.bool_]
Column = NDArray[np.float64]
Level = float | NDArray[np.float64] | NDArray[np.float32] | NDArray[np.int64]

THROTTLES = ("power_cap", "sync_boost", "sw_thermal", "hw_thermal", "power_brake")


@dataclass(eq=False)
class Host:
    """A host: what its `host` rows say, when its agent ran, and its events."""

    name: str
    pool: str
    levels: dict[str, Column]
    seen: Mask

    def outage(self, when: Mask) -> None:
        """No row of any table: the agent did not run."""
        self.seen &= ~when

    def load(self, when: Mask, **columns: Level) -> None:
        """Sets columns of the `host` table, such as cpu_util_pct=97, cpu_pressure_pct=60, io_pressure_pct=50."""
        for name, level in columns.items():
            self.levels[name][when] = np.broadcast_to(level, len(when))[when]


@dataclass(eq=False)
class Stay:
    """One process on one GPU in some intervals; `columns` are numbers, texts or levels of the process table."""

    when: Mask
    mem: Column
    columns: dict[str, object]


@dataclass(eq=False)
class Gpu:
    """One GPU or MIG instance over the grid; NaN is null. `Fleet.run` fills it, its methods bend it."""

    uuid: str
    card: SimulatedCard
    index: int | None
    places: list[tuple[Host, Mask]]
    util: Column
    peak: Column
    p98: Column
    busy: Column  # 1 minus the share of zeros
    sm: Column
    dram: Column
    tensor: Column
    mem: Column
    power: Column  # NaN: by the model of `rows`
    processes: Column
    throttled: dict[str, Column]  # share of the interval
    restarts: list[int] = field(default_factory=list)  # rows at which the counters began again
    device: dict[str, object] = field(default_factory=dict)
    overrides: list[tuple[Mask, str, object]] = field(default_factory=list)
    stays: list[Stay] = field(default_factory=list)
    health: NDArray[np.str_] = field(default_factory=lambda: np.array([]))
    parent: Gpu | None = None

    @classmethod
    def idle(cls, uuid: str, card: SimulatedCard, index: int | None, host: Host) -> Gpu:
        """A GPU that nobody uses."""
        count = len(host.seen)
        counted = 0.0 if card.gpm else np.nan  # older cards do not count what the SMs do
        return cls(
            uuid,
            card,
            index,
            [(host, np.ones(count, np.bool_))],
            util=np.zeros(count),
            peak=np.zeros(count),
            p98=np.zeros(count),
            busy=np.zeros(count),
            sm=np.full(count, counted),
            dram=np.full(count, counted),
            tensor=np.full(count, counted),
            mem=np.zeros(count),
            power=np.full(count, np.nan),
            processes=np.zeros(count),
            throttled={cause: np.zeros(count) for cause in THROTTLES},
            health=np.full(count, "ok", "U16"),
        )

    @property
    def host(self) -> Host:
        """The host that it was put into."""
        return self.places[0][0]

    def is_in(self, when: Mask, health: str) -> None:
        """`lost`, `asleep`, `driver_down` and the like: the rows say so and measure nothing; no process is listed."""
        self.health[when] = health

    def absent(self, when: Mask) -> None:
        """No row at all: not there yet, or no longer."""
        self.places = [(host, place & ~when) for host, place in self.places]

    def move(self, host: Host, when: Mask) -> None:
        """The card is in another host then."""
        self.absent(when)
        self.places.append((host, when))

    def throttle(self, when: Mask, **shares: float) -> None:
        """Share of the time with clocks held down, by cause, such as power_cap=0.8; see THROTTLES."""
        for cause, share in shares.items():
            self.throttled[cause][when] = share

    def restart(self, when: Mask) -> None:
        """Counters begin again at the first row of the mask: a reboot, driver reload or GPU reset."""
        self.restarts.append(int(np.argmax(when)))

    def override(self, when: Mask, **columns: object) -> None:
        """Sets columns of the `gpu` table just before they are written; None is null. For broken or missing measurements."""
        self.overrides += [(when, name, value) for name, value in columns.items()]

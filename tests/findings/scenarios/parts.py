"""What a fleet of a scenario is made of: the grid of time, the cards, hosts, GPUs and stays of processes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analytics.simulation.catalog import A100, SimulatedCard
from fallow.clock import DAY_MS, HOUR_MS, SECOND_MS

Mask = NDArray[np.bool_]
Column = NDArray[np.float64]
Level = float | NDArray[np.float64] | NDArray[np.float32] | NDArray[np.int64]

A100_80 = A100
A100_40 = SimulatedCard(
    "NVIDIA A100-SXM4-40GB", "a100-40", 42_949_672_960, 635_437_056, 400.0, 52.0, 28.0, 36.0, 210, 1410, 1215
)
A30 = SimulatedCard("NVIDIA A30", "a30", 25_769_803_776, 500_000_000, 165.0, 28.0, 20.0, 36.0, 210, 1440, 1215)
L4 = SimulatedCard("NVIDIA L4", "l4", 24_152_899_584, 450_000_000, 72.0, 12.0, 16.0, 40.0, 210, 2040, 6251)
T4 = SimulatedCard("Tesla T4", "t4", 16_106_127_360, 400_000_000, 70.0, 9.0, 17.0, 45.0, 300, 1590, 5001)


THROTTLES = ("power_cap", "sync_boost", "sw_thermal", "hw_thermal", "power_brake")
T_END = 1_795_132_800_000
"""2026-11-20 00:00 UTC, the first moment of a Friday: the end of every scenario. The last day is a Thursday."""


class Grid:
    """Intervals of one length from some days before T_END up to it."""

    def __init__(self, days: float, interval_s: float) -> None:
        self.interval_ms = round(interval_s * SECOND_MS)
        self.rows = round(days * DAY_MS) // self.interval_ms
        self.start_ms = T_END - self.rows * self.interval_ms
        self.times_ms = self.start_ms + self.interval_ms * np.arange(self.rows, dtype=np.int64)
        self._rng = np.random.default_rng(20_261_120)

    # --- when -------------------------------------------------------------------------------------------------------

    @property
    def always(self) -> Mask:
        """Every interval."""
        return np.ones(self.rows, np.bool_)

    def moment(self, day: float | None) -> int:
        """A day of the grid in epoch ms: counted from the start, a negative one from the end; None is the end."""
        if day is None:
            return T_END
        return round((T_END if day < 0 else self.start_ms) + day * DAY_MS)

    def between(self, first_day: float, last_day: float | None = None) -> Mask:
        """From one day up to another, exclusive: with -4 alone the last 4 days, with 0 and 1 the first day."""
        return (self.times_ms >= self.moment(first_day)) & (self.times_ms < self.moment(last_day))

    def daily(self, first_hour: float, last_hour: float) -> Mask:
        """These hours (UTC) of every day; over midnight where the first is the later, such as 22 and 6."""
        hour = self.times_ms % DAY_MS / HOUR_MS
        if first_hour <= last_hour:
            return (hour >= first_hour) & (hour < last_hour)
        return (hour >= first_hour) | (hour < last_hour)

    @property
    def weekdays(self) -> Mask:
        """Monday to Friday (UTC)."""
        return (self.times_ms // DAY_MS + 3) % 7 < 5  # 1970-01-01 was a Thursday

    def every(self, period_h: float, on_h: float, offset_h: float = 0) -> Mask:
        """The first `on_h` hours of every `period_h`, beginning `offset_h` after the start of the fleet."""
        since = self.times_ms - self.start_ms - round(offset_h * HOUR_MS)
        return since % round(period_h * HOUR_MS) < round(on_h * HOUR_MS)

    # --- levels -----------------------------------------------------------------------------------------------------

    def wave(self, high: float, *, period_h: float, on_h: float, low: float = 0, offset_h: float = 0) -> Column:
        """`high` in the first `on_h` hours of every `period_h`, `low` otherwise."""
        return np.where(self.every(period_h, on_h, offset_h), float(high), float(low))

    def noise(self, mean: float, spread: float, low: float = 0, high: float = 100) -> Column:
        """A level that wanders around a mean, cut to [low, high]; the same at every run of the scenario."""
        return np.clip(self._rng.normal(mean, spread, self.rows), low, high)

    def level(self, level: Level) -> Column:
        """A number or an array as an array over the grid."""
        return np.broadcast_to(np.asarray(level, np.float64), (self.rows,))


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
        """Set columns of the `gpu` table just before they are written (None: null), for bad or missing readings."""
        self.overrides += [(when, name, value) for name, value in columns.items()]

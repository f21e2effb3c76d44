"""One simulated host, day by day: the arrays that the tables are made of, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analytics.simulation.activity import Activity, activity
from analytics.simulation.catalog import SimulatedCard
from analytics.simulation.placement import HostPlan, SimulatedFleet
from analytics.simulation.stays import Stay
from fallow.clock import DAY_MS

_GPU_IDLE, _SW_POWER_CAP = 0x1, 0x4  # nvmlClocksEventReasonGpuIdle, nvmlClocksEventReasonSwPowerCap
_SW_THERMAL = 0x20  # nvmlClocksEventReasonSwThermalSlowdown
_HOT_RISE, _HOT_FROM_C, _HOT_MAX_C, _HOT_CLOCK = 2.7, 83.0, 87.0, 0.78
"""How many times as far a card without air warms up, from where on the driver holds it down, where it then stays, and the
share of its clock that is left."""


@dataclass(frozen=True)
class Readings:
    """What the board's sensors say in each row, by the columns of the lake; energy and the last two are counters that climb."""

    power_w: NDArray[np.float64]
    energy_mj: NDArray[np.int64]
    temperature_c: NDArray[np.int16]
    sm_clock_mhz: NDArray[np.int16]
    throttle_reasons: NDArray[np.int64]
    throttled_power_cap_ms: NDArray[np.int64]
    throttled_sw_thermal_ms: NDArray[np.int64]

    @property
    def counters(self) -> tuple[int, int, int]:
        """Where the counters stand after the last row."""
        return int(self.energy_mj[-1]), int(self.throttled_power_cap_ms[-1]), int(self.throttled_sw_thermal_ms[-1])


def readings(
    card: SimulatedCard,
    parked: NDArray[np.bool_],
    intensity_ratio: NDArray[np.float64],
    *,
    bare_w: float,
    interval_ms: int,
    counters: tuple[int, int, int],
    inlet_c: float,
    rng: np.random.Generator,
    hot: NDArray[np.bool_],
) -> Readings:
    """The sensors of one GPU, given where a context is open, how hard it works and the counters before.

    Power is `bare_w` (the card's idle_w, give or take) without a process; an open context adds parking_w (facts: arXiv 2605.23918); from there the
    intensity leads to the limit. The counter adds each row's power for the whole interval, so the two always agree. In rows
    that are `hot` no air comes through: under load the driver holds the clocks down.
    """
    count = len(parked)
    floor = bare_w + np.where(parked, card.parking_w, 0.0)
    power = floor + (card.power_limit_w - bare_w - card.parking_w) * intensity_ratio
    power = np.round(power * (1.0 + 0.015 * np.clip(rng.standard_normal(count), -3, 3)), 1)
    spent = np.cumsum(np.rint(power * interval_ms).astype(np.int64))
    load = (power - card.idle_w) / (card.power_limit_w - card.idle_w)
    temperature = inlet_c + 3.0 + card.rise_c * np.clip(load, 0.0, 1.1) + rng.uniform(-0.8, 0.8, count)
    without_air = np.minimum(temperature + (_HOT_RISE - 1) * card.rise_c * np.clip(load, 0.0, 1.1), _HOT_MAX_C)
    temperature = np.where(hot, without_air, temperature)
    overheated = hot & (temperature >= _HOT_FROM_C)
    working = intensity_ratio > 0
    capped = power > 0.97 * card.power_limit_w
    clock = np.where(parked, card.boost_clock_mhz, card.idle_clock_mhz)
    clock = np.where(capped, card.boost_clock_mhz - 15 * rng.integers(1, 12, count), clock)
    reasons = np.where(capped, _SW_POWER_CAP, np.where(working, 0, _GPU_IDLE))
    clock = np.where(overheated, _HOT_CLOCK * card.boost_clock_mhz, clock)
    reasons = np.where(overheated, reasons | _SW_THERMAL, reasons)
    return Readings(
        power,
        counters[0] + spent,
        np.rint(temperature).astype(np.int16),
        clock.astype(np.int16),
        reasons.astype(np.int64),
        counters[1] + np.cumsum(interval_ms * capped.astype(np.int64)),
        counters[2] + np.cumsum(interval_ms * overheated.astype(np.int64)),
    )


MIB = 1024**2


@dataclass(frozen=True)
class GpuDay:
    """One GPU in every row of one UTC day; `stays` are the pieces of work that touch it, `lost` the rows it is gone in."""

    position: int
    stays: tuple[Stay, ...]
    lost: NDArray[np.bool_]
    did: Activity
    board: Readings
    process_count: NDArray[np.int16]
    mem_used_bytes: NDArray[np.int64]


@dataclass(frozen=True)
class SimulatedDay:
    """One host on one UTC day: row times, which of them an agent saw (`seen`), and each GPU."""

    plan: HostPlan
    day_ms: int
    interval_ms: int
    seed: int
    times_ms: NDArray[np.int64]
    seen: NDArray[np.bool_]
    gpus: tuple[GpuDay, ...]

    @property
    def counters_since_ms(self) -> int:
        """When the host's drivers were loaded: the day before its first row."""
        return self.plan.booted_ms

    @property
    def rng(self) -> np.random.Generator:
        """Fresh random numbers for what belongs to the host and the day."""
        return np.random.default_rng([self.seed, self.plan.host.number, 3, self.day_ms // DAY_MS])


def host_days(fleet: SimulatedFleet, plan: HostPlan) -> Iterator[SimulatedDay]:
    """The days of one host in order; pure: the same plan gives the same arrays."""
    rng = np.random.default_rng([fleet.seed, plan.host.number, 2])
    inlet_c = float(rng.uniform(22.0, 28.0))
    counters = [(int(rng.integers(10**10, 10**12)), 0, 0) for _ in plan.host.gpus]
    for nth in range(fleet.days):
        day_ms = fleet.since_ms + nth * DAY_MS
        times_ms = np.arange(day_ms, day_ms + DAY_MS, fleet.interval_ms, dtype=np.int64)
        seen = np.ones(len(times_ms), np.bool_)
        if plan.outage_ms is not None:
            seen = (times_ms < plan.outage_ms[0]) | (times_ms >= plan.outage_ms[1])
        seen &= times_ms >= plan.added_ms
        gpus = tuple(
            _gpu_day(fleet, plan, position, times_ms, counters=counters[position], inlet_c=inlet_c)
            for position in range(len(counters))
        )
        counters = [gpu.board.counters for gpu in gpus]
        yield SimulatedDay(plan, day_ms, fleet.interval_ms, fleet.seed, times_ms, seen, gpus)


def _gpu_day(
    fleet: SimulatedFleet,
    plan: HostPlan,
    position: int,
    times_ms: NDArray[np.int64],
    *,
    counters: tuple[int, int, int],
    inlet_c: float,
) -> GpuDay:
    count, card = len(times_ms), plan.host.pool.card
    none = np.zeros(count)
    day = Activity(none.copy(), none.copy(), none.copy(), np.ones(count), none.copy(), none.copy())
    processes = np.zeros(count, np.int16)
    day_end_ms = int(times_ms[0]) + DAY_MS
    stays = tuple(
        stay
        for stay in plan.stays
        if position in stay.gpus and stay.start_ms < day_end_ms and stay.end_ms > int(times_ms[0])
    )
    for stay in stays:
        rows = row_range(stay, int(times_ms[0]), count, fleet.interval_ms)
        for name, values in vars(activity(stay, position, times_ms[rows], fleet.interval_ms)).items():
            getattr(day, name)[rows] = values
        processes[rows] = stay.processes
    rng = np.random.default_rng([fleet.seed, plan.host.number, 4, position, int(times_ms[0]) // DAY_MS])
    bare_w = card.idle_w * (
        1.0 + 0.03 * float(np.random.default_rng([fleet.seed, plan.host.number, 6, position]).normal())
    )
    board = readings(
        card,
        processes > 0,
        day.intensity_ratio,
        bare_w=bare_w,
        interval_ms=fleet.interval_ms,
        counters=counters,
        inlet_c=inlet_c,
        rng=rng,
        hot=times_ms >= plan.hot_ms.get(position, fleet.until_ms),
    )
    # whole MiB per process, so that the processes' shares add up to the card's
    step = MIB * np.maximum(processes, 1).astype(np.int64)
    usable = card.mem_total_bytes - card.mem_reserved_bytes
    lost_ms = plan.lost_ms.get(position, fleet.until_ms)
    used = (day.mem_ratio * usable).astype(np.int64) // step * step
    return GpuDay(position, stays, times_ms >= lost_ms, day, board, processes, used)


def row_range(stay: Stay, day_ms: int, count: int, interval_ms: int) -> slice:
    """The rows of a day of `count` rows in which the stay holds its GPUs."""
    return slice(max(0, (stay.start_ms - day_ms) // interval_ms), min(count, (stay.end_ms - day_ms) // interval_ms))

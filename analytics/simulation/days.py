"""A simulated host, day by day: the arrays from which the tables are made."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from analytics.simulation.catalog import IntervalLengths, Knots, SimulatedCard, draw
from analytics.simulation.placement import HostPlan, SimulatedFleet
from analytics.simulation.stays import Stay
from fallow.clock import DAY_MS, HOUR_MS, SECOND_MS

_NORMAL_X = np.linspace(-5.0, 5.0, 401)
_NORMAL_CDF = np.array([0.5 * (1.0 + math.erf(x / math.sqrt(2.0))) for x in _NORMAL_X])


@dataclass(frozen=True)
class Activity:
    """Work on a GPU in consecutive rows, by the columns of the lake: utilization in %, shares in 0..1."""

    gpu_util_pct: NDArray[np.float64]
    gpu_util_max_pct: NDArray[np.float64]
    gpu_util_p98_pct: NDArray[np.float64]
    gpu_util_zero_ratio: NDArray[np.float64]
    intensity_ratio: NDArray[np.float64]
    """Power while working."""
    mem_ratio: NDArray[np.float64]
    """Memory in use, as a share of the card."""


@dataclass(frozen=True)
class IdleTime:
    """Time without a kernel since the start of a stay: `idle_ms` at the turning points `at_ms`, linear in between."""

    at_ms: NDArray[np.float64]
    idle_ms: NDArray[np.float64]

    def until(self, times_ms: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the idle milliseconds up to each time."""
        return np.interp(times_ms, self.at_ms, self.idle_ms)


def activity(stay: Stay, gpu: int, times_ms: NDArray[np.int64], interval_ms: int) -> Activity:
    """Return the activity of a stay on the GPU at position `gpu`, in rows that start at `times_ms` on one UTC day."""
    rng = np.random.default_rng([stay.seed, gpu, int(times_ms[0]) // DAY_MS])
    kind = stay.behaviour
    count = len(times_ms)
    if gpu in stay.unused:
        busy = np.zeros(count)
    else:
        idle = idle_time(stay)
        idle_ms = idle.until(times_ms + interval_ms) - idle.until(times_ms)
        busy = np.round(1.0 - idle_ms / interval_ms, 6)
    level = _rows(kind.level_pct, [stay.seed, 5], kind.kept_ratio, rng, count)
    pace = stay.pace[stay.gpus.index(gpu)] if stay.pace else 1.0
    level *= pace
    util = np.round(busy * level, 2)
    busy = np.where(util > 0, busy, 0.0)
    # requests leave gaps: the largest sample lies above the mean level and the time between counts as zero samples
    peak = level + (100.0 - level) * np.minimum(1.0, kind.bursty_ratio * rng.uniform(0.4, 1.4, count))
    peak = np.where(busy > 0, np.minimum(100.0, np.ceil(peak)), 0.0)
    gaps = kind.bursty_ratio * (1.0 - level / np.maximum(peak, 1.0))
    zero = np.where(busy > 0, np.round(1.0 - busy * (1.0 - np.maximum(gaps, 0.0)), 4), 1.0)
    intensity = pace * busy * _rows(kind.intensity_ratio, [stay.seed, 9], max(kind.kept_ratio, 0.9), rng, count)
    return Activity(util, peak, _p98(util, peak, 1.0 - zero), zero, intensity, _memory(stay, times_ms))


def _p98(mean: NDArray[np.float64], peak: NDArray[np.float64], above: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the value that 98 % of a row's samples do not exceed.

    Samples above 0 (the share `above`) lie evenly around their mean, up to the peak.
    """
    at = 1.0 - 0.02 / np.maximum(above, 0.02)  # the place among them of the 98th percentile of all
    middle = mean / np.maximum(above, 0.02)
    return np.where(above > 0.02, np.round(np.clip(middle + (2 * at - 1) * (peak - middle), 0.0, peak), 2), 0.0)


@lru_cache(maxsize=256)
def idle_time(stay: Stay) -> IdleTime:
    """Return the times without a kernel: start-up, intervals drawn from the behaviour, and all from `idle_from_ms` on.

    All GPUs of a stay share these times: the ranks of a job wait for each other.
    """
    rng = np.random.default_rng([stay.seed, 1_000_003])
    kind = stay.behaviour
    ends_ms = stay.end_ms if stay.idle_from_ms is None else stay.idle_from_ms
    at_ms = stay.start_ms
    length_ms = _whole_s(rng.gamma(3.0, kind.startup_s / 3.0))
    turns, idle_ms = [at_ms], [0]
    idle_draw, busy_draw = _Draw(kind.idle, rng, stay.idle_factor), _Draw(kind.busy, rng, 1.0)
    while at_ms < ends_ms:
        at_ms += length_ms
        turns.append(at_ms)
        idle_ms.append(idle_ms[-1] + length_ms)
        at_ms += busy_draw.next_ms(at_ms)
        turns.append(at_ms)
        idle_ms.append(idle_ms[-1])
        length_ms = idle_draw.next_ms(at_ms)
    if stay.idle_from_ms is not None:
        turns, idle_ms = _stopped_turns(turns, idle_ms, ends_ms, max(stay.end_ms, ends_ms))
    return IdleTime(np.array(turns, np.float64), np.array(idle_ms, np.float64))


def _stopped_turns(turns: list[int], idle_ms: list[int], from_ms: int, end_ms: int) -> tuple[list[int], list[int]]:
    """Return the turning points with only idle time from `from_ms`."""
    kept = sum(turn < from_ms for turn in turns)
    before = round(float(np.interp(from_ms, turns, idle_ms)))
    return [*turns[:kept], from_ms, end_ms], [*idle_ms[:kept], before, before + end_ms - from_ms]


class _Draw:
    """Interval lengths in sequence, drawn in blocks because that is thirty times faster than single draws."""

    def __init__(self, intervals: IntervalLengths, rng: np.random.Generator, factor: float) -> None:
        self.intervals = intervals
        self.rng = rng
        self.factor = factor
        self.block: list[float] = []

    def next_ms(self, at_ms: int) -> int:
        """Return the length, in whole seconds, of an interval that starts at a moment."""
        if not self.block:
            self.block = draw(self.intervals, self.rng, 256).tolist()
        intervals = self.intervals
        hour = math.cos(2.0 * math.pi * ((at_ms % DAY_MS) / HOUR_MS - 3.0) / 24.0) if intervals.night else 0.0
        length_s = self.block.pop() * math.exp(intervals.night * hour) * self.factor
        return _whole_s(min(max(length_s, intervals.min_s), intervals.max_s))


def _rows(knots: Knots, own_seed: list[int], kept: float, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Return values with the knots as their distribution over all stays; `kept` of the variance belongs to the stay."""
    own = np.random.default_rng(own_seed).standard_normal()
    normal = math.sqrt(kept) * own + math.sqrt(1.0 - kept) * rng.standard_normal(count)
    values: NDArray[np.float64] = np.interp(np.interp(normal, _NORMAL_X, _NORMAL_CDF), knots.at, knots.values)
    return values


def _memory(stay: Stay, times_ms: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the share of the card's memory in use: a ramp while the model loads, then flat."""
    knots = stay.behaviour.mem_ratio
    own = np.random.default_rng([stay.seed, 77]).random()
    full = float(np.interp(own, knots.at, knots.values))
    ramp_ms = max(1000.0, stay.behaviour.startup_s * 1000.0)
    return full * np.clip((times_ms - stay.start_ms) / ramp_ms, 0.02, 1.0)


def _whole_s(seconds: float) -> int:
    return max(1, round(seconds)) * SECOND_MS


_GPU_IDLE, _SW_POWER_CAP = 0x1, 0x4  # nvmlClocksEventReasonGpuIdle, nvmlClocksEventReasonSwPowerCap
_SW_THERMAL = 0x20  # nvmlClocksEventReasonSwThermalSlowdown
_HOT_RISE, _HOT_FROM_C, _HOT_MAX_C, _HOT_CLOCK = 2.7, 83.0, 87.0, 0.78
"""Factor of the temperature rise of a card without air, the temperature from which the driver throttles it, its highest
temperature, and the remaining share of its clock.
"""


@dataclass(frozen=True)
class Readings:
    """Sensor readings of each row, by the columns of the lake. Energy and the last two are increasing counters."""

    power_w: NDArray[np.float64]
    energy_mj: NDArray[np.int64]
    temperature_c: NDArray[np.int16]
    sm_clock_mhz: NDArray[np.int16]
    throttle_reasons: NDArray[np.int64]
    throttled_power_cap_ms: NDArray[np.int64]
    throttled_sw_thermal_ms: NDArray[np.int64]

    @property
    def counters(self) -> tuple[int, int, int]:
        """Return the counters after the last row."""
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
    """Return the sensor readings of a GPU, from open contexts, work intensity and earlier counters.

    Power is `bare_w` (about the card's idle_w) without a process; an open context adds parking_w (facts: arXiv
    2605.23918); above that the intensity scales up to the limit. The counter adds each row's power for the whole
    interval, so the two always agree. In rows that are `hot` no air flows: under load the driver lowers the clocks.
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
    """A GPU in every row of a UTC day."""

    position: int
    stays: tuple[Stay, ...]
    lost: NDArray[np.bool_]
    did: Activity
    board: Readings
    process_count: NDArray[np.int16]
    mem_used_bytes: NDArray[np.int64]


@dataclass(frozen=True)
class SimulatedDay:
    """A host on a UTC day: row times, rows that an agent observed (`seen`), and each GPU."""

    plan: HostPlan
    day_ms: int
    interval_ms: int
    seed: int
    times_ms: NDArray[np.int64]
    seen: NDArray[np.bool_]
    gpus: tuple[GpuDay, ...]

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.plan.host.number, 3, self.day_ms // DAY_MS])


def host_days(fleet: SimulatedFleet, plan: HostPlan) -> Iterator[SimulatedDay]:
    """Yield the days of a host in order. Pure: the same plan gives the same arrays."""
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
    """Return the rows in which the stay holds its GPUs, of a day with `count` rows."""
    return slice(max(0, (stay.start_ms - day_ms) // interval_ms), min(count, (stay.end_ms - day_ms) // interval_ms))

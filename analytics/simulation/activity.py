"""What one stay does to one GPU, row by row: spells of busy and idle time, turned into utilization, power level, memory.

Everything is a function of the stay's seed, the position and the day, so that any day can be made alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from analytics.simulation.calibration import IntervalLengths, Knots, draw
from analytics.simulation.stays import Stay
from fallow.clock import DAY_MS, HOUR_MS, SECOND_MS

_NORMAL_X = np.linspace(-5.0, 5.0, 401)
_NORMAL_CDF = np.array([0.5 * (1.0 + math.erf(x / math.sqrt(2.0))) for x in _NORMAL_X])


@dataclass(frozen=True)
class Activity:
    """Work on one GPU in consecutive rows, by the columns of the lake: utilization in %, shares in 0..1.

    `intensity_ratio` is the power while it works, `mem_ratio` the memory held as a share of the card.
    """

    gpu_util_pct: NDArray[np.float64]
    gpu_util_max_pct: NDArray[np.float64]
    gpu_util_p98_pct: NDArray[np.float64]
    gpu_util_zero_ratio: NDArray[np.float64]
    intensity_ratio: NDArray[np.float64]
    mem_ratio: NDArray[np.float64]


@dataclass(frozen=True)
class IdleTime:
    """Time without a kernel since the start of a stay: `idle_ms` at the turning points `at_ms`, linear in between."""

    at_ms: NDArray[np.float64]
    idle_ms: NDArray[np.float64]

    def until(self, times_ms: NDArray[np.int64]) -> NDArray[np.float64]:
        """Idle milliseconds up to each time."""
        return np.interp(times_ms, self.at_ms, self.idle_ms)


def activity(stay: Stay, gpu: int, times_ms: NDArray[np.int64], interval_ms: int) -> Activity:
    """The activity of a stay on the GPU at position `gpu` in rows that start at `times_ms` and lie on one UTC day."""
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
    """What 98 % of a row's samples stay within: those above 0, which are that share, lie evenly around their mean, up to the peak."""
    at = 1.0 - 0.02 / np.maximum(above, 0.02)  # the place among them of the 98th percentile of all
    middle = mean / np.maximum(above, 0.02)
    return np.where(above > 0.02, np.round(np.clip(middle + (2 * at - 1) * (peak - middle), 0.0, peak), 2), 0.0)


@lru_cache(maxsize=256)
def idle_time(stay: Stay) -> IdleTime:
    """When nothing runs: start-up, spells drawn from the behaviour, everything from `idle_from_ms` on.

    All GPUs of a stay share it: the ranks of one job wait for each other.
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
        turns, idle_ms = _stopped(turns, idle_ms, ends_ms, max(stay.end_ms, ends_ms))
    return IdleTime(np.array(turns, np.float64), np.array(idle_ms, np.float64))


def _stopped(turns: list[int], idle_ms: list[int], from_ms: int, end_ms: int) -> tuple[list[int], list[int]]:
    """The turning points with nothing but idle time from `from_ms` on."""
    kept = sum(turn < from_ms for turn in turns)
    before = round(float(np.interp(from_ms, turns, idle_ms)))
    return [*turns[:kept], from_ms, end_ms], [*idle_ms[:kept], before, before + end_ms - from_ms]


class _Draw:
    """Spell lengths one after another, drawn in blocks because that is thirty times faster than one by one."""

    def __init__(self, spells: IntervalLengths, rng: np.random.Generator, factor: float) -> None:
        self.spells = spells
        self.rng = rng
        self.factor = factor
        self.block: list[float] = []

    def next_ms(self, at_ms: int) -> int:
        """The length, in whole seconds, of a spell that starts then."""
        if not self.block:
            self.block = draw(self.spells, self.rng, 256).tolist()
        spells = self.spells
        hour = math.cos(2.0 * math.pi * ((at_ms % DAY_MS) / HOUR_MS - 3.0) / 24.0) if spells.night else 0.0
        length_s = self.block.pop() * math.exp(spells.night * hour) * self.factor
        return _whole_s(min(max(length_s, spells.min_s), spells.max_s))


def _rows(knots: Knots, own_seed: list[int], kept: float, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Values with the knots as their distribution over all stays, `kept` of the variance being the stay's own."""
    own = np.random.default_rng(own_seed).standard_normal()
    normal = math.sqrt(kept) * own + math.sqrt(1.0 - kept) * rng.standard_normal(count)
    values: NDArray[np.float64] = np.interp(np.interp(normal, _NORMAL_X, _NORMAL_CDF), knots.at, knots.values)
    return values


def _memory(stay: Stay, times_ms: NDArray[np.int64]) -> NDArray[np.float64]:
    """The share of the card held: a ramp while the model loads, flat from then on."""
    knots = stay.behaviour.mem_ratio
    own = np.random.default_rng([stay.seed, 77]).random()
    full = float(np.interp(own, knots.at, knots.values))
    ramp_ms = max(1000.0, stay.behaviour.startup_s * 1000.0)
    return full * np.clip((times_ms - stay.start_ms) / ramp_ms, 0.02, 1.0)


def _whole_s(seconds: float) -> int:
    return max(1, round(seconds)) * SECOND_MS

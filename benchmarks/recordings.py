"""Work on one GPU in steps of 100 ms: its use of the card, its slowdown on a smaller card, and the agent's rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fallow.clock import HOUR_MS, SECOND_MS

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

TICK_MS = 100
HOUR_TICKS = HOUR_MS // TICK_MS


def bursts(rng: np.random.Generator, ticks: int, pause: tuple[float, float], work: tuple[float, float]) -> Mask:
    """Return work and pauses in turn, of random lengths in seconds."""
    count = int(ticks * TICK_MS / SECOND_MS / (pause[0] + work[0])) + 2
    lengths = np.empty(2 * count)
    lengths[::2], lengths[1::2] = rng.uniform(*pause, count), rng.uniform(*work, count)
    ends = np.cumsum(np.maximum(1, np.rint(lengths * SECOND_MS / TICK_MS))).astype(np.int64)
    changes = np.zeros(ticks + 1, np.int64)
    inside = ends[ends <= ticks]
    changes[inside] = 1
    return (np.cumsum(changes)[:ticks] % 2).astype(np.bool_)


@dataclass(frozen=True)
class Card:
    """The properties of a GPU model that recordings need."""

    model: str
    mem_bytes: int
    limit_w: float
    idle_w: float
    context_w: float
    clock_mhz: int
    gpm: bool = False
    mig: bool = False


H100 = Card("NVIDIA H100 80GB HBM3", 85_520_809_984, 700, 70, 115, 1980, gpm=True, mig=True)
A100 = Card("NVIDIA A100-SXM4-80GB", 85_899_345_920, 400, 55, 85, 1410, mig=True)
L40S = Card("NVIDIA L40S", 48_305_799_168, 350, 35, 85, 2520)


@dataclass(frozen=True)
class Ticks:
    """Hours of work by tick: the share of the tick with a kernel, and the kernels' use of SMs and memory bandwidth.

    `clock` is the share of the full clock. `overlapped` work prepares its next step while the GPU computes; a slower
    GPU costs nothing until it is slower than the preparation. Work that a request or a person `waits_for` is judged by
    the time of its kernels, other work by its whole time. `requests` are the requests that arrive in each tick.
    """

    busy: Floats
    sm: Floats
    dram: Floats
    clock: Floats | float = 1.0
    overlapped: bool = False
    waits_for: bool = False
    requests: Floats | None = None


@dataclass(frozen=True)
class Work:
    """Hours of work as the agent's rows, by column, hour and row, and measures at full resolution."""

    columns: dict[str, Floats]
    requests: Floats | None
    busy_mean: float
    sm_mean: float
    """Share of SMs that the kernels use while they run."""
    clock_lost: float
    slower_on_half: float
    slower_on_3g: float
    slower_on_4g: float

    @property
    def hours(self) -> int:
        return len(self.columns["gpu_util_pct"])


def slowdown(ticks: Ticks, sm: float, dram: float) -> float:
    """Return the slowdown of the work with this share of the card's SMs and bandwidth; 0.05 is 5 %."""
    stretched = ticks.busy * np.maximum(1, np.maximum(ticks.sm / sm, ticks.dram / dram))
    if ticks.overlapped:
        steps = stretched.reshape(-1, 100).sum(axis=1)  # prefetching evens out ten seconds
        return float(np.maximum(steps - 100, 0).mean() / 100)
    whole = ticks.busy.sum() if ticks.waits_for else ticks.busy.size
    return float((stretched - ticks.busy).sum() / max(whole, 1e-9))


def work_of(ticks: Ticks, card: Card, row_ms: int) -> Work:
    """Return the agent's rows of the hours, and the measures of the whole work."""
    hours, step = len(ticks.busy), row_ms // TICK_MS
    by_row = ticks.busy.reshape(hours, -1, step)
    used = (ticks.busy * ticks.sm).reshape(by_row.shape)
    moved = (ticks.busy * ticks.dram).reshape(by_row.shape)
    clock = np.broadcast_to(ticks.clock, ticks.busy.shape).reshape(by_row.shape)
    drawn = (by_row * 0.15 + used * 0.55 + moved * 0.25) * clock**2 * (card.limit_w - card.context_w) + card.context_w
    busy_s = max(float(ticks.busy.sum()), 1e-9)
    columns = {
        "gpu_util_pct": 100 * by_row.mean(axis=2),
        "gpu_util_max_pct": np.ceil(100 * by_row.max(axis=2)),
        "gpu_util_p98_pct": np.ceil(100 * np.quantile(by_row, 0.98, axis=2)),
        "gpu_util_zero_ratio": (by_row == 0).mean(axis=2),
        "sm_active_pct": 100 * used.mean(axis=2),
        "dram_active_pct": 100 * moved.mean(axis=2),
        "power_w": drawn[:, :, -10:].mean(axis=2),
        "mean_w": drawn.mean(axis=2),
        "clock": clock[:, :, -1],
        "slowed_ms": ((clock < 0.995) & (by_row > 0)).sum(axis=2) * float(TICK_MS),
    }
    return Work(
        columns=columns,
        requests=None if ticks.requests is None else ticks.requests.reshape(by_row.shape).sum(axis=2),
        busy_mean=float(ticks.busy.mean()),
        sm_mean=float(used.sum()) / busy_s,
        clock_lost=float((by_row * (1 - clock)).sum()) / busy_s,
        slower_on_half=slowdown(ticks, 1 / 2, 1 / 2),
        slower_on_3g=slowdown(ticks, 3 / 7, 1 / 2),
        slower_on_4g=slowdown(ticks, 4 / 7, 1 / 2),
    )


def steps(
    rng: np.random.Generator,
    pause: tuple[float, float],
    work: tuple[float, float],
    sm: tuple[float, float],
    *,
    hours: int = 3,
    overlapped: bool = False,
) -> Ticks:
    """Return kernels in bursts of some seconds; each hour uses SMs and bandwidth around its own level."""
    shape = (hours, HOUR_TICKS)
    on = bursts(rng, hours * HOUR_TICKS, pause, work).reshape(shape)
    level = rng.uniform(*sm, (hours, 1))
    taken = np.clip(level * rng.normal(1, 0.06, shape), 0.01, 1)
    return Ticks(on * rng.uniform(0.93, 1, shape), taken, 0.6 * taken, overlapped=overlapped)


def requests(rng: np.random.Generator, per_s: Floats, service_s: tuple[float, float], sm: float, dram: float) -> Ticks:
    """Return requests that arrive at random, at a rate per hour, and share the card while they overlap."""
    shape = (len(per_s), HOUR_TICKS)
    arrivals = rng.poisson(np.repeat(per_s[:, None] * TICK_MS / SECOND_MS, HOUR_TICKS, axis=1))
    start = np.repeat(np.flatnonzero(arrivals), arrivals.ravel()[arrivals.ravel() > 0])
    length = np.maximum(1, rng.uniform(*service_s, len(start)) * SECOND_MS / TICK_MS).astype(np.int64)
    change = np.zeros(arrivals.size + 1, np.int64)
    np.add.at(change, start, 1)
    np.add.at(change, np.minimum(start + length, arrivals.size), -1)
    at_once = np.cumsum(change)[:-1].reshape(shape)
    more = 1 + 0.15 * np.maximum(at_once - 1, 0)
    return Ticks(
        (at_once > 0) * rng.uniform(0.9, 1, shape),
        np.minimum(sm * more, 0.95),
        np.minimum(dram * more, 0.9),
        waits_for=True,
        requests=arrivals.astype(np.float64),
    )

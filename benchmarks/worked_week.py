"""One week of some GPUs in steps of 100 ms: their users and kernels, in kinds that scraping observes well or badly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.physical_week import drawn_w
from benchmarks.recordings import TICK_MS, bursts
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, WEEK_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from benchmarks.recordings import Floats, Mask

    Build = Callable[[np.random.Generator, int, int], tuple[Mask, Mask]]

START_MS = 1_792_972_800_000  # Monday 2026-10-26 00:00 UTC
COLLECT_MS = 30 * SECOND_MS
"""dcgm-exporter's default interval."""

GPUS_PER_HOST = 4
IDLE_AFTER_MS = 5 * MINUTE_MS

FREE_W, CONTEXT_W = 71.0, 116.7
"""The idle power of an H100, without and with a CUDA context."""


@dataclass(frozen=True)
class Stay:
    """A workload on the GPU, from one tick to another."""

    pod: str
    first: int
    after: int


@dataclass(frozen=True)
class WorkedGpu:
    """One GPU: its truth by ticks, and its workloads."""

    kind: str
    number: int
    busy: Mask
    occupied: Mask
    power_w: Floats
    stays: tuple[Stay, ...]

    @property
    def uuid(self) -> str:
        return f"GPU-{self.number:08x}-0000-4000-8000-000000000000"

    @property
    def host(self) -> int:
        return self.number // GPUS_PER_HOST

    def held_spans_ms(self) -> list[tuple[int, int]]:
        """Return when it was held: from and until, in milliseconds since the epoch."""
        return [(START_MS + first * TICK_MS, START_MS + after * TICK_MS) for first, after in self.held_runs()]

    def held_runs(self) -> list[tuple[int, int]]:
        """Return the first tick of each segment without a kernel that is held, and the tick after it."""
        idle = _runs(self.occupied & ~self.busy)
        return [(first, after) for first, after in idle if (after - first) * TICK_MS >= IDLE_AFTER_MS]

    def held_ticks(self) -> int:
        """Return the number of ticks of these segments."""
        return sum(after - first for first, after in self.held_runs())


def collect_phase(host: int) -> int:
    """The tick of a host's first collection."""
    return 37 + 61 * host


def worked_gpus(
    length_ms: int = WEEK_MS, seed: int = 1, kinds: Iterable[tuple[str, int, Build]] | None = None
) -> Iterator[WorkedGpu]:
    """Yield the GPUs of some kinds (KINDS) in sequence: a GPU takes some hundred megabytes."""
    ticks = length_ms // TICK_MS
    number = 0
    for kind, count, build in KINDS if kinds is None else kinds:
        for nth in range(count):
            rng = np.random.default_rng([seed, number])
            busy, occupied = build(rng, ticks, collect_phase(number // GPUS_PER_HOST))
            stays = tuple(
                Stay(f"{kind.replace(' ', '-')}-{nth}-{run}", first, after)
                for run, (first, after) in enumerate(_runs(occupied))
            )
            power_w = drawn_w(rng, busy & occupied, np.where(occupied, CONTEXT_W, FREE_W))
            yield WorkedGpu(kind, number, busy & occupied, occupied, power_w, stays)
            number += 1


def _runs(mask: Mask) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    return [(int(first), int(after)) for first, after in zip(edges[::2], edges[1::2], strict=True)]


def _always(ticks: int) -> Mask:
    return np.ones(ticks, np.bool_)


def _in_jobs(rng: np.random.Generator, ticks: int, _: int) -> tuple[Mask, Mask]:
    """Training that keeps the card busy, in jobs of a day or two."""
    return bursts(rng, ticks, (0.1, 0.3), (2, 20)), bursts(rng, ticks, (1_800, 21_600), (43_200, 200_000))


def _pausing(rng: np.random.Generator, ticks: int, _: int) -> tuple[Mask, Mask]:
    """Training that waits for its input between short steps."""
    return bursts(rng, ticks, (1.0, 3.3), (0.2, 1.0)), _always(ticks)


def _requests(rng: np.random.Generator, ticks: int, _: int) -> tuple[Mask, Mask]:
    """A server with occasional requests of some seconds."""
    return bursts(rng, ticks, (5.0, 170.0), (1.0, 4.0)), _always(ticks)


def _rare_requests(rng: np.random.Generator, ticks: int, _: int) -> tuple[Mask, Mask]:
    """A server with a request every few minutes."""
    return bursts(rng, ticks, (120.0, 540.0), (0.5, 2.0)), _always(ticks)


def _by_day(rng: np.random.Generator, ticks: int, _: int) -> tuple[Mask, Mask]:
    """A notebook that is used by day and stays open by night."""
    day = np.arange(ticks) * TICK_MS % DAY_MS
    return bursts(rng, ticks, (2, 150), (0.3, 40)) & (day > 9 * HOUR_MS) & (day < 17 * HOUR_MS), _always(ticks)


def _in_step(every_ms: int, from_ms: int) -> Build:
    """Two seconds of work per period, at a fixed time after a collection."""

    def build(_: np.random.Generator, ticks: int, phase: int) -> tuple[Mask, Mask]:
        since = (np.arange(ticks) - phase) * TICK_MS - from_ms
        return since % every_ms < 2 * SECOND_MS, _always(ticks)

    return build


def _held(_: np.random.Generator, ticks: int, __: int) -> tuple[Mask, Mask]:
    return ~_always(ticks), _always(ticks)


def _free(_: np.random.Generator, ticks: int, __: int) -> tuple[Mask, Mask]:
    return ~_always(ticks), ~_always(ticks)


IN_STEP = ("in step, never seen", "in step, always seen")

KINDS: tuple[tuple[str, int, Build], ...] = (
    ("long training", 4, _in_jobs),
    ("pausing training", 3, _pausing),
    ("requests", 3, _requests),
    ("rare requests", 3, _rare_requests),
    ("notebook by day", 3, _by_day),
    (IN_STEP[0], 1, _in_step(60 * SECOND_MS, 10 * SECOND_MS)),
    (IN_STEP[1], 1, _in_step(COLLECT_MS, -SECOND_MS)),
    ("held, idle", 3, _held),
    ("free", 3, _free),
)
"""Kinds of work and how many GPUs have it: 24 on six hosts."""


def _left(rng: np.random.Generator, ticks: int, phase: int) -> tuple[Mask, Mask]:
    """A notebook that its user uses for some days and then leaves open."""
    busy, occupied = _by_day(rng, ticks, phase)
    return busy & (np.arange(ticks) < rng.uniform(0.1, 0.5) * ticks), occupied


def _away(rng: np.random.Generator, ticks: int, phase: int) -> tuple[Mask, Mask]:
    """A notebook whose user is away for days repeatedly."""
    busy, occupied = _by_day(rng, ticks, phase)
    return busy & bursts(rng, ticks, (DAY_MS / SECOND_MS, 9 * DAY_MS / SECOND_MS), (2e5, 6e5)), occupied


LEFT_IDLE: tuple[tuple[str, int, Build], ...] = (
    ("long training", 2, _in_jobs),
    ("pausing training", 2, _pausing),
    ("requests", 2, _requests),
    ("rare requests", 2, _rare_requests),
    ("notebook by day", 2, _by_day),
    (IN_STEP[0], 2, _in_step(60 * SECOND_MS, 10 * SECOND_MS)),
    ("notebook, away for days", 2, _away),
    ("notebook, left open", 5, _left),
    ("held, idle", 3, _held),
    ("free", 2, _free),
)
"""GPUs that are left idle among look-alikes: 24 on six hosts."""

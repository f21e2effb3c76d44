"""One week of some GPUs, 100 ms by 100 ms: who is on them and when a kernel runs, in kinds that scraping sees well and badly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.physical_week import drawn_w
from benchmarks.recordings import TICK_MS, bursts
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, WEEK_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.recordings import Floats, Mask

    Build = Callable[[np.random.Generator, int, int], tuple[Mask, Mask]]

START_MS = 1_795_132_800_000  # 2026-11-20 00:00 UTC
COLLECT_MS = 30 * SECOND_MS
"""dcgm-exporter's own interval, unless it is started with another."""

GPUS_PER_HOST = 4
IDLE_AFTER_MS = 5 * MINUTE_MS


@dataclass(frozen=True)
class Stay:
    """A workload on the GPU, from one tick up to another."""

    pod: str
    first: int
    after: int


@dataclass(frozen=True)
class WorkedGpu:
    """One GPU: its truth by ticks, and the workloads that were on it."""

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

    def held_ticks(self) -> int:
        """Ticks in stretches without a kernel of at least IDLE_AFTER_MS while somebody is on it."""
        return sum(
            after - first
            for first, after in _runs(self.occupied & ~self.busy)
            if (after - first) * TICK_MS >= IDLE_AFTER_MS
        )


def collect_phase(host: int) -> int:
    """The tick of a host's first collection."""
    return 37 + 61 * host


def worked_gpus(length_ms: int = WEEK_MS, seed: int = 1) -> Iterator[WorkedGpu]:
    """The GPUs one after the other: each is some hundred megabytes."""
    ticks = length_ms // TICK_MS
    number = 0
    for kind, count, build in KINDS:
        for nth in range(count):
            rng = np.random.default_rng([seed, number])
            busy, occupied = build(rng, ticks, collect_phase(number // GPUS_PER_HOST))
            stays = tuple(
                Stay(f"{kind.replace(' ', '-')}-{nth}-{run}", first, after)
                for run, (first, after) in enumerate(_runs(occupied))
            )
            yield WorkedGpu(kind, number, busy & occupied, occupied, drawn_w(rng, busy & occupied), stays)
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
    """A server with a request of seconds now and then."""
    return bursts(rng, ticks, (5.0, 170.0), (1.0, 4.0)), _always(ticks)


def _rare_requests(rng: np.random.Generator, ticks: int, _: int) -> tuple[Mask, Mask]:
    """A server with a request every few minutes."""
    return bursts(rng, ticks, (120.0, 540.0), (0.5, 2.0)), _always(ticks)


def _by_day(rng: np.random.Generator, ticks: int, _: int) -> tuple[Mask, Mask]:
    """A notebook that is used by day and kept by night."""
    day = np.arange(ticks) * TICK_MS % DAY_MS
    return bursts(rng, ticks, (2, 150), (0.3, 40)) & (day > 9 * HOUR_MS) & (day < 17 * HOUR_MS), _always(ticks)


def _in_step(every_ms: int, from_ms: int) -> Build:
    """Two seconds of work in each so many, which begin so long after a collection."""

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

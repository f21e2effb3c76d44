"""The benefit of the packing solver, and the time for packings of a large fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analytics.workloads.mig_profiles import fewest_cards, fits
from analytics.workloads.sharing import CardSharer, best_sharing, groups
from benchmarks.measure import Figure, timed

if TYPE_CHECKING:
    from collections.abc import Iterator

CARD = 48_000_000_000
HOURS = 168
POOLS = 20
PER_POOL = 40
MIG_GPUS = 5_000
SHARED_GPUS = 1_000


def measure() -> Iterator[Figure]:
    """Yield the cards saved by the first group that fits and by the best choice, and the wall time for large pools."""
    pools = [_workloads(np.random.default_rng(seed), PER_POOL) for seed in range(POOLS)]
    gives_way = frozenset(range(PER_POOL))
    first = sum(len(each.members) - 1 for pool in pools for each in groups(pool, CARD))
    found = [best_sharing(pool, gives_way, CARD) for pool in pools]
    best = sum(len(each.members) - 1 for pool in found for each in pool.groups)
    how = f"of {POOLS * PER_POOL} in {POOLS} pools of {PER_POOL}, works with a time of day"
    yield Figure("packing_spared_first_fit", first, "cards", how)
    yield Figure("packing_spared_best", best, "cards", f"{how}; proven: {sum(each.at_most for each in found)} at most")
    random = np.random.default_rng(1)
    profiles = fits("NVIDIA H100 80GB HBM3")
    needs = [profiles[each] for each in random.integers(0, len(profiles), MIG_GPUS)]
    yield Figure("packing_mig", timed(lambda: fewest_cards(needs))[1], "s", f"{MIG_GPUS} GPUs of one pool, proven best")
    large = _workloads(random, SHARED_GPUS)
    way = frozenset(range(0, SHARED_GPUS, 2))
    wall = timed(lambda: best_sharing(large, way, CARD), 1)[1]
    yield Figure("packing_sharing", wall, "s", f"{SHARED_GPUS} GPUs of one pool, half of them give way")


def _workloads(random: np.random.Generator, number: int) -> list[CardSharer]:
    """Return workloads with 5 to 55 % of a card's memory and 3 to 60 % of its time, each with its own peak hour."""
    found = []
    for each in range(number):
        wave = 1 + 0.5 * np.sin((np.arange(HOURS) / 24 + random.random()) * 2 * np.pi)
        pct = np.clip(random.uniform(3, 60) * wave, 0, 100)
        histogram = np.bincount(np.ceil(pct).astype(int), minlength=101).astype(np.int64)
        found.append(CardSharer(each, f"g{each}", "ann", int(random.uniform(0.05, 0.55) * CARD), pct, histogram))
    return found

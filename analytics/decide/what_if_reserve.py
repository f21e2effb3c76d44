"""What another reserve would leave to give back, in all and by pool, and what it would have been worth last week."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from analytics.workloads.reclaimable import MARGINS, PoolReclaimable, Reclaimable, Reserve


class PoolReserve(NamedTuple):
    """A pool, and what a reserve means for it."""

    pool: PoolReclaimable
    reserve: Reserve


@dataclass(frozen=True)
class WhatIfReserve:
    """The pools with an idle GPU and a known need, each with what this reserve means for it.

    `worst` is the pool that would have been short for longest last week; None where no such week was observed.
    """

    margin: float
    pools: tuple[PoolReserve, ...]
    is_known: bool

    @property
    def safe(self) -> int | None:
        """The GPUs that could go; None where that is known of no idle one."""
        if not self.pools and not self.is_known:
            return None
        return sum(reserve.safe for _, reserve in self.pools)

    @property
    def worst(self) -> PoolReserve | None:
        tested = [each for each in self.pools if each.reserve.short_hours is not None]
        return max(tested, key=lambda each: (each.reserve.short_hours or 0, each.reserve.short_gpus or 0), default=None)


def what_if_reserve(found: Reclaimable, margin: float) -> WhatIfReserve:
    """With one of `MARGINS` as the reserve."""
    pools = (
        PoolReserve(pool, reserve)
        for pool in found.pools
        for reserve in pool.reserves
        if pool.idle_now and reserve.margin == margin
    )
    is_known = found.unseen_since_ms is None and not found.need_unknown
    return WhatIfReserve(margin, tuple(pools), is_known)


def reserve_steps(found: Reclaimable) -> tuple[WhatIfReserve, ...]:
    """With each reserve that is compared."""
    return tuple(what_if_reserve(found, margin) for margin in MARGINS)

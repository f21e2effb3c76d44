"""Why jobs waited: what would have let each start sooner, one remedy after the other, and what only more GPUs cure.

The method is a counterfactual. Everybody keeps the GPUs and the times that they really had; then the waits are gone through in the
order in which they ended, and each job is moved to the first moment at which the GPUs that stood idle would have carried it to its
end. What it really ran on is then free for the next ones. This is done for one remedy after the other, each on top of those before
it, so that every moment of every wait has the first remedy that ends it, no idle GPU serves two, and nobody starts later than really.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from analytics.plan.idle_pool import WHOLE_POOL, IdlePool, Place, Want
from analytics.time_limit import check_time


@dataclass(frozen=True)
class Remedy:
    """One thing that is lifted, and how jobs are placed from then on.

    `by_limit` asks for GPUs that stay idle for as long as the job's time limit, else for as long as it really ran.
    """

    cause: str
    by_limit: bool = False
    stays_in_block: bool = False
    stays_in_pool: bool = False
    keeps_shape: bool = False

    def may_help(self, waiter: Waiter) -> bool:
        """Whether it gives this one anything that those before did not; what others give back may help all."""
        match self.cause:
            case "limits":
                return waiter.limit_ms > waiter.run_ms
            case "block":
                return any(area != WHOLE_POOL for _, area in waiter.own)
            case "pool":
                return bool(waiter.others)
            case "scattered":
                return waiter.want.per_host > 1
        return True


REMEDIES = (
    Remedy("order", by_limit=True, stays_in_block=True, stays_in_pool=True, keeps_shape=True),
    Remedy("limits", stays_in_block=True, stays_in_pool=True, keeps_shape=True),
    Remedy("block", stays_in_pool=True, keeps_shape=True),
    Remedy("pool", keeps_shape=True),
    Remedy("unused", keeps_shape=True),
    Remedy("scattered"),
    Remedy("unknown"),
)
"""In their precedence: first what the queue's rules alone decide, then what takes unused GPUs from somebody, then what moves work."""

SHORTAGE = "shortage"
CAUSES = (*(each.cause for each in REMEDIES), SHORTAGE)
"""Every moment of a wait has one of them."""

_LATE_MS = 120_000
"""How much later than the queue the ledger may see GPUs free: GPUs given back count for so long more, so that there is no gap."""


@dataclass(slots=True)
class Waiter:
    """One wait in [begin, until) for what `want` says.

    `own` are the parts of its pool whose cards are what it asked for, each with its block there, first the one that it ran on or would have; none where
    the pool is not known. `others` are those of other pools. `run_ms` is how long it ran or may
    run, `limit_ms` how long it had asked for. `start` is its start as far as it has been moved, `ran` where and when it runs: as long as
    nothing has moved it (`has_moved`), where it really did. `job` is its name in the ledger.
    """

    job: str

    begin: int
    until: int
    want: Want
    run_ms: int
    limit_ms: int
    own: Sequence[tuple[IdlePool, int]]
    others: Sequence[IdlePool]
    ran: Place | None
    start: int
    has_moved: bool = False

    @property
    def waits(self) -> bool:
        """Whether any of its time has no remedy yet, and its pool is known."""
        return bool(self.own) and self.begin < self.start

    def given_back(self) -> Sequence[Place]:
        """What is idle without it."""
        if self.ran is None:
            return ()
        return (self.ran,) if self.has_moved else self.ran.pool.given_back(self.ran, self.job)


def real_place(pool: IdlePool, hosts: Sequence[str], gpus: int, start_ms: int, end_ms: int) -> Place:
    """Where a job ran, its GPUs spread evenly over its hosts."""
    counts = [gpus // len(hosts) + (number < gpus % len(hosts)) for number in range(len(hosts))]
    return pool.given(hosts, counts, start_ms, end_ms + _LATE_MS)


def try_remedy(waiters: Sequence[Waiter], remedy: Remedy) -> None:
    """Moves each of the waiters, in the order in which their waits really ended, as far forward as the remedy lets it."""
    for waiter in waiters:
        if waiter.waits:
            _move(waiter, remedy)
    check_time()


def _move(waiter: Waiter, remedy: Remedy) -> None:
    """What it ran on is given back while its new place is looked for."""
    want = waiter.want if remedy.keeps_shape else waiter.want.anywhere()
    is_new = remedy.may_help(waiter)
    # asked pool by pool: most jobs need not look at the second one, and its own GPUs are none of the time before its start
    possible = (
        (pool, area)
        for pool, area in _areas(waiter, remedy)
        if waiter.begin < waiter.start
        and (is_new or pool.has_changed(waiter.begin, waiter.start))
        and pool.has(area, want.gpus, waiter.begin, waiter.start)
    )
    first = next(possible, None)
    if first is None:
        return
    was, given = waiter.ran, waiter.given_back()
    for place in given:
        place.pool.change(place, 1)
    needed_ms = max(waiter.run_ms, waiter.limit_ms) if remedy.by_limit else waiter.run_ms
    for pool, area in chain((first,), possible):
        if (found := pool.earliest(area, want, waiter.begin, waiter.start, needed_ms)) is not None:
            waiter.start, waiter.ran = found, pool.place(area, want, found, waiter.run_ms)
    if waiter.ran is None or waiter.ran is was:
        for place in given:
            place.pool.change(place, -1)
        return
    if was is not None and not waiter.has_moved:
        was.pool.leave(was, waiter.job)
    waiter.has_moved = True
    waiter.ran.pool.change(waiter.ran, -1)


def _areas(waiter: Waiter, remedy: Remedy) -> Iterator[tuple[IdlePool, int]]:
    for pool, area in waiter.own:
        yield pool, area if remedy.stays_in_block else WHOLE_POOL
    if not remedy.stays_in_pool:
        for pool in waiter.others:
            yield pool, WHOLE_POOL

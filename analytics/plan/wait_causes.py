"""Causes of queue waits: which remedy would have let each job start sooner, and which waits only more GPUs would cure.

The method is a counterfactual. Every job keeps its real GPUs and times. Then the waits are processed in the order in
which they ended. Each job moves to the first moment at which idle GPUs would have carried it to its end. Its real GPUs
are then free for the next jobs. Remedies are applied one after the other, each on top of the earlier ones. So every
moment of a wait gets the first remedy that ends it, no idle GPU serves two jobs, and no job starts later than it really
did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from analytics.capacity.causes import UNKNOWN
from analytics.plan.idle_pool import WHOLE_POOL, WITHHELD, IdlePool, Place, Want
from analytics.time_limit import check_time


@dataclass(frozen=True)
class Remedy:
    """A constraint that is lifted, and how jobs are placed from then on."""

    cause: str
    """Name in `analytics.capacity.causes`."""
    by_limit: bool = False
    """True if the GPUs must stay idle for the job's time limit; else for its real run time."""
    first_in_line: bool = False
    """True if the job may start only when no job ahead of it waits."""
    stays_in_block: bool = False
    stays_in_pool: bool = False
    keeps_shape: bool = False

    def may_help(self, waiter: Waiter) -> bool:
        """Return whether the remedy offers this job anything new. GPUs that other jobs return may help in any case."""
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


_IN_ORDER = (
    Remedy("order", first_in_line=True, stays_in_block=True, stays_in_pool=True, keeps_shape=True),
    Remedy("head_of_line", stays_in_block=True, stays_in_pool=True, keeps_shape=True),
)
_BY_LIMITS = (
    Remedy("order", by_limit=True, stays_in_block=True, stays_in_pool=True, keeps_shape=True),
    Remedy("limits", stays_in_block=True, stays_in_pool=True, keeps_shape=True),
)
_OTHERS = (
    Remedy("block", stays_in_pool=True, keeps_shape=True),
    Remedy("pool", keeps_shape=True),
    *(Remedy(cause, keeps_shape=True) for cause in WITHHELD),
    Remedy("unused", keeps_shape=True),
    Remedy("scattered"),
    Remedy(UNKNOWN),
)


def remedies(*, in_order: bool) -> tuple[Remedy, ...]:
    """Return the remedies in their precedence: rules of the queue first, then GPUs of other users, then moves of work.

    A scheduler that starts jobs strictly in order never looks at time limits, so they are no cause there.
    """
    return (*(_IN_ORDER if in_order else _BY_LIMITS), *_OTHERS)


_LATE_MS = 120_000
"""How much later than the queue the ledger may report GPUs as free.

Returned GPUs count this much longer, so that no gap appears.
"""


@dataclass(slots=True)
class Waiter:
    """A wait in [begin, until) for the GPUs in `want`."""

    job: str
    """Name in the ledger."""

    begin: int
    until: int
    want: Want
    run_ms: int
    """Real run time, or the run time that is allowed."""
    limit_ms: int
    own: Sequence[tuple[IdlePool, int]]
    """Parts of the job's pool with matching cards, each with the job's block, the part of its real or likely run first.

    Empty if the pool is unknown.
    """
    others: Sequence[IdlePool]
    """Parts of other pools."""
    ran: Place | None
    """Place and time of the run: the real ones until the job has moved."""
    start: int
    """Start, after all moves up to now."""
    held: Sequence[tuple[int, int]] = ()
    """Times, in order, in which the scheduler itself names a hold. The job starts in none of them."""
    blocked_until: int = 0
    """A job ahead in the queue waits until this time."""
    has_moved: bool = False

    @property
    def waits(self) -> bool:
        """Return whether part of the wait has no remedy yet, and the pool is known."""
        return bool(self.own) and self.begin < self.start

    def not_held(self, since_ms: int, until_ms: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of [since, until) without a hold."""
        for held_from, held_until in self.held:
            if since_ms < min(held_from, until_ms):
                yield since_ms, min(held_from, until_ms)
            since_ms = max(since_ms, held_until)
        if since_ms < until_ms:
            yield since_ms, until_ms

    def given_back(self) -> Sequence[Place]:
        """Return the places that are idle without this job."""
        if self.ran is None:
            return ()
        return (self.ran,) if self.has_moved else self.ran.pool.given_back(self.ran, self.job)


def real_place(pool: IdlePool, hosts: Sequence[str], gpus: int, start_ms: int, end_ms: int) -> Place:
    """Return where a job ran, with its GPUs spread evenly over its hosts."""
    counts = [gpus // len(hosts) + (number < gpus % len(hosts)) for number in range(len(hosts))]
    return pool.given(hosts, counts, start_ms, end_ms + _LATE_MS)


def try_remedy(waiters: Sequence[Waiter], remedy: Remedy) -> None:
    """Move the waiting jobs, in the order in which their waits really ended, as far forward as the remedy allows."""
    for waiter in waiters:
        if waiter.waits:
            _move(waiter, remedy)
    check_time()


def _move(waiter: Waiter, remedy: Remedy) -> None:
    """Move a job. Its own GPUs are free while its new place is searched."""
    want = waiter.want if remedy.keeps_shape else waiter.want.anywhere()
    is_new = remedy.may_help(waiter)
    begin = max(waiter.begin, waiter.blocked_until) if remedy.first_in_line else waiter.begin
    # pool by pool: most jobs need not look at the second one; a job has its own GPUs only from its start on
    possible = (
        (pool, area)
        for pool, area in _areas(waiter, remedy)
        if begin < waiter.start
        and (is_new or pool.has_changed(begin, waiter.start))
        and pool.has(area, want.gpus, begin, waiter.start)
    )
    first = next(possible, None)
    if first is None:
        return
    was, given = waiter.ran, waiter.given_back()
    for place in given:
        place.pool.change(place, 1)
    needed_ms = max(waiter.run_ms, waiter.limit_ms) if remedy.by_limit else waiter.run_ms
    for pool, area in chain((first,), possible):
        for since_ms, before_ms in waiter.not_held(begin, waiter.start):
            if (found := pool.earliest(area, want, since_ms, before_ms, needed_ms)) is not None:
                waiter.start, waiter.ran = found, pool.place(area, want, found, waiter.run_ms)
                break
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

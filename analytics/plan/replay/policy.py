"""What a replay changes: the fleet, what jobs are given, and in which order they begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from analytics.plan.replay.replay_fleet import HostGroup

Order = Literal["fifo", "backfill", "conservative"]
ORDERS: tuple[Order, ...] = ("fifo", "backfill", "conservative")
PRIORITY_COLUMNS = ("priority", "kind", "team", "user", "pool", "partition")
"""By which columns of REPLAY_JOB_SCHEMA jobs can be ranked."""

EVERY_POOL = ""
"""In `gpus`: of the whole fleet, where it has one pool and one model."""


@dataclass(frozen=True)
class Priorities:
    """Which jobs go first: by the values of a column, the most urgent first; values that are not named come last.

    By `priority`, the scheduler's own number, no values are named: more goes first, and jobs without one come last.

    `preempt`: a job that has no room takes GPUs from less urgent ones. What was pre-empted waits again at its old place in the queue; it
    goes on where it stopped (`resume`) or begins anew, and takes `cost_ms` more.
    """

    by: str
    values: tuple[str, ...] = ()
    preempt: bool = False
    resume: bool = True
    cost_ms: int = 0


@dataclass(frozen=True)
class OffPeakHours:
    """The hours of every day in which deferrable jobs may begin: minutes of the day in a time zone of the IANA.

    The end may lie before the beginning: it is on the next day.
    """

    since_min: int
    until_min: int
    zone: str = "UTC"


@dataclass(frozen=True)
class SmallWork:
    """Where small work goes first: to the pool or the model of that name, where its memory fits.

    Small are jobs of these kinds, and any job on one GPU. A job whose need of memory is unknown stays where it was.
    """

    to: str
    kinds: tuple[str, ...] = ("batch", "test")


@dataclass(frozen=True)
class ReplayPolicy:
    """How jobs are replayed; by default as they were given, in the order in which they came.

    gpus             other numbers of GPUs: by `pool`, or `pool/model` where a pool has several models
    groups           hosts that take the place of all those of their pools
    merge            pools that become one, which has the name of the first
    order            `fifo`: the first in the queue of a pool and model begins first; `backfill`: others go before it where, by the
                     time limits, that does not delay it (EASY); `conservative`: where it delays nobody before them
    priorities       which jobs come first in the queue
    off_peak         deferrable jobs that come outside of these hours come when they begin
    small_work       small work goes to older cards first
    share            up to so many jobs take turns on one GPU
    mig              jobs on one GPU get the MIG instance that they need
    idle_timeout_ms  jobs end when none of their GPUs has worked for so long
    limit_to_need    time limits are what jobs needed
    block            jobs get as many GPUs as they ever used, in blocks of so many
    """

    gpus: Mapping[str, int] = field(default_factory=dict)
    groups: tuple[HostGroup, ...] = ()
    merge: tuple[tuple[str, ...], ...] = ()
    order: Order = "fifo"
    priorities: Priorities | None = None
    off_peak: OffPeakHours | None = None
    small_work: SmallWork | None = None
    share: int = 1
    mig: bool = False
    idle_timeout_ms: int | None = None
    limit_to_need: bool = False
    block: int | None = None

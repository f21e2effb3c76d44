"""The queue of a simulated fleet: when jobs were submitted, how long they may run, how they ended, and which wait.

Stays place the jobs; their waits follow from the places. A job that began when its pool had no free GPUs of its size
had waited for them. GPUs planted as never used are outside the partition, as new hosts that are not added yet: no job
waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analytics.simulation.catalog import TEAMS
from analytics.simulation.placement import HostPlan, SimulatedFleet
from analytics.simulation.plan import FleetPlan
from analytics.simulation.stays import Stay
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

SCHEDULER = "simulated"
"""The scheduler of reservations and of the queue. Jobs are Slurm's and services Kubernetes', as processes show."""
_LIMITS_MS = tuple(hours * HOUR_MS for hours in (1, 4, 12, 24, 48, 72, 168, 336))
_ASK_FOR_MORE = {"vision": 2, "language": 1}
"""Steps of the ladder of limits that a team adds to its jobs' need, for safety."""
_PRIORITY = {"language": 400, "ranking": 250, "speech": 200, "vision": 200, "robotics": 150}
_HELD_BACK = "ranking"
"""A team whose jobs wait for its own limit of running jobs, even with free GPUs."""
_WAIT_FOR_ROOM_MS, _HELD_BACK_MS, _CHAINED_MS = 3 * HOUR_MS, 40 * MINUTE_MS, 90 * MINUTE_MS
_PATIENCE_MS = 6 * HOUR_MS

Row = Mapping[str, object]


@dataclass(frozen=True)
class SimulatedQueue:
    """Data of the scheduler beside the allocated GPUs."""

    allocations: Mapping[tuple[str, str], Row]
    """The queue's columns of each allocation, by host and allocation id."""
    requests: tuple[Row, ...]
    """Rows of the `request` table."""


def simulated_queue(plan: FleetPlan) -> SimulatedQueue:
    """Return the queue of a fleet; the same plan gives the same queue."""
    rng = np.random.default_rng([plan.fleet.seed, 23])
    full_since = _full_since(plan)
    allocations: dict[tuple[str, str], Row] = {}
    for host in plan.hosts:
        for stay in (stay for stay in host.stays if stay.allocated):
            allocations[host.host.name, allocation_id(stay)] = (
                _job(plan.fleet, host, stay, full_since, rng) if stay.job_id else _pod(plan.fleet, host, stay)
            )
    return SimulatedQueue(allocations, tuple(_requests(plan, rng)))


def allocation_id(stay: Stay) -> str:
    """Return the scheduler's name for a stay: Slurm uses a number, Kubernetes namespace and pod."""
    return stay.job_id or f"{stay.account}/{stay.name}"


def _pod(fleet: SimulatedFleet, host: HostPlan, stay: Stay) -> Row:
    """Return the queue's columns of a service: placed within seconds, without a limit."""
    is_over = stay.end_ms < fleet.until_ms
    return {
        "submitted": stay.start_ms - 20 * SECOND_MS,
        "partition": host.host.pool.name,
        "host_count": 1,
        "state": "Succeeded" if is_over else "Running",
    }


def _job(
    fleet: SimulatedFleet,
    host: HostPlan,
    stay: Stay,
    full_since: Callable[[str, int, int], int],
    rng: np.random.Generator,
) -> Row:
    pool, size = host.host.pool.name, len(stay.gpus)
    room_ms = stay.start_ms - full_since(pool, size, stay.start_ms)
    wait_ms = min(room_ms, rng.exponential(_WAIT_FOR_ROOM_MS), _PATIENCE_MS) + rng.exponential(40 * SECOND_MS)
    if stay.account == _HELD_BACK:
        wait_ms += rng.exponential(_HELD_BACK_MS)
    eligible_ms = _second(stay.start_ms - wait_ms)
    chained_ms = rng.exponential(_CHAINED_MS) if rng.random() < 0.15 else 0.0
    limit_ms = _limit(stay)
    return {
        "submitted": _second(eligible_ms - chained_ms),
        "eligible": eligible_ms,
        "partition": pool,
        "qos": "normal",
        "time_limit_s": limit_ms // SECOND_MS,
        "planned_end": stay.start_ms + limit_ms,
        "project": stay.name,
        "priority": _PRIORITY.get(stay.account, 100),
        "host_count": 1,
        "state": _state(fleet, stay, rng),
    }


def _limit(stay: Stay) -> int:
    """Return a step of the ladder; a job that falls idle early is ended by its limit."""
    length_ms = stay.end_ms - stay.start_ms
    if stay.idle_from_ms is not None:
        return -(-length_ms // SECOND_MS) * SECOND_MS
    step = sum(limit < length_ms for limit in _LIMITS_MS) + _ASK_FOR_MORE.get(stay.account, 0)
    return max(length_ms, _LIMITS_MS[min(step, len(_LIMITS_MS) - 1)])


def _state(fleet: SimulatedFleet, stay: Stay, rng: np.random.Generator) -> str:
    draw = rng.random()
    if stay.end_ms >= fleet.until_ms:
        return "RUNNING"
    if stay.idle_from_ms is not None:
        return "TIMEOUT"
    return "COMPLETED" if draw < 0.82 else "FAILED" if draw < 0.93 else "CANCELLED"


def _second(at_ms: float) -> int:
    return int(at_ms) // SECOND_MS * SECOND_MS


def _full_since(plan: FleetPlan) -> Callable[[str, int, int], int]:
    """Return a function for the time since which no host of a pool had this many free GPUs, up to a moment.

    It returns the moment itself if a host had them.
    """
    unknown_to_it = {each.host for each in plan.planted if each.kind == "never_used"}
    found: dict[tuple[str, int], tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def since(pool: str, size: int, at_ms: int) -> int:
        if (pool, size) not in found:
            hosts = [host for host in plan.hosts if host.host.pool.name == pool and host.host.name not in unknown_to_it]
            found[pool, size] = _times_without_room(hosts, size)
        starts, ends = found[pool, size]
        place = int(np.searchsorted(ends, at_ms))  # the first segment that ends at or after the moment
        return min(int(starts[place]), at_ms) if place < len(starts) else at_ms

    return since


def _times_without_room(hosts: Iterable[HostPlan], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the segments in which no host has `size` GPUs free, as starts and ends in order."""
    changes: list[tuple[int, int]] = []
    for host in hosts:
        has_room = False
        for at_ms, free in _free_counts(host):
            if (free >= size) != has_room:
                has_room = free >= size
                changes.append((at_ms, 1 if has_room else -1))
    times = np.array([at_ms for at_ms, _ in sorted(changes)], np.int64)
    rooms = np.cumsum([change for _, change in sorted(changes)])
    begins = np.flatnonzero((rooms == 0) & (np.diff(times, append=np.iinfo(np.int64).max) > 0))
    ends = np.append(times, np.iinfo(np.int64).max)
    return times[begins], ends[begins + 1]


def _free_counts(host: HostPlan) -> Iterator[tuple[int, int]]:
    """Yield the unallocated GPUs of a host, from each moment of a change."""
    changes = [(0, len(host.host.gpus))]
    for stay in (stay for stay in host.stays if stay.allocated):
        changes += [(stay.start_ms, -len(stay.gpus)), (stay.end_ms, len(stay.gpus))]
    changes += [(each.start_ms, -len(each.gpus)) for each in host.reservations]
    free = 0
    for at_ms, change in sorted(changes):
        free += change
        yield at_ms, free


def _requests(plan: FleetPlan, rng: np.random.Generator) -> Iterator[Row]:
    """Yield jobs for the training pool that never began: large ones that were withdrawn, and three that still wait."""
    fleet = plan.fleet
    training = [host.host for host in plan.hosts if host.host.pool.work == "training"]
    if not training:
        return
    pool, width = training[0].pool.name, len(training[0].gpus)
    for nth in range(max(1, fleet.days // 4)):
        asked_ms = _second(fleet.since_ms + rng.uniform(0, max(fleet.days - 2, 0)) * DAY_MS)
        gave_up_ms = _second(asked_ms + rng.uniform(4, 24) * HOUR_MS)
        seen = {"as_of": gave_up_ms, "withdrawn": gave_up_ms, "state": "CANCELLED", "partition": pool}
        yield {**_request(920_000 + nth, ("language", "ranking")[nth % 2], (2 * width, width), asked_ms), **seen}
    waiting = (
        ("language", 2 * width, 30, "Resources"),
        ("robotics", width, 9, "Priority"),
        ("speech", max(1, width // 4), 3, "Priority"),
    )
    for nth, (team, gpus, hours, reason) in enumerate(waiting):
        asked_ms = fleet.until_ms - min(hours * HOUR_MS, fleet.days * DAY_MS)
        seen = {"as_of": fleet.until_ms, "state": "PENDING", "reason": reason, "partition": pool}
        yield {**_request(930_000 + nth, team, (gpus, width), asked_ms), **seen}


def _request(number: int, team: str, size: tuple[int, int], asked_ms: int) -> Row:
    """Return a job with this many GPUs, on hosts of this size."""
    gpus, width = size
    return {
        "time": asked_ms,
        "eligible": asked_ms,
        "allocation_id": str(number),
        "scheduler": "slurm",
        "account": team,
        "user": TEAMS[team][number % len(TEAMS[team])],
        "name": f"{team}-pretrain",
        "project": f"{team}-pretrain",
        "gpu_count": gpus,
        "host_count": -(-gpus // width),
        "qos": "normal",
        "priority": _PRIORITY[team],
        "time_limit_s": 72 * HOUR_MS // SECOND_MS,
    }

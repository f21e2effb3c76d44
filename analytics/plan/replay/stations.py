"""The stations of a fleet, and at which of them each job waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from analytics.plan.replay.asked_jobs import AskedJobs
from analytics.plan.replay.policy import ReplayPolicy
from analytics.plan.replay.replay_fleet import HostGroup, ReplayFleet
from analytics.plan.replay.shared_gpus import GpuSharing, MigInstances, TakingTurns
from analytics.plan.replay.station import Cards, Station

NO_GPUS = "no GPUs of its pool and model"
TOO_LITTLE_MEMORY = "not enough memory"
TOO_WIDE = "too many GPUs for any host"
TOO_MANY = "too many GPUs for the pool"
WHY_NOT = (NO_GPUS, TOO_LITTLE_MEMORY, TOO_WIDE, TOO_MANY)
"""Why a job never fits: the first of these that holds."""


def stations_of(fleet: ReplayFleet, jobs: AskedJobs, policy: ReplayPolicy) -> list[Station]:
    """A station for each pool and model, and within these for hosts that are open to the same partitions, in the order of the fleet.

    Those for small work are first, since they come first at each moment.
    """
    small = policy.small_work.to if policy.small_work is not None else None
    by_place: dict[tuple[str, str, frozenset[str] | None], list[HostGroup]] = {}
    for group in sorted(fleet.groups, key=lambda group: small not in (group.pool, group.model)):
        by_place.setdefault((group.pool, group.model, group.partitions), []).append(group)
    stations, hosts = list[Station](), Counter[tuple[str, str]]()
    for (pool, model, _), groups in by_place.items():
        cards = _cards(groups, policy, hosts[pool, model])
        stations.append(Station(len(stations), (pool, model), cards, jobs))
        hosts[pool, model] += len(cards.widths)
    return stations


def _cards(groups: Sequence[HostGroup], policy: ReplayPolicy, first_host: int) -> Cards:
    widths = tuple(group.gpus_per_host for group in groups for _ in range(group.hosts))
    known = [group.mem_bytes for group in groups if group.mem_bytes is not None]
    mem_bytes = min(known) if len(known) == len(groups) else None
    sharing = _sharing(groups[0].model, mem_bytes, policy)
    return Cards(widths, mem_bytes, groups[0].slowdown, sharing, groups[0].partitions, first_host)


def _sharing(model: str, mem_bytes: int | None, policy: ReplayPolicy) -> GpuSharing | None:
    if policy.mig:
        return MigInstances(model)
    return TakingTurns(policy.share, mem_bytes) if policy.share > 1 and mem_bytes is not None else None


def waiting_at(number: int, stations: Sequence[Station], policy: ReplayPolicy) -> tuple[list[Station], str | None]:
    """At which stations a job waits, the first it prefers; or why at none.

    At those of its pool and model that are open to its partition, or at all of its pool where that has no such model. In a pool that was merged at
    those of other models as well where its memory fits, after its own; small work at older cards as well, and there first.
    """
    if not stations:
        return [], NO_GPUS
    jobs, small_work = stations[0].jobs, policy.small_work
    pool, model = jobs.pools[number], jobs.models[number]
    own = [station for station in stations if station.pool == pool and station.is_open_to(jobs.partitions[number])]
    homes = [station for station in own if station.model == model] or own
    if not homes:
        return [], NO_GPUS
    roomy = [station for station in homes if _fits_memory(station, number) is not False]
    if pool in {pools[0] for pools in policy.merge}:
        roomy += [station for station in own if station not in homes and _fits_memory(station, number)]
    if not roomy:
        return [], TOO_LITTLE_MEMORY
    if small_work is not None and jobs.is_small[number]:
        older = [station for station in stations if small_work.to in (station.pool, station.model)]
        roomy = [*(each for each in older if each not in roomy and _fits_memory(each, number)), *roomy]
    found = [station for station in roomy if station.could_hold(number)]
    if found:
        return found, None
    return [], TOO_WIDE if jobs.hosts[number] == 1 else TOO_MANY


def _fits_memory(station: Station, number: int) -> bool | None:
    """Whether the job's memory fits, as it did on its own model; None where nobody knows."""
    need, there = station.jobs.mem_bytes[number], station.cards.mem_bytes
    if station.jobs.models[number] == station.model:
        return True
    return None if need is None or there is None else need <= there

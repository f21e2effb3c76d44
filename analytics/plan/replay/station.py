"""The stations of a fleet: the GPUs of one pool and model, those free, the runs and their ends, and the queue."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from heapq import merge
from typing import NamedTuple, Protocol, TypeAlias

import polars as pl

from analytics.plan.replay.host_room import Hold, HostRoom
from analytics.plan.replay.policy import ReplayPolicy
from analytics.plan.replay.replay_fleet import HostGroup, ReplayFleet
from analytics.workloads.mig_profiles import MigFit, first_fit
from analytics.workloads.sharing import BUSY_MAX_PCT, MEMORY_MAX_SHARE
from fallow.clock import DAY_MS

UNLIMITED_MS = 365 * DAY_MS
"""What a job without a time limit is planned with, as Slurm's backfill scheduler does."""

Turn: TypeAlias = tuple[int, int, int]
"""A job's place in a queue: its rank (less is more urgent), when it came, and the number of its row."""


@dataclass(frozen=True)
class AskedJobs:
    """One entry per job: its turn in the queue, its shape, run time and limit, where it ran, and its need of a GPU."""

    turns: Sequence[Turn]
    gpus: Sequence[int]
    hosts: Sequence[int]
    run_ms: Sequence[int]
    limit_ms: Sequence[int]
    pools: Sequence[str | None]
    models: Sequence[str | None]
    partitions: Sequence[str | None]
    mem_bytes: Sequence[int | None]
    needs: Sequence[Need | None]
    is_small: Sequence[bool]

    @classmethod
    def of(cls, jobs: pl.DataFrame, *, is_sharing: bool) -> AskedJobs:
        """Return the entries of rows of `given_jobs`; needs are left out where jobs do not share GPUs."""
        ones = zip(*(jobs[name].to_list() for name in ("gpus", "hosts", "mem_bytes", "sm_pct")), strict=True)
        return cls(
            turns=list(zip(jobs["rank"].to_list(), jobs["arrived"].to_list(), range(jobs.height), strict=True)),
            gpus=jobs["gpus"].to_list(),
            hosts=jobs["hosts"].to_list(),
            run_ms=jobs["ran_ms"].to_list(),
            limit_ms=jobs["limit_ms"].fill_null(UNLIMITED_MS).to_list(),
            pools=jobs["pool"].to_list(),
            models=jobs["model"].to_list(),
            partitions=jobs["partition"].to_list(),
            mem_bytes=jobs["mem_bytes"].to_list(),
            needs=[
                Need(mem_bytes, sm_pct)
                if is_sharing and gpus == hosts == 1 and mem_bytes is not None and sm_pct is not None
                else None
                for gpus, hosts, mem_bytes, sm_pct in ones
            ],
            is_small=jobs["is_small"].to_list(),
        )


@dataclass(frozen=True)
class Need:
    """What a job on one GPU needs of its memory, and uses of its SMs at its peak."""

    mem_bytes: int
    sm_pct: float


@dataclass(frozen=True)
class Part:
    """What a job has of a GPU: the share that it counts with; its need, or its memory slices as bits."""

    share: float
    need: Need
    slices: int = 0


class GpuSharing(Protocol):
    def part(self, need: Need, beside: Collection[Part] = ()) -> Part | None:
        """Return the part that a job gets beside others; None where it does not fit."""

    def is_full(self, parts: Collection[Part]) -> bool:
        """Return whether no job at all fits beside these."""


@dataclass(frozen=True)
class TakingTurns:
    """Up to `most` jobs on one GPU, if what they need of its memory and use of its SMs fits together."""

    most: int
    card_bytes: int

    def part(self, need: Need, beside: Collection[Part] = ()) -> Part | None:
        mem_bytes = need.mem_bytes + sum(each.need.mem_bytes for each in beside)
        sm_pct = need.sm_pct + sum(each.need.sm_pct for each in beside)
        fits = len(beside) < self.most and mem_bytes <= MEMORY_MAX_SHARE * self.card_bytes and sm_pct <= BUSY_MAX_PCT
        return Part(1 / self.most, need) if fits else None

    def is_full(self, parts: Collection[Part]) -> bool:
        return len(parts) == self.most


@dataclass(frozen=True)
class MigInstances:
    """The smallest MIG instance of the card in which a job fits; instances stay where they lie while they run."""

    model: str

    def part(self, need: Need, beside: Collection[Part] = ()) -> Part | None:
        fit = _profile(self.model, need)
        if fit is None:
            return None
        taken = sum(part.slices for part in beside)
        for start in reversed(fit.starts):  # those at the end of the card first: larger instances cannot use it
            slices = ((1 << fit.memory_slices) - 1) << start
            if not taken & slices:
                return Part(fit.sm_share, need, slices)
        return None

    def is_full(self, parts: Collection[Part]) -> bool:
        smallest = _profile(self.model, Need(0, 0.0))
        return smallest is None or self.part(Need(0, 0.0), parts) is None


@cache
def _profile(model: str, need: Need) -> MigFit | None:
    return first_fit(model, sm_share=need.sm_pct / 100, need_bytes=need.mem_bytes, bandwidth_share=None)


@dataclass(eq=False)
class SharedGpu:
    """A GPU of a host that jobs share: by job number their parts, and until when their time limits let them run."""

    host: int
    parts: dict[int, Part] = field(default_factory=dict)
    until: dict[int, int] = field(default_factory=dict)
    is_full: bool = False

    @property
    def planned_end(self) -> int:
        return max(self.until.values())


class Seat(NamedTuple):
    """Where a job can begin: the GPUs that it takes of hosts; of a shared GPU, that GPU and its part.

    A shared GPU is taken only once.
    """

    hold: Hold
    gpu: SharedGpu | None = None
    part: Part | None = None

    @property
    def joins(self) -> SharedGpu | None:
        """Return the GPU that others share already."""
        return None if self.hold else self.gpu

    def holds(self) -> list[tuple[int, float]]:
        """Return the hosts and how much of their GPUs the job has."""
        if self.gpu is None or self.part is None:
            return [(host, float(gpus)) for host, gpus in self.hold]
        return [(self.gpu.host, self.part.share)]


@dataclass(slots=True)
class Run:
    """A job that runs, until when by its time limit, and once it is over, until when it did."""

    number: int
    station: Station
    seat: Seat
    since: int
    planned_end: int
    end: int | None = None


class Station:
    """GPUs of one pool and model, with a queue of their own.

    `freed` counts how often something came free: as long as it stays the same, what found no room finds none.
    `first_host` is the number of its first host within its pool and model, `mem_bytes` what every GPU has at least.
    """

    def __init__(
        self, index: int, groups: Sequence[HostGroup], first_host: int, policy: ReplayPolicy, jobs: AskedJobs
    ) -> None:
        """Hosts of one pool and model, open to the same partitions."""
        self.index, self.first_host, self.jobs = index, first_host, jobs
        self.pool, self.model = groups[0].pool, groups[0].model
        self._slowdown, self._partitions = groups[0].slowdown, groups[0].partitions
        known = [group.mem_bytes for group in groups if group.mem_bytes is not None]
        self.mem_bytes = min(known) if len(known) == len(groups) else None
        self._sharing: GpuSharing | None = None
        if policy.mig:
            self._sharing = MigInstances(self.model)
        elif policy.share > 1 and self.mem_bytes is not None:
            self._sharing = TakingTurns(policy.share, self.mem_bytes)
        widths = [group.gpus_per_host for group in groups for _ in range(group.hosts)]
        widest = max(widths, default=0)
        self.room, self._empty = HostRoom(widths, widest), HostRoom(widths, widest)
        self.runs: dict[int, Run] = {}
        self.ranks: Counter[int] = Counter()
        self.queue: list[Turn] = []
        self.freed = 0
        self._shared: dict[SharedGpu, None] = {}
        self._planned: list[tuple[int, int, Hold]] = []

    def factor(self, number: int) -> float:
        """Return how many times as long a job takes here."""
        return 1.0 if self.jobs.models[number] == self.model else self._slowdown

    def is_open_to(self, partition: str | None) -> bool:
        """Return whether jobs of a partition may run here; jobs of none may run anywhere."""
        return self._partitions is None or partition is None or partition in self._partitions

    def could_hold(self, number: int) -> bool:
        """Return whether the job would have room if nothing ran."""
        return self._empty.fit(self.jobs.gpus[number], self.jobs.hosts[number]) is not None

    def planned_end(self, number: int, now: int) -> int:
        """Return until when the job may run by its time limit, if it begins now."""
        return now + round(self.jobs.limit_ms[number] * self.factor(number))

    def seat(self, number: int) -> Seat | None:
        """Return where a job could begin now; None where there is no room."""
        part = self._part(number)
        if part is not None:
            for gpu in self._shared:
                beside = None if gpu.is_full else self._part(number, gpu.parts.values())
                if beside is not None:
                    return Seat((), gpu, beside)
        return self.new_seat(self.room, number)

    def new_seat(self, room: HostRoom, number: int) -> Seat | None:
        """Return where a job could begin on the free GPUs of a room; None where it could not."""
        hold = room.fit(self.jobs.gpus[number], self.jobs.hosts[number])
        return None if hold is None else self.seat_on(hold, number)

    def seat_on(self, hold: Hold, number: int) -> Seat:
        """Return the job's seat on free GPUs: all of them, or its part of one."""
        part = self._part(number)
        return Seat(hold) if part is None else Seat(hold, SharedGpu(hold[0][0]), part)

    def begin(self, run: Run) -> None:
        """Give the job its seat and remove it from the queue."""
        hold, gpu, part = run.seat
        self.room.take(hold)
        self.runs[run.number] = run
        self.ranks[self.jobs.turns[run.number][0]] += 1
        if gpu is None or part is None or self._sharing is None:
            insort(self._planned, (run.planned_end, run.number, hold))
            return
        self._shared[gpu] = None
        gpu.parts[run.number], gpu.until[run.number] = part, run.planned_end
        gpu.is_full = self._sharing.is_full(gpu.parts.values())

    def end(self, run: Run) -> None:
        """Free the job's GPUs; a shared GPU, when the last job on it ends."""
        self.freed += 1
        del self.runs[run.number]
        rank = self.jobs.turns[run.number][0]
        self.ranks[rank] -= 1
        if not self.ranks[rank]:
            del self.ranks[rank]
        hold, gpu, _ = run.seat
        if gpu is None:
            del self._planned[bisect_left(self._planned, (run.planned_end, run.number))]
            self.room.give_back(hold)
            return
        del gpu.parts[run.number], gpu.until[run.number]
        gpu.is_full = False
        if not gpu.parts:
            del self._shared[gpu]
            self.room.give_back(((gpu.host, 1),))

    def planned_ends(self) -> Iterator[tuple[int, Hold]]:
        """Return when which GPUs become free by the time limits, the earliest first."""
        shared = sorted((gpu.planned_end, ((gpu.host, 1),)) for gpu in self._shared)
        return merge(((end, hold) for end, _, hold in self._planned), shared)

    def wait(self, turn: Turn) -> None:
        insort(self.queue, turn)

    def leave(self, turn: Turn) -> None:
        del self.queue[bisect_left(self.queue, turn)]

    def _part(self, number: int, beside: Collection[Part] = ()) -> Part | None:
        """Return a job's part of a GPU; None for whole GPUs: its need is unknown, too large or another model's."""
        need, sharing = self.jobs.needs[number], self._sharing
        if sharing is None or need is None or self.jobs.models[number] != self.model:
            return None
        return sharing.part(need, beside)


NO_GPUS = "no GPUs of its pool and model"
TOO_LITTLE_MEMORY = "not enough memory"
TOO_WIDE = "too many GPUs for any host"
TOO_MANY = "too many GPUs for the pool"
"""Why a job never fits: the first of these that holds."""


def stations_of(fleet: ReplayFleet, jobs: AskedJobs, policy: ReplayPolicy) -> list[Station]:
    """Return a station per pool, model and set of partitions to which hosts are open, in the order of the fleet.

    Stations for small work come first, since they go first at each moment.
    """
    small = policy.small_work.to if policy.small_work is not None else None
    by_place: dict[tuple[str, str, frozenset[str] | None], list[HostGroup]] = {}
    for group in sorted(fleet.groups, key=lambda group: small not in (group.pool, group.model)):
        by_place.setdefault((group.pool, group.model, group.partitions), []).append(group)
    stations, hosts = list[Station](), Counter[tuple[str, str]]()
    for (pool, model, _), groups in by_place.items():
        stations.append(Station(len(stations), groups, hosts[pool, model], policy, jobs))
        hosts[pool, model] += sum(group.hosts for group in groups)
    return stations


def waiting_at(number: int, stations: Sequence[Station], policy: ReplayPolicy) -> tuple[list[Station], str | None]:
    """Return the stations at which a job waits, the preferred first; or why there are none.

    A job waits at the stations of its pool that are open to its partition and have its model, or any model if none has
    that. In a merged pool, stations of other models follow if the job's memory fits there. Small work also waits at
    the older cards that fit it, and there first.
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
    """Return whether the job's memory fits, as it did on its own model; None if unknown."""
    need, there = station.jobs.mem_bytes[number], station.mem_bytes
    if station.jobs.models[number] == station.model:
        return True
    return None if need is None or there is None else need <= there

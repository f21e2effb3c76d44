"""The GPUs of one pool and model: what is free, who runs there until when, and who waits in which order."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from heapq import merge
from typing import NamedTuple

from analytics.plan.replay.asked_jobs import AskedJobs, Turn
from analytics.plan.replay.host_room import Hold, HostRoom
from analytics.plan.replay.shared_gpus import GpuSharing, Part, SharedGpu


class Seat(NamedTuple):
    """Where a job can begin: the GPUs that it takes of hosts; and where it shares one, which, and its part (then the GPU is taken only once)."""

    hold: Hold
    gpu: SharedGpu | None = None
    part: Part | None = None

    @property
    def joins(self) -> SharedGpu | None:
        """The GPU that others share already."""
        return None if self.hold else self.gpu

    def holds(self) -> list[tuple[int, float]]:
        """How much of the GPUs of which hosts the job has."""
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


@dataclass(frozen=True)
class Cards:
    """The GPUs of a station: how many each host has, and their memory.

    `slowdown` is how many times as long jobs of other models take, `sharing` how jobs share a GPU; `partitions` may run here (None: everybody).
    `first_host` is the number of its first host within its pool and model.
    """

    widths: tuple[int, ...]
    mem_bytes: int | None = None
    slowdown: float = 1.0
    sharing: GpuSharing | None = None
    partitions: frozenset[str] | None = None
    first_host: int = 0

    @property
    def widest(self) -> int:
        return max(self.widths, default=0)


class Station:
    """GPUs of one pool and model, with a queue of their own.

    `freed` counts how often something came free: as long as it stays the same, what found no room finds none.
    """

    def __init__(self, index: int, place: tuple[str, str], cards: Cards, jobs: AskedJobs) -> None:
        self.index, (self.pool, self.model), self.cards, self.jobs = index, place, cards, jobs
        self.room = HostRoom(cards.widths, cards.widest)
        self._empty = HostRoom(cards.widths, cards.widest)
        self.runs: dict[int, Run] = {}
        self.ranks: Counter[int] = Counter()
        self.queue: list[Turn] = []
        self.freed = 0
        self._shared: dict[SharedGpu, None] = {}
        self._planned: list[tuple[int, int, Hold]] = []

    def factor(self, number: int) -> float:
        """How many times as long a job takes here."""
        return 1.0 if self.jobs.models[number] == self.model else self.cards.slowdown

    def is_open_to(self, partition: str | None) -> bool:
        """Whether jobs of a partition may run here; those of none may anywhere."""
        return self.cards.partitions is None or partition is None or partition in self.cards.partitions

    def could_hold(self, number: int) -> bool:
        """Whether the job would have room if nothing ran."""
        return self._empty.fit(self.jobs.gpus[number], self.jobs.hosts[number]) is not None

    def planned_end(self, number: int, now: int) -> int:
        """Until when the job may run by its time limit, if it begins now."""
        return now + round(self.jobs.limit_ms[number] * self.factor(number))

    def seat(self, number: int) -> Seat | None:
        """Where a job could begin now; None where there is no room."""
        part = self._part(number)
        if part is not None:
            for gpu in self._shared:
                beside = None if gpu.is_full else self._part(number, gpu.parts.values())
                if beside is not None:
                    return Seat((), gpu, beside)
        return self.new_seat(self.room, number)

    def new_seat(self, room: HostRoom, number: int) -> Seat | None:
        """Where a job could begin in a room, on GPUs that nobody has yet."""
        hold = room.fit(self.jobs.gpus[number], self.jobs.hosts[number])
        return None if hold is None else self.seat_on(hold, number)

    def seat_on(self, hold: Hold, number: int) -> Seat:
        """The job on GPUs that nobody has yet: all of them, or its part of one."""
        part = self._part(number)
        return Seat(hold) if part is None else Seat(hold, SharedGpu(hold[0][0]), part)

    def begin(self, run: Run) -> None:
        """The job takes its seat and leaves the queue."""
        hold, gpu, part = run.seat
        self.room.take(hold)
        self.runs[run.number] = run
        self.ranks[self.jobs.turns[run.number][0]] += 1
        if gpu is None or part is None or self.cards.sharing is None:
            insort(self._planned, (run.planned_end, run.number, hold))
            return
        self._shared[gpu] = None
        gpu.parts[run.number], gpu.until[run.number] = part, run.planned_end
        gpu.is_full = self.cards.sharing.is_full(gpu.parts.values())

    def end(self, run: Run) -> None:
        """What the job had is free; a shared GPU, when the last one ends."""
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
        """When which GPUs come free by the time limits, the earliest first."""
        shared = sorted((gpu.planned_end, ((gpu.host, 1),)) for gpu in self._shared)
        return merge(((end, hold) for end, _, hold in self._planned), shared)

    def wait(self, turn: Turn) -> None:
        insort(self.queue, turn)

    def leave(self, turn: Turn) -> None:
        del self.queue[bisect_left(self.queue, turn)]

    def _part(self, number: int, beside: Collection[Part] = ()) -> Part | None:
        """What a job would have of a GPU; None where it gets whole ones: its need is unknown, too large, or was seen on another model."""
        need, sharing = self.jobs.needs[number], self.cards.sharing
        if sharing is None or need is None or self.jobs.models[number] != self.model:
            return None
        return sharing.part(need, beside)

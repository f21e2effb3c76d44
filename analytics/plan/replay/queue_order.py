"""Which waiting jobs begin now: in queue order, earlier if that delays no other job, or instead of less urgent jobs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from analytics.plan.replay.host_room import HostRoom, RoomAhead
from analytics.plan.replay.policy import Order
from analytics.plan.replay.station import Run, Seat, Station, Turn

BACKFILL_DEPTH = 100
"""How many jobs behind the first are looked at; schedulers limit it too (Slurm: bf_max_job_test)."""

Beginner: TypeAlias = tuple[int, Seat]
"""The number of a job that can begin, and where."""


class InOrder:
    """The first job in the queue begins; where it has no room, all jobs wait."""

    def __init__(self, station: Station) -> None:
        self._station = station

    def beginners(self, now: int) -> Iterator[Beginner]:  # noqa: ARG002  # Backfill looks at the clock
        """Yield the jobs that can begin. Start each before asking for the next."""
        while self._station.queue:
            number = self._station.queue[0][2]
            seat = self._station.seat(number)
            if seat is None:
                return
            yield number, seat


class Backfill(InOrder):
    """EASY (Lifka, *The ANL/IBM SP Scheduling System*, 1995).

    The first job has a reservation, at the earliest moment that the time limits of running jobs allow. A job that ends
    by then, or runs on GPUs that the first leaves free, goes before it.
    """

    def __init__(self, station: Station) -> None:
        super().__init__(station)
        self._plan: _Reservation | None = None

    def beginners(self, now: int) -> Iterator[Beginner]:
        for beginner in super().beginners(now):
            self._plan = None  # a more urgent job came to the head, and took planned room
            yield beginner
        behind = self._station.queue[1 : BACKFILL_DEPTH + 1]
        if not behind:
            return
        if self._plan is None or not self._plan.still_holds():
            self._plan = _Reservation(self._station, now)
        for turn in behind:
            seat = self._plan.seat_before(turn, now)
            if seat is not None:
                yield turn[2], seat
                self._plan.began(turn[2], seat, now)


class _Reservation:
    """When and where the first job in the queue will begin, and the room that this leaves to later jobs.

    It ignores later releases and arrivals: a job that found no room finds none as long as the reservation holds.
    """

    def __init__(self, station: Station, now: int) -> None:
        self._station, self._freed, self._first = station, station.freed, station.queue[0]
        number = self._first[2]
        shape = station.jobs.gpus[number], station.jobs.hosts[number]
        self._at: int | None = None
        self._spare = HostRoom(station.room.free, station.room.widest)
        for end, hold in station.planned_ends():
            if self._at is not None and end > self._at:
                break
            self._spare.give_back(hold)
            if self._at is None and self._spare.fit(*shape) is not None:
                self._at = max(now, end)
        self._spare.take(self._spare.fit(*shape) or ())
        lasting = [min(each) for each in zip(station.room.free, self._spare.free, strict=True)]
        self._lasting = HostRoom(lasting, station.room.widest)
        self._tried: set[Turn] = set()
        self._too_large: set[tuple[object, ...]] = set()

    def still_holds(self) -> bool:
        return self._freed == self._station.freed and self._first == self._station.queue[0]

    def seat_before(self, turn: Turn, now: int) -> Seat | None:
        """Return where a job could begin now without delaying the first; None where it could not."""
        station, number = self._station, turn[2]
        shape = station.jobs.gpus[number], station.jobs.hosts[number], station.jobs.needs[number]
        if turn in self._tried or shape in self._too_large:
            return None
        self._tried.add(turn)
        seat = station.seat(number)
        if seat is None:
            self._too_large.add(shape)
            return None
        stays_shared = seat.joins is not None and self._lasts(seat.joins.planned_end)
        if stays_shared or not self._lasts(station.planned_end(number, now)):
            return seat
        return station.new_seat(self._lasting, number)

    def began(self, number: int, seat: Seat, now: int) -> None:
        """Update the remaining room once this job has begun."""
        if self._lasts(self._station.planned_end(number, now)):
            self._spare.take(seat.hold)
        for host, _ in seat.hold:
            self._lasting.set(host, min(self._station.room.free[host], self._spare.free[host]))

    def _lasts(self, end: int) -> bool:
        """Return whether a job with this end still runs at the planned start of the first job in the queue."""
        return self._at is not None and end > self._at


class Conservative(InOrder):
    """Every job has a reservation, renewed when GPUs become free: an early start delays no job before it in the queue.

    Slurm plans in this way. Mu'alem and Feitelson, *Utilization, Predictability, Workloads, and User Runtime
    Estimates*, IEEE TPDS 12 (2001).
    """

    def __init__(self, station: Station) -> None:
        super().__init__(station)
        self._freed = -1
        self._tried: set[Turn] = set()

    def beginners(self, now: int) -> Iterator[Beginner]:
        yield from super().beginners(now)
        station = self._station
        queue = station.queue[: BACKFILL_DEPTH + 1]
        if self._freed != station.freed:
            self._freed, self._tried = station.freed, set()
        hopeful = [turn for turn in queue if turn not in self._tried and station.seat(turn[2]) is not None]
        self._tried.update(queue)
        if not hopeful:
            return
        ahead = RoomAhead(now, station.room.free, station.room.widest, station.planned_ends())
        for turn in queue[: queue.index(hopeful[-1]) + 1]:
            number = turn[2]
            end, seat = station.planned_end(number, now), station.seat(number)
            if seat is not None and seat.joins is not None and end <= seat.joins.planned_end:
                yield number, seat
                continue
            begin, hold = ahead.reserve(station.jobs.gpus[number], station.jobs.hosts[number], max(1, end - now))
            if begin == now:
                yield number, station.seat_on(hold, number)


ORDER_RULES: dict[Order, type[InOrder]] = {"fifo": InOrder, "backfill": Backfill, "conservative": Conservative}


def victims(station: Station, number: int, now: int) -> list[Run]:
    """Return the jobs to preempt for another; none if it would need equally urgent ones. Jobs on parts of GPUs stay.

    On each host the least urgent go first, and of these the last to begin. The chosen host is the one whose most urgent
    victim is the least urgent, then the one with the fewest GPU-hours run.
    """
    rank = station.jobs.turns[number][0]
    if max(station.ranks, default=rank) <= rank:
        return []
    on_host = _less_urgent(station, rank)
    free, used, found = list(station.room.free), set[int](), list[Run]()
    least, larger = divmod(station.jobs.gpus[number], station.jobs.hosts[number])
    for share in [least + 1] * larger + [least] * (station.jobs.hosts[number] - larger):
        choices = []
        for host in range(len(free)):
            chosen = None if host in used else _enough(on_host.get(host, ()), share - free[host], found)
            if chosen is not None:
                choices.append((*_loss(station, chosen, now), host, chosen))
        if not choices:
            return []
        _, _, host, chosen = min(choices, key=lambda each: each[:3])
        used.add(host)
        found += [run for run, _ in chosen]
        for run, _ in chosen:
            for other, gpus in run.seat.hold:
                free[other] += gpus
    return found


def _less_urgent(station: Station, rank: int) -> Mapping[int, Sequence[tuple[Run, int]]]:
    """Return each host's less urgent runs with their GPUs there, in the order in which they give way."""
    turns = station.jobs.turns
    runs = [run for run in station.runs.values() if run.seat.gpu is None and turns[run.number][0] > rank]
    on_host = defaultdict[int, list[tuple[Run, int]]](list)
    for run in sorted(runs, key=lambda run: (-turns[run.number][0], -run.since, run.number)):
        for host, gpus in run.seat.hold:
            on_host[host].append((run, gpus))
    return on_host


def _enough(runs: Sequence[tuple[Run, int]], missing: int, gone: Sequence[Run]) -> list[tuple[Run, int]] | None:
    """Return as many of a host's runs, in order, as have the missing GPUs; None where all have too few."""
    chosen: list[tuple[Run, int]] = []
    for run, gpus in runs:
        if missing <= 0:
            break
        if run not in gone:
            chosen.append((run, gpus))
            missing -= gpus
    if missing > 0:
        return None
    for each in list(chosen):  # a larger one that came after may be enough
        if missing + each[1] <= 0:
            chosen.remove(each)
            missing += each[1]
    return chosen


def _loss(station: Station, chosen: Sequence[tuple[Run, int]], now: int) -> tuple[float, int]:
    """Return the loss if these runs stop: the urgency of the most urgent, and the GPU time run."""
    urgency = -min((station.jobs.turns[run.number][0] for run, _ in chosen), default=math.inf)
    return urgency, sum((now - run.since) * station.jobs.gpus[run.number] for run, _ in chosen)

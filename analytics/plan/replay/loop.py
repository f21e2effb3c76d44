"""The loop of a replay: at each moment jobs end, come and begin."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import count

from analytics.allocations.spans import FOREVER_MS
from analytics.plan.replay.asked_jobs import AskedJobs
from analytics.plan.replay.policy import Priorities, ReplayPolicy
from analytics.plan.replay.preemption import victims
from analytics.plan.replay.queue_order import ORDER_RULES
from analytics.plan.replay.station import Run, Seat, Station


class ReplayLoop:
    """Runs jobs at stations. `runs` are all runs that were, in the order of their ends; `preempted` how often each job lost its GPUs.

    Args:
        jobs: what they ask for.
        stations: where they may run; the first go first at each moment.
        waits_at: at which of them each job waits, by its number; at none, it never runs.
        policy: how it is decided who begins.
    """

    def __init__(
        self, jobs: AskedJobs, stations: Sequence[Station], waits_at: Sequence[Sequence[Station]], policy: ReplayPolicy
    ) -> None:
        self.runs: list[Run] = []
        self.preempted = [0] * len(waits_at)
        self._jobs = jobs
        self._stations = stations
        self._waits_at = waits_at
        self._priorities = policy.priorities
        self._orders = [ORDER_RULES[policy.order](station) for station in stations]
        self._left_ms = list(jobs.run_ms)
        self._ending: list[tuple[int, int, Run]] = []
        self._serial = count()

    def run(self) -> None:
        """From the first job's arrival to the last one's end."""
        ending = self._ending
        coming = sorted((turn[1:] for turn in self._jobs.turns if self._waits_at[turn[2]]), reverse=True)
        while coming or ending:
            now = min(coming[-1][0] if coming else FOREVER_MS, ending[0][0] if ending else FOREVER_MS)
            changed = set[int]()
            while ending and ending[0][0] == now:
                self._end(heapq.heappop(ending)[2], now, changed)
            while coming and coming[-1][0] == now:
                self._wait(coming.pop()[1], changed)
            self._begin_all(changed, now)

    def _wait(self, number: int, changed: set[int]) -> None:
        for station in self._waits_at[number]:
            station.wait(self._jobs.turns[number])
            changed.add(station.index)

    def _begin_all(self, changed: set[int], now: int) -> None:
        """Whoever can begin where something changed does; so at the stations of jobs that give way to them."""
        while changed:
            station = self._stations[min(changed)]
            changed.remove(station.index)
            for number, seat in self._orders[station.index].beginners(now):
                self._begin(number, seat, station, now, changed)
            if self._priorities is not None and self._priorities.preempt and station.queue:
                self._make_room(station.queue[0][2], station, self._priorities, now, changed)

    def _make_room(self, number: int, station: Station, priorities: Priorities, now: int, changed: set[int]) -> None:
        """Less urgent jobs give way to one that has no room anywhere."""
        if all(each.seat(number) is None for each in self._waits_at[number]):
            for run in victims(station, number, now):
                self._preempt(run, priorities, now)
                self._wait(run.number, changed)

    def _begin(self, number: int, seat: Seat, station: Station, now: int, changed: set[int]) -> None:
        for each in self._waits_at[number]:
            each.leave(self._jobs.turns[number])
            if each is not station:
                changed.add(each.index)  # who stood behind it there may be the first now
        run = Run(number, station, seat, now, station.planned_end(number, now))
        station.begin(run)
        end = now + round(self._left_ms[number] * station.factor(number))
        heapq.heappush(self._ending, (end, next(self._serial), run))

    def _end(self, run: Run, now: int, changed: set[int]) -> None:
        if run.end is None:  # else it gave way
            run.end = now
            run.station.end(run)
            self.runs.append(run)
            changed.add(run.station.index)

    def _preempt(self, run: Run, priorities: Priorities, now: int) -> None:
        """The job loses its GPUs and waits again: it goes on where it stopped, or begins anew."""
        run.end = now
        run.station.end(run)
        self.runs.append(run)
        self.preempted[run.number] += 1
        done = round((now - run.since) / run.station.factor(run.number)) if priorities.resume else 0
        whole = self._left_ms[run.number] if priorities.resume else self._jobs.run_ms[run.number]
        self._left_ms[run.number] = whole - done + priorities.cost_ms

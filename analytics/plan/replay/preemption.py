"""Which less urgent jobs give way to one that has no room."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from analytics.plan.replay.station import Run, Station


def victims(station: Station, number: int, now: int) -> list[Run]:
    """The jobs that make room for another; none where that takes as urgent ones. Jobs on parts of GPUs stay.

    On each host the least urgent go first, of these those that began last. Of the hosts that one is taken whose most urgent victim is the
    least urgent, then where the fewest GPU-hours were run.
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
    """The runs of a higher rank on each host, with their GPUs there, in the order in which they give way."""
    turns = station.jobs.turns
    runs = [run for run in station.runs.values() if run.seat.gpu is None and turns[run.number][0] > rank]
    on_host = defaultdict[int, list[tuple[Run, int]]](list)
    for run in sorted(runs, key=lambda run: (-turns[run.number][0], -run.since, run.number)):
        for host, gpus in run.seat.hold:
            on_host[host].append((run, gpus))
    return on_host


def _enough(runs: Sequence[tuple[Run, int]], missing: int, gone: Sequence[Run]) -> list[tuple[Run, int]] | None:
    """As many of a host's runs, in their order, as have the GPUs that are missing; None where all have too few."""
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
    """By how much it hurts that these stop: how urgent the most urgent is, and GPU time run."""
    urgency = -min((station.jobs.turns[run.number][0] for run, _ in chosen), default=math.inf)
    return urgency, sum((now - run.since) * station.jobs.gpus[run.number] for run, _ in chosen)

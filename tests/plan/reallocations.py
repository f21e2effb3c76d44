"""Small fleets with what comes free, an exhaustive search over them, and what no proposal may break."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date, timedelta
from itertools import product
from typing import TYPE_CHECKING, Any

from analytics.money.requests_file import GpuRequest
from analytics.plan.endings import Chance
from analytics.plan.supply import FleetSupply, Freed, Supply, SupplyHost

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from analytics.plan.reallocation import Reallocation

TODAY = date(2026, 11, 20)
H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"
MEMORY: dict[str, int | None] = {H100: 80, A100: 40}

Answer = list[tuple[int, date, dict[int, int]] | None]
"""For each request the number of GPUs that it is given, from when, and how many of which supplies; None for nothing."""


def day(number: int) -> date:
    return TODAY + timedelta(number)


def host(name: str, width: int, model: str = H100, islands: Mapping[str, int] | None = None) -> SupplyHost:
    return SupplyHost("train", model, name, width, islands or {})


def freed(
    place: SupplyHost, gpus: int, after: int, team: str | None = None, chance: float | None = None, **more: Any
) -> Supply:
    """So many GPUs of a host that are free after so many days; idle ones that end as well do so after `ends`."""
    source, ends = more.get("source", "project_end"), more.get("ends")
    leaves = day(after) if source != "idle" else None if ends is None else day(ends)
    known = None if chance is None else Chance(None, chance, None)
    freed = Freed(day(after), source, "" if source == "idle" else f"{team}'s", team, known, leaves)
    where = {"pool": place.pool, "model": place.model, "host": place.name, "island": more.get("island")}
    return Supply(**vars(freed), **where, gpus=("",) * gpus)


def fleet(
    hosts: Sequence[SupplyHost], supplies: Sequence[Supply], allocated: Mapping[str, float] | None = None
) -> FleetSupply:
    """With names for the GPUs."""
    named = tuple(
        replace(each, gpus=tuple(f"{each.host}-{number}-{gpu}" for gpu in range(len(each.gpus))))
        for number, each in enumerate(supplies)
    )
    models = {each.model: MEMORY[each.model] for each in hosts}
    return FleetSupply(named, tuple(hosts), models, allocated or {}, TODAY, 14)


def asks(team: str, gpus: int, first: int = 0, last: int = 10, **more: Any) -> GpuRequest:
    """With priority 1, for an H100, unless told."""
    card, memory, priority = more.get("card", "H100"), more.get("memory"), more.get("priority", 1)
    return GpuRequest(2, None, team, gpus, card, memory, day(first), day(last), priority)


def score(supply: FleetSupply, requests: Sequence[GpuRequest], answer: Answer) -> tuple[float, ...]:
    """The less the better, the first number first."""
    served = [(request, each) for request, each in zip(requests, answer, strict=True) if each is not None]
    classes = sorted({each.priority for each in requests})
    gpus = [-sum(request.gpus for request, _ in served if request.priority == each) for each in classes]
    waiting = sum(request.gpus * (start - max(request.first, TODAY)).days for request, (_, start, _) in served)
    used = Counter[int]()
    for _, (_, _, taken) in served:
        used.update(taken)
    doubt = sum(_doubt(supply.supplies[number]) * count for number, count in used.items())
    touched = {_block(supply.supplies[number]) for number, count in used.items() if count}
    size = sum(len(each.gpus) for each in supply.supplies if _block(each) in touched)
    return (*gpus, waiting, round(doubt, 4), size)


def _doubt(each: Supply) -> float:
    if each.source == "idle":
        return 0
    return 1 if each.chance is None else 1 - each.chance.point


def _block(each: Supply) -> tuple[str, str | None]:
    return each.host, each.island


def best_score(supply: FleetSupply, requests: Sequence[GpuRequest], quotas: Mapping[str, float]) -> tuple[float, ...]:
    """Of all answers that break nothing, one by one."""
    left = [len(each.gpus) for each in supply.supplies]
    found = _answers(supply, requests, left)
    return min(score(supply, requests, each) for each in found if not over_quota(supply, requests, each, quotas))


def _answers(supply: FleetSupply, requests: Sequence[GpuRequest], left: list[int]) -> Iterator[Answer]:
    if not requests:
        yield []
        return
    for rest in _answers(supply, requests[1:], left):
        yield [None, *rest]
    for given, start, taken in _ways(supply, requests[0], left):
        for number, count in taken.items():
            left[number] -= count
        for rest in _answers(supply, requests[1:], left):
            yield [(given, start, taken), *rest]
        for number, count in taken.items():
            left[number] += count


def _ways(supply: FleetSupply, request: GpuRequest, left: list[int]) -> Iterator[tuple[int, date, dict[int, int]]]:
    first = max(request.first, TODAY)
    for late in range(max(1, (request.last - first).days)):
        start = first + timedelta(late)
        for model in MEMORY:
            hosts = [each for each in supply.hosts if each.model == model]
            if hosts and takes(request, model) and first <= request.last:
                width = max(each.width for each in hosts)
                given = request.gpus if request.gpus <= width else -(-request.gpus // width) * width
                numbers = [
                    number
                    for number, each in enumerate(supply.supplies)
                    if each.model == model and each.free_from <= start
                ]
                for counts in product(*(range(min(left[number], given) + 1) for number in numbers)):
                    taken = {number: count for number, count in zip(numbers, counts, strict=True) if count}
                    if sum(counts) == given and is_in_place(supply, request.gpus, taken):
                        yield given, start, taken


def takes(request: GpuRequest, model: str) -> bool:
    is_card = request.card is None or {"H100": H100, "A100": A100}[request.card] == model
    return is_card and (request.memory_gib is None or (MEMORY[model] or 0) >= request.memory_gib)


def is_in_place(supply: FleetSupply, asked: int, taken: Mapping[int, int]) -> bool:
    """Whether GPUs are on one island, on one host if no island is as wide, or on whole hosts if beyond one host."""
    found = Counter[str]()
    for number, count in taken.items():
        found[supply.supplies[number].host] += count
    hosts = {each.name: each for each in supply.hosts}
    model = supply.supplies[next(iter(taken))].model
    width = max(each.width for each in supply.hosts if each.model == model)
    if asked > width:
        return all(hosts[name].width == count == width for name, count in found.items())
    (name, *others) = found
    islands = hosts[name].islands
    is_narrow = bool(islands) and asked <= max(islands.values())
    return not others and (not is_narrow or len({supply.supplies[number].island for number in taken}) == 1)


def over_quota(
    supply: FleetSupply, requests: Sequence[GpuRequest], answer: Answer, quotas: Mapping[str, float]
) -> bool:
    """Whether a team has more than its quota on a day on which it is given anything."""
    used = Counter[int]()
    for each in filter(None, answer):
        used.update(each[2])
    for team, quota in quotas.items():
        own = [(request, each) for request, each in zip(requests, answer, strict=True) if each and request.team == team]
        for number in range(60):
            active = sum(given for request, (given, start, _) in own if start <= day(number) <= request.last)
            gone = 0
            for place, each in enumerate(supply.supplies):
                if each.team == team:
                    is_over = each.leaves is not None and each.leaves <= day(number)
                    gone += len(each.gpus) if is_over else used[place] if each.source == "idle" else 0
            if active and supply.allocated.get(team, 0) - gone + active > quota:
                return True
    return False


def answer_of(supply: FleetSupply, requests: Sequence[GpuRequest], found: Reallocation) -> Answer:
    """A proposal in the form of the exhaustive search; GPUs are looked up by name."""
    home = {gpu: number for number, each in enumerate(supply.supplies) for gpu in each.gpus}
    answers = {
        id(each.request): (
            each.given,
            each.start,
            dict(Counter(home[gpu] for grant in each.grants for gpu in grant.gpus)),
        )
        for each in found.served
    }
    return [answers.get(id(request)) for request in requests]


def broken(
    supply: FleetSupply, requests: Sequence[GpuRequest], found: Reallocation, quotas: Mapping[str, float]
) -> list[str]:
    """What a proposal breaks."""
    said = []
    gpus = [gpu for each in found.served for grant in each.grants for gpu in grant.gpus]
    free = {gpu: each.free_from for each in supply.supplies for gpu in each.gpus}
    left = [gpu for each in found.left for gpu in each.gpus]
    if sorted([*gpus, *left]) != sorted(free):
        said.append("a GPU is given twice, or lost")
    for each in found.served:
        own = [gpu for grant in each.grants for gpu in grant.gpus]
        request = each.request
        if not all(takes(request, grant.model) for grant in each.grants):
            said.append("card")
        if any(free[gpu] > each.start for gpu in own):
            said.append("before it is free")
        if not max(request.first, TODAY) <= each.start <= max(request.first, TODAY, request.last - timedelta(1)):
            said.append("start")
        (taken,) = [one[2] for one in answer_of(supply, [request], replace(found, served=(each,))) if one is not None]
        if not is_in_place(supply, request.gpus, taken) or len(own) < request.gpus:
            said.append("block")
    if over_quota(supply, requests, answer_of(supply, requests, found), quotas):
        said.append("quota")
    if len(found.served) + len(found.unserved) != len(requests):
        said.append("a request is lost")
    return said

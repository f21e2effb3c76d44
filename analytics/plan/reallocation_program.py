"""Reallocation as an integer program: blocks, days, quotas, and the ranking of answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from typing import TypeVar

import numpy as np

from analytics.money.requests_file import GpuRequest
from analytics.plan.supply import FleetSupply, Host, SupplyHost
from analytics.solver import one_thread_solver

_SEARCH_S = 1.0

_TOLERANCE = 1e-6

Terms = Iterable[tuple[int, float]]
"""Columns with their coefficients. A column that occurs twice counts twice."""


class IntegerProgram:
    """Integer columns from 0 up, with linear constraints as rows. All columns at 0 must be allowed.

    `is_proven` is True if every search proved its optimum. `values` are those that the last search found.
    """

    def __init__(self) -> None:
        self._solver = one_thread_solver()
        self._columns = 0
        self.is_proven = True
        self.values: tuple[int, ...] = ()

    def column(self, most: float = 1) -> int:
        import highspy

        self._solver.addVar(0.0, most)
        self._solver.changeColIntegrality(self._columns, highspy.HighsVarType.kInteger)
        self._columns += 1
        return self._columns - 1

    def at_most(self, terms: Terms, high: float) -> None:
        """Add a row: the sum is at most `high`."""
        self._row(terms, -np.inf, high)

    def equal(self, terms: Terms) -> None:
        """Add a row: the sum is 0."""
        self._row(terms, 0.0, 0.0)

    def _row(self, terms: Terms, low: float, high: float) -> None:
        summed: dict[int, float] = {}
        for column, factor in terms:
            summed[column] = summed.get(column, 0.0) + factor
        columns, factors = np.array(list(summed), dtype=np.int32), np.array(list(summed.values()), dtype=np.float64)
        self._solver.addRow(low, high, len(columns), columns, factors)

    def least(self, costs: Mapping[int, float], bound: float, within_s: float = _SEARCH_S) -> None:
        """Minimise the sum of costs within a time limit and fix the result as a constraint.

        The sum is known to be at least `bound`.
        """
        self.values = self.values or (0,) * self._columns
        if self._sum(costs) > bound + _TOLERANCE:
            everywhere = np.zeros(self._columns)
            everywhere[list(costs)] = list(costs.values())
            self._solver.changeColsCost(self._columns, np.arange(self._columns, dtype=np.int32), everywhere)
            self._solver.setOptionValue("time_limit", within_s)
            self._search()
        self._row(costs.items(), -np.inf, self._sum(costs) + _TOLERANCE)

    def _sum(self, costs: Mapping[int, float]) -> float:
        return sum(cost * self.values[column] for column, cost in costs.items())

    def _search(self) -> None:
        """Search from the earlier values, which stay if the search finds nothing."""
        import highspy

        solver = self._solver
        start = highspy.HighsSolution()
        start.col_value = list(map(float, self.values))
        solver.setSolution(start)
        solver.run()
        self.is_proven &= solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        if solver.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
            self.values = tuple(map(round, solver.getSolution().col_value))


_Each = TypeVar("_Each")
_Key = TypeVar("_Key")

Place = int | tuple[str, ...]
"""Where a request is served: a block by its number, a host with shared islands (pool, model, host), or whole hosts of a
pool (pool, model)."""

_DAY = timedelta(1)

SERVED_S = 5.0
"""The search for the served requests matters most, so it may take longer than the others."""


@dataclass(frozen=True)
class ChosenStart:
    """A request, by its number, that is served from a day, with its GPUs by the number of their supply."""

    request: int
    day: date
    gpus: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True)
class _Block:
    """A host, or an NVLink island narrower than its host, with its supplies by their numbers."""

    width: int
    supplies: tuple[int, ...]


@dataclass(frozen=True)
class _Start:
    """A column: the request is served from a day in a place, where it gets `parts` (GPUs or hosts)."""

    request: int
    day: date
    place: Place
    given: int
    parts: int
    column: int


@dataclass(frozen=True)
class _Part:
    """A column: the parts of a place taken on a day. Each part takes GPUs of the blocks in `uses`."""

    column: int
    uses: Mapping[int, int]


@dataclass(frozen=True)
class _Use:
    """A column that takes a multiple of `gpus` GPUs of a block from a day."""

    day: date
    column: int
    gpus: int


def latest_start(request: GpuRequest) -> date:
    """Return the last day on which a request may start: the day before its last."""
    return max(request.first, request.last - _DAY)


class ReallocationProgram:
    """The program of all possible allocations.

    A request is served in full or not at all, from one day and in one place. A GPU goes to one request.
    Answers are ranked in this order: most GPUs of the most urgent requests, then of the next priority, and so on;
    fewest GPU-days of
    waiting after the first requested day; fewest GPUs expected not to become free; fewest GPUs left over in broken
    blocks. Every
    search has a time limit: `serves_most` is True if it is proven that no answer serves more, `is_proven` if none is
    better.
    """

    serves_most = is_proven = False

    def __init__(self, supply: FleetSupply, requests: Sequence[GpuRequest], quotas: Mapping[str, float]) -> None:
        self._supply, self._requests = supply, requests
        self._quotas = _binding_quotas(supply, requests, quotas)
        self._program = IntegerProgram()
        self._used = [self._program.column(len(each.gpus)) for each in supply.supplies]
        self._pools: dict[tuple[str, str], list[SupplyHost]] = defaultdict(list)
        for host in supply.hosts:
            self._pools[host.pool, host.model].append(host)
        self._blocks, self._of_host = _blocks(supply)
        self._parts: dict[tuple[Place, date], list[_Part]] = {}
        self._starts = [start for number in range(len(requests)) for start in self._starts_of(number)]
        self._touched = [self._program.column() for _ in self._blocks]
        self._add_rows()

    @property
    def startable(self) -> frozenset[int]:
        """Return the requests with a place on some day, without other requests and quotas."""
        return frozenset(each.request for each in self._starts)

    def best(self) -> tuple[ChosenStart, ...]:
        """Return the best answer found; `serves_most` and `is_proven` then describe what is proven."""
        program, requests = self._program, self._requests
        for priority in sorted({each.priority for each in requests}):
            own = {number for number in self.startable if requests[number].priority == priority}
            gpus = {each.column: -float(requests[each.request].gpus) for each in self._starts if each.request in own}
            program.least(gpus, -float(sum(requests[number].gpus for number in own)), within_s=SERVED_S)
        self.serves_most = program.is_proven
        program.least({each.column: self._waiting(each) for each in self._starts}, 0)
        program.least({self._used[number]: each.doubt for number, each in enumerate(self._supply.supplies)}, 0)
        program.least({self._touched[number]: self._free_at_all(each) for number, each in enumerate(self._blocks)}, 0)
        self.is_proven = program.is_proven
        return tuple(self._chosen_starts())

    def _first(self, request: GpuRequest) -> date:
        return max(request.first, self._supply.today)

    def _free_at_all(self, block: _Block) -> float:
        return float(sum(len(self._supply.supplies[each].gpus) for each in block.supplies))

    def _waiting(self, start: _Start) -> float:
        request = self._requests[start.request]
        return float(request.gpus * (start.day - self._first(request)).days)

    # --- columns ----------------------------------------------------------------------------------------------------

    def _starts_of(self, number: int) -> Iterator[_Start]:
        request = self._requests[number]
        for (pool, model), hosts in self._pools.items():
            if not request.takes(model, self._supply.models[model]):
                continue
            width = max(host.width for host in hosts)
            if request.gpus > width:
                yield from self._of_whole_hosts(number, (pool, model), width)
            else:
                for host in hosts:
                    yield from self._on_host(number, host)

    def _of_whole_hosts(self, number: int, place: tuple[str, str], width: int) -> Iterator[_Start]:
        wanted = -(-self._requests[number].gpus // width)
        ready = {
            host.key: max(self._supply.supplies[each].free_from for each in self._supplies_of(host))
            for host in self._pools[place]
            if host.width == width == sum(len(self._supply.supplies[each].gpus) for each in self._supplies_of(host))
        }
        for day in self._days(number, ready.values()):
            hosts = [host for host, free_from in ready.items() if free_from <= day]
            if len(hosts) < wanted:
                continue
            if (place, day) not in self._parts:
                self._parts[place, day] = [
                    _Part(self._program.column(), {block: self._blocks[block].width for block in self._of_host[host]})
                    for host in hosts
                ]
            yield _Start(number, day, place, wanted * width, wanted, self._program.column())

    def _supplies_of(self, host: SupplyHost) -> list[int]:
        blocks = self._of_host.get(host.key, ())
        return [each for block in blocks for each in self._blocks[block].supplies]

    def _on_host(self, number: int, host: SupplyHost) -> Iterator[_Start]:
        """Yield starts in a single island, if any island of the host is wide enough; else across islands."""
        gpus, key = self._requests[number].gpus, host.key
        if not host.islands or gpus <= max(host.islands.values()):
            for block in self._of_host.get(key, ()):
                for day in self._days_in(number, self._blocks[block].supplies):
                    yield _Start(number, day, block, gpus, 1, self._program.column())
            return
        for day in self._days_in(number, self._supplies_of(host)):
            if (key, day) not in self._parts:
                self._parts[key, day] = [
                    _Part(self._program.column(self._free(self._blocks[block].supplies, day)), {block: 1})
                    for block in self._of_host[key]
                ]
            yield _Start(number, day, key, gpus, gpus, self._program.column())

    def _days_in(self, number: int, supplies: Sequence[int]) -> Iterator[date]:
        """Yield the days on which enough of these supplies are free."""
        for day in self._days(number, [self._supply.supplies[each].free_from for each in supplies]):
            if self._free(supplies, day) >= self._requests[number].gpus:
                yield day

    def _free(self, supplies: Sequence[int], day: date) -> int:
        found = (self._supply.supplies[each] for each in supplies)
        return sum(len(each.gpus) for each in found if each.free_from <= day)

    def _days(self, number: int, changes: Iterable[date]) -> list[date]:
        """Return the first day, and later days on which more may be possible, because of freed GPUs or the quota."""
        request = self._requests[number]
        if request.last < self._supply.today:
            return []
        first, last = self._first(request), latest_start(request)
        later = {*changes, *self._quota_days.get(request.team, ())}
        return [first, *sorted(day for day in later if first < day <= last)]

    @cached_property
    def _quota_days(self) -> Mapping[str, frozenset[date]]:
        """Return by team with a quota the days on which its quota may have more room."""
        left = [(each.team, each.leaves) for each in self._supply.supplies if each.leaves is not None]
        over = [(each.team, each.last + _DAY) for each in self._requests]
        return {team: frozenset(day for own, day in (*left, *over) if own == team) for team in self._quotas}

    # --- rows -------------------------------------------------------------------------------------------------------

    def _add_rows(self) -> None:
        for own in _grouped(self._starts, lambda each: each.request).values():
            self._program.at_most([(each.column, 1) for each in own], 1)
        wanted = _grouped(self._starts, lambda each: (each.place, each.day))
        for key, parts in self._parts.items():
            given = [(part.column, 1) for part in parts]
            self._program.equal([*given, *((each.column, -each.parts) for each in wanted[key])])
        for block, uses in self._uses.items():
            self._add_block(block, uses)
        for team in self._quotas:
            self._add_quota(team)

    @cached_property
    def _uses(self) -> Mapping[int, list[_Use]]:
        found: dict[int, list[_Use]] = {block: [] for block in range(len(self._blocks))}
        for each in self._starts:
            if isinstance(each.place, int):
                found[each.place].append(_Use(each.day, each.column, each.given))
        for (_, day), parts in self._parts.items():
            for part in parts:
                for block, gpus in part.uses.items():
                    found[block].append(_Use(day, part.column, gpus))
        return found

    def _add_block(self, block: int, uses: Sequence[_Use]) -> None:
        """Add rows: starts before a day use GPUs that are free before it, and all GPUs come from a supply."""
        supplies = [(self._supply.supplies[each].free_from, self._used[each]) for each in self._blocks[block].supplies]
        for day in sorted({free_from for free_from, _ in supplies})[1:]:
            early = [(use.column, use.gpus) for use in uses if use.day < day]
            self._program.at_most([*early, *((column, -1) for free_from, column in supplies if free_from < day)], 0)
        self._program.equal([*((use.column, use.gpus) for use in uses), *((column, -1) for _, column in supplies)])
        size = self._free_at_all(self._blocks[block])
        self._program.at_most([*((column, 1) for _, column in supplies), (self._touched[block], -size)], 0)

    def _add_quota(self, team: str) -> None:
        """Add rows: on a day on which a team gets GPUs, it never exceeds its quota.

        Idle GPUs that it loses are gone from today.
        """
        own = [each for each in self._starts if self._requests[each.request].team == team]
        theirs = [(number, each) for number, each in enumerate(self._supply.supplies) if each.team == team]
        for day in sorted({each.day for each in own}):
            at_once = [each for each in own if each.day <= day <= self._requests[each.request].last]
            gone = sum(len(each.gpus) for _, each in theirs if each.leaves is not None and each.leaves <= day)
            kept = [number for number, each in theirs if each.leaves is None or each.leaves > day]
            idle = [(self._used[number], -1) for number in kept if self._supply.supplies[number].source == "idle"]
            given = [*((each.column, each.given) for each in at_once), *idle]
            room = self._quotas[team] - self._supply.allocated.get(team, 0.0) + gone
            if room >= 0:
                self._program.at_most(given, room)
            else:  # a team that has more than its quota is given nothing, unless it gives as much
                any_given = self._program.column()
                for each in at_once:
                    self._program.at_most([(each.column, 1), (any_given, -1)], 0)
                self._program.at_most([*given, (any_given, -room)], 0)

    # --- the answer -------------------------------------------------------------------------------------------------

    def _chosen_starts(self) -> Iterator[ChosenStart]:
        """Yield the starts in order of their days, so that later GPUs remain for later starts.

        Among free GPUs, the most certain come first.
        """
        values = self._program.values
        left = [each.gpus[: values[column]] for each, column in zip(self._supply.supplies, self._used, strict=True)]
        parts = {part.column: values[part.column] for own in self._parts.values() for part in own}
        chosen = [each for each in self._starts if values[each.column]]
        for each in sorted(
            chosen, key=lambda start: (start.day, self._requests[start.request].priority, start.request)
        ):
            taken: dict[int, tuple[str, ...]] = {}
            for block, gpus in self._amounts(each, parts):
                self._take(block, gpus, each.day, left, taken)
            yield ChosenStart(each.request, each.day, taken)

    def _amounts(self, start: _Start, left: dict[int, int]) -> Iterator[tuple[int, int]]:
        """Yield GPU counts by block. Parts of a place that several requests take on a day are taken in order."""
        if isinstance(start.place, int):
            yield start.place, start.given
            return
        wanted = start.parts
        for part in self._parts[start.place, start.day]:
            number = min(wanted, left[part.column])
            left[part.column] -= number
            wanted -= number
            yield from ((block, gpus * number) for block, gpus in part.uses.items())

    def _take(
        self, block: int, gpus: int, day: date, left: list[tuple[str, ...]], taken: dict[int, tuple[str, ...]]
    ) -> None:
        found = [(self._supply.supplies[each], each) for each in self._blocks[block].supplies]
        for each, number in sorted(found, key=lambda one: (one[0].doubt, one[0].free_from, one[1])):
            some = left[number][:gpus] if each.free_from <= day else ()
            if some:
                left[number] = left[number][len(some) :]
                taken[number] = (*taken.get(number, ()), *some)
                gpus -= len(some)


def _binding_quotas(
    supply: FleetSupply, requests: Sequence[GpuRequest], quotas: Mapping[str, float]
) -> dict[str, float]:
    """Return the quotas that matter: a team that could get all its requests, even in whole hosts, needs no rows."""
    widest = max((host.width for host in supply.hosts), default=0)
    asked = dict.fromkeys(quotas, 0)
    for each in requests:
        if each.team in asked:
            asked[each.team] += each.gpus + widest
    return {team: quota for team, quota in quotas.items() if supply.allocated.get(team, 0.0) + asked[team] > quota}


def _blocks(supply: FleetSupply) -> tuple[list[_Block], dict[Host, list[int]]]:
    """Return the blocks in which GPUs become free, and their numbers by host."""
    hosts = {host.key: host for host in supply.hosts}
    found = _grouped(
        range(len(supply.supplies)), lambda each: (supply.supplies[each].host_key, supply.supplies[each].island)
    )
    blocks: list[_Block] = []
    of_host: dict[Host, list[int]] = defaultdict(list)
    for (host, island), own in found.items():
        width = hosts[host].width if island is None else hosts[host].islands[island]
        of_host[host].append(len(blocks))
        blocks.append(_Block(width, tuple(own)))
    return blocks, of_host


def _grouped(each: Iterable[_Each], key: Callable[[_Each], _Key]) -> dict[_Key, list[_Each]]:
    found: dict[_Key, list[_Each]] = {}
    for one in each:
        found.setdefault(key(one), []).append(one)
    return found

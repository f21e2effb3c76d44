"""The proposed reallocation: each team's new GPUs with day and former team, unserved requests, and remaining GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

from analytics.money.requests_file import GpuRequest
from analytics.plan.reallocation_program import ChosenStart, ReallocationProgram, latest_start
from analytics.plan.supply import FleetSupply, Supply

Reason = Literal["over", "no_card", "too_few", "no_block", "quota", "others"]
"""Why a request is not served: its days are over, no GPU matches, too few are free in time, no block is wide enough,
the team's quota, or other requests come first."""


@dataclass(frozen=True)
class ServedRequest:
    """A request, the day from which it has its GPUs, and these GPUs: a part of each supply."""

    request: GpuRequest
    start: date
    grants: tuple[Supply, ...]

    @property
    def given(self) -> int:
        """Return the number of GPUs that it gets: more than requested if whole hosts have more."""
        return sum(len(each.gpus) for each in self.grants)


@dataclass(frozen=True)
class UnservedRequest:
    """A request that gets no GPUs."""

    request: GpuRequest
    reason: Reason
    free: int
    """Matching GPUs that are free on day `by`."""
    by: date
    """The last day on which the request could start, or the last day with known endings."""


@dataclass(frozen=True)
class TeamBalance:
    """The GPUs that a team gains and loses."""

    team: str
    gains: int
    loses: int
    keeps: int
    """GPUs of the team that the proposal gives to the same team."""


@dataclass(frozen=True)
class Reallocation:
    """The proposal for all requests, in the order of the file."""

    served: tuple[ServedRequest, ...]
    unserved: tuple[UnservedRequest, ...]
    left: tuple[Supply, ...]
    """The supply that goes to no request, up to `last_day`."""
    without_quota: tuple[str, ...]
    """Teams with requests and without a known quota."""
    last_day: date
    serves_most: bool
    """True if it is proven that no proposal serves more."""
    is_proven: bool
    """True if it is proven that no proposal is better."""
    of_one_team: bool = False
    """True if the proposal is reduced to what a team may know."""
    of_part: bool = False
    """True if the proposal covers only some of the GPUs. It then has no unserved requests."""

    @property
    def balances(self) -> tuple[TeamBalance, ...]:
        """Return gains and losses by team. GPUs without a known team are no team's loss."""
        gains, loses, keeps = Counter[str](), Counter[str](), Counter[str]()
        for each in self.served:
            for grant in each.grants:
                to = each.request.team
                (keeps if grant.team == to else gains)[to] += len(grant.gpus)
                if grant.team not in (None, to):
                    loses[str(grant.team)] += len(grant.gpus)
        names = sorted({*gains, *loses, *keeps})
        return tuple(TeamBalance(each, gains[each], loses[each], keeps[each]) for each in names)

    def of_team(self, team: str) -> Reallocation:
        """Return what a team may see: its own requests, without the GPUs' teams and without the remaining GPUs."""
        return replace(
            self,
            served=tuple(
                replace(
                    each, grants=tuple(g if g.team == team else replace(g, team=None, name="") for g in each.grants)
                )
                for each in self.served
                if each.request.team == team
            ),
            unserved=tuple(each for each in self.unserved if each.request.team == team),
            left=(),
            of_one_team=True,
            without_quota=tuple(each for each in self.without_quota if each == team),
        )

    def of_gpus(self, pool: str | None, model: str | None) -> Reallocation:
        """Return the served requests and remaining GPUs of a pool or model, without unserved requests."""
        if pool is None and model is None:
            return self

        def own(supplies: Sequence[Supply]) -> tuple[Supply, ...]:
            return tuple(each for each in supplies if pool in (None, each.pool) and model in (None, each.model))

        served = (replace(each, grants=own(each.grants)) for each in self.served)
        return replace(
            self, served=tuple(each for each in served if each.grants), unserved=(), left=own(self.left), of_part=True
        )


def propose(supply: FleetSupply, requests: Sequence[GpuRequest], quotas: Mapping[str, float]) -> Reallocation:
    """Return the best proposal (see ReallocationProgram); `quotas` has the teams with a quota."""
    program = ReallocationProgram(supply, requests, quotas)
    chosen = program.best()
    served = {each.request for each in chosen}
    return Reallocation(
        served=tuple(_served(supply, requests, each) for each in sorted(chosen, key=lambda one: one.request)),
        unserved=tuple(
            _unserved(supply, each, quotas, [requests[one] for one in served], is_startable=number in program.startable)
            for number, each in enumerate(requests)
            if number not in served
        ),
        left=_left(supply, chosen),
        without_quota=tuple(sorted({each.team for each in requests} - set(quotas))),
        last_day=supply.last_day,
        serves_most=program.serves_most,
        is_proven=program.is_proven,
    )


def _unserved(
    supply: FleetSupply,
    request: GpuRequest,
    quotas: Mapping[str, float],
    served: Sequence[GpuRequest],
    *,
    is_startable: bool,
) -> UnservedRequest:
    asked = [each for each in supply.supplies if request.takes(each.model, supply.models[each.model])]
    by = min(max(latest_start(request), supply.today), supply.last_day)
    free = sum(len(each.gpus) for each in asked if each.free_from <= by)
    reason = _reason_alone(supply, request, free, is_startable=is_startable) or _reason_among(
        supply, request, quotas, served
    )
    return UnservedRequest(request, reason, free, by)


def _reason_alone(supply: FleetSupply, request: GpuRequest, free: int, *, is_startable: bool) -> Reason | None:
    """Return the obstacle that does not depend on other requests or on the quota; None without one."""
    if request.last < supply.today:
        return "over"
    if not any(request.takes(model, memory) for model, memory in supply.models.items()):
        return "no_card"
    if free < request.gpus:
        return "too_few"
    if not is_startable:
        return "no_block"
    return None


def _reason_among(
    supply: FleetSupply, request: GpuRequest, quotas: Mapping[str, float], served: Sequence[GpuRequest]
) -> Reason:
    """Return the reason among other requests: the team's quota, alone or with its other requests, else the others."""
    if request.team not in quotas:
        return "others"
    if not ReallocationProgram(supply, [request], quotas).best():
        return "quota"
    if not any(each.team == request.team for each in served):
        return "others"
    unbound = {team: quota for team, quota in quotas.items() if team != request.team}
    return "quota" if len(ReallocationProgram(supply, [*served, request], unbound).best()) > len(served) else "others"


def _served(supply: FleetSupply, requests: Sequence[GpuRequest], chosen: ChosenStart) -> ServedRequest:
    found = ((supply.supplies[number], gpus) for number, gpus in sorted(chosen.gpus.items()))
    return ServedRequest(requests[chosen.request], chosen.day, tuple(replace(each, gpus=gpus) for each, gpus in found))


def _left(supply: FleetSupply, chosen: Sequence[ChosenStart]) -> tuple[Supply, ...]:
    given = {gpu for each in chosen for gpus in each.gpus.values() for gpu in gpus}
    left = (replace(each, gpus=tuple(gpu for gpu in each.gpus if gpu not in given)) for each in supply.supplies)
    return tuple(each for each in left if each.gpus)

"""The cheapest mix of GPUs to buy, to reserve, to rent and to take as spot, for a given demand.

Screening curves (Stoft, Power System Economics, 2002, part 2-2), as for power plants and a load duration curve: the
cost of an
option is a line over the hours of use of a GPU, so the cheapest option is found for each GPU of the curve separately. A
test shows
that the result is the optimum of the linear program over all hours: tests/plan/test_purchase.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analytics.money.offers import COMMITTED, GpuOffer, OfferKind
from analytics.money.prices import HOURS_PER_YEAR
from analytics.proportions import whole_ceil

Hours = NDArray[np.float64]


@dataclass(frozen=True)
class Option:
    """The cost of a GPU of an offer."""

    offer: GpuOffer
    fixed: float
    """Cost of each hour of the term."""
    used: float
    """Additional cost of each hour of use."""

    @property
    def hourly(self) -> float:
        """Return the cost of an hour of use."""
        return self.fixed + self.used

    @property
    def is_committed(self) -> bool:
        """Return whether the GPU is paid for while unused."""
        return self.offer.kind in COMMITTED

    def pays_from(self, rented: float) -> float | None:
        """Return the share of hours from which the option is cheaper than renting at a price; None if it never is."""
        saved = rented - self.used
        return self.fixed / saved if saved > 0 and self.fixed <= saved else None


@dataclass(frozen=True)
class MixPart:
    """The part of a mix with a single option: most GPUs at once, GPU-hours of use, and their cost over some hours."""

    option: Option
    gpus: int
    gpu_hours: float
    cost: float
    hours: int

    @property
    def used_share(self) -> float:
        return self.gpu_hours / (self.gpus * self.hours)

    @property
    def yearly_cost(self) -> float:
        """Return the cost of a year that is like these hours."""
        return self.cost * HOURS_PER_YEAR / self.hours


@dataclass(frozen=True)
class Mix:
    """The cheapest mix for a number of hours. The parts are in the order in which they fill up: the most used first."""

    hours: int
    parts: tuple[MixPart, ...]

    @property
    def cost(self) -> float:
        return sum(part.cost for part in self.parts)

    @property
    def yearly_cost(self) -> float:
        """Return the cost of a year that is like these hours."""
        return self.cost * HOURS_PER_YEAR / self.hours

    @property
    def committed_gpus(self) -> int:
        return sum(part.gpus for part in self.parts if part.option.is_committed)


def cheapest_mix(need: Hours, firm: Hours, options: Sequence[Option]) -> Mix | None:
    """Return the mix that serves every hour at the lowest cost; None if the options cannot: spot takes no firm work.

    Bought and reserved GPUs are whole GPUs.

    `need` and `firm` are GPUs in each hour; the work of `firm` must not be interrupted. If several options of a kind
    are paid by use, the cheapest counts.
    """
    hours, levels = len(need), whole_ceil(float(need.max(initial=0.0)))
    firm_hours, all_hours = _level_hours(firm, levels), _level_hours(need, levels)
    choices = tuple(_choices(options))
    costs = np.stack([each.costs(firm_hours, all_hours, hours) for each in choices])
    best = costs.argmin(axis=0)
    if not np.isfinite(costs.min(axis=0)).all():
        return None
    parts = {id(each): _Sum(each) for each in options}
    for place, choice in enumerate(choices):
        own = best == place
        choice.add(parts, firm_hours[own], all_hours[own] - firm_hours[own])
    mixed = [part.of(hours) for part in parts.values() if part.gpus]
    return Mix(
        hours, tuple(sorted(mixed, key=lambda part: (not part.option.is_committed, -part.gpu_hours / part.gpus)))
    )


def _level_hours(need: Hours, levels: int) -> Hours:
    """Return the hours in which the first, second ... GPU is needed; a part of an hour if it is partly needed."""
    return np.array([np.clip(need - level, 0.0, 1.0).sum() for level in range(levels)])


@dataclass(frozen=True)
class _Choice:
    """A way to do the work of a level of the curve: the committed option, and the options for firm and other work."""

    committed: Option | None
    firm: Option | None
    other: Option | None

    def costs(self, firm_hours: Hours, all_hours: Hours, hours: int) -> Hours:
        """Return the cost of each level; infinite if no option can do its work."""
        fixed = 0.0 if self.committed is None else self.committed.fixed * hours
        return fixed + _use(self.firm, firm_hours) + _use(self.other, all_hours - firm_hours)

    def add(self, parts: Mapping[int, _Sum], firm_hours: Hours, other_hours: Hours) -> None:
        """Add the levels for which this choice is the cheapest."""
        used = {
            id(each): np.zeros_like(firm_hours) for each in (self.committed, self.firm, self.other) if each is not None
        }
        for option, own in ((self.firm, firm_hours), (self.other, other_hours)):
            if option is not None:
                used[id(option)] = used[id(option)] + own
        for key, own in used.items():
            parts[key].gpus += len(own) if key == id(self.committed) else int((own > 0).sum())
            parts[key].gpu_hours += float(own.sum())


@dataclass
class _Sum:
    option: Option
    gpus: int = 0
    gpu_hours: float = 0.0

    def of(self, hours: int) -> MixPart:
        cost = self.option.fixed * self.gpus * hours if self.option.is_committed else 0.0
        return MixPart(self.option, self.gpus, self.gpu_hours, cost + self.option.used * self.gpu_hours, hours)


def _choices(options: Sequence[Option]) -> Iterator[_Choice]:
    """Yield the choices: rent, and each committed option.

    The first of equally cheap choices wins: no commitment without a benefit.
    """
    rented, spot = cheapest(options, "on_demand"), cheapest(options, "spot")
    yield _Choice(None, rented, _cheaper(rented, spot))
    for each in options:
        if each.is_committed:
            yield _Choice(each, each, _cheaper(each, spot))


def cheapest(options: Sequence[Option], kind: OfferKind) -> Option | None:
    """Return the option of a kind with the lowest cost of use; None without one."""
    return min((each for each in options if each.offer.kind == kind), key=lambda each: each.used, default=None)


def _cheaper(first: Option | None, second: Option | None) -> Option | None:
    known = [each for each in (first, second) if each is not None]
    return min(known, key=lambda each: each.used, default=None)


def _use(option: Option | None, used_hours: Hours) -> Hours:
    if option is None:
        return np.where(used_hours > 0, np.inf, 0.0)
    return option.used * used_hours

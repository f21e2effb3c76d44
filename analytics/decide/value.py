"""The value of acting a year, in two figures that are never added: cash, and freed GPU time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analytics.language.sentences import tr
from analytics.money.energy import Grid
from analytics.proportions import Estimate

KIND_UNKNOWN = tr("the price table has no kind (bought or rented) for these GPUs: column kind of money.prices")
RUNNING_COST_UNKNOWN = tr("these GPUs have no yearly cost in money.prices and no known power")


def total(estimates: Iterable[Estimate]) -> Estimate:
    """Return the sum of estimates; its bounds are the sums of their bounds.

    If every figure lies within its bounds, the sum lies within these, whether or not the figures vary together. Bounds
    that assume independence would be narrower, but nothing shows that waste on one site is independent.
    """
    known = list(estimates)
    return Estimate(*(sum(getattr(each, name) for each in known) for name in ("low", "point", "high")))


@dataclass(frozen=True)
class ValueBasis:
    """The basis of every yearly figure, the same for every window.

    Attributes:
        weeks: start and end (ms) of the last complete weeks before the end of the window, at most four, the newest
            first.
        grid: the price of electricity and the PUE, for the running cost of bought GPUs.
    """

    weeks: tuple[tuple[int, int], ...]
    grid: Grid


@dataclass(frozen=True)
class Value:
    """The value of acting a year. `cash` and `freed` are about the same GPUs and are never added.

    Attributes:
        gpu_hours: the freed GPU time.
        freed: the freed time at its price; None without a price. It is money only if the GPUs are sold or a purchase is
            avoided.
        cash: the spending that ends: rent, or the running cost of bought GPUs. None is unknown, 0 is known to be zero.
        cash_unknown: why cash is unknown; empty if it is known.
        list_price_share: the share of `freed` at public list prices; None without a price.
    """

    gpu_hours: Estimate
    freed: Estimate | None
    cash: Estimate | None
    cash_unknown: str = ""
    list_price_share: float | None = None


@dataclass(frozen=True)
class TotalValue(Value):
    """The total value of several recommendations. Each figure is the sum of theirs, by `total`.

    Attributes:
        recommendations: their number.
        unknown: the number without known cash. `cash` is None if any is unknown, because a part would look like the
            whole.
    """

    recommendations: int = 0
    unknown: int = 0


def total_value(values: Sequence[Value]) -> TotalValue | None:
    """Return the total; None for no recommendations."""
    if not values:
        return None
    freed = [each.freed for each in values if each.freed is not None]
    cash = [each.cash for each in values if each.cash is not None]
    listed = sum((each.list_price_share or 0.0) * each.freed.point for each in values if each.freed is not None)
    together = total(freed) if len(freed) == len(values) else None
    reasons = list(dict.fromkeys(each.cash_unknown for each in values if each.cash is None))
    return TotalValue(
        gpu_hours=total(each.gpu_hours for each in values),
        freed=together,
        cash=total(cash) if len(cash) == len(values) else None,
        cash_unknown=reasons[0] if reasons else "",
        list_price_share=listed / together.point if together is not None and together.point else None,
        recommendations=len(values),
        unknown=len(values) - len(cash),
    )

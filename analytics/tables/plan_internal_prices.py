"""What an hour of a pool should cost within the house, by hour of the day and priority."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analytics.language.quantities import Number, Share
from analytics.language.sentences import tr
from analytics.plan.internal_prices import WEIGHTS, InternalPrices, Priority
from analytics.tables.names import card_name, place_name
from analytics.tables.table import Cell, Column, Table

_TITLES: dict[Priority, str] = {"urgent": tr("urgent"), "normal": tr("normal"), "deferrable": tr("deferrable")}


def internal_price_table(found: Sequence[InternalPrices], currency: str) -> Table | None:
    """A row for each hour of the day, of the pool whose need swings most; None where no need was observed."""
    if not found:
        return None
    most = max(found, key=lambda each: each.spread)
    return Table(
        name="internal-prices",
        title=tr("Internal prices by hour"),
        question=tr("What should an hour cost within the house, so that work that can wait runs when GPUs are idle?"),
        headline=_headline(most),
        columns=(
            Column("hour", tr("hour"), "words"),
            Column("load", tr("GPUs needed"), "share_bar"),
            *(Column(name, _TITLES[name], "number") for name in WEIGHTS),
        ),
        rows=tuple(_row(most, hour) for hour in range(len(most.load))),
        notes=tuple(_notes(found, most, currency)),
    )  # fmt: skip


def _headline(prices: InternalPrices) -> str:
    load = [each for each in prices.load if each is not None]
    costs = [each for each in prices.factors["normal"] if each is not None]
    return tr(
        "{pool}, {model}: {least} of the GPUs are needed in the emptiest hour of the day and {most} in the fullest; the same work would pay {saved} less in the emptiest.",
        pool=place_name(prices.pool), model=card_name(prices.model), least=Share(min(load), 0), most=Share(max(load), 0),
        saved=Share(1 - min(costs) / max(costs), 0),
    )  # fmt: skip


def _row(prices: InternalPrices, hour: int) -> tuple[Cell, ...]:
    load = prices.load[hour]
    flat = 1.0 if prices.flat is None else prices.flat
    costs = [prices.factors[name][hour] for name in WEIGHTS]
    return (
        f"{hour:02}:00",
        Share(load, 0),
        *(None if each is None else Number(each * flat, 2) for each in costs),
    )


def _notes(found: Sequence[InternalPrices], most: InternalPrices, currency: str) -> Iterator[str]:
    if most.flat is None:
        yield tr("Times the flat price, which is not known for this pool.")
    else:
        yield tr(
            "{currency} per GPU-hour in use; the flat price is {flat}.", currency=currency, flat=Number(most.flat, 2)
        )
    yield tr(
        "Price = flat x (1/2 + share of the GPUs needed in that hour) x {urgent} for urgent, {normal} for normal and {deferrable} for deferrable work, scaled so that the observed need would pay the same in all. The weights are a choice.",
        **{name: Number.as_given(weight) for name, weight in WEIGHTS.items()},
    )  # fmt: skip
    yield tr(
        "The table says what would be asked; `fallow plan prices --off-peak 20:00-08:00` says what that could have moved."
    )
    if len(found) > 1:
        yield tr(
            "Of {number} pools, the one whose need swings most is shown: choose a pool for another one.",
            number=Number(len(found)),
        )

"""What the money and the energy rest on: the price of each model in each pool, and where the energy is from."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.language.language import Sentence, SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import Date, GpuHours, Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.money.energy import KNOWN_MIN
from analytics.money.prices import Price
from analytics.money.window_money import Money
from analytics.states import UNUSED
from analytics.tables.names import GPUS, place_name
from analytics.tables.table import Table, column
from analytics.workloads.model import at_most_below

_LISTED = 12


def prices(money: Money) -> Table:
    """A row for each model in each pool, with the date and the source of its price."""
    rest = len(money.basis) - _LISTED
    return Table(
        name="prices",
        title=tr("Prices"),
        question=tr("What are the sums of money made of?"),
        headline=_headline(money),
        columns=(
            column("model", tr("model"), "name", lambda basis: place_name(basis.model), "model"),
            column("pool", tr("pool"), "pool", lambda basis: place_name(basis.pool), "pool"),
            GPUS,
            column(
                "price_per_gpu_hour",
                tr("{currency} per GPU-hour", currency=money.currency),
                "money",
                lambda each: None if each.price is None else Number(each.price.hourly, 4),
            ),
            column(
                "as_of",
                tr("as of"),
                "moment",
                lambda each: "" if each.price is None or each.price.date is None else Date(each.price.date),
            ),
            column(
                "source",
                tr("source"),
                "words",
                lambda each: tr("no price is known") if each.price is None else plain(price_source(each.price), 200),
            ),
        ),
        rows=tuple(money.basis),
        shown=_LISTED,
        rest=tr("and {number} more", number=rest),
        notes=tuple(_notes(money, money.remarks)),
        wide=True,
    )


def _headline(money: Money) -> str:
    priced = [each for each in money.basis if each.price is not None]
    if not money.basis:
        return tr("There is nothing to price.")
    if not priced:
        return tr("No price is known: nothing is said of money.")
    if money.missing:
        unpriced = GpuHours(money.accounts.total.unpriced_ms)
        return tr("{hours} GPU-hours have no price and are in no sum of money.", hours=unpriced)
    return tr("Every GPU-hour has a price.")


def price_source(price: Price) -> str:
    """Where a price is from, and as what it was stated if that is not what it is given as."""
    return price.source + ("" if price.stated is None else f" ({price.stated})")


def _notes(money: Money, remarks: Sequence[str]) -> list[str]:
    """What a reader of the sums has to know of the prices."""
    listed = {gpu for each in money.basis if each.price and each.price.origin == "catalog" for gpu in each.names}
    notes: list[str] = []
    if listed:
        notes.append(
            tr_many(
                "{number} GPU is at public on-demand prices, which are not what you pay: name your own in money.prices.",
                "{number} GPUs are at public on-demand prices, which are not what you pay: name your own in money.prices.",
                len(listed),
            )
        )
    if money.needs_exchange:
        notes.append(tr("the catalog is in USD: add an exchange line (docs/money.md)"))
    return [*notes, *remarks]


def energy(money: Money) -> Table:
    """Energy, its price and its carbon dioxide, or why they are not known."""
    first, *others = energy_sentences(money)
    return Table(
        name="energy",
        title=tr("Energy and CO2"),
        question=tr("How much energy did the GPUs take, and at what price?"),
        headline=first,
        lines=tuple(others),
    )


def energy_sentences(money: Money) -> list[str]:
    """Energy, its price and its carbon dioxide, each in one sentence; how much is known where that is too little."""
    counted, grid = money.accounts.total.energy, money.grid
    kwh, drawn, cost, co2 = counted.kwh, grid.drawn_kwh(counted), grid.cost(counted), grid.co2_kg(counted)
    known = Share(counted.known_share)
    if not counted.known_ms:
        return [tr("energy: not known, neither energy counters nor power were read")]
    if kwh is None or drawn is None or co2 is None:
        return [
            tr(
                "energy: not known, it was read for {known} of the time (from {least} on it is summed up)",
                known=known,
                least=Share(KNOWN_MIN, 0),
            )
        ]
    states = {state: money.accounts.energy_by_state.get(state) for state in UNUSED[::-1]}
    idle = [
        tr("{state} {kwh}", state=tr(state), kwh=Number(own.kwh, 1))
        for state, own in states.items()
        if own is not None and own.kwh is not None and own.kwh > 0
    ]
    paid: str = tr("its price in {currency} is not known (money.energy_price_per_kwh)", currency=money.currency)
    if cost is not None and grid.price_per_kwh is not None:
        paid = tr(
            "{currency} {cost} at {price} per kWh",
            currency=money.currency,
            cost=Number(cost, 2),
            price=Number.as_given(grid.price_per_kwh),
        )
    return [
        tr(
            "energy: {kwh} kWh {origin}, over {known} of the time",
            kwh=Number(kwh, 1),
            origin=_energy_origin(money.counter_share),
            known=known,
        ),
        *([tr("of which without a kernel: {states} kWh", states=SentenceList(idle, ", "))] if idle else []),
        tr(
            "with PUE {pue} it drew {drawn} kWh: {paid}, {co2} kg of CO2 at {rate} kg per kWh",
            pue=Number.as_given(grid.pue),
            drawn=Number(drawn, 1),
            paid=paid,
            co2=Number(co2, 1),
            rate=Number.as_given(grid.kg_per_kwh),
        ),
    ]


def _energy_origin(counter_share: float | None) -> Sentence:
    """Where the energy is from, as far as it is known."""
    if counter_share == 1:
        return tr("by the GPUs' own counters")
    if counter_share is None or counter_share == 0:
        return tr("from readings of power (no energy counter was read)")
    share = at_most_below(counter_share)
    return tr("by the GPUs' own counters for {share} of it, else from readings of power", share=share)

"""Prices by model and pool, and the source of the energy figures."""

from __future__ import annotations

from collections.abc import Iterator

from analytics.glossary import state_label
from analytics.language.sentences import GpuHours, Number, Sentence, SentenceList, Share, plain, tr, tr_many
from analytics.money.energy import KNOWN_MIN
from analytics.money.prices import Price
from analytics.money.window_money import Money
from analytics.states import UNUSED
from analytics.tables.names import GPUS, MODEL, POOL
from analytics.tables.table import Table, column

_LISTED = 12
_ALMOST_ALL = 0.999


def prices(money: Money) -> Table:
    """Return a row per model and pool, with the date and the source of its price."""
    return Table(
        name="prices",
        title=tr("Prices"),
        question=tr("Which prices do the costs use?"),
        headline=_headline(money),
        columns=(
            MODEL,
            POOL,
            GPUS,
            column(
                "price_per_gpu_hour",
                tr("{currency} per GPU-hour", currency=money.currency),
                "money",
                "price.hourly",
                digits=4,
            ),
            column("as_of", tr("as of"), "moment", "price.date", missing=""),
            column(
                "source",
                tr("source"),
                "words",
                lambda each: tr("no price is known") if each.price is None else plain(price_source(each.price), 200),
            ),
        ),
        rows=tuple(money.basis),
        shown=_LISTED,
        rest=tr("and {number} more", number=len(money.basis) - _LISTED),
        notes=tuple(_notes(money)),
        wide=True,
    )


def _headline(money: Money) -> str:
    if not money.basis:
        return tr("No GPU has a price in this window.")
    if all(each.price is None for each in money.basis):
        return tr("No price is known, so no cost is shown.")
    if money.missing:
        unpriced = GpuHours(money.accounts.total.unpriced_ms)
        return tr("{hours} GPU-hours have no price, and no cost includes them.", hours=unpriced)
    return tr("Every GPU-hour has a price.")


def price_source(price: Price) -> str:
    """Return the source of a price, and its stated unit if that differs from the shown unit."""
    return price.source + ("" if price.stated is None else f" ({price.stated})")


def _notes(money: Money) -> Iterator[str]:
    listed = {gpu for each in money.basis if each.price and each.price.origin == "catalog" for gpu in each.names}
    if listed:
        yield tr_many(
            "{number} {GPU has a|GPUs have} public on-demand {price|prices}, which {is|are} not what you pay: set your"
            " own {price|prices} in money.prices.",
            len(listed),
        )
    if money.needs_exchange:
        yield tr("the catalog is in USD: add an exchange line (docs/money.md)")
    yield from money.remarks


def energy(money: Money) -> Table:
    """Return energy, its price and its CO2, or why they are not known."""
    first, *others = energy_sentences(money)
    return Table(
        name="energy",
        title=tr("Energy and CO2"),
        question=tr("How much energy did the GPUs use, and what did it cost?"),
        headline=first,
        lines=tuple(others),
    )


def energy_sentences(money: Money) -> list[str]:
    """Return energy, price and CO2 in one sentence each, and the known share if it is too small."""
    counted, grid = money.accounts.total.energy, money.grid
    kwh, drawn, cost = counted.kwh, grid.drawn_kwh(counted), grid.cost(counted)
    known = Share(counted.known_share)
    if not counted.known_ms:
        return [tr("energy: not known, neither energy counters nor power were read")]
    if kwh is None or drawn is None:
        return [
            tr(
                "energy: not known, it was read for {known} of the time (from {least} on it is summed up)",
                known=known,
                least=Share(KNOWN_MIN, 0),
            )
        ]
    states = {state: money.accounts.energy_by_state.get(state) for state in UNUSED[::-1]}
    idle = [
        tr("{state} {kwh}", state=state_label(state), kwh=Number(own.kwh, 1))
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
            "with PUE {pue} it drew {drawn} kWh: {paid}, {co2}",
            pue=Number.as_given(grid.pue),
            drawn=Number(drawn, 1),
            paid=paid,
            co2=_co2(money),
        ),
    ]


def _co2(money: Money) -> str:
    intensity, carbon = money.grid.intensity, money.carbon
    if intensity is None or carbon is None or carbon.co2_kg is None:
        return tr("its CO2 is not known")
    co2 = Number(carbon.co2_kg, 1)
    if intensity.flat is not None:
        return tr("{co2} kg of CO2 at {rate} kg per kWh", co2=co2, rate=Number.as_given(intensity.flat / 1000))
    return tr(
        "{co2} kg of CO2 by the hour, for {share} of the energy ({source})",
        co2=co2,
        share=part_of_all(carbon.rated_share),
        source=plain(intensity.source, 200),
    )


def part_of_all(share: float | None) -> Share:
    """Return the share rounded as everywhere, but 100 % only of all."""
    return Share(share if share is None or share == 1 else min(share, _ALMOST_ALL))


def _energy_origin(counter_share: float | None) -> Sentence:
    if counter_share == 1:
        return tr("by the GPUs' own counters")
    if counter_share is None or counter_share == 0:
        return tr("from readings of power (no energy counter was read)")
    share = part_of_all(counter_share)
    return tr("by the GPUs' own counters for {share} of it, else from readings of power", share=share)

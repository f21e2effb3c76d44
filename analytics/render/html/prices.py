"""What the money and the energy rest on, in words and as a table of prices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from analytics.language.quantities import Amount, GpuHours, Number, Share
from analytics.language.sentences import say, say_many
from analytics.money.energy import KNOWN_MIN
from analytics.render.html.cells import bdi
from analytics.render.html.chart import Table
from analytics.render.money_text import price_source
from analytics.render.wording import placed
from analytics.states import UNUSED

if TYPE_CHECKING:
    from analytics.language.languages import Language
    from analytics.money.window_money import Basis, Money

_MOST = 12


def price_table(money: Money, language: Language) -> Table | None:
    """The price of each model in each pool, with its date and source; None where there are no GPUs."""
    rows = tuple(_row(each, money, language) for each in money.basis[:_MOST])
    rest = len(money.basis) - len(rows)
    if not rows:
        return None
    head = ("model and pool", "GPUs", "per GPU-hour", "as of", "source")
    return Table(
        tuple(language.say(each) for each in head),
        rows,
        words=frozenset({3, 4}),
        rest=language.say(say("and {number} more", number=Number(rest))) if rest else "",
    )


def _row(each: Basis, money: Money, language: Language) -> tuple[str | Markup, ...]:
    named = Markup("{}, {}").format(bdi(placed(each.model, language)), bdi(placed(each.pool, language)))
    if each.price is None:
        return named, language.number(each.gpus), language.say("unknown"), "", language.say("no price is known")
    price = f"{language.number(each.price.hourly, 4)}{language.space}{money.currency}"
    as_of = "" if each.price.date is None else language.date(each.price.date)
    return named, language.number(each.gpus), price, as_of, bdi(price_source(each.price))


def price_remarks(money: Money) -> list[str]:
    """What a reader of the sums has to know of the prices."""
    listed = {gpu for each in money.basis if each.price and each.price.origin == "catalog" for gpu in each.names}
    remarks: list[str] = []
    if listed:
        remarks.append(
            say_many(
                "{number} GPU is at public on-demand prices, which are not what you pay: name your own in money.prices.",
                "{number} GPUs are at public on-demand prices, which are not what you pay: name your own in money.prices.",
                len(listed),
            )
        )
    if money.missing and any(each.price is not None for each in money.basis):
        unpriced = GpuHours(money.accounts.total.unpriced_ms)
        remarks.append(say("{hours} GPU-hours have no price and are in no sum of money.", hours=unpriced))
    return [*remarks, *money.remarks]


def energy(money: Money) -> list[str]:
    """Energy, its price and its carbon dioxide, or why they are not known."""
    counted, grid = money.accounts.total.energy, money.grid
    kwh, drawn, co2 = counted.kwh, grid.drawn_kwh(counted), grid.co2_kg(counted)
    known = Share(counted.known_share)
    if not counted.known_ms:
        return [say("Not known: no energy counter was read.")]
    if kwh is None or drawn is None or co2 is None:
        return [
            say("Not known: it was counted for {share} of the time, and a sum wants {least}.",
                share=known, least=Share(KNOWN_MIN, 0))
        ]  # fmt: skip
    lines: list[str] = [
        say("{kwh} kWh by the GPUs' own counters, over {share} of the time.", kwh=Number(kwh, 1), share=known)
    ]
    idle = [each.kwh for state in UNUSED[::-1] if (each := money.accounts.energy_by_state.get(state)) is not None]
    if any(idle) and all(each is not None for each in idle):
        lines.append(say("{kwh} kWh of it without a kernel.", kwh=Number(sum(each or 0.0 for each in idle), 1)))
    lines.append(say("The site drew {kwh} kWh for it (PUE {pue}).", kwh=Number(drawn, 1), pue=Number(grid.pue, 2)))
    cost = grid.cost(counted)
    if cost is None or grid.price_per_kwh is None:
        lines.append(say("Its price in {currency} is not known.", currency=money.currency))
    else:
        price = f"{grid.price_per_kwh:g}"
        lines.append(say("{money}, at {price} per kWh.", money=Amount(cost, money.currency), price=price))
    lines.append(say("{co2} kg of CO2, at {each} kg per kWh.", co2=Number(co2, 1), each=Number(grid.kg_per_kwh, 3)))
    return lines

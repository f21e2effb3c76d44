"""Money and energy as plain text of at most 100 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.ledger.text import PAGE_COLUMNS, count, hours, percent, plain, wrap
from analytics.money.energy import KNOWN_MIN
from fallow.schema import STATES

if TYPE_CHECKING:
    from analytics.money.energy import Energy
    from analytics.money.prices import Price
    from analytics.money.window import Basis, Money

WIDTH = PAGE_COLUMNS
_SHOWN = 8
"""Prices that are listed before `fallow prices` is named."""


def amount(cents: int | None) -> str:
    """`1,234.56`, or `-` for what has no price."""
    return "-" if cents is None else f"{cents // 100:,}.{cents % 100:02d}"


def state_amounts(money: Money) -> dict[str, str]:
    """What each state cost, and `total`; empty where nothing has a price."""
    total = money.accounts.total
    if total.paid_cents is None:
        return {}
    return {state: amount(total.state_cents[state]) for state in STATES} | {"total": amount(total.paid_cents)}


def basis_lines(money: Money, width: int = WIDTH) -> list[str]:
    """Which prices the money rests on, and which are missing; where a price is from is cut to the width."""
    priced = [each for each in money.basis if each.price is not None]
    lines = [f"prices in {money.currency} per GPU-hour"] if priced else ["no price is known: nothing is said of money"]
    listed = len({gpu for each in priced if each.price and each.price.origin == "catalog" for gpu in each.names})
    if listed:
        lines += wrap(
            f"{count(listed, 'GPU')} at public on-demand prices, which are not what you pay: name your own in money.prices",
            WIDTH, "  ", "  ",
        )  # fmt: skip
    lines += [_basis_line(each, width) for each in priced[:_SHOWN]]
    if len(priced) > _SHOWN:
        lines.append(f"  and {len(priced) - _SHOWN} more: `fallow prices --lake ...` lists all")
    for each in money.missing[:_SHOWN]:
        lines += wrap(
            f"no price: {count(each.gpus, 'GPU')} {plain(each.model)} ({plain(each.pool)})", WIDTH, "  ", "    "
        )
    if len(money.missing) > _SHOWN:
        lines.append(f"  and {len(money.missing) - _SHOWN} more without a price")
    if money.needs_exchange:
        lines.append("  the catalog is in USD: add an exchange line (docs/money.md)")
    if money.missing and priced:
        unpriced = hours(round(money.accounts.total.unpriced_ms))
        lines += wrap(f"their {unpriced} GPU-hours are in no sum of money", WIDTH, "  ", "  ")
    return lines


def price_source(price: Price) -> str:
    """Where a price is from, and as what it was stated if that is not what it is given as."""
    return price.source + ("" if price.stated is None else f" ({price.stated})")


def energy_lines(money: Money) -> list[str]:
    """Energy, its price and its carbon dioxide; how much is known where that is too little."""
    energy, grid = money.accounts.total.energy, money.grid
    kwh, drawn, cost, co2 = energy.kwh, grid.drawn_kwh(energy), grid.cost(energy), grid.co2_kg(energy)
    known = percent(energy.known_share)
    if kwh is None or drawn is None or co2 is None:
        if not energy.known_ms:
            return ["energy: not known, no energy counter was read"]
        return [
            f"energy: not known, it was counted for {known} of the time (from {percent(KNOWN_MIN, 0)} on it is summed up)"
        ]
    lines = [f"energy: {kwh:,.1f} kWh by the GPUs' own counters, over {known} of the time"]
    wasted = [f"{name} {share:,.1f}" for name in ("held", "reserved", "free") if (share := _state_kwh(money, name))]
    if wasted:
        lines.append(f"  of which without a kernel: {', '.join(wasted)} kWh")
    if cost is None:
        paid = f"its price in {money.currency} is not known (money.energy_price_per_kwh), "
    else:
        paid = f"{money.currency} {cost:,.2f} at {grid.price_per_kwh:g} per kWh, "
    return lines + wrap(
        f"with PUE {grid.pue:g} it drew {drawn:,.1f} kWh: {paid}{co2:,.1f} kg of CO2 at {grid.kg_per_kwh:g} kg per kWh",
        WIDTH, "  ", "  ",
    )  # fmt: skip


def _basis_line(basis: Basis, width: int) -> str:
    price = basis.price
    if price is None:
        raise ValueError(basis.model)
    what = plain(f"{basis.model} ({basis.pool})", 33)
    day = "" if price.date is None else price.date.isoformat()
    start = f"  {basis.gpus:>5,}  {what:<33}  {price.hourly:>8,.4f}  {day:<10}  "
    return start + plain(price_source(price), width - len(start))


def _state_kwh(money: Money, state: str) -> float | None:
    energy: Energy | None = money.accounts.energy_by_state.get(state)
    return None if energy is None else energy.kwh

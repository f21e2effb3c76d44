"""Money and energy as plain text of at most 100 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.ledger.text import count, hours, percent, plain, wrap
from analytics.money.accounts import USED
from analytics.money.energy import KNOWN_MIN
from fallow.schema import STATES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analytics.money.accounts import Account
    from analytics.money.energy import Energy
    from analytics.money.prices import Price
    from analytics.money.window import Basis, Money

WIDTH = 100
_SHOWN = 8
_NAME_MOST = 28
_HEADS = {
    "used": "used",
    "held": "held",
    "reserved": "reserved",
    "free": "free",
    "unavailable": "down",
    "unknown": "unknown",
}


def amount(cents: int | None) -> str:
    """`1,234.56`, or `-` for what has no price."""
    return "-" if cents is None else f"{cents // 100:,}.{cents % 100:02d}"


def state_amounts(money: Money) -> dict[str, str]:
    """What each state cost, and `total`; empty where nothing has a price."""
    total = money.accounts.total
    if total.paid_cents is None:
        return {}
    return {state: amount(total.state_cents[state]) for state in STATES} | {"total": amount(total.paid_cents)}


def basis_lines(money: Money) -> list[str]:
    """Which prices the money rests on, and which are missing."""
    priced = [each for each in money.basis if each.price is not None]
    lines = [f"prices in {money.currency} per GPU-hour"] if priced else ["no price is known: nothing is said of money"]
    listed = sum(each.gpus for each in priced if each.price is not None and each.price.origin == "catalog")
    if listed:
        lines += wrap(
            f"{count(listed, 'GPU')} at public list prices, which are not what you pay: name your own in money.prices",
            WIDTH, "  ", "  ",
        )  # fmt: skip
    lines += [_basis_line(each) for each in priced[:_SHOWN]]
    if len(priced) > _SHOWN:
        lines.append(f"  and {len(priced) - _SHOWN} more: `fallow prices --lake ...` lists all")
    for each in money.missing[:_SHOWN]:
        lines += wrap(
            f"no price: {count(each.gpus, 'GPU')} {plain(each.model)} ({plain(each.pool)})", WIDTH, "  ", "    "
        )
    if len(money.missing) > _SHOWN:
        lines.append(f"  and {len(money.missing) - _SHOWN} more without a price")
    if money.missing and priced:
        unpriced = hours(round(money.accounts.total.unpriced_ms))
        lines += wrap(f"their {unpriced} GPU-hours are in no sum of money", WIDTH, "  ", "  ")
    return lines


def price_source(price: Price) -> str:
    """Where a price is from, and of which day."""
    day = "" if price.date is None else f", {price.date.isoformat()}"
    stated = "" if price.stated is None else f" ({price.stated})"
    return f"{plain(price.source)}{stated}{day}"


def energy_lines(money: Money) -> list[str]:
    """Energy, its price and its carbon dioxide; how much is known where that is too little."""
    energy, grid = money.accounts.total.energy, money.grid
    kwh, drawn, cost, co2 = energy.kwh, grid.drawn_kwh(energy), grid.cost(energy), grid.co2_kg(energy)
    known = percent(energy.known_share)
    if kwh is None or drawn is None or cost is None or co2 is None:
        if not energy.known_ms:
            return ["energy: not known, no energy counter was read"]
        return [
            f"energy: not known, it was counted for {known} of the time (from {percent(KNOWN_MIN, 0)} on it is summed up)"
        ]
    lines = [f"energy: {kwh:,.1f} kWh by the GPUs' own counters, over {known} of the time"]
    wasted = [f"{name} {share:,.1f}" for name in ("held", "reserved", "free") if (share := _state_kwh(money, name))]
    if wasted:
        lines.append(f"  of which without a kernel: {', '.join(wasted)} kWh")
    return lines + wrap(
        f"with PUE {grid.pue:g} it drew {drawn:,.1f} kWh: {money.currency} {cost:,.2f} at {grid.price_per_kwh:g} per kWh, "
        f"{co2:,.1f} kg of CO2 at {grid.kg_per_kwh:g} kg per kWh",
        WIDTH, "  ", "  ",
    )  # fmt: skip


def table_text(rows: Sequence[Account], group: str, money: Money) -> str:
    """One line per row: GPU-hours, efficiency, what was paid and its parts; the last line is the total.

    Parts that are nothing in every row are left out and named; where the line would be too long, parts are shares of paid.
    """
    total = money.accounts.total
    everything = [*rows, total]
    shown = {name: head for name, head in _HEADS.items() if any(_part_ms(row, name) for row in everything)}
    width = min(_NAME_MOST, max(len(group), len("total"), *(len(row.label) for row in rows)))
    cells = [_cells(row, shown, as_share=False) for row in everything]
    if total.paid_cents is None:
        cells = [_cells(row, shown, as_share=True) for row in everything]
        note = "shares of GPU time: no price is known"
    elif _line_width(width, shown, cells) > WIDTH:
        cells = [_cells(row, shown, as_share=True) for row in everything]
        note = "shares of GPU time"
    else:
        note = "parts of what was paid"
    heads = {"hours": "GPU-hours", "efficiency": "efficiency", "paid": money.currency, **shown}
    columns = {name: max(len(head), *(len(row[name]) for row in cells)) for name, head in heads.items()}
    names = [plain(row.label, width) for row in rows] + ["total"]
    lines = ["  ".join((f"{group:<{width}}", *(f"{heads[name]:>{each}}" for name, each in columns.items())))]
    for name, row in zip(names, cells, strict=True):
        lines.append("  ".join((f"{name:<{width}}", *(f"{row[key]:>{each}}" for key, each in columns.items()))))
    left_out = [head for name, head in _HEADS.items() if name not in shown]
    lines += ["", *_notes(note, left_out, rows, total)]
    return "\n".join(lines)


def _notes(note: str, left_out: Sequence[str], rows: Sequence[Account], total: Account) -> list[str]:
    nothing = f"; nothing was {', '.join(left_out)}" if left_out else ""
    lines = wrap(f"{note}{nothing}; efficiency: share of the allocated GPU time in which kernels ran", WIDTH)
    if any(row.unpriced_ms for row in rows) and total.paid_cents is not None:
        lines += wrap(
            f"* some of it has no price: {hours(round(total.unpriced_ms))} GPU-hours in all are in no sum", WIDTH
        )
    return lines


def _cells(row: Account, shown: Mapping[str, str], *, as_share: bool) -> dict[str, str]:
    paid = row.paid_cents
    mark = "*" if row.unpriced_ms and paid is not None else ""
    found = {
        "hours": hours(round(row.total_ms)),
        "efficiency": "-" if row.efficiency is None else percent(row.efficiency),
        "paid": amount(paid) + mark,
    }
    for name in shown:
        if as_share:
            found[name] = percent(_part_ms(row, name) / row.total_ms) if row.total_ms else "-"
        else:
            found[name] = "-" if paid is None else amount(_part(row, name))
    return found


def _line_width(width: int, shown: Mapping[str, str], cells: Sequence[Mapping[str, str]]) -> int:
    heads = {"hours": "GPU-hours", "efficiency": "efficiency", "paid": "", **shown}
    return width + sum(2 + max(len(head), *(len(row[name]) for row in cells)) for name, head in heads.items())


def _part(row: Account, name: str) -> int:
    return row.used_cents if name == "used" else row.state_cents[name]


def _part_ms(row: Account, name: str) -> float:
    return sum(row.state_ms[state] for state in USED) if name == "used" else row.state_ms[name]


def _basis_line(basis: Basis) -> str:
    price = basis.price
    if price is None:
        raise ValueError(basis.model)
    what = f"{plain(basis.model, 32)} ({plain(basis.pool, 14)})"
    start = f"  {basis.gpus:>6,}  {what:<38}  {price.hourly:>8,.4f}  "
    return start + plain(price_source(price), WIDTH - len(start))


def _state_kwh(money: Money, state: str) -> float | None:
    energy: Energy | None = money.accounts.energy_by_state.get(state)
    return None if energy is None else energy.kwh

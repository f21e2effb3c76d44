"""A table of accounts as plain text: GPU-hours, efficiency, what was paid, and the parts that it adds up from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.ledger.text import hours, percent, plain, wrap
from analytics.money.accounts import USED
from analytics.money.text import WIDTH, amount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.money.accounts import Account
    from analytics.money.window import Money

_NAME_MOST = 28
_LAYOUTS = ((True, True, 21), (False, True, 21), (False, True, 17), (True, False, 21), (False, False, 12))
"""With ranks, with money instead of shares, and how long a name may be at the least: the first that fits is taken."""

_RANKED = ("team", "organisation", "holder", "account")
_PARTS = {
    "used": "used",
    "held": "held",
    "reserved": "reserved",
    "free": "free",
    "unavailable": "down",
    "unknown": "unknown",
}


def table_text(rows: Sequence[Account], group: str, money: Money) -> str:
    """One line per row and one for the total, of at most 100 columns.

    Parts that are nothing in every row are left out and named. Where the line would be too long, the rank goes, then the
    parts are shares of the GPU time instead of money.
    """
    total = money.accounts.total
    everything = [*rows, total]
    names = [group, *(plain(row.label, _NAME_MOST) for row in rows), "total"]
    parts = [part for part in _PARTS if any(_part_ms(row, part) for row in everything)]
    in_money = total.paid_cents is not None
    for with_rank, with_money, least in _LAYOUTS:
        if (with_rank and group not in _RANKED) or (with_money and not in_money):
            continue
        columns = _columns(everything, parts, money.currency, with_rank=with_rank, with_money=with_money)
        lines = _lines(names, columns, least)
        if len(lines[0]) <= WIDTH:
            break
    notes = [
        f"{'parts of what was paid' if with_money else 'shares of the GPU time'}{_absent(parts)}",
        "effic.: share of the allocated time in which kernels ran" + (", with its rank" if with_rank else ""),
    ]
    lines += ["", *wrap("; ".join(notes), WIDTH)]
    if in_money and total.unpriced_ms:
        lines += wrap(
            f"* some of it has no price: {hours(round(total.unpriced_ms))} GPU-hours are in no sum of money", WIDTH
        )
    return "\n".join(lines)


def _columns(
    rows: Sequence[Account], parts: Sequence[str], currency: str, *, with_rank: bool, with_money: bool
) -> list[list[str]]:
    """The cells of each column, its heading first."""
    columns = [
        ["GPU-hours", *(hours(round(row.total_ms)) for row in rows)],
        ["effic.", *("-" if row.efficiency is None else percent(row.efficiency) for row in rows)],
    ]
    if with_rank:
        columns.append(["rank", *("" if row.rank_efficiency is None else f"{row.rank_efficiency}." for row in rows)])
    if any(row.paid_cents is not None for row in rows):
        columns.append([currency, *(_paid(row) for row in rows)])
    cell = _money_of if with_money else _share_of
    return columns + [[_PARTS[part], *(cell(row, part) for row in rows)] for part in parts]


def _lines(names: Sequence[str], columns: Sequence[Sequence[str]], least: int) -> list[str]:
    """The table, its names cut to what the columns leave them, though not below so many characters."""
    widths = [max(map(len, column)) for column in columns]
    room = WIDTH - sum(widths) - 2 * len(widths)
    width = min(max(map(len, names)), max(least, room))
    return [
        "  ".join(
            (
                f"{plain(name, width):<{width}}",
                *(f"{column[line]:>{each}}" for column, each in zip(columns, widths, strict=True)),
            )
        )
        for line, name in enumerate(names)
    ]


def _absent(parts: Sequence[str]) -> str:
    absent = [name for part, name in _PARTS.items() if part not in parts]
    return f", nothing was {', '.join(absent)}" if absent else ""


def _paid(row: Account) -> str:
    """What was paid, starred where some of the time has no price."""
    return amount(row.paid_cents) + ("*" if row.unpriced_ms and row.paid_cents is not None else "")


def _money_of(row: Account, part: str) -> str:
    if row.paid_cents is None:
        return "-"
    return amount(row.used_cents if part == "used" else row.state_cents[part])


def _share_of(row: Account, part: str) -> str:
    return percent(_part_ms(row, part) / row.total_ms) if row.total_ms else "-"


def _part_ms(row: Account, part: str) -> float:
    return sum(row.state_ms[state] for state in (USED if part == "used" else (part,)))

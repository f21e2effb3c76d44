"""A table of accounts as plain text: GPU-hours, efficiency, what was paid, and the parts that it adds up from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analytics.language.plain_text import count, hours, percent, plain, wrap
from analytics.ledger.summary import OPEN_FROM
from analytics.money.accounts import Account
from analytics.money.efficiency_ranks import EfficiencyRank
from analytics.money.window_money import Money
from analytics.render.money_text import WIDTH, amount
from analytics.states import IN_USE
from analytics.tables.names import account_name, card_name
from fallow.clock import HOUR_MS

_NAME_MOST = 28
_LEAST_MS = HOUR_MS // 20
"""Groups with less would be shown as 0.0 GPU-hours: they are counted in one line instead."""

_RANKED = ("team", "organisation", "holder", "account")
_PARTS = {
    "used": "used",
    "held": "held",
    "reserved": "reserved",
    "free": "free",
    "unavailable": "down",
    "unknown": "unknown",
}


@dataclass(frozen=True)
class _Layout:
    """With ranks, with money instead of shares, parts that may go, and how long a name may be at the least."""

    with_rank: bool
    with_money: bool
    without: tuple[str, ...]
    least: int


_LAYOUTS = (
    _Layout(with_rank=True, with_money=True, without=(), least=21),
    _Layout(with_rank=False, with_money=True, without=(), least=21),
    _Layout(with_rank=False, with_money=True, without=("unavailable",), least=17),
    _Layout(with_rank=False, with_money=True, without=("unavailable", "unknown"), least=14),
    _Layout(with_rank=True, with_money=False, without=(), least=21),
    _Layout(with_rank=False, with_money=False, without=(), least=12),
    _Layout(with_rank=False, with_money=False, without=("unavailable", "unknown"), least=9),
)
"""The first that fits is taken."""


def table_text(rows: Sequence[Account], group: str, money: Money, width: int = WIDTH) -> str:
    """One line per row and one for the total, as wide as is said.

    Parts that are nothing in every row are left out and named. Where the line would be too long, the rank goes, then the
    parts that nobody is charged for; at the very last the parts are shares of the GPU time, as their headings say.
    """
    total = money.accounts.total
    shown = [row for row in rows if row.total_ms >= _LEAST_MS]
    everything = [*shown, total]
    names = [group, *(_name(row, group) for row in shown), "total"]
    parts = [part for part in _PARTS if any(_part_ms(row, part) for row in everything)]
    in_money = total.paid_cents is not None
    for layout in _LAYOUTS:
        if (layout.with_rank and group not in _RANKED) or (layout.with_money and not in_money):
            continue
        kept = [part for part in parts if part not in layout.without]
        columns = _columns(everything, kept, money.currency, with_rank=layout.with_rank, with_money=layout.with_money)
        lines = _lines(names, columns, layout.least, width)
        if len(lines[0]) <= width:
            break
    notes = [
        _efficiency_note(total),
        *(["rank 1 is the most efficient of those who had the same model"] if layout.with_rank else []),
        *_absent(parts),
        *_open(shown, total),
    ]
    lines += ["", *wrap("; ".join(notes), width)]
    missing = [part for part in parts if part not in kept]
    if said := _left_out(total, missing, money.currency, with_money=layout.with_money):
        lines += wrap(said, width)
    if len(shown) < len(rows):
        small = [row for row in rows if row.total_ms < _LEAST_MS]
        lines += wrap(f"{count(len(small), 'line')} under 0.05 GPU-hours left out: --csv has every one", width)
    if in_money and total.unpriced_ms:
        lines += wrap(
            f"* some of it has no price: {hours(round(total.unpriced_ms))} GPU-hours are in no sum of money", width
        )
    return "\n".join(lines)


def _name(row: Account, group: str) -> str:
    if row.name is None:
        return plain(account_name(row.label), _NAME_MOST)
    return plain(row.label.removeprefix("NVIDIA ") if group == "model" else row.label, _NAME_MOST)


def _columns(
    rows: Sequence[Account], parts: Sequence[str], currency: str, *, with_rank: bool, with_money: bool
) -> list[list[str]]:
    """The cells of each column, its heading first."""
    columns = [
        ["GPU-hours", *(hours(round(row.total_ms)) for row in rows)],
        ["efficiency", *map(_efficiency, rows)],
    ]
    if with_rank:
        columns.append(["rank", *(_rank(row.efficiency_rank) for row in rows)])
    if any(row.paid_cents is not None for row in rows):
        columns.append([f"paid {currency}", *(_paid(row) for row in rows)])
    unit = currency if with_money else "%"
    cell = _money_of if with_money else _share_of
    return columns + [[f"{_PARTS[part]} {unit}", *(cell(row, part) for row in rows)] for part in parts]


def _lines(names: Sequence[str], columns: Sequence[Sequence[str]], least: int, most: int) -> list[str]:
    """The table, its names cut to what the columns leave them, though not below so many characters."""
    widths = [max(map(len, column)) for column in columns]
    room = most - sum(widths) - 2 * len(widths)
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


def _absent(parts: Sequence[str]) -> list[str]:
    absent = [name for part, name in _PARTS.items() if part not in parts]
    return [f"nothing was {', '.join(absent)}"] if absent else []


def _open(rows: Sequence[Account], total: Account) -> list[str]:
    """What the mark at a row's efficiency means; nothing where point samples leave nothing open."""
    open_ms = sum(total.open_ms.values())
    if not any(map(_is_open, rows)):
        return []
    return [f"+ or more: {hours(round(open_ms))} GPU-hours of the idle time are point samples that nothing confirms"]


def _is_open(row: Account) -> bool:
    return row.allocated_open_ms > 0 and row.allocated_open_ms >= OPEN_FROM * row.allocated_ms


def _rank(rank: EfficiencyRank | None) -> str:
    return "" if rank is None else f"{rank.place}/{rank.compared} {card_name(rank.model)}"


def _efficiency_note(total: Account) -> str:
    """What the column says, and by what low time counts in it."""
    share = total.low_by_sm
    if share is None:
        return "efficiency: share of the allocated time in the state active"
    by = f"its SM activity (measured for {percent(share)} of it), else utilization" if share else "its utilization"
    return f"efficiency: active time and low time by {by}, as a share of the allocated time"


def _efficiency(row: Account) -> str:
    return "-" if row.efficiency is None else percent(row.efficiency) + ("+" if _is_open(row) else "")


def _left_out(total: Account, parts: Sequence[str], currency: str, *, with_money: bool) -> str:
    """What the whole has of the parts that there was no room for."""
    unit, cell = (currency, _money_of) if with_money else ("%", _share_of)
    said = ", ".join(f"{_PARTS[part]} {unit} {cell(total, part)}" for part in parts)
    return f"too wide for a column: {said} of the total" if said else ""


def _paid(row: Account) -> str:
    """What was paid, starred where some of the time has no price."""
    return amount(row.paid_cents) + ("*" if row.unpriced_ms and row.paid_cents is not None else "")


def _money_of(row: Account, part: str) -> str:
    if row.paid_cents is None:
        return "-"
    return amount(row.used_cents if part == "used" else row.state_cents[part])


def _share_of(row: Account, part: str) -> str:
    return f"{100 * _part_ms(row, part) / row.total_ms:.1f}" if row.total_ms else "-"


def _part_ms(row: Account, part: str) -> float:
    return sum(row.state_ms[state] for state in (IN_USE if part == "used" else (part,)))

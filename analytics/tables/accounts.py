"""What each team, user, pool, ... was given, what became of it and what it cost: one column for people and programs each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from analytics.glossary import term
from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, GpuHours, Number, Share, from_cents
from analytics.language.sentences import tr
from analytics.money.accounts import Account
from analytics.money.window_money import Money
from analytics.states import IN_USE, USED_FIRST
from analytics.tables.names import NAME_MOST, account_name, card_name
from analytics.tables.people import low_note
from analytics.tables.point_samples import unconfirmed_note
from analytics.tables.table import Cell, Column, Kind, Table, column
from fallow.clock import HOUR_MS
from fallow.schema import STATES

PARTS = ("used", *(state for state in USED_FIRST if state not in IN_USE))
"""What paid is the sum of; used is active and low."""

_GROUPS: Mapping[str, tuple[str, Kind]] = {
    "pool": (tr("pool"), "pool"),
    "team": (tr("team"), "team"),
    "organisation": (tr("organisation"), "name"),
    "model": (tr("model"), "name"),
    "host": (tr("host"), "host"),
    "holder": (tr("user"), "holder"),
    "account": (tr("account"), "name"),
    "day": (tr("day"), "name"),
}
_RANKED = ("team", "organisation", "holder", "account")
_TITLES = {"unavailable": tr("unavail.")}
_LEAST_MS = HOUR_MS // 20
"""Less is written as 0.0 GPU-hours."""


def accounts_by(group: str, rows: Sequence[Account], money: Money) -> Table:
    """A row per pool, team, ...: a text lists those that have any GPU time to show."""
    total, title = money.accounts.total, _GROUPS[group][0]
    shown = len(rows) if group == "day" else sum(row.total_ms >= _LEAST_MS for row in rows)
    rest_ms = sum(row.total_ms for row in rows[shown:])
    return Table(
        name=f"accounts-{group}",
        title=tr("GPU time and money by {group}", group=title),
        question=tr("Who or what had which GPU time, what became of it, and what did it cost?"),
        headline=_headline(total, money.currency),
        columns=account_columns(money, group, rows),
        rows=tuple(rows),
        shown=shown,
        rest=tr("and {number} more with {hours} GPU-hours", number=Number(len(rows) - shown), hours=GpuHours(rest_ms)),
        notes=(
            *(() if total.paid_cents is None else (_SUM,)),
            *((_RANK,) if group in _RANKED else ()),
            *low_note(total.state_ms["low"], total.low_by_sm_ms),
            *unconfirmed_note(sum(total.open_ms.values()) if any(row.leaves_open for row in rows) else 0),
        ),
        terms=(term("efficiency"), term("effective time")),
        wide=True,
    )


_SUM = tr("What was paid is the sum of its parts: used (active and low time) and the other states.")
_RANK = tr(
    "Rank 1 is the most efficient of all who had a GPU-hour or more of the same model: "
    "for each, the model of which it had most."
)


def account_total(money: Money) -> Table:
    """Return for programs the whole as one row of the same columns."""
    return Table("account", "", "", "", account_columns(money), (money.accounts.total,), audience="programs")


def _headline(total: Account, currency: str) -> str:
    hours, efficiency = GpuHours(total.total_ms), _efficiency(total)
    if total.paid_cents is None:
        if efficiency is None:
            return tr("{hours} GPU-hours in all. No price is known.", hours=hours)
        return tr(
            "{hours} GPU-hours in all; {efficiency} of the allocated ones were effective. No price is known.",
            hours=hours,
            efficiency=efficiency,
        )
    paid = Amount(from_cents(total.paid_cents), currency)
    if efficiency is None:
        return tr("{hours} GPU-hours in all, for {paid}.", hours=hours, paid=paid)
    return tr(
        "{hours} GPU-hours in all, for {paid}; {efficiency} of the allocated ones were effective.",
        hours=hours,
        paid=paid,
        efficiency=efficiency,
    )


def _efficiency(row: Account) -> str | Share | None:
    """Its share, as the least where point samples leave more open."""
    share = None if row.efficiency is None else Share(row.efficiency)
    return tr("{share} or more", share=share) if share is not None and row.leaves_open else share


def _rank(row: Account) -> Cell:
    rank = row.efficiency_rank
    if rank is None:
        return ""
    return tr(
        "{rank}/{compared} {model}",
        rank=Number(rank.place),
        compared=Number(rank.compared),
        model=card_name(rank.model),
    )


def _money(read: Callable[[Account], int | None]) -> Callable[[Account], Cell]:
    """A cell of cents; unknown where nothing of the row has a price."""
    return lambda row: None if row.paid_cents is None else Number(from_cents(read(row)), 2)


def _of_rank(key: str, kind: Kind, name: str) -> Column:
    def read(row: Account) -> object:
        return None if row.efficiency_rank is None else getattr(row.efficiency_rank, name)

    return column(key, "", kind, read)


def _part(name: str) -> Column:
    cents = _money(lambda row: row.used_cents if name == "used" else row.state_cents[name])
    return column(f"{name}_cost", _TITLES.get(name, tr(name)), "money", cents)


def _state(state: str) -> Column:
    title = _TITLES.get(state, tr(state))
    return column(f"{state}_gpu_hours", title, "gpu_hours", lambda row: row.state_ms[state])


def _name(row: Account) -> str:
    return account_name(row.label) if row.name is None else plain(row.name, NAME_MOST)


_TIME = (
    column("label", "", "words"),
    column("gpus", "", "count"),
    column("gpu_hours", tr("GPU-hours"), "gpu_hours", "total_ms"),
    *map(_state, STATES),
    column("unconfirmed_gpu_hours", "", "gpu_hours", lambda row: sum(row.open_ms.values())),
)
_UNPAID = (
    column("unconfirmed_cost", "", "money", _money(lambda row: sum(row.open_cents.values()))),
    column("unpriced_gpu_hours", tr("without a price"), "gpu_hours", "unpriced_ms"),
)
_EFFICIENCY = (
    column("effective_gpu_hours", "", "gpu_hours", "effective_ms"),
    column("efficiency", tr("efficiency"), "share", _efficiency, "efficiency"),
    column("low_by_sm_share", "", "share", "low_by_sm"),
    column("rank_gpu_hours", "", "count", "rank_gpu_time"),
    column("rank_efficiency", tr("rank"), "words", _rank, _of_rank("", "count", "place").read, json_type="integer"),
    _of_rank("rank_efficiency_of", "count", "compared"),
    _of_rank("rank_efficiency_model", "words", "model"),
    _of_rank("rank_efficiency_gpu_hours", "gpu_hours", "allocated_ms"),
    _of_rank("efficiency_on_model", "share", "efficiency"),
)


def account_columns(money: Money, group: str = "", rows: Sequence[Account] = ()) -> tuple[Column, ...]:
    """Return the columns of an `Account`; people see those that have something to say of any of the rows."""
    total, grid, currency = money.accounts.total, money.grid, money.currency
    title, kind = _GROUPS.get(group, ("", "name"))
    columns = (
        column("name", title, kind, _name, "name"),
        *_TIME,
        column("currency", "", "words", lambda _: currency),
        *map(_part, PARTS),
        column("paid", tr("paid, {currency}", currency=currency), "money", _money(lambda row: row.paid_cents)),
        *_UNPAID,
        *_EFFICIENCY,
        column("energy_kwh", "", "number", "energy.kwh"),
        column("energy_known_share", "", "share", "energy.known_share"),
        column("energy_drawn_kwh", "", "number", lambda row: grid.drawn_kwh(row.energy)),
        column("energy_cost", "", "number", lambda row: grid.cost(row.energy)),
        column("energy_co2_kg", "", "number", lambda row: grid.co2_kg(row.energy)),
    )
    states = {state for row in (*rows, total) for state, spent_ms in row.state_ms.items() if spent_ms}
    shown = {"name", "gpu_hours", "efficiency", *(("rank_efficiency",) if group in _RANKED else ())}
    if total.paid_cents is None:
        shown |= {f"{state}_gpu_hours" for state in states}
    else:
        shown |= {"paid", *(f"{'used' if state in IN_USE else state}_cost" for state in states)}
        shown |= {"unpriced_gpu_hours"} if total.unpriced_ms else set()
    return tuple(replace(each, audience="all" if each.key in shown else "programs") for each in columns)

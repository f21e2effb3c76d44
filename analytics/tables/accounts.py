"""GPU time, its use and its cost by team, user, pool and other groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import methodcaller

from analytics.glossary import state_label, term
from analytics.language.sentences import Amount, GpuHours, Number, from_cents, tr
from analytics.ledger.card_use import CardUse
from analytics.money.accounts import Account
from analytics.money.carbon import CarbonSum
from analytics.money.window_money import Money
from analytics.states import IN_USE, UNUSED, USED_FIRST
from analytics.tables.basis import basis_fact, marked, state_hours
from analytics.tables.card_use import CARD_USE_COLUMNS, card_use_note, card_use_terms, measured_columns
from analytics.tables.names import LEAST_MS, more_with_hours
from analytics.tables.people import (
    RANK_FACTS,
    efficiency,
    efficiency_bounds,
    label_or_name,
    low_note,
    rank_notes,
    rank_place,
)
from analytics.tables.point_samples import unconfirmed_note
from analytics.tables.table import Cell, Column, Kind, Table, column, column_of, fact, for_programs
from fallow.schema import STATES

GROUP_TITLES: Mapping[str, tuple[str, Kind]] = {
    "pool": (tr("pool"), "pool"),
    "team": (tr("team"), "team"),
    "organisation": (tr("organisation"), "name"),
    "model": (tr("model"), "name"),
    "host": (tr("host"), "host"),
    "user": (tr("user"), "user"),
    "account": (tr("account"), "name"),
    "partition": (tr("partition"), "name"),
    "qos": (tr("QOS"), "name"),
    "job": (tr("job"), "name"),
    "day": (tr("day"), "name"),
}
"""The heading and the kind of the names, by the group of accounts or allocations."""
_RANKED = ("team", "organisation", "user", "account")


def accounts_by(group: str, money: Money) -> Table:
    """Return a row per pool, team or other group. A text lists the groups that have GPU time."""
    rows, total, title = priced_accounts(money, group), money.accounts.total, GROUP_TITLES[group][0]
    adds_up = tr("The amount paid is the sum of the used time (busy and low use) and the other states.")
    shown = len(rows) if group == "day" else sum(row.account.total_ms >= LEAST_MS for row in rows)
    return Table(
        name=f"accounts_{group}",
        title=tr("GPU time by {group}", group=title)
        if total.paid_cents is None
        else tr("GPU time and cost in {currency} by {group}", currency=money.currency, group=title),
        question=tr("How was the GPU time used, and what did it cost?"),
        headline=_headline(total, money.currency),
        columns=tuple(_shown_columns(money, group, rows)),
        rows=rows,
        shown=shown,
        rest=more_with_hours([row.account.total_ms for row in rows[shown:]]),
        notes=(
            *(() if total.paid_cents is None else (adds_up,)),
            *(rank_notes(row.account.efficiency_rank for row in rows) if group in _RANKED else ()),
            *low_note(total.state_ms["low"], total.low_by_sm_ms),
            *unconfirmed_note(sum(total.open_ms.values()) if any(row.account.leaves_open for row in rows) else 0),
            *card_use_note(money.accounts.total_card_use),
        ),
        terms=(term("efficiency"), term("effective time"), *card_use_terms(money.accounts.total_card_use)),
        wide=True,
    )


def account_total(money: Money) -> Table:
    """Return the account of the whole window for programs: one row of the same columns."""
    return for_programs("account", ACCOUNT_COLUMNS, (whole_account(money),))


def _headline(total: Account, currency: str) -> str:
    share, is_priced = efficiency(total), total.paid_cents is not None
    known = {"hours": GpuHours(total.total_ms), "paid": Amount(from_cents(total.paid_cents), currency)}
    if share is None:
        return tr("{hours} GPU-hours cost {paid}." if is_priced else "{hours} GPU-hours; no price is known.", **known)
    return tr(
        "{hours} GPU-hours cost {paid}; {efficiency} of the allocated time was effective."
        if is_priced
        else "{hours} GPU-hours; {efficiency} of the allocated time was effective. No price is known.",
        **known,
        efficiency=share,
    )


def _money(read: Callable[[Account], int | None]) -> Callable[[Account], Cell]:
    """Return a cell of cents. None if nothing in the row has a price."""
    return lambda row: None if row.paid_cents is None else Number(from_cents(read(row)), 2)


def _part(name: str) -> Column:
    cents = _money(lambda row: row.used_cents if name == "used" else row.state_cents[name])
    figure = column(name, tr("used") if name == "used" else state_label(name), "money", cents)
    return marked(figure, methodcaller("unconfirmed", name)) if name in UNUSED else figure


COST_PARTS = tuple(map(_part, ("used", *(state for state in USED_FIRST if state not in IN_USE))))
"""Columns that add up to `paid`. `used` is busy and low-use time."""


_TIME = (
    fact("label", "words", about="What stands for the name.", nullable=False),
    fact("gpus", "count"),
    column("gpu_hours", tr("GPU-hours"), "gpu_hours", "total_ms"),
    *map(state_hours, STATES),
    fact(
        "unconfirmed_gpu_hours",
        "gpu_hours",
        lambda row: sum(row.open_ms.values()),
        about="What only point samples call idle.",
    ),
    *(fact(f"{state}_unconfirmed_gpu_hours", "gpu_hours", f"open_ms.{state}") for state in UNUSED),
    *(basis_fact(f"{state}_basis", methodcaller("basis", state)) for state in UNUSED),
)
UNPAID = (
    fact(
        "unconfirmed_cost",
        "money",
        _money(lambda row: sum(row.open_cents.values())),
        about="Of the idle parts, what only point samples call idle.",
    ),
    column("unpriced_gpu_hours", tr("without a price"), "gpu_hours", "unpriced_ms"),
)
EFFICIENCY = (
    fact("effective_gpu_hours", "gpu_hours", "effective_ms", about="Active time, and low time by its activity."),
    column("efficiency", tr("efficiency"), "share", efficiency, "efficiency"),
    *efficiency_bounds("efficiency"),
    fact(
        "low_by_sm_share",
        "share",
        "low_by_sm",
        about="The share of the low time that counts by its SM activity, the rest by utilization.",
    ),
)
_RANKS = (
    fact("rank_gpu_hours", "count", "rank_gpu_time"),
    column_of(
        "efficiency_rank",
        column("rank_efficiency", tr("rank"), "words", rank_place, "place", json_type="integer", missing=""),
    ),
    *RANK_FACTS,
)


@dataclass(frozen=True)
class PricedAccount:
    """An account with its money, its CO2 and its use of the cards.

    CO2 is None if the carbon intensity of the grid is not known. `card_use` is None without busy time or measures.
    """

    account: Account
    money: Money
    carbon: CarbonSum | None
    card_use: CardUse | None

    @property
    def co2_kg(self) -> float | None:
        """Return the CO2 in kg; None if the energy is not known."""
        return None if self.carbon is None or self.account.energy.kwh is None else self.carbon.co2_kg


def priced_accounts(money: Money, group: str) -> tuple[PricedAccount, ...]:
    """Return the account of each pool, team or other group, with currency, CO2, energy cost and use of the cards."""
    carbon, uses = money.carbon_by(group), money.accounts.card_use(group)
    return tuple(
        PricedAccount(row, money, carbon.get(row.label), uses.get(row.label)) for row in money.accounts.by(group)
    )


def whole_account(money: Money) -> PricedAccount:
    return PricedAccount(money.accounts.total, money, money.carbon, money.accounts.total_card_use)


ACCOUNT_COLUMNS = (
    column("name", "", "name", lambda row: label_or_name(row.account), "account.name"),
    *(column_of("account", each) for each in _TIME),
    fact("currency", "words", "money.currency", about="ISO 4217.", nullable=False),
    *(column_of("account", each, f"{each.key}_cost") for each in COST_PARTS),
    column("paid", tr("paid"), "money", lambda row: from_cents(row.account.paid_cents)),
    *(column_of("account", each) for each in (*UNPAID, *EFFICIENCY)),
    *CARD_USE_COLUMNS,
    *(column_of("account", each) for each in _RANKS),
    fact("energy_kwh", "number", "account.energy.kwh"),
    fact("energy_known_share", "share", "account.energy.known_share"),
    fact("energy_drawn_kwh", "number", lambda row: row.money.grid.drawn_kwh(row.account.energy), about="With the PUE."),
    fact("energy_cost", "number", lambda row: row.money.grid.cost(row.account.energy)),
    fact("energy_co2_kg", "number", "co2_kg"),
)
"""Columns of a `PricedAccount`, in every format."""


def _shown_columns(money: Money, group: str, rows: Sequence[PricedAccount]) -> Iterator[Column]:
    """Yield the columns. People get only columns with a value in at least one row."""
    total = money.accounts.total
    accounts = (*(row.account for row in rows), total)
    states = {state for row in accounts for state, spent_ms in row.state_ms.items() if spent_ms}
    shown = {
        *measured_columns(row.card_use for row in rows),
        "name",
        "gpu_hours",
        "efficiency",
        *(("rank_efficiency",) if group in _RANKED else ()),
    }
    if total.paid_cents is None:
        shown |= {f"{state}_gpu_hours" for state in states}
    else:
        shown |= {"paid", *(f"{'used' if state in IN_USE else state}_cost" for state in states)}
        shown |= {"unpriced_gpu_hours"} if total.unpriced_ms else set()
    title, kind = GROUP_TITLES[group]
    for each in ACCOUNT_COLUMNS:
        own = replace(each, audience="all" if each.key in shown else "programs")
        if each.key == "name":
            own = replace(own, title=title, kind=kind)
        elif each.key == "paid":
            own = replace(own, title=tr("paid, {currency}", currency=money.currency))
        yield own

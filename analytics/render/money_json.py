"""Money and energy of a window for machines: amounts are in whole cents, written with two decimals."""

from __future__ import annotations

from collections.abc import Mapping

from analytics.money.accounts import Account, EfficiencyRank
from analytics.money.energy import Energy, Grid
from analytics.money.prices import Price
from analytics.money.window_money import Money
from analytics.states import IN_USE, UNUSED
from analytics.tables.accounts import PARTS
from fallow.clock import HOUR_MS
from fallow.schema import STATES


def money_json(money: Money) -> dict[str, object]:
    """What was paid by state, and the prices that it rests on."""
    total = money.accounts.total
    return {
        "currency": money.currency,
        **cost_json(total),
        **_efficiency(total),
        "prices": [
            {"model": each.model, "pool": each.pool, "gpus": each.gpus} | price_json(each.price) for each in money.basis
        ],
    }


def energy_json(money: Money) -> dict[str, object]:
    """The energy of the window, in all and by state."""
    return {
        **_energy(money.accounts.total.energy, money.grid),
        "counter_share": money.counter_share,
        "pue": money.grid.pue,
        "price_per_kwh": money.grid.price_per_kwh,
        "grid_kg_per_kwh": money.grid.kg_per_kwh,
        "kwh_by_state": {state: energy.kwh for state, energy in sorted(money.accounts.energy_by_state.items())},
    }


def account_json(row: Account, money: Money) -> dict[str, object]:
    """One row of a table."""
    return {
        "name": row.name,
        "label": row.label,
        "gpus": row.gpus,
        "gpu_hours": {"total": row.total_ms / HOUR_MS} | {state: row.state_ms[state] / HOUR_MS for state in STATES},
        "unconfirmed_gpu_hours": {state: row.open_ms[state] / HOUR_MS for state in UNUSED},
        "currency": money.currency,
        **cost_json(row),
        **_efficiency(row),
        "rank_gpu_hours": row.rank_gpu_time,
        **rank_json(row.efficiency_rank),
        "energy": _energy(row.energy, money.grid),
    }


def cost_json(row: Account) -> dict[str, object]:
    """Paid, its parts, what of the idle ones point samples alone say, and the GPU time that has no price."""
    paid = row.paid_cents
    return {
        "paid": None if paid is None else paid / 100,
        "cost": parts(row),
        "unconfirmed_cost": None if paid is None else sum(row.open_cents.values()) / 100,
        "unpriced_gpu_hours": row.unpriced_ms / HOUR_MS,
    }


def parts(row: Account) -> Mapping[str, float | None]:
    """The parts of what was paid; all None where nothing has a price."""
    if row.paid_cents is None:
        return dict.fromkeys(PARTS)
    cents = {"used": row.used_cents} | {state: row.state_cents[state] for state in STATES if state not in IN_USE}
    return {part: cents[part] / 100 for part in PARTS}


def price_json(price: Price | None) -> dict[str, object]:
    """One price; null where there is none."""
    return {
        "hourly": None if price is None else float(price.hourly),
        "date": None if price is None or price.date is None else price.date.isoformat(),
        "source": None if price is None else price.source,
        "origin": None if price is None else price.origin,
        "stated": None if price is None else price.stated,
    }


def rank_json(rank: EfficiencyRank | None) -> dict[str, object]:
    """The rank by efficiency, among how many, on which model, and the own figures on it; null where nobody is to compare with."""
    return {
        "rank_efficiency": None if rank is None else rank.place,
        "rank_efficiency_of": None if rank is None else rank.compared,
        "rank_efficiency_model": None if rank is None else rank.model,
        "rank_efficiency_gpu_hours": None if rank is None else rank.allocated_ms / HOUR_MS,
        "efficiency_on_model": None if rank is None else rank.efficiency,
    }


def _efficiency(row: Account) -> dict[str, object]:
    return {
        "effective_gpu_hours": row.effective_ms / HOUR_MS,
        "efficiency": row.efficiency,
        "low_by_sm_share": row.low_by_sm,
    }


def _energy(energy: Energy, grid: Grid) -> dict[str, object]:
    return {
        "kwh": energy.kwh,
        "known_share": energy.known_share,
        "drawn_kwh": grid.drawn_kwh(energy),
        "cost": grid.cost(energy),
        "co2_kg": grid.co2_kg(energy),
    }

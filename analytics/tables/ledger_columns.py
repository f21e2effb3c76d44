"""Columns for programs of the ledger, its money and its energy, for the JSON formats and the API."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import methodcaller

import polars as pl

from analytics.inventory import Inventory
from analytics.language.sentences import from_cents
from analytics.ledger.sampled import Bound
from analytics.ledger.summary import Totals, ratio, totals_by
from analytics.states import UNUSED
from analytics.tables.accounts import COST_PARTS, EFFICIENCY, UNPAID, whole_account
from analytics.tables.basis import basis_fact
from analytics.tables.card_use import CARD_USE
from analytics.tables.table import (
    Column,
    Table,
    column_of,
    entries_column,
    fact,
    flag,
    for_programs,
    record_column,
    rows_column,
)
from fallow.schema import STATES

WINDOW_COLUMNS = (
    fact("since", "moment", "since_ms", nullable=False),
    fact("until", "moment", "until_ms", nullable=False),
)
"""Columns of objects with a begin and an end."""

SCOPE_COLUMNS = tuple(fact(name, "words") for name in ("pool", "model", "team", "user"))
"""Columns of a `Scope`."""


_GPU_HOURS = record_column(
    "gpu_hours",
    (fact("total", "gpu_hours", "total_ms"), *(fact(state, "gpu_hours", f"state_ms.{state}") for state in STATES)),
    "",
    "In all and by state; the states add up to the total.",
)
_BASIS = record_column(
    "basis",
    tuple(basis_fact(state, methodcaller("basis", state)) for state in UNUSED),
    "",
    "What the hours of idle states, and their cost, rest on.",
)
TOTALS_COLUMNS = (fact("gpus", "count"), fact("coverage", "share", about="Observed share."), _GPU_HOURS, _BASIS)
"""Columns of `Totals`."""


def _shares(bound: Bound, whole_ms: float) -> list[float | None]:
    return [ratio(bound.low_ms, whole_ms), ratio(bound.high_ms, whole_ms)]


def _between(state: str) -> Column:
    def read(totals: Totals) -> list[float | None]:
        return _shares(totals.bound(state), totals.observed_ms)

    return fact(state, "share", read, "array", nullable=False)


def _unconfirmed(state: str) -> Column:
    return fact(state, "gpu_hours", lambda totals: totals.unconfirmed_ms.get(state, 0))


_POINT_SAMPLES = (
    fact("gpu_hours", "gpu_hours", "totals.sampled_ms"),
    fact("share", "share", "totals.sampled", about="Of the observed time."),
    fact("count", "count", "samples.count"),
    fact(
        "very_likely_gpu_hours",
        "gpu_hours",
        lambda summary: summary.samples.likely.time_ms if summary.samples.likely else 0,
        about="Idle time that power readings alone support, unless work keeps step with them.",
    ),
    fact("every_s", "duration", "samples.every_ms", about="Mean time between two samples of a GPU."),
    record_column(
        "between",
        (
            fact(
                "idle",
                "share",
                lambda summary: _shares(summary.samples.idle, summary.totals.observed_ms),
                "array",
                "Without a kernel, for however short a time (95 %).",
            ),
            *(column_of("totals", _between(state)) for state in UNUSED),
        ),
        "",
        "Lower and upper bounds, as shares of the observed time.",
    ),
    record_column(
        "unconfirmed_gpu_hours",
        tuple(map(_unconfirmed, UNUSED)),
        "totals",
        "Time that only point samples at 0 call idle.",
    ),
)
SUMMARY_COLUMNS = (
    record_column("window", WINDOW_COLUMNS, ""),
    fact("gpus", "count", "totals.gpus"),
    fact("coverage", "share", about="The observed share of the window."),
    column_of("totals", _GPU_HOURS),
    column_of("totals", _BASIS),
    record_column(
        "idle",
        (
            fact(
                "share",
                "share",
                lambda summary: ratio(summary.idle.zero_ms, summary.totals.observed_ms),
                about="Share of the observed time at zero utilization, allocated or not.",
            ),
            entries_column(
                "idle_intervals",
                fact("", "share"),
                lambda summary: {
                    name: ratio(idle_interval_ms, summary.totals.observed_ms)
                    for name, idle_interval_ms in summary.idle.idle_interval_ms.items()
                },
                "The same in idle intervals of at least this length.",
            ),
        ),
        "",
    ),
    fact(
        "known_share", "share", "totals.coverage", about="The share of the GPU-hours in the sums that is not unknown."
    ),
    fact(
        "outside_gpu_hours",
        "gpu_hours",
        "outside_ms",
        about="Before a host's first row or after its last: not observed, and in no sum.",
    ),
    record_column(
        "point_samples",
        _POINT_SAMPLES,
        "",
        "What was seen at moments only, and what that leaves open; docs/how-a-number-is-made.md.",
    ),
)
"""Columns of a `Summary`. Shares refer to the observed time."""

PRICE_COLUMNS = (
    fact("hourly", "money", about="Per GPU-hour, in the currency of the sums."),
    fact("date", "moment"),
    fact("source", "words"),
    fact("origin", "words", about="site or catalog."),
    fact("stated", "words", about="The figure as it was stated, where that was not per hour in this currency."),
)
"""Columns of a `Price`."""

_MONEY = (
    fact("currency", "words", about="ISO 4217.", nullable=False),
    *(
        column_of("accounts.total", each)
        for each in (
            fact("paid", "money", lambda row: from_cents(row.paid_cents), about="The sum of `cost`."),
            record_column("cost", COST_PARTS, ""),
            *UNPAID,
            *EFFICIENCY,
        )
    ),
    rows_column(
        "prices",
        (
            fact("model", "name", nullable=False),
            fact("pool", "pool", nullable=False),
            fact("gpus", "count", nullable=False),
            *(column_of("price", each) for each in PRICE_COLUMNS),
        ),
        "basis",
    ),
)
_ENERGY = (
    fact(
        "kwh",
        "number",
        "accounts.total.energy.kwh",
        about="By the GPUs' own counters or from readings of power; null where less than 90 % of the time is known.",
    ),
    fact("known_share", "share", "accounts.total.energy.known_share"),
    fact("drawn_kwh", "number", lambda money: money.grid.drawn_kwh(money.accounts.total.energy), about="With the PUE."),
    fact("cost", "money", lambda money: money.grid.cost(money.accounts.total.energy)),
    fact(
        "co2_kg",
        "number",
        lambda money: whole_account(money).co2_kg,
        about="Of the energy in hours of known intensity.",
    ),
    fact("rated_share", "share", "carbon.rated_share", about="Share of the energy in hours whose intensity is known."),
    fact(
        "counter_share",
        "share",
        about="Share of the known time with energy from the GPUs' own counters; the rest is from power readings.",
    ),
    fact("pue", "number", "grid.pue"),
    fact("price_per_kwh", "number", "grid.price_per_kwh"),
    fact(
        "grid_kg_per_kwh",
        "number",
        lambda money: money.grid.intensity and money.grid.intensity.flat and money.grid.intensity.flat / 1000,
        about="Of all hours; null where each hour has its own intensity.",
    ),
    fact("intensity_source", "words", "grid.intensity.source"),
    entries_column(
        "kwh_by_state",
        fact("", "number", "kwh"),
        lambda money: dict(sorted(money.accounts.energy_by_state.items())),
    ),
)
LEDGER_COLUMNS = (
    *(column_of("summary", each) for each in SUMMARY_COLUMNS),
    fact(
        "unplaced_gpu_hours",
        "gpu_hours",
        "unplaced_ms",
        about=(
            "Allocated, on GPUs that are not known: `free` where no process shows. Null for a part of the fleet or a"
            " team."
        ),
    ),
    record_column("money", _MONEY, about="Money of the window."),
    record_column("energy", _ENERGY, "money", "Energy of the window."),
    record_column("card_use", CARD_USE, "money.accounts.total_card_use", "What the busy time used of its cards."),
)
"""Columns of `LedgerFigures`."""


@dataclass(frozen=True)
class GpuLedger:
    """One GPU with its time by state. `host` is its last host. MIG instances have rows of their own."""

    gpu: str
    host: str
    model: str | None
    pool: str | None
    simulated: bool
    totals: Totals


GPU_COLUMNS = (
    fact("gpu", "gpu", nullable=False),
    fact("host", "host", nullable=False),
    fact("model", "name"),
    fact("pool", "pool"),
    flag("simulated"),
    fact("gpu_hours", "gpu_hours", "totals.total_ms"),
    *(fact(f"{state}_gpu_hours", "gpu_hours", f"totals.state_ms.{state}") for state in STATES),
    *(column_of("totals", basis_fact(f"{state}_basis", methodcaller("basis", state))) for state in UNUSED),
    fact("coverage", "share", "totals.coverage", about="The observed share of them."),
)
"""Columns of a `GpuLedger`."""


def gpu_ledger(segments: pl.DataFrame, inventory: Inventory) -> list[GpuLedger]:
    """Return a row per GPU of the given ledger segments, by host and GPU."""
    hosts = dict(segments.sort("time").select("gpu", "host").unique("gpu", keep="last").iter_rows())
    rows = []
    for gpu, totals in totals_by(segments, "gpu").items():
        device = inventory.devices.get(gpu)
        model, pool = (None, None) if device is None else (device.model, device.pool)
        rows.append(GpuLedger(gpu, hosts[gpu], model, pool, inventory.simulated(gpu), totals))
    return sorted(rows, key=lambda row: (row.host, row.gpu))


def gpu_table(rows: Iterable[GpuLedger]) -> Table:
    return for_programs("gpus", GPU_COLUMNS, rows)

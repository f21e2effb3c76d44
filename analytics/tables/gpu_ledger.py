"""The ledger by GPU, for programs: what each GPU was, and how long it was in which state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from analytics.inventory import Inventory
from analytics.ledger.summary import Totals, totals_by
from analytics.tables.table import Column, Table, fact, flag, for_programs
from fallow.schema import STATES


@dataclass(frozen=True)
class GpuLedger:
    """One GPU with its time by state; `host` is where it was last. MIG instances have rows of their own."""

    gpu: str
    host: str
    model: str | None
    pool: str | None
    simulated: bool
    totals: Totals


def _state(state: str) -> Column:
    return fact(f"{state}_gpu_hours", "gpu_hours", lambda row: row.totals.state_ms[state])


GPU_COLUMNS = (
    fact("gpu", "gpu", nullable=False),
    fact("host", "host", nullable=False),
    fact("model", "name"),
    fact("pool", "pool"),
    flag("simulated"),
    fact("gpu_hours", "gpu_hours", "totals.total_ms"),
    *map(_state, STATES),
    fact("coverage", "share", "totals.coverage", about="The observed share of them."),
)
"""Of a `GpuLedger`."""


def gpu_ledger(stretches: pl.DataFrame, inventory: Inventory) -> list[GpuLedger]:
    """Return a row for each GPU of some ledger stretches, in the order of hosts and GPUs."""
    hosts = dict(stretches.sort("time").select("gpu", "host").unique("gpu", keep="last").iter_rows())
    rows = []
    for gpu, totals in totals_by(stretches, "gpu").items():
        device = inventory.devices.get(gpu)
        model, pool = (None, None) if device is None else (device.model, device.pool)
        rows.append(GpuLedger(gpu, hosts[gpu], model, pool, inventory.simulated(gpu), totals))
    return sorted(rows, key=lambda row: (row.host, row.gpu))


def gpu_table(rows: Iterable[GpuLedger]) -> Table:
    """Return the rows as a table."""
    return for_programs("gpus", GPU_COLUMNS, rows)

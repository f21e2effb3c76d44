"""The ledger by GPU as a flat table: what each was, and how long it was in which state."""

from __future__ import annotations

import polars as pl

from analytics.inventory import Inventory
from analytics.ledger.summary import totals_by
from fallow.clock import HOUR_MS
from fallow.schema import STATES

COLUMNS = {
    "gpu": str,
    "host": str,
    "model": str,
    "pool": str,
    "simulated": bool,
    "gpu_hours": float,
    **{f"{state}_gpu_hours": float for state in STATES},
    "coverage": float,
}
"""Every column with the type of its values."""


def rows_by_gpu(stretches: pl.DataFrame, inventory: Inventory) -> list[dict[str, object]]:
    """A row per GPU of some ledger stretches, in the order of hosts and GPUs.

    Hours are GPU-hours in these stretches, `coverage` is the observed share of them, from 0 to 1. `host` is where the GPU was
    last; None is unknown. MIG instances have rows of their own.
    """
    hosts = dict(stretches.sort("time").select("gpu", "host").unique("gpu", keep="last").iter_rows())
    rows = [
        {
            "gpu": gpu,
            "host": hosts[gpu],
            "model": None if (device := inventory.devices.get(gpu)) is None else device.model,
            "pool": None if device is None else device.pool,
            "simulated": inventory.simulated(gpu),
            "gpu_hours": totals.total_ms / HOUR_MS,
            **{f"{state}_gpu_hours": totals.state_ms[state] / HOUR_MS for state in STATES},
            "coverage": totals.coverage,
        }
        for gpu, totals in totals_by(stretches, "gpu").items()
    ]
    return sorted(rows, key=lambda row: (str(row["host"]), str(row["gpu"])))

"""Ledgers out of rows, without a lake: what a test of money needs of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from analytics.inventory import TERMS, Device, Inventory
from analytics.ledger.build import Ledger
from analytics.ledger.summary import clip_ledger
from analytics.money.accounts import Accounts
from analytics.money.costs import Costs
from analytics.money.owners import Owner, Owners
from analytics.money.prices import Price, PriceBook, priced_as

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from decimal import Decimal

    from fallow.clock import Window

Row = dict[str, Any]
T0 = 1_795_132_800_000  # 2026-11-20 00:00 UTC

COLUMNS: dict[str, pl.DataType] = {
    **dict.fromkeys(("gpu", "host"), pl.String()),
    **dict.fromkeys(("time", "end"), pl.Int64()),
    "state": pl.String(),
    "gpu_share": pl.Float64(),
    **dict.fromkeys(("user", "account"), pl.String()),
    "user_shares": pl.List(pl.Float64),
    "energy_mj": pl.Float64(),
    **dict.fromkeys(("energy_ms", "util_ms", "sample_count"), pl.Int64()),
    "gpu_util_max_pct": pl.Float64(),
    "mem_used_max_bytes": pl.Int64(),
    "user_source": pl.String(),
    "zero_ms": pl.Int64(),
    "gpu_util_mean_pct": pl.Float64(),
    "sampled_ms": pl.Int64(),
    **dict.fromkeys(("perhaps_idle_ms", "perhaps_stalled_ms"), pl.Float64()),
    "sm_active_mean_pct": pl.Float64(),
}

MODELS = {"a": "NVIDIA H100 80GB HBM3", "b": "NVIDIA L40S", "c": "NVIDIA A100", "d": None}
"""Priced by the catalog, priced by it, not priced, not even named: by the first letter of the GPU."""


def segment(gpu: str, first_s: float, last_s: float, state: str, **values: object) -> Row:
    """One row of the ledger, in seconds after T0."""
    base: Row = {"gpu": gpu, "host": f"h-{gpu[-1]}", "state": state, "gpu_share": 1.0, "energy_ms": 0}
    return base | {"time": T0 + round(first_s * 1000), "end": T0 + round(last_s * 1000)} | values


def ledger(rows: Iterable[Row]) -> Ledger:
    """The ledger of these rows."""
    return Ledger(pl.DataFrame(list(rows), schema=COLUMNS), pl.DataFrame(schema={"time": pl.Int64, "end": pl.Int64}))


def inventory(rows: Iterable[Row], **parents: str) -> Inventory:
    """One device per GPU of the rows; `parents` are those of MIG instances, both with `-` written as `_`."""
    found = {}
    for row in rows:
        gpu, parent = row["gpu"], parents.get(row["gpu"].replace("-", "_"))
        whole = parent or gpu
        found[gpu] = Device(gpu, row["host"], model=MODELS.get(whole[0]), pool=f"pool-{whole[-1]}", parent_gpu=parent)
    return Inventory(found)


def owners(**teams: str) -> Owners:
    """Users by name, each `team` or `organisation/team`."""
    found = {}
    for name, team in teams.items():
        organisation, _, last = team.rpartition("/")
        found["user", name] = Owner("user", name, last, organisation or None)
    return Owners(found)


def accounts(
    rows: Sequence[Row],
    whose: Owners | None = None,
    prices: PriceBook | None = None,
    window: Window | None = None,
    moves: Sequence[tuple[str, int, str]] = (),
    **parents: str,
) -> Accounts:
    """The accounts of these rows; `moves` are GPUs that came into a pool at a second."""
    known = inventory(rows, **parents)
    terms = [(gpu, T0 + 1000 * at, MODELS[gpu[0]], pool) for gpu, at, pool in sorted(moves)]
    known = replace(known, terms=pl.DataFrame(terms, schema=TERMS, orient="row"))
    built = ledger(rows) if window is None else clip_ledger(ledger(rows), window)
    return Accounts(built, Costs(prices or PriceBook.load(None, "USD"), known), known, whose or Owners.none())


def book(hourly: Mapping[str, Decimal]) -> PriceBook:
    """Prices per model, and nothing else: the currency has no list prices."""
    return PriceBook(
        "XXX",
        {
            priced_as(model, None): (Price(rate, "XXX", None, "a test", "site", model, None),)
            for model, rate in hourly.items()
        },
    )

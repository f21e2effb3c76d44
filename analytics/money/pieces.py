"""The ledger's rows as pieces of one payer each, with their price: what every table of money is a sum of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from analytics.ledger.day_mig import MIG_PREFIX
from analytics.money.cents import MICROCENTS
from fallow.clock import DAY_MS, HOUR_MS, utc_day

if TYPE_CHECKING:
    from analytics.devices import Inventory
    from analytics.money.costs import Costs
    from analytics.money.owners import Owners

NOBODY = "(nobody)"
NOT_KNOWN = "(holder not known)"
NO_TEAM = "(no team)"
NO_ORGANISATION = "(no organisation)"
NO_ACCOUNT = "(no account)"
UNNAMED = frozenset({NOBODY, NOT_KNOWN, NO_TEAM, NO_ORGANISATION, NO_ACCOUNT, "no pool", "unknown model"})
"""Names of groups that are no name: what nobody holds, and what is not known."""

IDLE_OF_NOBODY = ("free", "unavailable", "unknown")
"""States whose time nobody is charged for."""

_COLUMNS = (
    "gpu",
    "host",
    "time",
    "end",
    "state",
    "gpu_share",
    "holder",
    "account",
    "holder_shares",
    "energy_mj",
    "energy_ms",
)
_MIG = re.compile(r"\s+MIG\s+\d+g\..*$", re.IGNORECASE)


def pieces_of(stretches: pl.DataFrame, costs: Costs, inventory: Inventory, owners: Owners) -> pl.DataFrame:
    """One row per ledger row and holder.

    Columns: state, day, gpu, host, pool, model, holder, account, team, organisation (names, UNNAMED where there is none),
    gpu_ms, amount (microcents, null without a price), energy_mj, energy_known_ms (as gpu_ms), span_ms and energy_ms (of the
    GPU, not shared, and of the first holder only).
    """
    span = pl.col("end") - pl.col("time")
    rows = (
        stretches.select(_COLUMNS)
        .with_row_index("row")
        .join(_gpus(stretches, inventory), on="gpu", how="left")
        .join(costs.rates(), on="gpu", how="left")
        .with_columns(span_ms=span, gpu_ms=span * pl.col("gpu_share"))
        .with_columns(
            energy_known_ms=pl.col("energy_ms") * pl.col("gpu_share"),
            amount=(pl.col("gpu_ms") * pl.col("rate") / HOUR_MS * 100 * MICROCENTS).round().cast(pl.Int64),
            day=pl.col("time") // DAY_MS,
        )
    )
    return _named(_per_holder(rows), owners).drop("rate", "holder_shares", "row", "time", "end", "gpu_share")


def _gpus(stretches: pl.DataFrame, inventory: Inventory) -> pl.DataFrame:
    """Pool and model of each GPU; a MIG instance is of its GPU's model, and of its pool unless it has one of its own."""
    gpus = stretches["gpu"].unique().to_list()
    parents = {gpu: device.parent_gpu for gpu in gpus if (device := inventory.devices.get(gpu)) and device.parent_gpu}
    whole = [gpu if inventory.pool(gpu) != "no pool" else parents.get(gpu, gpu) for gpu in gpus]
    return pl.DataFrame(
        {
            "gpu": gpus,
            "pool": [inventory.pool(gpu) for gpu in whole],
            "model": [_MIG.sub("", inventory.model(parents.get(gpu, gpu))) for gpu in gpus],
            "instance": [gpu.startswith(MIG_PREFIX) for gpu in gpus],
        },
        schema={"gpu": pl.String, "pool": pl.String, "model": pl.String, "instance": pl.Boolean},
    )


def _per_holder(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of several holders split by their shares of the process time, equally where those are not known.

    The amounts of the parts add up to the row's: the first holder has what rounding leaves.
    """
    idle = pl.col("state").is_in(IDLE_OF_NOBODY)
    rows = rows.with_columns(pl.when(~idle).then(pl.col(name)).alias(name) for name in ("holder", "account"))
    several = pl.col("holder").str.contains("+", literal=True).fill_null(value=False)
    alone, shared = rows.filter(~several), rows.filter(several)
    if shared.is_empty():
        return alone
    names = pl.col("holder").str.split("+")
    equal = (1.0 / pl.col("names").list.len()).repeat_by(pl.col("names").list.len())
    known = pl.col("holder_shares").list.len() == pl.col("names").list.len()
    parts = (
        shared.with_columns(names=names)
        .with_columns(shares=pl.when(known.fill_null(value=False)).then(pl.col("holder_shares")).otherwise(equal))
        .with_columns(part=pl.int_ranges(0, pl.col("names").list.len()))
        .explode("names", "shares", "part")
    )
    first = pl.col("part") == 0
    share = pl.col("shares") / pl.col("shares").sum().over("row")
    parts = parts.with_columns(
        *((pl.col(name) * share).alias(name) for name in ("gpu_ms", "energy_mj", "energy_known_ms")),
        *(pl.when(first).then(pl.col(name)).otherwise(0).alias(name) for name in ("span_ms", "energy_ms")),
        rounded=(pl.col("amount") * share).round().cast(pl.Int64),
    )
    left = pl.col("amount") - pl.col("rounded").sum().over("row")
    parts = parts.with_columns(
        holder=pl.col("names"), amount=pl.col("rounded") + pl.when(first).then(left).otherwise(0)
    )
    return pl.concat([alone, parts.select(alone.columns)])


def _named(rows: pl.DataFrame, owners: Owners) -> pl.DataFrame:
    """Adds teams and organisations, and says what stands for a name where there is none."""
    pairs = rows.select("holder", "account").unique().rows()
    whose = pl.DataFrame(
        [(holder, account, *_whose(owners, holder, account)) for holder, account in pairs],
        schema=dict.fromkeys(("holder", "account", "team", "organisation"), pl.String),
        orient="row",
    )
    idle = pl.col("state").is_in(IDLE_OF_NOBODY)
    stand_in = {"holder": NOT_KNOWN, "account": NO_ACCOUNT, "team": NO_TEAM, "organisation": NO_ORGANISATION}
    unknown = pl.col("holder").is_null() & pl.col("account").is_null()
    days = rows["day"].unique()
    return rows.join(whose, on=["holder", "account"], how="left", nulls_equal=True).with_columns(
        *(
            pl.when(idle)
            .then(pl.lit(NOBODY))
            .when(unknown)
            .then(pl.lit(NOT_KNOWN))
            .otherwise(pl.col(name).fill_null(other))
            .alias(name)
            for name, other in stand_in.items()
        ),
        day=pl.col("day").replace_strict(days, [utc_day(day * DAY_MS) for day in days], return_dtype=pl.String),
    )


def _whose(owners: Owners, holder: str | None, account: str | None) -> tuple[str | None, str | None]:
    """Team and organisation of one holder; of several accounts, the holder's own line says more."""
    if account is not None and "+" in account and owners.team(holder, None) is not None:
        account = None
    return owners.team(holder, account), owners.organisation(holder, account)

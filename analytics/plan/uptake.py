"""How long new cards stood before their first use, what that cost, and how earlier ones did."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

import polars as pl

from analytics.workloads.model import Context
from analytics.workloads.uptake import added_gpus, ramps
from fallow.clock import DAY_MS, utc_day

_HOURS_A_DAY = 24


@dataclass(frozen=True)
class Arrival:
    """The cards of one pool and model that were first seen on a host on one day (UTC).

    `idle_days` are from a card's first moment to its first use, up to the end of the window where there was none, added up over
    the cards. `first_use_days` and `ramp_days` are medians of the cards that were used, and that reached half of the fleet's
    mean, None where none was. `day_cost` is what a day of all of these cards costs, `idle_cost` that of the idle days, None without a
    price. `active_share` is what share of the time since they were active, `fleet_share` that of the cards from before; None unknown.
    `earlier_days` is the median of the days to first use of the `earlier` cards that came before; one never used counts as it does in
    `idle_days`, so that it is rather said too low than too high.
    """

    day: date
    pool: str
    model: str
    host: str
    gpus: tuple[str, ...]
    unused: int
    idle_days: float
    first_use_days: float | None
    ramp_days: float | None
    active_share: float | None
    fleet_share: float | None
    day_cost: float | None
    idle_cost: float | None
    earlier_days: float | None
    earlier: int


def arrivals(context: Context) -> tuple[Arrival, ...]:
    """The cards that came after the lake's first day, the newest first; what was there from the start is not new."""
    added = added_gpus(context)
    if added.is_empty():
        return ()
    rates = {gpu: context.costs.rate_of(gpu) for gpu in added["gpu"]}
    places = {gpu: (context.inventory.pool(gpu), context.inventory.model(gpu)) for gpu in rates}
    cards = ramps(context, added).with_columns(
        pl.Series("pool", [places[gpu][0] for gpu in added["gpu"]]),
        pl.Series("model", [places[gpu][1] for gpu in added["gpu"]]),
        pl.Series("rate", list(rates.values()), pl.Float64),
        idle_days=(pl.coalesce("first_use", "last_seen") - pl.col("first_seen")) / DAY_MS,
        ramp_days=(pl.col("ramp_day") - pl.col("day")).cast(pl.Float64),
        is_used=pl.col("first_use").is_not_null(),
    )
    ordered = cards.sort("day", "pool", "model", "host", "gpu", descending=(True, False, False, False, False))
    batches = ordered.group_by("day", "pool", "model", "host", maintain_order=True)
    return tuple(_arrival(own, cards) for _, own in batches)


def _arrival(own: pl.DataFrame, cards: pl.DataFrame) -> Arrival:
    first = own.row(0, named=True)
    earlier = cards.filter(pl.col("day") < first["day"])["idle_days"]
    is_priced = not own["rate"].null_count()
    return Arrival(
        day=date.fromisoformat(utc_day(first["day"] * DAY_MS)),
        pool=first["pool"],
        model=first["model"],
        host=first["host"],
        gpus=tuple(own["gpu"]),
        unused=own.filter(~pl.col("is_used")).height,
        idle_days=float(own["idle_days"].sum()),
        first_use_days=_median(own.filter("is_used")["idle_days"]),
        ramp_days=_median(own["ramp_days"]),
        active_share=own.select(pl.col("active_share").mean()).item(),
        fleet_share=first["fleet_mean"],
        day_cost=float(own["rate"].sum()) * _HOURS_A_DAY if is_priced else None,
        idle_cost=own.select((pl.col("rate") * pl.col("idle_days")).sum()).item() * _HOURS_A_DAY if is_priced else None,
        earlier_days=_median(earlier),
        earlier=earlier.len(),
    )


def _median(values: pl.Series) -> float | None:
    return values.to_frame("value").select(pl.col("value").median()).item()  # type: ignore[no-any-return]

"""What a million generated tokens cost and draw here, by what the inference servers say of themselves."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

from analytics.money.energy import KNOWN_MIN, MJ_PER_KWH
from analytics.workloads.model import Context, once_per_context
from fallow.clock import HOUR_MS, SECOND_MS

MILLION = 1e6
_SERVER = ("host", "endpoint", "model")


@dataclass(frozen=True)
class MeasuredTokens:
    """One served model on cards of one model, over the window; hours in which nobody asked are in it.

    `tokens` are generated ones. `cost` is that of its GPU time, None where any of it has no price; `kwh` the energy of its
    GPUs, None where it is known for less than 90 % of the time.
    """

    served: str
    card: str
    gpu_ms: float
    tokens: float
    most_running: float | None
    cost: float | None
    kwh: float | None

    @property
    def tokens_per_gpu_s(self) -> float | None:
        return self.tokens * SECOND_MS / self.gpu_ms if self.gpu_ms else None

    @property
    def cost_per_million(self) -> float | None:
        """None where the cost is not known, or where there were no tokens."""
        return None if self.cost is None or not self.tokens else self.cost / self.tokens * MILLION

    @property
    def kwh_per_million(self) -> float | None:
        """None where the energy is not known, or where there were no tokens."""
        return None if self.kwh is None or not self.tokens else self.kwh / self.tokens * MILLION


def measured_tokens(context: Context, gpus: Collection[str] | None = None) -> tuple[MeasuredTokens, ...]:
    """Every served model and card whose servers count tokens, the most GPU time first; of some GPUs, or of all.

    An hour counts by its share of the scrapes that a whole hour of that server has. GPUs on which several servers or models
    were asked within one hour are left out for that hour: whose time it was is not known.
    """
    hours = _server_hours(context)
    own = hours if gpus is None else hours.filter(pl.col("gpu").is_in(list(gpus)))
    found = own.group_by("model", "card").agg(
        gpu_ms=(pl.col("part") * HOUR_MS).sum(),
        tokens=pl.col("tokens").sum(),
        most_running=pl.col("running_requests_max").max(),
        cost=pl.when(pl.col("rate").is_not_null().all()).then((pl.col("rate") * pl.col("part")).sum()),
        energy_mj=(pl.col("energy_mj") * pl.col("part")).sum(),
        known_ms=pl.col("energy_ms").cast(pl.Int64).sum(),
        hours=pl.len(),
    )
    ordered = found.sort(pl.col("gpu_ms"), "model", "card", descending=[True, False, False])
    return tuple(_measured(row) for row in ordered.iter_rows(named=True))


@once_per_context
def _server_hours(context: Context) -> pl.DataFrame:
    """Hours of one server on one GPU: `gpu`, `model`, `card`, `part` (share of the hour), `tokens` (this GPU's share), `rate`, energy."""
    rows = context.rollups.serving(context.since_ms).filter(
        pl.col("gpu").is_not_null(), pl.col("model").is_not_null(), pl.col("scrape_count") > 0
    )
    alone = pl.struct("endpoint", "model").n_unique().over("host", "gpu", "time") == 1
    whole = pl.col("scrape_count").max().over(_SERVER)
    rows = rows.filter(alone).with_columns(part=pl.col("scrape_count") / whole, gpus=pl.len().over(*_SERVER, "time"))
    seconds = pl.col("part") * (HOUR_MS / SECOND_MS) / pl.col("gpus")
    rows = rows.filter(pl.col("generated_tokens_mean_per_s").is_not_null()).with_columns(
        tokens=pl.col("generated_tokens_mean_per_s") * seconds
    )
    inventory = context.inventory
    cards = pl.DataFrame(
        [
            (gpu, inventory.model(inventory.card_of(gpu)), context.costs.rate_of(gpu))
            for gpu in rows["gpu"].unique()
            if gpu in inventory.devices
        ],
        schema={"gpu": pl.String, "card": pl.String, "rate": pl.Float64},
        orient="row",
    )
    energy = context.rollups.hourly("energy_mj", "energy_ms", since_ms=context.since_ms)
    return rows.join(cards, on="gpu").join(energy, on=("host", "gpu", "time"), how="left")


def _measured(row: dict[str, object]) -> MeasuredTokens:
    numbers = {name: value for name, value in row.items() if isinstance(value, int | float)}
    is_known = numbers["known_ms"] >= KNOWN_MIN * numbers["hours"] * HOUR_MS
    return MeasuredTokens(
        served=str(row["model"]),
        card=str(row["card"]),
        gpu_ms=numbers["gpu_ms"],
        tokens=numbers["tokens"],
        most_running=numbers.get("most_running"),
        cost=numbers.get("cost"),
        kwh=numbers["energy_mj"] / MJ_PER_KWH if is_known else None,
    )

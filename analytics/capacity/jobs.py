"""What somebody's jobs were given in a window, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from analytics.ledger.shared_work import HAS_OTHERS
from analytics.money.costs import Costs
from analytics.states import ALLOCATED


@dataclass(frozen=True)
class JobUse:
    """One job of a holder; `name` is None for what runs without one, and where `shared` is true.

    On a GPU that others hold as well (`shared`) nobody can say whose job it is. `state_ms` is GPU time by state, the holder's
    share of it; `cost` is in the currency of the prices, None where a price is missing.
    """

    name: str | None
    shared: bool
    gpus: tuple[str, ...]
    hosts: tuple[str, ...]
    state_ms: Mapping[str, float]
    first_ms: int
    last_ms: int
    cost: float | None

    @property
    def allocated_ms(self) -> float:
        """GPU time in all states of ALLOCATED."""
        return sum(self.state_ms.values())


def jobs(own: pl.DataFrame, costs: Costs) -> tuple[JobUse, ...]:
    """The jobs, the most GPU time first.

    Args:
        own: the ledger's rows narrowed to one holder (`analytics.scope`), with their share of GPUs that several hold.
        costs: what GPU time costs.
    """
    rows = own.filter(pl.col("state").is_in(ALLOCATED)).with_columns(shared=HAS_OTHERS)
    rows = rows.with_columns(job=pl.when(~pl.col("shared")).then("job"))
    found = [_job(part, costs) for part in rows.partition_by("job", "shared", maintain_order=True)]
    return tuple(sorted(found, key=lambda each: (-each.allocated_ms, each.name or "")))


def _job(rows: pl.DataFrame, costs: Costs) -> JobUse:
    gpu_ms = (pl.col("end") - pl.col("time")) * pl.col("gpu_share")
    sums = dict(rows.group_by("state").agg(gpu_ms.sum()).iter_rows())
    return JobUse(
        name=rows["job"][0],
        shared=rows["shared"][0],
        gpus=tuple(sorted(set(rows["gpu"].to_list()))),
        hosts=tuple(sorted(set(rows["host"].to_list()))),
        state_ms={state: float(sums.get(state, 0.0)) for state in ALLOCATED},
        first_ms=min(rows["time"].to_list()),
        last_ms=max(rows["end"].to_list()),
        cost=costs.of(rows),
    )

"""Work that was seen: what it needed of its cards, as measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from analytics.money.cards import Card, card
from analytics.plan.card_options import CardOption
from analytics.plan.memory_need import MemoryNeed
from analytics.rules.preallocated import cache_use
from analytics.workloads.cards import Demand
from analytics.workloads.model import Context, once_per_context
from analytics.workloads.runs import NEED_MARGIN, PEAK_MAX_SHARE, RUN
from analytics.workloads.smaller_cards import demand_of
from analytics.workloads.work_kinds import work_kinds
from analytics.workloads.workloads import RUN_MIN_MS, nvlinked, runs_with_workload, with_demand, workloads


@dataclass(frozen=True)
class SeenWork:
    """One work (a job on cards of one model, or what bare processes do on one GPU) on `gpus` cards of up to `hosts` hosts.

    `peak_bytes` is the most memory that it had on any of them, `usual_bytes` what 98 % of its hours' peaks stay within.
    `is_reserved`: it took its memory in advance, or may have: its need is then known only as `served_bytes`, with the margin of
    right-sizing, where it is a server that says how much of its cache it used and whose model's name says its size. `demand` is None where nobody
    measured what it makes use of, `present` where its model is not in the table of cards. `is_linked`: its cards spoke over NVLink.
    """

    holder: str | None
    job: str | None
    kind: str
    model: str
    gpus: int
    hosts: int
    gpu_ms: int
    days: int
    peak_bytes: int | None
    usual_bytes: int | None
    is_reserved: bool
    served_bytes: int | None
    is_linked: bool
    demand: Demand | None
    present: Card | None

    @property
    def need(self) -> MemoryNeed | None:
        """Of each card; one that is to hold it has room beside the peak. None where it is not known."""
        if self.served_bytes is not None:
            return MemoryNeed((("measured", self.served_bytes / NEED_MARGIN),), float(self.served_bytes))
        if self.peak_bytes is None or self.is_reserved:
            return None
        return MemoryNeed((("measured", float(self.peak_bytes)),), self.peak_bytes / PEAK_MAX_SHARE)


@dataclass(frozen=True)
class PlacedWork:
    """A work and cards that hold it; `times` as long at most by peak rates, None where that is not known."""

    work: SeenWork
    option: CardOption
    times: float | None


def seen_works(context: Context, stretches: pl.DataFrame) -> tuple[SeenWork, ...]:
    """The works of an hour and more with any of these ledger rows, the most GPU time first."""
    asked = runs_with_workload(context).join(stretches.select(RUN).unique(), on=RUN, how="semi", nulls_equal=True)
    own = set(asked["work"].to_list())
    return tuple(seen for work, seen in _all_works(context) if work in own)


@once_per_context
def _all_works(context: Context) -> tuple[tuple[int, SeenWork], ...]:
    """Everybody's, with the number of each, the most GPU time first."""
    found = with_demand(context, workloads(context)).join(work_kinds(context), on="work", how="left")
    linked = set(nvlinked(context)["work"].to_list())
    ordered = found.sort(pl.col("gpu_ms"), "work", descending=[True, False])
    return tuple(
        (row["work"], _seen(context, row, is_linked=row["work"] in linked)) for row in ordered.iter_rows(named=True)
    )


def _seen(context: Context, row: dict[str, Any], *, is_linked: bool) -> SeenWork:
    same = {name: row[name] for name in ("holder", "job", "kind", "model", "gpus", "hosts", "gpu_ms", "days", "peak_bytes")}  # fmt: skip
    return SeenWork(
        **same,
        usual_bytes=row["q98_bytes"],
        is_reserved=row["need_bytes"] is None,
        served_bytes=_served_bytes(context, row["work"]) if row["preallocated"] else None,
        is_linked=is_linked,
        demand=demand_of(row, less_memory=False),
        present=card(row["model"]),
    )


def short_works(context: Context, stretches: pl.DataFrame) -> pl.DataFrame:
    """`model`, `peak_bytes` and `gpu_ms` of the runs on one whole card that ended within the hour below which `seen_works` leaves them out."""
    own = runs_with_workload(context).join(stretches.select(RUN).unique(), on=RUN, how="semi", nulls_equal=True)
    return own.filter(
        pl.col("ended") - pl.col("began") < RUN_MIN_MS,
        pl.col("single") & pl.col("whole_card") & ~pl.col("service") & (pl.col("gpu_count") == 1),
        pl.col("util_mean_pct") > 0,
        pl.col("peak_bytes").is_not_null() & ~pl.col("reserving"),
    ).select("model", "peak_bytes", "gpu_ms")


def _served_bytes(context: Context, work: int) -> int | None:
    use = cache_use(context, runs_with_workload(context).filter(pl.col("work") == work))
    return None if use is None else use.need_bytes

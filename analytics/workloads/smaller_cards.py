"""Findings that name a fitting card: the common part of the rules on too large and too powerful cards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl

from analytics.language.sentences import Number, tr
from analytics.workloads import waste
from analytics.workloads.cards import BFLOAT16_SINCE, WORTH_MOVING, Demand, Offer, ask_for, shelf, slowdown
from analytics.workloads.commands import monitor_command
from analytics.workloads.finding_parts import label, workload_candidate
from analytics.workloads.ledger_rows import gpu_ms_of, gpus_on, highest, lowest
from analytics.workloads.model import Context, EvidenceValue, Label, joined_by_and
from analytics.workloads.rule import Candidate, Rule
from analytics.workloads.runs import NEED_THRESHOLDS
from analytics.workloads.workloads import (
    PEAK_THRESHOLDS,
    REPORTED_FROM_GPU_MS,
    WORK_THRESHOLDS,
    WORKLOAD_HISTORY,
    nvlinked,
    sm_activity_measured,
    sm_activity_of_means,
    with_rows,
)
from fallow.clock import HOUR_MS

UNMEASURED_BANDWIDTH = 0.75
"""Share of the peak memory bandwidth that running kernels are assumed to use if it was not measured; few use more."""

_TARGET = ("user", "account", "model", "target")


SMALLER_CARD_LABELS = (
    label("sm_active_p95_pct", "SM activity {value} % or less for 95 % of the time"),
    label("dram_active_p95_pct", "memory bandwidth {value} % or less for 95 % of the time"),
)

_PRICE_THRESHOLDS = {
    "price": (
        f"at least {WORTH_MOVING:.0%} below the price of the present card; merely below it if the prices are of two"
        " kinds, such as the site's own and a list price (ours)"
    ),
    "saving": (
        "shown for a card that the fleet had in the last 24 h of the window, if both prices are of the same kind; else"
        " unknown"
    ),
}


def smaller_card_rule(
    name: str,
    sentence: str,
    find: Callable[[Context], Iterator[Candidate]],
    *,
    precedence: int,
    thresholds: Mapping[str, str],
    labels: tuple[Label, ...],
) -> Rule:
    """Return a rule whose findings are `smaller_card_findings`, with its own thresholds and labels."""
    return Rule(
        name=name,
        category="right_size",
        sentence=sentence,
        kinds=(waste.OVERSIZED,),
        precedence=precedence,
        history=WORKLOAD_HISTORY,
        thresholds={**thresholds, **_PRICE_THRESHOLDS, **PEAK_THRESHOLDS, **NEED_THRESHOLDS, **WORK_THRESHOLDS},
        labels=labels,
        find=find,
    )


def smaller_card_findings(context: Context, found: pl.DataFrame, *, less_memory: bool) -> Iterator[Candidate]:
    """Yield a finding per user, account, model and card that fits workloads (columns: `workloads`, `with_demand`)."""
    offers: dict[tuple[str, str], Offer] = {}
    targets: list[str | None] = []
    for row in found.iter_rows(named=True):
        demand = demand_of(row, less_memory=less_memory)
        offer = None if demand is None else shelf(context).choose(row["model"], demand)
        targets.append(None if offer is None else offer.card.name)
        if offer is not None:
            offers[row["model"], offer.card.name] = offer
    moved = found.with_columns(target=pl.Series(targets, dtype=pl.String)).drop_nulls("target").sort("work")
    groups = [
        each for each in moved.partition_by(_TARGET, maintain_order=True) if each["gpu_ms"].sum() > REPORTED_FROM_GPU_MS
    ]
    for workloads, runs, rows in with_rows(context, groups):
        offer = offers[workloads["model"][0], workloads["target"][0]]
        command, note = _ask_command(context, workloads, runs, offer)
        present = shelf(context).fleet[workloads["model"][0]]
        saving, unknown_because = saving_of(context, rows, offer)
        yield workload_candidate(
            workloads,
            runs,
            rows,
            numbers=_numbers(workloads, present, offer) | {"saving": saving},
            failed=_failures(context, workloads, present, offer),
            next_command=command,
            notes=[note, *_slower(present, offer), *unknown_because],
        )


def demand_of(row: Mapping[str, Any], *, less_memory: bool) -> Demand | None:
    """Return the demand of a workload on a card; None if unknown.

    By SM activity if measured: a GPU counts as busy while any kernel runs, however few SMs the kernel uses.
    """
    busy_pct = row["util_pct"] if row["sm_pct"] is None else row["sm_pct"]
    if busy_pct is None or row["peak_bytes"] is None:
        return None
    flow_pct = UNMEASURED_BANDWIDTH * busy_pct if row["dram_pct"] is None else row["dram_pct"]
    return Demand(row["peak_bytes"], busy_pct / 100, flow_pct / 100, less_memory=less_memory)


def saving_of(context: Context, rows: pl.DataFrame, offer: Offer) -> tuple[float | None, list[str]]:
    """Return the saving if ledger rows had run on another fleet card; None and a sentence why if it is unknown."""
    if offer.model is None:
        return _no_saving(tr("no such card in this fleet"))
    prices = {gpu: context.costs.price_of(gpu) for gpu in rows["gpu"].unique()}
    unpriced = {context.inventory.model(gpu) for gpu, price in prices.items() if price is None}
    unpriced |= set() if offer.hourly is not None else {offer.model}
    if unpriced:
        return _no_saving(tr("no price for {cards}", cards=joined_by_and(sorted(unpriced))))
    if not all(price is None or offer.is_comparable(price) for price in prices.values()):
        return _no_saving(tr("the prices are of two kinds, such as the site's own and a list price"))
    cost = context.costs.of(rows)
    saving = None if cost is None or offer.hourly is None else cost - offer.hourly * gpu_ms_of(rows) / HOUR_MS
    if saving is None or saving <= 0:
        return _no_saving(tr("at the prices of that time the move would have saved nothing"))
    return saving, []


def _no_saving(why: str) -> tuple[None, list[str]]:
    return None, [tr("the saving is unknown: {why}", why=why)]


def _ask_command(context: Context, workloads: pl.DataFrame, runs: pl.DataFrame, offer: Offer) -> tuple[str, str]:
    if offer.model is None:
        host = runs["host"][0]
        gpus = gpus_on(runs, host)
        note = tr("no card of this fleet fits; {card} is from the catalog", card=offer.card.name)
        return monitor_command(host, gpus), note
    on_host = runs.group_by("work", "host").agg(gpus=pl.col("gpu").n_unique())
    model = workloads["model"][0]
    return ask_for(context, workloads["job"].to_list(), offer, present=model, gpus_per_host=highest(on_host, "gpus"))


def _numbers(workloads: pl.DataFrame, present: Offer, offer: Offer) -> dict[str, EvidenceValue]:
    highest = workloads.select(
        pl.col("q98_bytes", "peak_bytes", "need_bytes", "util_max_pct", "util_pct", "sm_pct", "dram_pct").max()
    )
    most = highest.row(0, named=True)
    unmeasured = {name for name in ("sm_pct", "dram_pct") if workloads[name].null_count()}
    return {
        "card_memory_bytes": lowest(workloads, "card_bytes"),
        "mem_used_max_bytes": most["peak_bytes"],
        "mem_need_bytes": most["need_bytes"],
        "gpu_util_p95_pct": most["util_pct"],
        "gpu_util_max_pct": most["util_max_pct"],
        "sm_active_p95_pct": None if "sm_pct" in unmeasured else most["sm_pct"],
        "dram_active_p95_pct": None if "dram_pct" in unmeasured else most["dram_pct"],
        "recommended_card": offer.model or offer.card.name,
        "recommended_memory_bytes": offer.card.memory_bytes,
        "recommended_in_fleet": offer.gpus,
        "hourly": present.hourly,
        "recommended_hourly": offer.hourly,
    }


def _failures(context: Context, workloads: pl.DataFrame, present: Offer, offer: Offer) -> list[str]:
    # the card would be too slow for these if their kernels filled the present card
    by_means = pl.col("sm_pct").is_not_null() & (pl.col("util_pct") > 100 / (slowdown(present.card, offer.card) or 1.0))
    failed = [*sm_activity_measured(workloads), *sm_activity_of_means(workloads.filter(by_means))]
    if not workloads.join(nvlinked(context), on="work", how="semi").is_empty():
        failed.append(
            tr("the workload's GPUs use NVLink, and it is unknown whether {card} has NVLink", card=offer.card.name)
        )
    if workloads["sm_pct"].null_count():
        failed.append(
            tr("SM activity and memory bandwidth were not measured, so the time with any kernel is used instead")
        )
    return [*failed, *no_bfloat16(offer)]


def no_bfloat16(offer: Offer) -> list[str]:
    """Return the condition that a card without bfloat16 fails."""
    if offer.card.year >= BFLOAT16_SINCE:
        return []
    return [tr("{card} has no bfloat16, and the workload's number formats are unknown", card=offer.card.name)]


def _slower(present: Offer, offer: Offer) -> list[str]:
    slower = slowdown(present.card, offer.card)
    if slower is None or slower <= 1:
        return []
    return [
        tr(
            "the workload fits, but a step that fills the present card would take {factor} times as long",
            factor=Number(slower, 1),
        )
    ]

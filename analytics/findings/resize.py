"""Findings that name a card which would do: what the rules on too large and too powerful cards have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.findings.base import finding_of
from analytics.findings.confidence import known_holder
from analytics.findings.resubmit import ask_for, look_at
from analytics.findings.runs import stretches_of
from analytics.findings.smaller import BFLOAT16_SINCE, Choice, Demand, shelf, slowdown
from analytics.findings.works import TOLD_FROM_GPU_MS, work_of_runs
from analytics.ledger.text import count
from analytics.money.cards import card
from fallow.clock import HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analytics.findings.model import Context, Finding, Number, Rule

PEAK_MIN_DAYS = 7
"""Days of memory peaks that are wanted: a week holds what is done once a week."""

_TARGET = ("holder", "account", "model", "target")


def resized(context: Context, rule: Rule, found: pl.DataFrame, *, less_memory: bool) -> Iterator[Finding]:
    """A finding per holder, account, model and card that would do for some works (columns of `works` and `with_demand`)."""
    choices: dict[str, Choice] = {}
    targets: list[str | None] = []
    for row in found.iter_rows(named=True):
        chosen = shelf(context).choose(row["model"], _demand(row, less_memory=less_memory))
        targets.append(None if chosen is None else chosen.name)
        if chosen is not None:
            choices[chosen.name + "\0" + row["model"]] = chosen
    moved = found.with_columns(target=pl.Series(targets, dtype=pl.String)).filter(pl.col("target").is_not_null())
    groups = moved.sort("work").partition_by(_TARGET, maintain_order=True)
    for works in groups:
        if works["gpu_ms"].sum() > TOLD_FROM_GPU_MS:
            chosen = choices[works["target"][0] + "\0" + works["model"][0]]
            yield _finding(context, rule, works, chosen)


def _demand(row: dict[str, object], *, less_memory: bool) -> Demand:
    """SM activity where it was measured: a GPU is busy while any kernel runs, however few of its SMs that takes."""
    busy_pct = row["util_pct"] if row["sm_pct"] is None else row["sm_pct"]
    flow_pct = row["util_pct"] if row["dram_pct"] is None else row["dram_pct"]
    if not isinstance(busy_pct, float) or not isinstance(flow_pct, float) or not isinstance(row["peak_bytes"], int):
        return Demand(0, 1.0, 1.0, less_memory=True)
    return Demand(row["peak_bytes"], busy_pct / 100, flow_pct / 100, less_memory=less_memory)


def _finding(context: Context, rule: Rule, works: pl.DataFrame, chosen: Choice) -> Finding:
    runs = work_of_runs(context).join(works.select("work"), on="work", how="semi")
    rows = stretches_of(context, runs)
    holder, model = works["holder"][0], works["model"][0]
    jobs = works["job"].to_list()
    wide = runs.group_by("work", "host").agg(pl.col("gpu").n_unique())["gpu"]
    first = runs.sort("host", "gpu").row(0, named=True)
    if chosen.model is None:
        command = look_at(first["host"], runs.filter(pl.col("host") == first["host"])["gpu"].unique().sort().to_list())
        notes = [f"the fleet has no card that would do; {chosen.name} is from the catalog"]
    else:
        command, note = ask_for(context, jobs, chosen.card, chosen.model, int(wide.max() or 1), model)  # type: ignore[call-overload]  # a count
        notes = [note]
    return finding_of(
        context,
        rule,
        rows,
        subject="\0".join((holder or first["gpu"], works["account"][0] or "", model)),
        numbers=_numbers(context, works, chosen),
        failed=[known_holder(works["holder_source"][0], holder), _unsure(works, chosen)],
        next_command=command,
        holder=holder,
        notes=[*notes, *_said_of_price(chosen)],
    )

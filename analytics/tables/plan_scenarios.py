"""Saved scenarios side by side, above them today."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, GpuHours, Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.money.window_money import Money
from analytics.plan.replay.compared_scenarios import ComparedScenario
from analytics.plan.replay.outcome import FleetUse, PoolUse
from analytics.plan.replay.replayed_waits import WaitFigures
from analytics.report.model import Report
from analytics.tables.plan_replay_check import span
from analytics.tables.table import Cell, Column, Table


def scenario_table(compared: Sequence[ComparedScenario], money: Money) -> Table | None:
    """None where nobody has saved any."""
    if not compared:
        return None
    answered = [(each, each.outcome) for each in compared if each.outcome is not None]
    rows: list[tuple[Cell, ...]] = []
    if answered:
        first = answered[0][1]
        rows.append(
            (
                tr("as it is today"),
                *_figures(first.today, first.waits.today if first.waits else None, money),
                Number(0),
            )
        )
    for each, outcome in answered:
        lost = sum(gone.jobs for gone in outcome.unplaced)
        rows.append(
            (
                plain(each.saved.name),
                *_figures(outcome.then, outcome.waits.then if outcome.waits else None, money),
                Number(lost),
            )
        )
    return Table(
        name="scenarios",
        title=tr("Scenarios side by side"),
        question=tr("What would each saved scenario have made of the same jobs?"),
        headline=tr_many("{number} scenario is saved.", "{number} scenarios are saved.", len(compared)),
        columns=(
            Column("scenario", tr("scenario"), "words"),
            Column("gpus", tr("GPUs"), "count"),
            Column("p95", tr("19 of 20 within"), "number"),
            Column("waited", tr("waited"), "number"),
            Column("used", tr("given out"), "share"),
            Column("cost", tr("cost"), "money"),
            Column("kwh", tr("kWh"), "number"),
            Column("lost", tr("not run"), "count"),
        ),
        rows=tuple(rows),
        notes=(tr("Waited are GPU-hours of waiting, kWh those that the site draws for the GPUs; jobs not run fit nowhere."),),
        lines=tuple(
            tr("{name} cannot be replayed: {why}.", name=plain(each.saved.name), why=each.why_not)
            for each in compared if each.outcome is None
        ),
        wide=True,
    )  # fmt: skip


def scenarios_in_report(report: Report) -> Table | None:
    """Those that somebody saved, over the jobs of the week."""
    return scenario_table(report.scenarios, report.money)


def _figures(use: FleetUse, waits: WaitFigures | None, money: Money) -> tuple[Cell, ...]:
    total: PoolUse = use.total
    told = (None, None) if waits is None else (span(waits.p95_ms), GpuHours(waits.gpu_ms))
    return (
        Number(total.gpus),
        *told,
        Share(total.utilization),
        None if total.cost is None else Amount(total.cost, money.currency),
        None if use.kwh is None else Number(use.kwh * money.grid.pue, 1),
    )

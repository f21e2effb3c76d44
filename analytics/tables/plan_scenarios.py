"""Several changes side by side, compared with the replay of today: numbers of GPUs in a pool, and saved scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TypeAlias

from analytics.language.sentences import GpuHours, Number, SentenceList, Share, plain, tr, tr_many
from analytics.money.window_money import Money
from analytics.plan.replay.comparisons import ComparedScenario, Sweep
from analytics.plan.replay.replay_base import FleetUse
from analytics.plan.replay.replayed_waits import ReplayCheck, WaitFigures
from analytics.tables.chart import Chart, ChartPlace, Dots, Line, Mark, Panel, Shape
from analytics.tables.names import GPUS, amount_column, place_name
from analytics.tables.plan_replay import outcome_column, site_kwh
from analytics.tables.plan_replay_check import (
    MEAN_WAIT,
    MEDIAN_WAIT,
    NOT_STARTED,
    P95_WAIT,
    WAITED,
    refusal,
    unknown_waits,
    waits_remedy,
    words,
)
from analytics.tables.table import Column, Table, column, column_of, fact, for_programs, rows_column, single
from fallow.clock import HOUR_MS, MINUTE_MS

_ALLOCATED = column("utilization", tr("allocated"), "share", lambda use: Share(use.total.utilization))
"""Reads a FleetUse, as `_cost` does."""


def _cost(currency: str | None) -> Column:
    return amount_column("cost", tr("cost"), currency, "total.cost")


def scenario_table(compared: Sequence[ComparedScenario], money: Money) -> Table:
    """Return saved scenarios side by side, below the row of today."""
    title = tr("Scenarios side by side")
    question = tr("What would change with each saved scenario?")
    if not compared:
        nothing = tr("No scenario is saved. `fallow plan scenarios --save NAME` and the page What if save scenarios.")
        return Table(name="scenarios", title=title, question=question, headline=nothing)
    answered = [(plain(each.saved.name), each.outcome) for each in compared if each.outcome is not None]
    rows: list[tuple[str, FleetUse]] = [(tr("today"), answered[0][1].today)] if answered else []
    rows += [(name, outcome.then) for name, outcome in answered]
    return Table(
        name="scenarios",
        title=title,
        question=question,
        headline=tr_many("{number} {scenario is|scenarios are} saved.", len(compared)),
        columns=(
            column("scenario", tr("scenario"), "words", itemgetter(0)),
            *(
                column_of(itemgetter(1), figure)
                for figure in (
                    column("gpus", tr("GPUs"), "count", "total.gpus"),
                    column_of("waits", P95_WAIT),
                    column_of("waits", replace(WAITED, title=tr("queue"))),
                    _ALLOCATED,
                    _cost(money.currency),
                    column("site_kwh", tr("kWh"), "number", lambda use: site_kwh(use, money.grid), digits=1),
                    column("jobs_not_run", tr("not run"), "count", "lost"),
                )
            ),
        ),
        rows=tuple(rows),
        notes=(
            tr(
                "Queue: GPU-hours that jobs wait. kWh: the energy that the site draws for the GPUs. Not run: jobs that"
                " fit nowhere."
            ),
        ),
        lines=tuple(
            tr("{name} cannot be replayed: {why}.", name=plain(each.saved.name), why=each.why_not)
            for each in compared
            if each.outcome is None
        ),
        wide=True,
    )


def saved_scenarios(compared: Sequence[ComparedScenario], money: Money) -> Table:
    """Return for programs each saved scenario, with the rows of all tables of its replay."""
    columns = (
        fact("scenario", "name", "saved.name"),
        fact("policy", "words", "saved.policy"),
        fact("saved", "moment", "saved.time_ms"),
        fact("by", "name", "saved.by"),
        fact("why_not", "sentence", lambda each: each.why_not or None),
        outcome_column(money),
    )
    return for_programs("saved_scenarios", columns, compared)


ScenarioPoint: TypeAlias = tuple[int, WaitFigures]
"""A number of GPUs in a pool, and the queue waits of its jobs."""


def pool_curve(
    check: ReplayCheck, pool: str, found: Sweep | None, scenario: ScenarioPoint | None, currency: str | None
) -> Table:
    """Return a pool's sweep with a scenario marked; without a sweep, why its queue waits are not known."""
    if found is not None:
        return replay_sweep(found, currency, scenario)
    waits = next(each.waits for each in check.pools if each.pool == pool)
    reason = SentenceList([unknown_waits(pool, waits), waits_remedy(check)], " ")
    return Table(name="replay_sweep", title=_SWEEP_TITLE, question=_SWEEP_QUESTION, headline=reason)


_SWEEP_TITLE = tr("Queue waits by number of GPUs")
_SWEEP_QUESTION = tr("How many GPUs are enough, and from which number do more GPUs bring little?")


def replay_sweep(found: Sweep, currency: str | None, scenario: ScenarioPoint | None = None) -> Table:
    """Return waits and cost by the number of GPUs in a pool, with the curve of waits and a scenario marked."""
    return Table(
        name="replay_sweep",
        title=_SWEEP_TITLE,
        question=_SWEEP_QUESTION,
        headline=_sweep_sentence(found),
        columns=(
            GPUS,
            *(
                column_of("outcome.then.waits", each)
                for each in (MEAN_WAIT, MEDIAN_WAIT, P95_WAIT, NOT_STARTED, WAITED)
            ),
            column("jobs_not_run", tr("cannot run"), "count", "outcome.then.lost"),
            column_of("outcome.then", _ALLOCATED),
            column_of("outcome.then", _cost(currency)),
            column("remark", tr("remark"), "words", lambda point: _remark(found, point.gpus)),
        ),
        rows=found.points,
        chart=queue_curve(found, scenario),
        chart_note="" if scenario is None else tr("The curve has the rules of today; the diamond has all changes."),
        notes=(
            tr("Jobs and GPUs are those of this pool and of the pools merged with it."),
            tr(
                "Knee: the number of GPUs at which the curve lies furthest below the line from its first to its last"
                " point."
            ),
            tr("Enough: the fewest GPUs with which all jobs can run and no figure of queue waits is worse than today."),
        ),
        wide=True,
    )


def sweep_figures(found: Sweep, money: Money) -> Table:
    """Return for programs the results of a sweep, and for each number of GPUs the rows of all tables of its replay."""
    columns = (
        fact("pool", "pool"),
        fact("gpus", "count", "there"),
        fact("knee", "count"),
        fact("as_good_as_today", "count", "enough"),
        rows_column("points", (fact("gpus", "count"), outcome_column(money)), "points"),
    )
    return single("replay_sweep_figures", columns, found)


def _sweep_sentence(found: Sweep) -> str:
    pool = place_name(found.pool)
    if found.points[0].outcome.waits is None:
        return refusal(found.check) or ""
    if found.enough is None:
        enough = tr("None of these numbers of GPUs in {pool} is as good as today.", pool=pool)
    elif found.points[0].gpus < found.enough == found.there:
        enough = tr("Fewer GPUs in {pool} are worse than the {gpus} GPUs of today.", pool=pool, gpus=found.there)
    else:
        freed = max(found.there - found.enough, 0)
        enough = (
            tr(
                "{gpus} of the {there} GPUs in {pool} are as good as today for the replayed jobs: {hours} GPU-hours"
                " fewer.",
                gpus=found.enough,
                there=found.there,
                pool=pool,
                hours=GpuHours(freed * found.window_ms),
            )
            if freed
            else tr("{gpus} GPUs in {pool} are as good as today for the replayed jobs.", gpus=found.enough, pool=pool)
        )
    if found.knee is None:
        return enough
    return tr("{enough} From {gpus} GPUs on, more GPUs shorten waits by little.", enough=enough, gpus=found.knee)


def _remark(found: Sweep, gpus: int) -> str:
    remarks = ((tr("today"), found.there), (tr("knee"), found.knee), (tr("enough"), found.enough))
    return SentenceList((words for words, number in remarks if number == gpus), ", ")


_HOURS_FROM_MS = 2 * HOUR_MS
"""Shorter waits are drawn in minutes."""


def queue_curve(found: Sweep, scenario: ScenarioPoint | None = None) -> Chart | None:
    """Return the curve of queue waits by GPUs, with today and a scenario marked.

    None where waits are not known, or no job waits. A scenario is its number of GPUs, one of the sweep's, and its queue
    waits. These lie off the curve if it changes more than GPUs.
    """
    waits = [point.outcome.then.waits for point in found.points if point.outcome.then.waits is not None]
    if len(waits) < len(found.points) or any(each.p95_ms is None for each in waits):
        return None
    sizes = [point.gpus for point in found.points]
    today = (found.there, waits[sizes.index(found.there)]) if found.there in sizes else None
    is_long = max(each.p95_ms or 0.0 for each in waits) >= _HOURS_FROM_MS
    unit_ms = HOUR_MS if is_long else MINUTE_MS
    marks: list[Mark] = [
        _wait_line(tr("19 of 20 jobs start within"), "mark", [each.p95_ms for each in waits], unit_ms),
        replace(_wait_line(tr("mean queue wait"), "muted", [each.mean_ms for each in waits], unit_ms), dashed=True),
    ]
    points: tuple[tuple[str, str, Shape, ScenarioPoint | None], ...] = (
        (tr("today"), "active", "circle", today),
        (tr("this scenario"), "held", "diamond", scenario),
    )
    for name, colour, shape, point in points:
        if point is not None and point[0] in sizes and point[1].p95_ms is not None:
            place, wait = float(sizes.index(point[0])), point[1].p95_ms / unit_ms
            marks.append(Dots(name, colour, shape, (place,), (wait,)))
    title = tr(
        "Queue wait in {pool}, in hours" if is_long else "Queue wait in {pool}, in minutes",
        pool=place_name(found.pool),
    )
    places = tuple(ChartPlace(Number(size)) for size in sizes)
    panel = Panel(title, tuple(marks), places, unit="h" if is_long else "min")
    return Chart((panel,), across=tr("GPUs")) if panel.ticks else None


def _wait_line(name: str, colour: str, waits: Sequence[float | None], unit_ms: int) -> Line:
    values = tuple(None if wait is None else wait / unit_ms for wait in waits)
    return Line(name, colour, values, shown=tuple(words(wait) for wait in waits))

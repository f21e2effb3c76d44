"""Several changes side by side, each against the replay of today: numbers of GPUs in a pool, and saved scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.money.window_money import Money
from analytics.plan.replay.comparisons import ComparedScenario, Sweep
from analytics.plan.replay.replay_base import FleetUse
from analytics.plan.replay.replayed_waits import ReplayCheck
from analytics.tables.chart import Chart, ChartPlace, Line, Panel
from analytics.tables.names import GPUS, amount, decimals, place_name
from analytics.tables.plan_replay import outcome_column, site_kwh
from analytics.tables.plan_replay_check import MEDIAN_WAIT, NOT_BEGUN, P95_WAIT, WAITED, refusal, span
from analytics.tables.table import Column, Table, column, column_of, fact, for_programs, rows_column, single
from fallow.clock import HOUR_MS

_GIVEN_OUT = column("utilization", tr("given out"), "share", lambda use: Share(use.total.utilization))
"""It reads a FleetUse, as `_cost` does."""


def _cost(currency: str | None) -> Column:
    return column("cost", tr("cost"), "money", lambda use: amount(use.total.cost, currency))


def scenario_table(compared: Sequence[ComparedScenario], money: Money) -> Table:
    """Saved scenarios side by side, above them today."""
    title = tr("Scenarios side by side")
    question = tr("What would each saved scenario have made of the same jobs?")
    if not compared:
        nothing = tr("No scenario is saved: `fallow plan scenarios --save FILE` saves one, as does the page What if.")
        return Table(name="scenarios", title=title, question=question, headline=nothing)
    answered = [(plain(each.saved.name), each.outcome) for each in compared if each.outcome is not None]
    rows: list[tuple[str, FleetUse]] = [(tr("as it is today"), answered[0][1].today)] if answered else []
    rows += [(name, outcome.then) for name, outcome in answered]
    return Table(
        name="scenarios",
        title=title,
        question=question,
        headline=tr_many("{number} scenario is saved.", "{number} scenarios are saved.", len(compared)),
        columns=(
            column("scenario", tr("scenario"), "words", itemgetter(0)),
            *(column_of(itemgetter(1), each) for each in _scenario_figures(money)),
        ),
        rows=tuple(rows),
        notes=(
            tr(
                "Waited are GPU-hours of waiting, kWh those that the site draws for the GPUs; jobs not run fit nowhere."
            ),
        ),
        lines=tuple(
            tr("{name} cannot be replayed: {why}.", name=plain(each.saved.name), why=each.why_not)
            for each in compared
            if each.outcome is None
        ),
        wide=True,
    )


def _scenario_figures(money: Money) -> tuple[Column, ...]:
    """The figures of a FleetUse beside those of others."""
    return (
        column("gpus", tr("GPUs"), "count", "total.gpus"),
        column_of("waits", P95_WAIT),
        column_of("waits", replace(WAITED, title=tr("waited"))),
        _GIVEN_OUT,
        _cost(money.currency),
        column("site_kwh", tr("kWh"), "number", lambda use: decimals(site_kwh(use, money.grid), 1)),
        column("jobs_not_run", tr("not run"), "count", "lost"),
    )


def saved_scenarios(compared: Sequence[ComparedScenario], money: Money) -> Table:
    """Return for programs each scenario as it was saved, with the rows of all tables of its replay."""
    columns = (
        fact("scenario", "name", "saved.name"),
        fact("policy", "words", "saved.policy"),
        fact("saved", "moment", "saved.time_ms"),
        fact("by", "name", "saved.by"),
        fact("why_not", "sentence", lambda each: each.why_not or None),
        outcome_column(money),
    )
    return for_programs("saved_scenarios", columns, compared)


def replay_sweep(found: Sweep, check: ReplayCheck, currency: str | None) -> Table:
    """Waits against cost: a row for each number of GPUs in a pool, and the curve of waits."""
    return Table(
        name="replay_sweep",
        title=tr("Waits against cost"),
        question=tr("How many GPUs are enough, and from which number on do more of them bring little?"),
        headline=_sweep_sentence(found, check),
        columns=(
            GPUS,
            *(column_of("outcome.then.waits", each) for each in (MEDIAN_WAIT, P95_WAIT, NOT_BEGUN, WAITED)),
            column("jobs_not_run", tr("cannot run"), "count", "outcome.then.lost"),
            column_of("outcome.then", _GIVEN_OUT),
            column_of("outcome.then", _cost(currency)),
            column("remark", tr("remark"), "words", lambda point: _remark(found, point.gpus)),
        ),
        rows=found.points,
        chart=_chart(found),
        notes=(
            tr(
                "Of the jobs of that pool, and of those that are merged with it: their waits, and the use and the cost of all of these GPUs."
            ),
            tr(
                "The knee is the number of GPUs at which the curve of 19 of 20 waits lies furthest below the line from its first to its last point. "
                "Enough are the fewest GPUs with which neither half nor 19 of 20 of the jobs wait longer than in the replay of today, no more GPU-hours are waited, all can run, and no more are left at the end."
            ),
        ),
        wide=True,
    )


def sweep_figures(found: Sweep, money: Money) -> Table:
    """Return for programs what the sweep found, and for each number of GPUs the rows of all tables of its replay."""
    columns = (
        fact("pool", "pool"),
        fact("gpus", "count", "there"),
        fact("knee", "count"),
        fact("as_good_as_today", "count", "enough"),
        rows_column("points", (fact("gpus", "count"), outcome_column(money)), "points"),
    )
    return single("replay_sweep_figures", columns, found)


def _sweep_sentence(found: Sweep, check: ReplayCheck) -> str:
    pool = place_name(found.pool)
    if found.points[0].outcome.waits is None:
        return refusal(check) or ""
    if found.enough is None:
        enough = tr("None of these numbers of GPUs of {pool} would have been as good as today.", pool=pool)
    else:
        freed = max(found.there - found.enough, 0)
        enough = (
            tr(
                "{gpus} of the {there} GPUs of {pool} would have been as good as today, {hours} GPU-hours fewer.",
                gpus=found.enough,
                there=found.there,
                pool=pool,
                hours=GpuHours(freed * found.window_ms),
            )
            if freed
            else tr("{gpus} GPUs of {pool} would have been as good as today.", gpus=found.enough, pool=pool)
        )
    if found.knee is None:
        return enough
    return tr("{enough} From {gpus} on, more of them shorten waits by little.", enough=enough, gpus=found.knee)


def _remark(found: Sweep, gpus: int) -> str:
    if gpus == found.knee:
        return tr("knee")
    if gpus == found.enough:
        return tr("enough")
    return tr("today") if gpus == found.there else ""


def _chart(found: Sweep) -> Chart | None:
    """The waits of 19 of 20 jobs in hours by GPUs; None where they are not known, or nothing waits."""
    waits = [None if each.outcome.waits is None else each.outcome.waits.then.p95_ms for each in found.points]
    if None in waits:
        return None
    places = tuple(ChartPlace(Number(each.gpus)) for each in found.points)
    values = tuple(None if each is None else each / HOUR_MS for each in waits)
    line = Line(tr("19 of 20 within"), "held", values, shown=tuple(span(each) or "" for each in waits))
    panel = Panel(
        tr("{pool}: hours within which 19 of 20 jobs begin, by GPUs", pool=place_name(found.pool)), (line,), places
    )
    return Chart((panel,)) if panel.ticks else None

"""Waits against cost with more and fewer GPUs in a pool."""

from __future__ import annotations

from analytics.language.quantities import Amount, GpuHours, Number, Share
from analytics.language.sentences import tr
from analytics.plan.replay.sweep import Sweep, SweepPoint
from analytics.plan.replay.validation import ReplayCheck
from analytics.tables.line_chart import Line, LineChart, LinePanel
from analytics.tables.names import place_name
from analytics.tables.plan_replay_check import refusal, span
from analytics.tables.table import Cell, Column, Table
from fallow.clock import HOUR_MS


def replay_sweep(found: Sweep, check: ReplayCheck, currency: str | None) -> Table:
    """A row for each number of GPUs, and the curve of waits."""
    return Table(
        name="replay_sweep",
        title=tr("Waits against cost"),
        question=tr("How many GPUs are enough, and from which number on do more of them bring little?"),
        headline=_headline(found, check),
        columns=(
            Column("gpus", tr("GPUs"), "count"),
            Column("p50", tr("half within"), "number"),
            Column("p95", tr("19 of 20 within"), "number"),
            Column("open", tr("not begun"), "count"),
            Column("waited", tr("GPU-hours waited"), "gpu_hours"),
            Column("unplaced", tr("cannot run"), "count"),
            Column("use", tr("given out"), "share"),
            Column("cost", tr("cost"), "money"),
            Column("remark", tr("remark"), "words"),
        ),
        rows=tuple(_row(found, each, currency) for each in found.points),
        chart=_chart(found),
        notes=(
            tr("Of the jobs of that pool, and of those that are merged with it: their waits, and the use and the cost of all of these GPUs."),
            tr(
                "The knee is the number of GPUs at which the curve of 19 of 20 waits lies furthest below the line from its first to its last point. "
                "Enough are the fewest GPUs with which neither half nor 19 of 20 of the jobs wait longer than in the replay of today, no more GPU-hours are waited, all can run, and no more are left at the end."
            ),
        ),
        wide=True,
    )  # fmt: skip


def _headline(found: Sweep, check: ReplayCheck) -> str:
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
                gpus=Number(found.enough),
                there=Number(found.there),
                pool=pool,
                hours=GpuHours(freed * found.window_ms),
            )
            if freed
            else tr("{gpus} GPUs of {pool} would have been as good as today.", gpus=Number(found.enough), pool=pool)
        )
    if found.knee is None:
        return enough
    return tr("{enough} From {gpus} on, more of them shorten waits by little.", enough=enough, gpus=Number(found.knee))


def _row(found: Sweep, point: SweepPoint, currency: str | None) -> tuple[Cell, ...]:
    outcome = point.outcome
    use = outcome.then.total
    waits = None if outcome.waits is None else outcome.waits.then
    return (
        Number(point.gpus),
        None if waits is None else span(waits.p50_ms),
        None if waits is None else span(waits.p95_ms),
        None if waits is None else Number(waits.open_jobs),
        None if waits is None else GpuHours(waits.gpu_ms),
        Number(sum(each.jobs for each in outcome.unplaced)),
        Share(use.utilization),
        None if use.cost is None else Amount(use.cost, currency),
        _remark(found, point.gpus),
    )


def _remark(found: Sweep, gpus: int) -> str:
    if gpus == found.knee:
        return tr("knee")
    if gpus == found.enough:
        return tr("enough")
    return tr("today") if gpus == found.there else ""


def _chart(found: Sweep) -> LineChart | None:
    """The waits of 19 of 20 jobs in hours by GPUs; None where they are not told."""
    waits = [None if each.outcome.waits is None else each.outcome.waits.then.p95_ms for each in found.points]
    if None in waits:
        return None
    names = tuple(Number(each.gpus) for each in found.points)
    values = tuple(None if each is None else each / HOUR_MS for each in waits)
    line = Line(tr("19 of 20 within"), "held", values, tuple(span(each) or "" for each in waits))
    panel = LinePanel(
        tr("{pool}: hours within which 19 of 20 jobs begin, by GPUs", pool=place_name(found.pool)), "count", (line,)
    )
    return LineChart(names, names, (True,) * len(names), (panel,))

"""GPUs allocated and busy at once, and for how many hours."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.capacity.demand import demand, duration
from analytics.language.sentences import Number, tr, tr_many
from analytics.report.report import Report
from analytics.tables.chart import Band, Chart, Level, Line, Mark, Panel, Points
from analytics.tables.point_samples import sampled_note
from analytics.tables.table import Column, Table, column

_POINTS, _LISTED = 300, 120
_STATES = {"allocated": "held", "working": "active"}
_NAMES = {"allocated": tr("allocated"), "working": tr("busy")}


def gpus_by_hour(report: Report) -> pl.DataFrame:
    """Return the scope's GPUs in each whole hour of the window: the columns of `analytics.capacity.demand.demand`."""
    summary = report.part.summary
    return demand(report.part.inside.segments, summary.since_ms, summary.until_ms)


def demand_curve(report: Report) -> Table:
    """Return allocated and busy GPUs, the highest hour first."""
    hours = gpus_by_hour(report)
    there = max(hours["there"].to_list(), default=0.0)
    gpus = sorted({each for name in _NAMES for each in hours[name].to_list()}, reverse=True)
    levels = {name: max(hours[name].to_list(), default=0.0) for name in _NAMES}

    def hours_column(name: str, title: str) -> Column:
        return column(f"{name}_hours", title, "count", lambda level: (hours[name] >= level).sum())

    return Table(
        name="demand",
        title=tr("Allocated and busy GPUs"),
        question=tr(
            "How many GPUs are allocated or busy at once, and for how long? The peak of each whole hour, the highest"
            " hour first."
        ),
        headline=(
            tr(
                "At most {allocated} of {there} GPUs were allocated at once, and at most {working} were busy.",
                allocated=Number(levels["allocated"]),
                there=Number(there),
                working=Number(levels["working"]),
            )
            if hours.height
            else tr("The window has no whole hour that was observed.")
        ),
        columns=(
            column("gpus", tr("GPUs at once"), "number", lambda level: Number(level, 0 if level == int(level) else 1)),
            hours_column("allocated", tr("hours with at least this many allocated")),
            hours_column("working", tr("hours with at least this many busy")),
        ),
        rows=tuple(gpus[:: max(1, -(-len(gpus) // _LISTED))]),
        chart=_chart(hours, there) if hours.height else None,
        notes=tuple(_notes(report, hours)) if hours.height else (),
    )


def _notes(report: Report, hours: pl.DataFrame) -> Iterator[str]:
    unseen = hours.filter(hours["unknown"] > 0).height
    yield tr_many("{number} whole {hour|hours} of the window.", hours.height)
    if unseen:
        yield tr_many(
            "In {number} of these hours, some GPUs were not observed. The band shows the demand if they were needed.",
            unseen,
        )
    else:
        yield tr("Every GPU was observed in all of these hours.")
    pool = report.whole.inventory.pool
    if report.scope.pool is None and len({pool(gpu) for gpu in report.part.inside.segments["gpu"].unique()}) > 1:
        yield tr("The figures add up all pools. Choose a pool to see one alone.")
    yield from sampled_note([report.part.summary.totals])


def _chart(hours: pl.DataFrame, there: float) -> Chart:
    """Return the chart: the share of hours with at least this many GPUs, and the GPUs present."""
    marks = [mark for name in _NAMES for mark in _curve(hours, name)]
    marks.append(Level(tr("{number} GPUs present", number=Number(there)), "muted", there))
    unit = tr("GPUs at once")
    return Chart((Panel(unit, tuple(marks), unit=unit),), across=tr("share of hours with at least this many"))


def _curve(hours: pl.DataFrame, name: str) -> Iterator[Mark]:
    points, most = _steps(hours[name]), _steps(hours[f"{name}_or_unknown"])
    if (hours[f"{name}_or_unknown"] > hours[name]).any():
        yield Band(tr("not known"), "unknown", points, most, stepped=True)
    at, levels = zip(*points, strict=True)
    yield Line(_NAMES[name], _STATES[name], levels, at, dashed=name == "working", stepped=True)


def _steps(levels: pl.Series) -> Points:
    """Return shares of the hours in percent with their levels, for a line that goes down first and then right."""
    curve = duration(levels)
    total = curve["hours"][-1]
    thin = curve.gather_every(max(1, curve.height // _POINTS))
    if thin["hours"][-1] != total:
        thin = thin.vstack(curve.tail(1))
    gpus = thin["gpus"].to_list()
    shares = [0.0, *(round(100 * each / total, 2) for each in thin["hours"].to_list())]
    return tuple(zip(shares, [gpus[0], *gpus], strict=True))

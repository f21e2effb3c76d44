"""Which GPUs come free on which day, from whom, by what source and how surely."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from math import floor
from typing import Any

from analytics.language.language import SentenceList
from analytics.language.quantities import Date, Number, Share, ShortDate
from analytics.language.sentences import tr, tr_many
from analytics.plan.allocation import FleetAllocation
from analytics.plan.endings import SOURCES, WEEK_DAYS, Chance, Ending, EndingCheck, Endings
from analytics.tables.chart import Chart, ChartPlace, Line, Panel
from analytics.tables.names import TEAM, model_if_several, pool_column
from analytics.tables.table import Cell, Column, Table, column, fact, for_programs

SOURCE_NAMES = {
    "idle": tr("idle now"),
    "time_limit": tr("time limit"),
    "project_end": tr("project end"),
    "fading": tr("faded work"),
}
_LISTED, _ROWS_IN_REPORT = 20, 4
_IN_REPORT = ("day", "name", "gpu_count", "pool", "chance")


def endings_in_report(found: Endings | None) -> Table | None:
    """The next days in a few rows, for those who plan; None where nothing ends, and in an edition for people."""
    if found is None or not found.rows:
        return None
    whole = _table(found.rows, found, for_all=True)
    return replace(
        whole,
        columns=tuple(each for each in whole.columns if each.key in _IN_REPORT),
        shown=_ROWS_IN_REPORT,
        rest=tr("{number} more are on the page Allocation.", number=len(whole.rows) - _ROWS_IN_REPORT),
        chart=None,
        notes=(),
        wide=False,
    )


def endings_table(found: FleetAllocation) -> Table:
    """A row for each ending of the scope, by day."""
    return _table(found.endings, found.calendar, for_all=found.pairs is not None)


def _table(rows: Sequence[Ending], calendar: Endings, *, for_all: bool) -> Table:
    return Table(
        name="endings",
        title=tr("Which GPUs come free"),
        question=tr("Which projects and jobs end, when, and how many GPUs does that free?"),
        headline=endings_sentence(rows, calendar),
        columns=(
            column("day", tr("last day"), "number", json_type="string"),
            column("source", tr("source"), "words", lambda each: SOURCE_NAMES[each.source], "source"),
            column("name", tr("what ends"), "name"),
            TEAM,
            fact("user", "words", "holder"),
            column("gpu_count", tr("GPUs"), "count", lambda each: len(each.gpus)),
            pool_column(),
            model_if_several(rows),
            column("hosts", tr("hosts"), "name", lambda each: ", ".join(each.hosts), "hosts", json_type="array"),
            fact("nvlink_islands", "words", "islands", "array"),
            fact("gpus", "words", json_type="array"),
            *chance_columns(lambda each: chance_cell(each.chance)),
        ),
        rows=tuple(rows),
        shown=_LISTED,
        rest=tr("{number} more are on the page Allocation.", number=len(rows) - _LISTED),
        chart=_chart(rows, calendar) if rows else None,
        notes=tuple(_notes(calendar, for_all=for_all)),
        wide=True,
    )


def chance_columns(cell: Callable[[Any], Cell], at: str = "chance") -> tuple[Column, ...]:
    """Return the columns of a chance: people read the cell, programs the point and its interval."""
    return (
        column("chance", tr("chance"), "number", cell, f"{at}.point"),
        fact("chance_low", "number", f"{at}.low"),
        fact("chance_high", "number", f"{at}.high"),
    )


def endings_check(found: FleetAllocation) -> Table | None:
    """Return for programs how many GPUs the same would have named a week before; None where that is not known."""
    check = found.calendar.check
    if check is None or found.pairs is None:
        return None
    columns = (
        fact("source", "words", str),
        fact("gpus_named", "count", lambda source: check.said.get(source, 0)),
        fact("gpus_came_free", "count", lambda source: check.came_free.get(source, 0)),
    )
    return for_programs("endings_check", columns, SOURCES)


def endings_sentence(rows: Sequence[Ending], calendar: Endings) -> str:
    """How many GPUs are free within a week, or where none are, in the whole time."""
    days = min(WEEK_DAYS, calendar.days)
    last = calendar.today + timedelta(days)
    near = [each for each in rows if each.day <= last]
    if not near:
        return tr("Nothing is known to end by {day}.", day=Date(last))
    parts = (
        tr(
            "{number} by {source}",
            number=sum(len(each.gpus) for each in near if each.source == source),
            source=SOURCE_NAMES[source],
        )
        for source in SOURCES
        if any(each.source == source for each in near)
    )
    ends = tr_many("{number} ending frees", "{number} endings free", len(near))
    gpus = tr_many("{number} GPU", "{number} GPUs", sum(len(each.gpus) for each in near))
    return tr("{ends} {gpus} by {day}: {said}.", ends=ends, gpus=gpus, day=Date(last), said=SentenceList(parts, ", "))


def chance_cell(chance: Chance | None) -> Cell:
    """What it is at least, where an interval is known; rounded down, for nothing is sure."""
    if chance is None:
        return tr("unknown")
    least = chance.point if chance.low is None else chance.low
    return Share(floor(100 * least) / 100, 0)


def _chart(rows: Sequence[Ending], calendar: Endings) -> Chart:
    """How many GPUs have come free by each day."""
    days = [calendar.today + timedelta(number) for number in range(calendar.days + 1)]
    free = tuple(float(sum(len(each.gpus) for each in rows if each.day <= day)) for day in days)
    line = Line(tr("GPUs that have come free"), "active", free, shown=tuple(map(Number, free)))
    places = tuple(ChartPlace(Date(day), ShortDate(day)) for day in days)
    return Chart((Panel(tr("GPUs that have come free, if all of it comes true"), (line,), places),))


def _notes(calendar: Endings, *, for_all: bool) -> Iterator[str]:
    yield tr(
        "A GPU is in one row, that of the surest source. The chance of a time limit is how many past jobs that had run for as much of their limit ended by it, "
        "at the lower end of the 90 % interval; that of faded work is that the GPUs stay unused for `findings.horizon` more. What comes free may go to whatever waits next."
    )
    if not for_all:
        return
    yield tr(
        "{limited} of {running} running jobs have a known limit; lines of the owners table with an end of their project: {projects}.",
        limited=calendar.with_limit,
        running=calendar.running,
        projects=calendar.projects,
    )
    yield _check_sentence(calendar.check)


def _check_sentence(check: EndingCheck | None) -> str:
    known = () if check is None else [source for source in SOURCES if check.said.get(source)]
    if check is None or not known:
        return tr("What the same would have said a week before is not known, or was nothing.")
    parts = (
        tr(
            "{came} of {said} by {source}",
            came=check.came_free[source],
            said=check.said[source],
            source=SOURCE_NAMES[source],
        )
        for source in known
    )
    return tr(
        "Checked: of the GPUs that the same would have named a week before, these came free: {listed}.",
        listed=SentenceList(parts, ", "),
    )

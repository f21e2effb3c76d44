"""Endings: which GPUs become free on which day, from which user and source, and with what probability."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta
from math import floor
from typing import Any

from analytics.language.sentences import Date, Number, SentenceList, Share, ShortDate, tr, tr_many
from analytics.plan.allocation import FleetAllocation
from analytics.plan.endings import SOURCES, WEEK_DAYS, Chance, Ending, EndingCheck, Endings
from analytics.tables.chart import Chart, ChartPlace, Line, Panel
from analytics.tables.names import POOL, TEAM, model_if_several
from analytics.tables.table import Cell, Column, Table, column, fact, for_programs

SOURCE_NAMES = {
    "idle": tr("idle now"),
    "time_limit": tr("time limit"),
    "project_end": tr("project end"),
    "fading": tr("fading work"),
}
_LISTED, _ROWS_IN_REPORT = 20, 4
_IN_REPORT = ("day", "name", "gpu_count", "pool", "chance")


def endings_in_report(found: Endings | None) -> Table | None:
    """Return the next endings in a few rows, for the report of a planner; None without one, or in reports for users."""
    if found is None or not found.rows:
        return None
    whole = _table(found.rows, found, for_all=True)
    return replace(
        whole.with_columns(_IN_REPORT),
        shown=_ROWS_IN_REPORT,
        rest=tr(
            "The page {page} lists {number} more.", page=tr("Coming free"), number=len(whole.rows) - _ROWS_IN_REPORT
        ),
        chart=None,
        notes=(),
        wide=False,
    )


def endings_table(found: FleetAllocation) -> Table:
    """Return a row per ending of the scope, by day."""
    return _table(found.endings, found.calendar, for_all=found.pairs is not None)


def _table(rows: Sequence[Ending], calendar: Endings, *, for_all: bool) -> Table:
    return Table(
        name="endings",
        title=tr("Endings: GPUs that become free"),
        question=tr("Which projects and jobs end, when, and how many GPUs does that free?"),
        headline=endings_sentence(rows, calendar),
        columns=(
            column("day", tr("last day"), "number", json_type="string"),
            column("source", tr("source"), "words", lambda each: SOURCE_NAMES[each.source], "source"),
            column("name", tr("what ends"), "name"),
            TEAM,
            fact("user", "words", "user"),
            column("gpu_count", tr("GPUs"), "count", lambda each: len(each.gpus)),
            POOL,
            model_if_several(rows),
            column("hosts", tr("hosts"), "name", lambda each: ", ".join(each.hosts), "hosts", json_type="array"),
            fact("nvlink_islands", "words", "islands", "array"),
            fact("gpus", "words", json_type="array"),
            *chance_columns(lambda each: chance_cell(each.chance)),
        ),
        rows=tuple(rows),
        shown=_LISTED,
        rest=tr("The page {page} lists {number} more.", page=tr("Coming free"), number=len(rows) - _LISTED),
        chart=_chart(rows, calendar) if rows else None,
        notes=tuple(_notes(calendar, for_all=for_all)),
        wide=True,
    )


def chance_columns(cell: Callable[[Any], Cell], at: str = "chance") -> tuple[Column, ...]:
    """Return the columns of a chance: people read the cell, programs the point and its interval."""
    return (
        column("chance", tr("probability"), "number", cell, f"{at}.point"),
        fact("chance_low", "number", f"{at}.low"),
        fact("chance_high", "number", f"{at}.high"),
    )


def endings_check(found: FleetAllocation) -> Table | None:
    """Return for programs the GPUs that the same method named a week earlier; None if unknown."""
    check = found.calendar.check
    if check is None or found.pairs is None:
        return None
    columns = (
        fact("source", "words", str),
        fact("gpus_named", "count", lambda source: check.named.get(source, 0)),
        fact("gpus_came_free", "count", lambda source: check.came_free.get(source, 0)),
    )
    return for_programs("endings_check", columns, SOURCES)


def endings_sentence(rows: Sequence[Ending], calendar: Endings) -> str:
    """Return a sentence on the GPUs that become free within a week, or within the whole time if it is shorter.

    It ends with the number of all rows, where later ones follow.
    """
    days = min(WEEK_DAYS, calendar.days)
    last = calendar.today + timedelta(days)
    near = [each for each in rows if each.day <= last]
    sentence = _near_sentence(near, last) if near else tr("No ending is known by {day}.", day=Date(last))
    if len(near) == len(rows):
        return sentence
    return tr_many(
        "{sentence} By {day}: {number} {GPU|GPUs}.",
        sum(len(each.gpus) for each in rows),
        sentence=sentence,
        day=Date(calendar.today + timedelta(calendar.days)),
    )


def _near_sentence(near: Sequence[Ending], last: date) -> str:
    parts = (
        tr(
            "{number} ({source})",
            number=sum(len(each.gpus) for each in near if each.source == source),
            source=SOURCE_NAMES[source],
        )
        for source in SOURCES
        if any(each.source == source for each in near)
    )
    endings = tr_many("{number} {ending frees|endings free}", len(near))
    gpus = tr_many("{number} {GPU|GPUs}", sum(len(each.gpus) for each in near))
    return tr(
        "{endings} {gpus} by {day}: {sources}.",
        endings=endings,
        gpus=gpus,
        day=Date(last),
        sources=SentenceList(parts, ", "),
    )


def chance_cell(chance: Chance | None) -> Cell:
    """Return the lower end of the interval if known, else the point estimate; rounded down, as nothing is certain."""
    if chance is None:
        return tr("unknown")
    least = chance.point if chance.low is None else chance.low
    return Share(floor(100 * least) / 100, 0)


def _chart(rows: Sequence[Ending], calendar: Endings) -> Chart:
    days = [calendar.today + timedelta(number) for number in range(calendar.days + 1)]
    free = tuple(float(sum(len(each.gpus) for each in rows if each.day <= day)) for day in days)
    line = Line(tr("GPUs freed"), "active", free, shown=tuple(map(Number, free)))
    places = tuple(ChartPlace(Date(day), ShortDate(day)) for day in days)
    return Chart((Panel(tr("GPUs freed, if every ending happens"), (line,), places),))


def _notes(calendar: Endings, *, for_all: bool) -> Iterator[str]:
    yield tr(
        "A GPU is in one row, by its most certain source. Probability of a time limit: the share of past jobs that"
        " ended by their limit, among jobs that ran for at least the same part of it. The table shows the lower end of"
        " the 90 % interval. Probability of fading work: that the GPUs stay unused for `findings.horizon` more. Freed"
        " GPUs may go to the next waiting job."
    )
    if not for_all:
        return
    yield tr(
        "{limited} of {running} running jobs have a known time limit. Lines of the owners table with a project end:"
        " {projects}.",
        limited=calendar.with_limit,
        running=calendar.running,
        projects=calendar.projects,
    )
    yield _check_sentence(calendar.check)


def _check_sentence(check: EndingCheck | None) -> str:
    known = () if check is None else [source for source in SOURCES if check.named.get(source)]
    if check is None or not known:
        return tr("No back-test: a week earlier, the same method named no GPU, or its result is unknown.")
    parts = (
        tr(
            "{freed} of {named} ({source})",
            freed=check.came_free[source],
            named=check.named[source],
            source=SOURCE_NAMES[source],
        )
        for source in known
    )
    return tr(
        "Back-test: of the GPUs that the same method named a week earlier, these became free: {sources}.",
        sources=SentenceList(parts, ", "),
    )

"""Which GPUs come free on which day, from whom, by what source and how surely."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from math import floor

from analytics.language.plain_text import plain
from analytics.language.quantities import Date, Number, Share, ShortDate
from analytics.language.sentences import tr, tr_many
from analytics.plan.allocation import FleetAllocation
from analytics.plan.endings import SOURCES, WEEK_DAYS, Chance, Ending, EndingCheck, Endings
from analytics.report.model import Report
from analytics.tables.line_chart import Line, LineChart, LinePanel
from analytics.tables.names import NAME_MOST, card_name, has_several_models, place_name
from analytics.tables.table import Cell, Column, Table

SOURCE_NAMES = {
    "idle": tr("idle now"),
    "time_limit": tr("time limit"),
    "project_end": tr("project end"),
    "fading": tr("faded work"),
}
_LISTED, _ROWS_IN_REPORT = 20, 4
_IN_REPORT = ("day", "name", "gpus", "pool", "chance")


def endings_in_report(report: Report) -> Table | None:
    """The next days in a few rows, for those who plan; None where nothing ends, and in an edition for people."""
    found = report.endings
    if found is None or not found.rows:
        return None
    return _in_brief(_table(found.rows, found, for_all=True))


def endings_table(found: FleetAllocation) -> Table:
    """A row for each ending of the scope, by day."""
    return _table(found.endings, found.calendar, for_all=found.pairs is not None)


def _table(rows: Sequence[Ending], calendar: Endings, *, for_all: bool) -> Table:
    with_model = has_several_models([(each.pool, each.model) for each in rows])
    return Table(
        name="endings",
        title=tr("Which GPUs come free"),
        question=tr("Which projects and jobs end, when, and how many GPUs does that free?"),
        headline=endings_sentence(rows, calendar),
        columns=(
            Column("day", tr("last day"), "number"),
            Column("source", tr("source"), "words"),
            Column("name", tr("what ends"), "name"),
            Column("team", tr("team"), "team"),
            Column("gpus", tr("GPUs"), "count"),
            Column("pool", tr("pool"), "pool"),
            *((Column("model", tr("model"), "name"),) if with_model else ()),
            Column("hosts", tr("hosts"), "name"),
            Column("chance", tr("chance"), "number"),
        ),
        rows=tuple(_row(each, with_model=with_model) for each in rows),
        shown=_LISTED,
        rest=tr("{number} more are on the page Allocation.", number=Number(len(rows) - _LISTED)),
        chart=_chart(rows, calendar) if rows else None,
        notes=tuple(_notes(calendar, for_all=for_all)),
        wide=True,
    )


def _in_brief(whole: Table) -> Table:
    """The first rows with the columns that a report has room for."""
    kept = [place for place, column in enumerate(whole.columns) if column.key in _IN_REPORT]
    return replace(
        whole,
        columns=tuple(whole.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in whole.rows),
        shown=_ROWS_IN_REPORT,
        rest=tr("{number} more are on the page Allocation.", number=Number(len(whole.rows) - _ROWS_IN_REPORT)),
        chart=None,
        notes=(),
        wide=False,
    )


def endings_sentence(rows: Sequence[Ending], calendar: Endings) -> str:
    """How many GPUs are free within a week, or where none are, in the whole time."""
    days = min(WEEK_DAYS, calendar.days)
    last = calendar.today + timedelta(days)
    near = [each for each in rows if each.day <= last]
    if not near:
        return tr("Nothing is known to end by {day}.", day=Date(last))
    parts = [
        tr("{number} by {source}", number=Number(sum(len(each.gpus) for each in near if each.source == source)), source=SOURCE_NAMES[source])
        for source in SOURCES
        if any(each.source == source for each in near)
    ]  # fmt: skip
    said = parts[0]
    for part in parts[1:]:
        said = tr("{said}, {part}", said=said, part=part)
    ends = tr_many("{number} ending frees", "{number} endings free", len(near))
    gpus = tr_many("{number} GPU", "{number} GPUs", sum(len(each.gpus) for each in near))
    return tr("{ends} {gpus} by {day}: {said}.", ends=ends, gpus=gpus, day=Date(last), said=said)


def _row(each: Ending, *, with_model: bool) -> tuple[Cell, ...]:
    return (
        Date(each.day),
        SOURCE_NAMES[each.source],
        plain(each.name, NAME_MOST),
        None if each.team is None else plain(each.team, NAME_MOST),
        Number(len(each.gpus)),
        place_name(each.pool),
        *((card_name(each.model),) if with_model else ()),
        plain(", ".join(each.hosts), NAME_MOST),
        chance_cell(each.chance),
    )


def chance_cell(chance: Chance | None) -> Cell:
    """What it is at least, where an interval is known; rounded down, for nothing is sure."""
    if chance is None:
        return tr("unknown")
    least = chance.point if chance.low is None else chance.low
    return Share(floor(100 * least) / 100, 0)


def _chart(rows: Sequence[Ending], calendar: Endings) -> LineChart:
    """How many GPUs have come free by each day."""
    days = [calendar.today + timedelta(number) for number in range(calendar.days + 1)]
    free = tuple(float(sum(len(each.gpus) for each in rows if each.day <= day)) for day in days)
    line = Line(tr("GPUs that have come free"), "active", free, tuple(Number(each) for each in free))
    return LineChart(
        names=tuple(Date(day) for day in days),
        short=tuple(ShortDate(day) for day in days),
        whole=(True,) * len(days),
        panels=(LinePanel(tr("GPUs that have come free, if all of it comes true"), "count", (line,)),),
    )


def _notes(calendar: Endings, *, for_all: bool) -> Iterator[str]:
    yield tr(
        "A GPU is in one row, that of the surest source. The chance of a time limit is how many past jobs that had run for as much of their limit ended by it, "
        "at the lower end of the 90 % interval; that of faded work is that the GPUs stay unused for `findings.horizon` more. What comes free may go to whatever waits next."
    )  # fmt: skip
    if not for_all:
        return
    yield tr(
        "{limited} of {running} running jobs have a known limit; lines of the owners table with an end of their project: {projects}.",
        limited=Number(calendar.with_limit), running=Number(calendar.running), projects=Number(calendar.projects),
    )  # fmt: skip
    yield _check_sentence(calendar.check)


def _check_sentence(check: EndingCheck | None) -> str:
    known = () if check is None else [source for source in SOURCES if check.said.get(source)]
    if check is None or not known:
        return tr("What the same would have said a week before is not known, or was nothing.")
    parts = [
        tr("{came} of {said} by {source}", came=Number(check.came_free[source]), said=Number(check.said[source]), source=SOURCE_NAMES[source])
        for source in known
    ]  # fmt: skip
    listed = parts[0]
    for part in parts[1:]:
        listed = tr("{said}, {part}", said=listed, part=part)
    return tr(
        "Checked: of the GPUs that the same would have named a week before, these came free: {listed}.", listed=listed
    )

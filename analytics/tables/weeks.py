"""Waste, cost, busy share and unused GPUs by week."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from analytics.decide.annotations import Annotation
from analytics.glossary import state_label
from analytics.language.sentences import Amount, Date, SentenceList, Share, tr
from analytics.report.compare import Change
from analytics.report.coverage import WHOLE_FROM
from analytics.report.goals import Measure
from analytics.report.parts import WeekHistory
from analytics.report.trends import QUARTER_WEEKS, WEEKS_BEFORE, WeekFigures
from analytics.tables.annotations import annotation_lines
from analytics.tables.chart import Chart, ChartPlace, Level, Line, Panel
from analytics.tables.table import Column, Table, column, drawn, fact, flag

_TITLES = {WEEKS_BEFORE: tr("The last four weeks"), QUARTER_WEEKS: tr("The last 13 weeks")}
_SPANS = {WEEKS_BEFORE: tr("4 weeks before"), QUARTER_WEEKS: tr("13 weeks before")}


def last_weeks(history: WeekHistory | None) -> Table | None:
    """Return the week and the four weeks before; None if the window is not a week."""
    return None if history is None else week_series(history, WEEKS_BEFORE)


def quarter(history: WeekHistory, annotations: Sequence[Annotation] = ()) -> Table:
    """Return the newest week and up to 13 before it, from the first observed week on, with their annotations."""
    oldest = max((place for place, week in enumerate(history.weeks) if week.figures is not None), default=0)
    return week_series(replace(history, weeks=history.weeks[: oldest + 1]), QUARTER_WEEKS, annotations)


def week_series(history: WeekHistory, before: int, annotations: Sequence[Annotation] = ()) -> Table:
    """Return a row per week, the newest last."""
    weeks = history.weeks
    shown = weeks[before::-1]
    placed = {each: place for each in annotations if (place := _week_of(each, shown)) is not None}
    return Table(
        name="weeks",
        title=_TITLES[before],
        question=tr("Is the waste falling from week to week?"),
        headline=_headline(history),
        columns=week_columns(history.currency),
        rows=tuple(shown),
        chart=_chart(shown, history, tuple(placed.values())) if any(each.figures for each in shown) else None,
        lines=tuple(annotation_lines(tuple(placed))),
        chart_note=SentenceList(_marks(shown), " "),
        notes=(
            tr(
                (
                    "Waste is the price of GPU time that was allocated but unused, held idle or stalled, and of the"
                    " unused part of low use. Weeks begin on Monday, {zone}."
                    if history.scope.is_personal
                    else (
                        "Waste is the price of GPU time that was down, unallocated, allocated but unused, held idle or"
                        " stalled, and of the unused part of low use. Weeks begin on Monday, {zone}."
                    )
                ),
                zone=str(history.zone),
            ),
        ),
    )


def week_columns(currency: str) -> tuple[Column, ...]:
    """Return the columns of `WeekFigures`. None is not observed, or without a price."""
    return (
        column("label", tr("week"), "words", "week.label"),
        fact("since", "moment", "week.since_ms"),
        flag("over", "is_over"),
        flag("whole", "is_whole"),
        fact("observed_share", "share", "seen.share"),
        column("waste", tr("waste, {currency}", currency=currency), "money"),
        column("paid", tr("paid, {currency}", currency=currency), "money"),
        column("busy_share", state_label("active"), "share"),
        column("unused_share", tr("unused"), "share"),
        column("idle_gpus", tr("unused GPUs, mean"), "number", digits=1),
        column("observed", tr("observed"), "share", lambda each: Share(each.seen.share), audience="people"),
        column("remark", tr("note"), "words", _remark, audience="people"),
    )


def _week_of(annotation: Annotation, shown: Sequence[WeekFigures]) -> int | None:
    at_ms = annotation.at_ms
    return next((place for place, each in enumerate(shown) if each.week.since_ms <= at_ms < each.week.until_ms), None)


def _headline(history: WeekHistory) -> str:
    """Return the newest complete week beside the weeks 4 and 13 weeks before."""
    weeks = history.weeks
    at = next((number for number, each in enumerate(weeks) if each.is_whole), None)
    if at is None:
        return tr(
            "There is no trend yet: no complete week was observed for {least} of its time.", least=Share(WHOLE_FROM, 0)
        )
    newest = weeks[at]
    return tr(
        "{share} of the observed time was not used in {week}: {against}."
        if newest.waste is None
        else "Waste cost {amount} in {week}, and {share} of the observed time was not used: {against}.",
        amount=Amount(newest.waste, history.currency),
        week=newest.week.label,
        share=Share(newest.unused_share),
        against=SentenceList([_against(weeks, at, before) for before in _SPANS], "; "),
    )


def _against(weeks: Sequence[WeekFigures], at: int, before: int) -> str:
    """Return the change since the week this many weeks before, or why there is none."""
    earlier = weeks[at + before] if at + before < len(weeks) else None
    if earlier is None or not earlier.is_whole:
        return tr("{weeks}: not known", weeks=_SPANS[before])
    points = Change("share", weeks[at].unused_share, earlier.unused_share).sentence
    cost = Change("money", weeks[at].waste, earlier.waste).sentence
    if not cost:
        return tr("{change} against {weeks}", change=points, weeks=_SPANS[before])
    return tr("{cost} and {change} against {weeks}", cost=cost, change=points, weeks=_SPANS[before])


def _remark(each: WeekFigures) -> str:
    if each.figures is None:
        return tr("not observed")
    if not each.is_over:
        return tr("not complete")
    return "" if each.is_whole else tr("partly observed")


def _marks(shown: Sequence[WeekFigures]) -> Iterator[str]:
    """Yield what hollow marks and gaps mean."""
    if any(each.figures is not None and not each.is_whole for each in shown):
        yield tr(
            "Hollow marks: weeks that are not complete, or of which less than {least} was observed. Their sums cover"
            " the observed time only.",
            least=Share(WHOLE_FROM, 0),
        )
    if any(each.figures is None for each in shown):
        yield tr("A gap in the line is a week that was not observed.")


def _chart(shown: Sequence[WeekFigures], history: WeekHistory, annotations: tuple[int, ...]) -> Chart:
    figures = {each.key: each for each in week_columns(history.currency)}
    places = tuple(
        ChartPlace(
            tr("{week}, from {day}", week=each.week.label, day=Date(each.week.monday)),
            each.week.label[5:],
            is_whole=each.is_whole,
        )
        for each in shown
    )

    def line(name: str, colour: str, key: str) -> Line:
        return Line(name, colour, **drawn(figures[key], shown), dashed=colour == "muted")

    waste, paid = line(tr("waste"), "held", "waste"), line(tr("paid"), "muted", "paid")
    busy, unused = line(state_label("active"), "active", "busy_share"), line(tr("unused"), "held", "unused_share")
    idle = line(tr("unused GPUs, mean"), "held", "idle_gpus")
    panels = (
        Panel(
            tr("cost a week, {currency}", currency=history.currency),
            (*_goals(history, "waste", waste), waste, paid),
            places,
        ),
        Panel(
            tr("share of the observed time"),
            (*_goals(history, "unused_share", unused), busy, unused),
            places,
            "share",
        ),
        Panel(tr("unused GPUs, mean of the week"), (idle,), places),
    )
    return Chart(tuple(panel for panel in panels if panel.ticks), annotations=annotations)


def _goals(history: WeekHistory, measure: Measure, line: Line) -> Iterator[Level]:
    """Return the goals as levels of the chart. The name stands above a level if the newest point is below."""
    newest = next((value for value in reversed(line.values) if value is not None), 0.0)
    for each in (placed.goal for placed in history.goals):
        if each.measure == measure and each.scope == history.scope:
            level = Share(each.level, 0) if measure == "unused_share" else Amount(each.level, history.currency)
            yield Level(
                tr("goal: {level} by {day}", day=Date(each.by), level=level),
                "held",
                each.level,
                is_above=newest <= each.level,
            )

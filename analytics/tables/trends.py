"""This week beside last week and the median of the four weeks before."""

from __future__ import annotations

from collections.abc import Iterator

from analytics.glossary import state_label
from analytics.language.sentences import Number, SentenceList, Share, tr
from analytics.report.compare import Change
from analytics.report.coverage import WHOLE_FROM
from analytics.report.figures import Trend
from analytics.report.parts import WeekHistory
from analytics.report.trends import LATE_MS
from analytics.states import USED_FIRST
from analytics.tables.table import Cell, Column, Table, column, fact
from fallow.clock import DAY_MS

_NAMES = {
    "unused_share": tr("unused share"),
    "waste_money": tr("waste"),
    "unused": tr("unused GPU-hours"),
    "unconfirmed_money": tr("cost of unconfirmed idle time"),
    "unconfirmed": tr("unconfirmed GPU-hours"),
    **{state: tr("{state}, GPU-hours", state=state_label(state)) for state in USED_FIRST},
    "total": tr("all GPU-hours"),
    "paid_money": tr("paid"),
    "effective_money": tr("cost of effective time"),
    "gpus": tr("GPUs"),
    "observed": tr("observed share"),
}
"""The figures in their order, with their names for people."""
_ONLY_WHERE_ANY = ("unconfirmed_money", "unconfirmed")


def trends(history: WeekHistory | None) -> Table | None:
    """Return a row per figure; None if the window is not a week."""
    if history is None:
        return None
    known = {trend.name: trend for trend in history.trends}
    return Table(
        name="trends",
        title=tr("This week against last week and the four weeks before"),
        question=tr("What has changed?"),
        headline=_headline(history, known["unused_share"]),
        columns=trend_columns(history),
        rows=tuple(
            trend
            for trend in (known[name] for name in _NAMES if name in known)
            if trend.name not in _ONLY_WHERE_ANY or trend.now or trend.last_week or trend.median_4_weeks
        ),
        notes=tuple(unfinished(history)),
        wide=True,
    )


def trend_columns(history: WeekHistory | None = None) -> tuple[Column, ...]:
    """Return the columns of `Trend`. Columns for programs are the same for every history."""
    currency = "" if history is None else history.currency

    def changed(trend: Trend) -> str | None:
        return None if history is None else change(history, trend) or None

    return (
        column("figure", tr("figure"), "words", lambda trend: _name(trend, currency), "name"),
        fact("unit", "words", about="gpu_hours, money, share or gpus.", nullable=False),
        column("now", tr("this week"), "number", lambda trend: figure(trend.unit, trend.now)),
        column("last_week", tr("last week"), "number", lambda trend: figure(trend.unit, trend.last_week)),
        column("change", tr("change"), "number", changed, audience="people"),
        column("median_4_weeks", tr("4-week median"), "number", lambda trend: figure(trend.unit, trend.median_4_weeks)),
    )


def _headline(history: WeekHistory, unused: Trend) -> str:
    changed = change(history, unused)
    now = Share(unused.now)
    if not changed:
        return tr(
            "{share} of the observed time was not used; no change is shown, because last week is not known.", share=now
        )
    return tr("{share} of the observed time was not used, {change} against last week.", share=now, change=changed)


def _name(trend: Trend, currency: str) -> str:
    name = _NAMES[trend.name]
    return tr("{name} ({currency})", name=name, currency=currency) if trend.unit == "money" else name


def figure(unit: str, value: float | None) -> Cell:
    """Return a figure of this unit; money without its currency."""
    if value is None:
        return None
    return Share(value) if unit == "share" else Number(value, {"gpu_hours": 1, "money": 2}.get(unit, 0))


def change(history: WeekHistory, trend: Trend) -> str:
    """Return the change from last week to this week; empty if it is not known or misleading.

    A sum grows with the observed time, so it has a change only if both weeks were observed as a whole.
    """
    weeks = (history.seen, *history.seen_before[:1])
    comparable = trend.unit == "share" or (_is_over(history) and all(each.is_whole for each in weeks))
    return Change(trend.unit, trend.now, trend.last_week if comparable else None).sentence


def unfinished(history: WeekHistory | None) -> Iterator[str]:
    """Yield why sums have no change: this week is not complete, or a week was not observed enough."""
    if history is None or history.week is None:
        return
    if not _is_over(history):
        days = Number((history.seen.until_ms - history.week.since_ms) / DAY_MS, 1)
        yield tr("Only {days} of this week's 7 days have passed, so sums of hours and money have no change.", days=days)
    weeks = [
        tr("{share} of {week}", share=Share(seen.share), week=history.week.before(number).label)
        for number, seen in enumerate((history.seen, *history.seen_before))
        if seen.share is not None and not seen.is_whole
    ]
    if weeks:
        yield tr(
            "Observed share of the GPU time: {weeks}. Below {least}, sums have no change and no median.",
            weeks=SentenceList(weeks, ", "),
            least=Share(WHOLE_FROM, 0),
        )


def _is_over(history: WeekHistory) -> bool:
    return history.week is not None and history.seen.until_ms >= history.week.until_ms - LATE_MS

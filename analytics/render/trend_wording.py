"""The week beside the weeks before, in words that every format shows: names, order, and how much a figure changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.language.quantities import Number, Share
from analytics.language.sentences import Listed, say
from analytics.ledger.summary import ratio
from analytics.report.coverage import WHOLE_FROM
from analytics.states import USED_FIRST
from fallow.clock import DAY_MS, HOUR_MS

if TYPE_CHECKING:
    from analytics.language.languages import Language
    from analytics.report.figures import Trend
    from analytics.report.model import Report

HEADS = (say("figure"), say("this week"), say("last week"), say("change"), say("4-week median"))
_NAMES = {
    "unused_share": say("unused share"),
    "unused_money": say("paid for nothing"),
    "unused": say("unused GPU-hours"),
    "total": say("all GPU-hours"),
    "paid_money": say("paid"),
    "used_money": say("paid for use"),
    "gpus": say("GPUs"),
    "observed": say("observed share"),
}
_ROWS = ("unused_share", "unused_money", "unused", *USED_FIRST, "total", "paid_money", "used_money", "gpus", "observed")  # fmt: skip
_LATE_MS = HOUR_MS


def shown(report: Report) -> list[Trend]:
    """The figures in the order in which they are shown; none where the window is no week."""
    trends = {trend.name: trend for trend in report.trends}
    return [trends[each] for each in _ROWS if each in trends]


def name(trend: Trend) -> str:
    """What the figure is called, with its unit where that is hours of a state."""
    return _NAMES.get(trend.name) or say("{state}, GPU-hours", state=say(trend.name))


def change(trend: Trend, report: Report, language: Language) -> str:
    """From last week to this: in points for shares, else relative; empty where that is not known or would mislead.

    Last week was nothing, or one of the two was not seen as a whole, and what grows with the time that was seen is less of it.
    """
    if trend.now is None or trend.last_week is None:
        return ""
    if trend.unit == "share":
        difference = 100 * (trend.now - trend.last_week)
        return language.say(say("{sign}{points} points", sign=_sign(difference), points=Number(abs(difference), 1)))
    if not (_is_over(report) and all(each.is_whole for each in (report.seen, *report.seen_before[:1]))):
        return ""
    relative = ratio(trend.now - trend.last_week, trend.last_week)
    return "" if relative is None else _sign(100 * relative) + language.percent(abs(relative))


def unfinished(report: Report) -> str:
    """Why sums have no change: this week is not over, or so much of it or of a week before was not seen; else nothing."""
    if report.week is None:
        return ""
    said = []
    if not _is_over(report):
        days = Number((report.seen.until_ms - report.week.since_ms) / DAY_MS, 1)
        said.append(say("{days} of this week's 7 days have passed: sums of hours and money have no change.", days=days))
    weeks = [
        say("{share} of {week}", share=Share(seen.share), week=report.week.before(number).label)
        for number, seen in enumerate((report.seen, *report.seen_before))
        if seen.share is not None and not seen.is_whole
    ]
    if weeks:
        said.append(
            say(
                "Observed of the GPU time: {weeks}. Below {least} sums have no change, and there is no median.",
                weeks=Listed(weeks, ", "), least=Share(WHOLE_FROM, 0),
            )
        )  # fmt: skip
    return Listed(said, " ")


def _is_over(report: Report) -> bool:
    return report.week is not None and report.seen.until_ms >= report.week.until_ms - _LATE_MS


def _sign(change: float) -> str:
    rounded = round(change, 1)
    return "+" if rounded > 0 else "\N{MINUS SIGN}" if rounded < 0 else "±"

"""The week beside the weeks before, and the way from what was paid to what was useful."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.language.quantities import Number
from analytics.language.sentences import say
from analytics.ledger.summary import ratio
from analytics.money.text import amount
from analytics.report.blocks.block import Block

if TYPE_CHECKING:
    from analytics.language.languages import Language
    from analytics.report.model import Report
    from analytics.report.parts import Trend

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
_ROWS = ("unused_share", "unused_money", "unused", "active", "low", "held", "reserved", "free", "unavailable", "unknown",
         "total", "paid_money", "used_money", "gpus", "observed")  # fmt: skip
_LEAST = 0.0005
"""Smaller changes are shown as 0.0, without a sign."""


def against_before(report: Report, language: Language) -> Block | None:
    """Each figure beside last week's and the median of the four weeks before; None where the window is no week."""
    if report.week is None:
        return None
    trends = {trend.name: trend for trend in report.trends}
    heads = (say("figure"), say("this week"), say("last week"), say("change"), say("4-week median"))
    return Block(
        title=language.say("Against last week and the four weeks before"),
        head=tuple(language.say(each) for each in heads),
        rows=tuple(_row(trends[name], report.money.currency, language) for name in _ROWS if name in trends),
    )


def _row(trend: Trend, currency: str, language: Language) -> tuple[str, ...]:
    name = _NAMES.get(trend.name) or say("{state}, GPU-hours", state=say(trend.name))
    unit = f" ({currency})" if trend.unit == "money" else ""
    now, last, middle = (_value(trend, value, language) for value in (trend.now, trend.last_week, trend.median_4_weeks))
    return language.say(name) + unit, now, last, _change(trend, language), middle


def _value(trend: Trend, value: float | None, language: Language) -> str:
    if value is None:
        return language.say("not known")
    if trend.unit == "share":
        return language.percent(value)
    return language.number(value, {"gpu_hours": 1, "money": 2}.get(trend.unit, 0))


def _change(trend: Trend, language: Language) -> str:
    """In points for shares, relative otherwise; `-` where last week is not known or was nothing."""
    if trend.now is None or trend.last_week is None:
        return "-"
    difference = trend.now - trend.last_week
    if trend.unit == "share":
        points = say("{points} points", points=Number(abs(100 * difference), 1))
        return _sign(difference) + language.say(points)
    relative = ratio(difference, trend.last_week)
    return "-" if relative is None else _sign(relative) + language.percent(abs(relative))


def _sign(change: float) -> str:
    return "" if abs(change) < _LEAST else "+" if change > 0 else "-"


def from_paid_to_useful(report: Report, language: Language) -> Block:
    """What each state takes away of what was paid, and how much is left after it."""
    total_ms = sum(step.gpu_ms for step in report.steps)
    left_ms = total_ms
    paid = report.money.accounts.total.paid_cents
    rows = [(language.say("paid"), language.hours(total_ms), "", *_money(paid, paid, language), "")]
    for step in report.steps:
        last = step is report.steps[-1]
        left_ms -= step.gpu_ms
        rows.append(
            (
                language.say(say("{state}: useful", state=say(step.state)) if last else say(step.state)),
                language.hours(step.gpu_ms),
                language.percent(ratio(step.gpu_ms, total_ms)),
                *_money(step.cents, paid, language),
                "" if last else language.percent(ratio(left_ms, total_ms)),
            )
        )
    heads = (say("step"), say("GPU-hours"), say("of all"), *([report.money.currency] if paid is not None else []), say("left"))  # fmt: skip
    return Block(
        title=language.say("From paid to useful"),
        about=language.say("shares of all GPU time, unknown time included"),
        head=tuple(language.say(each) for each in heads),
        rows=tuple(rows),
    )


def _money(cents: int | None, paid: int | None, language: Language) -> list[str]:
    """A cell, where anything has a price."""
    return [] if paid is None else [amount(cents, language)]

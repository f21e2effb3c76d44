"""The week beside the weeks before, and the way from what was paid to what was useful."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.language.sentences import say
from analytics.ledger.summary import ratio
from analytics.render.blocks.block import Block
from analytics.render.money_text import amount
from analytics.render.trend_wording import HEADS, change, name, shown, unfinished

if TYPE_CHECKING:
    from analytics.language.languages import Language
    from analytics.report.figures import Trend
    from analytics.report.model import Report

_PLAIN = str.maketrans({"\N{MINUS SIGN}": "-", "±": ""})
"""Signs that every terminal and editor shows alike."""


def against_before(report: Report, language: Language) -> Block | None:
    """Each figure beside last week's and the median of the four weeks before; None where the window is no week."""
    if report.week is None:
        return None
    note = unfinished(report)
    return Block(
        title=language.say(say("Against last week and the four weeks before")),
        head=tuple(language.say(each) for each in HEADS),
        rows=tuple(_row(trend, report, language) for trend in shown(report)),
        lines=(language.say(note),) if note else (),
    )


def _row(trend: Trend, report: Report, language: Language) -> tuple[str, ...]:
    unit = f" ({report.money.currency})" if trend.unit == "money" else ""
    now, last, middle = (_value(trend, value, language) for value in (trend.now, trend.last_week, trend.median_4_weeks))
    changed = change(trend, report, language).translate(_PLAIN) or "-"
    return language.say(name(trend)) + unit, now, last, changed, middle


def _value(trend: Trend, value: float | None, language: Language) -> str:
    if value is None:
        return language.say("not known")
    if trend.unit == "share":
        return language.percent(value)
    return language.number(value, {"gpu_hours": 1, "money": 2}.get(trend.unit, 0))


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

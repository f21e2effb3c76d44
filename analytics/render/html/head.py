"""The top of the page: what it is about, the headline, and the week's figures beside those before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from analytics.decide.totals import to_take
from analytics.language.quantities import Amount, GpuHours, Moment, Number, Share
from analytics.language.sentences import say, say_many
from analytics.ledger.summary import ratio
from analytics.render.html.amounts import cents
from analytics.render.html.cells import bdi
from analytics.render.html.chart import Table
from analytics.render.trend_wording import HEADS, change, name, shown, unfinished
from analytics.states import UNUSED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from markupsafe import Markup

    from analytics.language.languages import Language
    from analytics.language.sentences import Sentence, Value
    from analytics.report.figures import Trend
    from analytics.report.model import Report


@dataclass(frozen=True)
class Tile:
    """One large figure, what it is, and what stands below it."""

    label: str
    figure: str
    lines: tuple[str, ...]
    state: str


def title(report: Report, language: Language) -> str:
    """`GPU waste report, 2026-W46`."""
    if report.week is None:
        return language.say("GPU waste report")
    return language.say(say("GPU waste report, {week}", week=report.week.label))


def edition(report: Report, language: Language) -> list[tuple[str, Markup]]:
    """Whose edition it is: what the scope names, empty for the whole fleet."""
    return [(language.say(label), bdi(name)) for label, name in vars(report.scope).items() if name is not None]


def tiles(report: Report, language: Language) -> list[Tile]:
    """Unused, its cost, useful, and what can be taken back now."""
    totals, account = report.summary.totals, report.money.accounts.total
    trends = {trend.name: trend for trend in report.trends}
    wasted_ms = sum(totals.state_ms[state] for state in UNUSED)
    wasted_cents = None if account.paid_cents is None else sum(account.state_cents[state] for state in UNUSED)
    taken = to_take(report.findings)
    sure = to_take([finding for finding in report.findings if finding.confidence.grade == "high"])
    currency = report.money.currency
    of_paid = (
        say("no price is known")
        if account.paid_cents is None
        else say("of {paid} paid", paid=Amount(cents(account.paid_cents), currency))
    )
    found = [
        ("Unused", language.percent(ratio(wasted_ms, totals.observed_ms)), "held",
         (say("{part} of {whole} observed GPU-hours", part=GpuHours(wasted_ms), whole=GpuHours(totals.observed_ms)),
          *_beside(trends.get("unused_share"), currency))),
        ("Cost of it", language.money(cents(wasted_cents), currency), "reserved",
         (of_paid,
          *_beside(trends.get("unused_money"), currency))),
        ("Working", language.percent(totals.share("active")), "active",
         (say("{hours} GPU-hours active, {low} at low use", hours=GpuHours(totals.state_ms["active"]),
              low=GpuHours(totals.state_ms["low"])), *_beside(trends.get("active"), currency))),
        ("Could be taken back", language.say(say_many("{number} GPU", "{number} GPUs", len(taken))), "free",
         (_as_of(report, len(sure)),)),
    ]  # fmt: skip
    return [
        Tile(language.say(label), figure, tuple(language.say(each) for each in lines), state)
        for label, figure, state, lines in found
    ]


def _as_of(report: Report, sure: int) -> Sentence:
    """Up to when that is known, and how many of them surely."""
    if report.seen.last_ms is None or report.seen.to_the_end:
        return say("at the end of the window, {number} with high confidence", number=Number(sure))
    return say(
        "at {moment}, the last that was seen, {number} with high confidence",
        moment=Moment(report.seen.last_ms), number=Number(sure),
    )  # fmt: skip


def _beside(trend: Trend | None, currency: str) -> list[str]:
    if trend is None:
        return []
    last, middle = (_value(trend, value, currency) for value in (trend.last_week, trend.median_4_weeks))
    return [say("last week {last}; 4-week median {median}", last=last, median=middle)]


def _value(trend: Trend, value: float | None, currency: str) -> Value:
    if value is None:
        return say("not known")
    values: Mapping[str, Value] = {
        "share": Share(value),
        "money": Amount(value, currency),
        "gpu_hours": say("{value} GPU-hours", value=Number(value, 1)),
    }
    return values.get(trend.unit, Number(value))


def compared(report: Report, language: Language) -> Table | None:
    """The week beside last week and the four weeks before; None where there is no week."""
    rows = [_compared(trend, report, language) for trend in shown(report)]
    if not rows:
        return None
    return Table(tuple(language.say(each) for each in HEADS), tuple(rows), rest=language.say(unfinished(report)))


def _compared(trend: Trend, report: Report, language: Language) -> tuple[str, ...]:
    """A row; the name has the unit of hours, so that the figures stay short."""

    def figure(value: float | None) -> str:
        if trend.unit == "gpu_hours" and value is not None:
            return language.number(value, 1)
        return language.say(say("{value}", value=_value(trend, value, report.money.currency)))

    now, last, middle = map(figure, (trend.now, trend.last_week, trend.median_4_weeks))
    return language.say(name(trend)), now, last, change(trend, report, language), middle

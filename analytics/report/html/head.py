"""The top of the page: what it is about, the headline, and the week's figures beside those before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from analytics.findings.totals import to_take
from analytics.language.quantities import Amount, GpuHours, Moment, Number, Share, Span
from analytics.language.sentences import Listed, say, say_many
from analytics.ledger.summary import ratio
from analytics.ledger.text import stopped_lines
from analytics.report.html.amounts import cents
from analytics.report.html.cells import bdi
from analytics.report.html.chart import Table
from analytics.report.html.states import ORDER, WASTED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from markupsafe import Markup

    from analytics.language.languages import Language
    from analytics.language.sentences import Value
    from analytics.report.model import Report
    from analytics.report.parts import Trend


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
    parts = {"pool": report.scope.pool, "team": report.scope.team, "holder": report.scope.holder}
    return [(language.say(label), bdi(name)) for label, name in parts.items() if name is not None]


def facts(report: Report, language: Language) -> list[tuple[str, str]]:
    """Window, coverage, thresholds, prices and version, by label."""
    summary, settings = report.summary, report.settings
    gpus = say_many("{number} GPU", "{number} GPUs", summary.totals.gpus)
    hosts = say_many("{number} host", "{number} hosts", report.hosts)
    silent = stopped_lines(summary) or [say("none")]
    found = {
        "window": say("{since} to {until}", since=Moment(summary.since_ms), until=Moment(summary.until_ms)),
        "time zone": str(report.zone),
        "fleet": say("{gpus} on {hosts}", gpus=gpus, hosts=hosts),
        "observed": say("{share} of the time", share=Share(summary.totals.coverage)),
        "silent": Listed(silent),
        "thresholds": say(
            "held from {held}, a finding from {finding}; low below {low} %",
            held=Span(settings.idle_after_ms), finding=Span(report.held_min_ms),
            low=Number(settings.low_below_pct),
        ),
        "prices": _prices(report),
        "made by": f"fallow {report.version}",
    }  # fmt: skip
    return [(language.say(label), language.say(value)) for label, value in found.items()]


def _prices(report: Report) -> str:
    priced = [each.price for each in report.money.basis if each.price is not None]
    dates = sorted(price.date.isoformat() for price in priced if price.date is not None)
    if not priced:
        return say("none known: nothing is said of money")
    whose = (
        say("public list prices, not what you pay")
        if all(each.origin == "catalog" for each in priced)
        else say("the site's own")
    )
    if not dates:
        return say("{whose}, in {currency}", whose=whose, currency=report.money.currency)
    span = dates[0] if dates[0] == dates[-1] else say("{first} to {last}", first=dates[0], last=dates[-1])
    return say("{whose}, in {currency}, of {dates}", whose=whose, currency=report.money.currency, dates=span)


def tiles(report: Report, language: Language) -> list[Tile]:
    """Unused, its cost, useful, and what can be taken back now."""
    totals, account = report.summary.totals, report.money.accounts.total
    trends = {trend.name: trend for trend in report.trends}
    wasted_ms = sum(totals.state_ms[state] for state in WASTED)
    wasted_cents = None if account.paid_cents is None else sum(account.state_cents[state] for state in WASTED)
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
         (say("at the end of the window, {number} with high confidence", number=Number(len(sure))),)),
    ]  # fmt: skip
    return [
        Tile(language.say(label), figure, tuple(language.say(each) for each in lines), state)
        for label, figure, state, lines in found
    ]


def _beside(trend: Trend | None, currency: str) -> list[str]:
    if trend is None:
        return []
    last, middle = (_value(trend, value, currency) for value in (trend.last_week, trend.median_4_weeks))
    return [say("last week {last}; 4-week median {median}", last=last, median=middle)]


def _value(trend: Trend, value: float | None, currency: str) -> Value:
    if value is None:
        return say("not seen")
    values: Mapping[str, Value] = {
        "share": Share(value),
        "money": Amount(value, currency),
        "gpu_hours": say("{value} GPU-hours", value=Number(value, 1)),
    }
    return values.get(trend.unit, Number(value))


_NAMES = {
    "total": "all GPU-hours",
    "unused": "unused GPU-hours",
    "unused_share": "unused share",
    "observed": "observed share",
    "paid_money": "paid",
    "used_money": "paid for use",
    "unused_money": "paid for nothing",
    "gpus": "GPUs",
}
_ROWS = ("unused_share", "unused_money", "unused", *ORDER, "total", "paid_money", "used_money", "gpus", "observed")


def compared(report: Report, language: Language) -> Table | None:
    """The week beside last week and the four weeks before; None where there is no week."""
    trends = {trend.name: trend for trend in report.trends}
    rows = [_compared(trends[name], report.money.currency, language) for name in _ROWS if name in trends]
    if not rows:
        return None
    head = ("figure", "this week", "last week", "change", "4-week median")
    return Table(tuple(language.say(each) for each in head), tuple(rows))


def _compared(trend: Trend, currency: str, language: Language) -> tuple[str, ...]:
    """A row; the name has the unit of hours, so that the figures stay short."""
    name = _NAMES.get(trend.name) or say("{state}, GPU-hours", state=say(trend.name))

    def shown(value: float | None) -> str:
        if trend.unit == "gpu_hours" and value is not None:
            return language.number(value, 1)
        return language.say(say("{value}", value=_value(trend, value, currency)))

    return (
        language.say(name),
        shown(trend.now),
        shown(trend.last_week),
        _change(trend, language),
        shown(trend.median_4_weeks),
    )


def _change(trend: Trend, language: Language) -> str:
    """In points for shares, else relative; empty where last week is not known or was nothing."""
    if trend.now is None or trend.last_week is None:
        return ""
    if trend.unit == "share":
        difference = 100 * (trend.now - trend.last_week)
        return language.say(say("{sign}{points} points", sign=_sign(difference, 1), points=Number(abs(difference), 1)))
    relative = ratio(trend.now - trend.last_week, trend.last_week)
    return "" if relative is None else _sign(100 * relative, 1) + language.percent(abs(relative))


def _sign(value: float, digits: int) -> str:
    shown = round(value, digits)
    return "+" if shown > 0 else "\N{MINUS SIGN}" if shown < 0 else "±"

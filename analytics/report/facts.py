"""What a reader has to know before the first figure: window, coverage, silent GPUs, thresholds, prices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.language.quantities import Date, Moment, Number, Share, Span
from analytics.language.sentences import Listed, say, say_many
from analytics.ledger.text import stopped_lines

if TYPE_CHECKING:
    from analytics.language.languages import Language
    from analytics.report.model import Report


def facts(report: Report, language: Language) -> list[tuple[str, str]]:
    """Window, coverage, thresholds, prices and version, by label."""
    summary, settings = report.summary, report.settings
    window = say("{since} to {until}", since=Moment(summary.since_ms), until=Moment(summary.until_ms))
    gpus = say_many("{number} GPU", "{number} GPUs", summary.totals.gpus)
    hosts = say_many("{number} host", "{number} hosts", report.hosts)
    silent = stopped_lines(summary) or [say("none")]
    found: dict[str, str] = {
        say("window"): window,
        say("time zone"): str(report.zone),
        say("fleet"): say("{gpus} on {hosts}", gpus=gpus, hosts=hosts),
        say("observed"): say("{share} of the time", share=Share(summary.totals.coverage)),
        say("silent"): Listed(silent),
        say("thresholds"): say(
            "held from {held}, a finding from {finding}; low below {low} %",
            held=Span(settings.idle_after_ms), finding=Span(report.held_min_ms),
            low=Number(settings.low_below_pct),
        ),
        say("prices"): _prices(report),
        say("made by"): f"fallow {report.version}",
    }  # fmt: skip
    if report.left_out:
        found[say("left out")] = say_many(
            "{number} finding about GPUs that others hold as well",
            "{number} findings about GPUs that others hold as well",
            report.left_out,
        )
    if report.is_empty:
        found = {label: found[label] for label in ("window", "time zone", "made by")}
    return [(language.say(label), language.say(value)) for label, value in found.items()]


def _prices(report: Report) -> str:
    priced = [each.price for each in report.money.basis if each.price is not None]
    dates = sorted(price.date for price in priced if price.date is not None)
    if not priced:
        return say("none known: nothing is said of money")
    whose = (
        say("public list prices, not what you pay")
        if all(each.origin == "catalog" for each in priced)
        else say("the site's own")
    )
    if not dates:
        return say("{whose}, in {currency}", whose=whose, currency=report.money.currency)
    first, last = Date(dates[0]), Date(dates[-1])
    span = first if first == last else say("{first} to {last}", first=first, last=last)
    return say("{whose}, in {currency}, of {dates}", whose=whose, currency=report.money.currency, dates=span)

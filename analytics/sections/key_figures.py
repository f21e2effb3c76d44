"""The report's four large figures: unused, its cost, working, and what can be taken back now."""

from __future__ import annotations

from dataclasses import dataclass

from analytics.decide.totals import to_ask, to_take
from analytics.language.quantities import Amount, GpuHours, Moment, Number, Share, from_cents
from analytics.language.sentences import tr, tr_many
from analytics.ledger.summary import ratio
from analytics.report.figures import Trend
from analytics.report.model import Report
from analytics.sections.point_samples import between
from analytics.sections.section import Cell


@dataclass(frozen=True)
class KeyFigure:
    """One large figure, what it is, what stands below it, and the state whose colour it has."""

    label: str
    figure: Cell
    lines: tuple[str, ...]
    state: str


def key_figures(report: Report) -> tuple[KeyFigure, ...]:
    """The figures, with those of last week and the median of the four weeks before where the window is a week."""
    totals, account, currency = report.summary.totals, report.money.accounts.total, report.money.currency
    trends = {trend.name: trend for trend in report.trends}

    def beside(name: str) -> tuple[str, ...]:
        return _beside(trends[name], currency) if name in trends else ()

    paid = account.paid_cents
    wasted = None if paid is None else Amount(from_cents(account.unused_cents(totals)), currency)
    of_paid = tr("no price is known") if paid is None else tr("of {paid} paid", paid=Amount(from_cents(paid), currency))
    taken = to_take(report.findings)
    part, whole = GpuHours(totals.wasted_ms), GpuHours(totals.observed_ms)
    of_observed = tr("{part} of {whole} observed GPU-hours", part=part, whole=whole)
    perhaps, perhaps_paid = _left_open(report)
    worked, low = GpuHours(totals.state_ms["active"]), GpuHours(totals.state_ms["low"])
    at_work = tr("{hours} GPU-hours active, {low} at low use", hours=worked, low=low)
    gpus = tr_many("{number} GPU", "{number} GPUs", len(taken))
    return (
        KeyFigure(
            tr("Unused"),
            Share(ratio(totals.wasted_ms, totals.observed_ms)),
            (of_observed, *perhaps, *beside("unused_share")),
            "held",
        ),
        KeyFigure(tr("Cost of it"), wasted, (of_paid, *perhaps_paid, *beside("unused_money")), "reserved"),
        KeyFigure(tr("Working"), Share(totals.share("active")), (at_work, *beside("active")), "active"),
        KeyFigure(tr("Could be taken back"), gpus, (_as_of(report), *_asked(report)), "free"),
    )


def _left_open(report: Report) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What point samples leave open of the unused time, and of its cost: the figures leave it out."""
    totals = report.summary.totals
    if not totals.leaves_open:
        return (), ()
    cents = sum(report.money.accounts.total.open_cents.values())
    share = tr("confirmed; {sampled}", sampled=between(report, totals.unused_bound))
    more = tr("{amount} more is not confirmed: sampled", amount=Amount(from_cents(cents), report.money.currency))
    return (share,), ((more,) if cents else ())


def _as_of(report: Report) -> str:
    """Up to when that is known, and how many of them surely."""
    sure = Number(len(to_take([each for each in report.findings if each.confidence.grade == "high"])))
    if report.seen.last_ms is None or report.seen.to_the_end:
        return tr("at the end of the window, {number} with high confidence", number=sure)
    return tr(
        "at {moment}, the last that was seen, {number} with high confidence",
        moment=Moment(report.seen.last_ms), number=sure,
    )  # fmt: skip


def _asked(report: Report) -> tuple[str, ...]:
    number = len(to_ask(report.findings))
    return (tr("{number} to ask about", number=Number(number)),) if number else ()


def _beside(trend: Trend, currency: str) -> tuple[str, ...]:
    last, middle = (_figure(trend.unit, value, currency) for value in (trend.last_week, trend.median_4_weeks))
    return (tr("last week {last}; 4-week median {median}", last=last, median=middle),)


def _figure(unit: str, value: float | None, currency: str) -> str | Share | Amount:
    if value is None:
        return tr("not known")
    if unit == "gpu_hours":
        return tr("{value} GPU-hours", value=Number(value, 1))
    return Share(value) if unit == "share" else Amount(value, currency)

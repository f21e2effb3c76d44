"""Facts that every document shows before the first figure: window, coverage, silent hosts, thresholds, prices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analytics.language.sentences import (
    Date,
    GpuHours,
    Language,
    Moment,
    Number,
    Sentence,
    SentenceList,
    Share,
    Span,
    plain,
    tr,
    tr_many,
)
from analytics.ledger.summary import SILENT_AFTER_MS
from analytics.money.window_money import PriceBasis
from analytics.report.coverage import Seen, Silent
from analytics.report.parts import Heading, LedgerFigures
from analytics.report.weeks import Week
from analytics.tables.point_samples import by_samples, doubt, is_sampled
from fallow.clock import DAY_MS, HOUR_MS, floor_ms

_DAYS_FROM_MS = 2 * DAY_MS


def data_age(end_ms: int | None, now_ms: int) -> str:
    """Return the age of the data in one sentence; empty for a window without such an end (None), or current data."""
    age_ms = 0 if end_ms is None else now_ms - end_ms
    if end_ms is None or age_ms < SILENT_AFTER_MS:
        return ""
    age = Span(floor_ms(age_ms, DAY_MS if age_ms >= _DAYS_FROM_MS else HOUR_MS))
    return tr(
        "the newest data are {age} old ({moment}): the window counts back from that moment",
        age=age,
        moment=Moment(end_ms),
    )


_NAMED = 5
"""Number of silent hosts with names; the others are counted."""

SILENT_HOSTS, _VERSION = tr("silent hosts"), tr("created by")


def facts(heading: Heading, ledger: LedgerFigures, language: Language) -> list[tuple[str, str]]:
    """Return window, coverage, thresholds, prices and version by label; without data only the facts that still hold."""
    settings, seen, money = heading.settings, ledger.seen, ledger.money
    gpus = tr_many("{number} {GPU|GPUs}", heading.gpus)
    hosts = tr_many("{number} {host|hosts}", heading.hosts)
    found: dict[str, str] = {
        tr("window"): _window(heading, seen),
        tr("time zone"): str(heading.zone),
        tr("fleet"): tr("{gpus} on {hosts}", gpus=gpus, hosts=hosts),
        tr("observed"): observed(ledger, heading.week),
        SILENT_HOSTS: tr("{hosts}; no sum includes the time after that", hosts=silent_host_names(seen.silent))
        if seen.silent
        else tr("none"),
        tr("thresholds"): tr(
            "held idle after {held}, finding after {finding}; low use below {low} %",
            held=Span(settings.idle_after_ms),
            finding=Span(heading.held_min_ms),
            low=Number(settings.low_below_pct),
        ),
        tr("prices"): whose_prices(money.basis, money.currency),
        _VERSION: f"fallow {heading.version}",
    }
    if ledger.is_empty:
        silent = [SILENT_HOSTS] if seen.silent else []
        found = {label: found[label] for label in ("window", "time zone", *silent, _VERSION)}
    return [(language.translate(label), language.translate(value)) for label, value in found.items()]


def _window(heading: Heading, seen: Seen) -> str:
    """Return the window up to now, and the age of the data if the window counts back from their end."""
    until_ms = seen.until_ms if heading.week is None else heading.week.until_ms
    sentence = tr("{since} to {until}", since=Moment(seen.since_ms), until=Moment(until_ms))
    age = data_age(heading.counted_back_from_ms, heading.generated_ms)
    return SentenceList([sentence, age], "; ") if age else sentence


def observed(ledger: LedgerFigures, week: Week | None = None) -> str:
    """Return the observed share of the time, its sampled share, and for an incomplete week the end of the data."""
    sampled = [by_samples(ledger.summary)] if is_sampled(ledger.summary.totals) else []
    return SentenceList(
        [_seen(ledger.seen, week), *sampled, *doubt(ledger.summary.totals), *outside(ledger.seen)], "; "
    )


def _seen(seen: Seen, week: Week | None) -> str:
    share = Share(seen.share)
    if week is None or seen.until_ms >= week.until_ms:
        return tr("{share} of the time", share=share)
    return tr("{share} of the time up to {moment}", share=share, moment=Moment(seen.until_ms))


def outside(seen: Seen) -> list[Sentence]:
    """Return the GPU-hours before a host's first row and after its last, which no table counts."""
    if not round(seen.outside_ms / HOUR_MS, 1):
        return []
    hours = GpuHours(seen.outside_ms)
    return [tr("no sum includes {hours} GPU-hours before a host's first row or after its last", hours=hours)]


def silent_host_names(hosts: Sequence[Silent]) -> SentenceList:
    """Return the first silent hosts, since when each is silent, and the number of the others."""
    more = len(hosts) - _NAMED
    rest = [tr_many("and {number} more {host|hosts}", more)] if more > 0 else []
    return SentenceList([*map(_since, hosts[:_NAMED]), *rest], ", ")


def _since(silent: Silent) -> str:
    host, moment = plain(silent.host), Moment(silent.since_ms)
    if silent.whole_host:
        return tr("{host} since {moment}", host=host, moment=moment)
    gpus = tr_many("{number} {GPU|GPUs}", silent.gpus)
    return tr("{gpus} of {host} since {moment}", gpus=gpus, host=host, moment=moment)


def whose_prices(basis: Iterable[PriceBasis], currency: str) -> str:
    """Return the source and the dates of the prices: the site's own prices or public list prices."""
    priced = [each.price for each in basis if each.price is not None]
    dates = sorted(price.date for price in priced if price.date is not None)
    if not priced:
        return tr("none known: no cost is shown")
    whose = _WHOSE[frozenset(each.origin for each in priced)]
    if not dates:
        return tr("{whose}, in {currency}", whose=whose, currency=currency)
    first, last = Date(dates[0]), Date(dates[-1])
    span: str | Date = first if first == last else tr("{first} to {last}", first=first, last=last)
    if len(dates) < len(priced):
        span = tr("{dates} ({dated} of {number} are dated)", dates=span, dated=len(dates), number=len(priced))
    return tr("{whose}, in {currency}, of {dates}", whose=whose, currency=currency, dates=span)


_WHOSE = {
    frozenset({"site"}): tr("the site's own"),
    frozenset({"catalog"}): tr("public list prices, not what you pay"),
    frozenset({"site", "catalog"}): tr(
        "the site's own for some GPUs; for the others public list prices, not what you pay"
    ),
}

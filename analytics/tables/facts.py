"""What a reader has to know before the first figure: window, coverage, silent GPUs, thresholds, prices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analytics.language.language import Language, Sentence, SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import Date, GpuHours, Moment, Number, Share, Span
from analytics.language.sentences import tr, tr_many
from analytics.ledger.summary import SILENT_AFTER_MS
from analytics.money.window_money import PriceBasis
from analytics.report.coverage import Seen, Silent
from analytics.report.parts import Heading, LedgerFigures
from analytics.report.weeks import Week
from analytics.tables.point_samples import by_samples, is_sampled
from fallow.clock import DAY_MS, HOUR_MS, floor_ms

_DAYS_FROM_MS = 2 * DAY_MS


def data_age(end_ms: int | None, now_ms: int) -> str:
    """One sentence; empty where nothing counts back from their end (None), and while they reach up to now."""
    age_ms = 0 if end_ms is None else now_ms - end_ms
    if end_ms is None or age_ms < SILENT_AFTER_MS:
        return ""
    age = Span(floor_ms(age_ms, DAY_MS if age_ms >= _DAYS_FROM_MS else HOUR_MS))
    return tr("the data end {age} ago, on {moment}: the window counts back from there", age=age, moment=Moment(end_ms))


_NAMED = 5
"""Silent hosts that are named; the others are counted."""


def facts(heading: Heading, ledger: LedgerFigures, language: Language) -> list[tuple[str, str]]:
    """Window, coverage, thresholds, prices and version, by label; of a window in which nothing was seen only what still holds."""
    settings, seen, money = heading.settings, ledger.seen, ledger.money
    gpus = tr_many("{number} GPU", "{number} GPUs", heading.gpus)
    hosts = tr_many("{number} host", "{number} hosts", heading.hosts)
    found: dict[str, str] = {
        tr("window"): _window(heading, seen),
        tr("time zone"): str(heading.zone),
        tr("fleet"): tr("{gpus} on {hosts}", gpus=gpus, hosts=hosts),
        tr("observed"): observed(ledger, heading.week),
        tr("silent"): _silent(seen.silent),
        tr("thresholds"): tr(
            "held from {held}, a finding from {finding}; low below {low} %",
            held=Span(settings.idle_after_ms),
            finding=Span(heading.held_min_ms),
            low=Number(settings.low_below_pct),
        ),
        tr("prices"): whose_prices(money.basis, money.currency),
        tr("made by"): f"fallow {heading.version}",
    }
    if ledger.is_empty:
        silent = ["silent"] if seen.silent else []
        found = {label: found[label] for label in ("window", "time zone", *silent, "made by")}
    return [(language.translate(label), language.translate(value)) for label, value in found.items()]


def _window(heading: Heading, seen: Seen) -> str:
    """The week, or any other window as far as it has passed; and how old the data are that it counts back from."""
    until_ms = seen.until_ms if heading.week is None else heading.week.until_ms
    said = tr("{since} to {until}", since=Moment(seen.since_ms), until=Moment(until_ms))
    age = data_age(heading.counted_back_from_ms, heading.made_ms)
    return SentenceList([said, age], "; ") if age else said


def observed(ledger: LedgerFigures, week: Week | None = None) -> str:
    """How much of the time, and how much of that at moments only; of a week that is not over also up to when."""
    sampled = [by_samples(ledger.summary)] if is_sampled(ledger.summary.totals) else []
    return SentenceList([_seen(ledger.seen, week), *sampled, *outside(ledger.seen)], "; ")


def _seen(seen: Seen, week: Week | None) -> str:
    share = Share(seen.share)
    if week is None or seen.until_ms >= week.until_ms:
        return tr("{share} of the time", share=share)
    return tr("{share} of the time up to {moment}", share=share, moment=Moment(seen.until_ms))


def outside(seen: Seen) -> list[Sentence]:
    """How much of the rest is not among the unknown hours of any table: a host that came or fell silent in the window."""
    if not round(seen.outside_ms / HOUR_MS, 1):
        return []
    hours = GpuHours(seen.outside_ms)
    return [tr("{hours} GPU-hours before a host's first row or after its last are in no sum", hours=hours)]


def _silent(hosts: Sequence[Silent]) -> str:
    if not hosts:
        return tr("none")
    return tr("{hosts}: the time after that is in no sum", hosts=silent_host_names(hosts))


def silent_host_names(hosts: Sequence[Silent]) -> SentenceList:
    """The first hosts that were not seen to the end, each since when, and how many more there are."""
    more = len(hosts) - _NAMED
    rest = [tr_many("and {number} more host", "and {number} more hosts", more)] if more > 0 else []
    return SentenceList([*map(_since, hosts[:_NAMED]), *rest], ", ")


def _since(silent: Silent) -> str:
    host, moment = plain(silent.host), Moment(silent.since_ms)
    if silent.whole_host:
        return tr("{host} since {moment}", host=host, moment=moment)
    gpus = tr_many("{number} GPU", "{number} GPUs", silent.gpus)
    return tr("{gpus} of {host} since {moment}", gpus=gpus, host=host, moment=moment)


def whose_prices(basis: Iterable[PriceBasis], currency: str) -> str:
    """Whose prices they are, and of which days: nobody pays what a list says."""
    priced = [each.price for each in basis if each.price is not None]
    dates = sorted(price.date for price in priced if price.date is not None)
    if not priced:
        return tr("none known: nothing is said of money")
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
        "the site's own for some GPUs, public list prices, not what you pay, for the others"
    ),
}

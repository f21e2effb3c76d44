"""The value of recommendations a year, in words and columns: freed GPU time and cash. No table adds the two."""

from __future__ import annotations

from collections.abc import Callable

from analytics.decide.recommendations import Recommendations
from analytics.decide.value import TotalValue, Value
from analytics.language.sentences import Day, GpuHours, Number, Sentence, SentenceList, Share, tr, tr_many
from analytics.proportions import Estimate
from analytics.tables.table import Cell, Column, column, fact, record_column
from fallow.clock import HOUR_MS

FREED, CASH = tr("GPU time per year"), tr("cash per year")


def a_year(amount: float, currency: str) -> str:
    """Return an estimate without cents: `12,300 USD`."""
    return tr("{amount} {currency}", amount=round(amount), currency=currency)


def estimate_words(each: Estimate, currency: str) -> str:
    """Return an estimate with its range: `12,300 USD (8,000 to 14,000)`. Zero has no range."""
    if not each.high:
        return a_year(0, currency)
    low, point, high = (Number(round(figure)) for figure in (each.low, each.point, each.high))
    return tr("{amount} {currency} ({low} to {high})", amount=point, currency=currency, low=low, high=high)


def freed_words(value: Value | None, currency: str) -> Cell:
    """Return the freed GPU time at its price, or its hours without a price."""
    if value is None:
        return tr("not known")
    if value.freed is not None:
        return estimate_words(value.freed, currency)
    low, point, high = (
        GpuHours(each * HOUR_MS) for each in (value.gpu_hours.low, value.gpu_hours.point, value.gpu_hours.high)
    )
    return tr("{hours} GPU-hours ({low} to {high})", hours=point, low=low, high=high)


def cash_words(value: Value | None, currency: str) -> Cell:
    """Return the spending that ends."""
    return tr("not known") if value is None or value.cash is None else estimate_words(value.cash, currency)


def value_headline(found: Recommendations) -> SentenceList | Sentence:
    """Return both figures of the ranked recommendations, their weeks, and the share at list prices."""
    value, currency = found.value, found.waste.currency
    if value is None or value.freed is None:
        if not found.weeks:
            return tr("No yearly figure is known yet, because the data cover no complete week.")
        if found.waste.cents is None and found.listed:
            return tr("No price is known, so recommendations cannot be ranked by value.")
        return tr("No recommendation frees a known amount of GPU time.")
    freed = tr_many(
        "{number} {recommendation frees|recommendations free} GPU time worth {freed} a year.",
        value.recommendations,
        freed=estimate_words(value.freed, currency),
    )
    listed = [list_price_words(value)] if value.list_price_share else []
    return SentenceList([freed, _cash_sentence(value, currency), weeks_words(found), *listed], " ")


def _cash_sentence(value: TotalValue, currency: str) -> Sentence:
    if value.cash is None:
        return tr("The saving in cash is not known: {why}.", why=value.cash_unknown)
    if not value.cash.high:
        return tr_many("{It saves|They save} no cash: the bill stays.", value.recommendations)
    return tr_many(
        "{It saves|They save} {cash} in cash a year, which is not added to the GPU time.",
        value.recommendations,
        cash=estimate_words(value.cash, currency),
    )


def weeks_words(found: Recommendations) -> Sentence:
    """Return the complete weeks behind the yearly figures."""
    return tr_many(
        "Yearly figures rest {on|on the last} {number} complete {week|weeks}, {since} to {until}.",
        len(found.weeks),
        since=Day(found.weeks[-1][0]),
        until=Day(found.weeks[0][1] - 1),
    )


def list_price_words(value: Value) -> Sentence:
    return tr(
        "{share} of the GPU time has public list prices, which are not what you pay.",
        share=Share(value.list_price_share),
    )


def freed_column(currency: str | None = None) -> Column:
    """Return the column of the GPU time that a row frees a year. By default `currency` is the row's own."""
    return _yearly(_FREED, FREED, freed_words, currency)


def cash_column(currency: str | None = None) -> Column:
    """Return the column of the cash that a row saves a year."""
    return _yearly(_CASH, CASH, cash_words, currency)


def _yearly(figure: Column, title: str, words: Callable[[Value, str], Cell], currency: str | None) -> Column:
    return column(
        figure.key,
        title,
        "words",
        lambda row: "" if row.value is None else words(row.value, currency or row.currency),
        lambda row: row.value and figure.value(row.value),
        json_type="object",
    )


_ESTIMATE = tuple(fact(name, "number") for name in ("low", "point", "high"))
_FREED = record_column(
    "freed",
    _ESTIMATE,
    about="That time at its price: money only if GPUs are sold or a purchase is avoided. Null without a price.",
)
_CASH = record_column(
    "cash",
    _ESTIMATE,
    about="The spending that ends: rent, or running cost. Null where it is not known; never added to `freed`.",
)
VALUE_COLUMNS = (
    record_column("gpu_hours", _ESTIMATE, about="The GPU time that comes free."),
    _FREED,
    _CASH,
    fact("cash_unknown", "words", lambda value: value.cash_unknown or None, about="Why cash is not known."),
    fact("list_price_share", "share", about="The share of `freed` that rests on public list prices."),
)
"""Columns of a `Value`."""

VALUE_WEEKS = record_column(
    "value_weeks",
    (
        fact("since", "moment", lambda weeks: weeks[-1][0]),
        fact("until", "moment", lambda weeks: weeks[0][1]),
        fact("weeks", "count", len),
    ),
    lambda found: found.weeks or None,
    "The complete weeks that every yearly figure rests on, whatever the window. Null below one.",
)
"""Columns of the value of `Recommendations`."""


def value_column(about: str) -> Column:
    return record_column("value_per_year", VALUE_COLUMNS, "value", about)

"""When each pool is full, when to order at the latest, and what that rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date

from analytics.language.quantities import Date, Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.plan.forecast import BAND, MODEL_MIN_DAYS, NAIVE_MIN_DAYS, ForecastTest
from analytics.plan.order_date import PoolOutlook, of_scope
from analytics.report.model import Report
from analytics.tables.basis import PageBasis
from analytics.tables.names import card_name, place_name
from analytics.tables.plan_forecast_chart import demand_chart
from analytics.tables.table import Cell, Column, Table

_ON_PAGE = 6


def orders_ahead(basis: PageBasis) -> Table | None:
    """Of a page, with its chart; None for people, who have no pools."""
    scope = basis.report.scope
    return None if scope.is_personal else order_dates(of_scope(basis.whole.plan.outlooks, scope), _ON_PAGE)


def orders_in_report(report: Report) -> Table | None:
    """Of a report on a week, which has little room: what it rests on stands on the page. None where there is no pool."""
    return replace(order_dates(report.outlooks), lines=(), notes=()) if report.outlooks else None


def order_dates(found: Sequence[PoolOutlook], drawn: int = 0) -> Table:
    """A row for each pool and model, who is full first before the others; so many of them are drawn."""
    chart = demand_chart(found, drawn)
    return Table(
        name="forecast",
        title=tr("When new GPUs have to be ordered"),
        question=tr("When is each pool full, and until when can more be ordered in time?"),
        headline=forecast_sentence(found),
        columns=(
            Column("pool", tr("pool"), "pool"),
            Column("model", tr("model"), "name"),
            Column("gpus", tr("GPUs"), "number"),
            Column("lately", tr("lately"), "number"),
            Column("earliest", tr("full, earliest"), "words"),
            Column("likely", tr("likely"), "words"),
            Column("last", tr("latest"), "words"),
            Column("order_by", tr("order by"), "words"),
            Column("days_late", tr("days late"), "count"),
        ),
        rows=tuple(_row(each) for each in found),
        lines=tuple(_rests_on(each) for each in found),
        chart=chart,
        chart_note=tr("{shown} of {number} pools are drawn; the table lists all.", shown=Number(drawn), number=Number(len(found)))
        if chart is not None and len(found) > drawn else "",
        notes=tuple(_notes(found)),
    )  # fmt: skip


def forecast_sentence(found: Sequence[PoolOutlook]) -> str:
    """Of the pool that is full first: waste before shortage, the day, and until when to order."""
    if not found:
        return tr("No pool has a GPU at the end of the window.")
    known = [each for each in found if each.full is not None]
    if not known:
        soonest = min(each.forecast.more_from for each in found if each.forecast.more_from is not None)
        return tr(
            "Two weeks of observed days are wanted for a forecast: with every day observed, there is one from {day} on.",
            day=Date(soonest),
        )  # fmt: skip
    first = known[0]
    if first.full is None or first.full.likely is None:
        return _none_likely(known)
    full, after = _full(first, first.full.likely), first.full_after_return
    day = first.full.likely if after is None else after.likely
    return full if day is None else tr("{full} {order}", full=full, order=_order(first, day))


def _full(pool: PoolOutlook, day: date) -> str:
    """On which day it is full; before that, what giving back idle GPUs would change."""
    after, idle, name = pool.full_after_return, pool.series.idle_given, place_name(pool.series.pool)
    if after is None:
        if day == pool.series.next_day and pool.series.is_full_now:
            return tr("All {gpus} GPUs of {pool} are given now, and none of them is known to be safe to give back.", gpus=_gpus(pool.series.capacity), pool=name)  # fmt: skip
        return tr("All {gpus} GPUs of {pool} are likely to be given on {day}, and none of them is known to be safe to give back.", gpus=_gpus(pool.series.capacity), pool=name, day=Date(day))  # fmt: skip
    waste = tr_many(
        "Waste before shortage: {number} GPU of {pool} that somebody has stands idle and is safe to give back.",
        "Waste before shortage: {number} GPUs of {pool} that somebody has stand idle and are safe to give back.",
        idle or 0, pool=name,
    )  # fmt: skip
    if after.likely is None:
        return tr("{waste} That puts off the day on which it is full, {day}, beyond {end}.", waste=waste, day=Date(day), end=Date(pool.horizon_end))  # fmt: skip
    return tr("{waste} That puts off the day on which it is full from {day} to {after}.", waste=waste, day=Date(day), after=Date(after.likely))  # fmt: skip


def _order(pool: PoolOutlook, day: date) -> str:
    """Until when to order what has to be there on a day."""
    by, late, lead = pool.order_by(day), pool.days_late(day), tr_many("{number} day", "{number} days", pool.lead_days)
    if late:
        return tr_many(
            "With {lead} from order to use, the day to order more was {by}: {number} day ago.",
            "With {lead} from order to use, the day to order more was {by}: {number} days ago.",
            late, lead=lead, by=Date(by),
        )  # fmt: skip
    return tr("With {lead} from order to use, order more by {by}.", lead=lead, by=Date(by))


def _none_likely(known: Sequence[PoolOutlook]) -> str:
    none = tr("No pool is likely to be full by {end}.", end=Date(known[0].horizon_end))
    first = known[0]
    day = None if first.full is None else first.full.earliest
    if day is None:
        return none
    return tr(
        "{none} {pool} may be from {day} on, at the upper edge of the {band} % band; to be sure, order by {by}.",
        none=none, pool=place_name(first.series.pool), day=Date(day), band=Number(BAND), by=Date(first.order_by(day)),
    )  # fmt: skip


def _row(pool: PoolOutlook) -> tuple[Cell, ...]:
    series, full = pool.series, pool.full
    latest = None if series.latest is None else _gpus(series.latest)
    days: tuple[Cell, ...] = (None,) * 5
    if full is not None:
        likely = full.likely
        days = (
            *(_day(pool, day) for day in (full.earliest, likely, full.latest)),
            tr("later") if likely is None else Date(pool.order_by(likely)),
            Number(0 if likely is None else pool.days_late(likely)),
        )
    return place_name(series.pool), card_name(series.model), _gpus(series.capacity), latest, *days


def _day(pool: PoolOutlook, day: date | None) -> Cell:
    if day is None:
        return tr("later")
    return tr("now") if day == pool.series.next_day and pool.series.is_full_now else Date(day)


def _rests_on(pool: PoolOutlook) -> str:
    """Which method, why, and how well it did."""
    return tr(
        "{pool}, {model}: {method}",
        pool=place_name(pool.series.pool), model=card_name(pool.series.model), method=_method(pool),
    )  # fmt: skip


def _method(pool: PoolOutlook) -> str:
    found = pool.forecast
    days = Number(pool.series.known_days)
    if found.fan is None:
        return tr("no forecast: {days} days are known, {least} are wanted.", days=days, least=Number(NAIVE_MIN_DAYS))
    if found.test is not None:
        return tr("{method} {tested}", method=_chosen(found.test), tested=_tested(found.test))
    if found.more_from is not None:
        return tr(
            "last week again (seasonal naive), untested: {days} days are known, the model takes {least}, from {day} on if every day is observed.",
            days=days, least=Number(MODEL_MIN_DAYS), day=Date(found.more_from),
        )  # fmt: skip
    return tr("last week again (seasonal naive): no earlier week could be tested.")


def _chosen(test: ForecastTest) -> str:
    errors = {method: Number(error, 1) for method, error in test.errors.items()}
    if test.method == "ets":
        return tr("exponential smoothing, off by {model} GPUs on average where last week again was off by {naive}.", model=errors["ets"], naive=errors["seasonal_naive"])  # fmt: skip
    return tr("last week again (seasonal naive), off by {naive} GPUs on average, which exponential smoothing did not beat ({model}).", model=errors["ets"], naive=errors["seasonal_naive"])  # fmt: skip


def _tested(test: ForecastTest) -> str:
    return tr(
        "Tested on {days} days after {origins} earlier weeks, none of which it had seen: {inside} of them within the {band} % band.",
        days=Number(test.days), origins=Number(test.origins), inside=Share(test.inside[BAND], 0), band=Number(BAND),
    )  # fmt: skip


def _notes(found: Sequence[PoolOutlook]) -> Iterator[str]:
    if not found:
        return
    yield tr(
        "Demand: GPUs that are allocated or in use, each hour at its most; a day counts with what sufficed in 95 % of its hours (99 % in production), and is unknown where less than 90 % of it was observed."
    )
    yield tr(
        "Lately: the most of the last seven days. Full: less than half a GPU is left. Earliest and latest: the upper and the lower edge of the {band} % band; later: not by {end}.",
        band=Number(BAND), end=Date(found[0].horizon_end),
    )  # fmt: skip
    full = [each for each in found if each.series.full_days]
    if full:
        most = max(full, key=lambda each: each.series.full_days)
        yield tr(
            "{pool} was full on {days} of {known} days: what waited then, and what nobody asked for because it was full, is not in the series, so demand may be higher.",
            pool=place_name(most.series.pool), days=Number(most.series.full_days), known=Number(most.series.known_days),
        )  # fmt: skip


def _gpus(number: float) -> Number:
    return Number(number, 0 if float(number).is_integer() else 1)

"""When each pool is full, when to order at the latest, what that rests on, and the demand day by day with its forecast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import partial

from analytics.language.quantities import Date, Number, Share, ShortDate
from analytics.language.sentences import tr, tr_many
from analytics.plan.forecast import (
    BAND,
    LEVELS,
    MODEL_MIN_DAYS,
    NAIVE_MIN_DAYS,
    Fan,
    ForecastTest,
    PoolOutlook,
)
from analytics.tables.chart import Band, Chart, ChartPlace, Level, Line, Panel, Points, Values
from analytics.tables.names import card_name, model_column, place_name, pool_column
from analytics.tables.table import Cell, Table, column, fact, for_programs


def orders_in_report(outlooks: Sequence[PoolOutlook]) -> Table | None:
    """Of a report on a week, which has little room: what it rests on stands on the page. None where there is no pool."""
    return replace(order_dates(outlooks), lines=(), notes=()) if outlooks else None


def order_dates(found: Sequence[PoolOutlook], drawn: int = 0) -> Table:
    """A row for each pool and model, who is full first before the others; so many of them are drawn."""
    chart = demand_chart(found, drawn)
    not_all = tr("{shown} of {number} pools are drawn; the table lists all.", shown=drawn, number=len(found))
    return Table(
        name="forecast",
        title=tr("When new GPUs have to be ordered"),
        question=tr("When is each pool full, and until when can more be ordered in time?"),
        headline=forecast_sentence(found),
        columns=_COLUMNS,
        rows=tuple(found),
        lines=tuple(_rests_on(each) for each in found),
        chart=chart,
        chart_note=not_all if chart is not None and len(found) > drawn else "",
        notes=tuple(_notes(found)),
    )


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
        )
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
            return tr(
                "All {gpus} GPUs of {pool} are given now, and none of them is known to be safe to give back.",
                gpus=_gpus(pool.series.capacity),
                pool=name,
            )
        return tr(
            "All {gpus} GPUs of {pool} are likely to be given on {day}, and none of them is known to be safe to give back.",
            gpus=_gpus(pool.series.capacity),
            pool=name,
            day=Date(day),
        )
    waste = tr_many(
        "Waste before shortage: {number} GPU of {pool} that somebody has stands idle and is safe to give back.",
        "Waste before shortage: {number} GPUs of {pool} that somebody has stand idle and are safe to give back.",
        idle or 0,
        pool=name,
    )
    if after.likely is None:
        return tr(
            "{waste} That puts off the day on which it is full, {day}, beyond {end}.",
            waste=waste,
            day=Date(day),
            end=Date(pool.horizon_end),
        )
    return tr(
        "{waste} That puts off the day on which it is full from {day} to {after}.",
        waste=waste,
        day=Date(day),
        after=Date(after.likely),
    )


def _order(pool: PoolOutlook, day: date) -> str:
    """Until when to order what has to be there on a day."""
    by, late, lead = pool.order_by(day), pool.days_late(day), tr_many("{number} day", "{number} days", pool.lead_days)
    if late:
        return tr_many(
            "With {lead} from order to use, the day to order more was {by}: {number} day ago.",
            "With {lead} from order to use, the day to order more was {by}: {number} days ago.",
            late,
            lead=lead,
            by=Date(by),
        )
    return tr("With {lead} from order to use, order more by {by}.", lead=lead, by=Date(by))


def _none_likely(known: Sequence[PoolOutlook]) -> str:
    none = tr("No pool is likely to be full by {end}.", end=Date(known[0].horizon_end))
    first = known[0]
    day = None if first.full is None else first.full.earliest
    if day is None:
        return none
    return tr(
        "{none} {pool} may be from {day} on, at the upper edge of the {band} % band; to be sure, order by {by}.",
        none=none,
        pool=place_name(first.series.pool),
        day=Date(day),
        band=BAND,
        by=Date(first.order_by(day)),
    )


def _rests_on(pool: PoolOutlook) -> str:
    """Which method, why, and how well it did."""
    return tr(
        "{pool}, {model}: {method}",
        pool=place_name(pool.series.pool),
        model=card_name(pool.series.model),
        method=_method(pool),
    )


def _method(pool: PoolOutlook) -> str:
    found = pool.forecast
    days = Number(pool.series.known_days)
    if found.fan is None:
        return tr("no forecast: {days} days are known, {least} are wanted.", days=days, least=NAIVE_MIN_DAYS)
    if found.test is not None:
        return tr("{method} {tested}", method=_chosen(found.test), tested=_tested(found.test))
    if found.more_from is not None:
        return tr(
            "last week again (seasonal naive), untested: {days} days are known, the model takes {least}, from {day} on if every day is observed.",
            days=days,
            least=MODEL_MIN_DAYS,
            day=Date(found.more_from),
        )
    return tr("last week again (seasonal naive): no earlier week could be tested.")


def _chosen(test: ForecastTest) -> str:
    errors = {method: Number(error, 1) for method, error in test.errors.items()}
    if test.method == "ets":
        return tr(
            "exponential smoothing, off by {model} GPUs on average where last week again was off by {naive}.",
            model=errors["ets"],
            naive=errors["seasonal_naive"],
        )
    return tr(
        "last week again (seasonal naive), off by {naive} GPUs on average, which exponential smoothing did not beat ({model}).",
        model=errors["ets"],
        naive=errors["seasonal_naive"],
    )


def _tested(test: ForecastTest) -> str:
    return tr(
        "Tested on {days} days after {origins} earlier weeks, none of which it had seen: {inside} of them within the {band} % band.",
        days=test.days,
        origins=test.origins,
        inside=Share(test.inside[BAND], 0),
        band=BAND,
    )


def _notes(found: Sequence[PoolOutlook]) -> Iterator[str]:
    if not found:
        return
    yield tr(
        "Demand: GPUs that are allocated or in use, each hour at its most; a day counts with what sufficed in 95 % of its hours (99 % in production), and is unknown where less than 90 % of it was observed."
    )
    yield tr(
        "Lately: the most of the last seven days. Full: less than half a GPU is left. Earliest and latest: the upper and the lower edge of the {band} % band; later: not by {end}.",
        band=BAND,
        end=Date(found[0].horizon_end),
    )
    full = [each for each in found if each.series.full_days]
    if full:
        most = max(full, key=lambda each: each.series.full_days)
        yield tr(
            "{pool} was full on {days} of {known} days: what waited then, and what nobody asked for because it was full, is not in the series, so demand may be higher.",
            pool=place_name(most.series.pool),
            days=most.series.full_days,
            known=most.series.known_days,
        )


def _gpus(number: float) -> Number:
    return Number(number, 0 if float(number).is_integer() else 1)


def _full_cell(edge: str, pool: PoolOutlook) -> Cell:
    """Return the day on which the pool is full at an edge of the band; None without a forecast."""
    if pool.full is None:
        return None
    day = getattr(pool.full, edge)
    if day is None:
        return tr("later")
    return tr("now") if day == pool.series.next_day and pool.series.is_full_now else Date(day)


def _order_by(pool: PoolOutlook) -> date | None:
    return None if pool.full is None or pool.full.likely is None else pool.order_by(pool.full.likely)


_EDGES = (("earliest", tr("full, earliest")), ("likely", tr("likely")), ("latest", tr("latest")))
_COLUMNS = (
    pool_column("series.pool"),
    model_column("series.model"),
    column("gpus", tr("GPUs"), "number", lambda pool: _gpus(pool.series.capacity)),
    column(
        "last_7_days_gpus",
        tr("lately"),
        "number",
        lambda pool: None if pool.series.latest is None else _gpus(pool.series.latest),
    ),
    *(column(f"full_{edge}", title, "words", partial(_full_cell, edge), f"full.{edge}") for edge, title in _EDGES),
    column("order_by", tr("order by"), "words", lambda pool: _order_by(pool) or (pool.full and tr("later")), _order_by),
    column(
        "days_late",
        tr("days late"),
        "count",
        lambda pool: pool.full and (pool.days_late(pool.full.likely) if pool.full.likely else 0),
    ),
    fact("lead_days", "count"),
    fact("horizon_days", "count"),
    fact("reclaimable_gpus", "count", "series.idle_given"),
    *(fact(f"full_after_reclaim_{edge}", "words", f"full_after_return.{edge}") for edge, _ in _EDGES),
    fact("known_days", "count", "series.known_days"),
    fact("full_days", "count", "series.full_days"),
    fact("method", "words", "forecast.fan.method"),
    fact("more_from", "words", "forecast.more_from"),
    fact("test_weeks", "count", "forecast.test.origins"),
    fact("test_days", "count", "forecast.test.days"),
    fact("test_mean_absolute_error_gpus", "words", "forecast.test.errors", "object"),
    fact("test_error_relative_to_seasonal_naive", "number", "forecast.test.relative_error"),
    fact("test_share_inside_band", "words", "forecast.test.inside", "object"),
)


@dataclass(frozen=True)
class _PoolDay:
    """A day of a pool: GPUs that were observed, or the place of a day to come in the fan."""

    pool: PoolOutlook
    day: date
    observed: float | None = None
    fan: Fan | None = None
    ahead: int = 0


def _band_edge(edge: str, level: int, day: _PoolDay) -> float | None:
    return None if day.fan is None else getattr(day.fan, edge)[level][day.ahead]


def _days(pool: PoolOutlook) -> Iterator[_PoolDay]:
    series, fan = pool.series, pool.forecast.fan
    for place, observed in enumerate(series.gpus):
        yield _PoolDay(pool, series.day(place), observed)
    for ahead in range(0 if fan is None else len(fan.middle)):
        yield _PoolDay(pool, series.day(len(series.gpus) + ahead), None, fan, ahead)


def forecast_days(found: Sequence[PoolOutlook]) -> Table:
    """Return for programs each day of each pool: GPUs observed, then forecast with the edges of each band."""
    columns = (
        pool_column("pool.series.pool"),
        model_column("pool.series.model"),
        fact("day", "words"),
        fact("gpus", "number", "pool.series.capacity"),
        fact("observed", "number"),
        fact("method", "words", "fan.method"),
        fact("forecast", "number", lambda day: day.fan and day.fan.middle[day.ahead]),
        *(
            fact(f"{edge}_{level}", "number", partial(_band_edge, edge, level))
            for level in LEVELS
            for edge in ("low", "high")
        ),
    )
    rows = (day for pool in found for day in _days(pool))
    return for_programs("forecast_days", columns, rows)


def demand_chart(found: Sequence[PoolOutlook], most: int) -> Chart | None:
    """A panel for each of the first pools that have a forecast, at most so many; None where none has."""
    drawn = [each for each in found if each.forecast.fan is not None][:most]
    if not drawn:
        return None
    first = min(each.series.first_day for each in drawn)
    last = max(each.horizon_end for each in drawn)
    days = tuple(first + timedelta(number) for number in range((last - first).days + 1))
    places = tuple(ChartPlace(Date(day), ShortDate(day)) for day in days)
    fans = ((each, each.forecast.fan) for each in drawn)
    return Chart(tuple(_panel(each, fan, days, places) for each, fan in fans if fan is not None))


def _panel(pool: PoolOutlook, fan: Fan, days: Sequence[date], places: tuple[ChartPlace, ...]) -> Panel:
    series = pool.series
    before = (series.first_day - days[0]).days
    ahead = before + len(series.gpus)
    rest = len(days) - ahead

    def on_days(values: Sequence[float | None]) -> Values:
        """Days to come, behind those that were."""
        return (*[None] * ahead, *values, *[None] * (rest - len(values)))

    def edge(values: Sequence[float]) -> Points:
        return tuple((ahead + number, value) for number, value in enumerate(values))

    observed = (*[None] * before, *series.gpus, *[None] * rest)
    forecast = (
        tr("{middle} ({low} to {high})", middle=Number(middle, 1), low=Number(low, 1), high=Number(high, 1))
        for middle, low, high in zip(fan.middle, fan.low[BAND], fan.high[BAND], strict=True)
    )
    bands = (
        Band(tr("{level} % band", level=level), "held", edge(fan.low[level]), edge(fan.high[level]))
        for level in reversed(LEVELS)
    )
    return Panel(
        tr(
            "{pool}, {model}: {gpus} GPUs there",
            pool=place_name(series.pool),
            model=card_name(series.model),
            gpus=Number(series.capacity),
        ),
        (
            *bands,
            Level("", "held", series.capacity),
            Line(
                tr("allocated or in use"),
                "held",
                observed,
                shown=tuple("" if each is None else Number(each, 1) for each in observed),
            ),
            Line(
                tr("forecast"),
                "muted",
                on_days(fan.middle),
                shown=(*[""] * ahead, *forecast, *[""] * (rest - len(fan.middle))),
                dashed=True,
            ),
        ),
        places,
    )

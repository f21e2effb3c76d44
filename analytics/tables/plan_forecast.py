"""When each pool is full, the last day to order, the basis of both, and daily demand with its forecast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import partial
from operator import itemgetter

from analytics.capacity.forecast_models import BAND, LEVELS, MODEL_MIN_DAYS, NAIVE_MIN_DAYS, Fan, ForecastTest
from analytics.language.sentences import Date, Number, Share, ShortDate, tr, tr_many
from analytics.tables.chart import Band, Chart, ChartPlace, Line, Panel, Points, Values
from analytics.tables.names import MODEL, POOL, card_name, place_name
from analytics.tables.table import Cell, Table, column, column_of, fact, for_programs
from analytics.tables.verdicts import verdict_words
from analytics.workloads.pool_demand import PoolDemand


def orders_in_report(pools: Sequence[PoolDemand]) -> Table | None:
    """Return the table for the report of a week, without its basis, which is on the page. None without a pool."""
    return replace(order_dates(pools), lines=(), notes=()) if pools else None


def order_dates(found: Sequence[PoolDemand], drawn: int = 0) -> Table:
    """Return a row for each pool and model, the pool that is full first at the top; `drawn` of them get a chart."""
    chart = demand_chart(found, drawn)
    not_all = tr("{shown} of {number} pools are drawn; the table lists all.", shown=drawn, number=len(found))
    return Table(
        name="forecast",
        title=tr("When to order new GPUs"),
        question=tr("When will each pool be full, and by when must new GPUs be ordered?"),
        headline=forecast_sentence(found),
        columns=_COLUMNS,
        rows=tuple(found),
        lines=tuple(
            tr(
                "{pool}, {model}: {method}",
                pool=place_name(pool.pool),
                model=card_name(pool.model),
                method=_method(pool),
            )
            for pool in found
        ),
        chart=chart,
        chart_note=not_all if chart is not None and len(found) > drawn else "",
        notes=tuple(_notes(found)),
    )


def forecast_sentence(found: Sequence[PoolDemand]) -> str:
    """Return advice on the pool that is full first: reclaim before ordering, the day, and the last day to order."""
    if not found:
        return tr("No pool has a GPU at the end of the window.")
    known = [pool for pool in found if pool.outlook.full is not None]
    if not known:
        soonest = min(more for pool in found if (more := pool.outlook.forecast.more_from) is not None)
        return tr(
            "A forecast needs two weeks of observed days. If every day is observed, there is a forecast from {day}.",
            day=Date(soonest),
        )
    first = next((pool for pool in known if pool.verdict.kind == "order"), known[0])
    if first.outlook.full is None or first.outlook.full.likely is None:
        return _not_full_sentence(known)
    return tr(
        (
            "{pool}: {verdict}. Demand reaches all {gpus} GPUs on {day}, even after users release what findings say may"
            " go. The time from order to use is {lead}."
            if first.verdict.kind == "order"
            else "{pool}: {verdict}. Demand reaches all {gpus} GPUs on {day}."
        ),
        pool=place_name(first.pool),
        verdict=verdict_words(first),
        gpus=_gpus(first.capacity),
        day=Date(first.outlook.full.likely),
        lead=tr_many("{number} {day|days}", first.outlook.lead_days),
    )


def _not_full_sentence(known: Sequence[PoolDemand]) -> str:
    first = known[0].outlook
    none = tr("No pool is likely to be full by {end}.", end=Date(first.horizon_end))
    day = None if first.full is None else first.full.earliest
    if day is None:
        return none
    return tr(
        "{none} {pool} may be full from {day}, at the upper edge of the {band} % band.",
        none=none,
        pool=place_name(known[0].pool),
        day=Date(day),
        band=BAND,
    )


def _method(pool: PoolDemand) -> str:
    """Return the method, the reason for it, and its error."""
    found = pool.outlook.forecast
    days = Number(found.series.known_days)
    if found.fan is None:
        return tr("no forecast: {days} days are known, {least} are needed.", days=days, least=NAIVE_MIN_DAYS)
    if found.test is not None:
        return _tested_method(found.test)
    if found.more_from is not None:
        return tr(
            "the last week repeated (seasonal naive), untested: {days} days are known, and the model needs {least}. It"
            " starts on {day} if every day is observed.",
            days=days,
            least=MODEL_MIN_DAYS,
            day=Date(found.more_from),
        )
    return tr("the last week repeated (seasonal naive): no earlier week could be tested.")


def _tested_method(test: ForecastTest) -> str:
    errors = {method: Number(error, 1) for method, error in test.errors.items()}
    method = tr(
        (
            "exponential smoothing, with a mean error of {model} GPUs. The mean error of the last week repeated is"
            " {naive}."
            if test.method == "ets"
            else (
                "the last week repeated (seasonal naive), with a mean error of {naive} GPUs. Exponential smoothing was"
                " not better ({model})."
            )
        ),
        model=errors["ets"],
        naive=errors["seasonal_naive"],
    )
    tested = tr(
        "Tested on {days} unseen days after {origins} earlier weeks: {inside} of the days were within the {band} %"
        " band.",
        days=test.days,
        origins=test.origins,
        inside=Share(test.inside[BAND], 0),
        band=BAND,
    )
    return tr("{method} {tested}", method=method, tested=tested)


def _notes(found: Sequence[PoolDemand]) -> Iterator[str]:
    if not found:
        return
    yield tr(
        "Demand: GPUs that work, GPUs that queued jobs could have used, and held or reserved GPUs unless a finding says"
        " that they may go. The highest value of each hour counts. The demand of a day covers 95 % of its hours (99 %"
        " in production). It is unknown if less than 90 % of the day was observed."
    )
    yield tr(
        "Last 7 days: the highest demand, and the GPUs in working order on that day. Full: less than half a GPU is"
        " left. Earliest and latest: the upper and the lower edge of the {band} % band. Later: not by {end}.",
        band=BAND,
        end=Date(found[0].outlook.horizon_end),
    )
    full = [pool for pool in found if pool.outlook.series.full_days]
    if full:
        most = max(full, key=lambda pool: pool.outlook.series.full_days)
        yield tr(
            "{pool} was full on {days} of {known} days. Demand may be higher, because jobs that were never submitted"
            " are not included.",
            pool=place_name(most.pool),
            days=most.outlook.series.full_days,
            known=most.outlook.series.known_days,
        )


def _gpus(number: float) -> Number:
    return Number(number, 0 if float(number).is_integer() else 1)


def _full_cell(edge: str, pool: PoolDemand) -> Cell:
    """Return the day on which the pool is full at an edge of the band; None without a forecast."""
    outlook = pool.outlook
    if outlook.full is None:
        return None
    day = getattr(outlook.full, edge)
    if day is None:
        return tr("later")
    return tr("now") if day == outlook.series.next_day and outlook.series.is_full_now else Date(day)


def _days_late(pool: PoolDemand) -> int | None:
    full = pool.policy.full
    if pool.verdict.kind != "order" or full is None or full.likely is None:
        return None
    return pool.policy.days_late(full.likely)


_EDGES = (("earliest", tr("full, earliest")), ("likely", tr("likely")), ("latest", tr("latest")))
_COLUMNS = (
    POOL,
    MODEL,
    column("gpus", tr("GPUs"), "number", lambda pool: _gpus(pool.capacity)),
    column_of(
        "outlook.series.latest",
        column(
            "last_7_days_gpus",
            tr("last 7 days"),
            "number",
            # the highest demand of the last days, and the GPUs of that day
            lambda latest: tr("{gpus} of {there}", gpus=_gpus(latest[0]), there=_gpus(latest[1])),
            itemgetter(0),
        ),
    ),
    *(
        column(f"full_{edge}", title, "words", partial(_full_cell, edge), f"outlook.full.{edge}")
        for edge, title in _EDGES
    ),
    column("verdict", tr("verdict"), "words", verdict_words, "verdict.kind"),
    fact("verdict_gpus", "count", "verdict.gpus"),
    fact("order_by", "words", "verdict.order_by"),
    fact("days_late", "count", _days_late),
    fact("lead_days", "count", "outlook.lead_days"),
    fact("horizon_days", "count", "outlook.horizon_days"),
    fact("known_days", "count", "outlook.series.known_days"),
    fact("full_days", "count", "outlook.series.full_days"),
    fact("method", "words", "outlook.forecast.fan.method"),
    fact("more_from", "words", "outlook.forecast.more_from"),
    fact("test_weeks", "count", "outlook.forecast.test.origins"),
    fact("test_days", "count", "outlook.forecast.test.days"),
    fact("test_mean_absolute_error_gpus", "words", "outlook.forecast.test.errors", "object"),
    fact("test_error_relative_to_seasonal_naive", "number", "outlook.forecast.test.relative_error"),
    fact("test_share_inside_band", "words", "outlook.forecast.test.inside", "object"),
)


@dataclass(frozen=True)
class _PoolDay:
    """A day of a pool: GPUs in use and in working order, or the index of a future day in the fan with today's GPUs."""

    pool: PoolDemand
    day: date
    gpus: float | None
    observed: float | None = None
    fan: Fan | None = None
    ahead: int = 0


def _band_edge(edge: str, level: int, day: _PoolDay) -> float | None:
    return None if day.fan is None else getattr(day.fan, edge)[level][day.ahead]


def _days(pool: PoolDemand) -> Iterator[_PoolDay]:
    series, fan = pool.outlook.series, pool.outlook.forecast.fan
    for place, (observed, there) in enumerate(zip(series.gpus, series.there, strict=True)):
        yield _PoolDay(pool, series.day(place), there, observed)
    for ahead in range(0 if fan is None else len(fan.middle)):
        yield _PoolDay(pool, series.day(len(series.gpus) + ahead), series.capacity, None, fan, ahead)


def forecast_days(found: Sequence[PoolDemand]) -> Table:
    """Return for programs each day of each pool: GPUs observed, then forecast with the edges of each band."""
    columns = (
        column_of("pool", POOL),
        column_of("pool", MODEL),
        fact("day", "words"),
        fact("gpus", "number", about="In order on that day; of days to come, those at the end of the window."),
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


def demand_chart(found: Sequence[PoolDemand], most: int) -> Chart | None:
    """Return a panel for each of the first pools with a forecast, at most `most`; None without one."""
    drawn = [pool for pool in found if pool.outlook.forecast.fan is not None][:most]
    if not drawn:
        return None
    first = min(pool.outlook.series.first_day for pool in drawn)
    last = max(pool.outlook.horizon_end for pool in drawn)
    days = tuple(first + timedelta(number) for number in range((last - first).days + 1))
    places = tuple(ChartPlace(Date(day), ShortDate(day)) for day in days)
    fans = ((pool, pool.outlook.forecast.fan) for pool in drawn)
    return Chart(tuple(_panel(pool, fan, days, places) for pool, fan in fans if fan is not None))


def _panel(pool: PoolDemand, fan: Fan, days: Sequence[date], places: tuple[ChartPlace, ...]) -> Panel:
    series = pool.outlook.series
    before = (series.first_day - days[0]).days
    ahead = before + len(series.gpus)
    rest = len(days) - ahead

    def on_days(values: Sequence[float | None]) -> Values:
        """Return values of future days, after the past days."""
        return (*[None] * ahead, *values, *[None] * (rest - len(values)))

    def edge(values: Sequence[float]) -> Points:
        return tuple((ahead + number, value) for number, value in enumerate(values))

    observed = (*[None] * before, *series.gpus, *[None] * rest)
    there = (*[None] * before, *series.there, *[series.capacity] * rest)
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
            "{pool}, {model}: {gpus} GPUs",
            pool=place_name(pool.pool),
            model=card_name(pool.model),
            gpus=Number(pool.capacity),
        ),
        (
            *bands,
            *(
                Line(name, colour, values, shown=tuple("" if each is None else Number(each, 1) for each in values))
                for name, colour, values in ((tr("GPUs"), "muted", there), (tr("demand"), "held", observed))
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

"""Demand of each pool day by day, and the fan of what is to come."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

from analytics.language.quantities import Date, Number, ShortDate
from analytics.language.sentences import tr
from analytics.plan.forecast import BAND, LEVELS, Fan
from analytics.plan.order_date import PoolOutlook
from analytics.tables.line_chart import GoalLine, Line, LineBand, LineChart, LinePanel
from analytics.tables.names import card_name, place_name


def demand_chart(found: Sequence[PoolOutlook], most: int) -> LineChart | None:
    """A panel for each of the first pools that have a forecast, at most so many; None where none has."""
    drawn = [each for each in found if each.forecast.fan is not None][:most]
    if not drawn:
        return None
    first = min(each.series.first_day for each in drawn)
    last = max(each.horizon_end for each in drawn)
    days = [first + timedelta(number) for number in range((last - first).days + 1)]
    return LineChart(
        names=tuple(Date(day) for day in days),
        short=tuple(ShortDate(day) for day in days),
        whole=(True,) * len(days),
        panels=tuple(_panel(each, each.forecast.fan, days) for each in drawn if each.forecast.fan is not None),
    )


def _panel(pool: PoolOutlook, fan: Fan, days: Sequence[date]) -> LinePanel:
    series = pool.series
    before = (None,) * (series.first_day - days[0]).days
    ahead = (None,) * (len(before) + len(series.gpus))
    rest = (None,) * len(fan.middle)
    told = [
        tr("{middle} ({low} to {high})", middle=Number(middle, 1), low=Number(low, 1), high=Number(high, 1))
        for middle, low, high in zip(fan.middle, fan.low[BAND], fan.high[BAND], strict=True)
    ]
    return LinePanel(
        tr("{pool}, {model}: {gpus} GPUs there", pool=place_name(series.pool), model=card_name(series.model), gpus=Number(series.capacity)),
        "count",
        (
            Line(tr("allocated or in use"), "held", (*before, *series.gpus, *rest), (*(("",) * len(before)), *(("" if each is None else Number(each, 1)) for each in series.gpus), *(("",) * len(rest)))),
            Line(tr("forecast"), "", (*ahead, *fan.middle), (*(("",) * len(ahead)), *told)),
        ),
        (GoalLine("", "held", series.capacity, is_reached=True),),
        tuple(
            LineBand(tr("{level} % band", level=Number(level)), "held", (*ahead, *fan.low[level]), (*ahead, *fan.high[level]))
            for level in reversed(LEVELS)
        ),
    )  # fmt: skip

"""Hours of the day: the grid's intensity, and the energy of work that can wait, as it was and as it would be at best."""

from __future__ import annotations

from analytics.language.quantities import Number
from analytics.language.sentences import tr
from analytics.money.energy import MJ_PER_KWH
from analytics.plan.deferral import Deferral
from analytics.tables.line_chart import Line, LineChart, LinePanel


def hours_chart(deferral: Deferral) -> LineChart:
    """A panel for the intensity, and one for the energy before and after."""
    hours = deferral.hours
    names = tuple(f"{each.hour:02d}:00" for each in hours)
    intensity = _line(tr("the grid"), "held", [each.g_per_kwh for each in hours])
    before = _line(tr("as it was"), "low", [each.mj / MJ_PER_KWH for each in hours])
    best = _line(tr("at best"), "active", [each.best_mj / MJ_PER_KWH for each in hours])
    return LineChart(
        names=names,
        short=names,
        whole=(True,) * len(hours),
        panels=(
            LinePanel(tr("grid, g CO2 per kWh"), "count", (intensity,)),
            LinePanel(tr("can wait, kWh"), "count", (before, best)),
        ),
    )


def _line(name: str, state: str, values: list[float | None]) -> Line:
    return Line(name, state, tuple(values), tuple(Number(each, 0) for each in values))

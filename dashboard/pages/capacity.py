"""How many GPUs are needed at once, and what can go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from analytics.language.sentences import say
from dashboard.access.people import VIEWER
from dashboard.charts.demand import demand_curve, fewer, hours_of
from dashboard.charts.gangs import gang_staircase
from dashboard.charts.off_peak import off_peak
from dashboard.charts.reclaimable import reclaimable

if TYPE_CHECKING:
    from dashboard.palette import Palette
    from dashboard.source import Source
    from dashboard.view import View


class Capacity:
    """`/capacity`."""

    path = "/capacity"
    name: str = say("Capacity")
    role = VIEWER
    listed = True

    def connect(self, app: Any, source: Source) -> None:
        """Nothing: what it shows comes with the page."""

    def content(self, view: View, colours: Palette) -> html.Div:
        """Demand, gangs, what can go and when there is room; a sentence for people, who have no capacity of their own."""
        if view.report.scope.is_personal:
            said = say("Capacity is that of GPUs, whoever has them: choose all teams, and a pool or a model.")
            return html.Div(html.P(view.say(said), className="headline"))
        hours = hours_of(view)
        return html.Div(
            [
                demand_curve(view, colours, hours),
                fewer(view, hours),
                reclaimable(view, colours),
                gang_staircase(view, colours),
                off_peak(view, colours),
            ],
            className="panels",
        )

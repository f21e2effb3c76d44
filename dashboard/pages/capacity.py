"""How many GPUs are needed at once, and what can go."""

from __future__ import annotations

from dash import html

from analytics.language.sentences import tr
from analytics.tables.demand import demand_curve
from analytics.tables.gangs import gang_staircase
from analytics.tables.give_back import give_back
from analytics.tables.goals import goals_now
from analytics.tables.off_peak import off_peak
from analytics.tables.palette import Palette
from analytics.tables.plan_defrag import fragments_on_page, moves_on_page, room_on_page
from analytics.tables.plan_forecast import orders_ahead
from analytics.tables.table import Table
from dashboard.decisions import opportunities_of
from dashboard.pages.page import Page, PlacedSection, of_report
from dashboard.view import View


def _give_back(view: View) -> Table | None:
    """The one number of what can be given back; None for people, who have no pools."""
    given = opportunities_of(view).reclaimable
    return None if given is None else give_back(given)


class Capacity(Page):
    path = "/capacity"
    name: str = tr("Capacity")
    sections = (
        PlacedSection(goals_now),
        PlacedSection(demand_curve, wide=True),
        PlacedSection(_give_back, table="below", wide=True),
        PlacedSection(orders_ahead, table="below", wide=True),
        PlacedSection(gang_staircase, table="beside"),
        PlacedSection(room_on_page, wide=True),
        PlacedSection(moves_on_page, table="below", wide=True),
        PlacedSection(fragments_on_page),
        of_report(off_peak, wide=True),
    )

    def content(self, view: View, colours: Palette) -> html.Div:
        """A sentence for people, who have no capacity of their own."""
        if view.report.scope.is_personal:
            said = tr("Capacity is that of GPUs, whoever has them: choose all teams, and a pool or a model.")
            return html.Div(html.P(view.translate(said), className="headline"))
        return super().content(view, colours)

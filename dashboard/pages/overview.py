"""The first page: what the window came to and what to do first, then where it went and whether it gets better."""

from __future__ import annotations

from dash import dcc, html

from analytics.language.sentences import tr, tr_many
from analytics.tables.days import days
from analytics.tables.goals import goals_now
from analytics.tables.idle import idle
from analytics.tables.method import first_remarks
from analytics.tables.opportunities import first_opportunities
from analytics.tables.palette import Palette
from analytics.tables.waterfall import waterfall
from analytics.tables.weeks import quarter
from analytics.tables.wording import headline
from dashboard.annotations import annotations_about, annotations_in_sight
from dashboard.decisions import opportunities_of
from dashboard.pages.page import Page
from dashboard.render.panel import section_panel
from dashboard.render.tiles import tiles
from dashboard.view import View


class Overview(Page):
    path = "/"
    name: str = tr("Overview")

    def content(self, view: View, colours: Palette) -> html.Div:
        """Headline and the first decisions, then tiles and charts."""
        report, search = view.report, view.query.on_every_page.search
        found = opportunities_of(view)
        decisions = tr_many(
            "{number} decision with its evidence",
            "All {number} decisions with their evidence",
            len(found.ranked) + len(found.to_look_at),
        )
        findings = tr_many("{number} finding with its evidence and command", "All {number} findings with evidence and commands", len(report.findings))  # fmt: skip
        onward = {"/opportunities": decisions, "/findings": findings, "/quality": tr("The quality of the data")}
        links = {path: html.P(dcc.Link(view.translate(words), href=path + search), className="onward") for path, words in onward.items()}  # fmt: skip
        first = section_panel(view, colours, first_opportunities(found), after=[links["/opportunities"], links["/findings"]])  # fmt: skip
        panels = [
            section_panel(view, colours, waterfall(report)),
            section_panel(view, colours, days(report, annotations_in_sight(view))),
            section_panel(view, colours, quarter(view, annotations_about(view))),
            section_panel(view, colours, idle(report)),
            *([section_panel(view, colours, aims)] if (aims := goals_now(view)) else []),
            section_panel(view, colours, first_remarks(report), after=[links["/quality"]] if report.quality else []),
            *self.panels(view, colours),
        ]
        return html.Div(
            [
                html.P(view.translate(headline(report)), className="headline"),
                html.Div(first, className="panels"),
                tiles(view, colours),
                html.Div(panels, className="panels"),
            ]
        )

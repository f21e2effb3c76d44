"""What was not observed, and what fallow made of it."""

from __future__ import annotations

from dash import html

from analytics.language.quantities import GpuHours, Number, Share
from analytics.language.sentences import tr
from analytics.tables.coverage import (
    coverage_by_day,
    coverage_by_host,
    coverage_by_model,
    coverage_by_pool,
    silent_hosts,
)
from analytics.tables.method import data_quality
from analytics.tables.palette import Palette
from analytics.tables.point_samples import point_samples
from dashboard.pages.page import Page, PlacedSection, of_report
from dashboard.view import View

_SHARES = (
    PlacedSection(coverage_by_day),
    PlacedSection(coverage_by_pool),
    PlacedSection(coverage_by_model),
    PlacedSection(coverage_by_host),
)


class Quality(Page):
    path = "/quality"
    name: str = tr("Data quality")
    sections = (of_report(data_quality), of_report(point_samples), of_report(silent_hosts))

    def content(self, view: View, colours: Palette) -> html.Div:
        """For a team or a holder why there is none of it."""
        if view.report.scope.is_personal:
            said = tr("The quality of the data is not shown for a single team: it names hosts and people of others.")
            return html.Div(html.P(view.translate(said), className="headline"))
        seen = view.report.seen
        unknown = GpuHours(view.report.summary.totals.state_ms["unknown"])
        headline = tr(
            "{share} of the GPU time of this window was observed, over {gpus} GPUs. The rest counts in no share: {unknown} GPU-hours are unknown, {outside} before a host's first row or after its last.",
            share=Share(seen.share), gpus=Number(seen.gpus), unknown=unknown, outside=GpuHours(seen.outside_ms),
        )  # fmt: skip
        # days are many and pools few: in two columns of their own no card has to be as tall as its neighbour
        shares = html.Div([each.panel(view, colours) for each in _SHARES], className="balanced")
        panels = [*self.panels(view, colours), shares]
        return html.Div([html.P(view.translate(headline), className="headline"), html.Div(panels, className="panels")])

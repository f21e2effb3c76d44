"""What the figures rest on: the quality of the data, how each figure is measured, and what a GPU-hour costs."""

from __future__ import annotations

from dataclasses import replace

from dash import html

from analytics.language.sentences import GpuHours, Number, Share, tr, tr_many
from analytics.ledger.summary import totals_by
from analytics.money.window_money import newest_basis
from analytics.tables.coverage import coverage_by, coverage_by_day, silent_hosts
from analytics.tables.idle import idle
from analytics.tables.method import data_quality, how_made
from analytics.tables.palette import Palette
from analytics.tables.point_samples import point_samples
from analytics.tables.site_tables import prices_in_force
from analytics.tables.table import Table
from dashboard.pages.page import Page, PlacedSection, TablesPage, folded, panels
from dashboard.pages.purchase import internal_prices
from dashboard.view import View

_QUALITY = (
    PlacedSection(lambda view: data_quality(view.report.quality)),
    PlacedSection(lambda view: point_samples(view.report.ledger)),
    PlacedSection(lambda view: silent_hosts(view.report.ledger.seen)),
)
_COVERAGE = (
    PlacedSection(lambda view: coverage_by_day(view.report.breakdown.by["day"])),
    PlacedSection(lambda view: coverage_by("pool", view.report.breakdown.by["pool"])),
    PlacedSection(lambda view: coverage_by("model", view.report.breakdown.by["model"])),
    PlacedSection(lambda view: coverage_by("host", totals_by(view.part.inside.segments, "host"))),
)


def _quality(view: View, colours: Palette) -> html.Div:
    """Return the quality of the data; for a team or a user, the reason why it is not shown."""
    if view.report.scope.is_personal:
        sentence = tr("The quality of the data is not shown for a single team: it names hosts and people of others.")
        return html.Div(html.P(sentence, className="headline"))
    seen = view.report.ledger.seen
    observed = tr(
        "{share} of the GPU time of this window was observed, over {gpus} GPUs. The rest counts in no share: {unknown}"
        " GPU-hours are unknown, {outside} before a host's first row or after its last.",
        share=Share(seen.share),
        gpus=Number(seen.gpus),
        unknown=GpuHours(view.report.ledger.summary.totals.state_ms["unknown"]),
        outside=GpuHours(seen.outside_ms),
    )
    # days are many and pools few: in two columns of their own no card has to be as tall as its neighbour
    coverage = [folded(each, on_phones=True) for each in panels(view, colours, _COVERAGE)]
    shares = html.Div(coverage, className="balanced")
    shown = [*panels(view, colours, _QUALITY), shares]
    return html.Div([html.P(observed, className="headline"), html.Div(shown, className="panels")])


QUALITY = Page("/quality", tr("Data quality"), _quality, question=tr("Can these figures be trusted?"))

METHOD = Page(
    "/method",
    tr("How measured"),
    TablesPage(
        (
            PlacedSection(lambda view: idle(view.report.ledger)),
            PlacedSection(lambda view: how_made(view.report.heading)),
        )
    ),
    question=tr("How is each figure measured, and what counts as idle?"),
)


def _prices(view: View) -> Table:
    """Return the prices in force; a reader of a team gets the prices of the team's GPUs only."""
    costs = view.whole.money.costs
    if view.reader.team is None:
        return prices_in_force(costs.prices, newest_basis(view.whole.inventory, costs))
    own = [costs.price_of(gpu) for gpu in view.part.inside.segments["gpu"].unique().sort()]
    every = prices_in_force(costs.prices, ())
    rows = tuple(price for price in every.rows if price in own)
    known = tr_many("{number} {price|prices} of these GPUs {is|are} known.", len(rows))
    return replace(every, rows=rows, headline=known)


PRICES = Page(
    "/prices",
    tr("Prices"),
    TablesPage(
        (PlacedSection(_prices, first=6, wide=True),),
        more=(PlacedSection(internal_prices, table="below"),),
    ),
    question=tr("What does a GPU-hour cost?"),
)

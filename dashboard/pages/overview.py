"""The first page: the waste, the first recommendations, the verdict of each pool, and the trend."""

from __future__ import annotations

from dataclasses import replace

from dash import html

from analytics.language.sentences import Number, tr
from analytics.tables.days import days
from analytics.tables.goals import goals
from analytics.tables.method import first_remarks
from analytics.tables.palette import Palette
from analytics.tables.recommendations import first_recommendations
from analytics.tables.table import Table
from analytics.tables.verdicts import pool_verdicts
from analytics.tables.waterfall import waterfall
from analytics.tables.weeks import quarter
from analytics.tables.wording import headline
from dashboard.actions import annotations_about, annotations_in_sight
from dashboard.pages.page import Page, PlacedSection, folded, panels
from dashboard.render.tiles import tiles
from dashboard.view import View

_OF_RECOMMENDATIONS = ("recommendation", "owner", "freed", "cash", "confidence", "deadline")
_OF_VERDICTS = ("pool", "verdict", "releasable", "gpus", "model")
"""Columns that fit beside another panel, the answer first; the pages that these lead to have all."""


def _recommendations(view: View) -> Table:
    return first_recommendations(view.report.recommendations).with_columns(_OF_RECOMMENDATIONS)


def _verdicts(view: View) -> Table | None:
    found = pool_verdicts(view.report.recommendations.fleet)
    if found is None:
        return None
    columns = sorted(found.with_columns(_OF_VERDICTS).columns, key=lambda each: _OF_VERDICTS.index(each.key))
    return replace(found, columns=tuple(columns), chart=None, lines=())


def _to_recommendations(view: View) -> dict[str, str]:
    found = view.report.recommendations
    return {
        "/recommendations": tr(
            "All recommendations with their evidence: {ranked} with a known value, {others} without",
            ranked=Number(len(found.ranked)),
            others=Number(len(found.to_look_at)),
        ),
        "/findings": tr("All findings with evidence and commands"),
    }


_FIRST = (PlacedSection(_recommendations, onward=_to_recommendations),)
_WHERE = (PlacedSection(lambda view: waterfall(view.report.ledger)),)
_POOLS = (PlacedSection(_verdicts, onward=lambda _: {"/capacity": tr("What each pool needs, and when to order")}),)
_THEN = (
    PlacedSection(lambda view: days(view.report.breakdown, annotations_in_sight(view))),
    PlacedSection(
        lambda view: first_remarks(view.report.quality),
        onward=lambda view: {"/quality": tr("The quality of the data")} if view.report.quality else {},
    ),
    PlacedSection(lambda view: quarter(view.report.quarter, annotations_about(view))),
    PlacedSection(lambda view: goals(view.report.quarter)),
)


def _overview(view: View, colours: Palette) -> html.Div:
    """Return headline, first recommendations, where the time went, the pools' verdicts, figures, and the trend."""
    return html.Div(
        [
            html.P(headline(view.report), className="headline"),
            html.Div(
                [
                    *panels(view, colours, _FIRST),
                    *(folded(each, on_phones=True) for each in panels(view, colours, _WHERE)),
                    *panels(view, colours, _POOLS),
                ],
                className="panels",
            ),
            tiles(view, colours),
            # in two columns of their own no card has to be as tall as its neighbour
            html.Div(
                html.Div([folded(each, on_phones=True) for each in panels(view, colours, _THEN)], className="balanced"),
                className="panels",
            ),
        ]
    )


OVERVIEW = Page(
    "/", tr("Overview"), _overview, question=tr("How much GPU time is wasted, and what should be done first?")
)

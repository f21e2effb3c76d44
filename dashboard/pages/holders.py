"""Who was given what, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import dcc, html

from analytics.language.sentences import say
from dashboard.access.people import VIEWER
from dashboard.charts.holders import people, quotas
from dashboard.charts.jobs import one_holder
from dashboard.exports import links

if TYPE_CHECKING:
    from dashboard.palette import Palette
    from dashboard.source import Source
    from dashboard.view import View


class Holders:
    """`/holders`; with `?holder=NAME` about one of them."""

    path = "/holders"
    name: str = say("Holders")
    role = VIEWER
    listed = True

    def connect(self, app: Any, source: Source) -> None:
        """Nothing: what it shows comes with the page."""

    def content(self, view: View, colours: Palette) -> html.Div:
        """Teams, their quotas and their holders; or one holder's jobs."""
        if view.query.holder:
            back = dcc.Link(view.say(say("All holders")), href="/holders" + view.query.on_every_page.search)
            own = one_holder(view, colours, view.query.holder)
            return html.Div([html.P(back, className="back"), html.Div(own, className="panels")])
        parts = [_by_team(view, colours), quotas(view, colours), people(view, colours, "holder")]
        shown = [each for each in parts if each is not None]
        files = html.Div(links(view, "holders"), className="tools")
        return html.Div([files, html.Div(shown, className="panels"), *_no_quotas(view)])


def _by_team(view: View, colours: Palette) -> html.Section | None:
    """Nothing where nobody has a team, or where one was chosen."""
    named = any(each.name is not None for each in view.report.teams)
    return people(view, colours, "team") if named and view.report.scope.team is None else None


def _no_quotas(view: View) -> list[html.P]:
    """Why there is none of the quotas that there are."""
    teams = view.whole.money.owners.teams().values()
    if view.report.scope.of_gpus.is_all or all(each.quota_gpus is None for each in teams):
        return []
    note = say("Quotas are for all GPUs: they are shown for all pools and models together.")
    return [html.P(view.say(note), className="note")]

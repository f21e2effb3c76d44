"""What stands around every page: the bar, the list of pages, and the page's heading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import dcc, html

from analytics.language.plain_text import plain
from analytics.language.quantities import Moment
from analytics.language.sentences import say
from analytics.render.facts import facts
from dashboard import filter_bar as bar
from dashboard.access.people import ADMIN
from dashboard.pages import PAGES
from fallow import __version__

if TYPE_CHECKING:
    from dashboard.view import View

MISHAP = "mishap"
"""Where it is told that something failed that somebody did on the page."""

_NEWS_EVERY_MS = 60_000
_FACTS = ("window", "observed", "prices")
"""Of the report's facts those that stand above every page."""


def frame() -> html.Div:
    """The same for everybody; nothing of the lake stands in it."""
    return html.Div(
        [
            dcc.Location(id="url", refresh="callback-nav"),
            dcc.Store(id="scheme"),
            dcc.Store(id="version", data=""),
            dcc.Store(id="shown"),
            dcc.Store(id="spoken"),
            dcc.Interval(id="news", interval=_NEWS_EVERY_MS),
            html.A("Skip to the page", href="#main", id="skip", className="skip"),
            html.Header(
                [
                    html.Span([html.B("fallow"), " GPU waste"], className="brand"),
                    bar.controls(),
                    html.Button("New data: show it", id="again", hidden=True, className="again"),
                    html.Button("Copy link", id="copy", className="button"),
                    html.Button(
                        "◐", id="theme", className="theme", title="light or dark", **{"aria-label": "Light or dark"}
                    ),
                ],
                className="bar",
            ),
            html.Nav([], id="nav", **{"aria-label": "Pages"}),
            html.Main(
                [
                    html.P("", id=MISHAP, className="trouble", role="alert"),
                    html.Div(html.P("Reading the ledger…", className="waiting", role="status"), id="page"),
                ],
                id="main",
                tabIndex="-1",
            ),
            html.Footer(f"fallow {__version__}"),
        ]
    )


def links(view: View, path: str, way_out: str) -> list[html.Span]:
    """The pages, with the same window and scope, as far as the reader may open them; then who that is, and the way out."""
    search = view.query.on_every_page.search
    pages = [
        html.Span(
            dcc.Link(view.say(page.name), href=page.path + search),
            className="here" if page.path == path else "",
            **({"aria-current": "page"} if page.path == path else {}),
        )
        for page in PAGES
        if page.listed and view.reader.may(page.role)
    ]
    return [*pages, *_who(view, way_out)]


def _who(view: View, way_out: str) -> list[html.Span]:
    """Who reads, where that decides what they see, and the way out where they have signed in."""
    reader = view.reader
    if not way_out and reader.role == ADMIN:
        return []
    out = [html.A(view.say(say("Sign out")), href=way_out)] if way_out else []
    return [html.Span([html.Span(f"{plain(reader.name)}, {reader.described}"), *out], className="who")]


def heading(view: View, name: str) -> list[Any]:
    """The page's name, what its numbers are of, and whether the GPUs are simulated."""
    wanted = {view.say(label) for label in _FACTS}
    shown = {label: fact for label, fact in facts(view.report, view.language) if label in wanted}
    shown[view.say("data as of")] = view.say(say("{moment}", moment=Moment(view.as_of_ms)))
    title = html.Div(
        [
            html.H1(view.say(name)),
            html.Dl([html.Div([html.Dt(label), html.Dd(fact)]) for label, fact in shown.items()], className="facts"),
        ],
        className="heading",
    )
    simulated = view.report.simulated
    return [title, *([html.P(view.say(simulated), className="simulated", role="note")] if simulated else [])]

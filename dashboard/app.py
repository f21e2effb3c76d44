"""The dash app: the frame around the pages, and the one callback that fills it."""

from __future__ import annotations

import importlib.resources
import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html

from analytics.language.languages import ENGLISH
from analytics.ledger.text import moment
from analytics.report.facts import facts
from dashboard.pages import PAGES
from dashboard.palette import palette
from dashboard.protection import protect
from dashboard.source import Problem
from fallow import __version__

if TYPE_CHECKING:
    from dashboard.source import Source, View

_LOG = logging.getLogger(__name__)
_INDEX = importlib.resources.files("dashboard").joinpath("index.html").read_text(encoding="utf-8")


def build_app(source: Source) -> Any:
    """The app over a source; its `server` is the WSGI application."""
    app = Dash(
        "dashboard",
        title="fallow: GPU waste",
        update_title=None,
        index_string=_INDEX,
        assets_folder=str(importlib.resources.files("dashboard").joinpath("assets")),
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
        serve_locally=True,
        # pages come by callback, so that nothing of the lake stands in the frame
        suppress_callback_exceptions=True,
        enable_mcp=False,
        add_log_handler=False,
        on_error=_failed,
    )
    app.layout = _frame
    app.clientside_callback(ClientsideFunction("fallow", "scheme"), Output("scheme", "data"), Input("url", "pathname"))
    app.clientside_callback(
        ClientsideFunction("fallow", "tooltip"),
        Output("film-tooltip", "show"), Output("film-tooltip", "bbox"), Output("film-tooltip", "children"),
        Input("film-strip", "hoverData"), State("film-words", "data"),
    )  # fmt: skip

    @app.callback(Output("page", "children"), Input("scheme", "data"), State("url", "pathname"))  # type: ignore[untyped-decorator]  # dash is untyped
    def page(scheme: str | None, path: str | None) -> Any:
        return render(source, scheme or "light", path or "/")

    protect(app)
    return app


def render(source: Source, scheme: str, path: str) -> Any:
    """The page at a path as it is now, or what stands in its way."""
    look = source.look()
    if isinstance(look, Problem):
        return _problem("Nothing to show yet", f"{look.message[:1].upper()}{look.message[1:]}.", look.hint)
    if path not in {page.path for page in PAGES}:
        return _problem("There is no such page", f"Nothing lies at {path}.", "The pages begin at /")
    return _content(look, "dark" if scheme == "dark" else "light", path)


@lru_cache(maxsize=4)
def _content(view: View, scheme: str, path: str) -> Any:
    """Figures are kept with the page: a second reader waits for nothing."""
    page = next(each for each in PAGES if each.path == path)
    return [_heading(view), *_simulated(view), page.content(view, palette(scheme))]


def _frame() -> html.Div:
    """The same for everybody; nothing of the lake stands in it."""
    links = [html.A(page.name, href=page.path) for page in PAGES] if len(PAGES) > 1 else []
    return html.Div(
        [
            dcc.Location(id="url"),
            dcc.Store(id="scheme"),
            html.Header(
                [html.Span([html.B("fallow"), " GPU waste"], className="brand"), html.Nav(links)], className="bar"
            ),
            html.Main(
                html.Div(html.P("Reading the ledger…", className="waiting", role="status"), id="page"), id="main"
            ),
            html.Footer(
                f"fallow {__version__}. Reload for what is new. The same numbers: fallow ledger, findings, report."
            ),
        ]
    )


def _heading(view: View) -> html.Div:
    told = dict(facts(view.report, ENGLISH))
    window, extent = told["window"], f"{told['fleet']}, {told['observed']} observed"
    shown = {
        "Window": window,
        "Fleet and coverage": extent,
        "Data as of": moment(view.as_of_ms),
        "Lake": view.report.lake,
    }
    return html.Div(
        [
            html.H1("Where the GPU time went"),
            html.Dl([html.Div([html.Dt(name), html.Dd(fact)]) for name, fact in shown.items()], className="facts"),
        ]
    )


def _simulated(view: View) -> list[html.P]:
    return [html.P(view.report.simulated, className="simulated", role="note")] if view.report.simulated else []


def _failed(error: Exception) -> html.Div:
    """The page for a fault that nobody foresaw: the traceback goes to the terminal, never to the reader."""
    _LOG.error("a page could not be made", exc_info=error)
    return _problem(
        "This page could not be made", "Something went wrong that fallow did not foresee.", "The log says more."
    )


def _problem(title: str, message: str, hint: str) -> html.Div:
    return html.Div(
        [html.H1(title), html.P(message), html.P(hint, className="hint")], className="problem", role="alert"
    )

"""The dash app: the frame around the pages, and the callbacks that fill it."""

from __future__ import annotations

import importlib.resources
import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update

from analytics.language.quantities import Moment
from analytics.language.sentences import say
from analytics.report.facts import facts
from dashboard import bar
from dashboard.access import LOCAL
from dashboard.ask import view_of
from dashboard.exports import serve_exports
from dashboard.pages import PAGES
from dashboard.palette import palette
from dashboard.protection import protect
from dashboard.source import Problem
from fallow import __version__
from fallow.errors import FallowError

if TYPE_CHECKING:
    from dashboard.access import Access
    from dashboard.source import Source, View

_LOG = logging.getLogger(__name__)
_FILES = importlib.resources.files("dashboard")
_INDEX = _FILES.joinpath("index.html").read_text(encoding="utf-8")
_NEWS_EVERY_MS = 60_000
_FACTS = ("window", "observed", "prices")
"""Of the report's facts those that stand above every page."""


def build_app(source: Source, access: Access = LOCAL) -> Any:
    """The app over a source; its `server` is the WSGI application. `access` finds out who asks."""
    app = Dash(
        "dashboard",
        title="fallow: GPU waste",
        update_title=None,
        index_string=_INDEX,
        assets_folder=str(_FILES.joinpath("assets")),
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
        serve_locally=True,
        # pages come by callback, so that nothing of the lake stands in the frame
        suppress_callback_exceptions=True,
        enable_mcp=False,
        add_log_handler=False,
        on_error=_failed,
    )
    app.layout = _frame
    _connect(app, source)
    bar.connect(app)
    for page in PAGES:
        page.connect(app, source)
    serve_exports(app.server, source)
    protect(app, access)
    return app


def _connect(app: Any, source: Source) -> None:
    app.clientside_callback(
        ClientsideFunction("fallow", "scheme"), Output("scheme", "data"), Input("theme", "n_clicks"), State("scheme", "data")
    )  # fmt: skip

    @app.callback(  # type: ignore[untyped-decorator]  # dash is untyped
        Output("page", "children"), Output("nav", "children"), Output("version", "data"), *bar.OUTPUTS,
        Input("scheme", "data"), Input("url", "pathname"), Input("url", "search"), Input("again", "n_clicks"),
    )  # fmt: skip
    def page(scheme: str | None, path: str | None, search: str | None, _: int | None) -> Any:
        if scheme is None:
            return [no_update] * (3 + len(bar.OUTPUTS))
        try:
            return _answer(view_of(source, search), scheme, path or "/")
        except Exception as error:  # noqa: BLE001  # whatever it is, the reader gets a sentence and the log the traceback
            _failed(error)
            return [_problem(*_UNFORESEEN), no_update, "", *bar.no_choices()]

    @app.callback(  # type: ignore[untyped-decorator]
        Output("again", "hidden"), Input("news", "n_intervals"), Input("version", "data")
    )
    def news(_: int | None, shown: str | None) -> bool:
        try:
            return not shown or source.version() == shown
        except FallowError:
            return True


_UNFORESEEN = (
    "This page could not be made",
    "Something went wrong that fallow did not foresee.",
    "The log says more.",
)


def _answer(look: View | Problem, scheme: str, path: str) -> list[Any]:
    """The page at a path with what goes along in the bar, or what stands in its way."""
    shown = _page(look, scheme, path)
    if isinstance(look, Problem):
        return [shown, no_update, "", *bar.no_choices()]
    return [shown, _links(look, path), look.version, *bar.choices(look)]


def _page(look: View | Problem, scheme: str, path: str) -> Any:
    if isinstance(look, Problem):
        return _problem("Nothing to show yet", f"{look.message[:1].upper()}{look.message[1:]}.", look.hint)
    if path not in {page.path for page in PAGES}:
        return _problem("There is no such page", f"Nothing lies at {path}.", "The pages begin at /")
    return _content(look, "dark" if scheme == "dark" else "light", path)


@lru_cache(maxsize=64)
def _content(view: View, scheme: str, path: str) -> Any:
    """Figures are kept with the page: a second reader waits for nothing."""
    page = next(each for each in PAGES if each.path == path)
    if not view.reader.may(page.role):
        return _problem("This page is not for you", f"It takes the role {page.role}.", "Ask who runs these pages.")
    return [_heading(view, page.name), *_simulated(view), page.content(view, palette(scheme))]


def _links(view: View, path: str) -> list[html.Span]:
    """The pages, with the same window and scope; those that the reader may open."""
    search = view.query.on_every_page.search
    return [
        html.Span(
            dcc.Link(view.say(page.name), href=page.path + search),
            className="here" if page.path == path else "",
            **({"aria-current": "page"} if page.path == path else {}),
        )
        for page in PAGES
        if page.listed and view.reader.may(page.role)
    ]


def _frame() -> html.Div:
    """The same for everybody; nothing of the lake stands in it."""
    return html.Div(
        [
            dcc.Location(id="url", refresh="callback-nav"),
            dcc.Store(id="scheme"),
            dcc.Store(id="version", data=""),
            dcc.Store(id="shown"),
            dcc.Interval(id="news", interval=_NEWS_EVERY_MS),
            html.A("Skip to the page", href="#main", id="skip", className="skip"),
            html.Header(
                [
                    html.Span([html.B("fallow"), " GPU waste"], className="brand"),
                    bar.controls(),
                    html.Button("New data: show it", id="again", hidden=True, className="again"),
                    html.Button(
                        "◐", id="theme", className="theme", title="light or dark", **{"aria-label": "Light or dark"}
                    ),
                ],
                className="bar",
            ),
            html.Nav([], id="nav", **{"aria-label": "Pages"}),
            html.Main(
                html.Div(html.P("Reading the ledger…", className="waiting", role="status"), id="page"),
                id="main",
                tabIndex="-1",
            ),
            html.Footer(f"fallow {__version__}"),
        ]
    )


def _heading(view: View, name: str) -> html.Div:
    wanted = {view.say(label) for label in _FACTS}
    shown = {label: fact for label, fact in facts(view.report, view.language) if label in wanted}
    shown[view.say("data as of")] = view.say(say("{moment}", moment=Moment(view.as_of_ms)))
    return html.Div(
        [
            html.H1(view.say(name)),
            html.Dl([html.Div([html.Dt(label), html.Dd(fact)]) for label, fact in shown.items()], className="facts"),
        ],
        className="heading",
    )


def _simulated(view: View) -> list[html.P]:
    return (
        [html.P(view.say(view.report.simulated), className="simulated", role="note")] if view.report.simulated else []
    )


def _failed(error: Exception) -> None:
    """A fault of a callback that nobody foresaw: the traceback goes to the log, never to the reader, and the page stays."""
    _LOG.error("a callback failed", exc_info=error)


def _problem(title: str, message: str, hint: str) -> html.Div:
    return html.Div(
        [html.H1(title), html.P(message), html.P(hint, className="hint")], className="problem", role="alert"
    )

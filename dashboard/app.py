"""The dash app: the callbacks that fill the frame with a page."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from dash import ClientsideFunction, Input, Output, State, callback_context, no_update, set_props
from flask import Response, request

from analytics.tables.palette import palette
from dashboard.access import LOCAL, Access
from dashboard.access.audit import REFUSED, TRAIL, audit
from dashboard.access.audit_trail import NO_TRAIL, Trail
from dashboard.access.refusal import UNLIMITED, Rates, answer
from dashboard.answers import serve_answers
from dashboard.api.routes import serve_api
from dashboard.error_panels import (
    failed_action_message,
    forbidden_page_panel,
    language_of,
    missing_page_panel,
    problem_panel,
    stale_data_notice,
    unexpected_error_panel,
    unforeseen_message,
)
from dashboard.files import serve_files
from dashboard.frame import FAILED_ACTION, OUTPUTS, choices, connect_bar, frame, heading, links, no_choices
from dashboard.metrics import serve_metrics
from dashboard.page_files import PagesApp
from dashboard.pages import PAGES
from dashboard.pages.page import Page
from dashboard.protection import BY_LINK, protect
from dashboard.query import Query
from dashboard.source import LakeSource, view_of
from dashboard.view import View
from fallow.errors import FallowError

_LOG = logging.getLogger(__name__)


def build_app(source: LakeSource, access: Access = LOCAL, *, rates: Rates = UNLIMITED, trail: Trail = NO_TRAIL) -> Any:
    """Return the app over a source; its `server` is the WSGI application.

    `access` identifies readers, `trail` keeps the audit log.
    """
    app = PagesApp(
        name="dashboard",
        title="fallow: GPU waste",
        update_title=None,
        # pages come by callback, so that nothing of the lake stands in the frame
        suppress_callback_exceptions=True,
        enable_mcp=False,
        add_log_handler=False,
        on_error=partial(_failed, source),
    )
    app.server.config[TRAIL] = trail
    app.server.register_error_handler(500, partial(_unforeseen, source))
    app.layout = frame
    _connect(app, source, access)
    connect_bar(app)
    for page in PAGES:
        page.connect(app, source)
    serve_files(app.server, source)
    serve_api(app.server, source)
    serve_metrics(app.server, source)
    serve_answers(app.server, source, BY_LINK)
    protect(app, access, rates)
    return app


def _connect(app: Any, source: LakeSource, access: Access) -> None:
    app.clientside_callback(
        ClientsideFunction("fallow", "scheme"),
        Output("scheme", "data"),
        Input("theme", "n_clicks"),
        State("scheme", "data"),
    )

    @app.callback(  # type: ignore[untyped-decorator]  # dash is untyped
        Output("page", "children"),
        Output("nav", "children"),
        Output("version", "data"),
        *OUTPUTS,
        Input("scheme", "data"),
        Input("url", "pathname"),
        Input("url", "search"),
        Input("again", "n_clicks"),
    )
    def page(scheme: str | None, path: str | None, search: str | None, _: int | None) -> Any:
        if scheme is None:
            return [no_update] * (3 + len(OUTPUTS))
        path = path or "/"
        set_props(FAILED_ACTION, {"children": ""})  # of another page, or mended
        try:
            return _answer(source, access, scheme, path, search)
        except Exception:  # noqa: BLE001  # whatever it is, the reader gets a sentence and the log the traceback
            _LOG.exception("a page could not be made")
            return [unexpected_error_panel(language_of(source, search)), no_update, "", *no_choices()]

    @app.callback(  # type: ignore[untyped-decorator]
        Output("again", "hidden"), Input("news", "n_intervals"), Input("version", "data")
    )
    def news(_: int | None, shown: str | None) -> bool:
        try:
            return not shown or source.version() == shown
        except (FallowError, TimeoutError):
            return True


def _answer(source: LakeSource, access: Access, scheme: str, path: str, search: str | None) -> list[Any]:
    """Return the page at a path with the bar's contents, or the reason why it cannot be shown."""
    page = next((each for each in PAGES if each.path == path), None)
    look = view_of(source, search, findings=page is not None and page.has_findings)
    if isinstance(look, View):
        try:
            shown = _page(source, look, "dark" if scheme == "dark" else "light", path, page)
        except FallowError as error:
            shown = [problem_panel(look.language, source.problem(error, look.reader))]
        return [
            [*stale_data_notice(source, look), *shown],
            links(look, path, access.way_out),
            look.version,
            *choices(look, path),
        ]
    shown = problem_panel(language_of(source, search), look)
    return [[shown], *_way_back(source, access, path, search)]


def _way_back(source: LakeSource, access: Access, path: str, search: str | None) -> list[Any]:
    """Beside a problem: the pages and choices that there are for an address that asks for nothing in particular."""
    look = view_of(source, "", findings=False) if search else None
    if not isinstance(look, View):
        return [no_update, "", *no_choices()]
    try:
        query = Query.parse(search)
    except FallowError:
        query = look.query
    return [links(look, path, access.way_out), "", *choices(look, path, query)]


def _page(source: LakeSource, view: View, scheme: str, path: str, page: Page | None) -> list[Any]:
    if page is None:
        return [missing_page_panel(view.language, path)]
    if not view.reader.may(page.role):
        audit(
            view.reader.actor,
            f"refused the page {page.path} as {view.reader.described}: it takes the role {page.role}",
            REFUSED,
        )
        return [forbidden_page_panel(view.language, page.role)]
    # figures are kept with the page: a second reader waits for nothing
    return source.cached(
        view, ("page", view.key, scheme, path), lambda: [*heading(view, page), page.content(view, palette(scheme))]
    )


def _unforeseen(source: LakeSource, _: Exception) -> Response:
    """The same of a document or a file: flask has the traceback in the log."""
    return answer(
        f"fallow: {unforeseen_message(language_of(source, request.query_string.decode(errors='replace')))}\n", 500
    )


def _failed(source: LakeSource, error: Exception) -> None:
    """Log the traceback of an unforeseen error in a callback, and show the reader a sentence; the page stays."""
    _LOG.error("a callback failed", exc_info=error)
    search = callback_context.states.get("url.search")
    set_props(FAILED_ACTION, {"children": failed_action_message(language_of(source, search))})

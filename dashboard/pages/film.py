"""Every GPU over time, and the hours of the week."""

from __future__ import annotations

from typing import Any

from dash import ALL, Input, Output, State, callback_context, html, no_update

from analytics.capacity.off_peak import HoursOfWeek, hours_of_week
from analytics.decide.annotations import Annotation
from analytics.language.quantities import Moment
from analytics.language.sentences import tr
from analytics.report.part_tables import all_known
from analytics.tables.hour_of_week import hour_of_week
from analytics.tables.palette import Palette, palette
from dashboard.access.people import PLANNER
from dashboard.annotations import abouts, annotate, annotations_in_sight, can_withdraw, withdraw
from dashboard.error_panels import in_a_line, language_of
from dashboard.exports import links
from dashboard.pages.film_strip import GRAPH, connect_strip, film_strip
from dashboard.pages.page import Page
from dashboard.render.annotations_panel import (
    ABOUT,
    ADD,
    LIST,
    OUT,
    SAID,
    TEXT,
    WHEN,
    annotation_items,
    annotations_panel,
)
from dashboard.render.panel import section_panel
from dashboard.source import LakeSource, view_of
from dashboard.view import Problem, View, problem_of
from fallow.clock import SystemClock
from fallow.errors import FallowError

_STRIP = "film-strip"


class FilmPage(Page):
    path = "/film"
    name: str = tr("Film strip")

    def connect(self, app: Any, source: LakeSource) -> None:
        """What the strip does in the browser: all of it becomes an address, and the page is made for that."""
        connect_strip(app, GRAPH)
        _connect_annotations(app, source)

    def content(self, view: View, colours: Palette) -> html.Div:
        """The strip, then the hours of the week."""
        files = html.Div(links(view, "gpus"), className="tools")
        hours = section_panel(view, colours, hour_of_week(_hours(view), view.report))
        annotations = annotations_panel(view, *_annotations(view), abouts(view) if view.reader.may(PLANNER) else ())
        panels = [html.Div(film_strip(view, colours), id=_STRIP, className="wide"), annotations, hours]
        return html.Div([files, html.Div([each for each in panels if each is not None], className="panels")])


def _annotations(view: View) -> tuple[tuple[Annotation, ...], list[str]]:
    """Those in sight, and the ids of those that the reader may remove."""
    shown = annotations_in_sight(view)
    return shown, [each.annotation_id for each in shown if can_withdraw(view, each)]


def _connect_annotations(app: Any, source: LakeSource) -> None:
    @app.callback(  # type: ignore[untyped-decorator]  # dash is untyped
        Output(SAID, "children"), Output(LIST, "children"), Output(_STRIP, "children"), Output(TEXT, "value"),
        Output("version", "data", allow_duplicate=True),
        Input(ADD, "n_clicks"), Input({"type": OUT, "index": ALL}, "n_clicks"),
        State("url", "search"), State("scheme", "data"), State(TEXT, "value"), State(WHEN, "value"), State(ABOUT, "value"),
        prevent_initial_call=True,
    )  # fmt: skip
    def press(added: int | None, removed: list[int | None], *values: Any) -> Any:
        search, scheme, text, when, about = values
        asked = callback_context.triggered_id
        if not (added if asked == ADD else any(removed or ())):
            return [no_update] * 5
        view = view_of(source, search)
        if isinstance(view, Problem):
            return [in_a_line(language_of(source, search), view.message, view.hint), *[no_update] * 4]
        try:
            said = _written(view, asked, str(text or ""), str(when or ""), str(about or ""))
        except FallowError as error:
            told = problem_of(error, view.reader)
            return [in_a_line(view.language, told.message, told.hint), *[no_update] * 4]
        source.forget()
        now = view_of(source, search)
        if isinstance(now, Problem):
            return [view.translate(said), *[no_update] * 4]
        strip = film_strip(now, palette("dark" if scheme == "dark" else "light"))
        return [view.translate(said), annotation_items(now, *_annotations(now)), strip, "", now.version]


def _written(view: View, asked: Any, text: str, when: str, about: str) -> str:
    now_ms = SystemClock().now_ms()
    if isinstance(asked, dict):
        withdraw(view, str(asked.get("index", "")), now_ms)
        return tr("Removed.")
    scope, _, name = about.partition(":")
    added = annotate(view, text, when, (scope, name or None), now_ms)
    summary = view.report.summary
    if summary.since_ms <= added.at_ms <= summary.until_ms:
        return tr("Written.")
    return tr("Written; {moment} is not in this window.", moment=Moment(added.at_ms))


def _hours(view: View) -> HoursOfWeek | None:
    """Of the weeks up to the window's end, whatever the window's length: made once for all that is zoomed into."""

    def make() -> HoursOfWeek | None:
        spans = all_known(view.whole, view.report.scope).stretches
        return hours_of_week(spans, view.report.summary.until_ms, view.zone)

    key = ("hours of the week", view.query.on_every_page, view.reader.role, view.reader.team)
    return view.made.of(key, make)  # type: ignore[no-any-return]

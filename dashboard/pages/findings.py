"""What can be taken back, from whom, and what was done about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import ClientsideFunction, Input, Output, State, callback_context, dcc, html, no_update

from analytics.decide.totals import totals
from analytics.language.language import SentenceList
from analytics.language.sentences import tr, tr_many
from analytics.tables.give_back import give_back_sentence
from analytics.tables.palette import Palette
from analytics.tables.wording import with_waiting
from dashboard.actions import KINDS, Wish, act
from dashboard.decisions import opportunities_of
from dashboard.error_panels import in_a_line, language_of
from dashboard.exports import links
from dashboard.grid import GridColumn, grid, rows_of
from dashboard.grid_address import check
from dashboard.pages.action_form import action_form, fields, kind_of, presses, told
from dashboard.pages.finding_table import columns, detail, rows
from dashboard.pages.page import Page
from dashboard.render.panel import panel
from dashboard.source import LakeSource, view_of
from dashboard.view import Problem, View, problem_of
from fallow.clock import SystemClock
from fallow.errors import FallowError, UsageError

_GRID, _CHOSEN = "findings-grid", "findings-chosen"


class Findings(Page):
    """`/findings`."""

    path = "/findings"
    name: str = tr("Findings")

    def connect(self, app: Any, source: LakeSource) -> None:
        """The table follows its address; choosing a row shows it in full, and the buttons record what somebody does."""
        # it has nothing to put out; dash calls what has an output when the table comes
        app.clientside_callback(ClientsideFunction("findings", "ready"), Output(_GRID, "className"), Input(_GRID, "id"))
        app.clientside_callback(
            ClientsideFunction("findings", "show"), Input("findings-hidden", "n_clicks"), prevent_initial_call=True
        )
        app.clientside_callback(
            ClientsideFunction("findings", "choose"), Output(_CHOSEN, "data"), Input(_GRID, "selectedRows"),
            prevent_initial_call=True,
        )  # fmt: skip
        # one of its own: whoever may not act has no buttons
        app.clientside_callback(
            ClientsideFunction("findings", "idle"), Output("acts", "disabled"), Input(_GRID, "selectedRows"),
            prevent_initial_call=True,
        )  # fmt: skip
        _connect_looking(app, source)
        _connect_acting(app, source)

    def content(self, view: View, colours: Palette) -> html.Div:  # noqa: ARG002  # the table's colours are the style sheet's
        """The table, what can be done about the chosen findings, and the chosen one in full."""
        known = {each.finding_id for each in view.report.review.findings}
        chosen = [view.query.finding] if view.query.finding in known else []
        listed = columns(view)
        title = view.translate(tr("All findings"))
        return html.Div(
            panel(
                name="all-findings",
                title=title,
                question=view.translate(tr("What can be taken back, from whom, what to type, and who is on it?")),
                finding=html.Span(view.translate(_words(view)), id="findings-words"),
                body=[
                    dcc.Store(id=_CHOSEN, data=chosen),  # their ids: ten thousand whole rows are too much to send
                    *_wrong(view, listed),
                    _tools(view),
                    grid(view.language, _GRID, title, listed, rows(view), chosen=chosen, hides=True),
                    *action_form(view, tr("With the chosen findings"), "", ready=bool(chosen)),
                    html.Div(detail(view, chosen), id="finding-detail", role="region",
                             **{"aria-live": "polite", "aria-label": view.translate(tr("The chosen finding"))}),
                ],
                wide=True,
            )
        )  # fmt: skip


def _words(view: View) -> str:
    found, report = totals(view.report.findings), view.report
    first = (
        tr_many(
            "{number} finding about {gpus}", "{number} findings about {gpus}", found.findings,
            gpus=tr_many("{number} GPU", "{number} GPUs", found.gpus),
        )
        if found.findings
        else tr("No findings: no rule that has enough history found anything in this window.")
    )  # fmt: skip
    given = opportunities_of(view).reclaimable
    hidden = len(report.review.suppressed)
    return SentenceList(
        [
            with_waiting(report, first),
            *([tr_many("{number} suppressed", "{number} suppressed", hidden)] if hidden else []),
            *([give_back_sentence(given)] if given is not None else []),
        ]
    )


def _wrong(view: View, listed: Sequence[GridColumn]) -> list[html.P]:
    """What the address asks of the table and cannot have, in a sentence: then the table is as it is without."""
    try:
        check(view.query, listed)
    except UsageError as error:
        said = in_a_line(view.language, error.message, error.hint)
        return [html.P(said, id="findings-wrong", className="simulated", role="alert", lang="en")]
    return []


def _tools(view: View) -> html.Div:
    """The switch for suppressed findings, which the browser turns and keeps in the address; the table as files."""
    label = view.translate(tr("Show suppressed ones"))
    # whether it is pressed says the browser, once the table follows its address
    switch = html.Button(label, id="findings-hidden", className="button switch", n_clicks=0)
    return html.Div([switch, links(view, "findings")], className="tools")


def _connect_looking(app: Any, source: LakeSource) -> None:
    @app.callback(  # type: ignore[untyped-decorator]  # dash is untyped
        Output("finding-detail", "children"),
        Input(_CHOSEN, "data"), State("url", "search"),
        prevent_initial_call=True,
    )  # fmt: skip
    def look(chosen: Any, search: str | None) -> Any:
        view = view_of(source, search)
        if isinstance(view, Problem):
            said = in_a_line(language_of(source, search), view.message, view.hint)
            return [html.P(said, className="hint", role="alert")]
        return detail(view, _ids(chosen))


def _connect_acting(app: Any, source: LakeSource) -> None:
    @app.callback(  # type: ignore[untyped-decorator]
        *told(""),
        Output(_GRID, "rowData"), Output("finding-detail", "children", allow_duplicate=True),
        Output("version", "data", allow_duplicate=True), Output("findings-words", "children"),
        *presses(""), State("url", "search"), State(_CHOSEN, "data"), *fields(""),
        prevent_initial_call=True,
    )  # fmt: skip
    def press(*values: Any) -> Any:
        search, chosen, text, until, seen = values[len(KINDS) :]
        kind = kind_of(callback_context.triggered_id, "", values[: len(KINDS)])
        if kind is None:
            return [no_update] * 7
        wish = Wish(kind, _ids(chosen), str(text or ""), str(until or ""), seen if isinstance(seen, dict) else {})
        return _acted(source, search, wish)


def _acted(source: LakeSource, search: str | None, wish: Wish) -> list[Any]:
    """What the page shows after a button: what was done or why it was not, and the table as it now is."""
    view = view_of(source, search)
    if isinstance(view, Problem):
        return [in_a_line(language_of(source, search), view.message, view.hint), *[no_update] * 6]
    try:
        outcome = act(view, wish, SystemClock().now_ms())
    except FallowError as error:
        told = problem_of(error, view.reader)
        return [in_a_line(view.language, told.message, told.hint), *[no_update] * 6]
    source.forget()
    now = view_of(source, search)
    said = view.translate(outcome.said)
    if isinstance(now, Problem):
        return [said, outcome.seen, *[no_update] * 5]
    text = "" if outcome.done else no_update
    data, words = rows_of(rows(now)), now.translate(_words(now))
    return [said, outcome.seen, text, data, detail(now, wish.ids), now.version, words]


def _ids(chosen: Any) -> tuple[str, ...]:
    """Those that the browser says are chosen; whether its reader sees them is for the server to know."""
    return tuple(str(each) for each in chosen) if isinstance(chosen, list) else ()

"""What can be taken back, from whom, and what was done about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import ClientsideFunction, Input, Output, State, callback_context, dcc, html, no_update

from analytics.findings.totals import totals
from analytics.language.quantities import Number
from analytics.language.sentences import Listed, say, say_many
from dashboard.actions import ACK, KINDS, NOTE, REOPEN, SUPPRESS, Wish, act, last_of
from dashboard.ask import view_of
from dashboard.charts.finding_detail import detail
from dashboard.charts.finding_rows import columns, rows
from dashboard.charts.panel import panel
from dashboard.exports import links
from dashboard.grid import grid, rows_of
from dashboard.people import PLANNER, VIEWER
from dashboard.source import Problem
from fallow.clock import SystemClock
from fallow.errors import FallowError

if TYPE_CHECKING:
    from dashboard.palette import Palette
    from dashboard.source import Source, View

_GRID = "findings-grid"
_LABELS = {ACK: say("Acknowledge"), SUPPRESS: say("Suppress"), REOPEN: say("Reopen"), NOTE: say("Add a note")}


class Findings:
    """`/findings`."""

    path = "/findings"
    name: str = say("Findings")
    role = VIEWER
    listed = True

    def connect(self, app: Any, source: Source) -> None:
        """Choosing a row shows it in full, the switch shows suppressed ones, and the buttons record what somebody does."""
        app.clientside_callback(
            ClientsideFunction("d3", "address"), Input(_GRID, "selectedRows"), prevent_initial_call=True
        )
        _connect_looking(app, source)
        _connect_acting(app, source)

    def content(self, view: View, colours: Palette) -> html.Div:  # noqa: ARG002  # the table's colours are the style sheet's
        """The table, what can be done about the chosen findings, and the chosen one in full."""
        known = {each.finding_id: each.status for each in view.report.review.findings}
        chosen = [view.query.finding] if view.query.finding in known else []
        hidden = any(known[each] == "suppressed" for each in chosen)
        title = view.say(say("All findings"))
        return html.Div(
            panel(
                name="all-findings",
                title=title,
                question=view.say(say("What can be taken back, from whom, what to type, and who is on it?")),
                finding=html.Span(view.say(_words(view)), id="findings-words"),
                body=[
                    _tools(view, hidden=hidden),
                    grid(view.language, _GRID, title, columns(view), rows(view, suppressed=hidden), chosen=chosen),
                    *_acts(view, chosen),
                    html.Div(detail(view, chosen), id="finding-detail", role="region",
                             **{"aria-live": "polite", "aria-label": view.say(say("The chosen finding"))}),
                ],
                wide=True,
            )
        )  # fmt: skip


def _words(view: View) -> str:
    found, report = totals(view.report.findings), view.report
    first = (
        say(
            "{findings}; {part} of {gpus} can be taken back",
            findings=say_many("{number} finding", "{number} findings", found.findings),
            part=Number(found.gpus_to_take),
            gpus=say_many("{number} GPU", "{number} GPUs", found.gpus),
        )
        if found.findings
        else say("No findings: no GPU was held for long without a kernel, and none went unused")
    )
    hidden = len(report.review.suppressed)
    return Listed(
        [
            first,
            *([say_many("{number} suppressed", "{number} suppressed", hidden)] if hidden else []),
            *([_left_out(report.left_out)] if report.left_out else []),
        ]
    )


def _left_out(number: int) -> str:
    what = say_many(
        "{number} finding about GPUs that others hold as well",
        "{number} findings about GPUs that others hold as well",
        number,
    )
    return say("left out: {what}", what=what)


def _tools(view: View, *, hidden: bool) -> html.Div:
    """The switch is pressed an odd number of times where suppressed findings are listed; the table as files."""
    switch = html.Button(_switch(view, hidden=hidden), id="findings-hidden", className="button", n_clicks=int(hidden))
    return html.Div([switch, links(view, "findings")], className="tools")


def _switch(view: View, *, hidden: bool) -> str:
    return view.say(say("Hide suppressed ones") if hidden else say("Show suppressed ones"))


def _acts(view: View, chosen: list[str]) -> list[Any]:
    """The buttons, for those who may press them; the server asks again who presses."""
    actions = view.report.review.actions
    seen = last_of(actions, (each.finding_id for each in view.report.review.findings))
    if not view.reader.may(PLANNER):
        return []
    return [
        dcc.Store(id="findings-seen", data=seen),
        html.Fieldset(
            [
                html.Legend(view.say(say("With the chosen findings"))),
                _field(
                    view, "text", say("reason or note"), dcc.Input(id="act-text", type="text", value="", maxLength=2000)
                ),
                _field(view, "until", say("suppressed until (empty: until reopened)"), _day(view)),
                *(
                    html.Button(view.say(_LABELS[kind]), id=f"act-{kind}", className="button", n_clicks=0)
                    for kind in KINDS
                ),
            ],
            id="acts",
            disabled=not chosen,
        ),
        html.P("", id="acts-said", role="status"),
    ]


def _field(view: View, name: str, label: str, element: Any) -> html.Div:
    return html.Div([html.Label(view.say(label), htmlFor=f"act-{name}"), element], className=f"field of-{name}")


def _day(view: View) -> dcc.Input:
    """A day as text, which the browser makes its own picker of (d3_findings.js); empty is until somebody reopens it."""
    day = view.say(say("yyyy-mm-dd"))
    return dcc.Input(id="act-until", type="text", value="", placeholder=day, maxLength=10, className="day")


def _connect_looking(app: Any, source: Source) -> None:
    @app.callback(  # type: ignore[untyped-decorator]  # dash is untyped
        Output("finding-detail", "children"),
        Input(_GRID, "selectedRows"), State("url", "search"),
        prevent_initial_call=True,
    )  # fmt: skip
    def look(chosen: Any, search: str | None) -> Any:
        view = view_of(source, search)
        return _problem(view) if isinstance(view, Problem) else detail(view, _ids(chosen))

    @app.callback(  # type: ignore[untyped-decorator]
        Output("acts", "disabled"), Input(_GRID, "selectedRows"), prevent_initial_call=True
    )
    def enable(chosen: Any) -> bool:
        return not _ids(chosen)

    @app.callback(  # type: ignore[untyped-decorator]
        Output(_GRID, "rowData"), Output("findings-hidden", "children"),
        Input("findings-hidden", "n_clicks"), State("url", "search"),
        prevent_initial_call=True,
    )  # fmt: skip
    def switch(presses: Any, search: str | None) -> Any:
        view = view_of(source, search)
        if isinstance(view, Problem):
            return [no_update, no_update]
        return [_data(view, presses), _switch(view, hidden=_is_on(presses))]


def _connect_acting(app: Any, source: Source) -> None:
    @app.callback(  # type: ignore[untyped-decorator]
        Output("acts-said", "children"), Output("findings-seen", "data"), Output("act-text", "value"),
        Output(_GRID, "rowData", allow_duplicate=True), Output("finding-detail", "children", allow_duplicate=True),
        Output("version", "data", allow_duplicate=True), Output("findings-words", "children"),
        *(Input(f"act-{kind}", "n_clicks") for kind in KINDS),
        State("url", "search"), State(_GRID, "selectedRows"), State("act-text", "value"), State("act-until", "value"),
        State("findings-seen", "data"), State("findings-hidden", "n_clicks"),
        prevent_initial_call=True,
    )  # fmt: skip
    def press(*values: Any) -> Any:
        search, chosen, text, until, seen, presses = values[len(KINDS) :]
        kind = str(callback_context.triggered_id or "").removeprefix("act-")
        if kind not in KINDS or not any(values[: len(KINDS)]):
            return [no_update] * 7
        wish = Wish(kind, _ids(chosen), str(text or ""), str(until or ""), seen if isinstance(seen, dict) else {})
        return _acted(source, search, wish, presses)


def _acted(source: Source, search: str | None, wish: Wish, presses: Any) -> list[Any]:
    """What the page shows after a button: what was done or why it was not, and the table as it now is."""
    view = view_of(source, search)
    if isinstance(view, Problem):
        return [f"{view.message}; {view.hint}", *[no_update] * 6]
    try:
        outcome = act(view, wish, SystemClock().now_ms())
    except FallowError as error:
        return [f"{error.message}; {error.hint}", *[no_update] * 6]
    source.forget()
    now = view_of(source, search)
    said = view.say(outcome.said)
    if isinstance(now, Problem):
        return [said, outcome.seen, *[no_update] * 5]
    text = "" if outcome.done else no_update
    data, words = _data(now, presses), now.say(_words(now))
    return [said, outcome.seen, text, data, detail(now, wish.ids), now.version, words]


def _data(view: View, presses: Any) -> list[dict[str, Any]]:
    return rows_of(rows(view, suppressed=_is_on(presses)))


def _is_on(presses: Any) -> bool:
    return isinstance(presses, int) and presses % 2 == 1


def _ids(chosen: Any) -> tuple[str, ...]:
    """The ids of the rows that the browser says are chosen; whether its reader sees them is for the server to know."""
    rows = chosen if isinstance(chosen, list) else []
    return tuple(str(each.get("id", "")) for each in rows if isinstance(each, dict))


def _problem(problem: Problem) -> list[Any]:
    return [html.P(f"{problem.message}; {problem.hint}", className="hint", role="alert")]

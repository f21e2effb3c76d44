"""What the pages of findings and of decisions share: the chosen one in full, and the form to act on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dash import Input, Output, State, callback_context, dcc, html, no_update

from analytics.language.sentences import Number, plain, tr
from analytics.tables.palette import palette
from dashboard.access.people import PLANNER
from dashboard.actions import ACK, KINDS, NOTE, REOPEN, SNOOZE, ActionOutcome, Wish, act, carry_out, last_of
from dashboard.pages.page import in_words
from dashboard.render.tables import address
from dashboard.source import LakeSource
from dashboard.view import View
from fallow.clock import SystemClock

LONGEST = 100_000
"""Letters: no text is cut in the panel of the chosen one, which is the place to read it in full."""
_MOST_GPUS = 32
_LABELS = {ACK: tr("Acknowledge"), SNOOZE: tr("Snooze"), REOPEN: tr("Reopen"), NOTE: tr("Add a note")}


def name_links(view: View, kind: str, names: Iterable[str]) -> list[html.Span]:
    """Return a link to the page of each name, with the window and the scope of this page."""
    return [html.Span([dcc.Link(html.Bdi(plain(each)), href=address(view, kind, each)), " "]) for each in names]


def gpu_links(view: View, gpus: Sequence[str]) -> Any:
    """Return links to the first GPUs and the number of the others; without GPUs a word."""
    rest = len(gpus) - _MOST_GPUS
    more = [tr("and {number} more", number=Number(rest))] if rest > 0 else []
    return [*name_links(view, "gpu", gpus[:_MOST_GPUS]), *more] or tr("none now")


def listing(label: str, lines: Sequence[Any], none: str = "") -> html.Section:
    """Return a list under its label; an empty list shows `none`."""
    shown = [html.Li(each) for each in lines]
    return html.Section([html.H4(label), html.Ul(shown or [html.Li(none, className="none")])])


def command_block(label: str, command: str, name: str) -> list[Any]:
    """Return a command and the button that copies it, whose id is `name`; empty without a command."""
    if not command:
        return []
    copy = dcc.Clipboard(
        tr("copy"),
        id=name,
        content=command,
        copied_children=tr("copied"),
        className="button copy",
        title=tr("copy the command"),
    )
    return [html.H4(label), html.Div([html.Code(plain(command, LONGEST)), copy], className="command")]


def action_form(view: View, legend: str, prefix: str, ids: Iterable[str], *, ready: bool) -> list[Any]:
    """Return the form for actions on the findings `ids`; empty for readers who may not act. The server checks again.

    Element ids begin with `prefix`, `ready` is true if a row is chosen.
    """
    if not view.reader.may(PLANNER):
        return []
    # an unfinished sentence stays when the page is drawn again
    text = dcc.Input(
        id=f"{prefix}act-text", type="text", value="", maxLength=2000, persistence=True, persistence_type="memory"
    )
    # a day as text, for which the browser shows its own picker (findings.js); empty: snoozed until reopened
    day = dcc.Input(
        id=f"{prefix}act-until", type="text", value="", placeholder=tr("yyyy-mm-dd"), maxLength=10, className="day"
    )
    labelled = {"text": (tr("reason or note"), text), "until": (tr("snoozed until (empty: until reopened)"), day)}
    return [
        dcc.Store(
            id=f"{prefix}findings-seen",
            data=last_of(view.report.decision_review.actions, ids),
        ),
        html.Fieldset(
            [
                html.Legend(legend),
                *(
                    html.Div([html.Label(label, htmlFor=f"{prefix}act-{name}"), element], className=f"field of-{name}")
                    for name, (label, element) in labelled.items()
                ),
                *(
                    html.Button(_LABELS[kind], id=f"{prefix}act-{kind}", className="button", n_clicks=0)
                    for kind in KINDS
                ),
            ],
            id=f"{prefix}acts",
            disabled=not ready,
        ),
        html.P("", id=f"{prefix}acts-status", role="status"),
    ]


def connect_action_form(
    app: Any,
    source: LakeSource,
    prefix: str,
    *,
    chosen: Sequence[State],
    ids: Callable[[View, Any], tuple[str, ...]],
    outputs: Sequence[Output],
    show: Callable[..., list[Any]],
    findings: bool = False,
) -> None:
    """Connect the buttons of `action_form` to the actions, and show their result.

    `ids` are the findings to act on, from the view and the first value of the states `chosen`; `show` returns the
    values of the `outputs`, from the view as it is after the action, the colours, and the values of the states.
    `findings` is as in `view_of`.
    """

    @app.callback(  # type: ignore[untyped-decorator]  # dash is untyped
        Output(f"{prefix}acts-status", "children"),
        Output(f"{prefix}findings-seen", "data"),
        Output(f"{prefix}act-text", "value"),
        Output("version", "data", allow_duplicate=True),
        *outputs,
        *(Input(f"{prefix}act-{kind}", "n_clicks") for kind in KINDS),
        State("url", "search"),
        State("scheme", "data"),
        State(f"{prefix}act-text", "value"),
        State(f"{prefix}act-until", "value"),
        State(f"{prefix}findings-seen", "data"),
        *chosen,
        prevent_initial_call=True,
    )
    def press(*values: Any) -> Any:
        clicks, (search, scheme, text, until, seen, *states) = values[: len(KINDS)], values[len(KINDS) :]
        unchanged = [no_update] * (4 + len(outputs))
        kind = str(callback_context.triggered_id or "").removeprefix(f"{prefix}act-")
        if kind not in KINDS or not any(clicks):
            return unchanged
        known = seen if isinstance(seen, dict) else {}

        def wished(view: View) -> tuple[str, ActionOutcome]:
            wish = Wish(kind, ids(view, states[0]), str(text or ""), str(until or ""), known)
            outcome = act(view, wish, SystemClock().now_ms())
            return outcome.message, outcome

        status, outcome, now = carry_out(source, search, wished, findings=findings)
        if outcome is None:
            return [status, *unchanged[1:]]
        if now is None:
            return [status, outcome.seen, *unchanged[2:]]
        written = "" if outcome.done else no_update
        shown = in_words(show(now, palette(str(scheme)), *states), now.language)
        return [status, outcome.seen, written, now.version, *shown]

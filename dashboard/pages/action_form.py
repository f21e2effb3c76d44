"""The form to act on chosen findings: its fields and buttons, and what a press of one does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dash import Input, Output, State, dcc, html

from analytics.language.sentences import tr
from dashboard.access.people import PLANNER
from dashboard.actions import ACK, KINDS, NOTE, REOPEN, SUPPRESS, last_of
from dashboard.view import View

_LABELS = {ACK: tr("Acknowledge"), SUPPRESS: tr("Suppress"), REOPEN: tr("Reopen"), NOTE: tr("Add a note")}


def action_form(view: View, legend: str, prefix: str, *, ready: bool) -> list[Any]:
    """For those who may act; the server asks again who presses. Ids begin with `prefix`, `ready` says whether something is chosen."""
    if not view.reader.may(PLANNER):
        return []
    return [
        dcc.Store(id=f"{prefix}findings-seen", data=seen(view)),
        html.Fieldset(
            [
                html.Legend(view.translate(legend)),
                _field(view, prefix, "text", tr("reason or note"), _text(prefix)),
                _field(view, prefix, "until", tr("suppressed until (empty: until reopened)"), _day(view, prefix)),
                *(
                    html.Button(view.translate(_LABELS[kind]), id=f"{prefix}act-{kind}", className="button", n_clicks=0)
                    for kind in KINDS
                ),
            ],
            id=f"{prefix}acts",
            disabled=not ready,
        ),
        html.P("", id=f"{prefix}acts-said", role="status"),
    ]


def presses(prefix: str) -> list[Input]:
    """The buttons, in the order of `KINDS`."""
    return [Input(f"{prefix}act-{kind}", "n_clicks") for kind in KINDS]


def fields(prefix: str) -> list[State]:
    """What is written beside them: the text, the day, and what of others' actions the page has shown."""
    return [
        State(f"{prefix}act-text", "value"),
        State(f"{prefix}act-until", "value"),
        State(f"{prefix}findings-seen", "data"),
    ]


def told(prefix: str) -> list[Output]:
    """What was done, what the page has seen by now, and the text, which goes once it is recorded."""
    return [
        Output(f"{prefix}acts-said", "children"),
        Output(f"{prefix}findings-seen", "data"),
        Output(f"{prefix}act-text", "value"),
    ]


def seen(view: View) -> dict[str, str]:
    """The last action on each finding of the view."""
    review = view.report.review
    return last_of(review.actions, (each.finding_id for each in review.findings))


def kind_of(pressed: Any, prefix: str, clicks: Iterable[Any]) -> str | None:
    """Which button was pressed; None where none was."""
    kind = str(pressed or "").removeprefix(f"{prefix}act-")
    return kind if kind in KINDS and any(clicks) else None


def _field(view: View, prefix: str, name: str, label: str, element: Any) -> html.Div:
    return html.Div(
        [html.Label(view.translate(label), htmlFor=f"{prefix}act-{name}"), element], className=f"field of-{name}"
    )


def _text(prefix: str) -> dcc.Input:
    """Half a sentence stays when the page is made again."""
    return dcc.Input(
        id=f"{prefix}act-text", type="text", value="", maxLength=2000, persistence=True, persistence_type="memory"
    )


def _day(view: View, prefix: str) -> dcc.Input:
    """A day as text, which the browser makes its own picker of (findings.js); empty is until somebody reopens it."""
    day = view.translate(tr("yyyy-mm-dd"))
    return dcc.Input(id=f"{prefix}act-until", type="text", value="", placeholder=day, maxLength=10, className="day")

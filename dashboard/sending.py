"""The form that sends a weekly report: to targets that the site's settings name, and first as a try."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dash import Input, Output, State, ctx, dcc, html, no_update

from analytics.delivery.from_page import Order, Said, send_order, site_targets, try_order
from analytics.language.sentences import say
from analytics.ledger.text import plain
from dashboard.ask import view_of
from dashboard.audit import audit
from dashboard.charts.panel import panel
from dashboard.editions import chosen_week, edition
from dashboard.people import PLANNER
from dashboard.source import Problem
from fallow.errors import FallowError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.report.weeks import Week
    from dashboard.source import Source, View


@dataclass(frozen=True)
class _Answer:
    """What the form shows next: sentences, whether the second button works, and for what it was tried."""

    shown: Any
    is_ready: bool = False
    tried: str = ""

    @property
    def outputs(self) -> list[Any]:
        return [self.shown, not self.is_ready, self.tried]


def sending(view: View, week: Week) -> html.Section:
    """The form; where the settings name no target, what to set."""
    try:
        targets, wrong = site_targets(view.whole.inputs.settings), ""
    except FallowError as error:
        targets, wrong = (), str(error)
    return panel(
        name="sending",
        title=view.say(say("Send it")),
        question=view.say(say("Who is to get the report of {week}? Each target gets an edition once.", week=week.label)),
        finding=wrong or view.say(_standing(len(targets))),
        body=_form(view, [target.shown for target in targets]) if targets else [],
    )  # fmt: skip


def _standing(targets: int) -> str:
    if not targets:
        return say("No target is set: name some as report.to in the settings.")
    return say("The targets are those of the setting report.to. Try it first: that sends nothing.")


def _form(view: View, shown: Sequence[str]) -> list[Any]:
    options = [{"label": plain(each, 200), "value": each} for each in shown]
    return [
        html.Fieldset(
            [
                html.Legend(view.say(say("Targets")), className="for-readers"),
                dcc.Checklist(id="send-targets", options=options, value=list(shown), className="targets"),
            ],
            className="plain",
        ),
        html.Div(
            [
                html.Button(view.say(say("Try: what would be sent?")), id="send-try", className="button"),
                html.Button(view.say(say("Send now")), id="send-now", className="button", disabled=True),
            ],
            className="actions",
        ),
        dcc.Store(id="send-tried", data=""),
        dcc.Loading(html.Div(id="send-outcome", className="outcome", role="status")),
    ]


def connect_sending(app: Any, source: Source) -> None:
    """The callback behind both buttons; another choice of targets takes the try back."""

    @app.callback(  # type: ignore[untyped-decorator]  # dash is untyped
        Output("send-outcome", "children"), Output("send-now", "disabled"), Output("send-tried", "data"),
        Input("send-try", "n_clicks"), Input("send-now", "n_clicks"), Input("send-targets", "value"),
        State("url", "search"), State("send-tried", "data"),
        prevent_initial_call=True,
    )  # fmt: skip
    def answer(tries: int | None, sends: int | None, targets: list[str] | None, search: str | None, tried: str) -> Any:
        if ctx.triggered_id == "send-targets":
            return _Answer("").outputs
        if not (tries if ctx.triggered_id == "send-try" else sends):
            return [no_update] * 3
        return asked(source, search, targets or [], sends=ctx.triggered_id == "send-now", tried=tried).outputs


def asked(source: Source, search: str | None, targets: Sequence[str], *, sends: bool, tried: str) -> _Answer:
    """What came of it; only for who may, and only what was tried before with the same address and targets is sent."""
    look = view_of(source, search)
    if isinstance(look, Problem):
        return _Answer(_wrong(look.message, look.hint))
    key = repr((search, sorted(targets)))
    try:
        look.reader.require(PLANNER)
        if sends and tried != key:
            return _Answer(look.say(say("Try it first: the choice has changed since.")))
        said = _carried_out(look, targets, sends=sends)
    except FallowError as error:
        return _Answer(_wrong(error.message, error.hint))
    return _Answer(_list(look, said), not sends and any(each.is_due for each in said), "" if sends else key)


def _carried_out(view: View, targets: Sequence[str], *, sends: bool) -> tuple[Said, ...]:
    week, inputs = chosen_week(view), view.whole.inputs
    order = Order(week.label, view.report.scope, view.language, tuple(targets), view.reader.name)

    def make(asked_for: Week) -> Any:
        return edition(view, asked_for)

    if not sends:
        return try_order(inputs, order, make)
    audit(view.reader.name, f"sends the report of {week.label} to {len(targets)} targets")
    return send_order(inputs, order, make)


def _list(view: View, said: Sequence[Said]) -> html.Ul:
    return html.Ul(
        [
            html.Li(
                [
                    html.Span(plain(each.target, 200)),
                    ": ",
                    html.Span(view.say(each.sentence), className="failed" if each.is_failure else "done" if each.is_due else ""),
                ]
            )
            for each in said
        ]
    )  # fmt: skip


def _wrong(message: str, hint: str) -> html.P:
    return html.P(f"{message}; {hint}" if hint else message, className="failed")

"""The form that sends a weekly report: to targets that the site's settings name, and first as a try."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dash import ALL, Input, Output, State, ctx, dcc, html, no_update

from analytics.delivery.editions import Order, Said, send_order, site_targets, try_order
from analytics.language.language import ENGLISH
from analytics.language.plain_text import plain
from analytics.language.sentences import tr
from analytics.report.model import Report
from analytics.report.weeks import Week
from dashboard.access.audit import REFUSED, SENDING, audit, audit_first, in_role
from dashboard.access.people import PLANNER, NotAllowedError
from dashboard.documents import chosen_week, edition
from dashboard.error_panels import in_a_line, language_of
from dashboard.render.panel import panel
from dashboard.source import LakeSource, view_of
from dashboard.view import Problem, View, problem_of
from fallow.errors import FallowError

_ALL = -1
"""Where the number of a target stands: every one of them."""


@dataclass(frozen=True)
class SendingAnswer:
    """What the form shows next, and for which address and targets it was tried: that can now be sent."""

    shown: Any
    tried: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outputs(self) -> list[Any]:
        """As the callback gives them back: shown, whether the last button is off, tried."""
        return [self.shown, not self.tried, dict(self.tried)]


def sending(view: View, week: Week) -> html.Section:
    """The form; where the settings name no target, what to set."""
    try:
        targets, wrong = site_targets(view.whole.inputs.settings), ""
    except FallowError as error:
        targets, wrong = (), str(error)
    return panel(
        name="sending",
        title=view.translate(tr("Send it")),
        question=view.translate(
            tr("Who is to get the report of {week}? Each target gets an edition once.", week=week.label)
        ),
        finding=wrong or view.translate(_standing(len(targets))),
        body=_form(view, [target.shown for target in targets]) if targets else [],
    )


def _standing(targets: int) -> str:
    if not targets:
        return tr("No target is set: name some as report.to in the settings.")
    return tr("The targets are those of the setting report.to. Try it first: that sends nothing.")


def _form(view: View, shown: Sequence[str]) -> list[Any]:
    """A button for each target and one for all: what is tried last is what can be sent."""
    rows = list(enumerate(plain(each, 200) for each in shown))
    if len(rows) > 1:
        rows.append((_ALL, view.translate(tr("all of them"))))
    return [
        html.Ul([_target(view, number, name) for number, name in rows], className="targets"),
        dcc.Loading(html.Div(id="send-outcome", className="outcome", role="status")),
        html.Div(
            html.Button(view.translate(tr("Send what was tried")), id="send-now", className="button", disabled=True),
            className="actions",
        ),
        dcc.Store(id="send-tried", data={}),
    ]


def _target(view: View, number: int, name: str) -> html.Li:
    label = view.translate(tr("Try: what would be sent to {target}?", target=name))
    button = html.Button(
        view.translate(tr("Try")),
        id={"type": "send-try", "target": number},
        className="button",
        **{"aria-label": label},
    )
    return html.Li([button, html.Span(name)])


def connect_sending(app: Any, source: LakeSource) -> None:
    """The callback behind the buttons."""

    @app.callback(  # type: ignore[untyped-decorator]  # dash is untyped
        Output("send-outcome", "children"),
        Output("send-now", "disabled"),
        Output("send-tried", "data"),
        Input({"type": "send-try", "target": ALL}, "n_clicks"),
        Input("send-now", "n_clicks"),
        State("url", "search"),
        State("send-tried", "data"),
        prevent_initial_call=True,
    )
    def answer(_: list[int | None], __: int | None, search: str | None, tried: object) -> Any:
        asked_by = ctx.triggered_id
        # the buttons also call when they come with a page
        if not any(each["value"] for each in ctx.triggered):
            return [no_update] * 3
        if asked_by == "send-now":
            return send_tried(source, search, tried if isinstance(tried, dict) else {}).outputs
        return try_target(source, search, asked_by["target"]).outputs


def try_target(source: LakeSource, search: str | None, number: object) -> SendingAnswer:
    """What would go to the target of that number, of those in the settings; only for who may send."""

    def carried_out(view: View) -> SendingAnswer:
        known = [target.shown for target in site_targets(view.whole.inputs.settings)]
        one = known[number : number + 1] if isinstance(number, int) else []
        targets = known if number == _ALL else one
        said = try_order(view.whole.inputs, _order(view, targets), _maker(view))
        is_due = any(each.is_due for each in said)
        return SendingAnswer(_list(view, said), {"search": search or "", "targets": targets} if is_due else {})

    return _asked(source, search, carried_out)


def send_tried(source: LakeSource, search: str | None, tried: Mapping[str, Any]) -> SendingAnswer:
    """Sends what was tried, if it was with this address; only for who may, and only to targets of the settings."""

    def carried_out(view: View) -> SendingAnswer:
        targets = [str(each) for each in tried.get("targets", ())]
        if tried.get("search") != (search or ""):
            return SendingAnswer(html.P(view.translate(tr("Try it first: the choice has changed since."))))
        order = _order(view, targets)
        about = f"the report of {order.week}"
        audit_first(
            view.reader.actor, in_role(view.reader, "asks to send", f"{about} to {', '.join(targets)}"), SENDING
        )
        try:
            said = send_order(view.whole.inputs, order, _maker(view))
        except FallowError as error:
            audit(view.reader.actor, in_role(view.reader, "did not send", f"{about}: {error.message}"), SENDING)
            raise
        for each in said:
            became = ENGLISH.translate(each.sentence)
            audit(view.reader.actor, in_role(view.reader, "sending", f"{about} to {each.target}: {became}"), SENDING)
        return SendingAnswer(_list(view, said))

    return _asked(source, search, carried_out)


def _asked(source: LakeSource, search: str | None, carried_out: Callable[[View], SendingAnswer]) -> SendingAnswer:
    look = view_of(source, search)
    if isinstance(look, Problem):
        return SendingAnswer(_wrong(in_a_line(language_of(source, search), look.message, look.hint)))
    try:
        _require(look)
        return carried_out(look)
    except FallowError as error:
        told = problem_of(error, look.reader)
        return SendingAnswer(_wrong(in_a_line(look.language, told.message, told.hint)))


def _require(view: View) -> None:
    """Raises NotAllowedError for whoever may not send, which is written down."""
    try:
        view.reader.require(PLANNER)
    except NotAllowedError:
        audit(view.reader.actor, in_role(view.reader, "refused sending", "a report"), REFUSED)
        raise


def _order(view: View, targets: Sequence[str]) -> Order:
    return Order(chosen_week(view).label, view.report.scope, view.language, tuple(targets), view.reader.actor)


def _maker(view: View) -> Callable[[Week], Report]:
    return lambda week: edition(view, week)


def _list(view: View, said: Sequence[Said]) -> html.Ul:
    return html.Ul(
        [
            html.Li(
                [
                    html.Span(plain(each.target, 200)),
                    ": ",
                    html.Span(
                        view.translate(each.sentence),
                        className="failed" if each.is_failure else "done" if each.is_due else "",
                    ),
                ]
            )
            for each in said
        ]
    )


def _wrong(said: str) -> html.P:
    return html.P(said, className="failed")

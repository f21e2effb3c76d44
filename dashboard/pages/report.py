"""The weekly report: preview, download, and the form that sends it to targets of the settings, first as a dry run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from dash import ALL, Input, Output, State, ctx, dcc, html, no_update

from analytics.delivery.editions import Order, TargetOutcome, send_order, site_targets, try_order
from analytics.language.sentences import ENGLISH, plain, tr
from analytics.report.weeks import Week
from analytics.tables.palette import Palette
from analytics.tables.wording import scope_parts
from dashboard.access.audit import REFUSED, SENDING, audit, audit_first, in_role
from dashboard.access.people import PLANNER, NotAllowedError
from dashboard.error_panels import button_line, error_line
from dashboard.files import chosen_week, edition, weeks
from dashboard.pages.page import Page, in_words
from dashboard.render.panel import panel
from dashboard.render.states import capital
from dashboard.source import LakeSource, view_of
from dashboard.view import Problem, View
from fallow.errors import FallowError, UsageError

_ALL = -1
"""All targets, in place of the number of one target."""


@dataclass(frozen=True)
class SendingAnswer:
    """What the form shows next, and for which address and targets it was tried: that can now be sent."""

    shown: Any
    tried: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outputs(self) -> list[Any]:
        """Return the outputs of the callback: shown, whether the last button is off, tried."""
        return [self.shown, not self.tried, dict(self.tried)]


def sending(view: View, week: Week) -> html.Section:
    """Return the form; if the settings name no target, the setting to fill in."""
    try:
        targets, wrong = site_targets(view.whole.inputs.settings), ""
    except FallowError as error:
        targets, wrong = (), str(error)
    return panel(
        name="sending",
        title=tr("Send it"),
        question=tr("Who should get the report of {week}? Each target gets an edition once.", week=week.label),
        finding=wrong
        or (
            tr("The targets are those of the setting report.to. Try it first: that sends nothing.")
            if targets
            else tr("No target is set: name some as report.to in the settings.")
        ),
        body=_form([target.shown for target in targets]) if targets else [],
    )


def _form(shown: Sequence[str]) -> list[Any]:
    """Return a button for each target and one for all; the last try can be sent."""
    rows = list(enumerate(plain(each, 200) for each in shown))
    if len(rows) > 1:
        rows.append((_ALL, tr("all of them")))
    return [
        html.Ul([_target(number, name) for number, name in rows], className="targets"),
        dcc.Loading(html.Div(id="send-outcome", className="outcome", role="status")),
        html.Div(
            html.Button(tr("Send what was tried"), id="send-now", className="button", disabled=True),
            className="actions",
        ),
        dcc.Store(id="send-tried", data={}),
    ]


def _target(number: int, name: str) -> html.Li:
    label = tr("Try: what would be sent to {target}?", target=name)
    identity = {"type": "send-try", "target": number}
    button = html.Button(tr("Try"), id=identity, className="button", **{"aria-label": label})
    return html.Li([button, html.Span(name)])


def connect_sending(app: Any, source: LakeSource) -> None:
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
    """Return what would go to the target with that number in the settings; an error if the reader may not send."""

    def carried_out(view: View) -> SendingAnswer:
        known = [target.shown for target in site_targets(view.whole.inputs.settings)]
        one = known[number : number + 1] if isinstance(number, int) else []
        targets = known if number == _ALL else one
        outcomes = try_order(view.whole.inputs, _order(view, targets), partial(edition, view))
        is_due = any(each.is_due for each in outcomes)
        return SendingAnswer(_outcomes(outcomes), {"search": search or "", "targets": targets} if is_due else {})

    return _asked(source, search, carried_out)


def send_tried(source: LakeSource, search: str | None, tried: Mapping[str, Any]) -> SendingAnswer:
    """Send what was tried with this address, to targets of the settings; an error if the reader may not send."""

    def carried_out(view: View) -> SendingAnswer:
        targets = [str(each) for each in tried.get("targets", ())]
        if tried.get("search") != (search or ""):
            return SendingAnswer(html.P(tr("Try it first: the choice has changed since.")))
        order = _order(view, targets)
        about = f"the report of {order.week}"
        audit_first(
            view.reader.actor, in_role(view.reader, "asks to send", f"{about} to {', '.join(targets)}"), SENDING
        )
        try:
            outcomes = send_order(view.whole.inputs, order, partial(edition, view))
        except FallowError as error:
            audit(view.reader.actor, in_role(view.reader, "did not send", f"{about}: {error.message}"), SENDING)
            raise
        for each in outcomes:
            became = ENGLISH.translate(each.sentence)
            audit(view.reader.actor, in_role(view.reader, "sending", f"{about} to {each.target}: {became}"), SENDING)
        return SendingAnswer(_outcomes(outcomes))

    return _asked(source, search, carried_out)


def _asked(source: LakeSource, search: str | None, carried_out: Callable[[View], SendingAnswer]) -> SendingAnswer:
    """Return the answer of `carried_out`, or an error. A reader who may not send is refused, with an audit record."""
    look = view_of(source, search, findings=True)
    if isinstance(look, Problem):
        return SendingAnswer(html.P(button_line(source, search, look), className="failed"))
    try:
        try:
            look.reader.require(PLANNER)
        except NotAllowedError:
            audit(look.reader.actor, in_role(look.reader, "refused sending", "a report"), REFUSED)
            raise
        answer = carried_out(look)
        return replace(answer, shown=in_words(answer.shown, look.language))
    except FallowError as error:
        return SendingAnswer(html.P(error_line(look, error), className="failed"))


def _order(view: View, targets: Sequence[str]) -> Order:
    return Order(chosen_week(view).label, view.report.scope, view.language, tuple(targets), view.reader.actor)


def _outcomes(outcomes: Sequence[TargetOutcome]) -> html.Ul:
    """Return a line for each target with its outcome."""
    looks = ("failed" if each.is_failure else "done" if each.is_due else "" for each in outcomes)
    return html.Ul(
        [
            html.Li([html.Span(plain(each.target, 200)), ": ", html.Span(each.sentence, className=look)])
            for each, look in zip(outcomes, looks, strict=True)
        ]
    )


_FORMATS = {
    "html": tr("HTML page"),
    "pdf": tr("PDF"),
    "md": tr("Markdown"),
    "text": tr("plain text"),
    "json": tr("JSON with every number"),
    "csv": tr("CSV, one line per figure"),
}


def _choice(view: View, chosen: Week) -> html.Section:
    documents = [
        html.Li(html.A(capital(view.translate(name)), href=f"/report/download/{form}{_search(view, chosen)}"))
        for form, name in _FORMATS.items()
    ]
    return panel(
        name="weeks",
        title=tr("Which week"),
        question=tr(
            "Monday to Monday in the time zone of the bar above; pool, model, team and language are those of the bar"
            " too."
        ),
        finding=tr("Chosen: {week}, {scope}", week=_name(view, chosen), scope=_scope(view)),
        body=[
            html.Ul([_week(view, week, chosen) for week in _listed(view, chosen)], className="weeks"),
            html.H3(tr("Download")),
            html.Ul(documents, className="downloads"),
        ],
    )


def _listed(view: View, chosen: Week) -> list[Week]:
    """Return the last weeks, with the chosen week if it is not among them."""
    known = weeks(view)
    return known if chosen in known else sorted([*known, chosen], key=lambda each: each.since_ms, reverse=True)


def _week(view: View, week: Week, chosen: Week) -> html.Li:
    if week == chosen:
        return html.Li(html.Span(_name(view, week), className="here", **{"aria-current": "true"}))
    return html.Li(dcc.Link(_name(view, week), href="/report" + _search(view, week)))


def _name(view: View, week: Week) -> str:
    """Return the label of the week, with a note if the lake ends before the week does."""
    if week.until_ms > view.as_of_ms:
        return tr("{week} (not complete)", week=week.label)
    return week.label


def _scope(view: View) -> str:
    parts = [view.translate(part) for part in scope_parts(view.report.scope)]
    return plain(", ".join(parts), 200) or view.translate(tr("whole fleet"))


def _search(view: View, week: Week) -> str:
    return view.query.on_every_page.but(start=week.label).search


def _preview(view: View, week: Week) -> html.Section:
    title = tr("The report of {week}", week=week.label)
    address = "/report/preview" + _search(view, week)
    return panel(
        name="preview",
        title=title,
        question=tr("What will its readers see?"),
        finding=tr("The same document that is downloaded as HTML and sent by mail."),
        body=[
            html.P(html.A(tr("Open in a new tab"), href=address, target="_blank", rel="noopener")),
            html.Iframe(src=address, title=title, className="preview", sandbox=""),
        ],
        wide=True,
    )


def _content(view: View, _: Palette) -> html.Div:
    """Return weeks, documents, the form for readers who may send, and the preview of the week in the address."""
    wrong = []
    try:
        week = chosen_week(view)
    except UsageError as error:
        wrong, week = [html.P(str(error), className="simulated", role="alert")], weeks(view)[0]
    form = [sending(view, week)] if view.reader.may(PLANNER) else []
    return html.Div([*wrong, html.Div([_choice(view, week), *form, _preview(view, week)], className="panels")])


REPORT = Page(
    "/report", tr("Weekly report"), _content, connect_sending, question=tr("What does the report of a week say?")
)

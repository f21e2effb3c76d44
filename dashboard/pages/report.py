"""The weekly report: preview, download and sending."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from analytics.language.plain_text import plain
from analytics.language.sentences import tr
from analytics.report.weeks import Week
from analytics.tables.palette import Palette
from analytics.tables.wording import scope_parts
from dashboard.access.people import PLANNER
from dashboard.documents import chosen_week, serve_documents, weeks
from dashboard.pages.page import Page
from dashboard.render.panel import panel
from dashboard.render.states import capital
from dashboard.sending import connect_sending, sending
from dashboard.source import LakeSource
from dashboard.view import View
from fallow.errors import UsageError

_FORMATS = {
    "html": tr("HTML page"), "pdf": tr("PDF"), "md": tr("Markdown"), "text": tr("plain text"),
    "json": tr("JSON with every number"), "csv": tr("CSV, one line per figure"),
}  # fmt: skip


class ReportPage(Page):
    """`/report`; the week stands in the address as `start`."""

    path = "/report"
    name: str = tr("Report")

    def connect(self, app: Any, source: LakeSource) -> None:
        """The documents' own addresses, and the form that sends."""
        serve_documents(app.server, source)
        connect_sending(app, source)

    def content(self, view: View, colours: Palette) -> html.Div:  # noqa: ARG002  # the report has its own colours
        """The weeks, the documents, the form for those who may send, and the preview."""
        wrong = ""
        try:
            week = chosen_week(view)
        except UsageError as error:
            wrong, week = str(error), chosen_week_of_default(view)
        return html.Div(
            [
                *([html.P(wrong, className="simulated", role="alert")] if wrong else []),
                html.Div(
                    [
                        _choice(view, week),
                        *([sending(view, week)] if view.reader.may(PLANNER) else []),
                        _preview(view, week),
                    ],
                    className="panels",
                ),
            ]
        )


def chosen_week_of_default(view: View) -> Week:
    """The newest week of the lake."""
    return weeks(view)[0]


def _choice(view: View, chosen: Week) -> html.Section:
    """Which week, and its documents."""
    documents = [
        html.Li(html.A(capital(view.translate(name)), href=f"/report/download/{form}{_search(view, chosen)}"))
        for form, name in _FORMATS.items()
    ]
    return panel(
        name="weeks",
        title=view.translate(tr("Which week")),
        question=view.translate(tr("Monday to Monday in the time zone of the bar above; pool, model, team and language are those of the bar too.")),
        finding=view.translate(tr("Chosen: {week}, {scope}", week=_name(view, chosen), scope=_scope(view))),
        body=[
            html.Ul([_week(view, week, chosen) for week in _listed(view, chosen)], className="weeks"),
            html.H3(view.translate(tr("Download"))),
            html.Ul(documents, className="downloads"),
        ],
    )  # fmt: skip


def _listed(view: View, chosen: Week) -> list[Week]:
    """The last ones, and the chosen one wherever it lies."""
    known = weeks(view)
    return known if chosen in known else sorted([*known, chosen], key=lambda each: each.since_ms, reverse=True)


def _week(view: View, week: Week, chosen: Week) -> html.Li:
    if week == chosen:
        return html.Li(html.Span(_name(view, week), className="here", **{"aria-current": "true"}))
    return html.Li(dcc.Link(_name(view, week), href="/report" + _search(view, week)))


def _name(view: View, week: Week) -> str:
    """With a word where the lake does not have it to its end."""
    if week.until_ms > view.as_of_ms:
        return view.translate(tr("{week} (not over)", week=week.label))
    return week.label


def _scope(view: View) -> str:
    parts = [view.translate(part) for part in scope_parts(view.report.scope)]
    return plain(", ".join(parts), 200) or view.translate(tr("whole fleet"))


def _search(view: View, week: Week) -> str:
    return view.query.on_every_page.but(start=week.label).search


def _preview(view: View, week: Week) -> html.Section:
    title = view.translate(tr("The report of {week}", week=week.label))
    address = "/report/preview" + _search(view, week)
    return panel(
        name="preview",
        title=title,
        question=view.translate(tr("What will its readers see?")),
        finding=view.translate(tr("The same document that is downloaded as HTML and sent by mail.")),
        body=[
            html.P(
                html.A(view.translate(tr("Open it in a tab of its own")), href=address, target="_blank", rel="noopener")
            ),
            html.Iframe(src=address, title=title, className="preview", sandbox=""),
        ],
        wide=True,
    )

"""What readers take along: tables as CSV and Parquet, and the weekly report in every format and as a preview in a frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
from dash import html
from flask import Response, request

from analytics.delivery.channels import safe
from analytics.delivery.content import edition_name
from analytics.render.report import FORMATS
from analytics.render.tables import as_csv, as_parquet, frame
from analytics.report.model import Asked
from analytics.report.report import Report
from analytics.report.weeks import Week, parse_week, week_of
from analytics.tables.accounts import accounts_by
from analytics.tables.card_fit import workload_sizes, workload_table
from analytics.tables.finding_list import finding_list
from analytics.tables.ledger_columns import gpu_ledger, gpu_table
from analytics.tables.recommendations import decision_rows
from analytics.tables.report_columns import with_notes
from analytics.tables.table import Table
from dashboard.access.audit import audit_export
from dashboard.access.audit_trail import AuditError
from dashboard.error_panels import error_line, problem_line
from dashboard.source import LakeSource, view_of
from dashboard.view import Problem, View
from fallow.errors import FallowError


def _holders(view: View) -> Table:
    money = view.report.money
    return accounts_by("holder", money.accounts.by("holder"), money)


EXPORTS: Mapping[str, Callable[[View], Table]] = {
    "findings": lambda view: finding_list(with_notes(view.report.review, view.report.review.findings)),
    "holders": _holders,
    "gpus": lambda view: gpu_table(gpu_ledger(view.part.inside.stretches, view.whole.inventory)),
    "recommendations": lambda view: decision_rows(view.report.recommendations),
    "works": lambda view: workload_table(workload_sizes(view.report)),
}
"""By name: the table of `/export/NAME.csv` and `/export/NAME.parquet`, with the search of the page's address. Suppressed findings are there with their status."""


def exported(view: View, name: str) -> pl.DataFrame:
    """All rows of a table of EXPORTS as programs read them, moments as such."""
    table = EXPORTS[name](view)
    moments = [each.key for each in table.columns if each.kind == "moment"]
    return frame(table).with_columns(pl.col(moments).str.to_datetime("%+", time_unit="ms", time_zone="UTC"))


def links(view: View, name: str) -> html.Span:
    """Where the table can be had as a file, with the window and scope of the page."""
    search = view.query.on_every_page.search
    return html.Span(
        [
            html.A(kind, href=f"/export/{name}.{kind.lower()}{search}", className="button", download="")
            for kind in ("CSV", "Parquet")
        ],
        className="files",
    )


_MOST_WEEKS = 8


def weeks(view: View) -> list[Week]:
    """The last weeks of which the lake has rows, the newest first, in the reader's time zone."""
    found = [week_of(view.as_of_ms - 1, view.zone)]
    first_ms = view.report.heading.known.since_ms or 0
    while len(found) < _MOST_WEEKS and found[-1].since_ms > first_ms:
        found.append(found[-1].before())
    return found


def chosen_week(view: View) -> Week:
    """The week that the address names, else the newest that the lake has to its end; raises UsageError for what is none."""
    if view.query.start:
        return parse_week(view.query.start, view.zone, view.as_of_ms)
    known = weeks(view)
    return next((week for week in known if week.until_ms <= view.as_of_ms), known[0])


def edition(view: View, week: Week) -> Report:
    """The report of the week, of the view's scope; raises EmptyLakeError and its kinds."""
    asked = Asked(week, view.report.scope, view.zone, names_lake=view.reader.sees_places)
    return view.made.of(("edition", asked), lambda: Report(view.whole_of(week.window), asked).decided())  # type: ignore[no-any-return]


def report_name(view: View, week: Week, suffix: str) -> str:
    """That which `fallow report send` gives the same edition: `fallow-2026-W46-all-en.html`."""
    scope, _, code = edition_name(view.report.scope, view.language.code).rpartition("/")
    return f"fallow-{week.label}-{safe(scope)}-{code}{suffix}"


_TYPES = {
    "text": "text/plain; charset=utf-8",
    "md": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "pdf": "application/pdf",
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
_BY_NAME = {each.name: each for each in FORMATS}

FRAME_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
"""Of the preview: it fetches nothing and runs nothing; the document itself names the one style that it has."""


def serve_files(server: Any, source: LakeSource) -> None:
    """Adds the routes; each comes to its view as the pages do, so that a team's reader gets that team's rows and edition."""

    @server.route("/export/<name>.<kind>")  # type: ignore[untyped-decorator]
    def export(name: str, kind: str) -> Response:
        if name not in EXPORTS or kind not in ("csv", "parquet"):
            return _refusal("there is no such table", 404)

        def made(view: View, search: str) -> Response:
            audit_export(view.reader, f"/export/{name}.{kind}", search)
            content = (as_csv if kind == "csv" else as_parquet)(exported(view, name))
            return _file(content, kind, f"fallow-{name}.{kind}")

        return _answer(source, made)

    @server.route("/report/preview")  # type: ignore[untyped-decorator]
    def preview() -> Response:
        def made(view: View, _: str) -> Response:
            content = _BY_NAME["html"].render(edition(view, chosen_week(view)), view.language)
            headers = {"Content-Security-Policy": FRAME_POLICY, "X-Frame-Options": "SAMEORIGIN"}
            return Response(content, content_type=_TYPES["html"], headers=headers)

        return _answer(source, made)

    @server.route("/report/download/<name>")  # type: ignore[untyped-decorator]
    def download(name: str) -> Response:
        form = _BY_NAME.get(name)
        if form is None:
            return _refusal("there is no such format", 404)

        def made(view: View, search: str) -> Response:
            audit_export(view.reader, f"/report/download/{name}", search)
            week = chosen_week(view)
            return _file(form.render(edition(view, week), view.language), name, report_name(view, week, form.suffix))

        return _answer(source, made)


def _file(content: str | bytes, kind: str, name: str) -> Response:
    return Response(
        content, content_type=_TYPES[kind], headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )


def _answer(source: LakeSource, make: Callable[[View, str], Response]) -> Response:
    """What `make` makes of the view and the address's search, or one sentence on why there is none; never a traceback."""
    search = request.query_string.decode(errors="replace")
    look = view_of(source, search)
    if isinstance(look, Problem):
        return _refusal(problem_line(source, search, look), 409)
    try:
        return make(look, search)
    except FallowError as error:
        return _refusal(error_line(look, error), 503 if isinstance(error, AuditError) else 409)


def _refusal(said: str, status: int) -> Response:
    return Response(f"fallow: {said}\n", status=status, mimetype="text/plain")

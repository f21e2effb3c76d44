"""Downloads: tables as CSV and Parquet, and the weekly report in every format and as a preview in a frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
from dash import html
from flask import Response, request

from analytics.delivery.channels import safe
from analytics.delivery.content import edition_name
from analytics.render.report.formats import FORMATS
from analytics.render.tables import as_csv, as_parquet, frame
from analytics.report.model import Asked
from analytics.report.report import Report
from analytics.report.weeks import Week, parse_week, week_of
from analytics.tables.accounts import accounts_by
from analytics.tables.card_fit import workload_sizes, workload_table
from analytics.tables.finding_list import finding_list
from analytics.tables.ledger_columns import gpu_ledger, gpu_table
from analytics.tables.recommendations import decision_rows
from analytics.tables.report_columns import for_reading
from analytics.tables.table import Table
from dashboard.access.audit import audit_export
from dashboard.access.audit_trail import AuditError
from dashboard.error_panels import error_line, problem_line
from dashboard.source import LakeSource, view_of
from dashboard.view import Problem, View
from fallow.errors import FallowError

EXPORTS: Mapping[str, Callable[[View], Table]] = {
    "findings": lambda view: finding_list(for_reading(view.report.review, is_all=view.query.show == "all")),
    "users": lambda view: accounts_by("user", view.report.money),
    "gpus": lambda view: gpu_table(gpu_ledger(view.part.inside.segments, view.whole.inventory)),
    "recommendations": lambda view: decision_rows(view.report.recommendations),
    "workloads": lambda view: workload_table(workload_sizes(view.report)),
}
"""The tables of `/export/NAME.csv` and `/export/NAME.parquet` by name; they take the search of the page's address.

Snoozed findings are included with their status; findings of low confidence only with `show=all`.
"""


def exported(view: View, name: str) -> pl.DataFrame:
    """Return all rows of a table of EXPORTS in values for programs; moments are datetimes in UTC, days are dates."""
    table = EXPORTS[name](view)
    moments, days = ([each.key for each in table.columns if each.kind == kind] for kind in ("moment", "day"))
    return frame(table).with_columns(
        pl.col(moments).str.to_datetime("%+", time_unit="ms", time_zone="UTC"), pl.col(days).str.to_date()
    )


def links(view: View, name: str) -> html.Span:
    """Return the links to a table's files, with the window and scope of the page."""
    search = view.query.on_every_page.but(show=view.query.show).search
    return html.Span(
        [
            html.A(kind, href=f"/export/{name}.{kind.lower()}{search}", className="button", download="")
            for kind in ("CSV", "Parquet")
        ],
        className="files",
    )


_MOST_WEEKS = 8


def weeks(view: View) -> list[Week]:
    """Return the last weeks with rows in the lake, the newest first, in the reader's time zone."""
    found = [week_of(view.as_of_ms - 1, view.zone)]
    first_ms = view.report.heading.known.since_ms or 0
    while len(found) < _MOST_WEEKS and found[-1].since_ms > first_ms:
        found.append(found[-1].before())
    return found


def chosen_week(view: View) -> Week:
    """Return the week that the address names, else the newest complete week; raises UsageError for an invalid week."""
    if view.query.start:
        return parse_week(view.query.start, view.zone, view.as_of_ms)
    known = weeks(view)
    return next((week for week in known if week.until_ms <= view.as_of_ms), known[0])


def edition(view: View, week: Week) -> Report:
    """Return the report of the week in the view's scope; raises EmptyLakeError and its kinds."""
    asked = Asked(week, view.report.scope, view.zone, names_lake=view.reader.sees_places)
    return view.cache.of(  # type: ignore[no-any-return]
        ("edition", asked), lambda: Report(view.whole_of(week.window), asked).decided()
    )


def report_name(view: View, week: Week, suffix: str) -> str:
    """Return the file name that `fallow report send` gives the same edition, such as `fallow-2026-W46-all-en.html`."""
    scope, _, code = edition_name(view.report.scope, view.language.code).rpartition("/")
    return f"fallow-{week.label}-{safe(scope)}-{code}{suffix}"


_EXPORTED = {"csv": (as_csv, "text/csv"), "parquet": (as_parquet, "application/vnd.apache.parquet")}
"""How a table is written, and its media type, by the kind of the file."""
_BY_NAME = {each.name: each for each in FORMATS}

FRAME_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
"""The policy of the preview, which fetches nothing and runs nothing; the document's own policy names its one style."""


def serve_files(server: Any, source: LakeSource) -> None:
    """Add the routes. They use the pages' views, so that a reader of one team gets that team's rows and edition."""

    @server.route("/export/<name>.<kind>")  # type: ignore[untyped-decorator]
    def export(name: str, kind: str) -> Response:
        if name not in EXPORTS or kind not in _EXPORTED:
            return _refusal("there is no such table", 404)

        def answer(view: View, search: str) -> Response:
            audit_export(view.reader, f"/export/{name}.{kind}", search)
            write, media_type = _EXPORTED[kind]
            return _file(write(exported(view, name)), media_type, f"fallow-{name}.{kind}")

        return _answer(source, answer)

    @server.route("/report/preview")  # type: ignore[untyped-decorator]
    def preview() -> Response:
        def answer(view: View, _: str) -> Response:
            content = _BY_NAME["html"].render(edition(view, chosen_week(view)), view.language)
            headers = {"Content-Security-Policy": FRAME_POLICY, "X-Frame-Options": "SAMEORIGIN"}
            return Response(content, mimetype="text/html", headers=headers)

        return _answer(source, answer)

    @server.route("/report/download/<name>")  # type: ignore[untyped-decorator]
    def download(name: str) -> Response:
        form = _BY_NAME.get(name)
        if form is None:
            return _refusal("there is no such format", 404)

        def answer(view: View, search: str) -> Response:
            audit_export(view.reader, f"/report/download/{name}", search)
            week = chosen_week(view)
            content = form.render(edition(view, week), view.language)
            return _file(content, form.media_type, report_name(view, week, form.suffix))

        return _answer(source, answer)


def _file(content: bytes, media_type: str, name: str) -> Response:
    return Response(content, mimetype=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _answer(source: LakeSource, make: Callable[[View, str], Response]) -> Response:
    """Return the response of `make` to the view and the address's search, or one sentence with the error."""
    search = request.query_string.decode(errors="replace")
    look = view_of(source, search, findings=True)
    if isinstance(look, Problem):
        return _refusal(problem_line(source, search, look), 409)
    try:
        return make(look, search)
    except FallowError as error:
        return _refusal(error_line(look, error), 503 if isinstance(error, AuditError) else 409)


def _refusal(sentence: str, status: int) -> Response:
    return Response(f"fallow: {sentence}\n", status=status, mimetype="text/plain")

"""Tables as files: all rows of what the page shows, made on the server for who may see them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl
from dash import html
from flask import Response, request

from analytics.render.table_files import as_csv, as_parquet
from analytics.render.tables import frame
from analytics.report import gpu_table as by_gpu
from analytics.tables.accounts import accounts_by
from analytics.tables.finding_list import finding_list
from analytics.tables.findings import notes
from analytics.tables.opportunities import decision_rows
from dashboard.access.audit import audit_export
from dashboard.access.audit_trail import AuditError
from dashboard.decisions import opportunities_of
from dashboard.error_panels import in_a_line, language_of
from dashboard.source import LakeSource, view_of
from dashboard.view import Problem, View


def findings(view: View) -> pl.DataFrame:
    """Every finding of the view, suppressed ones with their status: the columns of `fallow findings --all --csv`."""
    report = view.report
    own = [replace(each, notes=tuple(notes(report, each))) for each in report.review.findings]
    return _with_moment(frame(finding_list(own)), "since")


def opportunities(view: View) -> pl.DataFrame:
    """Every opportunity of the view: the columns of `fallow recommendations --csv`."""
    return _with_moment(frame(decision_rows(opportunities_of(view))), "deadline")


def _with_moment(rows: pl.DataFrame, name: str) -> pl.DataFrame:
    """The rows with RFC 3339 of a column as moments."""
    return rows.with_columns(pl.col(name).str.to_datetime("%+", time_unit="ms", time_zone="UTC"))


def holders(view: View) -> pl.DataFrame:
    """What each holder was given, what became of it and what it cost: the columns of `fallow ledger --by holder --csv`."""
    money = view.report.money
    return frame(accounts_by("holder", money.accounts.by("holder"), money))


def gpus(view: View) -> pl.DataFrame:
    """The ledger by GPU: hours by state and the observed share of them."""
    types = {str: pl.String(), float: pl.Float64(), bool: pl.Boolean()}
    rows = by_gpu.rows_by_gpu(view.part.inside.stretches, view.whole.inventory)
    return pl.DataFrame(rows, schema={name: types[kind] for name, kind in by_gpu.COLUMNS.items()})


EXPORTS: dict[str, Callable[[View], pl.DataFrame]] = {
    "findings": findings,
    "holders": holders,
    "gpus": gpus,
    "opportunities": opportunities,
}
"""By name: what `/export/NAME.csv` and `/export/NAME.parquet` have, with the search of the page's address."""


def serve_exports(server: Any, source: LakeSource) -> None:
    """Adds the routes."""

    @server.route("/export/<name>.<kind>")  # type: ignore[untyped-decorator]
    def export(name: str, kind: str) -> Response:
        if name not in EXPORTS or kind not in ("csv", "parquet"):
            return Response("fallow: there is no such table\n", status=404, mimetype="text/plain")
        search = request.query_string.decode(errors="replace")
        look = view_of(source, search)
        if isinstance(look, Problem):
            said = in_a_line(language_of(source, search), look.message, look.hint)
            return Response(f"fallow: {said}\n", status=409, mimetype="text/plain")
        try:
            audit_export(look.reader, f"/export/{name}.{kind}", search)
        except AuditError as error:
            return Response(f"fallow: {error}\n", status=503, mimetype="text/plain")
        content = as_csv(EXPORTS[name](look)) if kind == "csv" else as_parquet(EXPORTS[name](look))
        kinds = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
        return Response(
            content,
            content_type=kinds[kind],
            headers={"Content-Disposition": f'attachment; filename="fallow-{name}.{kind}"'},
        )


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

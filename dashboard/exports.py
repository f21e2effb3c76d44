"""Tables as files: all rows of what the page shows, made on the server for who may see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import polars as pl
from dash import html
from flask import Response, request

from analytics.decide.opportunities import Opportunity
from analytics.render import findings_table
from analytics.render.money_json import account_row
from analytics.render.opportunities_json import COLUMNS as OPPORTUNITY_COLUMNS
from analytics.render.opportunities_json import opportunity_row
from analytics.render.table_files import as_csv, as_parquet
from analytics.report import gpu_table as by_gpu
from analytics.report.model import Report
from analytics.tables.findings import notes
from analytics.workloads.model import Finding
from dashboard.access.audit import audit_export
from dashboard.access.audit_trail import AuditError
from dashboard.decisions import opportunities_of
from dashboard.error_panels import in_a_line, language_of
from dashboard.source import LakeSource, view_of
from dashboard.view import Problem, View
from fallow.clock import from_ms

MOMENT = pl.Datetime("ms", "UTC")
_KINDS: Mapping[type, pl.DataType] = {
    str: pl.String(),
    float: pl.Float64(),
    int: pl.Int64(),
    bool: pl.Boolean(),
    datetime: MOMENT,
}

_FINDINGS: Mapping[str, type] = {
    **dict.fromkeys(findings_table.COLUMNS, str),
    "since": datetime,
    "gpu_hours": float,
    "energy_kwh": float,
    "cost": float,
    "reclaimable": bool,
    "simulated": bool,
}
_OPPORTUNITIES: Mapping[str, type] = {
    **dict.fromkeys(OPPORTUNITY_COLUMNS, str),
    **dict.fromkeys(("gpu_hours", "cost", "saving_low", "saving_point", "saving_high", "horizon_days"), float),
    "ranked": bool,
    "deadline": datetime,
}
_COUNTS = ("gpus", "rank_gpu_hours", "rank_efficiency", "rank_efficiency_of")
_WORDS = ("name", "label", "currency", "rank_efficiency_model")


def findings(view: View) -> pl.DataFrame:
    """Every finding of the view, suppressed ones with their status: the columns of `fallow findings --all --csv`."""
    return _frame((_finding(each, view.report) for each in view.report.review.findings), _FINDINGS)


def _finding(finding: Finding, report: Report) -> dict[str, Any]:
    own = "; ".join(str(each) for each in notes(report, finding))
    return findings_table.row_of(finding) | {"since": from_ms(finding.since_ms), "notes": own}


def opportunities(view: View) -> pl.DataFrame:
    """Every opportunity of the view: the columns of `fallow opportunities --csv`."""
    found = opportunities_of(view)
    return _frame(map(_opportunity, found.listed), _OPPORTUNITIES)


def _opportunity(each: Opportunity) -> dict[str, Any]:
    return opportunity_row(each) | {"deadline": from_ms(each.deadline_ms)}


def holders(view: View) -> pl.DataFrame:
    """What each holder was given, what became of it and what it cost: the columns of `fallow ledger --by holder --csv`."""
    money = view.report.money
    rows = [account_row(row, money) for row in money.accounts.by("holder")]
    names = account_row(money.accounts.total, money)
    return _frame(rows, {name: int if name in _COUNTS else str if name in _WORDS else float for name in names})


def gpus(view: View) -> pl.DataFrame:
    """The ledger by GPU: hours by state and the observed share of them."""
    return _frame(by_gpu.rows_by_gpu(view.part.inside.stretches, view.whole.inventory), by_gpu.COLUMNS)


def _frame(rows: Iterable[Mapping[str, Any]], kinds: Mapping[str, type]) -> pl.DataFrame:
    """The rows with a type for each column, whether or not there is a row; None is null."""
    found = list(rows)
    return pl.DataFrame(
        {
            name: pl.Series(name, [_value(row[name], kind) for row in found], dtype=_KINDS[kind])
            for name, kind in kinds.items()
        }
    )


def _value(value: Any, kind: type) -> Any:
    """Texts without what they know of languages, numbers as the column has them."""
    return value if value is None or kind is datetime else kind(value)


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

"""Tables as files: all rows of what the page shows, made on the server for who may see them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from flask import Response, request

from dashboard.ask import view_of
from dashboard.source import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from dashboard.source import Source, View

EXPORTS: dict[str, Callable[[View], pl.DataFrame]] = {}
"""By name: what `/export/NAME.csv` and `/export/NAME.parquet` have, with the search of the page's address."""

_RISKY = ("=", "+", "-", "@", "\t", "\r")
"""What spreadsheets take for the start of a formula."""


def serve_exports(server: Any, source: Source) -> None:
    """Adds the routes."""

    @server.route("/export/<name>.<kind>")  # type: ignore[untyped-decorator]
    def export(name: str, kind: str) -> Response:
        if name not in EXPORTS or kind not in ("csv", "parquet"):
            return Response("fallow: there is no such table\n", status=404, mimetype="text/plain")
        look = view_of(source, request.query_string.decode(errors="replace"))
        if isinstance(look, Problem):
            return Response(f"fallow: {look.message}; {look.hint}\n", status=409, mimetype="text/plain")
        content = as_csv(EXPORTS[name](look)) if kind == "csv" else as_parquet(EXPORTS[name](look))
        kinds = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
        return Response(
            content,
            content_type=kinds[kind],
            headers={"Content-Disposition": f'attachment; filename="fallow-{name}.{kind}"'},
        )


def as_csv(table: pl.DataFrame) -> bytes:
    """UTF-8 with a header; empty is unknown; a text that a spreadsheet would run begins with an apostrophe."""
    import polars as pl  # noqa: PLC0415

    text = [name for name, kind in table.schema.items() if kind == pl.String]
    starts = pl.col(text).str.slice(0, 1).is_in(_RISKY)
    safe = (
        table.with_columns(pl.when(starts).then(pl.lit("'") + pl.col(text)).otherwise(pl.col(text))) if text else table
    )
    return safe.write_csv().encode()


def as_parquet(table: pl.DataFrame) -> bytes:
    """The table as it is."""
    target = io.BytesIO()
    table.write_parquet(target)
    return target.getvalue()

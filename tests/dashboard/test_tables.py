"""The contract of every table of the report, pages, files and verbs: each is complete in each format."""

from __future__ import annotations

import csv
import html
import io
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
import pytest

from analytics.language.sentences import ENGLISH
from analytics.render.tables import FORMATS, VerbAnswer, document
from analytics.tables.palette import LIGHT
from analytics.tables.report_sections import chapters
from analytics.tables.table import Table, column
from dashboard import grid
from dashboard.files import EXPORTS
from dashboard.pages import PAGES, what_if
from dashboard.render import tables
from fallow.outside_text import csv_cell, markdown_text
from tests.core.test_table_verbs import KEY, faults, heads_of, keys_of, tables_schema, unique, without_currency
from tests.dashboard.sites import WEEK, Site

NO_TABLES = ("/report",)
"""Pages that show none: a form, and a document in a frame."""


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Table]:
    """The tables that are drawn in a test, wherever a page draws them, each as often as it stands there."""
    found: list[Table] = []
    drawers = {
        tables.table: lambda _view, _colours, table, *_: table,
        grid.grid: lambda _language, _name, shown: shown.table,
    }

    def keeping(draw: Any) -> Any:
        def kept(*given: Any, **named: Any) -> Any:
            found.append(drawers[draw](*given))
            return draw(*given, **named)

        return kept

    for module in [each for name, each in sys.modules.items() if name.startswith("dashboard.")]:
        for name in ("table", "grid"):
            if (draw := getattr(module, name, None)) in drawers:
                monkeypatch.setattr(module, name, keeping(draw))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_every_table_of_the_pages_is_whole_in_every_format(
    page: Any, planned: Site, drawn: list[Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, host = planned.spans()["gpu", "host"].row(0)
    view = planned.view({"/gpu": f"{WEEK}&gpu={gpu}", "/host": f"{WEEK}&host={host}"}.get(page.path, WEEK))
    page.content(view, LIGHT)
    if page is what_if.WHAT_IF:  # what it shows comes later by itself
        monkeypatch.setattr(what_if, "_PATIENCE_S", None)
        what_if.shown(planned.source, view, LIGHT, {"idle": 2})
    assert bool(drawn) == (page.path not in NO_TABLES)
    assert faults_of(drawn) == []


@pytest.mark.parametrize("name", EXPORTS)
def test_every_table_of_the_files_is_whole_in_every_format(name: str, planned: Site) -> None:
    table = EXPORTS[name](planned.view())
    assert table.rows
    assert faults_of([table]) == []


def test_every_table_of_the_report_is_whole_in_every_format(planned: Site) -> None:
    report = planned.view().report
    found = [each for _, sections in chapters(report) for each in sections]
    assert len(found) > 15
    assert faults_of(found) == []


def test_an_incomplete_table_fails_with_its_name_and_format() -> None:
    """The faults: a key without a type, two columns with one key, and a value of another type than its column."""
    bad = column("GPU hours", "GPU-hours", "gpu_hours", lambda row: row)
    named = Table("hours", "Hours", "", "", (bad, column("twice", "", "count", lambda _: "x")), (1,))
    told = faults_of([named])
    assert {each.partition(": ")[0] for each in told} >= {"hours as json", "hours as parquet"}


def faults_of(found: Sequence[Table]) -> list[str]:
    """What is missing or wrong of some tables, each with the table's name and the format."""
    return [f"{table.name} as {form}: {fault}" for table in found for form in FORMATS for fault in _faults(table, form)]


def _faults(table: Table, form: str) -> Iterator[object]:
    """Rows are in JSON as the columns say, and in CSV and Parquet; people read its title and each head."""
    if form in ("csv", "parquet") and not table.columns:
        return  # sentences alone
    try:
        content = document(VerbAnswer("", (), "", {}, (table,)), form, ENGLISH)
    except Exception as error:  # noqa: BLE001  # whatever it is, the table is not written
        yield repr(error)
        return
    if form == "text":
        yield from (f"the money of {key!r} has no currency" for key in without_currency(table))
    if form == "json":
        written = json.loads(content, object_pairs_hook=unique)["tables"]
        rows, keys = written[table.name]["rows"], keys_of(table)
        yield from (f"the key {key!r}" for key in keys if not KEY.fullmatch(key))
        yield from (f"the row {row}" for row in rows if list(row) != keys)
        yield from [f"{len(rows)} of {len(table.rows)} rows"] if len(rows) != len(table.rows) else []
        yield from faults(tables_schema((table,)), written)
    elif form in ("csv", "parquet"):
        frame = _read(content) if form == "csv" else pl.read_parquet(io.BytesIO(content))
        yield from [f"the columns {frame.columns}"] if frame.columns != heads_of(table.columns) else []
        yield from [f"{frame.height} of {len(table.rows)} rows"] if frame.height != len(table.rows) else []
        if form == "csv":
            wanted = pl.read_parquet(io.BytesIO(document(VerbAnswer("", (), "", {}, (table,)), "parquet", ENGLISH)))
            pairs = zip(frame.iter_rows(), wanted.iter_rows(), strict=False)
            yield from (
                own for own, other in pairs if list(map(_cell, own)) != [_cell(csv_cell(each)) for each in other]
            )
    else:
        shown = html.unescape(content.decode())
        title = {"text": str.upper, "md": markdown_text}.get(form, str)(str(table.title))
        if form == "text" and not (table.cells or table.lines or table.folds or table.notes):
            shown, title = " ".join(shown.split()), ENGLISH.shown(table.headline)  # text begins with the first answer
        yield from [f"no title {title}"] if title not in shown else []
        if form == "md" and table.listed and table.audience != "programs":
            heads = [markdown_text(ENGLISH.shown(each.title)) for each in table.heads if each.kind != "bar"]
            yield from (f"no head {head}" for head in heads if head not in shown)


def _read(content: bytes) -> pl.DataFrame:
    head, *rows = csv.reader(io.StringIO(content.decode(), newline=""))
    return (
        pl.DataFrame(rows, schema=head, orient="row") if rows else pl.DataFrame(schema=dict.fromkeys(head, pl.String))
    )


def _cell(cell: object) -> object:
    """A cell of CSV as a number where it is one."""
    try:
        return float(str(cell))
    except ValueError:
        return "" if cell is None else str(cell)

"""The contract of every table of the report and of the pages: each is whole in each format, as those of the verbs are."""

from __future__ import annotations

import csv
import html
import io
import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from analytics.language.language import ENGLISH
from analytics.render.tables import VerbAnswer, document
from analytics.tables.key_figures import DECISION_FIGURES, WINDOW_FIGURES, key_figures
from analytics.tables.palette import LIGHT
from analytics.tables.report_sections import chapters
from dashboard.pages import PAGES
from dashboard.render import panel
from fallow.outside_text import csv_cell, markdown_text
from tests.core.test_table_verbs import KEY, faults, heads_of, keys_of, tables_schema, unique
from tests.dashboard.planned import WEEK, Planned, planned_site

if TYPE_CHECKING:
    from collections.abc import Callable

    from analytics.tables.table import Table


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    return planned_site(tmp_path_factory.getbasetemp())


def shown_on(page: Any, planned: Planned, monkeypatch: pytest.MonkeyPatch) -> list[Table]:
    """The tables of a page, each as often as it stands there."""
    tables: list[Table] = []
    draw: Callable[..., Any] = panel.section_tables

    def kept(view: Any, colours: Any, table: Table, *how: Any, **named: Any) -> Any:
        tables.append(table)
        return draw(view, colours, table, *how, **named)

    monkeypatch.setattr(panel, "section_tables", kept)
    page.content(planned.view(WEEK), LIGHT)
    return tables


def test_every_table_of_the_report_is_whole_in_every_format(planned: Planned) -> None:
    report = planned.view(WEEK).report
    tables = [each for _, sections in chapters(report) for each in sections]
    assert len(tables) > 15
    for each in (*tables, key_figures(report, (*DECISION_FIGURES, *WINDOW_FIGURES))):
        assert_whole(each)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.listed and page.path not in ("/report", "/settings", "/findings", "/what-if")],
    ids=lambda page: page.path,
)
def test_every_table_of_the_pages_is_whole_in_every_format(
    page: Any, planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = shown_on(page, planned, monkeypatch)
    assert tables
    for each in tables:
        assert_whole(each)


def assert_whole(table: Table) -> None:
    """Its rows are in JSON as its columns say, and in CSV and Parquet; people read its title and each head."""
    answer = VerbAnswer("", (), "", {}, (table,))
    content = json.loads(document(answer, "json", ENGLISH), object_pairs_hook=unique)["tables"]
    keys = keys_of(table)
    assert [key for key in keys if not KEY.fullmatch(key)] == []
    assert all(list(row) == keys for row in content[table.name]["rows"])
    assert len(content[table.name]["rows"]) == len(table.rows)
    assert faults(tables_schema((table,)), content) == [], table.name
    if table.columns:
        frame = pl.read_parquet(document(answer, "parquet", ENGLISH))
        head, *rows = csv.reader(io.StringIO(document(answer, "csv", ENGLISH).decode(), newline=""))
        assert frame.columns == head == heads_of(table.columns)
        assert frame.height == len(rows) == len(table.rows)
        assert [[read(cell) for cell in row] for row in rows] == [
            [read(csv_cell(cell)) for cell in row] for row in frame.rows()
        ]
    for form, written in (("text", str.upper), ("md", markdown_text), ("html", str)):
        assert written(str(table.title)) in html.unescape(document(answer, form, ENGLISH).decode()), (table.name, form)
    if table.listed and table.audience != "programs":
        shown = html.unescape(document(answer, "md", ENGLISH).decode())
        assert [
            each.key
            for each in table.heads
            if each.kind != "bar" and markdown_text(ENGLISH.shown(each.title)) not in shown
        ] == [], table.name


def read(cell: object) -> object:
    """A cell of CSV as a number where it is one."""
    try:
        return float(str(cell))
    except ValueError:
        return "" if cell is None else str(cell)

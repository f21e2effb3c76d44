"""Tables as a document: text, Markdown, HTML, JSON, CSV and Parquet. Every verb that shows tables prints them here."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import reduce
from typing import Any

import polars as pl

from analytics.language.language import Language
from analytics.language.plain_text import PAGE_COLUMNS, wrap
from analytics.language.sentences import tr
from analytics.render.report.markdown import section_parts
from analytics.render.report.text import for_text, section_text
from analytics.tables.table import Column, JsonType, Kind, Table, table_json
from fallow import __version__
from fallow.clock import format_ms, to_ms
from fallow.csv_text import csv_text
from fallow.errors import UsageError
from fallow.outside_text import json_text, markdown_text, visible_lines


def as_csv(table: pl.DataFrame) -> bytes:
    """UTF-8 with a header, values as in the commands' CSV: empty is unknown, moments are RFC 3339.

    A text that a spreadsheet would run begins with an apostrophe.
    """
    rows = ([_written(value) for value in row] for row in table.iter_rows())
    return csv_text(table.columns, rows, "\r\n").encode()  # lines end as in RFC 4180


def _written(value: object) -> object:
    if isinstance(value, datetime):
        return format_ms(to_ms(value))
    return f"{value:f}" if isinstance(value, Decimal) else value


def as_parquet(table: pl.DataFrame, metadata: dict[str, str] | None = None) -> bytes:
    """The table as it is."""
    target = io.BytesIO()
    table.write_parquet(target, metadata=metadata)
    return target.getvalue()


@dataclass(frozen=True)
class VerbAnswer:
    """What a verb answers.

    Attributes:
        title: what was asked.
        about: what people read above the tables: the window, the age of the data.
        warning: what is simulated; empty where nothing is.
        facts: what programs read beside the tables, such as the window, as JSON values.
        tables: in the order in which they are shown.
    """

    title: str
    about: tuple[str, ...]
    warning: str
    facts: Mapping[str, object]
    tables: tuple[Table, ...]

    @property
    def for_people(self) -> tuple[Table, ...]:
        """The tables that are not for programs alone."""
        return tuple(each for each in self.tables if each.audience != "programs")

    def table(self, name: str | None) -> Table:
        """Return the table of that name, by default the first; raises UsageError where there is none."""
        names = [each.name for each in self.tables if each.columns]
        if not names:
            raise UsageError("the answer has no table", "take --format text or json")
        for each in self.tables:
            if each.name == (name or names[0]):
                return each
        raise UsageError(f"there is no table '{name}' in this answer", f"it has {', '.join(names)}")


def text(answer: VerbAnswer, language: Language, width: int = PAGE_COLUMNS) -> bytes:
    """Return plain text of that many columns."""
    spoken = for_text(language)
    about = (line for each in answer.about for line in wrap(spoken.translate(each), width, "", "  "))
    blocks = ["\n".join(wrap(spoken.translate(answer.warning), width)), "\n".join(about)]
    blocks += [section_text(each, spoken, width) for each in answer.for_people]
    return (visible_lines("\n\n".join(each for each in blocks if each)) + "\n").encode()


def markdown(answer: VerbAnswer, language: Language) -> bytes:
    """Return Markdown."""
    spoken = for_text(language)
    parts = [f"# {markdown_text(spoken.translate(answer.title))}"]
    parts += [markdown_text(spoken.translate(each)) for each in (*answer.about, answer.warning) if each]
    parts += [part for each in answer.for_people for part in section_parts(each, spoken)]
    return ("\n\n".join(each for each in parts if each) + "\n").encode()


def html(answer: VerbAnswer, language: Language) -> bytes:
    """Return one page without scripts that needs nothing beside itself."""
    # templates and images are loaded only where a page is made
    from analytics.render.html.charts import drawing
    from analytics.render.html.marked import marked
    from analytics.render.html.page import environment, style_hash, style_sheet

    style = style_sheet()
    page = (
        environment()
        .get_template("tables.html")
        .render(
            translate=language.translate,
            mark=lambda cell: marked(cell, language),
            draw=lambda table: drawing(table, language),
            language=language,
            title=language.translate(answer.title),
            about=answer.about,
            warning=answer.warning,
            tables=answer.for_people,
            style=style,
            style_hash=style_hash(style),
            version=__version__,
        )
    )
    return page.encode()


def mail(answer: VerbAnswer, language: Language) -> str:
    """Return the HTML body of a mail, whose tables list their rows as texts, for screens down to a phone's.

    Styles are inline, since mail programs drop style sheets; the one that there is only adds the dark colours.
    """
    from analytics.render.html.marked import marked
    from analytics.render.html.page import environment

    return (
        environment()
        .get_template("mail_tables.html")
        .render(
            mark=lambda cell: marked(cell, language),
            labelled=lambda label, value: marked(tr("{label}: {value}", label=label, value=value), language),
            ended=lambda label: marked(tr("{label}:", label=label), language),
            language=language,
            title=language.translate(answer.title),
            about=answer.about,
            warning=answer.warning,
            tables=answer.for_people,
        )
    )


def json(answer: VerbAnswer) -> bytes:
    """Return JSON: the facts, and by name each table with its answer in English and its rows."""
    tables = {each.name: table_json(each) for each in answer.tables}
    return (json_text({**answer.facts, "tables": tables}) + "\n").encode()


_TYPES: Mapping[JsonType, pl.DataType | type[pl.DataType]] = {
    "string": pl.String,
    "number": pl.Float64,
    "integer": pl.Int64,
    "boolean": pl.Boolean,
    "array": pl.String,
    "object": pl.String,
}


_NAMES: tuple[Kind, ...] = ("gpu", "host", "finding")
"""Kinds of names that have no space in them."""


def frame(table: Table) -> pl.DataFrame:
    """Return the rows as programs read them, in the order of the columns.

    The columns of a record have its name before theirs. Lists of texts are joined; other lists and objects are JSON text.
    """
    leaves = list(_leaves(table.columns))
    rows = [[_flat(reduce(_inside, path, row), each) for path, each in leaves] for row in table.records()]
    schema = {"_".join(path): _TYPES[each.value_type] for path, each in leaves}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _leaves(columns: Iterable[Column], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Column]]:
    """Yield the columns for programs with the keys that lead to their values; a record's own stand for it."""
    for each in columns:
        own = (*path, each.key)
        if each.value_type == "object" and each.columns and each.columns[0].key:
            yield from _leaves(each.columns, own)
        elif each.audience != "people":
            yield own, each


def _inside(value: Any, key: str) -> Any:
    return None if value is None else value[key]


def _flat(value: Any, column: Column) -> object:
    if value is None or column.value_type not in ("array", "object"):
        return value
    if column.value_type == "array" and all(isinstance(each, str) for each in value):
        return (" " if column.kind in _NAMES else "; ").join(value) or None
    return json_text(value, None)


PAGES: Mapping[str, Callable[[VerbAnswer, Language], bytes]] = {"text": text, "md": markdown, "html": html}
FILES: Mapping[str, Callable[[pl.DataFrame], bytes]] = {
    "csv": lambda rows: csv_text(rows.columns, rows.iter_rows()).encode(),
    "parquet": as_parquet,
}
FORMATS = ("text", "json", "csv", "md", "html", "parquet")


def document(
    answer: VerbAnswer, form: str, language: Language, table: str | None = None, width: int = PAGE_COLUMNS
) -> bytes:
    """Return the answer in one of FORMATS, or one `table` of it; without that, CSV and Parquet hold the first."""
    if table is not None:
        answer = replace(answer, tables=(answer.table(table),))
        if form in PAGES and not answer.for_people:
            raise UsageError(f"the table '{table}' is for programs", "take --format json, csv or parquet")
    if form == "text":
        return text(answer, language, width)
    if form == "json":
        return json(answer)
    if form in FILES:
        return FILES[form](frame(answer.table(table)))
    return PAGES[form](answer, language)

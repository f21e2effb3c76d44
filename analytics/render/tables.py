"""Tables as a document: text, Markdown, HTML, JSON, CSV and Parquet, for every verb that shows tables."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import reduce
from typing import Any

import polars as pl

from analytics.language.sentences import PAGE_COLUMNS, Language, tr, wrap
from analytics.render.one_screen import screen_lines
from analytics.render.report.markdown import section_parts
from analytics.render.report.text import for_text, section_text, written
from analytics.tables.table import Column, JsonType, Kind, Table, table_json
from fallow import __version__
from fallow.clock import format_ms, to_ms
from fallow.csv_text import csv_text
from fallow.errors import UsageError
from fallow.outside_text import json_text, markdown_text, visible_lines


def as_csv(table: pl.DataFrame) -> bytes:
    """Return UTF-8 with a header and values as in the commands' CSV: empty is unknown, moments are RFC 3339.

    A text that a spreadsheet would execute begins with an apostrophe.
    """
    rows = ([_written(value) for value in row] for row in table.iter_rows())
    return csv_text(table.columns, rows, "\r\n").encode()  # lines end as in RFC 4180


def _written(value: object) -> object:
    if isinstance(value, datetime):
        return format_ms(to_ms(value))
    return f"{value:f}" if isinstance(value, Decimal) else value


def as_parquet(table: pl.DataFrame, metadata: dict[str, str] | None = None) -> bytes:
    target = io.BytesIO()
    table.write_parquet(target, metadata=metadata)
    return target.getvalue()


@dataclass(frozen=True)
class VerbAnswer:
    """The answer of a verb.

    Attributes:
        title: the request.
        about: what people read above the tables: the window, the age of the data.
        warning: which GPUs are simulated; empty if none are.
        facts: what programs read beside the tables, such as the window, as JSON values.
        tables: the tables in their order.
    """

    title: str
    about: tuple[str, ...]
    warning: str
    facts: Mapping[str, object]
    tables: tuple[Table, ...]

    @property
    def for_people(self) -> tuple[Table, ...]:
        """Return the tables that are not for programs only."""
        return tuple(each for each in self.tables if each.audience != "programs")

    def table(self, name: str | None) -> Table:
        """Return the table of this name, by default the first. Raises UsageError if there is none."""
        names = [each.name for each in self.tables if each.columns]
        if not names:
            raise UsageError("the answer has no table", "take --format text or json")
        for each in self.tables:
            if each.name == (name or names[0]):
                return each
        raise UsageError(f"there is no table '{name}' in this answer", f"it has {', '.join(names)}")


def text(answer: VerbAnswer, language: Language, width: int = PAGE_COLUMNS) -> bytes:
    """Return plain text of this many columns."""
    spoken = for_text(language)
    blocks = [*_about(answer, spoken, width), *(section_text(each, spoken, width) for each in answer.for_people)]
    return (visible_lines("\n\n".join(blocks)) + "\n").encode()


def _about(answer: VerbAnswer, spoken: Language, width: int) -> list[str]:
    about = (line for each in answer.about for line in wrap(spoken.translate(each), width, "", "  "))
    return [each for each in ("\n".join(wrap(spoken.translate(answer.warning), width)), "\n".join(about)) if each]


def terminal_text(answer: VerbAnswer, language: Language, width: int, most_lines: int | None) -> bytes:
    """Return plain text; the first table's answer leads. `most_lines` cuts the tables; None shows all rows."""
    spoken, tables = for_text(language), list(answer.for_people)
    head = _about(answer, spoken, width)
    if tables and tables[0].headline:
        head = ["\n".join(wrap(written(tables[0].headline, spoken), width)), *head]
        tables[0] = replace(tables[0], headline="")
        if not any((tables[0].row_count, tables[0].lines, tables[0].folds, tables[0].notes)):
            del tables[0]
    if most_lines is None:
        blocks = [section_text(each, spoken, width) for each in tables]
    else:
        above = sum(len(each.splitlines()) + 1 for each in head)
        lines = screen_lines(tables, spoken, width, most_lines - above)
        blocks = ["\n".join(lines)] if lines else []
    whole = "\n\n".join([*head, *blocks])
    return (visible_lines(whole) + "\n").encode()


def markdown(answer: VerbAnswer, language: Language) -> bytes:
    spoken = for_text(language)
    parts = [f"# {markdown_text(spoken.translate(answer.title))}"]
    parts += [markdown_text(spoken.translate(each)) for each in (*answer.about, answer.warning) if each]
    parts += [part for each in answer.for_people for part in section_parts(each, spoken)]
    return ("\n\n".join(each for each in parts if each) + "\n").encode()


def html(answer: VerbAnswer, language: Language) -> bytes:
    """Return one self-contained page without scripts."""
    # templates and images are loaded only where a page is made
    from analytics.render.html.charts import drawing
    from analytics.render.html.page import rendered, style_hash, style_sheet

    style = style_sheet()
    return rendered(
        "tables.html",
        language,
        draw=lambda table: drawing(table, language),
        title=language.translate(answer.title),
        about=answer.about,
        warning=answer.warning,
        tables=answer.for_people,
        style=style,
        style_hash=style_hash(style),
        version=__version__,
    ).encode()


def mail(answer: VerbAnswer, language: Language) -> str:
    """Return the HTML body of a mail, whose tables list their rows as text, for narrow screens.

    Styles are inline, because mail programs remove style sheets; the only style sheet adds the dark colours.
    """
    from analytics.render.html.marked import marked
    from analytics.render.html.page import rendered

    return rendered(
        "mail_tables.html",
        language,
        labelled=lambda label, value: marked(tr("{label}: {value}", label=label, value=value), language),
        ended=lambda label: marked(tr("{label}:", label=label), language),
        title=language.translate(answer.title),
        about=answer.about,
        warning=answer.warning,
        tables=answer.for_people,
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
"""Kinds of names without a space."""


def frame(table: Table) -> pl.DataFrame:
    """Return the rows for programs, in the order of the columns.

    The columns of a record have its name as prefix. Lists of texts are joined; other lists and objects are JSON text.
    """
    leaves = list(_leaves(table.columns))
    rows = [[_flat(reduce(_inside, path, row), each) for path, each in leaves] for row in table.records()]
    schema = {"_".join(path): _TYPES[each.value_type] for path, each in leaves}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _leaves(columns: Iterable[Column], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Column]]:
    """Yield the columns for programs with the keys that lead to their values; columns of a record replace it."""
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
    answer: VerbAnswer,
    form: str,
    language: Language,
    table: str | None = None,
    *,
    width: int = PAGE_COLUMNS,
    most_lines: int | None = None,
) -> bytes:
    """Return the answer in one of FORMATS, or one `table` of it. By default CSV and Parquet have the first table.

    Every format has all rows, except text that `most_lines` limits.
    """
    answer = replace(answer, tables=tuple(replace(each, shown=None) for each in answer.tables))
    if table is not None:
        answer = replace(answer, tables=(answer.table(table),))
        if form in PAGES and not answer.for_people:
            raise UsageError(f"the table '{table}' is for programs", "take --format json, csv or parquet")
    if form == "text":
        return terminal_text(answer, language, width, most_lines)
    if form == "json":
        return json(answer)
    if form in FILES:
        return FILES[form](frame(answer.table(table)))
    return PAGES[form](answer, language)

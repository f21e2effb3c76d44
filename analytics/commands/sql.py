"""`fallow sql`: query the lake, the ledger, findings, recommendations and prices in DuckDB's SQL."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path

from analytics.commands.table_verb import Tables, TableVerb, VerbInputs
from analytics.language.sentences import Number, tr
from analytics.report.report import Report
from analytics.sql.session import answer, check_statement, described, names, write_views
from analytics.tables.table import Column, JsonType, Kind, Table, column
from fallow.clock import format_ms, to_ms
from fallow.errors import UsageError
from fallow.output import say
from fallow.outside_text import json_text

_MOST_ROWS = 200


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "statement", nargs="?", metavar="SQL", help="a SELECT statement; without it the tables and columns are listed"
    )
    parser.add_argument("--attach", metavar="FILE", help="write these tables to a DuckDB file for other tools")


def _check(args: argparse.Namespace) -> None:
    if args.attach is not None and args.statement is not None:
        raise UsageError("--attach writes all tables", "leave out the SQL, or --attach")
    if args.statement is not None:
        check_statement(args.statement)


def _tables(given: VerbInputs, args: argparse.Namespace) -> Tables:
    """Yield the rows of the statement; without a statement the tables for queries."""
    basis = given.report
    if args.statement is not None:
        yield _result(basis, args.statement)
        return
    if args.attach is not None:
        write_views(basis, Path(args.attach))
        say(f"wrote {args.attach}")
    yield from _catalogue(basis)


def _result(basis: Report, statement: str) -> Table:
    found = answer(basis, statement)
    return Table(
        "result",
        tr("Result"),
        "",
        tr("Rows: {number}.", number=len(found.rows)),
        tuple(_column(place, *each) for place, each in enumerate(found.columns)),
        found.rows,
        shown=_MOST_ROWS,
        rest=tr("{number} more rows are in --format csv, json and parquet.", number=len(found.rows) - _MOST_ROWS),
    )


def _kinds(name: str) -> tuple[Kind, JsonType]:
    """Return the kind and the JSON type for a type of DuckDB."""
    if name.endswith("]"):
        return "words", "array"
    if name.startswith(("STRUCT", "MAP", "UNION")):
        return "words", "object"
    if name in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"):
        return "count", "integer"
    if name in ("DOUBLE", "FLOAT", "HUGEINT", "UHUGEINT", "UBIGINT") or name.startswith("DECIMAL"):
        return "number", "number"
    return "words", "boolean" if name == "BOOLEAN" else "string"


def _column(place: int, name: str, type_name: str) -> Column:
    kind, json_type = _kinds(type_name)

    def machine(row: tuple[object, ...]) -> object:
        return _plain(row[place], json_type)

    def cell(row: tuple[object, ...]) -> object:
        value = machine(row)
        if isinstance(value, float):
            return Number.as_given(value)
        return value if value is None or kind == "count" or isinstance(value, str) else json_text(value, None)

    return Column(name, name, kind, cell, machine, json_type)


def _plain(value: object, json_type: JsonType) -> object:
    """Return a value of DuckDB for JSON; NaN and infinity become None."""
    if value is None or json_type in ("boolean", "integer"):
        return value
    if json_type == "number":
        number = float(value)  # type: ignore[arg-type]  # of whole and decimal numbers
        return number if isfinite(number) else None
    if isinstance(value, list | tuple):
        return [_plain(each, "array") for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each, "object") for key, each in value.items()}
    if isinstance(value, datetime):
        value = format_ms(to_ms(value if value.tzinfo else value.replace(tzinfo=UTC)))
    elif isinstance(value, bytes):
        value = value.hex()
    return value if isinstance(value, bool | int | str) and json_type in ("array", "object") else str(value)


def _catalogue(basis: Report) -> Tables:
    """Yield the tables, and for programs also each column with its meaning."""
    found = {name: described(name) for name in names(basis)}
    yield Table(
        "tables",
        tr("Tables for SQL"),
        "",
        tr("Name any of these {number} tables in a SELECT.", number=len(found)),
        (
            column("table", tr("table"), "name", lambda each: each[0]),
            column("row", tr("a row"), "words", lambda each: each[1][0]),
            column("columns", tr("columns"), "sentence", lambda each: ", ".join(each[1][1])),
        ),
        tuple(found.items()),
    )
    yield Table(
        "columns",
        "",
        "",
        "",
        (
            column("table", "", "name", lambda each: each[0]),
            column("column", "", "name", lambda each: each[1]),
            column("meaning", "", "words", lambda each: each[2]),
        ),
        tuple((name, key, meaning) for name, (_, columns) in found.items() for key, meaning in columns.items()),
        audience="programs",
    )


VERB = TableVerb(tr("Questions in SQL"), _tables, _flags, _check, since="all")

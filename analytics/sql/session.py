"""One DuckDB connection with the views that a statement names: it reads, and cannot write or open anything else."""

# ruff: noqa: S608  # names are those of tables and columns, and every text is quoted by _literal

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import polars as pl

from analytics.frames import empty, read_frame
from analytics.report.report import Report
from analytics.sql.views import DERIVED
from fallow import schema
from fallow.clock import DAY_MS, floor_ms, from_ms, utc_day
from fallow.errors import FallowError, UsageError

LAKE = tuple(each for each in schema.TABLES if not each.derived)
"""The lake's own tables, as agents, imports and people wrote them."""
_ALLOWED = ("SELECT", "EXPLAIN")


def names(basis: Report) -> tuple[str, ...]:
    """Return the views of a scope; for a team or a user only those whose rows can be separated from the others."""
    derived = [name for name, view in DERIVED.items() if view.is_personal or not basis.scope.is_personal]
    return (*derived, *(each.name for each in LAKE if not basis.scope.is_personal and each.name not in DERIVED))


@dataclass(frozen=True)
class SqlAnswer:
    """The rows of a statement, with the name and DuckDB's type of each column."""

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[object, ...], ...]


def answer(basis: Report, statement: str) -> SqlAnswer:
    """Return the result of one SELECT, see `check_statement`. Raises UsageError for a statement that DuckDB refuses.

    Times of day are those of `report.timezone`.
    """
    connection = duckdb.connect()
    named, known = _named_tables(connection, statement), names(basis)
    make_views(connection, basis, [each for each in known if each in named] or known)
    root = Path(basis.whole.inputs.lake.root)
    if root.is_dir() and not named.isdisjoint(each.name for each in LAKE):
        connection.execute(f"SET allowed_directories = [{_literal(str(root.resolve()))}]")
    connection.execute(f"SET TimeZone = {_literal(basis.whole.inputs.settings.text('report.timezone'))}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    try:
        found = connection.sql(statement)
        columns = tuple(zip(found.columns, map(str, found.types), strict=True))
        rows = tuple(found.fetchall())
    except duckdb.Error as error:
        raise _refusal(error, known) from error
    names_twice = sorted({name for name, _ in columns if found.columns.count(name) > 1})
    if names_twice:
        raise UsageError(f"two columns are called {names_twice[0]}", "name one of them with AS")
    return SqlAnswer(columns, rows)


def write_views(basis: Report, file: Path) -> None:
    """Write a DuckDB file: derived views as tables of this moment, the lake's tables as views of its files."""
    if file.exists():
        raise FallowError(f"{file} exists", "name a new file, or remove it first")
    try:
        with duckdb.connect(str(file)) as connection:
            make_views(connection, basis, names(basis))
    except duckdb.Error as error:
        file.unlink(missing_ok=True)
        raise FallowError(
            f"cannot write {file}: {_first_line(error)}", "check that the folder exists and is writable"
        ) from error


def check_statement(statement: str) -> None:
    """Raise UsageError for text that is not SQL, and for anything but one SELECT."""
    try:
        found = duckdb.extract_statements(statement)
    except duckdb.Error as error:
        raise UsageError(f"this is not SQL: {_first_line(error)}", "see docs/sql.md for examples") from error
    if len(found) != 1 or found[0].type.name not in _ALLOWED:
        raise UsageError(
            "fallow sql runs one SELECT", "remove everything else, or use --attach FILE with your own tools"
        )


def _named_tables(connection: duckdb.DuckDBPyConnection, statement: str) -> set[str]:
    """Return the tables that a statement names; DESCRIBE and SUMMARIZE name theirs too."""
    try:
        return {each.lower() for each in connection.get_table_names(statement)}
    except duckdb.Error:
        return set()


def _refusal(error: duckdb.Error, known: Sequence[str]) -> UsageError:
    return UsageError(f"DuckDB refuses this: {_first_line(error)}", f"the tables are {', '.join(known)}")


def _first_line(error: duckdb.Error) -> str:
    return str(error).partition("\n")[0]


def described(name: str) -> tuple[str, dict[str, str]]:
    """Return the meaning of a row of a view, and the meaning of each column."""
    if name in DERIVED:
        return DERIVED[name].row, {key: meaning for key, (_, meaning) in DERIVED[name].columns.items()}
    table = schema.table(name)
    return table.row, {each.name: each.meaning for each in table.columns} | {"host": "the host of the row"}


def make_views(connection: duckdb.DuckDBPyConnection, basis: Report, wanted: Iterable[str]) -> None:
    """Make tables of derived rows and views of the lake's files, with a comment on each column."""
    for name in wanted:
        if name in DERIVED:
            connection.from_arrow(DERIVED[name].frame(basis).to_arrow()).create(f'"{name}"')
        else:
            _lake_view(connection, basis, schema.table(name))
        row, columns = described(name)
        connection.execute(f'COMMENT ON {"TABLE" if name in DERIVED else "VIEW"} "{name}" IS {_literal(row)}')
        for column, meaning in columns.items():
            connection.execute(f'COMMENT ON COLUMN "{name}"."{column}" IS {_literal(meaning)}')


def _lake_view(connection: duckdb.DuckDBPyConnection, basis: Report, table: schema.LakeTable) -> None:
    """Create the view of the window's rows and of the scope's GPUs, as they are in the files."""
    lake, summary = basis.whole.inputs.lake, basis.part.summary
    days = [utc_day(day) for day in range(floor_ms(summary.since_ms, DAY_MS), summary.until_ms, DAY_MS)]
    files, root = lake.files(table.name, dates=days), Path(lake.root).resolve()
    # every column is there, whatever the files have
    rows = _frame_with_moments(empty(table), table).with_columns(host=pl.lit("")).clear()
    if files and not root.is_dir():  # files in an object store are read by fallow's own client
        rows = _frame_with_moments(read_frame(files, table), table)
    connection.from_arrow(rows.to_arrow()).create(f'"{table.name} rows"')
    source = f'SELECT * FROM "{table.name} rows"'
    if files and root.is_dir():
        paths = ", ".join(_literal(str(root / file.key)) for file in files)
        options = "union_by_name = true, hive_partitioning = true, hive_types_autocast = false"
        source += f" UNION ALL BY NAME SELECT * EXCLUDE (date) FROM read_parquet([{paths}], {options})"
    within = [f"time >= {_moment(summary.since_ms)}", f"time < {_moment(summary.until_ms)}"]
    if not basis.scope.is_all:
        column = "gpu" if "gpu" in table.names else "host"
        own = [_literal(each) for each in basis.part.inside.segments[column].unique().sort()]
        within.append(f"{column} IN ({', '.join(own) or 'NULL'})")
    connection.execute(f'CREATE VIEW "{table.name}" AS SELECT * FROM ({source}) WHERE {" AND ".join(within)}')


def _frame_with_moments(frame: pl.DataFrame, table: schema.LakeTable) -> pl.DataFrame:
    return frame.with_columns(
        pl.from_epoch(each.name, "ms").cast(pl.Datetime("ms")).dt.replace_time_zone("UTC")
        for each in table.columns
        if each.type is schema.Type.TIMESTAMP
    )


def _moment(moment_ms: int) -> str:
    return f"{_literal(from_ms(moment_ms).isoformat())}::TIMESTAMPTZ"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

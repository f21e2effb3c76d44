"""agent/rows.py is written from the schema (`python -m tests.agent.test_rows`, part of `make docs`)."""

from __future__ import annotations

from fallow import schema
from fallow.schema import LakeColumn, LakeTable, Type
from tests.conftest import REPOSITORY

MODULE = REPOSITORY / "agent" / "rows.py"
TABLES = (
    schema.GPU, schema.PROCESS, schema.HOST, schema.DEVICE, schema.SERVING, schema.EVENT, schema.AGENT,
    schema.ALLOCATION,
)  # fmt: skip
"""What the agent writes."""

NEVER_NULL = {"time", "interval_ms", "health", "kind"}
TYPES = {Type.BOOL: "bool", Type.STRING: "str", Type.FLOAT: "float", Type.DOUBLE: "float"}

HEAD = '''"""Typed rows of the tables that the agent writes. Written by `make docs` from fallow/schema; do not edit.

A column that is left out or None is unknown. Times are milliseconds since the epoch. Units stand in the names;
`fallow schema` says what each column means.
"""

from __future__ import annotations

from typing import TypeAlias, TypedDict
'''


def module() -> str:
    """The text of agent/rows.py: a TypedDict for each table, `Rows` with the rows of all of them, and `AnyRow`."""
    parts = [HEAD, *(_table(table) for table in TABLES)]
    lists = [f"    {table.name}: list[{_name(table)}]" for table in TABLES]
    parts.append("\n".join(["class Rows(TypedDict, total=False):", '    """Rows by table."""', "", *lists]) + "\n")
    names = " | ".join(_name(table) for table in TABLES)
    alias = f'AnyRow: TypeAlias = {names}\n"""A row of any table that the agent writes."""\n'
    return "\n\n".join([*parts, alias])


def _table(table: LakeTable) -> str:
    lines = [f"class {_name(table)}(TypedDict, total=False):", f'    """A row of the `{table.name}` table."""', ""]
    return "\n".join([*lines, *(f"    {column.name}: {_type(table, column)}" for column in table.columns)]) + "\n"


def _name(table: LakeTable) -> str:
    return f"{table.name.capitalize()}Row"


def _type(table: LakeTable, column: LakeColumn) -> str:
    kind = TYPES.get(column.type, "int")
    if table is schema.EVENT and column.name == "time":
        return f"{kind} | None"  # None until it is written: it has just happened
    if column.name == "pid" and table is schema.PROCESS:
        return kind
    key = column.name == "gpu" and column.key and table not in (schema.SERVING, schema.ALLOCATION)
    return kind if key or column.name in NEVER_NULL else f"{kind} | None"


def test_the_rows_are_those_of_the_schema() -> None:
    assert MODULE.read_text(encoding="utf-8") == module(), "run python -m tests.agent.test_rows"


if __name__ == "__main__":
    MODULE.write_text(module(), encoding="utf-8")

"""The JSON Schema (2020-12) of columns: rows, records, tables and whole answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from analytics.tables.table import Column, Kind
from analytics.workloads.model import GRADES

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_UNITS: dict[Kind, str] = {
    "gpu_hours": "in GPU-hours",
    "duration": "in seconds",
    "share": "a ratio",
    "share_bar": "a ratio",
    "money": "an amount of money",
}
_DAY = r"^\d{4}-\d\d-\d\d"
_PATTERNS = {"day": rf"{_DAY}$", "moment": rf"{_DAY}(T\d\d:\d\d:\d\d(\.\d+)?Z)?$"}


def object_schema(columns: Iterable[Column], description: str = "") -> Schema:
    """Return the schema of a record with these columns; a column with an empty key describes all other names."""
    programs = [each for each in columns if each.audience != "people"]
    named = {each.key: value_schema(each) for each in programs if each.key}
    others = [value_schema(each) for each in programs if not each.key]
    return {
        "type": "object",
        **({"description": description} if description else {}),
        **({"required": list(named), "properties": named} if named else {}),
        "additionalProperties": others[0] if others else False,
    }


def value_schema(column: Column) -> Schema:
    """Return the schema of a column's values, with its title and unit as the description."""
    unit = _UNITS.get(column.kind, "")
    described = "; ".join(part for part in (str(column.title), unit) if part)
    about = {"description": described} if described else {}
    if column.value_type == "array":
        items = object_schema(column.columns) if column.columns else _scalar(column, nullable=column.kind == "share")
        found: Schema = {"type": "array", "items": items}
    elif column.value_type == "object":
        found = object_schema(column.columns) if column.columns else {"type": "object"}
    else:
        return about | _scalar(column, nullable=column.nullable)
    return about | _or_null(found, nullable=column.nullable)


def _scalar(column: Column, *, nullable: bool) -> Schema:
    kind = column.value_type
    if kind == "array":
        kind = "integer" if column.kind == "count" else "number" if column.is_figure else "string"
    found: Schema = {"type": kind}
    if column.kind == "grade" and kind == "string":
        found |= {"enum": [*GRADES, *([None] if nullable else ())]}
    if column.kind in _PATTERNS and kind == "string":
        found |= {"pattern": _PATTERNS[column.kind]}
    return _or_null(found, nullable=nullable)


def _or_null(schema: Schema, *, nullable: bool) -> Schema:
    return schema | {"type": [schema["type"], "null"]} if nullable else schema


ANY_TABLES: Schema = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "required": ["rows"],
        "properties": {"headline": {"type": "string"}, "rows": {"type": "array", "items": {"type": "object"}}},
        "additionalProperties": False,
    },
}
"""Schema of tables by name, whose names and columns depend on the lake."""

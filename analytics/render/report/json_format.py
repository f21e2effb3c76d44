"""The report as JSON, and the schema that describes it."""

from __future__ import annotations

from analytics.language.sentences import Language
from analytics.render.json_schema import ANY_TABLES, DIALECT, Schema, object_schema
from analytics.report.parts import LedgerFigures
from analytics.report.report import Report
from analytics.tables.method import data_quality
from analytics.tables.report_columns import REPORT_COLUMNS
from analytics.tables.report_sections import chapters
from analytics.tables.table import Table, record, table_json
from fallow.outside_text import json_text


def report_schema() -> Schema:
    """Return the JSON Schema (2020-12) of `content`."""
    about: Schema = {"$schema": DIALECT, "title": "fallow report --format json"}
    schema = about | object_schema(REPORT_COLUMNS, "One window of one lake. Null is unknown, 0 is measured.")
    schema["required"].append("tables")
    schema["properties"]["tables"] = ANY_TABLES | {
        "description": "The other tables of the report by name; none where nothing was seen in the window."
    }
    return schema


class JsonFormat:
    name = "json"
    suffix = ".json"
    media_type = "application/json"

    def render(self, report: Report, language: Language) -> bytes:  # noqa: ARG002
        return (json_text(content(report)) + "\n").encode()


def content(report: Report) -> dict[str, object]:
    """Return everything in the report, as JSON values.

    In a window without data every figure is null: zero would be a measurement.
    """
    whole = record(REPORT_COLUMNS, report)
    figures = known_figures(report.ledger, {name: whole[name] for name in _FIGURES})
    return whole | figures | {"tables": {each.name: table_json(each) for each in other_tables(report)}}


def other_tables(report: Report) -> list[Table]:
    """Return the tables of the report whose rows have no name of their own; without data the problems alone."""
    if report.ledger.is_empty:
        return [each for each in (data_quality(report.quality),) if each is not None]
    own = {each.key for each in REPORT_COLUMNS if each.value_type in ("array", "object")}
    return [each for _, sections in chapters(report) for each in sections if each.columns and each.name not in own]


def known_figures(ledger: LedgerFigures, figures: dict[str, object]) -> dict[str, object]:
    """Return figures of a window as JSON; null if nothing was observed in it."""
    return {name: _unknown(value, name) for name, value in figures.items()} if ledger.is_empty else figures


_FIGURES = ("simulated_gpus", "hosts", "ledger", "value_per_year", "pool_demand", "waste", "sensitivity")
"""Names with figures of the window; trends are made without unknown figures."""
_SETTINGS = ("pue", "price_per_kwh", "grid_kg_per_kwh")
"""Names beside the figures, which are known in any case."""


def _unknown(value: object, name: str = "") -> object:
    """Return the same with null for every measured number."""
    if isinstance(value, dict):
        return {key: _unknown(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [_unknown(each) for each in value]
    return None if isinstance(value, int | float) and name not in _SETTINGS else value

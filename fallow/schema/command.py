"""`fallow schema [TABLE]`: the lake's tables and their columns as text, JSON or Markdown."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from typing import TYPE_CHECKING

from fallow.output import show
from fallow.schema import SCHEMA_VERSION, TABLES, LakeTable, table

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", nargs="?", metavar="TABLE", help="only this table")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--format", choices=("text", "json", "md"), default="text", help="output format (default: text)")
    form.add_argument("--json", action="store_const", const="json", dest="format", help="the same as --format json")


def run(args: argparse.Namespace) -> int:
    tables = TABLES if args.table is None else (table(args.table),)
    if args.format == "json":
        show(json.dumps({"schema_version": SCHEMA_VERSION, "tables": [as_json(each) for each in tables]}, indent=2))
    else:
        write = as_text if args.format == "text" else as_markdown
        show("\n\n".join(write(each) for each in tables))
    return 0


def as_json(described: LakeTable) -> dict[str, object]:
    columns = [dataclasses.asdict(column) | {"type": column.type.value} for column in described.columns]
    return {"name": described.name, "row": described.row, "derived": described.derived, "columns": columns}


def as_markdown(described: LakeTable) -> str:
    """Return a heading, what a row is, and a line for each column; the columns of the key are bold."""
    lines = [f"## {described.name}", "", f"{kind_of(described).capitalize()}: {described.row}.", ""]
    lines += ["| column | type | unit | step | meaning | source |", "|---|---|---|---|---|---|"]
    for column in described.columns:
        name = f"**{column.name}**" if column.key else column.name
        unit = "" if column.unit == "1" else column.unit
        cells = (name, column.type.value, unit, column.resolution, column.meaning, column.source)
        lines.append("|" + "|".join(f" {cell.replace('|', '&#124;')} " if cell else " " for cell in cells) + "|")
    return "\n".join(lines)


def kind_of(described: LakeTable) -> str:
    """Return `derived` for a table that is computed from others, `observed` for samples."""
    return "derived" if described.derived else "observed"


def as_text(described: LakeTable) -> str:
    """Return a heading, and two or more lines for each column; `*` marks the columns of the key."""
    lines = [f"{described.name} ({kind_of(described)}): {described.row}"]
    for column in described.columns:
        unit = f", {column.unit}" if column.unit else ""
        step = f", step {column.resolution}" if column.resolution else ""
        lines.append(f"  {'*' if column.key else ' '} {column.name}  [{column.type.value}{unit}{step}]")
        lines.extend(
            textwrap.wrap(
                f"{column.meaning} (from {column.source})", 94, initial_indent="      ", subsequent_indent="      "
            )
        )
    return "\n".join(lines)

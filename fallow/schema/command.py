"""`fallow schema [TABLE] [--json]`: prints the schema as text or JSON."""

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
    parser.add_argument("table", nargs="?", metavar="TABLE", help="one table only")
    parser.add_argument("--json", action="store_true", help="machine-readable")


def run(args: argparse.Namespace) -> int:
    tables = TABLES if args.table is None else (table(args.table),)
    if args.json:
        show(json.dumps({"schema_version": SCHEMA_VERSION, "tables": [as_json(each) for each in tables]}, indent=2))
    else:
        show("\n\n".join(as_text(each) for each in tables))
    return 0


def as_json(described: LakeTable) -> dict[str, object]:
    columns = [dataclasses.asdict(column) | {"type": column.type.value} for column in described.columns]
    return {"name": described.name, "row": described.row, "derived": described.derived, "columns": columns}


def as_text(described: LakeTable) -> str:
    kind = "derived" if described.derived else "observed"
    lines = [f"{described.name} ({kind}): {described.row}"]
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

"""A reader of Delta Lake's log by its published protocol, without the library that writes it; DuckDB reads files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from pathlib import Path


def actions(table: Path) -> list[dict[str, Any]]:
    """Every action of the log, in order; the tables of the tests have no checkpoints yet."""
    logs = sorted(table.glob("_delta_log/*.json"))
    return [json.loads(line) for log in logs for line in log.read_text(encoding="utf-8").splitlines()]


def live_files(table: Path) -> dict[Path, str]:
    """The files of the newest version, with the date of each."""
    found: dict[Path, str] = {}
    for action in actions(table):
        if removed := action.get("remove"):
            found.pop(table / unquote(removed["path"]))
        if added := action.get("add"):
            found[table / unquote(added["path"])] = added["partitionValues"].get("date", "")
    return found


def comments(table: Path) -> dict[str, str]:
    """The comment of each column."""
    [described] = [action["metaData"] for action in actions(table) if "metaData" in action]
    fields = json.loads(described["schemaString"])["fields"]
    return {field["name"]: field["metadata"].get("comment", "") for field in fields}

"""What a verb that shows tables printed with `--json`."""

from __future__ import annotations

import json
from typing import Any


def rows_of(printed: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table, by its name."""
    return {name: table["rows"] for name, table in json.loads(printed)["tables"].items()}

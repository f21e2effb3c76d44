"""Which labels a Prometheus adds to what it hands on by remote-read, and not to what its API answers."""

from __future__ import annotations

import re

import orjson

from analytics.scraped.server.connection import ServerConnection

_SECTION = re.compile(r"^  external_labels:\n((?:    .*\n)*)", re.MULTILINE)
_NAME = re.compile(r"^    ([a-zA-Z_][a-zA-Z0-9_]*):", re.MULTILINE)


def external_labels(connection: ServerConnection) -> frozenset[str] | None:
    """Their names; None where that is not told, or where series have labels of such a name by themselves."""
    try:
        config = orjson.loads(connection.get("/api/v1/status/config").body)["data"]["yaml"]
        section = _SECTION.search(config)
        names = frozenset(_NAME.findall(section[1])) if section else frozenset()
        if section and len(names) != len(re.findall(r"^    \S", section[1], re.MULTILINE)):
            return None
        own = [orjson.loads(connection.get(f"/api/v1/label/{name}/values").body)["data"] for name in sorted(names)]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return None if any(own) else names

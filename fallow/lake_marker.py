"""The marker of a lake: a small file in its root with the id of the lake.

A path alone does not identify a lake: if a file server is not mounted, the path is an empty folder of the root disk.
Therefore an agent publishes only into a lake whose marker has the id that the agent recorded earlier.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from fallow.errors import DamagedMarkerError, NoLakeError

if TYPE_CHECKING:
    from fallow.stores import Store

MARKER_KEY = "fallow-lake.json"

_MOST_BYTES = 64 << 10
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MOST_TEXT = 80


@dataclass(frozen=True)
class Marker:
    """The content of a marker: the lake's id (a random UUID), its creation time (RFC 3339), and fallow's version."""

    id: str
    made: str
    by: str

    def content(self) -> bytes:
        return json.dumps(asdict(self), indent=2).encode() + b"\n"


def read_marker(store: Store) -> Marker | None:
    """Return the marker, None without one. Raises LakeError if it is unreadable, DamagedMarkerError if damaged."""
    content = store.read_small(MARKER_KEY, _MOST_BYTES)
    return None if content is None else _parsed(store, content)


def is_lake_id(text: str) -> bool:
    """Return whether the text has the form of a lake's id."""
    return _ID.fullmatch(text) is not None


def no_marker(root: str) -> NoLakeError:
    """Return the error for a location without a marker, which may be an unmounted file system."""
    remedy = f"create a lake with `fallow lake init --lake {root}`"
    return NoLakeError(f"there is no fallow lake at {root}", remedy if "://" in root else f"mount it, or {remedy}")


def _parsed(store: Store, content: bytes) -> Marker:
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    lake_id = found.get("id") if isinstance(found, dict) else None
    if not isinstance(lake_id, str) or not is_lake_id(lake_id):
        raise DamagedMarkerError(
            f"{store.url(MARKER_KEY)} is not a marker of a lake",
            "restore it from a backup; or remove it, run `fallow lake init`, and set lake.id to the new id on all"
            " agents",
        )
    return Marker(lake_id, *(_text(found.get(name)) for name in ("made", "by")))


def _text(value: object) -> str:
    return value[:_MOST_TEXT] if isinstance(value, str) else ""

"""How far a server has been read into a lake, in a small file of the user's: it spares repeated work, and is safe to delete."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from analytics.frames import digest
from fallow.errors import FallowError
from fallow.lake import Lake
from fallow.lake_marker import read_marker

_VERSION = 1


@dataclass(frozen=True)
class ReadSpan:
    """All from `since_ms` up to `until_ms` is in the lake; `runs` are rows of who ran on which GPU at that moment."""

    since_ms: int
    until_ms: int
    runs: tuple[dict[str, object], ...] = ()


class ReadingJournal:
    """Of one server, one set of matchers and one lake."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, url: str, match: str, mapping: str, lake: Lake) -> ReadingJournal:
        """The lake counts by its id, so that a new one in the same place is another. Raises LakeError."""
        marker = read_marker(lake.store) if lake.store.exists() else None
        key = digest(url, match, mapping, marker.id if marker else lake.root)
        return cls(_state_folder() / f"{key}.json")

    def read(self) -> ReadSpan | None:
        """None where there is none, or where it cannot be read: what it would spare is done again."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            if found["version"] != _VERSION:
                return None
            return ReadSpan(int(found["since_ms"]), int(found["until_ms"]), tuple(found["runs"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, progress: ReadSpan) -> None:
        """Replaces it at once, or not at all; raises FallowError."""
        content = {
            "version": _VERSION,
            "since_ms": progress.since_ms,
            "until_ms": progress.until_ms,
            "runs": progress.runs,
        }
        beside = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            beside.write_text(json.dumps(content), encoding="utf-8")
            beside.chmod(0o600)
            beside.replace(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise FallowError(
                f"cannot write the journal {self.path}: {error.strerror}",
                "make its folder writable, or set XDG_STATE_HOME to another one",
            ) from error


def _state_folder() -> Path:
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "state") / "fallow" / "prometheus"

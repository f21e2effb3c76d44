"""How far a server has been read into a lake, in a small file of the user's: it spares repeated work, and is safe to delete."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analytics.frames import digest
from fallow.errors import FallowError
from fallow.lake import Lake
from fallow.lake_marker import read_marker


@dataclass(frozen=True, order=True)
class ReadSpan:
    """All from `since_ms` up to `until_ms` is in the lake."""

    since_ms: int
    until_ms: int


class ReadingJournal:
    """Of one server, one set of matchers, one mapping and one lake."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, url: str, match: str, mapping: str, lake: Lake) -> ReadingJournal:
        """The lake counts by its id, so that a new one in the same place is another. Raises LakeError."""
        marker = read_marker(lake.store) if lake.store.exists() else None
        key = digest(url, match, mapping, marker.id if marker else lake.root)
        return cls(_state_folder() / f"{key}.json")

    def read(self) -> tuple[ReadSpan, ...]:
        """What was read, in order; nothing where there is no journal or none that can be read: what it would spare is done again."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            return tuple(ReadSpan(int(since_ms), int(until_ms)) for since_ms, until_ms in found["read"])
        except (OSError, ValueError, KeyError, TypeError):
            return ()

    def forget(self) -> None:
        """Raises FallowError."""
        self._write(())

    def add(self, span: ReadSpan) -> None:
        """Takes note of one more; replaces the file at once or not at all. Raises FallowError."""
        spans: list[ReadSpan] = []
        for each in sorted((*self.read(), span)):
            if spans and each.since_ms <= spans[-1].until_ms:
                spans[-1] = ReadSpan(spans[-1].since_ms, max(spans[-1].until_ms, each.until_ms))
            else:
                spans.append(each)
        self._write(spans)

    def _write(self, spans: Sequence[ReadSpan]) -> None:
        content = {"read": [[each.since_ms, each.until_ms] for each in spans]}
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

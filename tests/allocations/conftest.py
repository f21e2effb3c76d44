"""The claims command in this process, and what a reader finds in the lake afterwards."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from analytics.frames import read_frame
from fallow import schema
from fallow.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import polars as pl

    from fallow.lake import Lake


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        found: dict[str, Any] = json.loads(self.out)
        return found

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table of the answer."""
        found: list[dict[str, Any]] = self.json["tables"][table]["rows"]
        return found

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.counts_of("claim")

    def counts_of(self, name: str) -> tuple[int, int, int]:
        (table,) = [each for each in self.json["tables"] if each["table"] == name]
        return table["new"], table["already_there"], table["replaced"]

    @property
    def dropped(self) -> dict[str, int]:
        return {each["reason"]: each["count"] for file in self.json["files"] for each in file["dropped"]}


@pytest.fixture
def claims(lake: Lake, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """`fallow allocations ...` on the lake; with `--json` where the text is not what is looked at."""

    def run(*arguments: object, as_json: bool = True) -> Outcome:
        code = main(["allocations", *map(str, arguments), "--lake", lake.root, *(["--json"] if as_json else [])])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file and returns where it lies."""

    def write(text: str, name: str = "claims.txt") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def stored(lake: Lake) -> list[dict[str, Any]]:
    """The visible claims with their host, by claim, host, GPU and start; columns that are null are left out."""
    return _filled(read_frame(lake.files("claim"), schema.CLAIM).sort("claim_id", "host", "gpu", "time"))


def requested(lake: Lake) -> list[dict[str, Any]]:
    """The requests, by id and when they were seen; columns that are null are left out."""
    return _filled(read_frame(lake.files("request"), schema.REQUEST).sort("claim_id", "time", "as_of"))


def _filled(rows: pl.DataFrame) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if value is not None} for row in rows.to_dicts()]

"""The allocations command in this process, and what a reader finds in the lake afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from analytics.allocations.model import ROW_SCHEMA
from analytics.frames import read_frame
from fallow import parquet, schema
from fallow.cli import main
from fallow.lake import AGENT_FIRST_SEQ, LakeFile

if TYPE_CHECKING:
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

    def said(self, *names: str) -> tuple[Any, ...]:
        """These values of the answer."""
        return tuple(self.json[name] for name in names)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table of the answer."""
        found: list[dict[str, Any]] = self.json["tables"][table]["rows"]
        return found

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.counts_of("allocation")

    def counts_of(self, name: str) -> tuple[int, int, int]:
        (table,) = (each for each in self.json["tables"] if each["table"] == name)
        return table["new"], table["already_there"], table["replaced"]

    @property
    def notes(self) -> list[str]:
        """What is said of the first file."""
        found: list[str] = self.json["files"][0]["notes"]
        return found

    @property
    def dropped(self) -> dict[str, int]:
        return {each["reason"]: each["count"] for file in self.json["files"] for each in file["dropped"]}


Allocations = Callable[..., Outcome]
File = Callable[..., Path]


@pytest.fixture
def allocations(lake: Lake, capsys: pytest.CaptureFixture[str]) -> Allocations:
    """`fallow allocations ...` on the lake; with `--json` where the text is not what is looked at."""

    def run(*arguments: object, as_json: bool = True) -> Outcome:
        code = main(["allocations", *map(str, arguments), "--lake", lake.root, *(["--json"] if as_json else [])])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def file(tmp_path: Path) -> File:
    """Writes a file and returns where it lies."""

    def write(text: str, name: str = "allocations.txt") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def stored(lake: Lake) -> list[dict[str, Any]]:
    """The visible allocations with their host, by allocation, host, GPU and start; null columns are left out."""
    return _filled(read_frame(lake.files("allocation"), schema.ALLOCATION).sort("allocation_id", "host", "gpu", "time"))


def requested(lake: Lake) -> list[dict[str, Any]]:
    """The requests, by id and when they were seen; columns that are null are left out."""
    return _filled(read_frame(lake.files("request"), schema.REQUEST).sort("allocation_id", "time", "as_of"))


def _filled(rows: pl.DataFrame) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if value is not None} for row in rows.to_dicts()]


Row = dict[str, Any]


def allocation(gpu: str | None, start: int, end: int | None, allocation_id: str = "1", **more: object) -> Row:
    """A row of Slurm's, user and account named after the allocation."""
    own = {
        "allocation_id": allocation_id,
        "scheduler": "slurm",
        "user": f"u{allocation_id}",
        "account": f"a{allocation_id}",
    }
    return {"host": "h1", "gpu": gpu, "time": start, "end": end, **own, **more}


def frame(*rows: Row) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=ROW_SCHEMA)


def agent_wrote(lake: Lake, host: str, *rows: Row, date: str = "2026-11-20") -> None:
    """A file of an agent's allocations, beside what importers write."""
    own = [{name: value for name, value in row.items() if name != "host"} for row in rows]
    data = parquet.encode(schema.ALLOCATION, parquet.table_from_rows(schema.ALLOCATION, own))
    lake.put(LakeFile("allocation", date, host, AGENT_FIRST_SEQ + 1, AGENT_FIRST_SEQ + 1), data)

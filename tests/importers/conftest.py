"""The import command in this process, and what a DuckDB user sees in the lake afterwards."""

from __future__ import annotations

import atexit
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest

from analytics.importers.source import InputLimits
from fallow.cli import main
from fallow.lake import Lake
from tests.lakes import made_lake

if TYPE_CHECKING:
    from pathlib import Path


LIMITS = InputLimits(max_bytes=2**20, max_record_bytes=2**16, max_rows=10_000)
START = datetime(2026, 11, 20, 10)  # noqa: DTZ001 (nvidia-smi writes local time)


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str
    lake: str

    @property
    def summary(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def published(self) -> dict[str, tuple[int, int, int]]:
        tables = self.summary["tables"]
        return {each["table"]: (each["new"], each["already_there"], each["replaced"]) for each in tables}

    @property
    def notes(self) -> list[str]:
        """What is said of the first file."""
        return self.summary["files"][0]["notes"]

    def dropped(self, file: int = 0) -> dict[str, int]:
        return {each["reason"]: each["count"] for each in self.summary["files"][file]["dropped"]}

    def nulled(self, file: int = 0) -> dict[tuple[str, str], int]:
        return {(each["column"], each["reason"]): each["count"] for each in self.summary["files"][file]["nulled"]}

    def refused(self, *said: str, code: int = 1) -> str:
        """The one sentence, which says all of this, of an import that wrote nothing."""
        assert (self.code, files(self.lake), self.err.count("\n")) == (code, [], 1), self.err
        assert all(each in self.err for each in said), self.err
        return self.err


Run = Callable[..., Outcome]


@pytest.fixture
def place(tmp_path: Path) -> str:
    return made_lake(tmp_path / "lake").root


@pytest.fixture
def fallow_import(place: str, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: object, as_json: bool = True) -> Outcome:
        code = main(["import", *map(str, arguments), "--lake", place, *(["--json"] if as_json else [])])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err, place)

    return run


def query(place: str, sql: str, table: str = "gpu") -> list[tuple[Any, ...]]:
    """Rows of SQL over `lake`, the files of a table that a reader sees."""
    files = [file.url for file in Lake.at(place).files(table)]
    _connection().read_parquet(files, hive_partitioning=True).create_view("lake")
    return _connection().sql(sql).fetchall()


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """One for all queries, until the interpreter ends: to connect takes four times as long as to ask."""
    atexit.register(_connection.cache_clear)
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    return connection


def files(place: str) -> list[str]:
    return [file.key for table in ("gpu", "device") for file in made_lake(place).all_files(table)]


def at(seconds: float, start: datetime = START) -> str:
    return (start + timedelta(seconds=seconds)).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]


@pytest.fixture
def smi(fallow_import: Run, tmp_path: Path) -> Run:
    """Imports texts, one file each, from the host gn001."""

    def run(*texts: str | bytes, flags: tuple[str, ...] = (), as_json: bool = True) -> Outcome:
        paths = [tmp_path / f"{number}.csv" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_bytes(text.encode() if isinstance(text, str) else text)
        return fallow_import("nvidia-smi", *paths, "--host", "gn001", *flags, as_json=as_json)

    return run


NOON = 1_795_176_000  # 2026-11-20T12:00:00Z
KEYS = ("series", "--time", "t", "--gpu", "g")


@pytest.fixture
def one(fallow_import: Run, tmp_path: Path) -> Run:
    """Imports one text, or what Parquet a frame makes, into one column."""

    def run(
        given: str | bytes | pl.DataFrame,
        *more: str,
        column: str = "gpu_util_pct",
        source: str = "v",
        interval: str = "10s",
    ) -> Outcome:
        path = tmp_path / "in.csv"
        if isinstance(given, pl.DataFrame):
            given.write_parquet(path)
        else:
            path.write_bytes(given.encode() if isinstance(given, str) else given)
        known = ("--interval", interval) if interval else ()
        return fallow_import(*KEYS, *known, "--column", f"{column}={path}:{source}", *more)

    return run

"""What importers share: their protocol, the account of what they dropped, and the rows they hand over."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from analytics.importers.source import InputLimits
from fallow.errors import UsageError
from fallow.schema import DEVICE


@dataclass(frozen=True)
class Count:
    """How many rows or values were dropped for one reason; `column` is empty for whole rows."""

    reason: str
    count: int
    column: str = ""


@dataclass(frozen=True)
class FileReport:
    """The account of one input file."""

    path: str
    lines_read: int
    rows_kept: int
    dropped: tuple[Count, ...] = ()
    nulled: tuple[Count, ...] = ()
    notes: tuple[str, ...] = ()
    not_samples: int = 0
    """Header lines and blank lines: with the rows kept and dropped they make up the lines read."""

    odd: tuple[str, ...] = ()
    """What looks wrong, in sentences without a full stop; asked about before anything is published."""


@dataclass
class Tally:
    """Counts reasons while one file is read; `report` freezes them."""

    dropped: Counter[str] = field(default_factory=Counter)
    nulled: Counter[tuple[str, str]] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    not_samples: int = 0
    odd: list[str] = field(default_factory=list)

    def drop(self, reason: str, count: int) -> None:
        """Counts rows that were dropped; a count of 0 leaves no trace."""
        if count:
            self.dropped[reason] += count

    def null(self, column: str, reason: str, count: int) -> None:
        """Counts values that became null; a count of 0 leaves no trace."""
        if count:
            self.nulled[column, reason] += count

    @property
    def reasons(self) -> str:
        """` (no GPU: 3, time in the future: 1)`, behind a sentence that says that nothing is left."""
        said = ", ".join(f"{reason}: {count}" for reason, count in self.dropped.items())
        return f" ({said})" if said else ""

    def report(self, path: str, lines_read: int, rows_kept: int) -> FileReport:
        return FileReport(
            path,
            lines_read,
            rows_kept,
            tuple(Count(reason, count) for reason, count in self.dropped.most_common()),
            tuple(Count(reason, count, column) for (column, reason), count in sorted(self.nulled.items())),
            tuple(self.notes),
            self.not_samples,
            tuple(self.odd),
        )


@dataclass(frozen=True)
class Imported:
    """What one import, or one window of a host's series, read: rows, and how they came to be.

    `gpu` and `device` hold columns of the lake's tables of those names, in the lake's types; a column that is not
    there is null. `gpu` has one row per (gpu, time + offset_ms); its column `processes`, where there is one, holds the
    process list of that moment: null where nobody looked, empty where there was no process.
    """

    host: str
    gpu: pl.DataFrame
    device: pl.DataFrame
    files: tuple[FileReport, ...] = ()
    interval: str = "as scraped"
    timezone: str = "UTC"
    notes: tuple[str, ...] = ()
    given_interval_ms: int | None = None
    merged: int = 0
    """How many of the files' rows have the GPU and time of another one, and are one row with it."""

    odd: tuple[str, ...] = ()
    """What looks wrong beside what the files' own reports say."""

    hosts: pl.DataFrame = field(default_factory=pl.DataFrame)
    """Rows of the table `host`, in its columns and types."""

    events: pl.DataFrame = field(default_factory=pl.DataFrame)
    """The same of the table `event`."""

    given: pl.DataFrame = field(default_factory=pl.DataFrame)
    """Who series named: a row per GPU, holder and unbroken stretch with gpu, start_ms, end_ms (the last sample that named it),
    namespace, pod, container, slurm_job, user (any of the last five null), for `analytics.scraped.who`."""


_UUID = r"^(GPU|MIG)-"


def scoped(names: pl.Series, host: str) -> pl.Series:
    """GPU ids as the lake has them: UUIDs as they are, others behind their host (`gn001/0`), for hosts number alike."""
    known = names.str.contains(_UUID) | names.str.starts_with(f"{host}/")
    return names.zip_with(known.fill_null(value=True), pl.Series([f"{host}/"], dtype=pl.String) + names)


class Kind(Protocol):
    """What can be imported: how it is named and described, and its own flags."""

    name: str
    summary: str
    example: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...


class Importer(Kind, Protocol):
    """One kind of history that can be brought into the lake."""

    def read(self, args: argparse.Namespace, limits: InputLimits) -> Imported:
        """Reads all files and writes nothing; raises InputError or UsageError naming the file."""
        ...


KEYS = ["gpu", "true_ms"]
"""What tells two imported samples apart."""

TRUE_MS = (pl.col("time").dt.epoch("ms") + pl.col("offset_ms").fill_null(0)).alias("true_ms")


PROCESSES = "processes"
"""The column of process lists (`analytics.importers.processes`)."""


def unique_keys(frame: pl.DataFrame) -> pl.DataFrame:
    """One row per (gpu, true_ms): of rows that share one, the first non-null value of each column, and all processes."""
    again = pl.struct(KEYS).is_duplicated()
    repeated = frame.filter(again)
    if repeated.is_empty():
        return frame
    merged = repeated.group_by(KEYS, maintain_order=True).agg(
        pl.all().exclude(PROCESSES).drop_nulls().first(), *_joined_lists(frame)
    )
    return pl.concat([frame.filter(~again), merged.select(frame.columns)])


def _joined_lists(frame: pl.DataFrame) -> list[pl.Expr]:
    """All lists of a group as one; null where none of them is known."""
    if PROCESSES not in frame.columns:
        return []
    lists = pl.col(PROCESSES).drop_nulls()
    return [
        pl.when(lists.len() > 0)
        .then(lists.list.explode(keep_nulls=False, empty_as_null=False).implode())
        .alias(PROCESSES)
    ]


_FEW_CONTRADICTIONS, _CONTRADICTIONS = 20, 0.1


def contradictions(frame: pl.DataFrame, values: list[str]) -> tuple[str, ...]:
    """What is odd about rows that have the GPU and time of another one and say something else."""
    several = [pl.col(name).drop_nulls().n_unique() > 1 for name in values]
    again = frame.filter(pl.struct(KEYS).is_duplicated()) if values else frame.clear()
    count = again.group_by(KEYS).agg(differs=pl.any_horizontal(several))["differs"].sum() if again.height else 0
    if count < max(_FEW_CONTRADICTIONS, _CONTRADICTIONS * frame.height):
        return ()
    return (
        f"{count:,} of {frame.height:,} rows have the GPU and time of another one and say something else: are they of one host?",
    )


_FACTS = tuple(column.name for column in DEVICE.columns if column.name not in ("time", "gpu", "source"))


def daily_devices(frame: pl.DataFrame) -> pl.DataFrame:
    """From samples (time, gpu, and any of the device columns), one row per GPU and day at its first sample's time.

    Each fact is the last one that was seen on that day.
    """
    facts = [name for name in _FACTS if name in frame.columns]
    return (
        frame.sort("time")
        .group_by("gpu", pl.col("time").dt.date().alias("day"), maintain_order=True)
        .agg(pl.col("time").first(), *(pl.col(name).drop_nulls().last() for name in facts))
        .drop("day")
        .with_columns(source=pl.lit("import"))
    )


def check_host(name: str) -> str:
    """The host's name; UsageError where it is empty or holds control characters."""
    if not name.strip() or any(ord(letter) < 32 for letter in name):
        raise UsageError(f"--host '{name}' is not a host name", "such as --host gn001")
    return name.strip()

"""Types that importers share: their protocol, the counts of what they dropped, and the rows that they return."""

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
    path: str
    lines_read: int
    rows_kept: int
    dropped: tuple[Count, ...] = ()
    nulled: tuple[Count, ...] = ()
    notes: tuple[str, ...] = ()
    not_samples: int = 0
    """Header lines and blank lines: together with the rows kept and dropped they are the lines read."""

    odd: tuple[str, ...] = ()
    """Doubts, as sentences without a full stop; the user is asked about them before anything is published."""


@dataclass
class Tally:
    """Counts reasons while one file is read; `report` freezes them."""

    dropped: Counter[str] = field(default_factory=Counter)
    nulled: Counter[tuple[str, str]] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    not_samples: int = 0
    odd: list[str] = field(default_factory=list)

    def drop(self, reason: str, count: int) -> None:
        """Count dropped rows; a count of 0 leaves no trace."""
        if count:
            self.dropped[reason] += count

    def null(self, column: str, reason: str, count: int) -> None:
        """Count values that became null; a count of 0 leaves no trace."""
        if count:
            self.nulled[column, reason] += count

    @property
    def reasons(self) -> str:
        """Return ` (no GPU: 3, time in the future: 1)`, to follow a sentence that no row is left."""
        listed = ", ".join(f"{reason}: {count}" for reason, count in self.dropped.items())
        return f" ({listed})" if listed else ""

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
    """Rows of one import, or of one window of a host's series, and how they were read."""

    host: str
    gpu: pl.DataFrame
    """Columns of the table `gpu`, in the lake's types, one row per (gpu, time + offset_ms); an absent column is null.

    Its column `processes`, where present, holds the process list of that moment: null where no list was read, empty
    where there was no process.
    """
    device: pl.DataFrame
    """Columns of the table `device`, in the lake's types; an absent column is null."""
    files: tuple[FileReport, ...] = ()
    interval: str = "as scraped"
    timezone: str = "UTC"
    notes: tuple[str, ...] = ()
    given_interval_ms: int | None = None
    merged: int = 0
    """Number of rows with the GPU and time of another row, merged with that row."""

    odd: tuple[str, ...] = ()
    """Doubts beyond those in the files' own reports."""

    hosts: pl.DataFrame = field(default_factory=pl.DataFrame)
    """Rows of the table `host`, in its columns and types."""

    events: pl.DataFrame = field(default_factory=pl.DataFrame)
    """Rows of the table `event`, likewise."""

    serving: pl.DataFrame = field(default_factory=pl.DataFrame)
    """Rows of the table `serving`, likewise."""

    by_host: tuple[Imported, ...] = ()
    """The rows of `gpu` and `device` by host, where the files name their hosts; `host` is then none of them."""

    given: pl.DataFrame = field(default_factory=pl.DataFrame)
    """Users that series named: a row per GPU, user and unbroken segment with gpu, start_ms, end_ms (the last sample
    that named the user), namespace, pod, container, slurm_job, user (any of the last five null), for
    `analytics.scraped.who`."""


_UUID = r"^(GPU|MIG)-"


def scoped(names: pl.Series, hosts: pl.Series) -> pl.Series:
    """Return GPU ids as in the lake: UUIDs unchanged, others with their host (`gn001/0`), as hosts number alike."""
    name, place = pl.lit(names), pl.lit(hosts) + "/"
    known = name.str.contains(_UUID) | name.str.starts_with(place)
    return pl.select(pl.when(known).then(name).otherwise(place + name)).to_series().alias(names.name)


class Kind(Protocol):
    """A kind of import: its name, its description and its own flags."""

    name: str
    summary: str
    example: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...


class Importer(Kind, Protocol):
    """One kind of history that can be imported into the lake."""

    def read(self, args: argparse.Namespace, limits: InputLimits) -> Imported:
        """Return the content of all files; write nothing. Raises InputError or UsageError that names the file."""
        ...


KEYS = ["gpu", "true_ms"]
"""Columns that distinguish two imported samples."""

TRUE_MS = (pl.col("time").dt.epoch("ms") + pl.col("offset_ms").fill_null(0)).alias("true_ms")


PROCESSES = "processes"
"""The column of process lists (`analytics.importers.processes`)."""


def unique_keys(frame: pl.DataFrame) -> pl.DataFrame:
    """Return one row per (gpu, true_ms): of several, each column's first non-null value, and all processes."""
    again = pl.struct(KEYS).is_duplicated()
    repeated = frame.filter(again)
    if repeated.is_empty():
        return frame
    merged = repeated.group_by(KEYS, maintain_order=True).agg(
        pl.all().exclude(PROCESSES).drop_nulls().first(), *_joined_lists(frame)
    )
    return pl.concat([frame.filter(~again), merged.select(frame.columns)])


def _joined_lists(frame: pl.DataFrame) -> list[pl.Expr]:
    """Return all lists of a group as one; null where none of them is known."""
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
    """Return a doubt about rows that have the GPU and time of another row and other values."""
    several = [pl.col(name).drop_nulls().n_unique() > 1 for name in values]
    again = frame.filter(pl.struct(KEYS).is_duplicated()) if values else frame.clear()
    count = again.group_by(KEYS).agg(differs=pl.any_horizontal(several))["differs"].sum() if again.height else 0
    if count < max(_FEW_CONTRADICTIONS, _CONTRADICTIONS * frame.height):
        return ()
    return (
        (
            f"{count:,} of {frame.height:,} rows have the GPU and time of another row but other values: are they of one"
            " host?"
        ),
    )


_FACTS = tuple(column.name for column in DEVICE.columns if column.name not in ("time", "gpu", "source"))


def daily_devices(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a row per GPU and day at its first sample's time, from samples (time, gpu, and any of the device columns).

    Each value is the last one observed on that day.
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
    """Return the host's name. Raises UsageError where it is empty or holds control characters."""
    if not name.strip() or any(ord(letter) < 32 for letter in name):
        raise UsageError(f"--host '{name}' is not a host name", "such as --host gn001")
    return name.strip()

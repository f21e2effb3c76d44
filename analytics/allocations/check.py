"""`fallow allocations list --check`: disagreements between allocations and measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from analytics.allocations.measured import (
    allocations_without_telemetry,
    oversized_allocations,
    resembling_hosts,
    since_and_until,
    telemetry_without_allocations,
    unplaced_allocations,
)
from analytics.allocations.spans import overlapping_allocations
from analytics.allocations.write import AS_OF
from analytics.importers.times import LATEST_MS
from fallow import parquet
from fallow.errors import UnusableFileError
from fallow.lake import LakeFile


@dataclass(frozen=True)
class Checked:
    """Result of the comparison; frames as the functions of `measured` and `spans` return them."""

    unseen: pl.DataFrame
    unallocated: pl.DataFrame
    overlapping: pl.DataFrame
    unplaced_gpu_ms: int
    oversized: pl.DataFrame
    """Allocations of more GPUs than their host has: allocation_id, user, account, host, allocated, present."""
    resembling: Mapping[str, str]
    """Hosts that never reported, and for each the host whose name is most like it."""
    as_of_ms: int | None
    """Time at which the newest import knew the running allocations; None where no import states it."""
    running: int
    """Imported allocations that ran at that time."""
    until_ms: int
    """End of the ledger's window."""


def check(
    allocations: pl.DataFrame,
    segments: pl.DataFrame,
    known: pl.DataFrame,
    lifetimes: pl.DataFrame,
    files: Sequence[LakeFile],
) -> Checked:
    """Return the disagreements between allocations (with `host`), which were read from the files, and the ledger.

    `segments` are rows inside the window, `known` those with history; `lifetimes` has a row per GPU and host observed.
    """
    since_ms, until_ms = since_and_until(segments)
    unseen = allocations_without_telemetry(
        allocations, set(lifetimes["gpu"]), set(lifetimes["host"]), since_ms=since_ms, until_ms=until_ms
    )
    unplaced = unplaced_allocations(allocations, segments, since_ms=since_ms, until_ms=until_ms)
    overlapping = overlapping_allocations(allocations).filter((pl.col("time") < until_ms) & (pl.col("end") > since_ms))
    running = allocations.filter(pl.col("end").is_null() & (pl.col("scheduler") != "kubernetes"))
    return Checked(
        unseen,
        telemetry_without_allocations(allocations, segments),
        overlapping,
        round(unplaced["gpu_ms"].sum()),
        oversized_allocations(allocations, known, since_ms=since_ms, until_ms=until_ms),
        resembling_hosts(unseen["host"].unique(), known["host"].unique()),
        _as_of_ms(files),
        running.select("allocation_id", "time").unique().height,
        until_ms,
    )


def _as_of_ms(files: Sequence[LakeFile]) -> int | None:
    facts = (_file_as_of(file) for file in files if file.first_seq < LATEST_MS)
    return max((int(fact) for fact in facts if fact is not None and fact.isdecimal()), default=None)


def _file_as_of(file: LakeFile) -> str | None:
    try:
        return parquet.metadata(file).get(AS_OF)
    except UnusableFileError:
        return None  # its rows are missing too, and data quality reports that

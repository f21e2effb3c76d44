"""A host's day: the pure, idempotent function from its files and allocations to its part of every derived table.

It reads no other host and no other day, so any executor may run it, in any order, more than once. The same day of
several hosts may be built in one call, which changes only the cost: one pass over a million rows takes little longer
than eight passes over one host's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from analytics.allocations.spans import (
    ALLOCATION_COLUMNS,
    SPAN_SCHEMA,
    UNPLACED_SCHEMA,
    allocation_spans,
    merged_spans,
    place,
)
from analytics.frames import kinds, typed
from analytics.intervals import clip
from analytics.inventory import Inventory
from analytics.ledger.columns import Columns, Floats
from analytics.ledger.credible_rows import credible_rows
from analytics.ledger.day_hours import host_hours, hours_of, serving_hours
from analytics.ledger.day_owners import Allocated, Shares, shares_of, unit, who_holds
from analytics.ledger.day_processes import lists_of, process_day, read_listed
from analytics.ledger.day_rows import REFUTED, RELEASED, UNKNOWN, DayRows, Defect, read_day_rows
from analytics.ledger.day_segments import find_segments
from analytics.ledger.day_stalls import MOVED, OtherWitnesses, stall_signs
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.unused_files import UnusedFiles
from analytics.mig import Instance
from analytics.small_tables import read_small
from fallow import schema
from fallow.clock import DAY_MS, parse_day_ms, utc_day
from fallow.lake import Lake, LakeFile
from fallow.process_memory import reuse_memory
from fallow.stall_evidence import RestingDraw


@dataclass(frozen=True)
class HostAllocations:
    """Allocation intervals for each `host` that ever had their GPU (null: in no inventory), and unplaced ones.

    So they stay with a GPU's past when it moves, and a host's day is built from the same allocations before and after.
    """

    placed: pl.DataFrame
    unplaced: pl.DataFrame
    rows: pl.DataFrame

    def on_days(self, dates: Collection[str]) -> DayAllocations:
        """Return the allocations of some days."""
        return DayAllocations(
            _by_day(self.placed, dates, tuple(SPAN_SCHEMA)), _by_day(self.unplaced, dates, tuple(UNPLACED_SCHEMA))
        )


_ByDay = Mapping[tuple[str, str | None], pl.DataFrame]
"""By date and host."""


@dataclass(frozen=True)
class DayAllocations:
    """The allocations of HostAllocations that overlap a day, cut to the day, in which all of its rows begin.

    Later changes of an allocation are hidden; else every day that it touched would have to be built again.
    """

    placed: _ByDay
    unplaced: _ByDay

    def of(self, host: str, date: str) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the intervals and the unplaced allocations of a host's day."""
        mine = [self.placed[date, each] for each in (host, None) if (date, each) in self.placed]
        spans = (pl.concat(mine) if len(mine) > 1 else mine[0]) if mine else _NO_SPANS
        return spans, self.unplaced.get((date, host), _NO_ALLOCATIONS)


_NO_SPANS, _NO_ALLOCATIONS = (pl.DataFrame(schema=columns) for columns in (SPAN_SCHEMA, UNPLACED_SCHEMA))


def _by_day(allocations: pl.DataFrame, dates: Collection[str], columns: Sequence[str]) -> _ByDay:
    """Return columns of the allocations by date and host, in order. All days at once cost little more than one."""
    days_ms = np.array(sorted(map(parse_day_ms, dates)), np.int64)
    first = np.searchsorted(days_ms, allocations["start"].to_numpy() - DAY_MS, side="right")
    beyond = np.searchsorted(days_ms, allocations["end"].to_numpy())
    meets = allocations.with_columns(first=pl.Series(first, dtype=pl.Int64), beyond=pl.Series(beyond, dtype=pl.Int64))
    meets = meets.filter(pl.col("first") < pl.col("beyond"))
    each = meets.with_columns(day=pl.int_ranges("first", "beyond")).explode("day").drop("first", "beyond")
    each = each.with_columns(day=pl.Series(days_ms).gather(each["day"]), of_host="host")
    parts = clip(each, "day", pl.col("day") + DAY_MS, start="start").select(*columns, "day", "of_host")
    found = parts.partition_by("day", "of_host", as_dict=True, include_key=False)
    return {(utc_day(day_ms), host): rows for (day_ms, host), rows in found.items()}


def load_allocations(lake: Lake, inventory: Inventory, *, compare_all: bool = False) -> HostAllocations:
    """Return all allocations of a lake; `compare_all` as in `read_small`. Raises LakeError and its kinds."""
    allocations = read_small(lake, schema.ALLOCATION, ALLOCATION_COLUMNS, compare_all=compare_all)
    if allocations.is_empty():
        return HostAllocations(_NO_SPANS.with_columns(host=pl.lit(None, pl.String)), _NO_ALLOCATIONS, allocations)
    spans = allocation_spans(allocations, {})  # each day's own rows decide on which GPUs of its host an allocation was
    hosts = pl.DataFrame(
        [(gpu, host) for gpu, hosts in inventory.hosts_of.items() for host in hosts],
        schema={"gpu": pl.String, "host": pl.String},
        orient="row",
    )
    placed = spans.placed.join(hosts, on="gpu", how="left", maintain_order="left_right")
    return HostAllocations(placed, spans.unplaced, allocations)


SOURCES = (schema.GPU, schema.PROCESS, schema.HOST, schema.SERVING)
"""The tables from which a part is made, beside allocations and the inventory."""

PARTS = (
    schema.LEDGER_PART,
    schema.IDLE_INTERVAL_PART,
    schema.HOURLY,
    schema.PROCESS_DAY,
    schema.HOST_HOURLY,
    schema.SERVING_HOURLY,
    schema.QUALITY,
)
"""The tables for which a part has rows."""


@dataclass(frozen=True)
class HostDay:
    """The sources of one host's day."""

    host: str
    date: str
    files: Mapping[str, Sequence[LakeFile]]
    """By table."""
    allocations: pl.DataFrame
    """Intervals as in `analytics.allocations.spans` that may concern the day."""
    unplaced: pl.DataFrame
    """Allocations of which only a count of GPUs is known."""
    instances: Mapping[str, Instance]
    """MIG instances that may concern the day."""
    draws: Mapping[str, RestingDraw]
    """The draw of the host's cards that do no work; without cards of an unknown limit."""

    def fingerprint(self) -> tuple[object, ...]:
        """Return values that change whenever the part would, with the same method and settings."""
        files = sorted((file.key, file.size_bytes, file.version) for table in self.files.values() for file in table)
        allocations = [frame.rows() for frame in (self.allocations, self.unplaced) if len(frame)]
        instances = sorted((uuid, each.parent, each.share) for uuid, each in self.instances.items())
        return (files, allocations, instances, sorted((gpu, *each) for gpu, each in self.draws.items()))


def build_day(days: Sequence[HostDay], settings: LedgerSettings) -> dict[str, pl.DataFrame]:
    """Return rows of every table of PARTS by its name; `days` are of different hosts and one date.

    Times are integer milliseconds. Unusable files are left out, each with a row of `quality`. Raises
    SchemaVersionError, and LakeError where a store does not answer.
    """
    reuse_memory()
    left_out = UnusedFiles()

    def files(table: str) -> list[LakeFile]:
        return [file for day in days for file in day.files.get(table, ())]

    day_ms = parse_day_ms(days[0].date)
    rows = credible_rows(read_day_rows(files("gpu"), day_ms, on_unusable=left_out.add))
    listed = read_listed(files("process"), rows.names, day_ms, left_out.add)
    lists = lists_of(listed)
    shares = shares_of(rows, {(day.host, uuid): each for day in days for uuid, each in day.instances.items()})
    # a split GPU measures nothing itself: the part that no instance has is free, unless it was not observed
    unseen = shares.related & ~rows.usable & ~(shares.split & ~rows.health.where_in((RELEASED, REFUTED, UNKNOWN)))
    rows = rows.also_usable(shares.related)
    processes = process_day(listed, rows.names, _last_empty_times(rows))
    allocated = Allocated.of(_allocations(days, rows, shares, processes), rows.names)
    held = who_holds(rows, lists, allocated, settings, is_split=shares.split, unseen=unseen)
    signs = stall_signs(rows, held, lists, _other_witnesses(days, rows, files), settings)
    segments, idle_intervals = find_segments(rows, held, shares, lists, settings, signs=signs)
    frames = {
        "ledger_part": segments,
        "idle_interval_part": idle_intervals,
        "hourly": hours_of(rows, held),
        "process_day": processes,
        "host_hourly": host_hours(files("host"), day_ms, left_out.add),
        "serving_hourly": serving_hours(files("serving"), day_ms, left_out.add),
        "quality": _quality([*rows.defects, *left_out.defects], day_ms),
    }
    return {table.name: typed(frames[table.name], table) for table in PARTS}


def _other_witnesses(days: Sequence[HostDay], rows: DayRows, files: Callable[[str], list[LakeFile]]) -> OtherWitnesses:
    """Return the witnesses beside the rows' own columns. Unusable files were reported by the first reading."""

    def units(names: Sequence[str]) -> dict[str, Floats]:
        columns = Columns(files("gpu"), schema.GPU, names, on_unusable=lambda *_: None)
        if len(columns) != rows.file_rows:  # a file has changed since
            return {}
        return {name: columns.floats(name)[rows.places] for name in names if columns.has(name)}

    def moved() -> Columns:
        return Columns(files("host"), schema.HOST, ("time", *MOVED), on_unusable=lambda *_: None)

    draws = {(day.host, gpu): each for day in days for gpu, each in day.draws.items()}
    return OtherWitnesses(draws, units, moved)


def _allocations(days: Sequence[HostDay], rows: DayRows, shares: Shares, processes: pl.DataFrame) -> pl.DataFrame:
    """Return the intervals of all hosts by `unit`, including allocations that the day itself places on a GPU."""
    hosts = pl.Series([day.host for day in days for _ in range(len(day.allocations))], dtype=pl.String)
    spans = pl.concat([day.allocations for day in days]).with_columns(gpu=unit(pl.lit(hosts)))
    unplaced = pl.concat([day.unplaced for day in days])
    if unplaced.is_empty():
        return spans
    work = processes.select("gpu", "time", "end", "job", "host")
    placed = place(unplaced, _gpus_of_hosts(rows, shares), work).placed
    return merged_spans(spans, placed.with_columns(gpu=unit(pl.col("host"))))


def _gpus_of_hosts(rows: DayRows, shares: Shares) -> dict[str, list[str]]:
    """Return what each host could allocate on the day: its observed unsplit GPUs and its known MIG instances."""
    gone = np.zeros(len(rows.names), bool)
    gone[rows.gpu[shares.split | shares.left_out]] = True
    found: dict[str, list[str]] = {}
    for code in np.unique(rows.gpu):
        if not gone[code]:
            found.setdefault(rows.names[code][0], []).append(rows.names[code][1])
    return found


def _last_empty_times(rows: DayRows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return when each GPU was last known to have no process."""
    last = np.full(len(rows.names), -1, np.int64)
    known = rows.process_count == 0
    np.maximum.at(last, rows.gpu[known], rows.time[known])
    return last


def _quality(defects: Sequence[Defect], day_ms: int) -> pl.DataFrame:
    found = [{"time": day_ms, **vars(each)} for each in defects]
    return pl.DataFrame(found, schema=kinds(schema.QUALITY)).sort("host", "gpu", "kind", maintain_order=True)

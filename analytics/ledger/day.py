"""A host's day: the pure, idempotent function from its files to its part of every derived table, and the allocations that it needs.

It looks at no other host and no other day, so that any executor may run it, in any order, twice if need be. Several hosts' same
day go through it at once, which changes nothing but the cost: a pass over a million rows takes little more than eight over
a host's each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
from analytics.frames import empty, typed
from analytics.intervals import clip
from analytics.inventory import Inventory
from analytics.ledger.day_hours import host_hours, hours_of, serving_hours
from analytics.ledger.day_owners import Claimed, Shares, shares_of, unit, who_holds
from analytics.ledger.day_processes import lists_of, process_day, read_listed
from analytics.ledger.day_rows import RELEASED, UNKNOWN, DayRows, Defect, read_day_rows
from analytics.ledger.day_segments import find_pieces
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.unused_files import UnusedFiles
from analytics.mig import Instance
from analytics.small_tables import read_small
from fallow import schema
from fallow.clock import DAY_MS, parse_day_ms
from fallow.lake import Lake, LakeFile


@dataclass(frozen=True)
class HostAllocations:
    """Allocation spans once for each `host` that ever had their GPU (null: one that no inventory lists), and unplaced allocations.

    So they stand by a GPU's past when it moves, and a host's day is built from the same allocations before and after.
    """

    placed: pl.DataFrame
    unplaced: pl.DataFrame
    rows: pl.DataFrame
    _days: dict[str, tuple[_ByHost, _ByHost]] = field(default_factory=dict, repr=False, compare=False)

    def of(self, host: str, date: str) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The spans and the unplaced claims that touch a host's day."""
        if date not in self._days:
            day_ms = parse_day_ms(date)
            self._days[date] = (
                _by_host(_during(self.placed, day_ms), include_key=False),
                _by_host(_during(self.unplaced, day_ms), include_key=True),
            )
        placed, unplaced = self._days[date]
        mine = [placed[key] for key in (host, None) if key in placed]
        return pl.concat(mine) if mine else _NO_SPANS, unplaced.get(host, _NO_CLAIMS)


_ByHost = dict[str | None, pl.DataFrame]
_NO_SPANS, _NO_CLAIMS = (pl.DataFrame(schema=columns) for columns in (SPAN_SCHEMA, UNPLACED_SCHEMA))


def _by_host(claims: pl.DataFrame, *, include_key: bool) -> _ByHost:
    return {host: rows for (host,), rows in claims.partition_by("host", as_dict=True, include_key=include_key).items()}


def _during(claims: pl.DataFrame, day_ms: int) -> pl.DataFrame:
    """The claims cut to the day and those beside it, for a row's true start may lie a little outside its day.

    What happens to a claim later must not show, or every day that it touched would have to be built again.
    """
    return clip(claims, day_ms - DAY_MS, day_ms + 2 * DAY_MS, start="start")


def load_allocations(lake: Lake, inventory: Inventory) -> HostAllocations:
    """All claims of a lake; raises LakeError and its kinds."""
    claims = read_small(lake, schema.CLAIM, ALLOCATION_COLUMNS)
    if claims.is_empty():
        return HostAllocations(_NO_SPANS.with_columns(host=pl.lit(None, pl.String)), _NO_CLAIMS, claims)
    spans = allocation_spans(claims, {})  # on which GPUs of its host a claim was is for each day's own rows to say
    hosts = pl.DataFrame(
        [(gpu, host) for gpu, hosts in inventory.hosts_of.items() for host in hosts],
        schema={"gpu": pl.String, "host": pl.String},
        orient="row",
    )
    placed = spans.placed.join(hosts, on="gpu", how="left", maintain_order="left_right")
    return HostAllocations(placed, spans.unplaced, claims)


SOURCES = (schema.GPU, schema.PROCESS, schema.HOST, schema.SERVING)
"""The tables that a part is made of, beside claims and the inventory."""

PARTS = (
    schema.LEDGER_PART,
    schema.SPELL_PART,
    schema.HOURLY,
    schema.PROCESS_DAY,
    schema.HOST_HOURLY,
    schema.SERVING_HOURLY,
    schema.QUALITY,
)
"""The tables that a part has rows of."""


@dataclass(frozen=True)
class HostDay:
    """What one host's day is made of: its files by table, and the claims and MIG instances that may concern it.

    `claims` are spans as of `analytics.allocations.spans`, `unplaced` the claims of which only a count of GPUs is known.
    """

    host: str
    date: str
    files: Mapping[str, Sequence[LakeFile]]
    claims: pl.DataFrame
    unplaced: pl.DataFrame
    instances: Mapping[str, Instance]

    def fingerprint(self) -> tuple[object, ...]:
        """Changes whenever the part would, with the same method and settings."""
        files = sorted((file.key, file.size_bytes, file.version) for table in self.files.values() for file in table)
        claims = [frame.rows() for frame in (self.claims, self.unplaced) if len(frame)]
        return (files, claims, sorted((uuid, each.parent, each.share) for uuid, each in self.instances.items()))


def build_day(days: Sequence[HostDay], settings: LedgerSettings) -> dict[str, pl.DataFrame]:
    """Rows of every table of PARTS by its name, times as integer milliseconds; `days` are of different hosts and one date.

    Files that cannot be used are left out, each with a row of `quality`. Raises SchemaVersionError, and LakeError where a
    store does not answer.
    """
    left_out = UnusedFiles()

    def files(table: str) -> list[LakeFile]:
        return [file for day in days for file in day.files.get(table, ())]

    day_ms = parse_day_ms(days[0].date)
    rows = read_day_rows(files("gpu"), day_ms, on_unusable=left_out.add)
    listed = read_listed(files("process"), rows.names, day_ms, left_out.add)
    lists = lists_of(listed)
    shares = shares_of(rows, {(day.host, uuid): each for day in days for uuid, each in day.instances.items()})
    # a split GPU measures nothing itself: what no instance has is free, unless nobody could look
    unseen = shares.related & ~rows.usable & ~(shares.split & ~rows.health.where_in((RELEASED, UNKNOWN)))
    rows = rows.also_usable(shares.related)
    processes = process_day(listed, rows.names, _last_listed(rows))
    claimed = Claimed.of(_claims(days, rows, shares, processes), rows.names)
    held = who_holds(rows, lists, claimed, settings, is_split=shares.split, unseen=unseen)
    pieces, spells = find_pieces(rows, held, shares, lists, settings)
    frames = {
        "ledger_part": pieces,
        "spell_part": spells,
        "hourly": hours_of(rows, held),
        "process_day": processes,
        "host_hourly": host_hours(files("host"), day_ms, left_out.add),
        "serving_hourly": serving_hours(files("serving"), day_ms, left_out.add),
        "quality": _quality([*rows.defects, *left_out.defects], day_ms),
    }
    return {table.name: typed(frames[table.name], table) for table in PARTS}


def _claims(days: Sequence[HostDay], rows: DayRows, shares: Shares, processes: pl.DataFrame) -> pl.DataFrame:
    """The spans of all hosts, each GPU named with its host, with those claims that the day itself puts on a GPU."""
    spans = pl.concat([day.claims.with_columns(gpu=unit(pl.lit(day.host))) for day in days])
    unplaced = pl.concat([day.unplaced for day in days])
    if unplaced.is_empty():
        return spans
    work = processes.select("gpu", "time", "end", "job", "host")
    placed = place(unplaced, _gpus_of_hosts(rows, shares), work).placed
    return merged_spans(spans, placed.with_columns(gpu=unit(pl.col("host"))))


def _gpus_of_hosts(rows: DayRows, shares: Shares) -> dict[str, list[str]]:
    """What could be given away of each host on the day: the GPUs seen that were not split, and the known MIG instances."""
    gone = np.zeros(len(rows.names), bool)
    gone[rows.gpu[shares.split | shares.left_out]] = True
    found: dict[str, list[str]] = {}
    for code in np.unique(rows.gpu):
        if not gone[code]:
            found.setdefault(rows.names[code][0], []).append(rows.names[code][1])
    return found


def _last_listed(rows: DayRows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """When each GPU was last known to have no process."""
    last = np.full(len(rows.names), -1, np.int64)
    known = rows.process_count == 0
    np.maximum.at(last, rows.gpu[known], rows.time[known])
    return last


def _quality(defects: Sequence[Defect], day_ms: int) -> pl.DataFrame:
    found = [{"time": day_ms, **vars(each)} for each in defects]
    return pl.DataFrame(found, schema=empty(schema.QUALITY).schema)

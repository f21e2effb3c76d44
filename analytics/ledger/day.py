"""A host's day: the pure, idempotent function from its files to its part of every derived table.

It looks at no other host and no other day, so that any executor may run it, in any order, twice if need be. Several hosts' same
day go through it at once, which changes nothing but the cost: a pass over a million rows takes little more than eight over
a host's each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from analytics.allocations.spans import merged_spans, place
from analytics.frames import typed
from analytics.ledger.day_hosts import host_hours, serving_hours
from analytics.ledger.day_hours import hours_of
from analytics.ledger.day_mig import Shares, shares_of
from analytics.ledger.day_owners import Claimed, Split, unit, who_holds
from analytics.ledger.day_processes import lists_of, process_day, read_listed
from analytics.ledger.day_rows import RELEASED, UNKNOWN, DayRows, Defect, read_day_rows
from analytics.ledger.day_segments import find_pieces
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.unused_files import UnusedFiles
from analytics.mig import Instance
from fallow import schema
from fallow.clock import parse_day_ms
from fallow.lake import LakeFile

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
    held = who_holds(
        rows,
        lists,
        Claimed.of(_claims(days, rows, shares, processes), rows.names),
        Split(shares.split, unseen),
        settings,
    )
    found = find_pieces(rows, held, shares, lists, settings)
    frames = {
        "ledger_part": found.pieces,
        "spell_part": found.spells,
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
    return pl.DataFrame(
        [
            {
                "time": day_ms,
                "host": each.host,
                "gpu": each.gpu,
                "kind": each.kind,
                "count": each.count,
                "example": each.example,
            }
            for each in defects
        ],
        schema={
            "time": pl.Int64,
            "host": pl.String,
            "gpu": pl.String,
            "kind": pl.String,
            "count": pl.Int64,
            "example": pl.String,
        },
    )

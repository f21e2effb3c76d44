"""One run of an export: the days that changed are replaced, and nothing else is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from analytics.export.delta import DeltaDays
from analytics.export.source import LedgerSource
from analytics.export.tables import DATE, SOURCE_DIGEST, ExportTable
from analytics.frames import arrow
from fallow.errors import EmptyScopeError

COMMIT_BYTES, COMMIT_DAYS = 64 << 20, 32
"""Bytes in memory and number of days at which a commit starts: the writer holds a file open for each day."""


@dataclass(frozen=True)
class Exported:
    """What a run did to one table; a table without days counts as one day."""

    table: str
    address: str
    written: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: int
    rows: int


def export(
    source: LedgerSource, place: str, lake_id: str, progress: Callable[[float], None] = lambda _: None
) -> list[Exported]:
    """Bring each table below a place up to date. Return what was done.

    Raises LakeError and its kinds, and FallowError where the place cannot be written or holds another export. Days that
    were committed before an error stay, and the next run goes on.
    """
    facts = {"lake": lake_id, "scope": str(source.scope)}
    targets = [(table, DeltaDays(f"{place}/{table.name}", table, facts)) for table in source.tables]
    done = []
    for number, (table, target) in enumerate(targets):

        def advance(share: float, number: int = number) -> None:
            progress((number + share) / len(targets))

        done.append(_export_table(source, table, target, advance))
        if not done[0].written and not done[0].unchanged and not source.scope.is_all:
            raise EmptyScopeError(
                f"nothing in the lake belongs to {source.scope}",
                "`fallow ledger --by pool`, `--by model`, `--by team` and `--by user` list the names",
            )
    return done


def _export_table(
    source: LedgerSource, table: ExportTable, target: DeltaDays, progress: Callable[[float], None]
) -> Exported:
    before, now = target.digests(), source.digests(table)
    stale = sorted(date for date in before.keys() | now.keys() if before.get(date) != now.get(date))
    written: dict[str, int] = {}
    removed: list[str] = []
    waiting: dict[str, pa.Table] = {}
    for place, date in enumerate(stale, 1):
        frame = source.rows(table, date) if date in now else pl.DataFrame()
        if not frame.is_empty():
            waiting[date] = _partition(table, frame, date, now[date])
            written[date] = frame.height
        elif date in before:
            waiting[date] = table.arrow_schema.empty_table()
            removed.append(date)
        is_full = len(waiting) >= COMMIT_DAYS or sum(rows.nbytes for rows in waiting.values()) >= COMMIT_BYTES
        if waiting and (is_full or place == len(stale)):
            target.replace(waiting)
            waiting = {}
        progress(place / len(stale))
    if written or removed:
        target.remove_old_files()
    unchanged = len(before.keys() - written.keys() - set(removed))
    return Exported(table.name, target.address, tuple(written), tuple(removed), unchanged, sum(written.values()))


def _partition(table: ExportTable, rows: pl.DataFrame, date: str, source_digest: str) -> pa.Table:
    """Return the rows of a date in the table's columns and types."""
    data = arrow(rows, table.rows)
    constants = {DATE: date, SOURCE_DIGEST: source_digest} if table.by_day else {SOURCE_DIGEST: source_digest}
    for name, value in reversed(constants.items()):
        field = table.arrow_schema.field(name)
        data = data.add_column(0, field, pa.repeat(pa.scalar(value).cast(field.type), data.num_rows))
    return data.cast(table.arrow_schema).combine_chunks()  # sorting lists leaves a chunk a row

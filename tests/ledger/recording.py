"""Sample rows of a site in memory, and their ledger without a file.

A ledger of a few GPUs and weeks mostly costs small files, and one call of the day's kernel for each day. A day knows no
other day and no other host. So here every day of every host is a host of its own, all of them are moved to one date,
and the kernel is called once. `tests/findings/test_all_rules.py` shows that the rules find the same in a lake.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pyarrow as pa

from analytics.decode import HostRows
from analytics.frames import empty, milliseconds
from analytics.inventory import load_inventory
from analytics.ledger.build import Ledger, put_together
from analytics.ledger.day import SOURCES, HostDay, build_day, load_allocations
from analytics.ledger.resting_draws import resting_draws
from analytics.ledger.rollups import TABLES, Rollups
from analytics.window import load_window_ledger, open_inputs
from fallow import parquet, schema
from fallow.clock import DAY_MS, utc_day
from fallow.lake import Lake, LakeFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analytics.ledger.settings import LedgerSettings
    from analytics.window import Inputs, WindowLedger

_NUMBERS = count()

_OF_DAY = "\0"
"""Between the name of a host and the day of the host that stands for it."""


class Recording:
    """Rows by table and host, as a lake would hold them.

    `lake` is where commands look for users' actions on findings: it does not exist, and its name stands for all rows
    added so far, so that findings that were computed once are found again.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], list[pa.Table]] = {}
        self._ledgers: dict[LedgerSettings, Ledger] = {}
        self.lake = _no_lake()

    def beside(self, lake: Lake) -> Recording:
        """The same with what people did in a lake."""
        other = copy(self)
        other.lake = lake
        return other

    def add(self, table: schema.LakeTable, host: str, rows: pa.Table | Sequence[dict[str, Any]]) -> None:
        """Adds rows of one host, as an Arrow table of the schema or as dicts."""
        if len(rows):
            data = rows if isinstance(rows, pa.Table) else parquet.table_from_rows(table, rows)
            self._rows.setdefault((table.name, host), []).append(data)
            self._ledgers, self.lake = {}, _no_lake()

    def tables(self) -> Iterator[tuple[schema.LakeTable, str, pa.Table]]:
        """The rows of each table and host."""
        for (name, host), parts in self._rows.items():
            yield schema.table(name), host, pa.concat_tables(parts)

    def write(self, lake: Lake) -> Lake:
        """Writes one file per table, host and day, and returns the lake."""
        for table, host, data in self.tables():
            days = np.asarray(data["time"].cast(pa.int64())) // DAY_MS
            for number, day in enumerate(np.unique(days).tolist(), 1):
                file = LakeFile(table.name, utc_day(day * DAY_MS), host, number, number)
                lake.put(file, parquet.encode(table, data.filter(pa.array(days == day))))
        return lake

    def ledger(self, settings: LedgerSettings) -> Ledger:
        """The ledger of all rows, as `load_ledger` gives it of the lake; it names no files."""
        if settings not in self._ledgers:
            self._ledgers[settings] = self._made_ledger(settings)
        return self._ledgers[settings]

    def _made_ledger(self, settings: LedgerSettings) -> Ledger:
        with self._read_from_here():
            inventory = load_inventory(self.lake)
            allocations = load_allocations(self.lake, inventory)
            draws = resting_draws(inventory)
            samples = {table.name: list(self._host_days(table)) for table in SOURCES}
            newest = max(sample.day for sample in samples["gpu"])
            files: dict[tuple[str, int], dict[str, list[_DaySamples]]] = {
                (sample.of_host, sample.day): {table.name: [] for table in SOURCES} for sample in samples["gpu"]
            }
            for name, those in samples.items():
                for sample in those:
                    if (sample.of_host, sample.day) in files:
                        files[sample.of_host, sample.day][name].append(sample.moved(newest))
            allocated = allocations.on_days({utc_day(day * DAY_MS) for _, day in files})
            days = []
            for (host, day), own in sorted(files.items()):
                spans, unplaced = allocated.of(host, utc_day(day * DAY_MS))
                name, by_ms = f"{host}{_OF_DAY}{day}", (newest - day) * DAY_MS
                later = [pl.col("start", "end") + by_ms]
                days.append(
                    HostDay(
                        name,
                        utc_day(newest * DAY_MS),
                        own,  # type: ignore[arg-type]  # read by the functions below alone
                        spans.with_columns(later),
                        unplaced.with_columns(*later, host=pl.lit(name)),
                        inventory.instances(host),
                        draws.get(host, {}),
                    )
                )
            parts = {
                name: _put_back(rows, schema.table(name), newest) for name, rows in build_day(days, settings).items()
            }
        segments, idle_intervals = put_together(
            [(parts["ledger_part"], parts["idle_interval_part"])], settings, inventory
        )
        loose = {table.name: [parts[table.name]] for table in TABLES}
        return Ledger(segments, idle_intervals, Rollups({}, loose, allocations=allocations.rows), inventory)

    def _read_from_here(self) -> ExitStack:
        """Until it is closed, whatever reads the lake's files for a ledger reads these rows."""
        stack = ExitStack()
        for name, function in {
            "analytics.inventory.read_small": self._read_small,
            "analytics.ledger.day.read_small": self._read_small,
            "analytics.ledger.columns.by_host": _by_host,
            "analytics.ledger.day_hours.read_days": _read_days,
        }.items():
            stack.enter_context(patch(name, function))
        return stack

    def _frames(self, table: schema.LakeTable) -> Iterator[tuple[str, pl.DataFrame]]:
        for (name, host), parts in self._rows.items():
            if name == table.name:
                yield host, milliseconds(pa.concat_tables(parts)).with_columns(host=pl.lit(host))

    def _read_small(self, _: Lake, table: schema.LakeTable, columns: Sequence[str], **_flags: bool) -> pl.DataFrame:
        frames = [frame for _, frame in self._frames(table)] or [empty(table).with_columns(host=pl.lit(""))]
        return pl.concat(frames).select(*columns, "host")

    def _host_days(self, table: schema.LakeTable) -> Iterator[_DaySamples]:
        stamps = [column.name for column in table.columns if column.type is schema.Type.TIMESTAMP]
        for host, frame in self._frames(table):
            days = frame.with_columns(day=pl.col("time") // DAY_MS)
            for (day,), rows in days.partition_by("day", as_dict=True, include_key=False).items():
                yield _DaySamples(host, int(day), f"{host}{_OF_DAY}{day}", rows, stamps)


def _no_lake() -> Lake:
    return Lake.at(f"/nonexistent/{next(_NUMBERS)}")


@dataclass(frozen=True)
class _DaySamples:
    """The rows of one host and day in place of a file: `host` stands for the day, `of_host` is the real host."""

    of_host: str
    day: int
    host: str
    rows: pl.DataFrame
    stamps: Sequence[str]

    def moved(self, day: int) -> _DaySamples:
        """The same with the times of another day."""
        later = [pl.col(self.stamps) + (day - self.day) * DAY_MS]
        return replace(self, rows=self.rows.with_columns(*later, host=pl.lit(self.host)))


def _by_host(
    files: Sequence[_DaySamples], table: schema.LakeTable, columns: Sequence[str], *_: object, **__: object
) -> HostRows:
    """In the place of `decode.by_host`."""
    hosts: dict[str, list[pl.DataFrame]] = {}
    for file in files:
        hosts.setdefault(file.host, []).append(file.rows.select(columns))
    frames = [frame for own in hosts.values() for frame in own] or [empty(table).select(columns)]
    rows = pl.concat(frames, how="vertical_relaxed")
    return HostRows(rows, {host: sum(map(len, own)) for host, own in hosts.items()})


def _read_days(files: Sequence[_DaySamples], _: schema.LakeTable, columns: Sequence[str], *__: object) -> pl.DataFrame:
    """In the place of `decode.read_days`."""
    return pl.concat([file.rows for file in files]).select(columns)


def _put_back(rows: pl.DataFrame, table: schema.LakeTable, newest: int) -> pl.DataFrame:
    """The rows of a derived table with their real hosts and times."""
    stamps = [column.name for column in table.columns if column.type is schema.Type.TIMESTAMP]
    name = pl.col("host").str.split(_OF_DAY)
    earlier_ms = (newest - name.list.get(1).cast(pl.Int64)) * DAY_MS
    return rows.with_columns(*(pl.col(stamp) - earlier_ms for stamp in stamps), host=name.list.get(0))


def opened(
    site: Lake | Recording, since: str | None = None, until: str | None = None, config: str | None = None
) -> tuple[Inputs, WindowLedger]:
    """The settings and the ledger of a window, as a command opens them."""
    lake = site.lake if isinstance(site, Recording) else site
    inputs = open_inputs(argparse.Namespace(lake=lake.root, since=since, until=until, config=config))
    whole = site.ledger(inputs.ledger_settings) if isinstance(site, Recording) else None
    return inputs, load_window_ledger(inputs, whole=whole)

"""Writes imported rows to the lake; importing again, in parts or in any order, neither doubles nor loses rows.

One file per table, UTC date and host holds all rows that importers ever wrote. Its range is the epoch milliseconds of
its first and last row; agents number from 10^14 on, so the two ranges never cover each other. New rows are merged with
the present rows. The merged file gets a range that covers the old one, so it hides the old file, or replaces it under
the same name. Only then the old file is deleted: a reader of visible files sees the old rows or all rows at every
moment. Imports of one host take turns (fallow.leases), because each merges with the result of the one before.

Followed series arrive every few minutes. Their files hold an hour, and have the hour's range as their name; rows are
merged with the files that overlap their hour. `analytics.scraped.lake_writer.DayMerging` makes one file of a past day.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace

import polars as pl
import pyarrow as pa

from analytics.importers.kinds import with_progress
from analytics.importers.model import TRUE_MS, Imported
from analytics.importers.processes import process_rows
from analytics.importers.times import LATEST_MS
from analytics.importers.values import conform
from fallow import parquet
from fallow.clock import DAY_MS, HOUR_MS, floor_ms, utc_day
from fallow.lake import Lake, LakeFile, visible
from fallow.lake_init import opened_for_writing, require_marker
from fallow.leases import leased
from fallow.schema import DEVICE, EVENT, GPU, HOST, PROCESS, SERVING, LakeTable

_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "gpu": {"health": "ok", "util_source": "import"},
    "device": {"source": "import"},
    "process": {"attribution": "import"},
    "host": {},
    "event": {},
    "serving": {},
}
"""Columns filled in after merging, so that an importer without a column never hides the values of another importer."""

_KEYS: Mapping[str, list[str]] = {
    "gpu": ["gpu", "true_ms"],
    "device": ["gpu"],
    "process": ["gpu", "time", "pid"],
    "host": ["time"],
    "event": ["time", "gpu", "kind", "detail"],
    "serving": ["time", "endpoint", "model", "gpu"],
}
"""Columns that distinguish two rows; `true_ms` is time + offset_ms."""
_LAST_KEYS: Mapping[str, list[str]] = {"gpu": ["offset_ms"], "process": ["pid"]}
"""Columns that sort rows of one GPU and time."""


def merge(table: LakeTable, old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of both, sorted; where both have a row, new values win unless they are null.

    Rows of `gpu` are the same if GPU and true time (time + offset_ms) are, even with another interval. Rows of `device`
    are the same if the GPU is, on one date; the earlier time stays. Rows of `process`: if GPU, time and process are.
    """
    keys = _KEYS[table.name]
    marked = keyed(table, new).with_columns(is_new=pl.lit(value=True))
    both = marked.join(keyed(table, old), on=keys, how="full", coalesce=True, suffix="_old", nulls_equal=True)
    names = [name for name in table.names if name not in keys]
    columns = [
        pl.min_horizontal(name, f"{name}_old").alias(name)
        if table is DEVICE and name == "time"
        # processes are added to a list and never removed from it
        else pl.max_horizontal(name, f"{name}_old").alias(name)
        if name == "process_count"
        else pl.coalesce(name, f"{name}_old").alias(name)
        for name in names
    ]
    # only importers' columns are filled in: a compacted file may hold an agent's rows too
    filled = both.with_columns(columns).with_columns(
        pl.when(pl.col("is_new") & _applies(table, name))
        .then(pl.col(name).fill_null(value))
        .otherwise(name)
        .alias(name)
        for name, value in _DEFAULTS[table.name].items()
    )
    if table is SERVING:  # the GPU of a server may become known later
        is_placed = pl.col("gpu").is_not_null()
        filled = filled.filter(is_placed | ~is_placed.any().over("time", "endpoint", "model"))
    order = [name for name in ("gpu", "time") if name in table.names]
    return filled.select(table.names).sort([*order, *_LAST_KEYS.get(table.name, [])])


def _applies(table: LakeTable, name: str) -> pl.Expr:
    """Return whether a value applies: health is `ok` only for rows with some value, and unknown for other rows."""
    if name != "health":
        return pl.lit(value=True)
    described = ("time", "gpu", "interval_ms", "offset_ms", "read_delay_ms", "health", "util_source")
    return pl.any_horizontal(pl.col(each).is_not_null() for each in table.names if each not in described)


def keyed(table: LakeTable, rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(TRUE_MS) if table is GPU else rows


@dataclass(frozen=True)
class Published:
    """Numbers of new, unchanged and changed rows of one table."""

    table: str
    new: int
    already_there: int
    replaced: int
    files_written: int

    def plus(self, other: Published) -> Published:
        counts = zip(astuple(self)[1:], astuple(other)[1:], strict=True)
        return Published(self.table, *map(sum, counts))


def publish(lake: Lake, imported: Imported, *, hourly: bool = False) -> tuple[Published, ...]:
    """Merge the rows into the lake. Raises LakeError, after which the lake is whole and the same import completes it.

    With `hourly`, rows of `gpu`, `host` and `serving` go into files of an hour; all other rows go into files of a day.
    A service is unattended, so with `hourly` no lake is created: an empty folder is an unmounted one.
    """
    if hourly:
        require_marker(lake)
    else:
        opened_for_writing(lake)
    with leased(lake, f"import-{imported.host}", f"the import of {imported.host}") as mine:
        return _publish_tables(mine, imported, HOUR_MS if hourly else DAY_MS)


def _publish_tables(lake: Lake, imported: Imported, span_ms: int) -> tuple[Published, ...]:
    dates = _dates([imported.gpu, imported.device, imported.hosts, imported.events, imported.serving])
    tables = (DEVICE, PROCESS, EVENT, HOST, SERVING, GPU)
    present = {table.name: _present_files(lake, table, imported.host, dates) for table in tables}
    for files in present.values():
        for file in visible(files):
            parquet.open_file(file)  # a broken file is found before anything is written
    rows = _rows_at_known_times(imported.gpu, present[GPU.name], span_ms)
    listed = process_rows(rows)
    # the lists are written before the rows that count them
    due = (
        (DEVICE, imported.device, DAY_MS),
        (PROCESS, listed, DAY_MS),
        (EVENT, imported.events, DAY_MS),
        (HOST, imported.hosts, span_ms),
        (SERVING, imported.serving, span_ms),
        (GPU, rows, span_ms),
    )
    return tuple(
        _publish_table(lake, _Slot(table, imported.host, 0, length_ms), conform(frame, table), present[table.name])
        for table, frame, length_ms in due
        if frame.height or table in (DEVICE, GPU)
    )


def _dates(frames: Sequence[pl.DataFrame]) -> list[str]:
    """Return the rows' days and the days beside them, where the same rows may be under another interval's time."""
    days = {int(day) for frame in frames if frame.height for day in (frame["time"].dt.epoch("ms") // DAY_MS).unique()}
    return sorted({utc_day(each * DAY_MS) for day in days for each in (day - 1, day, day + 1) if each >= 0})


def _present_files(lake: Lake, table: LakeTable, host: str, dates: Sequence[str]) -> list[LakeFile]:
    """Return the host's files that imports wrote, including hidden ones and compacted files that contain one."""
    return [file for file in lake.all_files(table.name, hosts=[host], dates=dates) if file.first_seq < LATEST_MS]


@dataclass(frozen=True)
class _Slot:
    """A period of one table and host whose rows are one file: a day, or an hour of it."""

    table: LakeTable
    host: str
    start_ms: int
    span_ms: int

    @property
    def last_ms(self) -> int:
        return self.start_ms + self.span_ms - 1

    @property
    def date(self) -> str:
        return utc_day(self.start_ms)

    def near(self, files: Sequence[LakeFile]) -> list[LakeFile]:
        """Return the files that may hold rows of the period, or whose name would cover its file's."""
        return [
            each
            for each in files
            if each.date == self.date
            and (self.span_ms == DAY_MS or (each.first_seq <= self.last_ms and each.last_seq >= self.start_ms))
        ]

    def file(self, rows: pl.DataFrame, replaced: Sequence[LakeFile]) -> LakeFile:
        """Return the rows' file: an hour's has the hour's range, a day's its rows'; both cover what they replace."""
        moments = rows["time"].dt.epoch("ms").sort()
        first, last = (self.start_ms, self.last_ms) if self.span_ms < DAY_MS else (moments[0], moments[-1])
        return LakeFile(
            self.table.name,
            self.date,
            self.host,
            min([first, *(file.first_seq for file in replaced)]),
            max([last, *(file.last_seq for file in replaced)]),
        )


def _publish_table(lake: Lake, kind: _Slot, rows: pl.DataFrame, present: list[LakeFile]) -> Published:
    """Publish rows of one table and host; `kind` states which, and the length of its files' periods."""
    table, span_ms = kind.table, kind.span_ms
    parts = rows.with_columns(_slot=pl.col("time").dt.epoch("ms") // span_ms).partition_by(
        "_slot", as_dict=True, include_key=False
    )
    total = Published(table.name, 0, 0, 0, 0)
    for key in with_progress(sorted(parts), f"writing {table.name}"):
        slot = replace(kind, start_ms=int(str(key[0])) * span_ms)
        total = total.plus(_publish_slot(lake, slot, parts[key], slot.near(present)))
    return total


def _publish_slot(lake: Lake, slot: _Slot, new: pl.DataFrame, there: list[LakeFile]) -> Published:
    """Publish the rows of one table, host and period."""
    table, seen = slot.table, visible(there)
    old = _read(seen, table)
    merged = merge(table, old, new)
    old_keyed, merged_keyed = keyed(table, old), keyed(table, merged)
    fresh = merged_keyed.join(old_keyed, on=_KEYS[table.name], how="anti", nulls_equal=True).height
    same = merged.join(old, on=merged.columns, how="semi", nulls_equal=True).height
    changed = merged.height - fresh - same
    is_written = bool(fresh or changed) or len(seen) > 1
    if is_written:
        seen = [lake.put(slot.file(merged, seen), parquet.encode(table, merged, {"fallow_source": "import"}))]
    for file in there:
        if file.last_seq < LATEST_MS and any(each.key != file.key and each.covers(file) for each in seen):
            lake.delete(file)
    return Published(table.name, fresh, new.height - fresh - changed, changed, int(is_written))


def _read(files: list[LakeFile], table: LakeTable) -> pl.DataFrame:
    data: pa.Table = parquet.read(files, table)
    frame = pl.from_arrow(data.drop_columns(["host"]))
    if not isinstance(frame, pl.DataFrame):
        raise TypeError(frame)
    return conform(frame, table)


def _rows_at_known_times(rows: pl.DataFrame, present: list[LakeFile], span_ms: int) -> pl.DataFrame:
    """Return the rows; those in the lake under another date or hour (another interval) keep that time and offset.

    Two dates are two files, whose change no reader could see at once.
    """
    if rows.is_empty():
        return rows
    true_ms = rows.select(TRUE_MS).to_series()
    first, last = floor_ms(int(str(true_ms.min())), span_ms), floor_ms(int(str(true_ms.max())), span_ms)
    slots = [_Slot(GPU, "", start, span_ms) for start in range(max(0, first - span_ms), last + span_ms, span_ms)]
    nearby = visible({file.key: file for slot in slots for file in slot.near(present)}.values())
    if not nearby:
        return rows
    data: pa.Table = parquet.read(nearby, GPU, ["time", "gpu", "offset_ms"])
    there = pl.DataFrame(pl.from_arrow(data.drop_columns(["host"]))).with_columns(
        pl.col("gpu").cast(pl.String), TRUE_MS
    )
    there = there.unique(["gpu", "true_ms"]).rename({"time": "time_old", "offset_ms": "offset_old"})
    spans = [pl.col(name).dt.epoch("ms") // span_ms for name in ("time_old", "time")]
    moved = spans[0] != spans[1]
    return (
        rows.with_columns(TRUE_MS)
        .join(there, on=["gpu", "true_ms"], how="left")
        .with_columns(
            time=pl.when(moved).then("time_old").otherwise("time"),
            offset_ms=pl.when(moved).then("offset_old").otherwise("offset_ms"),
        )
        .select(rows.columns)
    )

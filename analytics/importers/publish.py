"""Writes imported rows to the lake; importing again, in parts or in any order, neither doubles nor loses rows.

One file per table, UTC date and host holds all that importers ever brought. Its range is the epoch milliseconds of its
first and last row; agents number from 10^15 on, so the two never cover each other. New rows are merged with what is
there, the merged file gets a range that covers the old one (and so hides it, or replaces it under the same name), and
only then the old one goes: a reader of visible files sees the old rows or all rows at every moment. Imports of one host take
turns (fallow.leases), for each merges with what the one before left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass

import polars as pl
import pyarrow as pa

from analytics.importers.kinds import with_progress
from analytics.importers.model import Imported
from analytics.importers.processes import process_rows
from analytics.importers.times import LATEST_MS
from analytics.importers.values import conform
from fallow import parquet
from fallow.clock import DAY_MS, utc_day
from fallow.lake import Lake, LakeFile, visible
from fallow.lake_init import opened_for_writing
from fallow.leases import leased
from fallow.schema import DEVICE, GPU, PROCESS, Table

_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "gpu": {"health": "ok", "util_source": "import"},
    "device": {"source": "import"},
    "process": {"attribution": "import"},
}
"""Filled in after merging, so that an importer that knows nothing of a column never hides what another one knew."""

_KEYS: Mapping[str, list[str]] = {"gpu": ["gpu", "true_ms"], "device": ["gpu"], "process": ["gpu", "time", "pid"]}
_LAST_KEYS: Mapping[str, list[str]] = {"gpu": ["offset_ms"], "process": ["pid"]}
"""What sorts rows of one GPU and time."""

_TRUE_MS = (pl.col("time").dt.epoch("ms") + pl.col("offset_ms").fill_null(0)).alias("true_ms")


@dataclass(frozen=True)
class Published:
    """How many rows of one table are new, were there already, or got other values."""

    table: str
    new: int
    already_there: int
    replaced: int
    files_written: int

    def plus(self, other: Published) -> Published:
        counts = zip(astuple(self)[1:], astuple(other)[1:], strict=True)
        return Published(self.table, *map(sum, counts))


def publish(lake: Lake, imported: Imported) -> tuple[Published, ...]:
    """Merges the rows into the lake. Raises LakeError; what is there then is whole, and the same import completes it."""
    opened_for_writing(lake)
    with leased(lake, f"import-{imported.host}", f"the import of {imported.host}") as mine:
        return _publish_tables(mine, imported)


def _publish_tables(lake: Lake, imported: Imported) -> tuple[Published, ...]:
    present = {table.name: _present(lake, table, imported.host) for table in (DEVICE, PROCESS, GPU)}
    for files in present.values():
        for file in visible(files):
            parquet.open_file(file)  # a broken file is found before anything is written
    rows = _keep_dates(imported.gpu, present[GPU.name])
    listed = process_rows(rows)
    # lists lie there before the rows that count them
    due = [(DEVICE, imported.device), *([(PROCESS, listed)] if listed.height else []), (GPU, rows)]
    return tuple(
        _publish_table(lake, table, conform(frame, table), imported.host, present[table.name]) for table, frame in due
    )


def _present(lake: Lake, table: Table, host: str) -> list[LakeFile]:
    """Files of the host that imports wrote, including hidden ones and compacted files that contain such a file."""
    return [file for file in lake.all_files(table.name, hosts=[host]) if file.first_seq < LATEST_MS]


def _publish_table(lake: Lake, table: Table, rows: pl.DataFrame, host: str, present: list[LakeFile]) -> Published:
    days = rows.with_columns(day=pl.col("time").dt.strftime("%Y-%m-%d")).partition_by(
        "day", as_dict=True, include_key=False
    )
    total = Published(table.name, 0, 0, 0, 0)
    for day in with_progress(sorted(days), f"writing {table.name}"):
        there = [file for file in present if file.date == day[0]]
        done = _publish_day(lake, table, days[day], LakeFile(table.name, str(day[0]), host, 0, 0), there)
        total = total.plus(done)
    return total


def _publish_day(lake: Lake, table: Table, new: pl.DataFrame, place: LakeFile, there: list[LakeFile]) -> Published:
    """One table, date and host."""
    seen = visible(there)
    old = _read(seen, table)
    merged = merge(table, old, new)
    keys = _keys(table)
    old_keyed, merged_keyed = _keyed(table, old), _keyed(table, merged)
    fresh = merged_keyed.join(old_keyed, on=keys, how="anti").height
    same = _same_rows(old, merged)
    known = new.height - fresh
    changed = merged.height - fresh - same
    result = Published(table.name, fresh, known - changed, changed, 0)
    if fresh or changed or len(seen) > 1:
        first, last = _range(merged, seen)
        written = lake.put(
            LakeFile(table.name, place.date, place.host, first, last),
            parquet.encode(table, merged.to_arrow(), {"fallow_source": "import"}),
        )
        seen = [written]
        result = Published(table.name, fresh, known - changed, changed, 1)
    for file in there:
        if file.last_seq < LATEST_MS and any(each.key != file.key and each.covers(file) for each in seen):
            lake.delete(file)
    return result


def merge(table: Table, old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """The rows of both, sorted; where both have a row, new values win unless they are null.

    Rows of `gpu` are the same if GPU and true time are (time + offset_ms: also when another interval was given);
    rows of `device` if the GPU is, on one date, and then the earlier time stays; rows of `process` if GPU, time and
    process are.
    """
    keys = _keys(table)
    marked = _keyed(table, new).with_columns(is_new=pl.lit(value=True))
    both = marked.join(_keyed(table, old), on=keys, how="full", coalesce=True, suffix="_old")
    names = [name for name in table.names if name not in keys]
    columns = [
        pl.min_horizontal(name, f"{name}_old").alias(name)
        if table is DEVICE and name == "time"
        # processes are added to a list and never taken from it
        else pl.max_horizontal(name, f"{name}_old").alias(name)
        if name == "process_count"
        else pl.coalesce(name, f"{name}_old").alias(name)
        for name in names
    ]
    # only what an importer brings is filled in: a compacted file may hold an agent's rows too
    filled = both.with_columns(columns).with_columns(
        pl.when(pl.col("is_new") & _applies(table, name))
        .then(pl.col(name).fill_null(value))
        .otherwise(name)
        .alias(name)
        for name, value in _DEFAULTS[table.name].items()
    )
    return filled.select(table.names).sort(["gpu", "time", *_LAST_KEYS.get(table.name, [])])


def _applies(table: Table, name: str) -> pl.Expr:
    """Health is `ok` only for rows with some value; for a row without any it is unknown."""
    if name != "health":
        return pl.lit(value=True)
    described = ("time", "gpu", "interval_ms", "offset_ms", "read_delay_ms", "health", "util_source")
    return pl.any_horizontal(pl.col(each).is_not_null() for each in table.names if each not in described)


def _keys(table: Table) -> list[str]:
    return _KEYS[table.name]


def _keyed(table: Table, rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(_TRUE_MS) if table is GPU else rows


def _same_rows(old: pl.DataFrame, merged: pl.DataFrame) -> int:
    """How many rows of the lake stay as they are, to the last bit."""
    return merged.join(old, on=merged.columns, how="semi", nulls_equal=True).height


def _range(rows: pl.DataFrame, replaced: list[LakeFile]) -> tuple[int, int]:
    moments = rows["time"].dt.epoch("ms").sort()
    return (
        min([moments[0], *(file.first_seq for file in replaced)]),
        max([moments[-1], *(file.last_seq for file in replaced)]),
    )


def _read(files: list[LakeFile], table: Table) -> pl.DataFrame:
    data: pa.Table = parquet.read(files, table)
    frame = pl.from_arrow(data.drop_columns(["host"]))
    if not isinstance(frame, pl.DataFrame):
        raise TypeError(frame)
    return conform(frame, table)


def _keep_dates(rows: pl.DataFrame, present: list[LakeFile]) -> pl.DataFrame:
    """Rows that lie in the lake under another date (another interval was given then) stay at that time and offset.

    Two dates are two files, which no reader could see changing at once.
    """
    true_days = rows.select(pl.concat([_TRUE_MS, pl.col("time").dt.epoch("ms")]) // DAY_MS).to_series().unique()
    days = {utc_day((each + shift) * DAY_MS) for each in true_days for shift in (-1, 0) if each + shift >= 0}
    nearby = visible([file for file in present if file.date in days])
    if not nearby:
        return rows
    data: pa.Table = parquet.read(nearby, GPU, ["time", "gpu", "offset_ms"])
    there = pl.DataFrame(pl.from_arrow(data.drop_columns(["host"]))).with_columns(
        pl.col("gpu").cast(pl.String), _TRUE_MS
    )
    there = there.unique(["gpu", "true_ms"]).rename({"time": "time_old", "offset_ms": "offset_old"})
    moved = pl.col("time_old").dt.date() != pl.col("time").dt.date()
    return (
        rows.with_columns(_TRUE_MS)
        .join(there, on=["gpu", "true_ms"], how="left")
        .with_columns(
            time=pl.when(moved).then("time_old").otherwise("time"),
            offset_ms=pl.when(moved).then("offset_old").otherwise("offset_ms"),
        )
        .select(rows.columns)
    )

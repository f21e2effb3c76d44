"""Writes allocations to the lake; importing the same or an overlapping export again neither doubles nor loses rows.

One file per host and UTC date of the allocations' starts holds all imported rows. Its range is the epoch milliseconds
of its first and last row. Agents number from 10^14 on, so the two ranges never cover each other, and allocations that
an agent wrote stay visible. The merged file's range covers the old one, so it hides the old file, or replaces it under
the same name. Only then is the old file deleted: a reader of visible files always sees the old rows or all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from analytics.allocations.model import ROW_SCHEMA, ReadAllocations, conform, is_reported, is_running
from analytics.frames import read_frame
from analytics.importers.kinds import with_progress
from analytics.importers.publish import Published
from analytics.importers.times import LATEST_MS
from fallow import parquet
from fallow.clock import DAY_MS, utc_day
from fallow.lake import Lake, LakeFile, visible
from fallow.schema import ALLOCATION

AS_OF = "allocations_as_of_ms"
"""Key of the files' metadata: the moment that the source describes."""

TIME_ZONES = "allocations_time_zones"
"""Metadata key: the zones, joined by commas, in which times without an offset were read; `?` is unknown."""

_RUN = ["scheduler", "allocation_id", "time"]
_KEY = [*_RUN, "gpu"]
_VALUES = [name for name in ALLOCATION.names if name not in _KEY]
_NOTHING = pl.DataFrame(schema={name: ROW_SCHEMA[name] for name in ("scheduler", "allocation_id", "host", "time")})


def write(
    lake: Lake, read: ReadAllocations, removed: pl.DataFrame | None = None, *, newest_first: bool = False
) -> Published:
    """Merge the allocations into the lake. Raises LakeError: the lake is whole, and the same import completes it.

    `removed` are runs (scheduler, allocation_id, host, time) that the imported ones replace. `newest_first` is the
    order of the days: the replacement must be written before the replaced rows go.
    """
    gone = (_NOTHING if removed is None else removed).with_columns(_day=pl.col("time") // DAY_MS)
    rows = read.rows.unique(["host", *_KEY], keep="last", maintain_order=True)
    days = rows.with_columns(_day=pl.col("time") // DAY_MS).partition_by(
        "host", "_day", as_dict=True, include_key=False
    )
    days = dict.fromkeys(gone.select("host", "_day").unique().rows(), rows.clear()) | days
    present = _present_files(lake, {str(host) for host, _ in days})
    due = {key: present.get((str(key[0]), utc_day(int(key[1]) * DAY_MS)), []) for key in days}
    for files in due.values():
        for file in visible(files):
            parquet.open_file(file)  # a broken file is found before anything is written
    total = Published("allocation", 0, 0, 0, 0)
    for key in with_progress(sorted(days, key=lambda key: key[::-1], reverse=newest_first), "writing allocations"):
        place = LakeFile("allocation", utc_day(int(key[1]) * DAY_MS), str(key[0]), 0, 0)
        facts = _facts(read, visible(due[key]))
        done = _write_day(lake, conform(days[key]), place, due[key], gone=gone.drop("_day"), facts=facts)
        total = total.plus(done)
    return total


def imported_files(lake: Lake, hosts: set[str]) -> list[LakeFile]:
    """Return the files that imports wrote, including hidden ones and compacted files that contain such a file."""
    return [file for file in lake.all_files("allocation", hosts=hosts) if file.first_seq < LATEST_MS]


def time_zones(files: Sequence[LakeFile]) -> set[str]:
    """Return the zones in which these files' times were read; `?` for a file that does not state one."""
    return {zone for file in files for zone in parquet.metadata(file).get(TIME_ZONES, "?").split(",")}


def _present_files(lake: Lake, hosts: set[str]) -> dict[tuple[str, str], list[LakeFile]]:
    found: dict[tuple[str, str], list[LakeFile]] = {}
    for file in imported_files(lake, hosts):
        found.setdefault((file.host, file.date), []).append(file)
    return found


def _facts(read: ReadAllocations, seen: Sequence[LakeFile]) -> dict[str, str]:
    zones = ",".join(sorted(time_zones(seen) | {read.zone}))
    known = {} if read.as_of_ms is None else {AS_OF: str(read.as_of_ms)}
    return {"fallow_source": "allocations", TIME_ZONES: zones} | known


def _write_day(
    lake: Lake,
    new: pl.DataFrame,
    place: LakeFile,
    there: Sequence[LakeFile],
    *,
    gone: pl.DataFrame,
    facts: Mapping[str, str],
) -> Published:
    seen = visible(list(there))
    if not there:  # nothing to merge with: true for most days of a first import
        return _write_new(lake, new, place, facts)
    everything = conform(read_frame(seen, ALLOCATION))
    old = everything.join(gone, on=gone.columns, how="anti", nulls_equal=True)
    merged = merge(old, new)
    named = merged.join(_rows_on_known_gpus(old, new), on=_KEY, how="semi", nulls_equal=True)
    same = merged.join(old, on=ALLOCATION.names, how="semi", nulls_equal=True).height
    already = named.join(old, on=ALLOCATION.names, how="semi", nulls_equal=True).height
    fresh = merged.join(old, on=_KEY, how="anti", nulls_equal=True).height
    replaced = merged.height - fresh - same
    if not (fresh or replaced or len(seen) > 1 or merged.height != everything.height):
        return Published("allocation", 0, already, 0, 0)
    # deleted rows leave a file that hides theirs, even if the file is empty
    moments = pl.concat([merged["time"], everything["time"]])
    first = min([moments.min(), *(file.first_seq for file in seen)])  # type: ignore[type-var]  # integers
    last = max([moments.max(), *(file.last_seq for file in seen)])  # type: ignore[type-var]
    written = lake.put(
        LakeFile("allocation", place.date, place.host, int(str(first)), int(str(last))),
        parquet.encode(ALLOCATION, merged, facts),
    )
    for file in there:
        if file.last_seq < LATEST_MS and file.key != written.key and written.covers(file):
            lake.delete(file)
    return Published("allocation", fresh, already, replaced, 1)


def _write_new(lake: Lake, new: pl.DataFrame, place: LakeFile, facts: Mapping[str, str]) -> Published:
    rows = _sorted_rows(_without_counts_of_named(new))
    if rows.is_empty():
        return Published("allocation", 0, 0, 0, 0)
    first, last = int(str(rows["time"].min())), int(str(rows["time"].max()))
    file = LakeFile("allocation", place.date, place.host, first, last)
    lake.put(file, parquet.encode(ALLOCATION, rows, facts))
    return Published("allocation", rows.height, 0, 0, 1)


def merge(old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Return the allocations of both, one row per scheduler, allocation, start and GPU; both with ROW_SCHEMA.

    Where both know an allocation, new values win unless they are null. Once an allocation has an end, a source in which
    it still runs is the older one, and adds only what was unknown; but where only labels show the end (no scheduler
    reported the run, or it ran in its last state), the scheduler wins, with whose allocations it ran at `as_of`. Where
    one source names the GPUs of an allocation and the other only counts them, the GPUs stay, and the newer source gives
    the other values.
    """
    named = _rows_on_known_gpus(old, new)
    both = named.with_columns(_new=True).join(
        old.with_columns(_old=True), on=_KEY, how="full", coalesce=True, nulls_equal=True, suffix="_old"
    )
    outranks = is_reported() & (~is_reported("_old") | is_running("_old"))
    runs = pl.col("end").is_null() & pl.col("_new").is_not_null()
    older = (runs & pl.col("end_old").is_not_null() & ~outranks) | pl.col("_new").is_null()
    values = {
        name: pl.when(older).then(pl.coalesce(f"{name}_old", name)).otherwise(pl.coalesce(name, f"{name}_old"))
        for name in ("host", *_VALUES)
    }
    ran_on = (runs & outranks & (pl.col("end_old") <= pl.col("as_of"))).fill_null(value=False)
    values["end"] = pl.when(~ran_on).then(values["end"])
    merged = both.with_columns(**values).select(*ROW_SCHEMA)
    return _sorted_rows(_without_counts_of_named(merged))


def _sorted_rows(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.sort("gpu", "time", "allocation_id", nulls_last=True)


def _rows_on_known_gpus(old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Return the new rows; their values for an allocation whose GPUs only the old rows name apply to these GPUs too."""
    named = old.filter(pl.col("gpu").is_not_null()).select(_KEY)
    without = named.join(new.filter(pl.col("gpu").is_not_null()), on=_RUN, how="anti", nulls_equal=True)
    counted = new.filter(pl.col("gpu").is_null()).with_columns(host_gpu_count=pl.lit(None, pl.Int32)).drop("gpu")
    spread = without.join(counted, on=_RUN, nulls_equal=True)
    return pl.concat([new, spread.select(*ROW_SCHEMA)])


def _without_counts_of_named(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows without an allocation's count on a host where as many GPUs, or an unknown number, are named."""
    named = rows.filter(pl.col("gpu").is_not_null()).group_by(_RUN).agg(_named=pl.len().cast(pl.Int64))
    known = rows.join(named, on=_RUN, how="left", nulls_equal=True)
    counts_more = (pl.col("host_gpu_count") > pl.col("_named")).fill_null(value=False)
    return known.filter(pl.col("gpu").is_not_null() | pl.col("_named").is_null() | counts_more).select(*ROW_SCHEMA)

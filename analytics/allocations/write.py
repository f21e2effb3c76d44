"""Writes allocations to the lake; importing the same or an overlapping export again neither doubles nor loses rows.

One file per host and UTC date of the allocations' starts holds all that was imported. Its range is the epoch milliseconds of its
first and last row; agents number from 10^14 on, so the two never cover each other, and allocations that an agent wrote
stay seen. The merged file gets a range that covers the old one (and so hides it, or replaces it under the same name), and
only then the old one goes: a reader of visible files sees the old rows or all rows at every moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from analytics.allocations.model import ROW_SCHEMA, ReadAllocations, conform
from analytics.frames import read_frame
from analytics.importers.kinds import with_progress
from analytics.importers.publish import Published
from analytics.importers.times import LATEST_MS
from fallow import parquet
from fallow.clock import DAY_MS, utc_day
from fallow.lake import Lake, LakeFile, visible
from fallow.schema import CLAIM

AS_OF = "claims_as_of_ms"
"""Key of the files' metadata: the moment that the source describes."""

TIME_ZONES = "claims_time_zones"
"""Key of the files' metadata: the zones, joined by commas, in which times without an offset were read; `?` is unknown."""

_RUN = ["scheduler", "claim_id", "time"]
_KEY = [*_RUN, "gpu"]
_VALUES = [name for name in CLAIM.names if name not in _KEY]
_NOTHING = pl.DataFrame(schema={name: ROW_SCHEMA[name] for name in ("scheduler", "claim_id", "host", "time")})


def write(
    lake: Lake, read: ReadAllocations, removed: pl.DataFrame | None = None, *, newest_first: bool = False
) -> Published:
    """Merges the allocations into the lake. Raises LakeError; what is there then is whole, and the same import completes it.

    Args:
        lake: where to.
        read: what was imported.
        removed: runs (scheduler, claim_id, host, time) that the imported ones stand for: they go.
        newest_first: order of the days; what goes must not be written before what stands for it.
    """
    gone = (_NOTHING if removed is None else removed).with_columns(_day=pl.col("time") // DAY_MS)
    rows = read.rows.unique(["host", *_KEY], keep="last", maintain_order=True)
    days = rows.with_columns(_day=pl.col("time") // DAY_MS).partition_by(
        "host", "_day", as_dict=True, include_key=False
    )
    days = dict.fromkeys(gone.select("host", "_day").unique().rows(), rows.clear()) | days
    present = _present(lake, {str(host) for host, _ in days})
    due = {key: present.get((str(key[0]), utc_day(int(key[1]) * DAY_MS)), []) for key in days}
    for files in due.values():
        for file in visible(files):
            parquet.open_file(file)  # a broken file is found before anything is written
    total = Published("claim", 0, 0, 0, 0)
    for key in with_progress(sorted(days, key=lambda key: key[::-1], reverse=newest_first), "writing allocations"):
        place = LakeFile("claim", utc_day(int(key[1]) * DAY_MS), str(key[0]), 0, 0)
        facts = _facts(read, visible(due[key]))
        done = _write_day(lake, conform(days[key]), place, due[key], gone=gone.drop("_day"), facts=facts)
        total = total.plus(done)
    return total


def imported_files(lake: Lake, hosts: set[str]) -> list[LakeFile]:
    """Files that imports wrote, including hidden ones and compacted files that contain such a file."""
    return [file for file in lake.all_files("claim", hosts=hosts) if file.first_seq < LATEST_MS]


def time_zones(files: Sequence[LakeFile]) -> set[str]:
    """The zones in which these files' times were read; `?` for a file that does not say."""
    return {zone for file in files for zone in parquet.metadata(file).get(TIME_ZONES, "?").split(",")}


def _present(lake: Lake, hosts: set[str]) -> dict[tuple[str, str], list[LakeFile]]:
    found: dict[tuple[str, str], list[LakeFile]] = {}
    for file in imported_files(lake, hosts):
        found.setdefault((file.host, file.date), []).append(file)
    return found


def _facts(read: ReadAllocations, seen: Sequence[LakeFile]) -> dict[str, str]:
    zones = ",".join(sorted(time_zones(seen) | {read.zone}))
    known = {} if read.as_of_ms is None else {AS_OF: str(read.as_of_ms)}
    return {"fallow_source": "claims", TIME_ZONES: zones} | known


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
    if not there:  # nothing to merge with: most days of a first import
        return _write_new(lake, new, place, facts)
    everything = conform(read_frame(seen, CLAIM))
    old = everything.join(gone, on=gone.columns, how="anti", nulls_equal=True)
    merged = merge(old, new)
    told = merged.join(_on_known_gpus(old, new), on=_KEY, how="semi", nulls_equal=True)
    same = merged.join(old, on=CLAIM.names, how="semi", nulls_equal=True).height
    already = told.join(old, on=CLAIM.names, how="semi", nulls_equal=True).height
    fresh = merged.join(old, on=_KEY, how="anti", nulls_equal=True).height
    replaced = merged.height - fresh - same
    if not (fresh or replaced or len(seen) > 1 or merged.height != everything.height):
        return Published("claim", 0, already, 0, 0)
    # rows that went leave a file behind that hides theirs, even where nothing is in it
    moments = pl.concat([merged["time"], everything["time"]])
    first = min([moments.min(), *(file.first_seq for file in seen)])  # type: ignore[type-var]  # integers
    last = max([moments.max(), *(file.last_seq for file in seen)])  # type: ignore[type-var]
    written = lake.put(
        LakeFile("claim", place.date, place.host, int(str(first)), int(str(last))), parquet.encode(CLAIM, merged, facts)
    )
    for file in there:
        if file.last_seq < LATEST_MS and file.key != written.key and written.covers(file):
            lake.delete(file)
    return Published("claim", fresh, already, replaced, 1)


def _write_new(lake: Lake, new: pl.DataFrame, place: LakeFile, facts: Mapping[str, str]) -> Published:
    rows = _in_order(_without_counts_of_named(new))
    if rows.is_empty():
        return Published("claim", 0, 0, 0, 0)
    first, last = int(str(rows["time"].min())), int(str(rows["time"].max()))
    file = LakeFile("claim", place.date, place.host, first, last)
    lake.put(file, parquet.encode(CLAIM, rows, facts))
    return Published("claim", rows.height, 0, 0, 1)


def merge(old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """The allocations of both, one row per scheduler, allocation, start and GPU; both with ROW_SCHEMA.

    Where both know an allocation, new values win unless they are null; but once an allocation has an end, a source that still saw it
    running is the older one, and adds only what was unknown. An allocation that one of them has by its GPUs and the other by their
    number alone keeps the GPUs, and takes the rest from the newer.
    """
    told = _on_known_gpus(old, new)
    both = told.with_columns(_new=True).join(
        old.with_columns(_old=True), on=_KEY, how="full", coalesce=True, nulls_equal=True, suffix="_old"
    )
    older = (pl.col("end").is_null() & pl.col("end_old").is_not_null()) | pl.col("_new").is_null()
    values = [
        pl.when(older).then(pl.coalesce(f"{name}_old", name)).otherwise(pl.coalesce(name, f"{name}_old")).alias(name)
        for name in ("host", *_VALUES)
    ]
    merged = both.with_columns(values).select(*ROW_SCHEMA)
    return _in_order(_without_counts_of_named(merged))


def _in_order(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.sort("gpu", "time", "claim_id", nulls_last=True)


def _on_known_gpus(old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """The new rows; what they say of an allocation whose GPUs only the old rows name is said of these GPUs too."""
    named = old.filter(pl.col("gpu").is_not_null()).select(_KEY)
    without = named.join(new.filter(pl.col("gpu").is_not_null()), on=_RUN, how="anti", nulls_equal=True)
    counted = new.filter(pl.col("gpu").is_null()).with_columns(host_gpu_count=pl.lit(None, pl.Int32)).drop("gpu")
    spread = without.join(counted, on=_RUN, nulls_equal=True)
    return pl.concat([new, spread.select(*ROW_SCHEMA)])


def _without_counts_of_named(rows: pl.DataFrame) -> pl.DataFrame:
    """Leaves out an allocation's count on the host where as many GPUs, or an unknown number, are named."""
    named = rows.filter(pl.col("gpu").is_not_null()).group_by(_RUN).agg(_named=pl.len().cast(pl.Int64))
    known = rows.join(named, on=_RUN, how="left", nulls_equal=True)
    rest = (pl.col("host_gpu_count") > pl.col("_named")).fill_null(value=False)
    return known.filter(pl.col("gpu").is_not_null() | pl.col("_named").is_null() | rest).select(*ROW_SCHEMA)

"""Puts claims into the lake so that reading the same or an overlapping export again doubles and loses nothing.

One file per host and UTC date of the claims' starts holds all that was imported. Its range is the epoch milliseconds of its
first and last row; agents number from 10^15 on, so the two never cover each other, and claims that an agent wrote
stay seen. The merged file gets a range that covers the old one (and so hides it, or replaces it under the same name), and
only then the old one goes: a reader of visible files sees the old rows or all rows at every moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.claims.rows import ROW_SCHEMA, conform
from analytics.frames import arrow, read_frame
from analytics.importers.publish import Published
from analytics.importers.times import LATEST_MS
from fallow import parquet
from fallow.clock import DAY_MS, utc_day
from fallow.lake import Lake, LakeFile, visible
from fallow.schema import CLAIM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.claims.model import ReadClaims
    from analytics.importers.model import Progress

AS_OF = "claims_as_of_ms"
"""Key of the files' metadata: when the source knew what it says."""

_RUN = ["scheduler", "claim_id", "time"]
_KEY = [*_RUN, "gpu"]
_VALUES = [name for name in CLAIM.names if name not in _KEY]


def write(lake: Lake, read: ReadClaims, progress: Progress) -> Published:
    """Merges the claims into the lake. Raises LakeError; what is there then is whole, and the same import completes it."""
    rows = read.rows.unique(["host", *_KEY], keep="last", maintain_order=True)
    days = rows.with_columns(_day=pl.col("time") // DAY_MS).partition_by(
        "host", "_day", as_dict=True, include_key=False
    )
    present = _present(lake, {str(host) for host, _ in days})
    due = {key: present.get((str(key[0]), utc_day(int(key[1]) * DAY_MS)), []) for key in days}
    for files in due.values():
        for file in visible(files):
            parquet.open_file(file)  # a broken file is found before anything is written
    total = Published("claim", 0, 0, 0, 0)
    for key in progress.each(sorted(days), "writing claims"):
        place = LakeFile("claim", utc_day(int(key[1]) * DAY_MS), str(key[0]), 0, 0)
        done = _write_day(lake, conform(days[key]), place, due[key], read.as_of_ms)
        total = Published(
            "claim", total.new + done.new, total.already_there + done.already_there, total.replaced + done.replaced,
            total.files_written + done.files_written,
        )  # fmt: skip
    return total


def _present(lake: Lake, hosts: set[str]) -> dict[tuple[str, str], list[LakeFile]]:
    """Files that imports wrote, also hidden ones, by host and date; also a compacted file that took such a file in."""
    found: dict[tuple[str, str], list[LakeFile]] = {}
    for file in lake.all_files("claim", hosts=hosts):
        if file.first_seq < LATEST_MS:
            found.setdefault((file.host, file.date), []).append(file)
    return found


def _write_day(
    lake: Lake, new: pl.DataFrame, place: LakeFile, there: Sequence[LakeFile], as_of_ms: int | None
) -> Published:
    """One host and date."""
    seen = visible(list(there))
    old = conform(read_frame(seen, CLAIM))
    merged = merge(old, new)
    told = merged.join(_on_known_gpus(old, new), on=_KEY, how="semi", nulls_equal=True)
    same = merged.join(old, on=CLAIM.names, how="semi", nulls_equal=True).height
    already = told.join(old, on=CLAIM.names, how="semi", nulls_equal=True).height
    fresh = merged.join(old, on=_KEY, how="anti", nulls_equal=True).height
    replaced = merged.height - fresh - same
    if not (fresh or replaced or len(seen) > 1 or merged.height != old.height):
        return Published("claim", 0, already, 0, 0)
    first = min([merged["time"].min(), *(file.first_seq for file in seen)])  # type: ignore[type-var]  # integers
    last = max([merged["time"].max(), *(file.last_seq for file in seen)])  # type: ignore[type-var]
    facts = {"fallow_source": "claims"} | ({} if as_of_ms is None else {AS_OF: str(as_of_ms)})
    written = lake.put(
        LakeFile("claim", place.date, place.host, int(str(first)), int(str(last))),
        parquet.encode(CLAIM, arrow(merged, CLAIM), facts),
    )
    for file in there:
        if file.last_seq < LATEST_MS and file.key != written.key and written.covers(file):
            lake.delete(file)
    return Published("claim", fresh, already, replaced, 1)


def merge(old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """The claims of both, one row per scheduler, claim, start and GPU; both with ROW_SCHEMA.

    Where both know a claim, new values win unless they are null; but once a claim has an end, a source that still saw it
    running is the older one, and adds only what was unknown. A claim that one of them has by its GPUs and the other by their
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
    return _without_counts_of_named(merged).sort("gpu", "time", "claim_id", nulls_last=True)


def _on_known_gpus(old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """The new rows; what they say of a claim whose GPUs only the old rows name is said of these GPUs too."""
    named = old.filter(pl.col("gpu").is_not_null()).select(_KEY)
    without = named.join(new.filter(pl.col("gpu").is_not_null()), on=_RUN, how="anti", nulls_equal=True)
    counted = new.filter(pl.col("gpu").is_null()).with_columns(host_gpu_count=pl.lit(None, pl.Int32)).drop("gpu")
    spread = without.join(counted, on=_RUN, nulls_equal=True)
    return pl.concat([new, spread.select(*ROW_SCHEMA)])


def _without_counts_of_named(rows: pl.DataFrame) -> pl.DataFrame:
    """Leaves out a claim's count on the host where as many GPUs, or an unknown number, are named."""
    named = rows.filter(pl.col("gpu").is_not_null()).group_by(_RUN).agg(_named=pl.len().cast(pl.Int64))
    known = rows.join(named, on=_RUN, how="left", nulls_equal=True)
    rest = (pl.col("host_gpu_count") > pl.col("_named")).fill_null(value=False)
    return known.filter(pl.col("gpu").is_not_null() | pl.col("_named").is_null() | rest).select(*ROW_SCHEMA)

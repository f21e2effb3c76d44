"""The film strip's frames: for every GPU and every stretch of time, the state that it spent most of it in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import polars as pl

from analytics.ledger.summary import totals_by
from dashboard.palette import ORDER
from dashboard.zoom import visible
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, floor_ms

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from dashboard.source import View

MOST_ROWS = 2_000
MOST_COLUMNS = 720
MOST_CELLS = 250_000
"""What keeps the picture below 30 kB on the wire; who zooms in has finer frames."""
NOT_SEEN = len(ORDER)
"""The value of a frame that lies before a GPU's first row or after its last, or where somebody else had it."""
SORTS = ("host", "waste", "holder")
_UNUSED = ("free", "reserved", "held")

_BINS_MS = (
    *(MINUTE_MS * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(HOUR_MS * hours for hours in (1, 2, 3, 4, 6, 12)),
    *(DAY_MS * days for days in (1, 2, 7, 28, 364)),
)

_MOST_OF_EACH_FRAME = """
    WITH cut AS (
        SELECT row_number, value, "time", "end",
               unnest(range(("time" - $start) // $bin, ("end" - 1 - $start) // $bin + 1)) AS frame
        FROM spans
    ), shares AS (
        SELECT row_number, frame, value,
               sum(least("end", $start + (frame + 1) * $bin) - greatest("time", $start + frame * $bin)) AS value_ms
        FROM cut GROUP BY ALL
    )
    SELECT row_number, frame, max_by(value, (value_ms, value)) AS value
    FROM shares GROUP BY ALL
"""


@dataclass(frozen=True, eq=False)
class Film:
    """`frames[row, column]` is an index into ORDER, or NOT_SEEN; row i is GPU `gpus[i]` on `hosts[i]`.

    `holders[i]` had it longest in the window (None: nobody), `unused_ms[i]` is how long nothing was done with it there.
    `had[row, column]` is an index into `names`, 0 for nobody.
    """

    frames: NDArray[np.uint8]
    gpus: tuple[str, ...]
    hosts: tuple[str, ...]
    holders: tuple[str | None, ...]
    unused_ms: tuple[int, ...]
    had: NDArray[np.int32]
    names: tuple[str, ...]
    start_ms: int
    bin_ms: int
    gpus_in_all: int


def sort_of(view: View) -> str:
    """The order of rows that the address asks for; by host where it says nothing that is one."""
    return view.query.sort if view.query.sort in SORTS else SORTS[0]


def bin_width_ms(since_ms: int, until_ms: int, rows: int = 1) -> int:
    """The shortest round width that needs no more than MOST_COLUMNS frames, and MOST_CELLS in all rows."""
    most = min(MOST_COLUMNS, MOST_CELLS // max(1, rows))
    fits = (width for width in _BINS_MS if (until_ms - since_ms) / width <= most)
    return next(fits, _BINS_MS[-1])


def shoot(view: View, only: Collection[str] | None = None) -> Film:
    """The film of what is in sight: all GPUs (or some), where there are too many the MOST_ROWS with the most unused time.

    Rows go by what the address asks for: host, unused time or holder, of the whole window.
    """
    since_ms, until_ms = visible(view)
    spans = view.part.inside.stretches.select("gpu", "host", "holder", "state", "time", "end", "gpu_share")
    if only is not None:
        spans = spans.filter(pl.col("gpu").is_in(list(only)))
    rows, gpus_in_all = _rows(spans, sort_of(view))
    bin_ms = bin_width_ms(since_ms, until_ms, rows.height)
    start_ms = floor_ms(since_ms, bin_ms)
    shape = (rows.height, (until_ms - 1 - start_ms) // bin_ms + 1)
    names = ("", *spans["holder"].drop_nulls().unique().sort())
    start, end = pl.max_horizontal("time", pl.lit(since_ms)), pl.min_horizontal("end", pl.lit(until_ms))
    seen = (
        spans.join(rows.select("gpu", "row_number"), on="gpu")
        .filter(start < end)
        .with_columns(
            time=start,
            end=end,
            state=pl.col("state").replace_strict(list(ORDER), list(range(len(ORDER))), return_dtype=pl.Int32),
            holder=pl.col("holder")
            .fill_null("")
            .replace_strict(list(names), list(range(len(names))), return_dtype=pl.Int32),
        )
    )
    return Film(
        frames=_frames(seen, "state", np.full(shape, NOT_SEEN, np.int32), start_ms, bin_ms).astype(np.uint8),
        gpus=tuple(rows["gpu"]),
        hosts=tuple(rows["host"]),
        holders=tuple(rows["holder"]),
        unused_ms=tuple(rows["unused_ms"]),
        had=_frames(seen, "holder", np.zeros(shape, np.int32), start_ms, bin_ms),
        names=names,
        start_ms=start_ms,
        bin_ms=bin_ms,
        gpus_in_all=gpus_in_all,
    )


def _rows(spans: pl.DataFrame, sort: str) -> tuple[pl.DataFrame, int]:
    """`gpu`, its last `host`, longest `holder`, `unused_ms` and `row_number`, in order; and how many GPUs there are."""
    lasted = pl.col("end") - pl.col("time")
    longest = (
        spans.filter(pl.col("holder").is_not_null())
        .group_by("gpu", "holder")
        .agg(held_ms=lasted.sum())
        .sort("held_ms", "holder", descending=(True, False))
        .unique("gpu", keep="first", maintain_order=True)
    )
    unused = {gpu: sum(each.state_ms[state] for state in _UNUSED) for gpu, each in totals_by(spans, "gpu").items()}
    found = (
        spans.sort("time")
        .group_by("gpu")
        .agg(pl.col("host").last())
        .with_columns(unused_ms=pl.col("gpu").replace_strict(unused, return_dtype=pl.Int64))
        .join(longest.select("gpu", "holder"), on="gpu", how="left")
        .sort("unused_ms", "gpu", descending=(True, False))
    )
    kept = found.head(MOST_ROWS)
    if sort == "host":
        kept = kept.sort("host", "gpu")
    elif sort == "holder":
        kept = kept.sort("holder", "host", "gpu", nulls_last=True)
    return kept.with_row_index("row_number"), found.height


def _frames(
    spans: pl.DataFrame, value: str, frames: NDArray[np.int32], start_ms: int, bin_ms: int
) -> NDArray[np.int32]:
    """The frames with, in each, the value that took most of it."""
    with duckdb.connect() as connection:
        connection.register("spans", spans.select("row_number", "time", "end", value=value).to_arrow())
        found = connection.execute(_MOST_OF_EACH_FRAME, {"start": start_ms, "bin": bin_ms}).fetchnumpy()
    frames[found["row_number"], found["frame"]] = found["value"]
    return frames

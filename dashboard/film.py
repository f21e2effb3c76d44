"""The film strip's frames: for every GPU and every stretch of time, the state that it spent most of it in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.intervals import clip
from analytics.ledger.summary import totals_by
from analytics.money.priced_segments import placed
from analytics.report.film import longest_in_bins
from analytics.states import UNUSED
from analytics.tables.palette import ORDER
from dashboard.bins import edges, width_of
from dashboard.view import View
from dashboard.zoom import visible
from fallow.clock import MINUTE_MS
from fallow.schema import STATES

V = TypeVar("V")

MOST_ROWS = 2_000
MOST_COLUMNS = 720
MOST_CELLS = 250_000
"""What keeps the picture below 30 kB on the wire; who zooms in has finer frames."""
NOT_SEEN = len(ORDER)
"""The value of a frame that lies before a GPU's first row or after its last, or where somebody else had it."""
_COLOUR = np.array([*(ORDER.index(state) for state in STATES), NOT_SEEN], np.uint8)
"""From a position in STATES to one in ORDER."""
SORTS = ("host", "waste", "holder")


@dataclass(frozen=True, eq=False)
class PageFilm:
    """`frames[row, column]` is an index into ORDER, or NOT_SEEN; row i is GPU `gpus[i]` on `hosts[i]` in `pools[i]`, where it was last.

    `holders[i]` had it longest in the window (None: nobody), `unused_ms[i]` is how long nothing was done with it there.
    `had[row, column]` is an index into `names`, 0 for nobody. Column i lasts from `edges[i]` to `edges[i + 1]`: `bin_ms`, save
    where the reader's clocks changed.
    """

    frames: NDArray[np.uint8]
    gpus: tuple[str, ...]
    hosts: tuple[str, ...]
    pools: tuple[str, ...]
    holders: tuple[str | None, ...]
    unused_ms: tuple[int, ...]
    had: NDArray[np.int32]
    names: tuple[str, ...]
    edges: NDArray[np.int64]
    bin_ms: int
    gpus_in_all: int

    @property
    def is_even(self) -> bool:
        """Whether all columns last equally long."""
        return bool((np.diff(self.edges) == self.bin_ms).all())


def sort_of(view: View) -> str:
    """The order of rows that the address asks for; by host where it says nothing that is one."""
    return view.query.sort if view.query.sort in SORTS else SORTS[0]


def bin_width_ms(since_ms: int, until_ms: int, rows: int = 1) -> int:
    """The shortest round width that needs no more than MOST_COLUMNS frames, and MOST_CELLS in all rows."""
    most = min(MOST_COLUMNS, MOST_CELLS // max(1, rows))
    return width_of(until_ms - since_ms, most, MINUTE_MS)


def shoot(view: View, only: Collection[str] | None = None) -> PageFilm:
    """The film of what is in sight: all GPUs (or some), where there are too many the MOST_ROWS with the most unused time.

    Rows go by what the address asks for: host (by pool), unused time or holder, of the whole window.
    """
    since_ms, until_ms = visible(view)
    spans = spans_of(view)
    if only is None:
        found = kept(view, "gpus of the film", lambda: _gpus(spans))
    else:
        spans = spans.filter(pl.col("gpu").is_in(list(only)))
        found = _gpus(spans)
    rows = _rows(found, sort_of(view))
    bin_ms = bin_width_ms(since_ms, until_ms, rows.height)
    edges_ms = edges(view.zone, since_ms, until_ms, bin_ms)
    within = clip(spans, since_ms, until_ms).join(rows.select("gpu", row="row_number"), on="gpu")
    names = ("", *within["holder"].drop_nulls().unique().sort())

    def longest(column: str, order: Sequence[str], nothing: int) -> NDArray[np.int64]:
        places = (
            within[column].fill_null("").replace_strict(list(order), list(range(len(order))), return_dtype=pl.Int64)
        )
        return longest_in_bins(within, places.to_numpy(), rows.height, edges_ms, nothing)

    return PageFilm(
        frames=_COLOUR[longest("state", STATES, len(STATES))],
        gpus=tuple(rows["gpu"]),
        hosts=tuple(rows["host"]),
        pools=tuple(rows["pool"]),
        holders=tuple(rows["holder"]),
        unused_ms=tuple(rows["unused_ms"]),
        had=longest("holder", names, 0).astype(np.int32),
        names=names,
        edges=edges_ms,
        bin_ms=bin_ms,
        gpus_in_all=found.height,
    )


def spans_of(view: View) -> pl.DataFrame:
    """The ledger's rows of the window and the scope, with the pool of their time."""

    def make() -> pl.DataFrame:
        rows = placed(view.part.inside.stretches, view.whole.money.costs, view.whole.inventory)
        return rows.select("gpu", "host", "pool", "holder", "state", "time", "end", "gpu_share")

    return kept(view, "spans of the film", make)


def kept(view: View, name: str, make: Callable[[], V]) -> V:
    """What is made once for all orders and parts of the time that are looked at of a window and a scope."""
    return view.made.of((name, view.query.on_every_page, view.reader.role, view.reader.team), make)  # type: ignore[no-any-return]


def _gpus(spans: pl.DataFrame) -> pl.DataFrame:
    """`gpu`, its last `host` and `pool`, longest `holder` and `unused_ms`, of which the most comes first."""
    longest = (
        spans.filter(pl.col("holder").is_not_null())
        .group_by("gpu", "holder")
        .agg(held_ms=(pl.col("end") - pl.col("time")).sum())
        .sort("held_ms", "holder", descending=(True, False))
        .unique("gpu", keep="first", maintain_order=True)
    )
    unused = {gpu: sum(each.state_ms[state] for state in UNUSED) for gpu, each in totals_by(spans, "gpu").items()}
    return (
        spans.group_by("gpu")
        .agg(pl.col("host", "pool").get(pl.col("time").arg_max()))
        .with_columns(unused_ms=pl.col("gpu").replace_strict(unused, return_dtype=pl.Int64))
        .join(longest.select("gpu", "holder"), on="gpu", how="left")
        .sort("unused_ms", "gpu", descending=(True, False))
    )


def _rows(gpus: pl.DataFrame, sort: str) -> pl.DataFrame:
    """The rows that are shown, in order, with their `row_number`."""
    shown = gpus.head(MOST_ROWS)
    if sort == "host":
        shown = shown.sort("pool", "host", "gpu")
    elif sort == "holder":
        shown = shown.sort("holder", "host", "gpu", nulls_last=True)
    return shown.with_row_index("row_number")

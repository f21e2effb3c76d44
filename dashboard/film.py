"""The film strip's frames over time: the state that each GPU was in for most of a bin, or the shares of states in a pool or host."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.intervals import clip
from analytics.ledger.summary import Totals, totals_by
from analytics.money.priced_segments import placed
from analytics.report.film import longest_in_bins, spent_in_bins
from analytics.states import UNUSED
from analytics.tables.palette import ORDER
from dashboard.times import edges, visible, width_of
from dashboard.view import View
from fallow.clock import MINUTE_MS
from fallow.schema import STATES

MOST_ROWS = 2_000
MOST_COLUMNS = 720
MOST_CELLS = 250_000
"""What keeps the picture below 30 kB on the wire; who zooms in has finer frames."""
NOT_SEEN = len(ORDER)
"""The value of a frame that lies before a GPU's first row or after its last, or where somebody else had it."""
_COLOUR = np.array([*(ORDER.index(state) for state in STATES), NOT_SEEN], np.uint8)
"""From a position in STATES to one in ORDER."""
SORTS = ("host", "waste", "holder")


@dataclass(frozen=True, eq=False, kw_only=True)
class Frames:
    """`frames[line, column]` is an index into ORDER, or NOT_SEEN.

    Column i lasts from `edges[i]` to `edges[i + 1]`: `bin_ms`, save where the reader's clocks changed. `in_all` is how many
    rows there would be, of which the film may have fewer.
    """

    frames: NDArray[np.uint8]
    edges: NDArray[np.int64]
    bin_ms: int
    in_all: int

    @property
    def is_even(self) -> bool:
        """Whether all columns last equally long."""
        return bool((np.diff(self.edges) == self.bin_ms).all())


@dataclass(frozen=True, eq=False, kw_only=True)
class PageFilm(Frames):
    """A line for each GPU: row i is GPU `gpus[i]` on `hosts[i]` in `pools[i]`, where it was last.

    `holders[i]` had it longest in the window (None: nobody), `unused_ms[i]` is how long nothing was done with it there.
    `had[row, column]` is an index into `names`, 0 for nobody.
    """

    gpus: tuple[str, ...]
    hosts: tuple[str, ...]
    pools: tuple[str, ...]
    holders: tuple[str | None, ...]
    unused_ms: tuple[int, ...]
    had: NDArray[np.int32]
    names: tuple[str, ...]


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
        found = view.kept("gpus of the film", lambda: _gpus(spans))
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
        in_all=found.height,
    )


def spans_of(view: View) -> pl.DataFrame:
    """The ledger's rows of the window and the scope, with the pool of their time."""

    def make() -> pl.DataFrame:
        rows = placed(view.part.inside.stretches, view.whole.money.costs, view.whole.inventory)
        return rows.select("gpu", "host", "pool", "holder", "state", "time", "end", "gpu_share")

    return view.kept("spans of the film", make)


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


POOLS, HOSTS, GPUS = "pool", "host", "gpu"
KINDS = (POOLS, HOSTS, GPUS)
ALL_IN_SIGHT = 640
"""GPUs up to which each has a row by itself: so many fit below one another on a screen."""
_LINES = ((6, 100), (12, 50), (24, 20), (40, 10), (66, 8))
"""Up to so many rows, so many lines each: with 100 a line is one percent of the row's GPU time."""
_FEWEST_LINES = 4
MOST_GROUPS = 1_000


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupFilm(Frames):
    """Row i stands for all GPUs of the pool or host `names[i]`; `totals[i]` is the ledger's of the whole window.

    `pools[i]` is the pool, of a host that of its last row. `frames` has `lines` lines for each row: of a bin's GPU time, each
    state has as many lines as its share, rounded so that they add up to `lines`. Time before a GPU's first row, or of others,
    is NOT_SEEN.
    """

    kind: str
    names: tuple[str, ...]
    pools: tuple[str, ...]
    totals: tuple[Totals, ...]
    lines: int


def kinds_of(view: View) -> tuple[str, ...]:
    """What rows can stand for: pools where there are several, hosts where there are several, GPUs."""
    counts = _counts(view)
    return tuple(kind for kind in KINDS if kind == GPUS or counts[kind] > 1)


def kind_of(view: View) -> str:
    """What the address asks for; without a word, every GPU where all are in sight at once, else pools, else hosts."""
    possible = kinds_of(view)
    if view.query.rows in possible:
        return view.query.rows
    return GPUS if _counts(view)[GPUS] <= ALL_IN_SIGHT else possible[0]


def _counts(view: View) -> Mapping[str, int]:
    return view.kept("counts of the film", lambda: {kind: spans_of(view)[kind].n_unique() for kind in KINDS})


def shoot_groups(view: View, kind: str) -> GroupFilm:
    """The film with a row for each `pool` or `host`: in the order of names, or the most unused time first."""
    since_ms, until_ms = visible(view)
    spans = spans_of(view)
    totals = view.kept(f"totals by {kind} of the film", lambda: totals_by(spans, kind))
    by_waste = sorted(totals, key=lambda name: (-totals[name].wasted_ms, name))
    shown = by_waste[:MOST_GROUPS]
    pool = dict(spans.group_by(name=kind).agg(pl.col("pool").get(pl.col("time").arg_max())).rows())
    names = shown if sort_of(view) == "waste" else sorted(shown, key=lambda name: (pool[name], name))
    lines = next((lines for most, lines in _LINES if len(names) <= most), _FEWEST_LINES)
    bin_ms = bin_width_ms(since_ms, until_ms, len(names) * lines)
    edges_ms = edges(view.zone, since_ms, until_ms, bin_ms)
    rows = pl.DataFrame({kind: names}, schema={kind: pl.String}).with_row_index("row")
    within = clip(spans, since_ms, until_ms).join(rows, on=kind)
    states = within["state"].replace_strict(list(ORDER), list(range(len(ORDER))), return_dtype=pl.Int64)
    spent = spent_in_bins(within, states.to_numpy(), NOT_SEEN + 1, len(names), edges_ms)
    size = spans.group_by(kind, "gpu").agg(pl.col("gpu_share").max()).group_by(kind).agg(pl.col("gpu_share").sum())
    gpus = rows.join(size, on=kind, how="left", maintain_order="left")["gpu_share"].to_numpy()
    seconds = np.minimum(edges_ms[1:], until_ms) - np.maximum(edges_ms[:-1], since_ms)
    spent[:, :, NOT_SEEN] = np.maximum(0, gpus[:, None] * seconds[None, :] - spent.sum(axis=2))
    return GroupFilm(
        kind=kind,
        names=tuple(names),
        pools=tuple(pool[name] for name in names),
        totals=tuple(totals[name] for name in names),
        frames=_drawn(spent, lines),
        lines=lines,
        edges=edges_ms,
        bin_ms=bin_ms,
        in_all=len(totals),
    )


def _drawn(spent: NDArray[np.float64], lines: int) -> NDArray[np.uint8]:
    """The lines of every row and bin: those of the first state lowest, as in the charts of days."""
    rows, columns, values = spent.shape
    counts = apportioned(spent.reshape(-1, values), lines)
    stacked = np.repeat(np.tile(np.arange(values, dtype=np.uint8), len(counts)), counts.ravel())
    upward = stacked.reshape(rows, columns, lines)
    return np.ascontiguousarray(upward[:, :, ::-1].transpose(0, 2, 1)).reshape(rows * lines, columns)


def apportioned(parts: NDArray[np.float64], whole: int) -> NDArray[np.int64]:
    """Each row's parts as whole numbers that add up to `whole`, by largest remainders; a row of nothing is all its last part."""
    sums = parts.sum(axis=1, keepdims=True)
    filled = np.where(sums > 0, parts, np.eye(parts.shape[1])[-1])
    exact = filled / filled.sum(axis=1, keepdims=True) * whole
    counts = np.floor(exact + 1e-9).astype(np.int64)
    missing = whole - counts.sum(axis=1)
    rank = np.argsort(np.argsort(counts - exact, axis=1, kind="stable"), axis=1, kind="stable")
    found: NDArray[np.int64] = counts + (rank < missing[:, None])
    return found

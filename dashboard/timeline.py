"""The timeline's frames over time: the longest state of a GPU in a bin, or the shares of states in a pool or host."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.intervals import SPAN_MS, clip
from analytics.ledger.sampled import Basis
from analytics.ledger.summary import Totals, ratio, totals_by
from analytics.money.priced_segments import placed
from analytics.report.timeline import longest_in_bins, spent_in_bins
from analytics.states import UNUSED
from analytics.tables.palette import ORDER
from dashboard.times import edges, visible, width_of
from dashboard.view import View
from fallow.clock import MINUTE_MS
from fallow.schema import STATES

MOST_ROWS = 2_000
MOST_COLUMNS = 720
MOST_CELLS = 250_000
"""The most cells of a picture, which keep it below 30 kB on the wire; zooming in gives finer frames."""
NOT_SEEN = len(ORDER)
"""The value of a frame before a GPU's first row, after its last row, or while the GPU was not in the scope."""
_COLOUR = np.array([*(ORDER.index(state) for state in STATES), NOT_SEEN], np.uint8)
"""The position in ORDER by position in STATES."""
SAMPLED = {ORDER.index(state): NOT_SEEN + 1 + place for place, state in enumerate(UNUSED)}
"""The value of sampled idle time by the value of its idle state."""
SORTS = ("host", "waste", "user")


@dataclass(frozen=True, eq=False, kw_only=True)
class Frames:
    """The cells of a timeline.

    Attributes:
        frames: by line and column an index into ORDER, NOT_SEEN, or a value of SAMPLED for a GPU's sampled idle time.
        edges: column i is from `edges[i]` to `edges[i + 1]`, in milliseconds since the epoch.
        bin_ms: the width of a column, except where the reader's clocks change.
        in_all: the number of rows without a limit; the timeline may have fewer.
    """

    frames: NDArray[np.uint8]
    edges: NDArray[np.int64]
    bin_ms: int
    in_all: int

    @property
    def is_sampled(self) -> bool:
        """True where any cell is idle by samples at single moments only."""
        return bool((self.frames > NOT_SEEN).any())

    @property
    def is_even(self) -> bool:
        """True where all columns have the same width."""
        return bool((np.diff(self.edges) == self.bin_ms).all())


@dataclass(frozen=True, eq=False, kw_only=True)
class PageTimeline(Frames):
    """The timeline with a line per GPU: row i is GPU `gpus[i]`.

    Attributes:
        hosts: the last host of the GPU.
        pools: the last pool of the GPU.
        users: the user who had the GPU longest in the window; None where no user had the GPU.
        unused_ms: the GPU's unused time in the window.
        unconfirmed: the share of the unused time that only samples at single moments show.
        had: by row and column the user as an index into `names`; 0 for no user.
        names: the names of users; the first is empty.
    """

    gpus: tuple[str, ...]
    hosts: tuple[str, ...]
    pools: tuple[str, ...]
    users: tuple[str | None, ...]
    unused_ms: tuple[int, ...]
    unconfirmed: tuple[float, ...]
    had: NDArray[np.int32]
    names: tuple[str, ...]


def sort_of(view: View) -> str:
    """Return the order of rows that the address names; `host` where it names no valid order."""
    return view.query.sort if view.query.sort in SORTS else SORTS[0]


def bin_width_ms(since_ms: int, until_ms: int, rows: int = 1) -> int:
    """Return the shortest round bin width with at most MOST_COLUMNS columns, and MOST_CELLS cells in all rows."""
    most = min(MOST_COLUMNS, MOST_CELLS // max(1, rows))
    return width_of(until_ms - since_ms, most, MINUTE_MS)


def gpu_timeline(view: View, only: Collection[str] | None = None) -> PageTimeline:
    """Return the timeline of the visible time with all GPUs or those of `only`; at most the MOST_ROWS most unused.

    The address names the order of rows: by pool and host, by unused time or by user, of the whole window.
    """
    since_ms, until_ms = visible(view)
    spans = spans_of(view)
    if only is None:
        found = view.kept("gpus of the timeline", lambda: _gpus(spans))
    else:
        spans = spans.filter(pl.col("gpu").is_in(list(only)))
        found = _gpus(spans)
    rows = _rows(found, sort_of(view))
    bin_ms = bin_width_ms(since_ms, until_ms, rows.height)
    edges_ms = edges(view.zone, since_ms, until_ms, bin_ms)
    within = clip(spans, since_ms, until_ms).join(rows.select("gpu", row="row_number"), on="gpu")
    names = ("", *within["user"].drop_nulls().unique().sort())

    def longest(column: str, order: Sequence[str], nothing: int) -> NDArray[np.int64]:
        places = (
            within[column].fill_null("").replace_strict(list(order), list(range(len(order))), return_dtype=pl.Int64)
        )
        return longest_in_bins(within, places.to_numpy(), rows.height, edges_ms, nothing)

    frames = _COLOUR[longest("state", STATES, len(STATES))]
    is_sampled = longest_in_bins(within, within["is_sampled"].cast(pl.Int64).to_numpy(), rows.height, edges_ms, 0) == 1
    for state, sampled in SAMPLED.items():
        frames[is_sampled & (frames == state)] = sampled
    return PageTimeline(
        frames=frames,
        gpus=tuple(rows["gpu"]),
        hosts=tuple(rows["host"]),
        pools=tuple(rows["pool"]),
        users=tuple(rows["user"]),
        unused_ms=tuple(rows["unused_ms"]),
        unconfirmed=tuple(rows["unconfirmed"]),
        had=longest("user", names, 0).astype(np.int32),
        names=names,
        edges=edges_ms,
        bin_ms=bin_ms,
        in_all=found.height,
    )


def spans_of(view: View) -> pl.DataFrame:
    """Return the ledger's rows of the window and the scope, with the pool at the time of the row."""

    def make() -> pl.DataFrame:
        rows = placed(view.part.inside.segments, view.whole.money.costs, view.whole.inventory)
        is_sampled = Basis.in_frame(pl.col("unconfirmed_ms") / SPAN_MS, pl.lit(0.0)) == Basis.SAMPLED.value
        rows = rows.with_columns(is_sampled=is_sampled)
        return rows.select(
            "gpu", "host", "pool", "user", "state", "time", "end", "gpu_share", "unconfirmed_ms", "is_sampled"
        )

    return view.kept("spans of the timeline", make)


def _gpus(spans: pl.DataFrame) -> pl.DataFrame:
    """Return a row per `gpu`, the most unused first.

    Columns: the last `host` and `pool`, the longest `user`, `unused_ms`, and `unconfirmed`, its share of sampled time.
    """
    longest = (
        spans.filter(pl.col("user").is_not_null())
        .group_by("gpu", "user")
        .agg(held_ms=(pl.col("end") - pl.col("time")).sum())
        .sort("held_ms", "user", descending=(True, False))
        .unique("gpu", keep="first", maintain_order=True)
    )
    totals = totals_by(spans, "gpu")
    unused = {gpu: each.unused_ms for gpu, each in totals.items()}
    unconfirmed = {gpu: ratio(each.open_ms, each.unused_ms) or 0.0 for gpu, each in totals.items()}
    return (
        spans.group_by("gpu")
        .agg(pl.col("host", "pool").get(pl.col("time").arg_max()))
        .with_columns(
            unused_ms=pl.col("gpu").replace_strict(unused, return_dtype=pl.Int64),
            unconfirmed=pl.col("gpu").replace_strict(unconfirmed, return_dtype=pl.Float64),
        )
        .join(longest.select("gpu", "user"), on="gpu", how="left")
        .sort("unused_ms", "gpu", descending=(True, False))
    )


def _rows(gpus: pl.DataFrame, sort: str) -> pl.DataFrame:
    """Return the rows that are shown, in order, with their `row_number`."""
    shown = gpus.head(MOST_ROWS)
    if sort == "host":
        shown = shown.sort("pool", "host", "gpu")
    elif sort == "user":
        shown = shown.sort("user", "host", "gpu", nulls_last=True)
    return shown.with_row_index("row_number")


POOLS, HOSTS, GPUS = "pool", "host", "gpu"
KINDS = (POOLS, HOSTS, GPUS)
ALL_IN_SIGHT = 640
"""The most GPUs for which every GPU has a row by default: this number fits on a screen."""
_LINES = ((6, 100), (12, 50), (24, 20), (40, 10), (66, 8))
"""Lines per row by the largest number of rows: with 100, a line is one percent of the row's GPU time."""
_FEWEST_LINES = 4
MOST_GROUPS = 1_000


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupTimeline(Frames):
    """The timeline with a row per pool or host: row i stands for all GPUs of `names[i]`.

    `frames` has `lines` lines per row. In every bin, a state has lines in proportion to its share of the GPU time,
    rounded so that they add up to `lines`. Time before a GPU's first row, and time outside of the scope, is NOT_SEEN.

    Attributes:
        kind: `pool` or `host`.
        pools: the pool of the row; for a host, the pool of its last row.
        totals: the ledger's totals of the whole window.
    """

    kind: str
    names: tuple[str, ...]
    pools: tuple[str, ...]
    totals: tuple[Totals, ...]
    lines: int


def kinds_of(view: View) -> tuple[str, ...]:
    """Return what rows can stand for: pools if there are several, hosts if there are several, and GPUs."""
    counts = _counts(view)
    return tuple(kind for kind in KINDS if kind == GPUS or counts[kind] > 1)


def kind_of(view: View) -> str:
    """Return what the address's rows stand for; by default GPUs if all fit on a screen, else pools, else hosts."""
    possible = kinds_of(view)
    if view.query.rows in possible:
        return view.query.rows
    return GPUS if _counts(view)[GPUS] <= ALL_IN_SIGHT else possible[0]


def _counts(view: View) -> Mapping[str, int]:
    return view.kept("counts of the timeline", lambda: {kind: spans_of(view)[kind].n_unique() for kind in KINDS})


def group_timeline(view: View, kind: str) -> GroupTimeline:
    """Return the timeline with a row per `pool` or `host`, in the order of names, or the most wasted time first."""
    since_ms, until_ms = visible(view)
    spans = spans_of(view)
    totals = view.kept(f"totals by {kind} of the timeline", lambda: totals_by(spans, kind))
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
    return GroupTimeline(
        kind=kind,
        names=tuple(names),
        pools=tuple(pool[name] for name in names),
        totals=tuple(totals[name] for name in names),
        frames=_line_frames(spent, lines),
        lines=lines,
        edges=edges_ms,
        bin_ms=bin_ms,
        in_all=len(totals),
    )


def _line_frames(spent: NDArray[np.float64], lines: int) -> NDArray[np.uint8]:
    """Return the lines of every row and bin; the first state is lowest, as in the charts of days."""
    rows, columns, values = spent.shape
    counts = apportioned(spent.reshape(-1, values), lines)
    stacked = np.repeat(np.tile(np.arange(values, dtype=np.uint8), len(counts)), counts.ravel())
    upward = stacked.reshape(rows, columns, lines)
    return np.ascontiguousarray(upward[:, :, ::-1].transpose(0, 2, 1)).reshape(rows * lines, columns)


def apportioned(parts: NDArray[np.float64], whole: int) -> NDArray[np.int64]:
    """Return every row's parts as integers that add up to `whole`, by largest remainders.

    In a row of zeros, the last part gets all of `whole`.
    """
    sums = parts.sum(axis=1, keepdims=True)
    filled = np.where(sums > 0, parts, np.eye(parts.shape[1])[-1])
    exact = filled / filled.sum(axis=1, keepdims=True) * whole
    counts = np.floor(exact + 1e-9).astype(np.int64)
    missing = whole - counts.sum(axis=1)
    rank = np.argsort(np.argsort(counts - exact, axis=1, kind="stable"), axis=1, kind="stable")
    found: NDArray[np.int64] = counts + (rank < missing[:, None])
    return found

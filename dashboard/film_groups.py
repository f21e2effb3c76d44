"""The film of a fleet that is too large for a row per GPU: a row per pool or host, with the share of each state in every bin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.intervals import clip
from analytics.ledger.summary import Totals, totals_by
from analytics.report.film import spent_in_bins
from analytics.tables.palette import ORDER
from dashboard.bins import edges
from dashboard.film import NOT_SEEN, bin_width_ms, kept, sort_of, spans_of
from dashboard.view import View
from dashboard.zoom import visible

POOLS, HOSTS, GPUS = "pool", "host", "gpu"
KINDS = (POOLS, HOSTS, GPUS)
ALL_IN_SIGHT = 640
"""GPUs up to which each has a row by itself: so many fit below one another on a screen."""
_LINES = ((6, 100), (12, 50), (24, 20), (40, 10), (66, 8))
"""Up to so many rows, so many lines each: with 100 a line is one percent of the row's GPU time."""
_FEWEST_LINES = 4
MOST_GROUPS = 1_000


@dataclass(frozen=True, eq=False)
class GroupFilm:
    """Row i stands for all GPUs of the pool or host `names[i]`; `totals[i]` is the ledger's of the whole window.

    `pools[i]` is the pool, of a host that of its last row.

    `frames` has `lines` lines for each row, each an index into ORDER, or NOT_SEEN: of a bin's GPU time, each state has as many lines as its
    share, rounded so that they add up to `lines`. Time before a GPU's first row, or of others, is NOT_SEEN.
    """

    kind: str
    names: tuple[str, ...]
    pools: tuple[str, ...]
    totals: tuple[Totals, ...]
    frames: NDArray[np.uint8]
    lines: int
    edges: NDArray[np.int64]
    bin_ms: int
    in_all: int

    @property
    def is_even(self) -> bool:
        """Whether all columns last equally long."""
        return bool((np.diff(self.edges) == self.bin_ms).all())


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
    return kept(view, "counts of the film", lambda: {kind: spans_of(view)[kind].n_unique() for kind in KINDS})


def shoot_groups(view: View, kind: str) -> GroupFilm:
    """The film with a row for each `pool` or `host`: in the order of names, or the most unused time first."""
    since_ms, until_ms = visible(view)
    spans = spans_of(view)
    totals = kept(view, f"totals by {kind} of the film", lambda: totals_by(spans, kind))
    by_waste = sorted(totals, key=lambda name: (-totals[name].wasted_ms, name))
    shown = by_waste[:MOST_GROUPS]
    pool = _pools(spans, kind)
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


def _pools(spans: pl.DataFrame, kind: str) -> dict[str, str]:
    """The pool of each pool or host: of its last row."""
    return dict(spans.group_by(name=kind).agg(pl.col("pool").get(pl.col("time").arg_max())).rows())


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

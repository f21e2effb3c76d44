"""Sums over the ledger rows of each candidate for a finding: one frame for all candidates of a rule."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl
from polars.dataframe.group_by import GroupBy

from analytics.intervals import SPAN_MS
from analytics.ledger.sampled import LikelyIdle, confirmed_by_counter

CANDIDATE = "candidate"
"""Column with the number of the candidate that a row belongs to, from 0; rows are sorted by it."""

_COLUMNS = (
    *("time", "end", "segment_start", "gpu", "host", "gpu_share", "user", "account", "job", "user_source"),
    *("util_ms", "zero_ms", "coverage_ratio", "sample_count", "energy_mj", "energy_ms"),
)
_SAMPLED = ("sampled_ms", "confirmed_ms", "unconfirmed_ms", "likely_ms", "power_mean_w")
"""Columns of `with_unconfirmed`, and the power readings behind them."""


def numbered(parts: Sequence[pl.DataFrame], columns: Sequence[str] = (*_COLUMNS, *_SAMPLED)) -> pl.DataFrame:
    """Return the rows of all candidates with CANDIDATE, each candidate's rows given as one of `parts`."""
    there = [name for name in columns if name in parts[0].columns]
    sizes = [part.height for part in parts]
    numbers = pl.Series(CANDIDATE, np.repeat(np.arange(len(sizes)), sizes))
    if any(part.columns != parts[0].columns for part in parts):
        parts = [part.select(there) for part in parts]
    return pl.concat(parts, how="vertical_relaxed").select(*there, numbers)


def of_candidates(rows: pl.DataFrame, found: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Return the rows with CANDIDATE, a number per distinct key of `found`, in its order, without other keys' rows."""
    keys = found.select(key).unique(maintain_order=True).with_row_index(CANDIDATE)
    own = rows.join(keys, on=key, nulls_equal=True, maintain_order="left")
    return own.sort(CANDIDATE, maintain_order=True)


def parts_of(rows: pl.DataFrame, number: int) -> list[pl.DataFrame]:
    """Return the rows of each candidate from 0 to `number`, without CANDIDATE."""
    ordered = rows.sort(CANDIDATE, maintain_order=True)
    edges = np.searchsorted(ordered[CANDIDATE].to_numpy(), np.arange(number + 1)).tolist()
    own = ordered.drop(CANDIDATE)
    return [own.slice(start, end - start) for start, end in pairwise(edges)]


def by_candidate(rows: pl.DataFrame) -> GroupBy:
    """Return the groups of rows sorted by CANDIDATE.

    Groups of sorted rows are slices, whose sums have the same rounding as those of a frame with these rows only.
    """
    return rows.with_columns(pl.col(CANDIDATE).set_sorted()).group_by(CANDIDATE, maintain_order=True)


@dataclass(frozen=True)
class RowSums:
    """Sums over one or more ledger rows. Energy is None if known for less than ENERGY_KNOWN_MIN of the time."""

    gpus: tuple[str, ...]
    hosts: tuple[str, ...]
    owners: tuple[tuple[str | None, str | None, str | None], ...]
    """The different users, accounts and jobs of the rows."""
    begun_ms: int
    """Start of the first segment, before cuts."""
    first_ms: int
    last_ms: int
    span_ms: int
    gpu_ms: float
    energy_kwh: float | None
    sample_count: int
    measured_ms: int
    point_ms: int
    """The part of `measured_ms` in rows that do not state how much of it was watched."""
    watched_ms: float
    point_count: int
    """Samples of those rows."""
    all_zero: bool
    """True if those rows are all at 0."""
    unconfirmed_ms: float
    likely: LikelyIdle | None


def row_sums(rows: pl.DataFrame) -> list[RowSums]:
    """Return the sums of each candidate, in order, from the ledger's rows with CANDIDATE."""
    is_sampled = "unconfirmed_ms" in rows.columns
    watched = pl.col("coverage_ratio")
    if is_sampled:
        # what the energy counter confirms counts as watched
        counter = confirmed_by_counter()
        watched = pl.when(counter > 0).then(pl.max_horizontal(watched, counter)).otherwise(watched)
    measured = pl.col("util_ms") > 0
    point = measured & watched.is_null()
    sums = by_candidate(
        rows.with_columns(
            span=SPAN_MS,
            shared_ms=SPAN_MS * pl.col("gpu_share"),
            measured=SPAN_MS * measured,
            point=SPAN_MS * point,
            watched=pl.when(measured).then(SPAN_MS * watched),
            point_count=pl.when(point).then("sample_count"),
            at_work=point & (pl.col("zero_ms") < pl.col("util_ms")),
        )
    ).agg(
        gpus=pl.col("gpu").unique().sort(),
        hosts=pl.col("host").drop_nulls().unique().sort(),
        begun_ms=pl.col("segment_start").min(),
        first_ms=pl.col("time").min(),
        last_ms=pl.col("end").max(),
        span_ms=pl.col("span").sum(),
        gpu_ms=pl.col("shared_ms").sum(),
        sample_count=pl.col("sample_count").sum(),
        measured_ms=pl.col("measured").sum(),
        point_ms=pl.col("point").sum(),
        watched_ms=pl.col("watched").sum(),
        point_count=pl.col("point_count").sum(),
        all_zero=~pl.col("at_work").any(),
        unconfirmed_ms=pl.col("unconfirmed_ms").sum() if is_sampled else pl.lit(0.0),
    )
    owners, likely, energy = _owners(rows), LikelyIdle.among_each(rows, CANDIDATE), energy_kwh_of_each(rows)
    return [
        RowSums(
            **row | {"gpus": tuple(row["gpus"]), "hosts": tuple(row["hosts"])},
            owners=tuple(owners[number]),
            energy_kwh=energy[number],
            likely=likely.get(number),
        )
        for number, row in enumerate(sums.drop(CANDIDATE).iter_rows(named=True))
    ]


def _owners(rows: pl.DataFrame) -> dict[int, list[tuple[str | None, str | None, str | None]]]:
    found = defaultdict(list)
    for candidate, *owner in rows.select(CANDIDATE, "user", "account", "job").unique(maintain_order=True).iter_rows():
        found[candidate].append(tuple(owner))
    return found


ENERGY_KNOWN_MIN = 0.9
"""With a smaller known share, the sum would be a part that looks like the whole."""


def energy_kwh_of_each(rows: pl.DataFrame) -> dict[int, float | None]:
    """Return by candidate the energy of its ledger rows in kWh; None if known for less than 90 % of their time."""
    sums = by_candidate(rows.with_columns(span=SPAN_MS)).agg(pl.col("span", "energy_ms", "energy_mj").sum())
    return {
        candidate: None if not span or known_ms < ENERGY_KNOWN_MIN * span else drawn_mj / 3.6e9
        for candidate, span, known_ms, drawn_mj in sums.iter_rows()
    }

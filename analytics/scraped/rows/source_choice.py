"""Several sources of a GPU: server replicas, two exporters, or one GPU under two host names. One counts at a time.

Values are never averaged. The rows of the first source count. Rows of the next source count only where the first is
silent, and its columns only where the first has none of them at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from analytics.scraped.rows.exporter_rows import COUNTERS

_KEYS = ("gpu", "host", "source", "time_ms", "interval_ms", "ended")
_BY_SOURCE = (*_KEYS, *COUNTERS, "gpu_util_pct", "gpu_util_coverage_ratio", "code")
"""Columns that are never taken from another source: the rise of a counter lies between two moments of one source."""

_LATE = 1.2
"""Intervals after the row before, after which a source is silent and not only late."""


@dataclass(frozen=True)
class ChosenRows:
    """The rows of one source at a time."""

    frame: pl.DataFrame
    left_out: pl.DataFrame
    """host and len: how many rows another source already has."""
    renamed: pl.DataFrame
    """Pairs of hosts, the kept one second."""
    moved: pl.DataFrame
    """host, after and len: how many GPUs were on the one host and later on the other."""


def chosen_rows(frame: pl.DataFrame) -> ChosenRows:
    """Return one row for each moment of each `gpu`, by GPU and time.

    A source with utilization comes before one without, then the source with the lower code.
    """
    several = frame.group_by("gpu").agg(pl.col("source").n_unique()).filter(pl.col("source") > 1)
    if several.is_empty():
        none = frame.clear()
        return ChosenRows(
            frame.sort("gpu", "time_ms"),
            none.group_by("host").len(),
            none.select("host", kept="host"),
            _moved_counts(none),
        )
    shared = frame.join(several, on="gpu", how="semi")
    ranked = _ranked_rows(shared)
    kept = ranked.filter(pl.col("rank") == 0)
    left_out = []
    for rank in ranked["rank"].unique().sort()[1:]:
        more = ranked.filter(pl.col("rank") == rank)
        alone = _rows_alone(more, kept)
        left_out.append(more.filter(~pl.col("ended")).join(alone, on=["gpu", "time_ms"], how="anti"))
        kept = pl.concat([_rows_with_columns_of(more, kept), alone]).sort("gpu", "time_ms")
    kept, renamed = _rows_of_one_host(_rows_without_bridged_ends(kept), ranked)
    whole = pl.concat([frame.join(several, on="gpu", how="anti"), kept.select(frame.columns)]).sort("gpu", "time_ms")
    return ChosenRows(whole, pl.concat(left_out).group_by("host").len(), renamed, _moved_counts(kept))


def _ranked_rows(shared: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the `rank` of their source among those of their GPU, 0 for the first."""
    silent = pl.col("gpu_util_pct").is_null().all() if "gpu_util_pct" in shared.columns else pl.lit(value=True)
    silences = shared.group_by("gpu", "source").agg(silent=silent)
    ranks = silences.sort("gpu", "silent", "source").select("gpu", "source", rank=pl.int_range(pl.len()).over("gpu"))
    return shared.join(ranks, on=["gpu", "source"]).sort("gpu", "time_ms")


def _rows_with_nearest(rows: pl.DataFrame, other: pl.DataFrame, columns: dict[str, str]) -> pl.DataFrame:
    """Return the rows with the other source's nearest row: its time as `there_ms`, and some columns by other names."""
    there = other.filter(~pl.col("ended")).select(
        "gpu", "time_ms", pl.col("time_ms").alias("there_ms"), **{new: pl.col(name) for name, new in columns.items()}
    )
    return rows.join_asof(there, on="time_ms", by="gpu", strategy="nearest", check_sortedness=False)


def _rows_alone(more: pl.DataFrame, kept: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that come when the kept ones have ended, or are long due.

    Later rows do not count: where a window was cut they are not known yet.
    """
    last = kept.select("gpu", "time_ms", last_ms="time_ms", last_ended="ended", last_interval_ms="interval_ms")
    found = more.join_asof(last, on="time_ms", by="gpu", check_sortedness=False)
    due_ms = _LATE * pl.max_horizontal("interval_ms", "last_interval_ms")
    is_alone = pl.col("last_ms").is_null() | pl.col("last_ended") | (pl.col("time_ms") - pl.col("last_ms") >= due_ms)
    return found.filter(is_alone).select(more.columns)


def _rows_with_columns_of(more: pl.DataFrame, kept: pl.DataFrame) -> pl.DataFrame:
    """Return the kept rows, filled with the other source's columns of which their GPU has nothing.

    Each row of the other source fills at most one kept row.
    """
    names = [
        name for name in more.columns if name not in (*_BY_SOURCE, "rank") and more[name].null_count() < more.height
    ]
    lacking = [name for name in names if kept[name].null_count() > 0]
    if not lacking:
        return kept
    near = _rows_with_nearest(kept, more, {name: f"other.{name}" for name in lacking})
    apart_ms = (pl.col("time_ms") - pl.col("there_ms")).abs()
    close = (2 * apart_ms < pl.col("interval_ms")) & ~pl.col("ended")
    return near.with_columns(
        pl.when(close & pl.col(name).is_null().all().over("gpu")).then(f"other.{name}").otherwise(name).alias(name)
        for name in lacking
    ).select(kept.columns)


def _rows_without_bridged_ends(kept: pl.DataFrame) -> pl.DataFrame:
    """Return the rows without ends of series after which another source continues soon."""
    ends = kept.filter("ended")
    values = kept.filter(~pl.col("ended")).select("gpu", "time_ms", next_ms="time_ms")
    following = ends.join_asof(values, on="time_ms", by="gpu", strategy="forward", check_sortedness=False)
    bridged = following.filter(pl.col("next_ms") - pl.col("time_ms") < pl.col("interval_ms"))
    return kept.join(bridged, on=["gpu", "time_ms", "ended"], how="anti").sort("gpu", "time_ms")


def _rows_of_one_host(kept: pl.DataFrame, ranked: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows of GPUs that two hosts have at once, under the host of the first source, and the pairs of names.

    A GPU that one host has after the other was moved, or its host was renamed: each host keeps its time.
    """
    spans = ranked.group_by("gpu", "host").agg(
        pl.col("rank").min(), first=pl.col("time_ms").min(), last=pl.col("time_ms").max()
    )
    both = spans.join(spans, on="gpu", suffix="_kept").filter(
        (pl.col("rank_kept") < pl.col("rank"))
        & (pl.col("host") != pl.col("host_kept"))
        & (pl.col("first") < pl.col("last_kept"))
        & (pl.col("first_kept") < pl.col("last"))
    )
    if both.is_empty():
        return kept, both.select("host", kept="host_kept")
    names = both.sort("rank_kept").unique(["gpu", "host"], keep="first").select("gpu", "host", "host_kept")
    moved = kept.join(names, on=["gpu", "host"], how="left").with_columns(host=pl.coalesce("host_kept", "host"))
    return moved.select(kept.columns).sort("gpu", "time_ms"), names.select("host", kept="host_kept").unique()


def _moved_counts(kept: pl.DataFrame) -> pl.DataFrame:
    """Return how many GPUs were on one host and later on another."""
    spans = kept.group_by("gpu", "host").agg(first=pl.col("time_ms").min(), last=pl.col("time_ms").max())
    pairs = spans.join(spans, on="gpu", suffix="_after").filter(pl.col("last") < pl.col("first_after"))
    return pairs.group_by("host", after="host_after").len().sort("host", "after")

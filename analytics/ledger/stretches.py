"""Second half of the ledger: from a host's runs to stretches in one state each, and spells at zero.

A GPU in use splits into stretches: every unbroken spell without a kernel of at least `idle_after` is `held`, what lies
between two of them is `low` or `active` by its mean utilization. Pure functions from frames to frames; integer
milliseconds throughout.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import polars as pl

from analytics.ledger.settings import GAP_INTERVALS
from fallow import schema
from fallow.clock import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.ledger.runs import Runs
    from analytics.ledger.settings import LedgerSettings


@dataclass(frozen=True)
class HostLedger:
    """One host's ledger and spells, with the columns of the `ledger` and `spell` tables; times are integer ms."""

    ledger: pl.DataFrame
    spells: pl.DataFrame


def join_runs(chunks: Sequence[Runs], settings: LedgerSettings) -> HostLedger:
    """The ledger of one host from the runs of its chunks, which must follow each other in time."""
    runs = _close(pl.concat([chunk.runs for chunk in chunks]).sort("gpu", "start"))
    seen = (
        pl.concat([chunk.seen for chunk in chunks])
        .group_by("gpu")
        .agg(pl.col("first_seen").min(), pl.col("last_seen").max())
    )
    labelled = _label(runs, settings)
    stretches = pl.concat([labelled, _gaps(labelled, seen)], how="diagonal").sort("gpu", "start")
    # in the tables' own column order, as a ledger that was kept comes back
    return HostLedger(
        _ledger(stretches, settings).select(schema.LEDGER.names), _spells(runs).select(schema.SPELL.names)
    )


def _close(runs: pl.DataFrame) -> pl.DataFrame:
    """Gives each chunk's last row the time that it really stood for, now that the next chunk's first row is known."""
    following = pl.col("start").shift(-1).over("gpu")
    reach = pl.col("last_start") + GAP_INTERVALS * pl.col("last_interval")
    end = pl.when(pl.col("open") & following.is_not_null()).then(pl.min_horizontal(following, reach)).otherwise("end")
    longer = pl.col("closed") - pl.col("end")
    return (
        runs.with_columns(closed=end)
        .with_columns(
            end=pl.col("closed"),
            util_sum=pl.col("util_sum") + pl.col("last_util").fill_null(0) * longer,
            power_sum=pl.col("power_sum") + pl.col("last_power").fill_null(0) * longer,
            power_ms=pl.col("power_ms") + pl.when(pl.col("last_power").is_not_null()).then(longer).otherwise(0),
            watched_sum=pl.col("watched_sum") + pl.col("last_watched").fill_null(0) * longer,
            watched_ms=pl.col("watched_ms") + pl.when(pl.col("last_watched").is_not_null()).then(longer).otherwise(0),
        )
        .filter(pl.col("end") > pl.col("start"))
        .drop("closed", "open", "last_start", "last_interval", "last_util", "last_power", "last_watched")
    )


def _begins(*names: str) -> pl.Expr:
    """Whether a row differs from the one before it in any of the columns, or does not follow on from it."""
    same = [pl.col(name).eq_missing(pl.col(name).shift(1)) for name in ("gpu", *names)]
    follows = pl.col("end").shift(1) == pl.col("start")
    return ~reduce(lambda left, right: left & right, [*same, follows.fill_null(value=False)])


def _label(runs: pl.DataFrame, settings: LedgerSettings) -> pl.DataFrame:
    """Adds `label`: the kind, with use split into `held` and `busy`."""
    owner = ("kind", "holder", "holder_source")
    spell_ms = (pl.col("end") - pl.col("start")).sum().over("spell")
    held = (pl.col("kind") == "use") & pl.col("zero") & (spell_ms >= settings.idle_after_ms)
    label = pl.when(held).then(pl.lit("held")).when(pl.col("kind") == "use").then(pl.lit("busy")).otherwise("kind")
    return runs.with_columns(spell=_begins(*owner, "zero").cum_sum()).with_columns(label=label).drop("spell")


def _gaps(runs: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
    """The time between runs, and between a GPU's first and last row and its runs: nobody looked."""
    bounds = pl.concat(
        [
            runs.select("gpu", "start", "end"),
            # empty marks at both ends turn what lies outside the runs into ordinary gaps
            seen.select("gpu", start="first_seen", end="first_seen"),
            seen.select("gpu", start="last_seen", end="last_seen"),
        ]
    ).sort("gpu", "start", "end")
    before = pl.col("end").cum_max().shift(1).over("gpu")
    return (
        bounds.with_columns(before=before)
        .filter(pl.col("before") < pl.col("start"))
        .select("gpu", label=pl.lit("unknown"), start="before", end="start")
    )


def _ledger(stretches: pl.DataFrame, settings: LedgerSettings) -> pl.DataFrame:
    """Groups runs into stretches, decides low or active, cuts at midnight and gives the table its columns."""
    grouped = stretches.with_columns(stretch=_begins("label", "holder", "holder_source").cum_sum())
    mean = pl.col("util_sum").sum() / _measured_ms().sum()
    judged = grouped.with_columns(
        stretch_start=pl.col("start").min().over("stretch"),
        stretch_end=pl.col("end").max().over("stretch"),
        stretch_mean=mean.over("stretch"),
    ).with_columns(
        state=pl.when(pl.col("label") != "busy")
        .then("label")
        .when(pl.col("stretch_mean") < settings.low_below_pct)
        .then(pl.lit("low"))
        .otherwise(pl.lit("active"))
    )
    pieces = cut_at_midnight(judged)
    keys = ("stretch", "gpu", "state", "stretch_start", "stretch_end", "holder", "holder_source")
    return pieces.group_by(*keys, "day").agg(*_evidence()).sort("gpu", "time").drop("stretch", "day")


def _measured_ms() -> pl.Expr:
    return pl.when(pl.col("measured")).then(pl.col("end") - pl.col("start")).otherwise(0)


def _evidence() -> list[pl.Expr]:
    duration = pl.col("end") - pl.col("start")
    measured_ms = _measured_ms().sum()
    power_ms, watched_ms = pl.col("power_ms").sum(), pl.col("watched_ms").sum()
    return [
        pl.col("start").min().alias("time"),
        pl.col("end").max(),
        pl.when(measured_ms > 0).then(pl.col("util_sum").sum() / measured_ms).alias("gpu_util_mean_pct"),
        pl.col("util_max").max().alias("gpu_util_max_pct"),
        duration.filter(pl.col("zero")).sum().alias("zero_ms"),
        measured_ms.alias("util_ms"),
        pl.col("mem_max").max().alias("mem_used_max_bytes"),
        pl.when(power_ms > 0).then(pl.col("power_sum").sum() / power_ms).alias("power_mean_w"),
        pl.when(power_ms > 0).then(pl.col("power_sum").sum()).alias("energy_mj"),
        pl.col("sample_count").sum(),
        pl.when(watched_ms > 0).then(pl.col("watched_sum").sum() / watched_ms).alias("coverage_ratio"),
    ]


def cut_at_midnight(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows cut at every UTC midnight, with `day` (days since the epoch); sums are shared by time.

    Only the last row of a run can reach over midnight, by at most three intervals, so that sharing sums by time
    moves at most that much evidence to the other side of the cut; durations are exact, and so is the stretch's total.
    """
    scaled = [
        name for name in ("util_sum", "power_sum", "power_ms", "watched_sum", "watched_ms") if name in frame.columns
    ]
    first_day, last_day = pl.col("start") // DAY_MS, (pl.col("end") - 1) // DAY_MS
    whole = (pl.col("end") - pl.col("start")).alias("whole_ms")
    days = frame.with_columns(whole, first=first_day, day=pl.int_ranges(first_day, last_day + 1)).explode("day")
    cut = days.with_columns(
        start=pl.max_horizontal("start", pl.col("day") * DAY_MS),
        end=pl.min_horizontal("end", (pl.col("day") + 1) * DAY_MS),
    )
    share = (pl.col("end") - pl.col("start")) / pl.col("whole_ms")
    counted = []
    if "sample_count" in frame.columns:
        counted = [pl.when(pl.col("day") == pl.col("first")).then("sample_count").otherwise(0).alias("sample_count")]
    return cut.with_columns(*(pl.col(name) * share for name in scaled), *counted).drop("whole_ms", "first")


def _spells(runs: pl.DataFrame) -> pl.DataFrame:
    """Unbroken spells of measured zero, whoever held the GPU, with the columns of the `spell` table."""
    grouped = runs.with_columns(spell=_begins("zero").cum_sum()).filter("zero")
    whole = grouped.group_by("spell", "gpu").agg(pl.col("start").min(), pl.col("end").max())
    named = whole.with_columns(spell_start=pl.col("start"), spell_end=pl.col("end"))
    cut = cut_at_midnight(named.drop("spell")).rename({"start": "time"})
    return cut.select("time", "gpu", "end", "spell_start", "spell_end").sort("gpu", "time")

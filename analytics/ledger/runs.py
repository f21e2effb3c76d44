"""First half of the ledger: from the rows of one host over some days to runs.

A run is a series of rows of one GPU and one UTC day, one after the other without a gap, that are alike in what the
states depend on: what the GPU was for (`kind`), who held it, and whether utilization was measured and zero. Runs are few, can be
computed for any chunk of days on its own, and carry all sums that the ledger needs, so that the second half
(`stretches`) can put chunks together exactly.

Pure functions from frames to frames. Times are integer milliseconds; weights are integer milliseconds too, so that the
states add up to the capacity exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from analytics.ledger.settings import GAP_INTERVALS
from fallow.clock import DAY_MS
from fallow.schema import UNAVAILABLE_HEALTH

if TYPE_CHECKING:
    from analytics.ledger.settings import LedgerSettings

GPU_COLUMNS = (
    "gpu", "time", "offset_ms", "interval_ms", "health", "gpu_util_pct", "gpu_util_max_pct", "gpu_util_coverage_ratio",
    "mem_used_bytes", "power_w", "process_count",
)  # fmt: skip
PROCESS_COLUMNS = ("gpu", "time", "interval_ms", "user")

_ASLEEP = "asleep"
"""The health of a GPU that the kernel has powered down: nobody can be on it."""

_MIG_PREFIX = "MIG-"
"""How the driver begins the UUID of a MIG instance. Its time is its parent's, which the ledger counts."""

RUN_KEY = ("gpu", "kind", "holder", "holder_source", "measured", "zero")
"""What the rows of a run have in common; `kind` is unavailable, free, reserved or use."""


@dataclass(frozen=True)
class Runs:
    """Runs of one host over a chunk of days, and when each GPU was seen at all.

    `runs` has RUN_KEY, `start`, `end` and the sums of `_sums`; the last run of each GPU in the chunk is `open`: its
    last row stands for one interval until the next chunk says how long it really stood. `seen` has one row per GPU:
    first_seen, last_seen (the end of its last row).
    """

    runs: pl.DataFrame
    seen: pl.DataFrame


def find_runs(samples: pl.DataFrame, processes: pl.DataFrame, claims: pl.DataFrame, settings: LedgerSettings) -> Runs:
    """The runs of one host's rows.

    Args:
        samples: rows of the `gpu` table with GPU_COLUMNS, `time` as integer ms, in any order, duplicates allowed.
        processes: rows of the `process` table with PROCESS_COLUMNS, `time` as integer ms.
        claims: spans (gpu, start, end, holder) that do not overlap, see `claims.flatten`.
        settings: the thresholds.
    """
    # GPU names as numbers: sorting, joining and comparing strings is most of the work otherwise
    names = pl.Enum(samples["gpu"].drop_nulls().unique().sort())
    # a row without an interval stands for no time, and NaN is no measurement
    whole = pl.col("gpu").is_not_null() & ~pl.col("gpu").str.starts_with(_MIG_PREFIX)
    timed = samples.filter((pl.col("interval_ms") > 0) & whole).with_columns(
        pl.col("gpu").cast(names),
        pl.col("gpu_util_pct", "gpu_util_max_pct", "gpu_util_coverage_ratio", "power_w").fill_nan(None),
        start=pl.col("time") + pl.col("offset_ms").fill_null(0),
    )
    seen = timed.group_by("gpu").agg(
        first_seen=pl.col("start").min(), last_seen=(pl.col("start") + pl.col("interval_ms")).max()
    )
    rows = _in_order(timed.filter(_usable()))
    lists, spans = (
        frame.filter(pl.col("gpu").is_in(names.categories.to_list())).with_columns(pl.col("gpu").cast(names))
        for frame in (processes, claims)
    )
    described = _describe(_with_claims(_with_holders(rows, lists), spans), settings)
    plain = pl.col("gpu").cast(pl.String)
    return Runs(_collapse(_weigh(described)).with_columns(plain), seen.with_columns(plain))


def _in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows by GPU and time, each moment of a GPU once; which of several stays does not depend on their order."""
    ordered = rows.sort("gpu", "start")
    again = (pl.col("gpu") == pl.col("gpu").shift(1)) & (pl.col("start") == pl.col("start").shift(1))
    if not ordered.select(again.any()).item():
        return ordered
    ties = [name for name in GPU_COLUMNS if name != "gpu"]
    return rows.sort("gpu", "start", *ties).unique(("gpu", "start"), keep="first", maintain_order=True)


def _usable() -> pl.Expr:
    """Rows that say anything about the state: out of order, a utilization, or the knowledge that nobody is on it."""
    return (
        pl.col("health").is_in((*UNAVAILABLE_HEALTH, _ASLEEP)).fill_null(value=False)
        | pl.col("gpu_util_pct").is_not_null()
        | (pl.col("process_count") == 0).fill_null(value=False)
    )


def _with_holders(rows: pl.DataFrame, processes: pl.DataFrame) -> pl.DataFrame:
    """Adds `users`: who the nearest process list of the GPU names, the one before the row first, else the one after.

    A list is good for three of its own intervals, like every sample.
    """
    lists = (
        processes.group_by("gpu", "time")
        .agg(
            users=pl.col("user").drop_nulls().unique().sort().str.join("+"),
            reach=pl.col("interval_ms").max() * GAP_INTERVALS,
        )
        .with_columns(users=pl.when(pl.col("users") != "").then("users"), listed=pl.col("time"))
        .sort("gpu", "time")
    )
    found = rows.sort("gpu", "time")
    for strategy, name in (("backward", "before"), ("forward", "after")):
        found = found.join_asof(
            lists.rename({"users": f"users_{name}", "reach": f"reach_{name}", "listed": f"listed_{name}"}),
            on="time",
            by="gpu",
            strategy=strategy,  # type: ignore[arg-type]  # a loop variable is no Literal
            check_sortedness=False,
        )
    near_before = pl.col("time") - pl.col("listed_before") <= pl.col("reach_before")
    near_after = pl.col("listed_after") - pl.col("time") <= pl.col("reach_after")
    users = pl.when(near_before).then("users_before").when(near_after).then("users_after")
    return found.with_columns(users=users).sort("gpu", "start")


def _with_claims(rows: pl.DataFrame, claims: pl.DataFrame) -> pl.DataFrame:
    """Adds `claimed` and `claim_holder`: the claim in whose span the row starts."""
    spans = claims.select("gpu", "start", claim_end="end", claim_holder="holder").sort("gpu", "start")
    joined = rows.join_asof(spans, on="start", by="gpu", strategy="backward", check_sortedness=False)
    claimed = (pl.col("start") < pl.col("claim_end")).fill_null(value=False)
    return joined.with_columns(claimed=claimed, claim_holder=pl.when(claimed).then("claim_holder"))


def _describe(rows: pl.DataFrame, settings: LedgerSettings) -> pl.DataFrame:
    """Adds RUN_KEY's columns."""
    out_of_order = pl.col("health").is_in(UNAVAILABLE_HEALTH).fill_null(value=False)
    asleep = (pl.col("health") == _ASLEEP).fill_null(value=False)
    # an average that the GPU keeps itself may lie a little above the driver's samples of whole percents
    nothing_sampled = (pl.col("gpu_util_max_pct") == 0).fill_null(value=False) & (pl.col("gpu_util_pct") < 0.5)
    zero = ((pl.col("gpu_util_pct") == 0) & pl.col("gpu_util_max_pct").is_null()) | nothing_sampled
    by_process = (pl.col("process_count") > 0).fill_null(value=False)
    # without a process list, memory in use stands for a holder; the evidence says so through holder_source
    by_memory = pl.col("process_count").is_null() & (pl.col("mem_used_bytes") > settings.held_min_bytes)
    busy = (pl.col("gpu_util_pct").is_not_null() & ~zero).fill_null(value=False)
    kind = (
        pl.when(out_of_order).then(pl.lit("unavailable"))
        .when(by_process | by_memory | busy).then(pl.lit("use"))
        .when(pl.col("claimed")).then(pl.lit("reserved"))
        .otherwise(pl.lit("free"))
    )  # fmt: skip
    source = (
        pl.when(kind == "reserved").then(pl.lit("claim"))
        .when((kind == "free") & ~asleep & pl.col("process_count").is_null() & pl.col("mem_used_bytes").is_null())
        .then(pl.lit("unwatched"))
        .when(kind != "use").then(None)
        .when(by_process & pl.col("users").is_not_null()).then(pl.lit("process"))
        .when(pl.col("claimed")).then(pl.lit("claim"))
        .when(by_process).then(pl.lit("process"))
        .when(by_memory).then(pl.lit("memory"))
    )  # fmt: skip
    holder = pl.when(source == "claim").then("claim_holder").when(source == "process").then("users")
    return rows.with_columns(
        kind=kind,
        holder=holder,
        holder_source=source,
        measured=pl.col("gpu_util_pct").is_not_null() & ~out_of_order,
        zero=zero.fill_null(value=False) & ~out_of_order,
    )


def _weigh(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds `end` (each row stands for min(next - this, 3 intervals), the last for one interval) and `last`."""
    following = pl.col("start").shift(-1).over("gpu")
    reach = pl.col("start") + GAP_INTERVALS * pl.col("interval_ms")
    end = pl.when(following.is_null()).then(pl.col("start") + pl.col("interval_ms")).otherwise(
        pl.min_horizontal(following, reach)
    )  # fmt: skip
    return rows.with_columns(end=end.cast(pl.Int64), last=following.is_null())


def _collapse(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per run, sorted by GPU and start."""
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(1)) for name in RUN_KEY)
    # a run ends with the day, so that what a day's stretches rest on is that day's own
    day = pl.col("start") // DAY_MS
    begins = ~same | (pl.col("end").shift(1) != pl.col("start")) | (day != day.shift(1))
    runs = rows.with_columns(run=begins.fill_null(value=True).cum_sum())
    return (
        runs.group_by("run", maintain_order=True)
        .agg(
            *(pl.col(name).first() for name in RUN_KEY), pl.col("start").min(), pl.col("end").max(), *_sums(), *_tail()
        )
        .drop("run")
    )


def _sums() -> list[pl.Expr]:
    """What a run carries: every sum is value times milliseconds, over the rows that state the value."""
    weight = pl.col("end") - pl.col("start")
    watched = pl.col("gpu_util_coverage_ratio")
    return [
        (pl.col("gpu_util_pct").cast(pl.Float64) * weight).sum().alias("util_sum"),
        pl.max_horizontal("gpu_util_pct", "gpu_util_max_pct").max().cast(pl.Float64).alias("util_max"),
        pl.col("mem_used_bytes").max().alias("mem_max"),
        (pl.col("power_w").cast(pl.Float64) * weight).sum().alias("power_sum"),
        weight.filter(pl.col("power_w").is_not_null()).sum().alias("power_ms"),
        (watched.cast(pl.Float64) * weight).sum().alias("watched_sum"),
        weight.filter(watched.is_not_null()).sum().alias("watched_ms"),
        pl.len().cast(pl.Int64).alias("sample_count"),
    ]


def _tail() -> list[pl.Expr]:
    """What is needed to lengthen or shorten the last row once the next chunk is known."""
    return [
        pl.col("last").last().alias("open"),
        pl.col("start").last().alias("last_start"),
        pl.col("interval_ms").last().cast(pl.Int64).alias("last_interval"),
        pl.col("gpu_util_pct").last().cast(pl.Float64).alias("last_util"),
        pl.col("power_w").last().cast(pl.Float64).alias("last_power"),
        pl.col("gpu_util_coverage_ratio").last().cast(pl.Float64).alias("last_watched"),
    ]

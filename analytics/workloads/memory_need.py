"""How much device memory each run needs, and where that cannot be known because it was reserved in advance.

NVML tells what was allocated, not what was touched. Most programs allocate what they need; some take a fixed share of the
card at the start, whatever they need. Their memory is flat and stands at the default of their framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.workloads.memo import once
from analytics.workloads.runs import run_hours, runs
from fallow.clock import HOUR_MS

if TYPE_CHECKING:
    from analytics.workloads.model import Context

NEED_SHARE = 0.98
NEED_MARGIN = 1.15
PEAK_MAX_SHARE = 0.80
"""The peak may fill this share of a recommended card."""

FLAT_BELOW = 0.01
"""Standard deviation over mean, after warm-up."""
WARM_UP_MS = HOUR_MS
FLAT_MIN_HOURS = 3
"""Whole hours after warm-up; less of them say nothing about flatness."""
RESERVED_SHARES = ((0.73, 0.77), (0.88, 0.94), (0.95, 1.0))
"""Of the card: JAX takes 0.75, vLLM 0.90 or 0.92, each within 2 points; TensorFlow all that there is."""

NEED_THRESHOLDS = {
    "need": "98th percentile of the hourly peaks times 1.15 (facts: VRAM right-size)",
    "fits": "the peak fills at most 80 % of the card (facts: VRAM right-size)",
    "preallocated": "memory flat (standard deviation below 1 % of the mean after the first hour) within 2 points of 0.75 (JAX), "
    "0.90 or 0.92 (vLLM) or at 0.95 and more (TensorFlow) of the card, or held by an inference server that reserves its cache",
}

_RESERVING = ("vllm", "sglang", "tgi")
"""Inference servers that reserve their cache at the start, whatever share of the card they were given."""
_RESERVING_COMMANDS = r"(?i)vllm|sglang|text-generation-server"


@once
def memory(context: Context) -> pl.DataFrame:
    """The columns of `runs` and what follows.

    `whole_hours`, `hours` (those that memory was read in), `q98_bytes` (of the hourly peaks; the peak itself without whole hours),
    `mean_bytes`, `variation` (standard deviation over mean, after warm-up; null for short runs), `mem_share` (mean over the
    card), `reserving` (an inference server that reserves its cache), `by_default` (flat at what a framework reserves by default;
    null: the run is too short to tell), `preallocated` (`reserving` or `by_default`) and `need_bytes` (null where it is
    reserved or may be).
    """
    found = (
        runs(context)
        .join(run_hours(context).group_by("run").agg(whole_hours=pl.len()), on="run", how="left")
        .join(_taken(context), on="run", how="left")
        .with_columns(
            pl.col("whole_hours", "hours").fill_null(0),
            q98_bytes=pl.coalesce("q98_bytes", "peak_bytes"),
            mem_share=pl.coalesce("mean_bytes", "peak_bytes") / pl.col("card_bytes"),
        )
    )
    found = found.join(_reserving(context), on=("host", "gpu"), how="left").with_columns(
        pl.col("reserving").fill_null(value=False)
    )
    found = found.with_columns(by_default=_by_default())
    found = found.with_columns(preallocated=pl.col("reserving") | pl.col("by_default"))
    need = (pl.col("q98_bytes") * NEED_MARGIN).ceil().cast(pl.Int64)
    return found.with_columns(need_bytes=pl.when(~pl.col("preallocated")).then(need))


def _taken(context: Context) -> pl.DataFrame:
    """Per run, the memory in its whole hours."""
    hours = run_hours(context).filter(pl.col("mem_used_max_bytes").is_not_null())
    hours = hours.join(runs(context).select("run", "began"), on="run")
    warm = pl.col("time") >= pl.col("began") + WARM_UP_MS
    mean, square = pl.col("mem_used_mean_bytes").filter(warm), pl.col("mem_used_std_bytes").filter(warm).pow(2)
    # over hours of equal length the variance is that of the hours' means and the mean of the hours' own
    variance = mean.var(ddof=0) + square.mean()
    return hours.group_by("run").agg(
        hours=pl.len(),
        q98_bytes=pl.col("mem_used_max_bytes").quantile(NEED_SHARE, "higher").cast(pl.Int64),
        mean_bytes=mean.mean(),
        variation=pl.when(mean.len() >= FLAT_MIN_HOURS).then(variance.sqrt() / mean.mean()),
    )


def _reserving(context: Context) -> pl.DataFrame:
    """GPUs with an inference server that reserves its cache, in the window."""
    inside = pl.col("time") >= context.since_ms - HOUR_MS
    served = context.rollups.serving().filter(inside, pl.col("engine").is_in(_RESERVING))
    named = pl.col("command").str.contains(_RESERVING_COMMANDS) | pl.col("arguments").str.contains(_RESERVING_COMMANDS)
    listed = context.rollups.processes().filter(pl.col("end") > context.since_ms, named.fill_null(value=False))
    found = pl.concat([each.select("host", "gpu").drop_nulls() for each in (served, listed)])
    return found.unique().with_columns(reserving=True)


def _by_default() -> pl.Expr:
    """True, false, or null where the memory is of a size that a framework may have reserved and the run too short to tell."""
    shares = pl.lit(value=False)
    for low, high in RESERVED_SHARES:
        shares |= pl.col("mem_share").is_between(low, high)
    return shares & (pl.col("variation") < FLAT_BELOW)

"""Runs on each GPU, with their activity and memory need: a row per GPU, user, account and job."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.cards import card
from analytics.intervals import SPAN_MS
from analytics.ledger.rollups import percentiles
from analytics.ledger.usage import SEVERAL_HOLD
from analytics.states import OCCUPIED
from analytics.workloads.ledger_rows import GPU_MS, RowIndex, one_job, whole_hours
from analytics.workloads.model import Context, once_per_context
from analytics.workloads.process_lists import is_service
from analytics.workloads.processes import program_runs
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS

RUN = ("host", "gpu", "user", "account", "job")


@once_per_context
def runs(context: Context) -> pl.DataFrame:
    """Return a row per run: RUN and these columns.

    `user_source`, `gpu_ms`, `began` and `ended` (first and last moment, from the start of the whole segment), `days`
    (UTC dates with work), `peak_bytes` (largest memory in use), `util_mean_pct`, `util_max_pct`, `sm_mean_pct`,
    `model`, `card_bytes`, `whole_card` (no MIG instance and no split GPU), `single` (one user, at most one job),
    `gpu_count` (GPUs of its job or program), `service` (display servers, daemons and monitors only) and `run` (a
    number).
    """
    rows = context.inside.segments.filter(pl.col("state").is_in(OCCUPIED))
    several = (pl.col("job").is_not_null() & ~one_job()) | SEVERAL_HOLD
    weight = pl.col("util_ms")
    sm_weight = pl.when(pl.col("sm_active_mean_pct").is_not_null()).then(SPAN_MS)
    found = (
        rows.group_by(RUN)
        .agg(
            user_source=pl.col("user_source").sort_by("time").last(),
            gpu_ms=GPU_MS.sum(),
            began=pl.col("segment_start").min(),
            ended=pl.col("end").max(),
            days=(pl.col("time") // DAY_MS).n_unique(),
            peak_bytes=pl.col("mem_used_max_bytes").max(),
            util_mean_pct=(pl.col("gpu_util_mean_pct") * weight).sum() / weight.sum(),
            util_max_pct=pl.col("gpu_util_max_pct").max(),
            sm_mean_pct=(pl.col("sm_active_mean_pct") * sm_weight).sum() / sm_weight.sum(),
            whole_card=(pl.col("gpu_share") == 1).all(),
            single=pl.col("user_shares").is_null().all(),
        )
        .with_columns(pl.col("util_mean_pct", "sm_mean_pct").fill_nan(None), single=pl.col("single") & ~several)
        .sort(*RUN, nulls_last=True)
        .with_row_index("run")
    )
    found = found.join(_devices(context), on="gpu", how="left")
    whole = pl.col("whole_card") & ~pl.col("split").fill_null(value=False)
    # users who run only services on a GPU
    listed = context.rollups.processes(context.since_ms).filter(pl.col("end") > context.since_ms)
    services = listed.group_by("host", "gpu", "user").agg(service=is_service().all())
    found = found.join(services, on=("host", "gpu", "user"), how="left")
    found = found.with_columns(pl.col("service").fill_null(value=False), whole_card=whole)
    return _part_of(context, found.drop("split"))


def _devices(context: Context) -> pl.DataFrame:
    """Return per GPU `model` and `card_bytes` by the inventory (else the catalog), and whether it is `split`."""
    devices = list(context.inventory.devices.values())
    models = {each.model: card(each.model) for each in devices}
    catalog = {model: known.memory_bytes for model, known in models.items() if known is not None}
    return pl.DataFrame(
        {
            "gpu": [each.gpu for each in devices],
            "model": [each.model for each in devices],
            "card_bytes": [each.mem_total_bytes or catalog.get(each.model) for each in devices],
            "split": [bool(each.mig_enabled or each.parent_gpu) for each in devices],
        },
        schema={"gpu": pl.String, "model": pl.String, "card_bytes": pl.Int64, "split": pl.Boolean},
    )


def _part_of(context: Context, found: pl.DataFrame) -> pl.DataFrame:
    """Return the runs with `gpu_count`: a job's GPUs on any host, a program's on its host.

    Allocated GPUs count even without a process.
    """
    owned = context.inside.segments.filter(pl.col("job").is_not_null())
    jobs = owned.group_by("job").agg(job_gpus=pl.col("gpu").n_unique())
    there = program_runs(context).filter(pl.col("ended") > context.since_ms)
    widest = there.group_by("host", "gpu").agg(program_gpus=pl.col("gpu_count").max())
    bare = pl.col("job").is_null()
    return (
        found.join(jobs, on="job", how="left")
        .join(widest, on=("host", "gpu"), how="left")
        .with_columns(gpu_count=pl.when(bare).then("program_gpus").otherwise("job_gpus").fill_null(1))
        .drop("job_gpus", "program_gpus")
    )


@once_per_context
def run_hours(context: Context) -> pl.DataFrame:
    """Return the rows of `hourly` that are wholly inside a run, with `run`."""
    numbers = runs(context).select(*RUN, "run")
    return whole_hours(context).join(numbers, on=RUN, nulls_equal=True)


def segments_of(context: Context, found: pl.DataFrame) -> pl.DataFrame:
    return segments_of_each(context, [found])[0]


def segments_of_each(context: Context, found: Iterable[pl.DataFrame]) -> list[pl.DataFrame]:
    """Return for each frame of runs the window's ledger rows in them."""
    return _rows_by_run(context).parts(each["run"] for each in found)


@once_per_context
def _rows_by_run(context: Context) -> RowIndex:
    """Return the window's ledger rows with work, by run."""
    rows = context.inside.segments.filter(pl.col("state").is_in(OCCUPIED))
    numbers = runs(context).select(*RUN, "run")
    return RowIndex(rows, rows.select(RUN).join(numbers, on=RUN, nulls_equal=True, maintain_order="left")["run"])


def busy_percentiles(context: Context, found: pl.DataFrame, share: float) -> pl.DataFrame:
    """Return the runs with `util_pct` and `sm_pct`, values not exceeded for `share` of the time.

    They are those of the driver's samples of utilization and SM activity in whole hours of each run; `util_known_ms`
    and `sm_known_ms` are the time with samples. Null without samples, because the mean of a long row does not show
    bursts.
    """
    own = found["run"].unique().to_list()
    for name, column in (("util", "gpu_util_peak_ms"), ("sm", "sm_active_peak_ms")):
        sums = _histograms(context)[column][own]
        frame = pl.DataFrame(
            {"run": own, f"{name}_pct": percentiles(sums, share), f"{name}_known_ms": sums.sum(axis=1)},
            schema={"run": pl.UInt32, f"{name}_pct": pl.Float64, f"{name}_known_ms": pl.Int64},
        )
        found = found.join(frame, on="run", how="left")
    return found


def peak_histograms(context: Context, found: pl.DataFrame) -> dict[int, NDArray[np.int64]]:
    """Return milliseconds by whole percent that utilization does not exceed, by run, over its whole hours.

    Runs without data are left out.
    """
    sums = _histograms(context)["gpu_util_peak_ms"]
    return {run: sums[run] for run in found["run"].to_list() if sums[run].any()}


@once_per_context
def _histograms(context: Context) -> dict[str, NDArray[np.int64]]:
    """Return the histograms of peaks over the whole hours of each run, a row per run."""
    hours = run_hours(context).select("host", "gpu", "time", group="run")
    sums = context.rollups.histograms(("gpu_util_peak_ms", "sm_active_peak_ms"), hours, runs(context).height)
    observed = run_hours(context).group_by("run").agg(pl.col("observed_ms").cast(pl.Int64).sum())
    util, run = sums["gpu_util_peak_ms"], observed["run"].to_numpy()
    counted = util[run].sum(axis=1)
    # hours whose rows do not tell, beside hours that do, may have been at any level
    util[run, -1] += np.where(counted > 0, np.maximum(observed["observed_ms"].to_numpy() - counted, 0), 0)
    return sums


NEED_SHARE = 0.98
NEED_MARGIN = 1.15
PEAK_MAX_SHARE = 0.80
"""Largest share of a recommended card that the peak may fill."""

FLAT_BELOW = 0.01
"""Standard deviation over mean, after warm-up."""
WARM_UP_MS = HOUR_MS
FLAT_MIN_HOURS = 3
"""Whole hours after warm-up. Fewer hours do not show whether memory is flat."""
RESERVED_SHARES = ((0.73, 0.77), (0.88, 0.94), (0.95, 1.0))
"""Shares of the card: JAX takes 0.75, vLLM 0.90 or 0.92, each within 2 points; TensorFlow takes all."""

AT_ONCE_RATIO = 0.97
STARTED_WITHIN_MS = 10 * MINUTE_MS
"""A process listed within this time of its start, on a GPU observed before, was observed as it allocated memory."""

_LEAST_PART = 0.1
"""Share of a GPU's memory. A smaller process, such as a monitor, may grow freely."""

NEED_THRESHOLDS = {
    "need": "98th percentile of the hourly peaks times 1.15 (facts: VRAM right-size)",
    "fits": "the peak fills at most 80 % of the card (facts: VRAM right-size)",
    "preallocated": (
        "memory is flat within 2 points of 75 (JAX), 90 or 92 (vLLM) or from 95 % (TensorFlow) of the card on;"
        f" processes had {AT_ONCE_RATIO:.0%} of it in their first list; or an inference server reserves its cache (an"
        " allocator that takes what it needs grows; flat: standard deviation below 1 % of the mean after the first"
        " hour)"
    ),
}

_RESERVING = ("vllm", "sglang", "tgi")
"""Inference servers that reserve their cache at the start, for whatever share of the card they are given."""
_RESERVING_COMMANDS = r"(?i)vllm|sglang|text-generation-server"


@once_per_context
def runs_with_memory(context: Context) -> pl.DataFrame:
    """Return the columns of `runs` and these.

    `whole_hours`, `hours` (those with a memory reading), `q98_bytes` (of the hourly peaks; the peak itself without
    whole hours), `mean_bytes`, `variation` (standard deviation over mean, after warm-up; null for short runs),
    `mem_share` (mean over the card), `reserving` (an inference server that reserves its cache), `by_default` (flat at a
    framework's default reservation, and allocated at once; null: the run is too short, or its start was not observed),
    `preallocated` (`reserving` or `by_default`) and `need_bytes` (null if memory is or may be reserved).
    """
    found = (
        runs(context)
        .join(run_hours(context).group_by("run").agg(whole_hours=pl.len()), on="run", how="left")
        .join(_memory_readings(context), on="run", how="left")
        .with_columns(
            pl.col("whole_hours", "hours").fill_null(0),
            q98_bytes=pl.coalesce("q98_bytes", "peak_bytes"),
            mem_share=pl.coalesce("mean_bytes", "peak_bytes") / pl.col("card_bytes"),
        )
    )
    found = found.join(_reserving(context), on=("host", "gpu"), how="left").with_columns(
        pl.col("reserving").fill_null(value=False)
    )
    found = found.join(_at_once(context, found), on="run", how="left").with_columns(by_default=_by_default())
    found = found.with_columns(preallocated=pl.col("reserving") | pl.col("by_default"))
    need = (pl.col("q98_bytes") * NEED_MARGIN).ceil().cast(pl.Int64)
    return found.with_columns(need_bytes=pl.when(~pl.col("preallocated")).then(need))


def _memory_readings(context: Context) -> pl.DataFrame:
    """Return the memory in the whole hours of each run."""
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
    """Return the GPUs with an inference server that reserves its cache, in the window."""
    inside = pl.col("time") >= context.since_ms - HOUR_MS
    served = context.rollups.serving(context.since_ms - HOUR_MS).filter(inside, pl.col("engine").is_in(_RESERVING))
    named = pl.col("command").str.contains(_RESERVING_COMMANDS) | pl.col("arguments").str.contains(_RESERVING_COMMANDS)
    listed = context.rollups.processes(context.since_ms).filter(pl.col("end") > context.since_ms, named)
    found = pl.concat([each.select("host", "gpu").drop_nulls() for each in (served, listed)])
    return found.unique().with_columns(reserving=True)


def _at_once(context: Context, found: pl.DataFrame) -> pl.DataFrame:
    """Return by run whether all processes with an observed start had their memory at once.

    `run`, `at_once`; no row without such processes.
    """
    process = ("host", "gpu", "pid", "started")
    listed = context.rollups.processes().filter(pl.col("started").is_not_null()).sort("time")
    begun = listed.group_by(process).agg(
        pl.col("time", "mem_first_bytes").first(), most_bytes=pl.col("mem_used_max_bytes").max()
    )
    watched = context.whole.lifetimes.group_by("gpu").agg(pl.col("first_seen").min())
    seen = begun.join(watched, on="gpu").filter(
        pl.col("first_seen") < pl.col("started"), pl.col("time") - pl.col("started") <= STARTED_WITHIN_MS
    )
    own = found.select("run", "host", "gpu", "began", "ended", "peak_bytes").join(seen, on=("host", "gpu"))
    own = own.filter(
        pl.col("time").is_between("began", "ended"), pl.col("most_bytes") >= _LEAST_PART * pl.col("peak_bytes")
    )
    at_once = pl.col("mem_first_bytes") >= AT_ONCE_RATIO * pl.col("most_bytes")
    return own.group_by("run").agg(at_once=at_once.all(ignore_nulls=False))


def _by_default() -> pl.Expr:
    """Return true, false, or null if a framework may have reserved memory of this size and there is no evidence."""
    shares = pl.lit(value=False)
    for low, high in RESERVED_SHARES:
        shares |= pl.col("mem_share").is_between(low, high)
    return shares & (pl.col("variation") < FLAT_BELOW) & (pl.col("reserving") | pl.col("at_once"))

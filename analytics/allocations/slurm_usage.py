"""Use of GPUs by Slurm's own accounting: `gres/gpuutil` and `gres/gpumem` of the steps of a job.

Slurm keeps the last and the highest reading of each task, summed over the GPUs of its processes (`TRESUsageInTot`,
`TRESUsageInMax`; jobacct_gather, JobAcctGatherFrequency). A mean per GPU therefore needs the GPUs of the step. No such
figure is an average over time, so they bound the use of a job and never become time in the ledger.
"""

from __future__ import annotations

import polars as pl

from analytics.allocations.slurm_output import gpu_count
from analytics.importers.model import Tally
from fallow.schema import ALLOCATION

ACCOUNTED = tuple(name for name in ALLOCATION.names if name.startswith("accounted_"))
_UNIT = {unit: 1024.0**power for power, unit in enumerate("KMGTPE", 1)}
_STEP = r"^[^.]+\.(.+)$"
_WHOLE_PCT = 100.0


def is_step() -> pl.Expr:
    """Return whether a line of sacct is a step of a job."""
    return pl.coalesce("JobIDRaw", "JobID").str.contains(".", literal=True)


def with_gpu_use(jobs: pl.DataFrame, lines: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return the jobs with the columns ACCOUNTED, null where no step has figures of GPUs.

    Steps may share GPUs at one time, such as `batch` and its `srun`, so their use adds up, and its known time is at
    most the job's. `extern` holds no work of the job. `jobs` has `run`, `gpu_count` and `lasted_ms`; `lines` are those
    of sacct with `lasted_ms` and `run`, the row number of the job that a step follows.
    """
    name = pl.coalesce("JobIDRaw", "JobID").str.strip_chars().str.extract(_STEP, 1)
    tasks = pl.when(name == "batch").then(1).otherwise(pl.col("NTasks").cast(pl.Int64, strict=False))
    # null where a step names none
    gpus = pl.col("AllocTRES").fill_null("").map_elements(_known_count, return_dtype=pl.Int64)
    steps = lines.filter(is_step() & (name != "extern")).with_columns(tasks=tasks, gpus=gpus)
    readings = {each: _total(f"gpu{each}") for each in ("util", "mem")}
    steps = steps.with_columns(**readings, peak=_reading("TRESUsageInMax", "gpuutil") * pl.col("tasks"))
    used = steps.filter(pl.any_horizontal(pl.col("util", "mem", "peak").is_not_null()))
    tally.drop("step of a job", lines.filter(is_step()).height - used.height)
    tally.drop("step with GPU figures, and without its GPUs (AllocTRES)", int(used["gpus"].is_null().sum()))
    of_job = used.with_columns(gpu_ms=pl.col("gpus") * pl.col("lasted_ms")).drop_nulls(["gpu_ms", "util"])
    of_job = of_job.group_by("run").agg(
        known=pl.col("gpu_ms").sum(),
        **{
            each: pl.when(pl.col(each).is_not_null().all()).then((pl.col(each) * pl.col("lasted_ms")).sum())
            for each in ("util", "mem", "peak")
        },
    )
    gpu_ms = pl.col("gpu_count") * pl.col("lasted_ms")
    known = pl.when((pl.col("known") > 0) & (gpu_ms > 0)).then(pl.min_horizontal("known", gpu_ms))
    figures = {
        "accounted_ratio": known / gpu_ms,
        "accounted_util_pct": (pl.col("util") / known).clip(upper_bound=_WHOLE_PCT),
        "accounted_peak_pct": (pl.col("peak") / known).clip(upper_bound=_WHOLE_PCT),
        "accounted_mem_bytes": pl.col("mem") / known,
    }
    return jobs.join(of_job, on="run", how="left", maintain_order="left").with_columns(**figures)


def _known_count(tres: str) -> int | None:
    try:
        return gpu_count(tres)
    except ValueError:
        return None


def _total(name: str) -> pl.Expr:
    """Return a reading summed over the tasks of a step."""
    return pl.coalesce(_reading("TRESUsageInTot", name), _reading("TRESUsageInAve", name) * pl.col("tasks"))


def _reading(column: str, name: str) -> pl.Expr:
    text = pl.col(column).str.extract(rf"(?:^|,)gres/{name}=([\d.]+[KMGTPE]?)", 1)
    unit = text.str.extract(r"([KMGTPE])$", 1).replace_strict(_UNIT, default=1.0, return_dtype=pl.Float64)
    return text.str.extract(r"^([\d.]+)", 1).cast(pl.Float64, strict=False) * unit

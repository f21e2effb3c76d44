"""Workloads that would move to another card as a whole: all runs of a job, or the bare processes on a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import polars as pl

from analytics.intervals import islands
from analytics.language.sentences import Number, tr, tr_many
from analytics.workloads.confidence import measured_enough
from analytics.workloads.ledger_rows import RowIndex, highest, sum_of
from analytics.workloads.model import Context, Finding, once_per_context
from analytics.workloads.rule import HistoryNeed
from analytics.workloads.runs import RUN, busy_percentiles, run_hours, runs_with_memory, segments_of_each
from fallow.clock import HOUR_MS, MINUTE_MS

RUN_MIN_MS = 61 * MINUTE_MS
"""Princeton's Job Defense Shield: shorter workloads are tests."""
REPORTED_FROM_GPU_MS = 24 * HOUR_MS
"""Princeton's Job Defense Shield: up to a GPU-day, no message is sent."""

WORK_THRESHOLDS = {
    "run": "at least 61 min (Princeton Job Defense Shield)",
    "GPU-hours": "more than 24 in the window, of one user, account and model (Princeton Job Defense Shield)",
}

PEAK_THRESHOLDS = {
    "peaks": (
        "of the driver's samples, by the 98th percentile and the maximum of each row; unknown if rows have only means, "
        "and then there is no finding (a mean over a minute hides bursts of seconds)"
    )
}

IDLE_MAX_PCT = 20.0
"""Princeton's Job Defense Shield: at or below this utilization, a card is too powerful for the workload."""

NEARLY_IDLE = pl.col("util_pct") <= IDLE_MAX_PCT
"""For `with_demand`; null if unknown, which no rule takes as true."""

WORKLOAD_HISTORY = HistoryNeed(RUN_MIN_MS, gpu_hours=REPORTED_FROM_GPU_MS / HOUR_MS)
"""History that the rules on right-sizing need."""

PEAK_MIN_DAYS = 7
"""Days of memory peaks that are needed: a week contains what is done once a week."""

LINKED_BYTES_PER_S = 10e6
"""Mean NVLink traffic of an hour from which a GPU counts as working with others; an idle link carries next to none."""

BUSY_SHARE = 0.95
"""Demand is the utilization and SM activity that is not exceeded for this share of the time."""

_WORK = ("user", "account", "job", "place", "model")


@once_per_context
def runs_with_workload(context: Context) -> pl.DataFrame:
    """Return the columns of `memory` and `work`, the number of each run's workload.

    A job is a workload on each model of card. Bare processes are a workload on each GPU; processes on several GPUs are
    a workload on each host.
    """
    place = pl.when(pl.col("job").is_null()).then(
        pl.when(pl.col("gpu_count") > 1).then("host").otherwise(pl.concat_str("host", pl.lit("/"), "gpu"))
    )
    found = runs_with_memory(context).with_columns(place=place).sort(*_WORK, "run", nulls_last=True)
    return found.with_columns(work=islands(_WORK, None)).drop("place")


@once_per_context
def workloads(context: Context) -> pl.DataFrame:
    """Return a row per workload on whole cards of known model that lasted RUN_MIN_MS and ran a kernel.

    It has one user and at most one job. Columns: work, user, account, job, model, `gpus` and `hosts` (counts),
    `gpu_count` (all GPUs of the job), `gpu_ms`, `began`, `ended`, `days`, `hours` and `mem_hours` (whole GPU-hours, and
    those with a memory reading). Over its GPUs the largest `peak_bytes`, `q98_bytes`, `need_bytes`, `util_mean_pct` and
    `util_max_pct`, the smallest `card_bytes`, `preallocated` (of any; null if any may be) and `by_default` (all of
    them, certainly).
    """
    return (
        runs_with_workload(context)
        .group_by("work", maintain_order=True)
        .agg(
            pl.col("user", "account", "job", "model", "user_source").first(),
            pl.col("gpu_ms").sum(),
            pl.col("began").min(),
            pl.col(
                "peak_bytes", "q98_bytes", "need_bytes", "util_mean_pct", "util_max_pct", "ended", "days", "gpu_count"
            ).max(),
            pl.col("card_bytes").min(),
            pl.col("preallocated").any(ignore_nulls=False),
            pl.col("whole_card", "single").all(),
            by_default=pl.col("by_default").fill_null(value=False).all(),
            service=pl.col("service").any(),
            gpus=pl.col("gpu").n_unique(),
            hosts=pl.col("host").n_unique(),
            known=pl.col("peak_bytes").is_not_null().all(),
            mem_hours=pl.col("hours").sum(),
            hours=pl.col("whole_hours").sum(),
        )
        .filter(
            pl.col("whole_card") & pl.col("single") & ~pl.col("service"),
            pl.col("model").is_not_null() & (pl.col("util_mean_pct") > 0),
            pl.col("ended") - pl.col("began") >= RUN_MIN_MS,
        )
        .with_columns(need_bytes=pl.when(pl.col("known") & ~pl.col("preallocated")).then("need_bytes"))
        .drop("whole_card", "single", "service", "known")
    )


def above_a_gpu_day(found: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Return the workloads of users with more than REPORTED_FROM_GPU_MS on a model, and within each value of `by`."""
    return found.filter(pl.col("gpu_ms").sum().over("user", "account", "model", *by) > REPORTED_FROM_GPU_MS)


def with_demand(context: Context, found: pl.DataFrame, share: float = BUSY_SHARE) -> pl.DataFrame:
    """Return the workloads with `util_pct`, `sm_pct` and `dram_pct`, values not exceeded for `share` of the time.

    The highest value over their GPUs counts. Null if not measured on every GPU. Memory bandwidth is the larger of two
    values: that of the hourly means, and `util_pct` times that of the bandwidth while a kernel runs. Also with
    `util_known_ms` and `sm_known_ms`, the measured GPU time.
    """
    own = runs_with_workload(context).join(found.select("work"), on="work", how="semi")
    mean = pl.col("dram_active_mean_pct").cast(pl.Float64)
    while_busy = (mean / pl.col("gpu_util_mean_pct")).filter(pl.col("gpu_util_mean_pct") > 0).clip(upper_bound=1.0)
    flows = (
        run_hours(context)
        .group_by("run")
        .agg(dram_mean_pct=mean.quantile(share, "higher"), dram_ratio=while_busy.quantile(share, "higher"))
    )
    measured = busy_percentiles(context, own, share).join(flows, on="run", how="left")
    bursts = pl.col("dram_ratio") * pl.col("util_pct")
    measured = measured.with_columns(dram_pct=pl.max_horizontal("dram_mean_pct", bursts))
    highest = map(_known, ("util_pct", "sm_pct", "dram_pct"))
    known = pl.col("util_known_ms", "sm_known_ms").sum()
    return found.join(measured.group_by("work").agg(*highest, known), on="work", how="left")


def sm_activity_measured(found: pl.DataFrame) -> list[str]:
    """Return a failure if SM activity was measured, but for less time than utilization; for workloads `with_demand`."""
    known_ms, measured_ms = sum_of(found, "sm_known_ms"), sum_of(found, "util_known_ms")
    return [] if found["sm_pct"].null_count() else measured_enough(known_ms, measured_ms, tr("SM activity"))


def sm_activity_of_means(found: pl.DataFrame) -> list[str]:
    """Return failures if a part of a card is enough by SM activity, but not if kernels fill the card for moments.

    The driver reports SM activity only as means of whole rows, and kernels of a row may differ.
    """
    if found.is_empty():
        return []
    return [
        tr("SM activity is known only as means of whole rows: single moments may need more"),
        tr("the move was not tested: run the workload there once, and compare the time per step"),
    ]


def seen_long_enough(found: pl.DataFrame) -> list[str]:
    """Return failures if the memory of these workloads was observed for under a week, or in too few of their hours."""
    days, read, hours = highest(found, "days"), sum_of(found, "mem_hours"), sum_of(found, "hours")
    failed = measured_enough(read, hours, tr("memory in use")) if hours else []
    if (days or 0) < PEAK_MIN_DAYS:
        failed.append(
            tr_many(
                "memory was observed on {number} {day|days}, {wanted} are needed: a rare step may need more",
                days or 0,
                wanted=Number(PEAK_MIN_DAYS),
            )
        )
    return failed


def runs_of(context: Context, found: pl.DataFrame) -> pl.DataFrame:
    return _runs_by_workload(context).rows(found["work"])


def with_rows(
    context: Context, groups: Sequence[pl.DataFrame]
) -> Iterator[tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]]:
    """Return each group of workloads, with their runs and with the ledger rows of these."""
    runs = _runs_by_workload(context).parts(each["work"] for each in groups)
    return zip(groups, runs, segments_of_each(context, runs), strict=True)


@once_per_context
def _runs_by_workload(context: Context) -> RowIndex:
    rows = runs_with_workload(context).sort("host", "gpu", "run")
    return RowIndex(rows, rows["work"])


@once_per_context
def nvlinked(context: Context) -> pl.DataFrame:
    """Return, in `work`, the workloads with NVLink traffic: programs on several GPUs, whatever process lists show."""
    hours = run_hours(context).filter(pl.col("nvlink_mean_bytes_per_s") >= LINKED_BYTES_PER_S)
    return runs_with_workload(context).join(hours.select("run").unique(), on="run", how="semi").select("work").unique()


SMALLER = ("memory_oversized", "compute_oversized")
"""Rules that name a smaller or older card."""

SPLIT = "mig_fit"
"""The rule that names a part of a card."""

SHARED = "co_location"
"""The rule that names a card for several workloads."""

RESERVED = "preallocated"
"""The rule about memory reserved in advance: its peak does not show the need."""


def workload_footprints(context: Context, segments: pl.DataFrame) -> pl.DataFrame:
    """Return a row per workload (a job on cards of one model, or bare processes on a GPU), the most GPU time first.

    Columns: `user`, `account`, `job`, `model` (null if unknown), `host` (of one of them), `gpus` (their names),
    `gpu_ms`, `peak_bytes` and `card_bytes` (of any GPU; null: unknown), `util_pct` and `sm_pct` (values that
    utilization and SM activity do not exceed for 95 % of the time; null if any of its GPUs has none), `coverage`
    (measured share of its whole hours; null without any), `whole_card`. Workloads of display servers and daemons, and
    those with several users or jobs, are left out, because their memory cannot be assigned.

    Workloads without any of the ledger rows in `segments` are left out.
    """
    own = runs_with_workload(context).filter(pl.col("single") & ~pl.col("service"))
    asked = own.join(segments.select(RUN).unique(), on=RUN, how="semi", nulls_equal=True)
    own = own.join(asked.select("work").unique(), on="work", how="semi")
    measured = busy_percentiles(context, own, BUSY_SHARE)
    return (
        measured.group_by("work", maintain_order=True)
        .agg(
            pl.col("user", "account", "job", "model", "host").first(),
            pl.col("gpu").unique().sort().alias("gpus"),
            pl.col("gpu_ms").sum(),
            *(_known(name) for name in ("peak_bytes", "util_pct", "sm_pct")),
            pl.col("card_bytes").min(),
            pl.col("whole_card").all(),
            coverage=pl.col("util_known_ms").sum() / (pl.col("whole_hours").sum() * HOUR_MS),
        )
        .with_columns(coverage=pl.when(pl.col("coverage").is_finite()).then(pl.col("coverage").clip(0.0, 1.0)))
        .sort(pl.col("gpu_ms"), "work", descending=[True, False])
        .drop("work")
    )


def _known(name: str) -> pl.Expr:
    """Return the largest value over the workload's GPUs; null if a GPU has none."""
    return pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).max()).alias(name)


def findings_about(workloads: pl.DataFrame, findings: Iterable[Finding]) -> list[tuple[Finding, ...]]:
    """Return, for each row of `workload_footprints`, its findings of SMALLER, SPLIT and RESERVED, in that order."""
    order = {rule: place for place, rule in enumerate((*SMALLER, SPLIT, RESERVED))}
    by_model: dict[tuple[str | None, object], list[Finding]] = {}
    for each in sorted((each for each in findings if each.rule in order), key=lambda each: order[each.rule]):
        by_model.setdefault((each.user, each.evidence.numbers.get("model")), []).append(each)
    return [
        tuple(each for each in by_model.get((row["user"], row["model"]), ()) if _is_about(each, row))
        for row in workloads.iter_rows(named=True)
    ]


def _is_about(finding: Finding, row: Mapping[str, object]) -> bool:
    """Return whether a finding has all of a workload's GPUs, and its job, if it has one."""
    gpus = row["gpus"]
    if not isinstance(gpus, list) or not set(gpus) <= set(finding.gpus):
        return False
    job = row["job"]
    return job is None or f"+{job}+" in f"+{finding.job}+"

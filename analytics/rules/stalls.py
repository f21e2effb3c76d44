"""All GPUs of a job stop together, again and again, for checkpoints or for one another.

Look-alikes that it leaves alone: checkpoints of normal length, requests at random, a polled server, evaluation of a
quarter hour, pauses longer than ten minutes (`held`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.intervals import SPAN_MS, clip
from analytics.language.sentences import Number, Share, tr
from analytics.workloads import waste
from analytics.workloads.commands import monitor_command
from analytics.workloads.finding_parts import counted, label, varying
from analytics.workloads.ledger_rows import gpu_ms_of, gpus_on, joined, newest_source, occupancies
from analytics.workloads.model import Context, of_gpus
from analytics.workloads.processes import serving_gpus, work_segments
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from fallow.clock import HOUR_MS, MINUTE_MS, SECOND_MS

STALL_MIN_MS = 20 * SECOND_MS
STALL_MAX_MS = 10 * MINUTE_MS
PERIOD_CV_MAX = 0.35
BREAK_PERIODS = 2.5
REGULAR_MIN = 0.8
COUNT_MIN = 10
SHARE_MIN = 0.10
SHARE_MAX = 0.50
WORK_FROM_PCT = 50.0


@dataclass(frozen=True)
class StallSeries:
    """The moments at which all GPUs of a job stalled, and how regular they are."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]

    @property
    def total_ms(self) -> int:
        return int((self.end - self.start).sum())

    @property
    def mean_ms(self) -> float:
        """Return the mean length of a stall."""
        return self.total_ms / len(self.start)

    @property
    def periods_ms(self) -> NDArray[np.int64]:
        """Return the times from one stall to the next, without breaks in which the job did not run."""
        every = np.diff(self.start)
        return every[every <= BREAK_PERIODS * np.median(every)] if len(every) else every

    @property
    def regular(self) -> bool:
        periods = self.periods_ms
        if len(self.start) < COUNT_MIN or len(periods) < REGULAR_MIN * (len(self.start) - 1):
            return False
        return self.period_cv < PERIOD_CV_MAX

    @property
    def period_cv(self) -> float:
        """Return the standard deviation of the intervals over their mean."""
        return float(self.periods_ms.std() / self.periods_ms.mean())


def stalls_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per job whose GPUs all stall briefly at equal intervals, for at least a tenth of its time."""
    at_work, idle_intervals = _jobs_and_idle_intervals(context)
    gpus = dict(at_work.group_by("work").agg(pl.col("gpu").n_unique()).iter_rows())
    together = (
        (work, _together(own, gpus[work])) for (work,), own in idle_intervals.group_by("work", maintain_order=True)
    )
    regular = {work: series for work, series in together if series.regular}
    if not regular:
        return
    there = at_work.filter(pl.col("work").is_in(list(regular))).select("host", "gpu").unique()
    own = context.inside.segments.join(there, on=("host", "gpu"), how="semi", maintain_order="left")
    rows = work_segments(context, own)
    for work, series in regular.items():
        segments = rows.filter(pl.col("work") == work)
        if _costly(series, segments):
            stalled = _stalled(segments, series)
            stalled_ms, all_ms = gpu_ms_of(stalled), gpu_ms_of(segments)
            host = segments["host"].mode().sort()[0]
            yield Candidate(
                stalled.drop("work"),
                subject=work,
                numbers={
                    "user_source": newest_source(segments),
                    "gpus_of_the_job": segments["gpu"].n_unique(),
                    "stall_count": len(series.start),
                    "stall_mean_s": series.mean_ms / SECOND_MS,
                    "period_mean_min": float(series.periods_ms.mean()) / MINUTE_MS,
                    "period_cv": series.period_cv,
                    "stalled_share": stalled_ms / all_ms,
                    "stalled_gpu_hours": stalled_ms / HOUR_MS,
                    "job_gpu_hours": all_ms / HOUR_MS,
                },
                failed=[_assumed(segments, series)],
                next_command=monitor_command(host, gpus_on(segments, host)),
                user=joined(segments, "user"),
                since_ms=int(series.start[0]),
                notes=[tr("to recover this time, checkpoint asynchronously or less often, or synchronize less")],
            )


STALLS = Rule(
    name="stalls",
    category="efficiency",
    sentence=of_gpus(
        "stalled at regular intervals during its job",
        "stalled together at regular intervals during their job",
    ),
    kinds=(waste.INEFFICIENT,),
    precedence=40,
    advice=tr(
        "Find out what the workload waits for in its pauses, such as checkpoints or evaluation, and shorten them. If"
        " that is not possible, reply with the reason."
    ),
    history=HistoryNeed(COUNT_MIN * STALL_MIN_MS),
    thresholds={
        "length": (
            f"{STALL_MIN_MS // SECOND_MS} s to {STALL_MAX_MS // MINUTE_MS} min without a kernel on every GPU of the job"
            " (shorter ones come from input, longer ones are idle intervals)"
        ),
        "period": (
            f"intervals with a coefficient of variation under {PERIOD_CV_MAX} (requests come at random, near 1; a loop"
            " does not)"
        ),
        "count": f"at least {COUNT_MIN} of them",
        "share": (
            f"{SHARE_MIN:.0%} to {SHARE_MAX:.0%} of the job's time (checkpoints cost 1 to 5 % where they are tuned;"
            " more than half is a job that waits for a clock)"
        ),
        "work": f"mean utilization of {WORK_FROM_PCT:g} % or more in between (training, not requests)",
    },
    labels=(
        counted("stall_count", "{number} {stall|stalls}"),
        label("stall_mean_s", "mean length {value} s"),
        label("period_mean_min", "one every {value} min"),
        varying("period_cv", "intervals vary by less than {share}", "intervals vary by {share}"),
        label("stalled_share", "{value} of the job's time", Share),
        label("stalled_gpu_hours", "{value} GPU-hours stalled"),
        label("job_gpu_hours", "the job has {value} GPU-hours in total"),
    ),
    find=stalls_findings,
)


def _jobs_and_idle_intervals(context: Context) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the times of jobs and programs by `work`, `host` and `gpu`, and the short idle intervals inside them.

    Columns of the intervals: work, gpu, time, end.
    """
    idle_intervals = context.inside.idle_intervals.filter(
        (pl.col("idle_interval_end") - pl.col("idle_interval_start")).is_between(STALL_MIN_MS, STALL_MAX_MS)
    )
    # pauses of a server are its callers'
    times = context.inside.segments.select("host", "gpu", "user", "account", "job", "state", "time", "end")
    rows = work_segments(context, times).filter(~pl.col("gpu").is_in(list(serving_gpus(context))))
    inside = _inside(idle_intervals, rows)
    shares = (
        inside.group_by("work")
        .agg(stopped_ms=SPAN_MS.sum())
        .join(rows.group_by("work").agg(all_ms=SPAN_MS.sum()), on="work")
    )
    kept = shares.filter(pl.col("stopped_ms") >= SHARE_MIN * pl.col("all_ms")).select("work")
    return rows.join(kept, on="work", how="semi"), inside.join(kept, on="work", how="semi").sort("work", "time")


def _inside(idle_intervals: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the idle intervals, each with the workload that contains it."""
    whole = occupancies(rows.with_columns(job="work")).rename({"time": "since", "end": "until", "job": "work"})
    # both come with the times of each GPU in order
    found = idle_intervals.join_asof(
        whole.select("host", "gpu", "work", "since", "until"),
        left_on="time",
        right_on="since",
        by=("host", "gpu"),
        strategy="backward",
        check_sortedness=False,
    )
    return found.filter(pl.col("end") <= pl.col("until")).select("work", "gpu", "time", "end")


def _together(idle_intervals: pl.DataFrame, gpus: int) -> StallSeries:
    """Return the times in which all GPUs stalled for long enough: the overlap of every GPU's idle intervals."""
    times = np.concatenate([idle_intervals["time"].to_numpy(), idle_intervals["end"].to_numpy()])
    steps = np.concatenate([np.ones(len(idle_intervals), np.int64), -np.ones(len(idle_intervals), np.int64)])
    order = np.lexsort((steps, times))
    still = np.cumsum(steps[order]) >= gpus
    edges = np.flatnonzero(np.diff(np.concatenate(([False], still, [False])).astype(np.int8)))
    start, end = times[order][edges[::2]], times[order][edges[1::2]]
    long = end - start >= STALL_MIN_MS
    return StallSeries(start[long], end[long])


def _costly(series: StallSeries, segments: pl.DataFrame) -> bool:
    """Return True if the stalls take enough of the job's time and the job works between them."""
    gpus = segments["gpu"].n_unique()
    all_ms = int(segments.select(SPAN_MS.sum()).item())
    util = segments.select((pl.col("gpu_util_mean_pct") * pl.col("util_ms")).sum()).item()
    working_ms = int(segments.select((pl.col("util_ms") - pl.col("zero_ms")).sum()).item())
    share = series.total_ms * gpus / all_ms
    return SHARE_MIN <= share <= SHARE_MAX and working_ms > 0 and util / working_ms >= WORK_FROM_PCT


def _stalled(segments: pl.DataFrame, series: StallSeries) -> pl.DataFrame:
    """Return the job's ledger rows cut to the stalls. Energy is unknown: it is not measured over such short times."""
    stops = pl.DataFrame({"stop": series.start, "go": series.end})
    pieces = segments.join_where(stops, pl.col("time") < pl.col("go"), pl.col("end") > pl.col("stop"))
    parts = clip(pieces, "stop", "go").drop("stop", "go")
    return parts.with_columns(energy_ms=pl.lit(0, pl.Int64), energy_mj=pl.lit(0.0))


def _assumed(segments: pl.DataFrame, series: StallSeries) -> list[str]:
    rows = int(segments["sample_count"].sum())
    row_ms = segments["util_ms"].sum() / rows if rows else STALL_MAX_MS
    if row_ms * 2 > series.mean_ms:
        rows_s, stall_s = Number(row_ms / SECOND_MS), Number(series.mean_ms / SECOND_MS)
        return [tr("samples of {rows_s} s are coarse for stalls of {stall_s} s", rows_s=rows_s, stall_s=stall_s)]
    return []

"""The GPUs of one job do very different amounts of work for hours.

Look-alikes that it leaves alone: evaluation on one rank, warm-up, trials or cards that take turns, separate programs of
one user, inference servers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from analytics.intervals import islands
from analytics.language.sentences import Number, Sentence, Share, tr
from analytics.workloads import waste
from analytics.workloads.commands import monitor_command
from analytics.workloads.finding_parts import label
from analytics.workloads.ledger_rows import (
    first_ms,
    gpu_ms_of,
    gpus_on,
    joined,
    newest_source,
    one_job,
    whole_hours,
    within_hours,
)
from analytics.workloads.model import Context, Finding, Label, of_gpus
from analytics.workloads.processes import program_runs, serving_gpus
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from fallow.clock import HOUR_MS

SPREAD_MIN = 0.5
SUSTAINED_H = 3
SHARE_MIN = 0.25
ACTIVE_FROM_PCT = 1.0
BUSIEST_FROM_PCT = 20.0


def _uneven_words(known: Mapping[str, Any], _: Finding) -> list[Sentence]:
    uneven, judged = (Number(float(known[name])) for name in ("uneven_h", "judged_h"))
    return [
        tr("uneven in {uneven} of the {judged} h in which all GPUs of the job were busy", uneven=uneven, judged=judged)
    ]


def imbalance_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per job whose GPUs are all busy, some of them less than half as much as others."""
    hours = _hours_of_several_gpus(context)
    judged = _imbalance_judged(hours)
    level = pl.when("by_sm").then("sm_active_mean_pct").otherwise("gpu_util_mean_pct").cast(pl.Float64)
    lasting = _lasting(judged).select("work", "time", "by_sm")
    uneven = hours.join(lasting, on=("work", "time")).with_columns(level=level)
    found: list[tuple[str, pl.DataFrame, pl.DataFrame, pl.DataFrame]] = []
    for (work,), rows in uneven.group_by("work", maintain_order=True):
        per_gpu = rows.group_by("gpu").agg(pl.col("host").last(), mean_pct=pl.col("level").mean()).sort("gpu")
        # in the mean over these hours as well: trials of a search that take turns are even in the long run
        slow = per_gpu.filter(pl.col("mean_pct") < (1 - SPREAD_MIN) * pl.col("mean_pct").max())
        if not slow.is_empty():
            found.append((str(work), rows, per_gpu, slow))
    of_slow = [rows.filter(pl.col("gpu").is_in(slow["gpu"].implode())) for _, rows, _, slow in found]
    for (work, rows, per_gpu, slow), segments in zip(found, within_hours(context, of_slow), strict=True):
        measured = bool(rows["by_sm"].all())
        host, what = slow["host"][0], "gpu_sm_active" if measured else "gpu_util"
        most, least = float(per_gpu["mean_pct"].top_k(1)[0]), float(per_gpu["mean_pct"].bottom_k(1)[0])
        yield Candidate(
            segments,
            subject=work,
            numbers={
                "user_source": newest_source(segments),
                "gpus_of_the_job": per_gpu.height,
                f"busiest_{what}_mean_pct": most,
                f"idlest_{what}_mean_pct": least,
                "spread": 1 - least / most,
                "uneven_h": rows["time"].n_unique(),
                "waiting_gpu_hours": float((1 - rows["level"] / most).clip(0, 1).sum()),
                "slower_gpu_hours": gpu_ms_of(segments) / HOUR_MS,
                "judged_h": int((judged["work"] == work).sum()),
            },
            failed=[
                []
                if measured
                else [
                    tr("SM activity is not measured on every GPU of the job, so a busy-waiting kernel counts as work")
                ]
            ],
            next_command=monitor_command(host, gpus_on(per_gpu, host)),
            user=joined(segments, "user"),
            since_ms=first_ms(rows),
            notes=[tr("some jobs are uneven by design, such as parameter servers, actors and learners")],
        )


IMBALANCE = Rule(
    name="imbalance",
    category="efficiency",
    sentence=of_gpus("less than half as busy as the busiest GPU of the same job"),
    kinds=(waste.INEFFICIENT,),
    precedence=30,
    advice=tr(
        "Spread the work evenly over the GPUs, or request fewer next time. If neither is possible, reply with the"
        " reason."
    ),
    history=HistoryNeed(SUSTAINED_H * HOUR_MS),
    thresholds={
        "spread": (
            f"(max - min) / max of the GPUs' hourly means above {SPREAD_MIN} (half of the slower GPUs' time is waiting)"
        ),
        "sustained": f"at least {SUSTAINED_H} hours in a row (an evaluation on one rank is over sooner)",
        "share": f"at least {SHARE_MIN:.0%} of the job's whole hours (what is rare costs little)",
        "active": f"every GPU at {ACTIVE_FROM_PCT:g} % or more (an unused GPU is `partial_use`)",
        "busiest": f"the busiest GPU at {BUSIEST_FROM_PCT:g} % or more (small loads scatter by themselves)",
    },
    labels=(
        label("busiest_gpu_sm_active_mean_pct", "mean SM activity {value} % on the busiest GPU"),
        label("idlest_gpu_sm_active_mean_pct", "{value} % on the least busy"),
        label("busiest_gpu_util_mean_pct", "mean utilization {value} % on the busiest GPU"),
        label("idlest_gpu_util_mean_pct", "{value} % on the least busy"),
        label("spread", "a spread of {value}", Share),
        Label(("uneven_h", "judged_h"), _uneven_words),
        label("waiting_gpu_hours", "all GPUs of the job lose {value} GPU-hours against the busiest one"),
        label("slower_gpu_hours", "{value} GPU-hours on the slower GPUs"),
    ),
    find=imbalance_findings,
)


def _hours_of_several_gpus(context: Context) -> pl.DataFrame:
    """Return whole hours of jobs and programs by GPU, with `work`; inference servers are left out."""
    hours = whole_hours(context).filter(~pl.col("gpu").is_in(list(serving_gpus(context))))
    jobs = hours.filter(one_job()).with_columns(work="job")
    return pl.concat([jobs, _with_program(hours.filter(pl.col("job").is_null()), context)])


def _imbalance_judged(hours: pl.DataFrame) -> pl.DataFrame:
    """Return per work and hour whether the load was uneven, for hours in which several GPUs were all busy.

    Columns: `by_sm` and `uneven`.
    """
    util, sm = pl.col("gpu_util_mean_pct"), pl.col("sm_active_mean_pct")
    # like is compared with like: SM activity counts only where all GPUs of the hour have it
    by_sm = sm.is_not_null().all()
    lowest, highest = (
        pl.when(by_sm).then(sm_most).otherwise(util_most)
        for sm_most, util_most in ((sm.min(), util.min()), (sm.max(), util.max()))
    )
    return (
        hours.group_by("work", "time")
        .agg(
            gpus=pl.len(),
            busy=(util >= ACTIVE_FROM_PCT).fill_null(value=False).all(),
            by_sm=by_sm,
            uneven=(1 - lowest / highest > SPREAD_MIN) & (highest >= BUSIEST_FROM_PCT),
        )
        .filter((pl.col("gpus") > 1) & pl.col("busy"))
        .sort("work", "time")
    )


def _with_program(hours: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Return the hours in which a GPU had the processes of exactly one program, which used several GPUs."""
    runs = program_runs(context)
    several = runs.filter(pl.col("gpu_count") > 1)
    candidates = runs.join(several.select("host", "gpu").unique(), on=("host", "gpu"), how="semi")
    overlap = (pl.col("time") < pl.col("ended")) & (pl.col("time") + HOUR_MS > pl.col("began"))
    found = hours.join(candidates, on=("host", "gpu")).filter(overlap)
    return found.filter(pl.len().over("host", "gpu", "time") == 1).select(*hours.columns, "work")


def _lasting(judged: pl.DataFrame) -> pl.DataFrame:
    """Return the uneven hours of long enough series, for workloads in which they are not rare."""
    series = judged.with_columns(series=islands(("work", "uneven"), HOUR_MS, end="time"))
    lasting = pl.col("uneven") & (pl.len().over("series") >= SUSTAINED_H)
    return series.with_columns(lasting=lasting).filter(
        pl.col("lasting") & (pl.col("lasting").mean().over("work") >= SHARE_MIN)
    )

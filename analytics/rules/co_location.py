"""Workloads on GPUs of one host that may share a card.

Look-alikes that it leaves alone: the ranks of one job and GPUs that communicate over NVLink (each needs the other's
card), workloads that are busy in the same hours, preallocated memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.language.sentences import Bytes, Sentence, tr
from analytics.workloads import waste
from analytics.workloads.cards import job_kind
from analytics.workloads.commands import monitor_command
from analytics.workloads.finding_parts import SAVES_IN_A_PACKING, bounded, label
from analytics.workloads.ledger_rows import lowest
from analytics.workloads.model import Context, of_gpus
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from analytics.workloads.runs import NEED_THRESHOLDS, segments_of
from analytics.workloads.sharing import (
    ALIGNED_MIN_HOURS,
    BUSY_MAX_PCT,
    GROUP_MAX,
    MEMORY_MAX_SHARE,
    candidates,
    groups,
    is_best_effort,
    users_apart,
)
from analytics.workloads.window_end import still_going
from analytics.workloads.workloads import (
    PEAK_THRESHOLDS,
    REPORTED_FROM_GPU_MS,
    WORK_THRESHOLDS,
    nvlinked,
    runs_of,
    seen_long_enough,
    workloads,
)
from fallow.clock import HOUR_MS

_INTERFERENCE = tr(
    "NVML does not show how workloads slow each other down: test them together and compare the time per step"
)


def co_location_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per pair or triple of workloads that fit on one card together.

    Each GPU is in at most one finding.
    """
    alone = workloads(context).filter(
        (pl.col("gpu_count") == 1) & (pl.col("gpus") == 1) & (pl.col("gpu_ms") > REPORTED_FROM_GPU_MS),
        pl.col("need_bytes").is_not_null() & (pl.col("util_mean_pct") <= BUSY_MAX_PCT),
        pl.col("q98_bytes") < MEMORY_MAX_SHARE * pl.col("card_bytes"),
    )
    alone = alone.join(nvlinked(context), on="work", how="anti")
    # of the works that a GPU has had, the longest stands for it
    where = runs_of(context, alone).group_by("work").agg(pl.col("host", "gpu").first())
    longest = (
        alone.join(where, on="work")
        .sort("gpu_ms", "work", descending=[True, False])
        .unique(("host", "gpu"), keep="first")
    )
    several = longest.filter(pl.len().over("host", "model") > 1).sort("host", "model", "work")
    if several.is_empty():
        return
    by_work = candidates(context, several)
    for members in several.partition_by(("host", "model"), maintain_order=True):
        those = [by_work[work] for work in members["work"] if work in by_work]
        for group in groups(those, lowest(members, "card_bytes")):
            own = members.filter(pl.col("work").is_in([each.work for each in group.members]))
            rows = segments_of(context, runs_of(context, own))
            gpus = sorted(each.gpu for each in group.members)
            host, model = members["host"][0], members["model"][0]
            users = sorted({each.user for each in group.members if each.user})
            yield Candidate(
                rows,
                subject="|".join(gpus),
                numbers={
                    "user_source": "+".join(sorted(own["user_source"].drop_nulls().unique())) or None,
                    "workloads": len(group.members),
                    "model": model,
                    "mem_together_bytes": group.memory_bytes,
                    "card_memory_bytes": lowest(own, "card_bytes"),
                    "aligned_hours": group.aligned_hours,
                    "gpu_util_together_p95_pct": group.aligned_pct,
                    "gpu_util_together_bursts_p95_pct": group.bursts_pct,
                    "saving": None,
                },
                failed=[
                    [tr("interference cannot be measured: test the workloads together, and compare the time per step")],
                    users_apart(own),
                    seen_long_enough(own),
                    _priority_unknown(context, own),
                    []
                    if set(still_going(context, rows)) == set(gpus)
                    else [tr("not all of these workloads are still running")],
                ],
                next_command=monitor_command(host, gpus),
                user="+".join(users) or None,
                notes=[SAVES_IN_A_PACKING, _INTERFERENCE, _how(own, gpus)],
            )


CO_LOCATION = Rule(
    name="co_location",
    category="right_size",
    sentence=of_gpus("with workloads that may share one card (test first)"),
    kinds=(waste.OVERSIZED,),
    precedence=40,
    of_part=True,
    per_host=True,
    history=HistoryNeed(ALIGNED_MIN_HOURS * HOUR_MS),
    thresholds={
        "memory": (
            f"98th percentiles of the hourly peaks together at most {MEMORY_MAX_SHARE:.0%} of the card (facts:"
            " co-location)"
        ),
        "utilization": (
            f"together at most {BUSY_MAX_PCT:g} % for 95 % of the hours seen side by side, and of the samples (facts:"
            " co-location)"
        ),
        "side by side": f"at least {ALIGNED_MIN_HOURS} whole hours (a day holds day and night)",
        "group": f"at most {GROUP_MAX} workloads of one GPU each, on one host and model",
        "saving": "none by itself: only a packing that frees whole cards saves (ours)",
        **PEAK_THRESHOLDS,
        "preallocated": NEED_THRESHOLDS["preallocated"],
        **WORK_THRESHOLDS,
    },
    labels=(
        label("mem_together_bytes", "memory needed together: {value}", Bytes),
        label("aligned_hours", "observed side by side for {value} h"),
        bounded(
            "gpu_util_together_p95_pct",
            "combined utilization of at most {value} % in 95 % of the hours (limit: {limit} %)",
            BUSY_MAX_PCT,
        ),
        bounded(
            "gpu_util_together_bursts_p95_pct",
            "combined utilization of at most {value} % in 95 % of the samples (limit: {limit} %)",
            BUSY_MAX_PCT,
        ),
    ),
    find=co_location_findings,
)


def _priority_unknown(context: Context, own: pl.DataFrame) -> list[str]:
    """Return a failed condition if no workload is known to tolerate a slowdown."""
    if any(is_best_effort(context.owners, *names) for names in own.select("user", "account").iter_rows()):
        return []
    return [tr("no workload is known to be best effort, and each may slow the other down")]


def _how(own: pl.DataFrame, gpus: list[str]) -> Sentence:
    kind = job_kind(own["job"])
    if kind == "slurm":
        return tr(
            "to test, submit the workloads with --gres=shard:1 on a partition that shares GPUs, or as steps of one job"
        )
    if kind == "pod":
        return tr(
            "to test, let the device plugin share that GPU (time slicing or MPS) and start the workloads as pods on it"
        )
    return tr("to test, start the next workload with CUDA_VISIBLE_DEVICES={gpu}", gpu=gpus[0])

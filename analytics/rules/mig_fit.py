"""A workload on one GPU that fits into a MIG instance of the card.

Look-alikes that it leaves alone: GPUs that communicate with others (instances have no NVLink), preallocated memory,
rare peaks, cards that cannot be split or already are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from analytics.language.sentences import Bytes, Number, Sentence, Share, plain, tr
from analytics.workloads import waste
from analytics.workloads.finding_parts import SAVES_IN_A_PACKING, label, workload_candidate
from analytics.workloads.ledger_rows import gpus_on, highest
from analytics.workloads.mig_profiles import fits, part_measured, profile_for, split_command, split_notes
from analytics.workloads.model import Context, Finding, Label, of_gpus
from analytics.workloads.rule import Candidate, Rule
from analytics.workloads.runs import NEED_SHARE, NEED_THRESHOLDS
from analytics.workloads.workloads import (
    LINKED_BYTES_PER_S,
    PEAK_THRESHOLDS,
    REPORTED_FROM_GPU_MS,
    WORK_THRESHOLDS,
    WORKLOAD_HISTORY,
    above_a_gpu_day,
    nvlinked,
    runs_of,
    with_demand,
    with_rows,
    workloads,
)

_GROUP = ("host", "user", "account", "model", "profile")


def _profile_words(known: Mapping[str, Any], _: Finding) -> list[Sentence]:
    return [
        tr(
            "profile {profile} with {share} of the card's SMs and {size}",
            profile=plain(known["mig_profile"]),
            share=Share(known["mig_sm_share"]),
            size=Bytes(known["mig_memory_bytes"]),
        )
    ]


def mig_fit_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per host, user, account, model and profile, for workloads that fit into a part of their card."""
    splitting = [model for model in workloads(context)["model"].unique() if fits(model)]
    alone = above_a_gpu_day(
        workloads(context).filter(
            pl.col("model").is_in(splitting) & (pl.col("gpu_count") == 1) & (pl.col("gpus") == 1),
            pl.col("need_bytes").is_not_null(),
        )
    )
    alone = alone.join(nvlinked(context), on="work", how="anti")
    if alone.is_empty():
        return
    measured = with_demand(context, alone, NEED_SHARE).filter(pl.col("util_pct") > 0)
    chosen = [profile_for(row) for row in measured.iter_rows(named=True)]
    names = pl.Series("profile", [None if fit is None else fit.profile.name for fit in chosen], pl.String)
    hosts = runs_of(context, measured).group_by("work").agg(pl.col("host").first())
    found = measured.with_columns(names).drop_nulls("profile").join(hosts, on="work").sort("work")
    by_name = {(model, fit.profile.name): fit for model, fit in zip(measured["model"], chosen, strict=True) if fit}
    groups = [
        each for each in found.partition_by(_GROUP, maintain_order=True) if each["gpu_ms"].sum() > REPORTED_FROM_GPU_MS
    ]
    for group, runs, rows in with_rows(context, groups):
        host, profile = group["host"][0], group["profile"][0]
        fit = by_name[group["model"][0], profile]
        gpus = gpus_on(runs, host)
        yield workload_candidate(
            group,
            runs,
            rows,
            numbers={
                "mem_used_max_bytes": highest(group, "peak_bytes"),
                "mem_need_bytes": highest(group, "need_bytes"),
                "gpu_util_p98_pct": highest(group, "util_pct"),
                "sm_active_p98_pct": None if group["sm_pct"].null_count() else highest(group, "sm_pct"),
                "dram_active_p98_pct": None if group["dram_pct"].null_count() else highest(group, "dram_pct"),
                "mig_profile": profile,
                "mig_sm_share": fit.sm_share,
                "mig_memory_bytes": fit.profile.memory_bytes,
                "saving": None,
            },
            failed=part_measured(group, fit.sm_share),
            next_command=split_command(host, gpus, profile, certain=context.latest and host not in context.ahead),
            notes=[
                SAVES_IN_A_PACKING,
                *split_notes(host, gpus, profile, group["job"]),
                tr(
                    "the workload fits by its use over time; a step that fills the card takes {factor} times as long",
                    factor=Number(1 / fit.sm_share, 1),
                ),
            ],
        )


MIG_FIT = Rule(
    name="mig_fit",
    category="right_size",
    sentence=of_gpus("with a workload that fits into a MIG instance of the card"),
    kinds=(waste.OVERSIZED,),
    precedence=30,
    of_part=True,
    per_host=True,
    history=WORKLOAD_HISTORY,
    thresholds={
        "profile": (
            "the first with an SM share of at least the 98th percentile of SM activity and with the memory needed "
            "(1g: 1/7 and 1/8, 2g: 2/7 and 2/8, 3g: 3/7 and 4/8, 4g: 4/7 and 4/8; Kruize, NVIDIA MIG user guide)"
        ),
        "one GPU": (
            f"jobs on several GPUs and GPUs with {LINKED_BYTES_PER_S / 1e6:g} MB/s over NVLink in any hour are left out"
            " (instances have neither NVLink nor peer access)"
        ),
        "SM activity": (
            "means of rows over the time with a kernel in them; where only they say that it fits, confidence is low"
            " (ours)"
        ),
        "saving": "none by itself: only a packing that frees whole cards saves (ours)",
        **PEAK_THRESHOLDS,
        **NEED_THRESHOLDS,
        **WORK_THRESHOLDS,
    },
    labels=(
        label("gpu_util_p98_pct", "utilization {value} % or less for 98 % of the time"),
        label("sm_active_p98_pct", "SM activity {value} % or less for 98 % of the time"),
        label("dram_active_p98_pct", "memory bandwidth {value} % or less for 98 % of the time"),
        Label(("mig_profile", "mig_sm_share", "mig_memory_bytes"), _profile_words),
    ),
    find=mig_fit_findings,
)

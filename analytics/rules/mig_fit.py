"""A workload on one GPU that a MIG instance of the card would hold.

Look-alikes that it leaves alone: GPUs that talk to others (instances have no NVLink), memory reserved in advance, rare
peaks, cards that cannot be split or are already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from analytics.language.language import Sentence
from analytics.language.plain_text import plain
from analytics.language.quantities import Bytes, Number, Share
from analytics.language.sentences import tr
from analytics.money.cards import MigProfile, card
from analytics.workloads.cards import job_kind
from analytics.workloads.commands import on_host
from analytics.workloads.confidence import known_holder
from analytics.workloads.evidence_labels import label
from analytics.workloads.finding_parts import finding_of
from analytics.workloads.model import Context, Finding, Label, Rule
from analytics.workloads.runs import NEED_SHARE, NEED_THRESHOLDS, stretches_of
from analytics.workloads.wording import of_gpus
from analytics.workloads.workloads import (
    LINKED_BYTES_PER_S,
    PEAK_THRESHOLDS,
    REPORTED_FROM_GPU_MS,
    WORK_THRESHOLDS,
    WORKLOAD_HISTORY,
    above_a_gpu_day,
    nvlinked,
    runs_of,
    seen_long_enough,
    sm_activity_measured,
    sm_activity_of_means,
    with_demand,
    workloads,
)

_GROUP = ("host", "holder", "account", "model", "profile")


@dataclass(frozen=True)
class MigFit:
    """A profile with its shares of the card's SMs and of its memory and memory bandwidth."""

    profile: MigProfile
    sm_share: float
    memory_share: float


def _profile_words(known: Mapping[str, Any], _: Finding) -> list[Sentence]:
    return [
        tr(
            "profile {profile} with {share} of the card's SMs and {size}",
            profile=plain(known["mig_profile"]),
            share=Share(known["mig_sm_share"]),
            size=Bytes(known["mig_memory_bytes"]),
        )
    ]


def mig_fit_findings(context: Context) -> Iterator[Finding]:
    """Workloads that would fit into a part of their card: one finding per host, user, account, model and profile."""
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
    chosen = [_fit(row) for row in measured.iter_rows(named=True)]
    names = pl.Series("profile", [None if fit is None else fit.profile.name for fit in chosen], pl.String)
    hosts = runs_of(context, measured).group_by("work").agg(pl.col("host").first())
    found = measured.with_columns(names).drop_nulls("profile").join(hosts, on="work").sort("work")
    by_name = {(model, fit.profile.name): fit for model, fit in zip(measured["model"], chosen, strict=True) if fit}
    for group in found.partition_by(_GROUP, maintain_order=True):
        if group["gpu_ms"].sum() > REPORTED_FROM_GPU_MS:
            yield _mig_fit_finding(context, group, by_name[group["model"][0], group["profile"][0]])


MIG_FIT = Rule(
    name="mig_fit",
    category="right_size",
    sentence=of_gpus("with work that would fit into a MIG instance of the card"),
    per_host=True,
    history=WORKLOAD_HISTORY,
    thresholds={
        "profile": "the first with an SM share of at least the 98th percentile of SM activity and with the memory needed "
        "(1g: 1/7 and 1/8, 2g: 2/7 and 2/8, 3g: 3/7 and 4/8, 4g: 4/7 and 4/8; Kruize, NVIDIA MIG user guide)",
        "one GPU": f"jobs on several GPUs and GPUs with {LINKED_BYTES_PER_S / 1e6:g} MB/s over NVLink in any hour are left out "
        "(instances have neither NVLink nor peer access)",
        "SM activity": "means of rows over the time with a kernel in them; where only they say that it fits, confidence is low (ours)",
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


def _mig_fit_finding(context: Context, group: pl.DataFrame, fit: MigFit) -> Finding:
    rows = stretches_of(context, runs_of(context, group))
    holder, host, model = (group[name][0] for name in ("holder", "host", "model"))
    gpus = tuple(sorted(rows["gpu"].unique()))
    profile = fit.profile.name
    cost = context.costs.of(rows)
    highest = group.select(pl.col("peak_bytes", "need_bytes", "util_pct", "sm_pct", "dram_pct").max())
    peak, need, util_pct, sm_pct, dram_pct = highest.row(0)
    return finding_of(
        context,
        MIG_FIT,
        rows,
        subject="|".join((holder or gpus[0], group["account"][0] or "", model)),
        numbers={
            "holder_source": group["holder_source"][0],
            "works": group.height,
            "model": model,
            "mem_used_max_bytes": peak,
            "mem_need_bytes": need,
            "gpu_util_p98_pct": util_pct,
            "sm_active_p98_pct": None if group["sm_pct"].null_count() else sm_pct,
            "dram_active_p98_pct": None if group["dram_pct"].null_count() else dram_pct,
            "mig_profile": profile,
            "mig_sm_share": fit.sm_share,
            "mig_memory_bytes": fit.profile.memory_bytes,
            # what the rest of the card is worth, where somebody else can use it
            "saving": None if cost is None else cost * (1 - fit.sm_share),
        },
        failed=[
            known_holder(group["holder_source"][0], holder),
            seen_long_enough(group),
            _mig_fit_measured(group, fit),
        ],
        next_command=split_command(host, gpus, profile, certain=context.latest and host not in context.ahead),
        holder=holder,
        notes=[
            *split_notes(host, gpus, profile, group["job"]),
            tr(
                "it fits by its use over time; a step that fills the card would take {factor} times as long",
                factor=Number(1 / fit.sm_share, 1),
            ),
        ],
    )


def _fit(row: Mapping[str, Any]) -> MigFit | None:
    """By SM activity; by the time with any kernel, which is never less, where that was not measured."""
    busy_pct = row["util_pct"] if row["sm_pct"] is None else row["sm_pct"]
    flow_pct = row["dram_pct"]
    return first_fit(
        row["model"],
        sm_share=busy_pct / 100,
        need_bytes=max(row["need_bytes"], row["peak_bytes"]),
        bandwidth_share=None if flow_pct is None else flow_pct / 100,
    )


def _mig_fit_measured(group: pl.DataFrame, fit: MigFit) -> list[str]:
    if not group["sm_pct"].null_count():
        by_means = group.filter(pl.col("util_pct") > 100 * fit.sm_share)
        return [*sm_activity_measured(group), *sm_activity_of_means(by_means)]
    return [tr("SM activity was not measured; the time with any kernel stands in for it: try it, then measure")]


def fits(model: str) -> tuple[MigFit, ...]:
    """The profiles that are a part of the card, the smallest first: 1g is a seventh of the SMs and an eighth of the memory."""
    whole = card(model)
    if whole is None or not whole.mig_profiles:
        return ()
    most = max(each.memory_bytes for each in whole.mig_profiles)
    parts = [each for each in whole.mig_profiles if each.slices < whole.mig_slices]
    found = [MigFit(each, each.slices / whole.mig_slices, each.memory_bytes / most) for each in parts]
    return tuple(sorted(found, key=lambda fit: (fit.profile.slices, fit.profile.memory_bytes)))


def first_fit(model: str, *, sm_share: float, need_bytes: int, bandwidth_share: float | None) -> MigFit | None:
    """The smallest profile with these shares of SMs and bandwidth and this memory; None where only the whole card has them.

    A profile's memory and bandwidth come in the same eighths. Bandwidth that was not measured is not asked for.
    """
    for fit in fits(model):
        holds = fit.profile.memory_bytes >= need_bytes and fit.memory_share >= (bandwidth_share or 0.0)
        if holds and fit.sm_share >= sm_share:
            return fit
    return None


def split_command(host: str, gpus: Sequence[str], profile: str, *, certain: bool) -> str:
    """What makes one instance on each GPU. It refuses as long as MIG is off, so it is safe to type too soon.

    With `certain` false it only lists what could be made: the GPUs may be somebody else's by now.
    """
    if not certain:
        return on_host(host, "nvidia-smi", "mig", "-i", ",".join(gpus), "-lgip")
    return on_host(host, "sudo", "nvidia-smi", "mig", "-i", ",".join(gpus), "-cgi", profile, "-C")


def split_notes(host: str, gpus: Sequence[str], profile: str, jobs: Iterable[str | None]) -> list[str]:
    """What has to be done before, and how the work asks for an instance."""
    turn_on = on_host(host, "sudo", "nvidia-smi", "-i", ",".join(gpus), "-mig", "1")
    notes: list[str] = [tr("drain the GPU first and turn MIG on while nothing runs on it: {command}", command=turn_on)]
    kind = job_kind(jobs)
    if kind == "slurm":
        notes.append(
            tr(
                "submit it with #SBATCH --gres=gpu:{profile}:1; gres.conf has the site's name for the type",
                profile=profile,
            )
        )
    if kind == "pod":
        notes.append(
            tr("give the pod the resource nvidia.com/mig-{profile}: 1 instead of nvidia.com/gpu", profile=profile)
        )
    return notes

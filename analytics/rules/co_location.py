"""Workloads on GPUs of one host that might share a card.

Look-alikes that it leaves alone: the ranks of one job and GPUs that talk over NVLink (they need each other's card),
workloads that are busy in the same hours, memory that is reserved in advance.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.language.language import Sentence
from analytics.language.quantities import Bytes
from analytics.language.sentences import tr
from analytics.workloads.cards import job_kind
from analytics.workloads.commands import monitor_command
from analytics.workloads.evidence_labels import bounded, label
from analytics.workloads.finding_parts import finding_of
from analytics.workloads.ledger_rows import first_ms
from analytics.workloads.model import Context, Finding, HistoryNeed, Rule
from analytics.workloads.runs import NEED_THRESHOLDS, peak_histograms, run_hours, stretches_of
from analytics.workloads.window_end import still_going
from analytics.workloads.wording import of_gpus
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

_BEST_EFFORT = re.compile(r"best.?effort|preempt|scaveng|backfill|opportun|spot|idle|low|batch|free", re.IGNORECASE)
"""How sites name the priority classes that may be slowed or stopped."""

_INTERFERENCE = tr("NVML cannot see how workloads slow each other down: try it, and let the time per step decide")


MEMORY_MAX_SHARE = 0.9
BUSY_MAX_PCT = 80.0
BUSY_SHARE = 0.95
ALIGNED_MIN_HOURS = 24
GROUP_MAX = 3


@dataclass(frozen=True)
class Candidate:
    """One work on one GPU: hourly means of utilization on a common grid of hours (NaN: not there), and the time at each percent."""

    work: int
    gpu: str
    holder: str | None
    memory_bytes: int
    hourly_pct: NDArray[np.float64]
    histogram: NDArray[np.int64]


@dataclass(frozen=True)
class Group:
    """Works that might share a card: memory together, hours seen side by side, and what 95 % of the time stay within.

    `aligned_pct` is of the sums of hourly means, `bursts_pct` of the sum of the samples if they do not move together.
    """

    members: tuple[Candidate, ...]
    memory_bytes: int
    aligned_hours: int
    aligned_pct: float
    bursts_pct: float


def co_location_findings(context: Context) -> Iterator[Finding]:
    """Workloads that together leave room on one card: one finding per pair or triple, each GPU in at most one of them."""
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
    by_work = _candidates(context, several)
    for members in several.partition_by(("host", "model"), maintain_order=True):
        those = [by_work[work] for work in members["work"] if work in by_work]
        for group in groups(those, int(members["card_bytes"].bottom_k(1)[0])):
            yield _co_location_finding(context, members, group)


CO_LOCATION = Rule(
    name="co_location",
    category="right_size",
    sentence=of_gpus("with workloads that might share one card (try it first)"),
    per_host=True,
    history=HistoryNeed(ALIGNED_MIN_HOURS * HOUR_MS),
    thresholds={
        "memory": f"98th percentiles of the hourly peaks together at most {MEMORY_MAX_SHARE:.0%} of the card (facts: co-location)",
        "utilization": f"together at most {BUSY_MAX_PCT:g} % for 95 % of the hours seen side by side, and of the samples (facts: co-location)",
        "side by side": f"at least {ALIGNED_MIN_HOURS} whole hours (a day holds day and night)",
        "group": f"at most {GROUP_MAX} workloads of one GPU each, on one host and model",
        **PEAK_THRESHOLDS,
        "preallocated": NEED_THRESHOLDS["preallocated"],
        **WORK_THRESHOLDS,
    },
    labels=(
        label("mem_together_bytes", "memory needed together: {value}", Bytes),
        label("aligned_hours", "seen side by side for {value} h"),
        bounded(
            "gpu_util_together_p95_pct",
            "together at most {value} % for 95 % of the hours (the rule: {limit} %)",
            BUSY_MAX_PCT,
        ),
        bounded(
            "gpu_util_together_bursts_p95_pct",
            "together at most {value} % for 95 % of samples (the rule: {limit} %)",
            BUSY_MAX_PCT,
        ),
    ),
    find=co_location_findings,
)


def _co_location_finding(context: Context, members: pl.DataFrame, group: Group) -> Finding:
    own = members.filter(pl.col("work").is_in([each.work for each in group.members]))
    rows = stretches_of(context, runs_of(context, own))
    gpus = sorted(each.gpu for each in group.members)
    host, model = members["host"][0], members["model"][0]
    holders = sorted({each.holder for each in group.members if each.holder})
    rates = [context.costs.rate_of(gpu) for gpu in gpus]
    spared = sum(sorted(rate for rate in rates if rate is not None)[:-1])
    return finding_of(
        context,
        CO_LOCATION,
        rows,
        subject="|".join(gpus),
        numbers={
            "holder_source": "+".join(sorted(own["holder_source"].drop_nulls().unique())) or None,
            "works": len(group.members),
            "model": model,
            "mem_together_bytes": group.memory_bytes,
            "card_memory_bytes": own["card_bytes"].bottom_k(1)[0],
            "aligned_hours": group.aligned_hours,
            "gpu_util_together_p95_pct": group.aligned_pct,
            "gpu_util_together_bursts_p95_pct": group.bursts_pct,
            "saving": None if None in rates else spared * group.aligned_hours,
        },
        failed=[
            [tr("interference cannot be measured: try it, and compare the time per step")],
            _failed_holders(own),
            seen_long_enough(own),
            _failed_priority(context, own),
            [] if set(still_going(context, rows)) == set(gpus) else [tr("not all of them are still running")],
        ],
        next_command=monitor_command(host, gpus),
        holder="+".join(holders) or None,
        notes=[_INTERFERENCE, _how(own, gpus)],
    )


def _candidates(context: Context, found: pl.DataFrame) -> dict[int, Candidate]:
    """The works with their hours on one grid and their time at each percent; those without any whole hour are left out."""
    runs = runs_of(context, found)
    histograms = peak_histograms(context, runs)
    hours = run_hours(context).join(runs.select("run", "work"), on="run").drop_nulls("gpu_util_mean_pct")
    if hours.is_empty():
        return {}
    first = first_ms(hours)
    place = ((hours["time"] - first) // HOUR_MS).to_numpy()
    codes = {work: number for number, work in enumerate(found["work"])}
    levels = np.full((len(codes), int(place.max()) + 1), np.nan)
    levels[[codes[work] for work in hours["work"]], place] = hours["gpu_util_mean_pct"].to_numpy()
    run_of = dict(zip(runs["work"], runs["run"], strict=True))
    return {
        row["work"]: Candidate(
            row["work"],
            row["gpu"],
            row["holder"],
            row["q98_bytes"],
            levels[codes[row["work"]]],
            histograms[run_of[row["work"]]],
        )
        for row in found.iter_rows(named=True)
        if run_of[row["work"]] in histograms
    }


def _failed_holders(own: pl.DataFrame) -> list[str]:
    """Failure to be one person's: nothing shields the memory and the faults of one from the other on a shared card."""
    if own["holder"].null_count():
        return [tr("the user of one of them is not known")]
    if own["holder"].n_unique() > 1:
        return [
            tr("they belong to different users, and a shared card does not isolate one user's faults from another's")
        ]
    return []


def _failed_priority(context: Context, own: pl.DataFrame) -> list[str]:
    """Fails where none of them is known to be one that may be slowed down."""
    owners = [context.owners.of(holder, account) for holder, account in own.select("holder", "account").iter_rows()]
    classes = [owner.priority_class for owner in owners if owner is not None and owner.priority_class]
    if any(_BEST_EFFORT.search(name) for name in classes):
        return []
    return [tr("none of them is known to be best effort, and each may slow the other down")]


def _how(own: pl.DataFrame, gpus: list[str]) -> Sentence:
    kind = job_kind(own["job"])
    if kind == "slurm":
        return tr("to try it, submit them with --gres=shard:1 on a partition that shares GPUs, or as steps of one job")
    if kind == "pod":
        return tr("to try it, let the device plugin share that GPU (time slicing or MPS) and start them as pods on it")
    return tr("to try it, start the next of them with CUDA_VISIBLE_DEVICES={gpu}", gpu=gpus[0])


def groups(candidates: Sequence[Candidate], card_bytes: int) -> list[Group]:
    """Pairs and triples of candidates of one host and model, the largest first; each GPU is in one of them at most."""
    left = sorted(candidates, key=lambda each: (-each.memory_bytes, each.work))
    found: list[Group] = []
    while len(left) > 1:
        anchor = left.pop(0)
        group = _grown(anchor, left, card_bytes)
        if group is not None:
            found.append(group)
            taken = {each.gpu for each in group.members}
            left = [each for each in left if each.gpu not in taken]
    return found


def _grown(anchor: Candidate, left: Sequence[Candidate], card_bytes: int) -> Group | None:
    """The anchor with one partner or two, its own user's workloads first."""
    group: Group | None = None
    members: tuple[Candidate, ...] = (anchor,)
    for each in sorted(left, key=lambda other: (other.holder != anchor.holder, -other.memory_bytes, other.work)):
        if len(members) == GROUP_MAX:
            break
        if any(each.gpu == member.gpu for member in members):
            continue
        tried = together((*members, each), card_bytes)
        if tried is not None:
            group, members = tried, tried.members
    return group


def together(members: tuple[Candidate, ...], card_bytes: int) -> Group | None:
    """The group, if memory and both sums of utilization leave room and the works were seen side by side for a day."""
    memory = sum(each.memory_bytes for each in members)
    if memory > MEMORY_MAX_SHARE * card_bytes:
        return None
    sums = np.sum([each.hourly_pct for each in members], axis=0)
    aligned = np.sort(sums[~np.isnan(sums)])
    if len(aligned) < ALIGNED_MIN_HOURS:
        return None
    aligned_pct = float(aligned[max(int(np.ceil(BUSY_SHARE * len(aligned))) - 1, 0)])
    if aligned_pct > BUSY_MAX_PCT:
        return None
    bursts_pct = _independent_pct([each.histogram for each in members])
    if bursts_pct > BUSY_MAX_PCT:
        return None
    return Group(members, memory, len(aligned), aligned_pct, bursts_pct)


def _independent_pct(histograms: Sequence[NDArray[np.int64]]) -> float:
    """What the sum of independent values stays within for BUSY_SHARE of the time: the convolution of their shares of time.

    Percents in histograms of peaks are rounded up already.
    """
    shares = np.ones(1)
    for histogram in histograms:
        shares = np.convolve(shares, histogram / histogram.sum())
    return float(np.searchsorted(np.cumsum(shares), BUSY_SHARE - 1e-9))

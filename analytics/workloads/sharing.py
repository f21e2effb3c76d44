"""Workloads that might share a whole card: what each takes, and which leave room for one another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.language.sentences import tr
from analytics.money.owners import Owners
from analytics.workloads.ledger_rows import first_ms
from analytics.workloads.model import Context
from analytics.workloads.runs import peak_histograms, run_hours
from analytics.workloads.workloads import runs_of
from fallow.clock import HOUR_MS

_BEST_EFFORT = re.compile(r"best.?effort|preempt|scaveng|backfill|opportun|spot|idle|low|batch|free", re.IGNORECASE)
"""How sites name the priority classes that may be slowed or stopped."""

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


def candidates(context: Context, found: pl.DataFrame, number: str = "work") -> dict[int, Candidate]:
    """The works of `found` (work, gpu, holder, q98_bytes) by the column `number`, those of one number together, in its order.

    Those without any whole hour of utilization are left out.
    """
    numbered = found.select("work", number=pl.col(number))
    runs = runs_of(context, found).select("run", "work").join(numbered, on="work").sort("number", "run")
    histograms = peak_histograms(context, runs)
    hours = run_hours(context).join(runs, on="run").drop_nulls("gpu_util_mean_pct")
    if hours.is_empty():
        return {}
    first = first_ms(hours)
    place = ((hours["time"] - first) // HOUR_MS).to_numpy()
    codes = {each: code for code, each in enumerate(found[number].unique(maintain_order=True))}
    levels = np.full((len(codes), int(place.max()) + 1), np.nan)
    levels[[codes[each] for each in hours["number"]], place] = hours["gpu_util_mean_pct"].to_numpy()
    sums: dict[int, NDArray[np.int64]] = {}
    for run, each in runs.select("run", "number").iter_rows():
        if run in histograms:
            sums[each] = sums[each] + histograms[run] if each in sums else histograms[run]
    rows = found.group_by(number, maintain_order=True).agg(
        pl.col("gpu").first(), holders=pl.col("holder").unique(), memory=pl.col("q98_bytes").max()
    )
    return {
        each: Candidate(each, gpu, _only(holders), memory, levels[codes[each]], sums[each])
        for each, gpu, holders, memory in rows.iter_rows()
        if each in sums
    }


def _only(holders: list[str | None]) -> str | None:
    """The one user, by name; None where there are several or one is not known."""
    return holders[0] if len(holders) == 1 else None


def is_best_effort(owners: Owners, holder: str | None, account: str | None) -> bool:
    """Whether it is known of the user or the account that their work may be slowed or stopped."""
    owner = owners.of(holder, account)
    return bool(owner is not None and owner.priority_class and _BEST_EFFORT.search(owner.priority_class))


def holders_apart(own: pl.DataFrame) -> list[str]:
    """Failure to be one person's: nothing shields the memory and the faults of one from the other on a shared card."""
    if own["holder"].null_count():
        return [tr("the user of one of them is not known")]
    if own["holder"].n_unique() > 1:
        return [
            tr("they belong to different users, and a shared card does not isolate one user's faults from another's")
        ]
    return []


def groups(those: Sequence[Candidate], card_bytes: int) -> list[Group]:
    """Pairs and triples of candidates of one host and model, the largest first; each GPU is in one of them at most."""
    left = sorted(those, key=lambda each: (-each.memory_bytes, each.work))
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

"""How sure a finding is: conditions for high confidence, each failure in words that a holder can check."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from analytics.language.language import Sentence
from analytics.language.quantities import Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.ledger.sampled import confirmed_by_counter
from analytics.workloads.model import (
    HIGH_MIN,
    MEDIUM_MIN,
    Confidence,
    Context,
    Outlook,
    at_most_below,
    floored,
    gpus_of,
    once_per_context,
)
from analytics.workloads.persistence import HISTORY_MS, promise
from fallow.clock import DAY_MS, HOUR_MS, format_duration

COVERAGE_MIN = 0.90
UNCONFIRMED_MAX = 0.10
HISTORY_MIN_DAYS = 14
_HISTORY_SLACK_MS = HOUR_MS
"""A fleet of 14 days has no GPU that was first seen at the very first millisecond."""
HIDDEN_AT_MOST = 3
"""Rule of three: n zero samples bound the duty cycle at 3/n with 95 % (Hanley and Lippman-Hand, JAMA 1983, 249:1743)."""


JUDGED_MIN = 10
"""Under so many labelled findings a rule's record says little: with nine right ones of nine, the truth may be 77 % (Wilson, 90 %)."""


@dataclass(frozen=True)
class Condition:
    """One condition for high confidence: what it is called, what is wanted, and where that comes from."""

    name: str
    wanted: str
    source: str


def conditions() -> tuple[Condition, ...]:
    """Every condition, in the order in which failures are listed; a finding that fails none is of high confidence."""
    return (
        Condition(
            "coverage",
            f"at least {Share(COVERAGE_MIN, 0)} of the GPUs' time in the window was observed",
            "unknown time may hide work",
        ),
        Condition("history", f"at least {HISTORY_MIN_DAYS} days of history", "two whole weeks, weekends included"),
        Condition(
            "metric",
            "utilization was measured on these GPUs, and any other metric that a rule needs (SM activity, memory in use, "
            f"throttling counters) for at least {Share(COVERAGE_MIN, 0)} of the time that it judges",
            "what was not measured is unknown, not 0",
        ),
        Condition(
            "sampling",
            f"utilization was watched for at least {Share(COVERAGE_MIN, 0)} of the time; point samples fail unless the "
            "energy counter between them is that of an idle card, and the failure names the duty cycle that may hide behind n zeros: 3/n (95 %)",
            "rule of three: Hanley and Lippman-Hand, JAMA 1983, 249:1743",
        ),
        Condition(
            "confirmation",
            f"of idle time by point samples, energy or power confirm all but {Share(1 - COVERAGE_MIN, 0)}: the GPU drew "
            "what an idle one of its model draws",
            "a sample at 0 says that the GPU was idle at that moment and no more",
        ),
        Condition(
            "clock", "no host has rows from the future", "a clock that is ahead does not say how things stand now"
        ),
        Condition(
            "attribution", "the user is known by name, from processes or an allocation", "otherwise nobody can be asked"
        ),
        Condition(
            "persistence",
            f"the GPUs stay unused for another `findings.horizon` (7 d) with a probability of at least {Share(HIGH_MIN, 0)}; "
            f"below {Share(MEDIUM_MIN, 0)} the confidence is low",
            "idle intervals of the last "
            f"{format_duration(HISTORY_MS)}: the fleet's, the user's and the GPU's own; docs/calibration.md says what was kept",
        ),
        Condition(
            "alone", "the same processes, job or pod do no work on other GPUs", "ending them would end that work too"
        ),
        Condition(
            "record",
            "of the rule's findings of the same confidence that this site has labelled, at least "
            f"{Share(HIGH_MIN, 0)} (medium: {Share(MEDIUM_MIN, 0)}) were right. Judged from {JUDGED_MIN} labelled findings on",
            "`fallow evaluate --save`: what a site measured counts for more than what a rule claims",
        ),
    )


@dataclass(frozen=True)
class Observation:
    coverage: float | None  # observed share of their time inside the window
    history_ms: int  # first to last sample, up to the end of the window
    util_coverage: float | None  # share in which utilization was watched, where rows state it; None: point samples
    sample_count: int  # rows that do not state it
    point_ratio: float = 0.0  # share of the measured time of rows that do not state it
    measured: bool = True  # whether there is any utilization
    all_zero: bool = True  # whether those rows that do not state it are all at 0
    unconfirmed_ratio: float = 0.0  # share of the time in which it was idle by point samples that nothing confirms


def observe(context: Context, gpus: Sequence[str], stretches: pl.DataFrame) -> Observation:
    """How these GPUs were observed in the window, and on which samples these rows of theirs rest."""
    times = [_times(context)[gpu] for gpu in set(gpus) if gpu in _times(context)]
    total_ms, unknown_ms = (sum(each[at] for each in times) for at in (2, 3))
    history_ms = max(each[1] for each in times) - min(each[0] for each in times) if times else 0
    # arrays: a frame's own expressions take ten times as long, and a thousand findings are looked at
    time, end, util, zero, watched, samples = (stretches[name].to_numpy() for name in _WATCHED)
    span = end - time
    unconfirmed = np.zeros(len(span))
    if "unconfirmed_ms" in stretches.columns:
        unconfirmed = stretches["unconfirmed_ms"].to_numpy()
        # what the energy counter confirms, but for its last sample, counts as watched
        watched = np.where(stretches.select(confirmed_by_counter()).to_series().to_numpy(), 1.0, watched)
    measured, point = util > 0, (util > 0) & np.isnan(watched)
    measured_ms, point_ms = int(span[measured].sum()), int(span[point].sum())
    watched_ms = float((span * watched)[measured & ~point].sum())
    return Observation(
        coverage=(total_ms - unknown_ms) / total_ms if total_ms else None,
        history_ms=history_ms,
        util_coverage=watched_ms / (measured_ms - point_ms) if measured_ms > point_ms else None,
        sample_count=int(samples[point].sum()),
        point_ratio=point_ms / measured_ms if measured_ms else 0.0,
        measured=measured_ms > 0,
        all_zero=not bool((zero < util)[point].any()),
        unconfirmed_ratio=float(unconfirmed.sum()) / int(span.sum()) if span.sum() else 0.0,
    )


_WATCHED = ("time", "end", "util_ms", "zero_ms", "coverage_ratio", "sample_count")


@once_per_context
def _times(context: Context) -> dict[str, tuple[int, int, int, int]]:
    """Per GPU the first and the last moment of all that is known of it, and its time in the window: all, and unknown."""
    span = pl.col("end") - pl.col("time")
    unknown = span.filter(pl.col("state") == "unknown")
    seen = context.whole.lifetimes.group_by("gpu").agg(first=pl.col("first_seen").min(), last=pl.col("last_seen").max())
    inside = context.inside.stretches.group_by("gpu").agg(total_ms=span.sum(), unknown_ms=unknown.sum())
    rows = seen.join(inside, on="gpu", how="left").with_columns(pl.col("total_ms", "unknown_ms").fill_null(0))
    return {gpu: tuple(times) for gpu, *times in rows.iter_rows()}


def watched_enough(seen: Observation) -> list[str]:
    """Failures that any rule can have: coverage, history, and how utilization was measured."""
    failed = []
    if seen.coverage is None or seen.coverage < COVERAGE_MIN:
        failed.append(
            tr(
                "only {share} of the time was observed, {wanted} are needed",
                share=_below(seen.coverage),
                wanted=Share(COVERAGE_MIN, 0),
            )
        )
    if seen.history_ms + _HISTORY_SLACK_MS < HISTORY_MIN_DAYS * DAY_MS:
        failed.append(
            tr(
                "{days} days of history, {wanted} are needed",
                days=floored(seen.history_ms / DAY_MS),
                wanted=Number(HISTORY_MIN_DAYS),
            )
        )
    return [*failed, *_sampled_enough(seen), *_confirmed_enough(seen)]


def _confirmed_enough(seen: Observation) -> list[str]:
    if seen.unconfirmed_ratio <= UNCONFIRMED_MAX:
        return []
    return [
        tr(
            "{share} of its time is idle by point samples alone: neither energy nor power rules out work between them",
            share=Share(seen.unconfirmed_ratio),
        )
    ]


def _sampled_enough(seen: Observation) -> list[str]:
    if not seen.measured:
        return [tr("utilization was not measured")]
    if seen.util_coverage is None or 1 - seen.point_ratio < COVERAGE_MIN:
        bound = _sampling_bound(seen.sample_count, all_zero=seen.all_zero)
        if seen.util_coverage is None:
            return [tr("point samples only: {bound}", bound=bound)]
        share = Share(seen.point_ratio)
        return [tr("point samples for {share} of the time: {bound}", share=share, bound=bound)]
    if seen.util_coverage < COVERAGE_MIN:
        watched, wanted = _below(seen.util_coverage), Share(COVERAGE_MIN, 0)
        return [tr("utilization was watched {share} of the time, {wanted} are needed", share=watched, wanted=wanted)]
    return []


def _sampling_bound(number: int, *, all_zero: bool) -> Sentence:
    """What so many point samples leave open, with 95 %."""
    if all_zero:
        return tr_many(
            "a duty cycle of up to {bound} can hide behind {number} zero (95 %)",
            "a duty cycle of up to {bound} can hide behind {number} zeros (95 %)",
            number,
            bound=_at_least_shown(HIDDEN_AT_MOST / max(number, 1)),
        )
    # the widest normal interval of a share, 1.96 * sqrt(0.25 / n)
    return tr_many(
        "a share of time measured by {number} sample is off by up to {bound} (95 %)",
        "a share of time measured by {number} samples is off by up to {bound} (95 %)",
        number,
        bound=_at_least_shown(0.98 / math.sqrt(max(number, 1))),
    )


def _at_least_shown(bound: float) -> Share:
    """A bound with two decimals: 0.00 % would say that nothing hides."""
    return Share(min(1.0, max(bound, 0.0001)), 2)


def measured_enough(known_ms: float, total_ms: float, what: str) -> list[str]:
    """Fails where a metric that a rule needs beyond utilization, such as `SM activity`, was missing too often."""
    share = known_ms / total_ms if total_ms else None
    if share is not None and share >= COVERAGE_MIN:
        return []
    return [
        tr(
            "{what} was measured for {share} of the time, {wanted} are needed",
            what=what,
            share=_below(share),
            wanted=Share(COVERAGE_MIN, 0),
        )
    ]


def right_clocks(context: Context, stretches: pl.DataFrame) -> list[str]:
    """Fails where the clock of one of these rows' hosts is ahead."""
    ahead = sorted(context.ahead.intersection(stretches["host"].to_list())) if context.ahead else []
    hosts = ", ".join(ahead)
    return (
        [tr("the clock of {hosts} is ahead: its state at the end of the window is not known", hosts=hosts)]
        if ahead
        else []
    )


def known_holder(source: str | None, holder: str | None) -> list[str]:
    """Fails where the user's name is not known."""
    if source == "memory":
        return [tr("no process list: memory in use stands in for a user")]
    return [] if holder is not None else [tr("the user is not known")]


def watched_holders(*, unwatched: bool) -> list[str]:
    """Fails where no process could have been seen."""
    return [tr("no process list and no empty memory were read: somebody may be using it")] if unwatched else []


def good_record(grade: str, judged: int, right: int) -> list[str]:
    """Failures of a rule whose findings of that confidence were wrong too often where a site labelled them.

    One is enough to lower medium confidence, and high; two where high was not even worth medium.
    """
    wanted = {"high": HIGH_MIN, "medium": MEDIUM_MIN}.get(grade, 0.0)
    if judged < JUDGED_MIN or right >= wanted * judged:
        return []
    said = tr_many(
        "of {number} finding of this rule with {grade} confidence that was labelled here, {right} was right: {wanted} are needed",
        "of {number} findings of this rule with {grade} confidence that were labelled here, {right} were right: {wanted} are needed",
        judged,
        grade=tr(grade),
        right=Number(right),
        wanted=Share(wanted, 0),
    )
    if grade != "high" or right >= MEDIUM_MIN * judged:
        return [said]
    worse = tr(
        "{share} right is also less than the {wanted} that medium confidence needs",
        share=at_most_below(right / judged),
        wanted=Share(MEDIUM_MIN, 0),
    )
    return [said, worse]


def other_work(others: int) -> list[str]:
    """Fails where the same processes, pods or jobs also have GPUs that are not idle."""
    return [tr("the same processes are also at work on {gpus}", gpus=gpus_of(others))] if others else []


def _below(share: float | None) -> Sentence | Share:
    """The share, never rounded up to what it fell short of."""
    return tr("nothing") if share is None else at_most_below(share)


def grade(*failures: list[str], outlook: Outlook | None = None) -> Confidence:
    promised = [] if outlook is None else promise(outlook)
    return Confidence(tuple(failure for each in (*failures, promised) for failure in each), outlook)

"""The confidence of findings: conditions for high confidence, and each failed condition in words for the user."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from analytics.language.sentences import Number, Sentence, Share, tr, tr_many
from analytics.ledger.sampled import UNCONFIRMED_MAX, LikelyIdle
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
from analytics.workloads.row_sums import RowSums, numbered, row_sums
from fallow.clock import DAY_MS, HOUR_MS, WEEK_MS

COVERAGE_MIN = 0.90
HISTORY_MIN_DAYS = 14
_HISTORY_SLACK_MS = HOUR_MS
"""Margin of the first observation: in a fleet of 14 days no GPU has data from the very first millisecond."""
HIDDEN_AT_MOST = 3
"""Rule of three: n zero samples bound the duty cycle at 3/n with 95 % (Hanley & Lippman-Hand, JAMA 1983;249:1743)."""


JUDGED_MIN = 10
"""Least labelled findings of a rule's record: with nine correct of nine, the true rate may be 77 % (Wilson, 90 %)."""


CONDITIONS = (
    ("coverage", f"at least {Share(COVERAGE_MIN, 0)} of the GPUs' time in the window was observed",
     "unknown time may hide work"),
    ("history", f"at least {HISTORY_MIN_DAYS} days of history", "two whole weeks, weekends included"),
    ("metric",
     ("utilization was measured on these GPUs, and any other metric that the rule needs for at least "
      f"{Share(COVERAGE_MIN, 0)} of the time"),
     "what was not measured is unknown, not 0"),
    ("sampling",
     (f"utilization was watched for at least {Share(COVERAGE_MIN, 0)} of the time, or the energy counter between point "
      "samples is that of an idle card"),
     "n zeros may hide a duty cycle of 3/n (95 %): Hanley and Lippman-Hand, JAMA 1983, 249:1743"),
    ("confirmation",
     f"energy or power support all but {Share(UNCONFIRMED_MAX, 0)} of the idle time by point samples",
     "a sample at 0 says that the GPU was idle at that moment and no more"),
    ("clock", "no host has rows from the future", "a clock that is ahead does not say how things stand now"),
    ("attribution", "the user, or the account or namespace, is known by name, from processes or an allocation",
     "otherwise no user can be asked"),
    ("persistence",
     (f"the GPUs stay unused for another `findings.horizon` (7 d) with a probability of at least {Share(HIGH_MIN, 0)}; "
      f"below {Share(MEDIUM_MIN, 0)} the confidence is low"),
     f"idle intervals of the last {HISTORY_MS // WEEK_MS} weeks, recalibrated by what became of earlier weeks"),
    ("alone", "the same processes, job or pod do no work on other GPUs", "ending them would end that work too"),
    ("record",
     ("of the rule's findings of the same confidence that this site has labelled, at least "
      f"{Share(HIGH_MIN, 0)} (medium: {Share(MEDIUM_MIN, 0)}) were right. Judged from {JUDGED_MIN} labelled findings "
      "on"),
     "`fallow evaluate --save`: what a site measured counts for more than what a rule states"),
)  # fmt: skip
"""What high confidence needs, in the order of the listed failures: name, requirement and source."""


@dataclass(frozen=True)
class Observation:
    coverage: float | None  # observed share of their time inside the window
    history_ms: int  # first to last sample, up to the end of the window
    util_coverage: float | None  # share in which utilization was watched, where rows state it; None: point samples
    sample_count: int  # rows that do not state it
    point_ratio: float = 0.0  # share of the measured time of rows that do not state it
    measured: bool = True  # whether there is any utilization
    all_zero: bool = True  # whether those rows that do not state it are all at 0
    unconfirmed_ratio: float = 0.0  # share of the time in which it was idle by point samples that nothing supports
    likely_ratio: float = 0.0  # share of the time in which it was idle by point samples and flat power readings
    likely: LikelyIdle | None = None


def observe(context: Context, gpus: Sequence[str], segments: pl.DataFrame) -> Observation:
    """Return how these GPUs were observed in the window, and the samples behind these rows."""
    sums = row_sums(numbered([segments]))
    return observation(context, gpus, sums[0] if sums else None)


def observation(context: Context, gpus: Sequence[str], rows: RowSums | None) -> Observation:
    """Return the same from the sums of the rows, None without any row."""
    known = _times(context)
    times = [known[gpu] for gpu in set(gpus) if gpu in known]
    total_ms, unknown_ms = (sum(each[at] for each in times) for at in (2, 3))
    coverage = (total_ms - unknown_ms) / total_ms if total_ms else None
    history_ms = max(each[1] for each in times) - min(each[0] for each in times) if times else 0
    if rows is None:
        return Observation(coverage, history_ms, None, 0, measured=False)
    rest_ms = rows.measured_ms - rows.point_ms
    return Observation(
        coverage=coverage,
        history_ms=history_ms,
        util_coverage=rows.watched_ms / rest_ms if rest_ms else None,
        sample_count=rows.point_count,
        point_ratio=rows.point_ms / rows.measured_ms if rows.measured_ms else 0.0,
        measured=rows.measured_ms > 0,
        all_zero=rows.all_zero,
        unconfirmed_ratio=rows.unconfirmed_ms / rows.span_ms if rows.span_ms else 0.0,
        likely_ratio=rows.likely.time_ms / rows.span_ms if rows.likely else 0.0,
        likely=rows.likely,
    )


@once_per_context
def _times(context: Context) -> dict[str, tuple[int, int, int, int]]:
    """Return per GPU the first and the last known moment, and its time in the window: all, and unknown."""
    span = pl.col("end") - pl.col("time")
    unknown = span.filter(pl.col("state") == "unknown")
    seen = context.whole.lifetimes.group_by("gpu").agg(first=pl.col("first_seen").min(), last=pl.col("last_seen").max())
    inside = context.inside.segments.group_by("gpu").agg(total_ms=span.sum(), unknown_ms=unknown.sum())
    rows = seen.join(inside, on="gpu", how="left").with_columns(pl.col("total_ms", "unknown_ms").fill_null(0))
    return {gpu: tuple(times) for gpu, *times in rows.iter_rows()}


def watched_enough(seen: Observation) -> list[str]:
    """Return failures that any rule can have: coverage, history, and how utilization was measured."""
    failed: list[str] = []
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
    failed += _sampled_enough(seen)
    if seen.unconfirmed_ratio > UNCONFIRMED_MAX:
        failed.append(
            tr(
                "only point samples show {share} of the time as idle; neither energy nor power rules out work between"
                " them",
                share=Share(seen.unconfirmed_ratio),
            )
        )
    return failed


def _sampled_enough(seen: Observation) -> list[str]:
    if not seen.measured:
        return [tr("utilization was not measured")]
    if seen.likely is not None and seen.likely_ratio >= COVERAGE_MIN:
        return [likely_idle(seen.likely)]
    if seen.util_coverage is None or 1 - seen.point_ratio < COVERAGE_MIN:
        bound = _sampling_bound(seen.sample_count, all_zero=seen.all_zero)
        if seen.util_coverage is None:
            return [tr("point samples only: {bound}", bound=bound)]
        share = Share(seen.point_ratio)
        return [tr("point samples for {share} of the time: {bound}", share=share, bound=bound)]
    if seen.util_coverage < COVERAGE_MIN:
        watched, wanted = _below(seen.util_coverage), Share(COVERAGE_MIN, 0)
        return [
            tr("utilization was observed for {share} of the time, {wanted} are needed", share=watched, wanted=wanted)
        ]
    return []


def likely_idle(found: LikelyIdle) -> Sentence:
    """Return the readings for time that power alone supports, and what would confirm it."""
    low, high = Number(found.low_w), Number(found.high_w)
    power = tr("{watts} W", watts=low) if str(low) == str(high) else tr("{low} to {high} W", low=low, high=high)
    return tr(
        "{number} of {number} samples at 0 and flat power of {power}: very likely idle; the energy counter or fallow's"
        " agent can confirm it",
        number=Number(found.count),
        power=power,
    )


def _sampling_bound(number: int, *, all_zero: bool) -> Sentence:
    """Return the uncertainty of this many point samples, with 95 %."""
    if all_zero:
        return tr_many(
            "{number} {sample|samples} at 0 can hide activity of up to {bound} of the time (95 %)",
            number,
            bound=_at_least_shown(HIDDEN_AT_MOST / max(number, 1)),
        )
    # the widest normal interval of a share, 1.96 * sqrt(0.25 / n)
    return tr_many(
        "a share measured with {number} {sample|samples} has an error of up to {bound} (95 %)",
        number,
        bound=_at_least_shown(0.98 / math.sqrt(max(number, 1))),
    )


def _at_least_shown(bound: float) -> Share:
    """Return a bound with two decimals, at least 0.01 %: 0.00 % would exclude hidden activity."""
    return Share(min(1.0, max(bound, 0.0001)), 2)


def measured_enough(known_ms: float, total_ms: float, what: str) -> list[str]:
    """Return a failure if a metric that a rule also needs, such as `SM activity`, was missing too often."""
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


def right_clocks(context: Context, hosts: Iterable[str]) -> list[str]:
    """Return a failure if the clock of one of these hosts is ahead."""
    named = ", ".join(sorted(context.ahead.intersection(hosts))) if context.ahead else ""
    sentence = tr("the clock of {hosts} is ahead, so its state at the end of the window is not known", hosts=named)
    return [sentence] if named else []


def known_user(source: str | None, name: str | None) -> list[str]:
    """Return a failure if no name of a user is known."""
    if source == "memory":
        return [tr("no process list was read; memory in use counts as a user")]
    return [] if name is not None else [tr("the user is not known")]


def watched_users(*, unwatched: bool) -> list[str]:
    """Return a failure if no process could have been observed."""
    return (
        [tr("without a process list and without a reading of empty memory, the GPU may be in use")] if unwatched else []
    )


def good_record(grade: str, judged: int, right: int) -> list[str]:
    """Return failures of a rule whose findings of this confidence were wrong too often at a labelled site.

    One failure lowers high and medium confidence. Two failures lower a high confidence that was not even worth medium.
    """
    wanted = {"high": HIGH_MIN, "medium": MEDIUM_MIN}.get(grade, 0.0)
    if judged < JUDGED_MIN or right >= wanted * judged:
        return []
    sentence = tr_many(
        "of {number} {finding|findings} of this rule with {grade} confidence that {was|were} labelled here, {right}"
        " {was|were} right: {wanted} are needed",
        judged,
        grade=tr(grade),
        right=Number(right),
        wanted=Share(wanted, 0),
    )
    if grade != "high" or right >= MEDIUM_MIN * judged:
        return [sentence]
    worse = tr(
        "{share} right is also less than the {wanted} that medium confidence needs",
        share=at_most_below(right / judged),
        wanted=Share(MEDIUM_MIN, 0),
    )
    return [sentence, worse]


def other_work(others: int) -> list[str]:
    """Return a failure if the same processes, pods or jobs also have GPUs that are not idle."""
    return [tr("the same processes also have kernels on {gpus}", gpus=gpus_of(others))] if others else []


def _below(share: float | None) -> Sentence | Share:
    """Return the share, never rounded up to the limit that it missed."""
    return tr("nothing") if share is None else at_most_below(share)


def grade(*failures: list[str], outlook: Outlook | None = None) -> Confidence:
    promised = [] if outlook is None else promise(outlook)
    return Confidence(tuple(failure for each in (*failures, promised) for failure in each), outlook)

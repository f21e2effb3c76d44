"""How sure a finding is: conditions for high confidence, each failure in words that a holder can check."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from analytics.findings.model import Confidence
from analytics.ledger.text import count, percent
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, format_duration

if TYPE_CHECKING:
    from analytics.findings.model import Context

COVERAGE_MIN = 0.90
HISTORY_MIN_DAYS = 14
_HISTORY_SLACK_MS = HOUR_MS
"""A fleet of 14 days has no GPU that was first seen at the very first millisecond."""
SPELL_MIN_MS = 120 * MINUTE_MS
"""On a real serving trace 70 % of spells that have lasted 120 min last another hour, 42 % of those of 60 min."""


@dataclass(frozen=True)
class Observation:
    """What is known of how some GPUs were watched."""

    coverage: float | None  # observed share of their time inside the window
    history_ms: int  # first to last sample, up to the end of the window
    util_coverage: float | None  # share of the stretches in which utilization was watched; None: point samples
    sample_count: int


def observe(context: Context, gpus: tuple[str, ...], stretches: pl.DataFrame) -> Observation:
    """How these GPUs were watched in the window, and how the given stretches of theirs rest on samples."""
    own = context.inside.stretches.filter(pl.col("gpu").is_in(gpus))
    span = pl.col("end") - pl.col("time")
    total_ms = int(own.select(span.sum()).item())
    unknown_ms = int(own.filter(pl.col("state") == "unknown").select(span.sum()).item())
    whole = context.whole.stretches.filter(pl.col("gpu").is_in(gpus))
    history_ms = whole.select(pl.col("end").max() - pl.col("time").min()).item()
    watched = stretches.filter(pl.col("coverage_ratio").is_not_null())
    weight = float(watched.select(span.sum()).item())
    util_coverage = float(watched.select((span * pl.col("coverage_ratio")).sum()).item()) / weight if weight else None
    return Observation(
        coverage=(total_ms - unknown_ms) / total_ms if total_ms else None,
        history_ms=int(history_ms),
        util_coverage=util_coverage,
        sample_count=int(stretches["sample_count"].sum()),
    )


def watched_enough(seen: Observation) -> list[str]:
    """Failures that any rule can have: coverage, history and gap-free utilization."""
    failed = []
    if seen.coverage is None or seen.coverage < COVERAGE_MIN:
        failed.append(f"only {_below(seen.coverage)} of the time was observed, {percent(COVERAGE_MIN, 0)} are wanted")
    if seen.history_ms + _HISTORY_SLACK_MS < HISTORY_MIN_DAYS * DAY_MS:
        failed.append(f"{_floor(seen.history_ms / DAY_MS)} days of history, {HISTORY_MIN_DAYS} are wanted")
    if seen.util_coverage is None:
        # rule of three: n zero samples bound the duty cycle at 3/n with 95 % confidence
        bound = percent(min(1.0, 3 / max(seen.sample_count, 1)), 2)
        failed.append(
            f"point samples only: a duty cycle of up to {bound} can hide behind {count(seen.sample_count, 'zero')} (95 %)"
        )
    elif seen.util_coverage < COVERAGE_MIN:
        failed.append(
            f"utilization was watched {_below(seen.util_coverage)} of the time, {percent(COVERAGE_MIN, 0)} are wanted"
        )
    return failed


def known_holder(source: str | None, holder: str | None) -> list[str]:
    """Failure to say who it is."""
    if source == "memory":
        return ["no process list: memory in use stands for a holder"]
    return [] if holder is not None else ["the holder is not known"]


def watched_holders(*, unwatched: bool) -> list[str]:
    """Failure to know that nobody held it."""
    return ["neither processes nor memory were read: somebody may hold it"] if unwatched else []


def lasting(longest_ms: int, so_far_ms: int | None) -> list[str]:
    """Failure to have lasted: the spell that still runs, where one does, else the longest that there was."""
    judged_ms = longest_ms if so_far_ms is None else so_far_ms
    if judged_ms >= SPELL_MIN_MS:
        return []
    shown = format_duration(judged_ms - judged_ms % MINUTE_MS)
    which = "longest idle spell is" if so_far_ms is None else "idle spell so far is"
    return [f"the {which} {shown}, {format_duration(SPELL_MIN_MS)} are wanted"]


def alone(others: int) -> list[str]:
    """Failure to be free to end: the same process, pod or job also has GPUs that are not idle."""
    return [f"the same processes also hold {count(others, 'GPU')} with work on them"] if others else []


def _below(share: float | None) -> str:
    """The share, never rounded up to what it fell short of."""
    return "nothing" if share is None else f"{_floor(100 * share)} %"


def _floor(value: float) -> str:
    return f"{math.floor(10 * value) / 10:.1f}"


def grade(*failures: list[str]) -> Confidence:
    """The confidence that these failures leave."""
    return Confidence(tuple(failure for each in failures for failure in each))

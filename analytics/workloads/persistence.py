"""The probability that an idle GPU stays unused for a day and for `findings.horizon`, which findings state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from analytics.language.sentences import Share, Span, tr
from analytics.workloads.idle_intervals import idle_intervals
from analytics.workloads.lifetables import Lifetables
from analytics.workloads.model import HIGH_MIN, MEDIUM_MIN, Context, Outlook, at_most_below
from fallow.clock import DAY_MS, WEEK_MS

HISTORY_MS = 52 * WEEK_MS
"""How far back idle intervals count."""


@dataclass(frozen=True)
class Stays:
    """An idle GPU: its idle time, its user, and the probability that it stays unused for DAY_MS and for the horizon.

    For a held GPU only its own user's use counts, for others any use. `day` is never less than `horizon`.
    """

    age_ms: int
    user: str | None
    day: float
    horizon: float


def stays(context: Context) -> Mapping[str, Stays]:
    """Return the probability of each GPU that is idle at the window's end; others are in use or not observed.

    Windows with the same end share it: it follows from the year before that end, wherever a window begins.
    """
    until_ms, horizon_ms = context.until_ms, context.settings.horizon_ms

    def make() -> Mapping[str, Stays]:
        rows = context.whole.states(until_ms - HISTORY_MS)
        return promised(known_intervals(rows, context.inventory.pool, until_ms), until_ms, horizon_ms)

    return context.whole.once(("stays", until_ms, horizon_ms), make)


def promised(intervals: pl.DataFrame, until_ms: int, horizon_ms: int) -> Mapping[str, Stays]:
    """Return the same for the idle intervals known at a moment."""
    tables = Lifetables(intervals)
    asked = tables.newest(until_ms)
    late = tables.promised(asked, horizon_ms)
    soon = late if horizon_ms <= DAY_MS else np.maximum(tables.promised(asked, DAY_MS), late)
    rows = intervals[asked.places].select("gpu", "kind", "user").iter_rows()
    return {
        gpu: Stays(int(age_ms), user if kind == "held" else None, float(day), float(horizon))
        for (gpu, kind, user), age_ms, day, horizon in zip(rows, asked.age_ms, soon, late, strict=True)
    }


def known_intervals(rows: pl.DataFrame, pool_of: Callable[[str], str], until_ms: int) -> pl.DataFrame:
    """Return the `idle_intervals` of ledger rows as known at a moment, names as categories, with each GPU's `pool`."""
    known = rows.filter(pl.col("time") < until_ms).with_columns(pl.col("end").clip(upper_bound=until_ms))
    known = known.cast({pl.String: pl.Categorical})  # a year of strings takes four times the time and memory
    pools = {gpu: pool_of(gpu) for gpu in known["gpu"].unique()}
    pool = pl.col("gpu").replace_strict(pools, default="", return_dtype=pl.String)
    return idle_intervals(known).with_columns(pool=pool)


def outlook(context: Context, gpus: Iterable[str]) -> Outlook:
    """Return the lowest probability of these GPUs; empty if one of them is in use or not observed.

    For a held GPU it is the probability that its user does not use it, for others that no one does.
    """
    horizon_ms, known = context.settings.horizon_ms, stays(context)
    found = [known.get(gpu) for gpu in gpus]
    promised = [each for each in found if each is not None]
    if len(promised) < len(found) or not promised:
        return Outlook(None, None, horizon_ms)
    worst = min(promised, key=lambda each: (each.horizon, each.age_ms))
    return Outlook(worst.horizon, worst.age_ms, horizon_ms, min(each.day for each in promised))


def promise(found: Outlook) -> list[str]:
    """Return failed conditions if the probability is too low for high confidence."""
    if found.probability is None or found.age_ms is None:
        return [tr("whether the GPU stays unused is not known: at the end of the window it was in use or not observed")]
    if found.probability >= HIGH_MIN:
        return []
    if found.is_doubtful:
        return [
            tr(
                "the probability of staying unused for another {horizon} is {share}: below {wanted}, ask first",
                horizon=Span(found.horizon_ms),
                share=at_most_below(found.probability),
                wanted=Share(MEDIUM_MIN, 0),
            )
        ]
    return [
        tr(
            "the probability of staying unused for another {horizon} is {share}, high confidence needs {wanted}",
            horizon=Span(found.horizon_ms),
            share=at_most_below(found.probability),
            wanted=Share(HIGH_MIN, 0),
        )
    ]

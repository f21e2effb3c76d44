"""How often a source was scraped and read the driver, and which scrapes only repeat the reading of the one before.

An exporter such as dcgm-exporter reads once in its collect interval, and its page repeats that reading until the next
one. Two scrapes of one reading are one reading: the row of the first covers both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from analytics.mapping.model import Exporter
from analytics.scraped.rows.model import Pace
from fallow.clock import DAY_MS, MINUTE_MS, SECOND_MS

DEFAULT_SCRAPE_MS = MINUTE_MS
"""Scrape interval of a server whose configuration names none (Prometheus, scrape_interval)."""

_NEAR = 0.05
"""A loop of 30 s drifts to 30.02 s: the whole second is meant."""

_WHOLE = 0.9
"""Share of a row above which an average covers all of it: a scrape is early or late by some percent."""

_ENOUGH_RUNS = 20
_FRESH, _SLOWER = 1.2, 1.4
"""In steps between scrapes: readings shown for less come with every scrape, those shown for longer do not."""

_SOON = 0.1
"""Share of the readings that the next scrape replaces: a slow exporter has few, because of scrapes that come early."""


@dataclass(frozen=True)
class Paces:
    """The pace of each source by its code, combined with the assumptions about the exporter."""

    by_source: Mapping[int, Pace]
    assumed_ms: int | None

    def reading_ms(self, source: int) -> int:
        """Return the distance between readings: the interval of the rows."""
        pace = self.by_source[source]
        collect_ms = 0 if pace.fresh else pace.collect_ms or self.assumed_ms or 0
        return max(pace.scrape_ms, collect_ms)

    def average_coverage(self, source: int) -> float | None:
        """Return the share of its row that an average over the exporter's collect interval covers, or None.

        None if it is unknown or not all: an average of half a row at 0 shows as little of the other half as a reading
        does. Without a coverage it is a point sample.
        """
        pace = self.by_source[source]
        if pace.collect_ms is None or self.is_refuted(source):
            return None
        ratio = min(1.0, pace.collect_ms / self.reading_ms(source))
        return ratio if ratio >= _WHOLE else None

    def is_refuted(self, source: int) -> bool:
        """Return whether the values show that the exporter reads more often than was stated."""
        pace = self.by_source[source]
        return pace.fresh and pace.collect_ms is not None and pace.collect_ms > _FRESH * pace.scrape_ms


def assumed_collect_ms(exporter: Exporter) -> int | None:
    """Return how often the exporter reads by default; None for an exporter that reads when it is scraped."""
    means = [metric.covers_s for metric in exporter.metrics if metric.kind == "average" and metric.covers_s]
    known = [covers_s for covers_s in means if math.isfinite(covers_s)]
    return round(max(known) * SECOND_MS) if known else None


def scrapes_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the scrapes of each source in order: source, time_ms, changed, step_ms; `rows` are by unit and time.

    `changed`: whether a row of the scrape changed. `step_ms`: the time since the unit's row before, null for its first.
    """
    seen_rows = rows.filter(~pl.col("ended")).with_columns(
        step_ms=pl.when(pl.col("unit") == pl.col("unit").shift(1)).then(pl.col("time_ms").diff())
    )
    return (
        seen_rows.group_by("source", "time_ms")
        .agg(pl.col("changed").any(), pl.col("step_ms").min())
        .sort("source", "time_ms")
    )


def find_paces(
    scrapes: pl.DataFrame, exporter: Exporter, known: Mapping[int, Pace], collect_ms: int | None = None
) -> Paces:
    """Return the paces of the sources of some scrapes: the known ones, else by steps and changes of values.

    `collect_ms` is how often the exporter reads, where a setting states it.
    """
    assumed_ms = assumed_collect_ms(exporter)
    steps = _steps(scrapes)
    usual = round(float(np.median([*steps.values()]))) if steps else DEFAULT_SCRAPE_MS
    shown = _shown_times(scrapes, steps) if assumed_ms or collect_ms else {}
    found = {}
    for code in scrapes["source"].unique():
        scrape_ms = steps.get(code, usual)
        slower_ms, fresh = shown.get(code, (None, False))
        found[code] = known.get(code) or Pace(scrape_ms, collect_ms or slower_ms, fresh)
    return Paces(found, assumed_ms)


def snapped(ms: float) -> int:
    """Return the nearest whole second if it is close enough, else the millisecond."""
    seconds = max(round(ms / SECOND_MS), 1) * SECOND_MS
    return min(seconds if abs(ms - seconds) <= _NEAR * seconds else max(round(ms), 1), DAY_MS)


def _steps(scrapes: pl.DataFrame) -> dict[int, int]:
    """Return each source's usual step between scrapes, if it has two; the shorter of two, as the other is a gap."""
    usual = scrapes.group_by("source").agg(pl.col("step_ms").quantile(0.5, "lower")).drop_nulls()
    return {code: snapped(ms) for code, ms in usual.iter_rows()}


def _shown_times(scrapes: pl.DataFrame, steps: Mapping[int, int]) -> dict[int, tuple[int | None, bool]]:
    """Return how long each source showed a reading, if longer than a scrape, and whether every scrape shows a new one.

    A slow exporter shows all readings for equally long, give or take a scrape. Where values stay equal by themselves,
    as for cards at rest, some are shown for much longer than others; if two adjacent scrapes still show new values, the
    exporter is not slow.
    """
    step = pl.col("source").replace_strict(steps, default=DEFAULT_SCRAPE_MS, return_dtype=pl.Int64)
    shown = pl.col("time_ms").diff().over("source")
    low, high = (pl.col("shown").quantile(part) for part in (0.05, 0.97))
    steady = high - low <= 1.5 * pl.col("step").first()
    mean = pl.col("shown").filter(pl.col("shown").is_between(low, high)).mean() / pl.col("step").first()
    soon = (pl.col("shown") <= _FRESH * pl.col("step")).mean()
    runs = scrapes.filter("changed").with_columns(shown=shown, step=step).drop_nulls(["shown", "step"])
    seen_rows = (
        runs.group_by("source")
        .agg(
            slower=pl.when(steady & (mean > _SLOWER)).then(mean * pl.col("step").first()),
            fresh=pl.when(steady).then(mean < _FRESH).otherwise(soon >= _SOON),
            number=pl.len(),
        )
        .filter(pl.col("number") >= _ENOUGH_RUNS)
    )
    return {code: (None if ms is None else snapped(ms), fresh) for code, ms, fresh, _ in seen_rows.iter_rows()}


def new_readings(scrapes: pl.DataFrame, found: Paces) -> pl.DataFrame:
    """Return the scrapes (source, time_ms) that show another reading than the one kept before.

    Of values that stay equal, one scrape counts in each slot of the clock of the exporter's interval. Readers that
    start at another moment, with some intervals before it, therefore keep the same scrapes.
    """
    codes = scrapes["source"].unique()
    pace = pl.DataFrame(
        {
            "source": codes,
            "reading_ms": [found.reading_ms(code) for code in codes],
            "scrape_ms": [found.by_source[code].scrape_ms for code in codes],
        },
        schema_overrides={"source": scrapes["source"].dtype},
    )
    changed_ms = pl.when("changed").then("time_ms").forward_fill().over("source")
    slot = pl.col("time_ms") // pl.col("reading_ms")
    # a scrape that comes a little early belongs to the reading that was due
    due = pl.col("time_ms") - changed_ms >= pl.col("reading_ms") - pl.col("scrape_ms") // 4
    again = due & (slot != slot.shift(1).over("source"))
    runs = scrapes.join(pace, on="source", maintain_order="left")
    return runs.filter(pl.col("changed") | again).select("source", "time_ms")

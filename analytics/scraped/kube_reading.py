"""Samples of kube-state-metrics and Kueue in a window, thinned: states of objects seldom change, and their times are values."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.scraped.reading import joined
from analytics.scraped.samples import Samples
from analytics.scraped.selector import SeriesSelection
from analytics.scraped.server.metrics_server import MetricsServer
from analytics.scraped.who.kube_metrics import KUBE_METRICS, kube_selectors
from fallow.clock import HOUR_MS, MINUTE_MS

_LOOK_MS = 2 * MINUTE_MS
"""Long enough for a sample of every series."""

_STEP_MS = 5 * MINUTE_MS
_MOST = 2_000_000
"""Samples of a window that are kept: where they would be more, steps are longer, and only a look is taken in each."""


def kube_samples(server: MetricsServer, match: str, since_ms: int, until_ms: int) -> Samples | None:
    """What allocations are made of; None where the server has none of these series. Raises InputError."""
    if not server.names(SeriesSelection(frozenset(KUBE_METRICS), match=match).text, since_ms, until_ms):
        return None
    selectors = kube_selectors(match)
    series = 0
    if until_ms - since_ms > HOUR_MS:
        newest = (server.samples(each, until_ms - _LOOK_MS, until_ms) for each in selectors)
        series = sum(len(joined(pieces).labels) for pieces in newest)
    step_ms = max(_STEP_MS, (until_ms - since_ms) * series // _MOST)
    looks = [(since_ms, until_ms)] if step_ms == _STEP_MS else list(_looks(since_ms, until_ms, step_ms))
    return joined(
        _thinned(piece, step_ms) for each in selectors for look in looks for piece in server.samples(each, *look)
    )


def _looks(since_ms: int, until_ms: int, step_ms: int) -> Iterator[tuple[int, int]]:
    """The last one ends with the window, for what runs then."""
    for end_ms in range(until_ms, since_ms, -step_ms):
        yield max(since_ms, end_ms - _LOOK_MS), end_ms


def _thinned(samples: Samples, step_ms: int) -> Samples:
    """The last sample of each series in each step; that a series ended says nothing which its last sample does not."""
    frame = samples.frame.drop_nulls("value").with_columns(_step=pl.col("time_ms") // step_ms)
    return Samples(samples.labels, frame.unique(["series", "_step"], keep="last", maintain_order=True).drop("_step"))

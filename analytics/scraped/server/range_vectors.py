"""Raw samples by the instant API: a range vector, which every server of this family evaluates alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from analytics.scraped.samples import Samples
from analytics.scraped.server.api_answers import api_data
from analytics.scraped.server.connection import ServerConnection
from analytics.scraped.server.labelled import STALE_BITS, Stretch, checked_labels, samples_of
from analytics.scraped.server.refusals import no_metrics_server

RAW = {"dedup": "true", "partial_response": "false", "max_source_resolution": "0s", "deny_partial_response": "1"}
"""Thanos: one replica's samples, all stores or an error, and no down-sampled blocks; the last for VictoriaMetrics. Others ignore them."""


class RangeVectors:
    """`SELECTOR[length]` at a moment.

    The range leaves out its beginning from Prometheus 3 on and holds it before; so it begins a millisecond early, and
    what is not of the window is left out here. Prometheus takes staleness markers out of range vectors: where a series ended
    shows as a gap alone. VictoriaMetrics leaves them in, as NaN, of which it keeps no other (`nan_is_stale`).
    """

    way = "range vectors"

    def __init__(
        self, connection: ServerConnection, tell: Callable[[str], None], *, nan_is_stale: bool = False
    ) -> None:
        self._connection, self._tell, self._nan_is_stale = connection, tell, nan_is_stale

    def fetch(self, selector: str, since_ms: int, until_ms: int) -> bytes:
        query = f"{selector}[{until_ms - since_ms}ms]"
        fields = {"query": query, "time": seconds(until_ms - 1), **RAW}
        return self._connection.ask("/api/v1/query", fields).body

    def parse(self, body: bytes, since_ms: int, until_ms: int) -> Samples:
        data = api_data(body, self._connection.address, self._tell)
        try:
            return samples_of(self._stretches(data["result"]), since_ms, until_ms)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise no_metrics_server(self._connection.address) from error

    def _stretches(self, result: list[dict[str, Any]]) -> Iterator[Stretch]:
        most = self._connection.limits.most_labels
        for series in result:
            if pairs := series.get("values"):  # a series of histograms has none
                moments, texts = zip(*pairs, strict=True)
                times = np.rint(np.array(moments, dtype=np.float64) * 1000).astype(np.int64)
                values = np.fromiter(map(float, texts), np.float64, len(texts))
                if self._nan_is_stale:
                    values.view(np.int64)[np.isnan(values)] = STALE_BITS
                yield checked_labels(series["metric"], most), times, values


def seconds(moment_ms: int) -> str:
    """As these servers take times."""
    return f"{moment_ms // 1000}.{moment_ms % 1000:03d}"

"""Raw samples by VictoriaMetrics' export: a JSON line for each series, or for a part of one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import orjson

from analytics.scraped.samples import Samples
from analytics.scraped.server.api_answers import json_content
from analytics.scraped.server.connection import FORM, ServerConnection
from analytics.scraped.server.labelled import STALE_BITS, Stretch, checked_labels, samples_of
from analytics.scraped.server.range_vectors import RAW, seconds
from analytics.scraped.server.refusals import endless_answer, unreadable_answer
from fallow.errors import InputError

_NOT_JSON = {b"+Inf": b'"inf"', b"-Inf": b'"-inf"', b"NaN": b"null"}


class ExportLines:
    """`/api/v1/export`. A null in it is a staleness marker: VictoriaMetrics keeps those, and no NaN of an exporter.

    What the server deduplicates (-dedup.minScrapeInterval), it deduplicates here too.
    """

    way = "VictoriaMetrics export"

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    def is_offered(self) -> bool:
        """Asks for series that nobody has."""
        fields = b"match[]=fallow_asks_whether_this_is_offered&start=1&end=2"
        with suppress(InputError):
            answer = self._connection.post("/api/v1/export", fields, FORM)
            return answer.status == 200 and not answer.body and answer.has_end
        return False

    def fetch(self, selector: str, since_ms: int, until_ms: int) -> bytes:
        window = {"start": seconds(since_ms), "end": seconds(until_ms - 1)}
        answer = self._connection.ask("/api/v1/export", {"match[]": selector, **window, **RAW})
        if not answer.has_end:  # it may end between two lines
            raise endless_answer(self._connection.address)
        return answer.body

    def parse(self, body: bytes, since_ms: int, until_ms: int) -> Samples:
        return samples_of(self._stretches(body), since_ms, until_ms)

    def _stretches(self, body: bytes) -> Iterator[Stretch]:
        most = self._connection.limits.most_labels
        for line in filter(None, body.split(b"\n")):
            try:
                content = _content(line)
                times = np.array(content["timestamps"], dtype=np.int64)
                values = np.array(content["values"], dtype=np.float64)
                labels = checked_labels(content["metric"], most)
            except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
                raise unreadable_answer(self._connection.address) from error
            if times.size != values.size:
                raise unreadable_answer(self._connection.address)
            values.view(np.int64)[np.isnan(values)] = STALE_BITS
            yield labels, times, values


def _content(line: bytes) -> Any:
    """Older versions write infinities as +Inf, and a staleness marker that is a line's first value as NaN, which is not JSON."""
    try:
        return json_content(line)
    except orjson.JSONDecodeError:
        head, mark, values = line.partition(b'"values":[')
        for written, meant in _NOT_JSON.items():
            values = values.replace(written, meant)
        return json_content(head + mark + values)

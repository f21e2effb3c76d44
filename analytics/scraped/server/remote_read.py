"""Raw samples by Prometheus' remote-read: a protobuf message packed with Snappy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import cramjam
import numpy as np
from google.protobuf.message import DecodeError

from analytics.scraped.samples import Samples
from analytics.scraped.server.connection import ServerConnection
from analytics.scraped.server.labelled import Stretch, checked_labels, samples_of
from analytics.scraped.server.read_messages import ReadRequest, ReadResponse
from analytics.scraped.server.refusals import oversized_answer, refusal, unreadable_answer
from analytics.scraped.server.selectors import LabelMatcher, matchers
from fallow.errors import InputError

_PATH = "/api/v1/read"
_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "Accept-Encoding": "identity",
    "X-Prometheus-Remote-Read-Version": "0.1.0",
}
_KINDS = {"=": 0, "!=": 1, "=~": 2, "!~": 3}


class RemoteRead:
    """`/api/v1/read`, answered with samples. Staleness markers and an exporter's NaN are both in it, and told apart.

    `added` are the labels that the server adds for others (its external labels): they are taken away, as in its API.
    """

    way = "remote-read"

    def __init__(self, connection: ServerConnection, added: frozenset[str] = frozenset()) -> None:
        self._connection, self._added = connection, added

    def is_offered(self) -> bool:
        """Asks for series that nobody has."""
        request = _request("fallow_asks_whether_this_is_offered", 0, 1, self._added)
        with suppress(InputError):
            answer = self._connection.post(_PATH, request, _HEADERS)
            return answer.status == 200 and "x-protobuf" in answer.headers.get("content-type", "")
        return False

    def fetch(self, selector: str, since_ms: int, until_ms: int) -> bytes:
        answer = self._connection.post(_PATH, _request(selector, since_ms, until_ms, self._added), _HEADERS)
        if error := refusal(answer, self._connection.address):
            raise error
        return answer.body

    def parse(self, body: bytes, since_ms: int, until_ms: int) -> Samples:
        return samples_of(self._stretches(self._message(body)), since_ms, until_ms)

    def _message(self, body: bytes) -> Any:
        most = self._connection.limits.answer_bytes
        try:
            if cramjam.snappy.decompress_raw_len(body) > most:
                raise oversized_answer(self._connection.address, most)
            return ReadResponse.FromString(bytes(cramjam.snappy.decompress_raw(body)))
        except (cramjam.DecompressionError, DecodeError) as error:
            raise unreadable_answer(self._connection.address) from error

    def _stretches(self, response: Any) -> Iterator[Stretch]:
        most = self._connection.limits.most_labels
        for result in response.results:
            for series in result.timeseries:
                every = ((each.name.decode(errors="replace"), each.value) for each in series.labels)
                labels = {name: value.decode(errors="replace") for name, value in every if name not in self._added}
                count = len(series.samples)
                times = np.fromiter([each.timestamp for each in series.samples], np.int64, count)
                values = np.fromiter([each.value for each in series.samples], np.float64, count)
                yield checked_labels(labels, most), times, values


def _request(selector: str, since_ms: int, until_ms: int, added: frozenset[str]) -> bytes:
    """Both ends of a query belong to it."""
    request = ReadRequest()
    query = request.queries.add(start_timestamp_ms=since_ms, end_timestamp_ms=until_ms - 1)
    for matcher in matchers(selector):
        query.matchers.add(**_as_sent(matcher, added))
    return bytes(cramjam.snappy.compress_raw(request.SerializeToString()))


def _as_sent(matcher: LabelMatcher, added: frozenset[str]) -> dict[str, object]:
    """Prometheus drops an `=` whose value is that of its external label, and takes the empty one for such; a regex it keeps."""
    kind, value = matcher.kind, matcher.value
    if kind == "=" and (not value or matcher.name in added):
        kind, value = "=~", re.escape(value)
    return {"type": _KINDS[kind], "name": matcher.name, "value": value}

"""Three ways to read raw samples: range vectors, VictoriaMetrics' export, and Prometheus' remote-read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import cramjam
import numpy as np
import orjson
import polars as pl
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from analytics.scraped.samples import SAMPLE_SCHEMA, Labels, Samples
from analytics.scraped.server.answers import (
    api_data,
    endless_answer,
    json_content,
    no_metrics_server,
    oversized_answer,
    refusal,
    unreadable_answer,
)
from analytics.scraped.server.connection import FORM, ServerConnection
from fallow.errors import InputError, UsageError
from fallow.outside_text import plain, visible

STALE_BITS = np.int64(0x7FF0000000000002)
"""The NaN with which Prometheus ends a series (model/value in its source)."""

Segment = tuple[Labels, NDArray[np.int64], NDArray[np.float64]]
"""Some samples of one series in order of time; its labels may come again."""


def samples_of(segments: Iterable[Segment], since_ms: int, until_ms: int) -> Samples:
    """Return the samples inside the window; series without any there are left out."""
    places: dict[frozenset[tuple[str, str]], int] = {}
    labels: list[Labels] = []
    indexes: list[NDArray[np.uint32]] = []
    times: list[NDArray[np.int64]] = []
    values: list[NDArray[np.float64]] = []
    for series, all_times, all_values in segments:
        inside = (all_times >= since_ms) & (all_times < until_ms)
        if not inside.any():
            continue
        place = places.setdefault(frozenset(series.items()), len(places))
        if place == len(labels):
            labels.append(series)
        times.append(all_times[inside])
        values.append(all_values[inside])
        indexes.append(np.full(times[-1].size, place, dtype=np.uint32))
    if not labels:
        return Samples((), pl.DataFrame(schema=SAMPLE_SCHEMA))
    return Samples(tuple(labels), _frame(np.concatenate(indexes), np.concatenate(times), np.concatenate(values)))


def _frame(indexes: NDArray[np.uint32], times: NDArray[np.int64], values: NDArray[np.float64]) -> pl.DataFrame:
    stale = values.view(np.int64) == STALE_BITS
    column = pl.Series(values)
    if stale.any():
        column = column.zip_with(pl.Series(~stale), pl.Series([None], dtype=pl.Float64))
    frame = pl.DataFrame({"series": indexes, "time_ms": times, "value": column}, schema=SAMPLE_SCHEMA)
    ordered = (np.diff(indexes.astype(np.int64)) > 0) | ((np.diff(indexes) == 0) & (np.diff(times) >= 0))
    return frame if ordered.all() else frame.sort("series", "time_ms", maintain_order=True)


def checked_labels(labels: Labels, most: int) -> Labels:
    """Return the labels. Raises InputError for a series with more labels than `most`."""
    if len(labels) > most:
        name = plain(labels.get("__name__", "?"))
        raise InputError(
            f"a series of {name} has {len(labels):,} labels, but fallow reads at most {most:,} of one",
            "leave the series out with --match, or drop those labels where it is scraped (metric_relabel_configs)",
        )
    return labels


RAW = {"dedup": "true", "partial_response": "false", "max_source_resolution": "0s", "deny_partial_response": "1"}
"""Thanos: one replica's samples, all stores or an error, and no down-sampled blocks; the last is for VictoriaMetrics.
Other servers ignore these.
"""


class RangeVectors:
    """`SELECTOR[length]` at a moment.

    From Prometheus 3 on the range excludes its beginning, before that it includes it. The range therefore begins a
    millisecond early, and samples outside the window are dropped here. Prometheus removes staleness markers from range
    vectors: the end of a series shows only as a gap. VictoriaMetrics leaves them in, as NaN, and keeps no other NaN
    (`nan_is_stale`).
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
            return samples_of(self._segments(data["result"]), since_ms, until_ms)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise no_metrics_server(self._connection.address) from error

    def _segments(self, result: list[dict[str, Any]]) -> Iterator[Segment]:
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
    """Return a time in the form that these servers read."""
    return f"{moment_ms // 1000}.{moment_ms % 1000:03d}"


_NOT_JSON = {b"+Inf": b'"inf"', b"-Inf": b'"-inf"', b"NaN": b"null"}


class ExportLines:
    """`/api/v1/export`. A null in it is a staleness marker: VictoriaMetrics keeps those, and no NaN of an exporter.

    The server's deduplication (-dedup.minScrapeInterval) applies here too.
    """

    way = "VictoriaMetrics export"

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    def is_offered(self) -> bool:
        """Return whether the server has this way, by asking for series that do not exist."""
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
        return samples_of(self._segments(body), since_ms, until_ms)

    def _segments(self, body: bytes) -> Iterator[Segment]:
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
    """Return the JSON content.

    Older versions write infinities as +Inf, and a line's first staleness marker as NaN, which is not JSON.
    """
    try:
        return json_content(line)
    except orjson.JSONDecodeError:
        head, mark, values = line.partition(b'"values":[')
        for written, meant in _NOT_JSON.items():
            values = values.replace(written, meant)
        return json_content(head + mark + values)


_PROTO_FIELD = descriptor_pb2.FieldDescriptorProto
_ONE, _MANY = _PROTO_FIELD.LABEL_OPTIONAL, _PROTO_FIELD.LABEL_REPEATED
_TEXT, _BYTES = _PROTO_FIELD.TYPE_STRING, _PROTO_FIELD.TYPE_BYTES
_INTEGER, _DOUBLE, _MESSAGE = _PROTO_FIELD.TYPE_INT64, _PROTO_FIELD.TYPE_DOUBLE, _PROTO_FIELD.TYPE_MESSAGE

_MESSAGES: dict[str, tuple[tuple[str, int, int, int, str], ...]] = {
    "LabelMatcher": (("type", 1, _ONE, _INTEGER, ""), ("name", 2, _ONE, _TEXT, ""), ("value", 3, _ONE, _TEXT, "")),
    "Query": (
        ("start_timestamp_ms", 1, _ONE, _INTEGER, ""),
        ("end_timestamp_ms", 2, _ONE, _INTEGER, ""),
        ("matchers", 3, _MANY, _MESSAGE, "LabelMatcher"),
    ),
    "ReadRequest": (("queries", 1, _MANY, _MESSAGE, "Query"),),
    "Sample": (("value", 1, _ONE, _DOUBLE, ""), ("timestamp", 2, _ONE, _INTEGER, "")),
    "Label": (("name", 1, _ONE, _BYTES, ""), ("value", 2, _ONE, _BYTES, "")),
    "TimeSeries": (("labels", 1, _MANY, _MESSAGE, "Label"), ("samples", 2, _MANY, _MESSAGE, "Sample")),
    "QueryResult": (("timeseries", 1, _MANY, _MESSAGE, "TimeSeries"),),
    "ReadResponse": (("results", 1, _MANY, _MESSAGE, "QueryResult"),),
}
"""Name, number, whether there are many, type and message of each field. An enum travels as an integer. Labels are the
bytes that were pushed to the server: as texts, a label that is not UTF-8 would make the whole answer unreadable.
"""


def _classes() -> dict[str, Any]:
    package = "fallow.remote_read"
    file = descriptor_pb2.FileDescriptorProto(name="fallow_remote_read.proto", package=package, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, label, kind, of in fields:
            message.field.add(
                name=field, number=number, label=label, type=kind, type_name=f".{package}.{of}" if of else None
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in _MESSAGES
    }


_CLASSES = _classes()
ReadRequest: Any = _CLASSES["ReadRequest"]
ReadResponse: Any = _CLASSES["ReadResponse"]


_SELECTOR = re.compile(r"\s*([a-zA-Z_:][\w:]*)?\s*(\{(.*)\}\s*)?", re.DOTALL | re.ASCII)
_STRING = r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`[^`]*`"
_MATCHER = re.compile(rf"\s*([a-zA-Z_]\w*|{_STRING})\s*(?:(=~|!~|!=|=)\s*({_STRING}))?\s*(?:,|$)", re.ASCII)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclass(frozen=True)
class LabelMatcher:
    """`kind` is one of =, !=, =~ and !~."""

    name: str
    kind: str
    value: str


def matchers(selector: str) -> tuple[LabelMatcher, ...]:
    """Return the matchers of a selector such as `up{job="a"}`. Raises UsageError for anything else."""
    whole = _SELECTOR.fullmatch(selector)
    if whole is None or not (whole[1] or whole[2]):
        raise _selector_error(selector)
    found = [LabelMatcher("__name__", "=", whole[1])] if whole[1] else []
    labels, at = whole[3] or "", 0
    while labels[at:].strip():
        matcher = _MATCHER.match(labels, at)
        if matcher is None:
            raise _selector_error(selector)
        found.append(_matcher(matcher, selector))
        at = matcher.end()
    return tuple(found)


def _matcher(found: re.Match[str], selector: str) -> LabelMatcher:
    """Return the matcher. A text alone is the name of the metric (Prometheus 3)."""
    name = found[1] if found[1][0] not in "\"'`" else _text(found[1])
    if found[2] is None:
        if name == found[1]:
            raise _selector_error(selector)
        return LabelMatcher("__name__", "=", name)
    return LabelMatcher(name, found[2], _text(found[3]))


def _text(literal: str) -> str:
    """Return the text of a PromQL literal, which has the form of Go's."""
    if literal[0] == "`":
        return literal[1:-1]
    return _ESCAPE.sub(lambda found: _character(found[1]), literal[1:-1])


def _character(escape: str) -> str:
    if escape[0] in "xuU":
        return chr(int(escape[1:], 16))
    return chr(int(escape, 8)) if len(escape) == 3 else _ESCAPED.get(escape, escape)


def _selector_error(selector: str) -> UsageError:
    return UsageError(
        f"'{visible(selector, 200)}' is not a series selector", 'write it as in PromQL: up{job="a",instance=~"b|c"}'
    )


_READ_PATH = "/api/v1/read"
_READ_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "Accept-Encoding": "identity",
    "X-Prometheus-Remote-Read-Version": "0.1.0",
}
_KINDS = {"=": 0, "!=": 1, "=~": 2, "!~": 3}


class RemoteRead:
    """`/api/v1/read`, answered with samples. It has staleness markers and an exporter's NaN, and distinguishes them.

    `added` are the labels that the server adds for others (its external labels): they are removed, as in its API.
    """

    way = "remote-read"

    def __init__(self, connection: ServerConnection, added: frozenset[str] = frozenset()) -> None:
        self._connection, self._added = connection, added

    def is_offered(self) -> bool:
        """Return whether the server has this way, by asking for series that do not exist."""
        request = _read_request("fallow_asks_whether_this_is_offered", 0, 1, self._added)
        with suppress(InputError):
            answer = self._connection.post(_READ_PATH, request, _READ_HEADERS)
            return answer.status == 200 and "x-protobuf" in answer.headers.get("content-type", "")
        return False

    def fetch(self, selector: str, since_ms: int, until_ms: int) -> bytes:
        answer = self._connection.post(
            _READ_PATH, _read_request(selector, since_ms, until_ms, self._added), _READ_HEADERS
        )
        if error := refusal(answer, self._connection.address):
            raise error
        return answer.body

    def parse(self, body: bytes, since_ms: int, until_ms: int) -> Samples:
        return samples_of(self._segments(self._message(body)), since_ms, until_ms)

    def _message(self, body: bytes) -> Any:
        most = self._connection.limits.answer_bytes
        try:
            if cramjam.snappy.decompress_raw_len(body) > most:
                raise oversized_answer(self._connection.address, most)
            return ReadResponse.FromString(bytes(cramjam.snappy.decompress_raw(body)))
        except (cramjam.DecompressionError, DecodeError) as error:
            raise unreadable_answer(self._connection.address) from error

    def _segments(self, response: Any) -> Iterator[Segment]:
        most = self._connection.limits.most_labels
        for result in response.results:
            for series in result.timeseries:
                every = ((each.name.decode(errors="replace"), each.value) for each in series.labels)
                labels = {name: value.decode(errors="replace") for name, value in every if name not in self._added}
                count = len(series.samples)
                times = np.fromiter([each.timestamp for each in series.samples], np.int64, count)
                values = np.fromiter([each.value for each in series.samples], np.float64, count)
                yield checked_labels(labels, most), times, values


def _read_request(selector: str, since_ms: int, until_ms: int, added: frozenset[str]) -> bytes:
    """Return the request; a query includes both its ends."""
    request = ReadRequest()
    query = request.queries.add(start_timestamp_ms=since_ms, end_timestamp_ms=until_ms - 1)
    for matcher in matchers(selector):
        query.matchers.add(**_kept_matcher(matcher, added))
    return bytes(cramjam.snappy.compress_raw(request.SerializeToString()))


def _kept_matcher(matcher: LabelMatcher, added: frozenset[str]) -> dict[str, object]:
    """Return a matcher that Prometheus keeps.

    It drops an `=` with an empty value, or with the value of its external label, but not a regex.
    """
    kind, value = matcher.kind, matcher.value
    if kind == "=" and (not value or matcher.name in added):
        kind, value = "=~", re.escape(value)
    return {"type": _KINDS[kind], "name": matcher.name, "value": value}


_LABEL_SECTION = re.compile(r"^  external_labels:\n((?:    .*\n)*)", re.MULTILINE)
_LABEL_NAME = re.compile(r"^    ([a-zA-Z_][a-zA-Z0-9_]*):", re.MULTILINE)


def external_labels(connection: ServerConnection) -> frozenset[str] | None:
    """Return the names of external labels; None where they are unknown, or where series have such labels themselves."""
    try:
        config = orjson.loads(connection.get("/api/v1/status/config").body)["data"]["yaml"]
        section = _LABEL_SECTION.search(config)
        names = frozenset(_LABEL_NAME.findall(section[1])) if section else frozenset()
        if section and len(names) != len(re.findall(r"^    \S", section[1], re.MULTILINE)):
            return None
        own = [orjson.loads(connection.get(f"/api/v1/label/{name}/values").body)["data"] for name in sorted(names)]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return None if any(own) else names

"""OTLP's request and answers, and the data points of a request about GPUs and hosts.

Names: opentelemetry.io/docs/specs/semconv/hardware/gpu and /hardware/common (in development, read in November 2026).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, DataPointFlags, Metric, NumberDataPoint

from analytics.scraped.hardware_labels import hardware_labels
from analytics.scraped.samples import Labels, first_label
from analytics.scraped.serving_rows import SERVER_NAMES
from fallow.clock import DAY_MS
from fallow.errors import InputError
from fallow.outside_text import plain

PROTOBUF, JSON = "application/x-protobuf", "application/json"


def read_request(body: bytes, content_type: str) -> ExportMetricsServiceRequest:
    """Return the decoded request. Raises InputError if the body is not an OTLP metrics request of this content type."""
    found = ExportMetricsServiceRequest()
    try:
        if content_type == JSON:
            json_format.Parse(body, found, ignore_unknown_fields=True)
        else:
            found.ParseFromString(body)
    except (DecodeError, json_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"the body is not an ExportMetricsServiceRequest in {content_type}", "see docs/opentelemetry.md"
        ) from error
    return found


def accepted(content_type: str, rejected: int, why: str) -> bytes:
    """Return the encoded answer to an accepted request, with the number of rejected points and the reason."""
    answer = ExportMetricsServiceResponse()
    if rejected:
        answer.partial_success.rejected_data_points = rejected
        answer.partial_success.error_message = why
    encoded: bytes = (
        json_format.MessageToJson(answer, indent=None).encode() if content_type == JSON else answer.SerializeToString()
    )
    return encoded


def refused(content_type: str, why: str) -> bytes:
    """Return an encoded google.rpc.Status with the reason why a request was refused."""
    if content_type == JSON:
        return json.dumps({"message": why}).encode()
    # a Status has its message in field 2 too
    encoded: bytes = ExportMetricsPartialSuccess(error_message=why).SerializeToString()
    return encoded


NS_PER_MS = 1_000_000

UNITS: Mapping[str, tuple[str, ...]] = {
    "hw.gpu.utilization": ("1", ""),
    "hw.gpu.memory.utilization": ("1", ""),
    "hw.gpu.memory.usage": ("By", ""),
    "hw.gpu.memory.limit": ("By", ""),
    "hw.gpu.io": ("By", ""),
    "hw.power": ("W", ""),
    "hw.energy": ("J", ""),
    "hw.temperature": ("Cel", ""),
}
"""The units of the conventions; a number in another unit would be misread."""

_TARGET = {
    "job": ("service.name",),
    "instance": ("service.instance.id", "host.name", "k8s.node.name", "host.id"),
    "cluster": ("k8s.cluster.name",),
}
"""OTLP's resource attributes for the labels by which a metrics server names the scraped page."""

_HOST = ("host.name", "k8s.node.name")
_OF_SENDERS = ("k8s.", "container.")
_OF_HOSTS = ("k8s.node.name", "k8s.cluster.name")
"""Kubernetes' attributes of a resource describe the sending pod, not the pod that has the GPU, except for these."""

_OLDEST_MS = 31 * DAY_MS
"""An older point is not late: its clock is wrong, and a row of 1970 would make every GPU 56 years old."""


@dataclass(frozen=True)
class Point:
    """One number of a series.

    `value` is None where the series ended. `start_ms` is the start of a sum, 0 for other series. For a sum that
    `is_delta`, the value covers only the time since `start_ms`.
    """

    labels: Labels
    time_ms: int
    value: float | None
    start_ms: int = 0
    is_delta: bool = False


@dataclass
class Sorted:
    """`request`: the useful part of a request; `points`: its size; `rejected`: number of wrong points by reason."""

    request: ExportMetricsServiceRequest
    points: int = 0
    ignored: int = 0
    rejected: Counter[str] = field(default_factory=Counter)


def sort_out(
    request: ExportMetricsServiceRequest, wanted: Collection[str], now_ms: int, refused: Mapping[str, str]
) -> Sorted:
    """Return the useful points: those with a wanted name and usable content.

    Other names are ignored. Wrong points are rejected, and those of names that are `refused` for the reason there.
    """
    found = Sorted(request)
    for resource in request.resource_metrics:
        has_host = bool(first_label(_texts(resource.resource.attributes), _HOST))
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                if why := refused.get(metric.name):
                    found.rejected[why] += len(metric.gauge.data_points) or 1
            known = (each for metric in scope.metrics for each in _without_buckets(metric, wanted))
            kept = [metric for metric in known if _has_use(metric, wanted, found, now_ms, has_host=has_host)]
            del scope.metrics[:]
            scope.metrics.extend(kept)
    return found


def _without_buckets(metric: Metric, wanted: Collection[str]) -> Iterator[Metric]:
    """Yield the metric; a histogram whose sum is wanted as two sums, under the names that Prometheus gives them."""
    parts = {f"{metric.name}_{part}": part for part in ("sum", "count")}
    if metric.WhichOneof("data") != "histogram" or not parts.keys() & set(wanted):
        yield metric
        return
    for name, part in parts.items():
        found = Metric(name=name)
        found.sum.aggregation_temporality = metric.histogram.aggregation_temporality
        for point in metric.histogram.data_points:
            found.sum.data_points.add(
                attributes=point.attributes,
                start_time_unix_nano=point.start_time_unix_nano,
                time_unix_nano=point.time_unix_nano,
                flags=point.flags,
                as_double=getattr(point, part),
            )
        yield found


def _has_use(metric: Metric, wanted: Collection[str], found: Sorted, now_ms: int, *, has_host: bool) -> bool:
    """Return whether any point of a metric is of use; other points are removed."""
    kind = metric.WhichOneof("data")
    points = [] if kind is None else getattr(metric, kind).data_points
    if metric.name not in wanted:
        found.ignored += len(points)
        return False
    if (why := _metric_fault(metric, kind, has_host=has_host)) is not None:
        found.rejected[why] += len(points)
        return False
    kept = []
    for point in points:
        if (why := _point_fault(metric.name, point, now_ms)) is not None:
            found.rejected[why] += 1
        elif _is_wanted(metric.name, point):
            kept.append(point)
        else:
            found.ignored += 1
    del points[:]
    points.extend(kept)
    found.points += len(kept)
    return bool(kept)


def _metric_fault(metric: Metric, kind: str | None, *, has_host: bool) -> str | None:
    if kind not in ("gauge", "sum"):
        return f"{metric.name} comes as {kind or 'nothing'}, not as gauge or sum"
    if metric.unit not in UNITS.get(metric.name, (metric.unit,)):
        return f"{metric.name} is in {plain(metric.unit)}, not in {UNITS[metric.name][0]}"
    if metric.name.startswith("hw.") and not has_host:
        return f"{metric.name} names no host: the resource needs host.name"
    return None


def _point_fault(name: str, point: NumberDataPoint, now_ms: int) -> str | None:
    if not point.time_unix_nano:
        return f"a point of {name} has no time"
    if point.time_unix_nano // NS_PER_MS > now_ms + DAY_MS:
        return f"a point of {name} is more than a day in the future"
    if point.time_unix_nano // NS_PER_MS < now_ms - _OLDEST_MS:
        return f"a point of {name} is more than a month old"
    if point.WhichOneof("value") is None and not _has_ended(point):
        return f"a point of {name} has no value"
    return None


def _has_ended(point: NumberDataPoint) -> bool:
    return bool(point.flags & DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK)


def _is_wanted(name: str, point: NumberDataPoint) -> bool:
    """Return whether a point counts. Names that begin with `hw.` are of all hardware: only those of GPUs count."""
    return not name.startswith("hw.") or bool(hardware_labels({**_texts(point.attributes), "__name__": name}))


def points_of(request: ExportMetricsServiceRequest) -> Iterator[Point]:
    """Yield the points of a sorted request, in its order."""
    for resource in request.resource_metrics:
        attributes = _texts(resource.resource.attributes)
        target = {label: value for label, names in _TARGET.items() if (value := first_label(attributes, names))}
        own = {key: value for key, value in attributes.items() if key in _OF_HOSTS or not key.startswith(_OF_SENDERS)}
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                # an inference server is in the pod that sends, or that a collector scrapes
                about = target | (attributes if metric.name in SERVER_NAMES else own)
                yield from _points_of_metric(metric, about)


def _points_of_metric(metric: Metric, about: Labels) -> Iterator[Point]:
    is_sum = metric.WhichOneof("data") == "sum"
    is_delta = is_sum and metric.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    for point in (metric.sum if is_sum else metric.gauge).data_points:
        own = _texts(point.attributes)
        value = None if _has_ended(point) else float(getattr(point, str(point.WhichOneof("value"))))
        start_ns = point.start_time_unix_nano if is_sum and point.start_time_unix_nano <= point.time_unix_nano else 0
        series = {**about, **own, "__name__": metric.name}
        yield Point(
            {**series, **hardware_labels(series)},
            point.time_unix_nano // NS_PER_MS,
            value,
            start_ns // NS_PER_MS,  # a sum that begins after it was read has no known beginning
            is_delta,
        )


def _texts(attributes: Collection[KeyValue]) -> dict[str, str]:
    """Return attributes as labels; lists and maps are not labels."""
    found = {}
    for each in attributes:
        kind = each.value.WhichOneof("value")
        if kind in ("string_value", "int_value", "double_value", "bool_value"):
            found[each.key] = str(getattr(each.value, kind))
    return found

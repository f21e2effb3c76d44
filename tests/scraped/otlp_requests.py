"""OTLP requests for tests, as a collector on NVML would send them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NOW_MS = 1_795_132_800_000  # 2026-11-20 00:00 UTC
NS = 1_000_000


def attributes(values: Mapping[str, object]) -> list[dict[str, Any]]:
    kinds = {str: "stringValue", int: "intValue", float: "doubleValue", bool: "boolValue"}
    return [{"key": key, "value": {kinds[type(value)]: value}} for key, value in values.items()]


def point(value: float | None, at_ms: int = NOW_MS, *, start_ms: int = 0, **about: object) -> dict[str, Any]:
    """A data point; `about` are attributes, with `__` for the dots of their names. None is NO_RECORDED_VALUE."""
    found: dict[str, Any] = {
        "timeUnixNano": str(at_ms * NS),
        "attributes": attributes({name.replace("__", "."): each for name, each in about.items()}),
    }
    if start_ms:
        found["startTimeUnixNano"] = str(start_ms * NS)
    return found | ({"flags": 1} if value is None else {"asDouble": value})


def gauge(name: str, unit: str, *points: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "unit": unit, "gauge": {"dataPoints": list(points)}}


def climbing(name: str, unit: str, *points: dict[str, Any], delta: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "unit": unit,
        "sum": {"dataPoints": list(points), "isMonotonic": True, "aggregationTemporality": 1 if delta else 2},
    }


def as_json(metrics: Sequence[dict[str, Any]], **resource: str) -> dict[str, Any]:
    """One resource with its metrics, as OTLP's JSON."""
    about = {name.replace("__", "."): value for name, value in resource.items()} or {"host.name": "gn001"}
    return {
        "resourceMetrics": [
            {
                "resource": {"attributes": attributes(about)},
                "scopeMetrics": [{"scope": {"name": "t"}, "metrics": list(metrics)}],
            }
        ]
    }


def request(*metrics: dict[str, Any], **resource: str) -> ExportMetricsServiceRequest:
    return json_format.ParseDict(as_json(metrics, **resource), ExportMetricsServiceRequest())

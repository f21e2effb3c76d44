"""OTLP requests for tests, as a collector on NVML would send them."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.scraped.servers import wait_until
from tests.scraped.site import GPUS, MEM_MIB, MIB, MODEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.scraped.site import SiteGpu

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


def histogram(name: str, total: float, count: int, at_ms: int, **about: object) -> dict[str, Any]:
    seen = {"timeUnixNano": str(at_ms * NS), "sum": total, "count": str(count), "attributes": attributes(about)}
    return {"name": name, "unit": "s", "histogram": {"dataPoints": [seen], "aggregationTemporality": 2}}


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


def push_site(address: str, times_ms: Iterable[int]) -> None:
    """Waits until somebody takes metrics there."""
    wait_until(lambda: _post(address, {"resourceMetrics": []}), lambda: f"nobody takes metrics at {address}")
    for time_ms in times_ms:
        for host in dict.fromkeys(gpu.host for gpu in GPUS):
            assert _post(address, as_json(_metrics(host, time_ms), host__name=host))


def _metrics(host: str, time_ms: int) -> list[dict[str, Any]]:
    now = {gpu: gpu.at(time_ms) for gpu in GPUS if gpu.host == host}
    return [
        _gauge("hw.gpu.utilization", "1", {gpu: each.util_pct / 100 for gpu, each in now.items()}, time_ms),
        _gauge("hw.gpu.memory.usage", "By", {gpu: each.mem_mib * MIB for gpu, each in now.items()}, time_ms),
        _gauge("hw.gpu.memory.limit", "By", dict.fromkeys(now, MEM_MIB * MIB), time_ms),
    ]


def _gauge(name: str, unit: str, values: dict[SiteGpu, float], time_ms: int) -> dict[str, Any]:
    points = (point(value, time_ms, hw__id=gpu.uuid, hw__model=MODEL) for gpu, value in values.items())
    return gauge(name, unit, *points)


def _post(address: str, content: dict[str, Any]) -> bool:
    """Whether it was taken."""
    request = urllib.request.Request(  # loopback
        f"http://{address}/v1/metrics", json.dumps(content).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except OSError:
        return False

"""What an OpenTelemetry collector would push of the small site: OTLP/HTTP as JSON, one request for each moment."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

from tests.scraped.servers import wait_until
from tests.scraped.site import GPUS, MEM_MIB, MIB, MODEL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.scraped.site import SiteGpu


def push_site(address: str, times_ms: Iterable[int]) -> None:
    """Waits until somebody takes metrics there."""
    wait_until(lambda: _post(address, {"resourceMetrics": []}), lambda: f"nobody takes metrics at {address}")
    for time_ms in times_ms:
        assert _post(
            address, {"resourceMetrics": [_of_host(host, time_ms) for host in dict.fromkeys(gpu.host for gpu in GPUS)]}
        )


def _of_host(host: str, time_ms: int) -> dict[str, Any]:
    gpus = [gpu for gpu in GPUS if gpu.host == host]
    metrics = [
        _gauge("hw.gpu.utilization", "1", {gpu: gpu.at(time_ms).util_pct / 100 for gpu in gpus}, time_ms),
        _gauge("hw.gpu.memory.usage", "By", {gpu: gpu.at(time_ms).mem_mib * MIB for gpu in gpus}, time_ms),
        _gauge("hw.gpu.memory.limit", "By", dict.fromkeys(gpus, MEM_MIB * MIB), time_ms),
    ]
    return {"resource": {"attributes": _attributes({"host.name": host})}, "scopeMetrics": [{"metrics": metrics}]}


def _gauge(name: str, unit: str, values: dict[SiteGpu, float], time_ms: int) -> dict[str, Any]:
    points = [
        {
            "timeUnixNano": str(time_ms * 10**6),
            "asDouble": value,
            "attributes": _attributes({"hw.id": gpu.uuid, "hw.model": MODEL}),
        }
        for gpu, value in values.items()
    ]
    return {"name": name, "unit": unit, "gauge": {"dataPoints": points}}


def _attributes(pairs: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in pairs.items()]


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

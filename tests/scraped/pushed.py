"""What an OpenTelemetry collector would push of the small site: OTLP/HTTP as JSON, one request for each host and moment."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

from tests.scraped.otlp_requests import as_json, gauge, point
from tests.scraped.servers import wait_until
from tests.scraped.site import GPUS, MEM_MIB, MIB, MODEL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.scraped.site import SiteGpu


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

"""What the receiver says of itself at /metrics and /healthz."""

from __future__ import annotations

import json
from dataclasses import dataclass

from analytics.scraped.otlp.receiver import Intake
from fallow.clock import format_ms
from fallow.exposition import ExposedSamples, Family, label_text


@dataclass
class DeliveryState:
    """How far the way from the spool to the lake is open."""

    last_success_ms: int | None = None
    trouble: str = ""


def _family(name: str, unit: str, meaning: str, kind: str = "counter") -> Family:
    return Family(f"fallow_otlp_{name}", unit, meaning, "follow otlp", kind=kind)


REQUESTS = _family("requests_total", "1", "Requests, by the HTTP status of the answer")
POINTS = _family("points_total", "1", "Data points that were kept")
IGNORED = _family("ignored_points_total", "1", "Data points of metrics and hardware that fallow has no use for")
REJECTED = _family("rejected_points_total", "1", "Data points that would be read wrongly")
SPOOL = _family("spool_bytes", "bytes", "Size of the spool on disk", "gauge")
DELIVERED = _family("last_delivery_timestamp_seconds", "s", "When everything received was last in the lake", "gauge")
FAILING = _family("delivery_failing", "0 or 1", "Whether the newest try to reach the lake failed", "gauge")

FAMILIES = (REQUESTS, POINTS, IGNORED, REJECTED, SPOOL, DELIVERED, FAILING)


def exposed(intake: Intake, state: DeliveryState, content_type: str) -> bytes:
    """The page for Prometheus."""
    found, tally = ExposedSamples(), intake.tally
    with tally.lock:
        for status, count in sorted(tally.requests.items()):
            found.add(REQUESTS, count, label_text({"code": int(status)}))
        found.add(POINTS, tally.points)
        found.add(IGNORED, tally.ignored)
        found.add(REJECTED, tally.rejected.total())
    found.add(SPOOL, intake.spool.size_bytes)
    found.add(DELIVERED, None if state.last_success_ms is None else state.last_success_ms / 1000)
    found.add(FAILING, bool(state.trouble))
    return found.render(content_type)


def health(intake: Intake, state: DeliveryState) -> bytes:
    """A process that answers is alive: a lake that is away is told and is no failure, for a restart would not mend it."""
    last = None if state.last_success_ms is None else format_ms(state.last_success_ms)
    status = "lake_away" if state.trouble else "ok"
    told = {
        "status": status,
        "last_delivery": last,
        "spool_bytes": intake.spool.size_bytes,
        "trouble": state.trouble or None,
    }
    return json.dumps(told).encode() + b"\n"

"""What the receiver says of itself at /metrics and /healthz."""

from __future__ import annotations

from dataclasses import dataclass

from analytics.scraped.otlp.receiver import Intake
from fallow.clock import MINUTE_MS, SECOND_MS, Clock, format_ms
from fallow.exposition import ExposedSamples, Family, label_text

_PATIENCE_MS = 15 * MINUTE_MS
_PATIENCE_ROUNDS = 3


def _family(name: str, unit: str, meaning: str, kind: str = "counter") -> Family:
    return Family(f"fallow_otlp_{name}", unit, meaning, "follow otlp", kind=kind)


_REQUESTS = _family("requests_total", "1", "requests, by the HTTP status of the answer")
_POINTS = _family("points_total", "1", "data points that were kept")
_IGNORED = _family("ignored_points_total", "1", "data points of metrics and hardware that fallow has no use for")
_REJECTED = _family("rejected_points_total", "1", "data points that would be read wrongly")
_AGENT_ROWS = _family("agent_rows_total", "1", "rows left out because agents have them, those of overlaps again")
_DROPPED = _family("dropped_total", "1", "points and values that make nothing, those of overlaps again")
_SPOOL = _family("spool_bytes", "bytes", "size of the spool on disk", "gauge")
_DELIVERED = _family("last_delivery_timestamp_seconds", "s", "when all that was received was last in the lake", "gauge")
_FAILING = _family("delivery_failing", "0 or 1", "whether the newest try to reach the lake failed", "gauge")


@dataclass
class DeliveryState:
    """How far the way from the spool to the lake is open; `round_ms` is when it was last tried.

    `agent_rows` were left out because agents have them; `dropped` are samples and values that make nothing.
    """

    round_ms: int
    agent_rows: int = 0
    dropped: int = 0
    last_success_ms: int | None = None
    trouble: str = ""


@dataclass(frozen=True)
class ReceiverStatus:
    """Asked by many threads."""

    intake: Intake
    state: DeliveryState
    clock: Clock
    every_ms: int

    def metrics(self) -> ExposedSamples:
        found, state, tally = ExposedSamples(), self.state, self.intake.tally
        with tally.lock:
            for status, count in sorted(tally.requests.items()):
                found.add(_REQUESTS, count, label_text({"code": int(status)}))
            found.add(_POINTS, tally.points)
            found.add(_IGNORED, tally.ignored)
            found.add(_REJECTED, tally.rejected)
        found.add(_AGENT_ROWS, state.agent_rows)
        found.add(_DROPPED, state.dropped)
        found.add(_SPOOL, self.intake.spool.size_bytes)
        found.add(_DELIVERED, None if state.last_success_ms is None else state.last_success_ms / SECOND_MS)
        found.add(_FAILING, bool(state.trouble))
        return found

    def health(self) -> tuple[int, dict[str, object]]:
        """503 where nothing was tried for a while, which a restart may mend; a lake that is away is told and is no failure."""
        state = self.state
        told: dict[str, object] = {
            "status": "failing" if state.trouble else "ok",
            "spool_bytes": self.intake.spool.size_bytes,
        }
        if state.last_success_ms is not None:
            told["last_delivery"] = format_ms(state.last_success_ms)
        if self.clock.now_ms() - state.round_ms > max(_PATIENCE_MS, _PATIENCE_ROUNDS * self.every_ms):
            return 503, told | {"status": "stale"}
        return 200, told

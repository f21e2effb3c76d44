"""/healthz: one answer for load balancers, kubelets and people who wonder."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from agent.metrics.collector import fresh, fresh_for_s
from agent.snapshot import WATCHED

if TYPE_CHECKING:
    from agent.snapshot import Snapshot


def judge(newest: tuple[Snapshot, float] | None) -> tuple[int, dict[str, Any]]:
    """The HTTP status and the answer: 200 while the agent observes or was told to let go, else 503 with the reason."""
    if newest is None:
        return 503, {"status": "starting", "reason": "no interval has been closed yet"}
    snapshot, age_s = newest
    health = Counter(row["health"] for row in snapshot.gpus)
    answer = {"status": "ok", "mode": snapshot.mode, "age_seconds": round(age_s, 1), "gpus": dict(health)}
    if not fresh(snapshot, age_s):
        return 503, answer | {
            "status": "stale",
            "reason": f"the newest interval ended {age_s:.0f} s ago, more than {fresh_for_s(snapshot):g} s",
        }
    if snapshot.mode == "released":
        return 200, answer | {"status": "released"}
    if health["driver_down"]:
        return 503, answer | {"status": "driver_down", "reason": "the NVIDIA driver cannot be used"}
    watched = sum(health[state] for state in WATCHED) + health["asleep"]
    if not watched:
        return 503, answer | {"status": "gpus_gone", "reason": f"none of {len(snapshot.gpus)} GPUs can be watched"}
    return 200, answer

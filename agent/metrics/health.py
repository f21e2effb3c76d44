"""What /healthz answers: whether the agent's loop goes round, and what state the GPUs are in."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from agent.collectors import UNKNOWN
from agent.snapshot import WATCHED, is_silent
from fallow.clock import format_ms

if TYPE_CHECKING:
    from agent.snapshot import PublishingStatus, SnapshotBoard


def judge(board: SnapshotBoard) -> tuple[int, dict[str, Any]]:
    """The HTTP status and the answer: 503 exactly where `fallow agent status` ends with 1, else 200.

    A restart mends neither a driver that is down nor a GPU or a store that is away: these are told with 200.
    """
    newest = board.latest_with_age()
    if newest is None:
        age_s = board.age_s()
        answer: dict[str, Any] = {"status": "starting", "reason": "no interval has been closed yet"}
        return (503, _silent(answer, age_s)) if is_silent(age_s, board.interval_ms) else (200, answer)
    snapshot, age_s = newest
    health = Counter(row["health"] for row in snapshot.gpus)
    answer = {"status": "ok", "mode": snapshot.mode, "age_seconds": round(age_s, 1), "gpus": dict(health)}
    if (publishing := _publishing(snapshot.publishing)) is not None:
        answer["publishing"] = publishing
    if is_silent(age_s, snapshot.interval_ms):
        return 503, _silent(answer, age_s)
    if snapshot.mode == "released":
        return 200, answer | {"status": "released"}
    if health["driver_down"]:
        return 200, answer | {"status": "driver_down", "reason": "the NVIDIA driver cannot be used"}
    if not any(health[state] for state in (*WATCHED, "asleep", UNKNOWN)):
        return 200, answer | {"status": "gpus_gone", "reason": f"none of {len(snapshot.gpus)} GPUs can be watched"}
    return 200, answer


def _publishing(state: PublishingStatus) -> str | None:
    """What is wrong between the spool and the lake; without addresses and names, for everybody may ask."""
    if state.failing_since_ms is not None:
        return f"rows wait in the spool since {format_ms(state.failing_since_ms)}: `fallow agent status` says why"
    if state.name_conflict is not None:
        return "another agent has this host's name: `fallow agent status` says which"
    return None


def _silent(answer: dict[str, Any], age_s: float) -> dict[str, Any]:
    return answer | {"status": "stale", "reason": f"no interval was closed for {age_s:.0f} s"}

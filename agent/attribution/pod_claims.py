"""Which GPUs pods were given, as rows of the `claim` table: one when a pod is first seen with a GPU, one when it is gone.

So a GPU that a pod keeps without a process on it is told from one that nobody has. What is open is remembered across restarts of
the agent, so that a pod stays one claim, and one that went meanwhile ends.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fallow.clock import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.attribution.pods_of_processes import Allocation

SILENT_MS = DAY_MS
"""After so long without an answer from the kubelet its claims end with the last one: a node may have left its cluster."""

Row = dict[str, Any]
_Key = tuple[str, str]
"""GPU, and the pod as NAMESPACE/POD."""


class PodClaims:
    """The open claims of this host's pods."""

    def __init__(self, noted: Iterable[Any] = ()) -> None:
        """`noted` is what the run before left with `as_text`, decoded; entries that are damaged are left aside."""
        self._since_ms: dict[_Key, int] = {}
        for entry in noted:
            match entry:
                case [str(gpu), str(pod), int(since_ms)]:
                    self._since_ms[gpu, pod] = since_ms
        self._told_ms: int | None = None  # the newest answer
        self._began_ms: int | None = None

    def rows(self, allocation: Allocation | None, now_ms: int) -> list[Row]:
        """Claims that began or ended since the last call; none where the kubelet said nothing new.

        Args:
            allocation: its newest answer; None where that is missing or old.
            now_ms: wall clock.
        """
        if allocation is None:
            if self._began_ms is None:
                self._began_ms = now_ms
            heard_ms = self._began_ms if self._told_ms is None else self._told_ms
            return self._follow(set(), heard_ms) if now_ms - heard_ms >= SILENT_MS else []
        if allocation.asked_ms == self._told_ms:
            return []
        self._told_ms = allocation.asked_ms
        return self._follow({
            (gpu, f"{holder.namespace}/{holder.pod}") for gpu, holders in allocation.holders.items() for holder in holders
        }, allocation.asked_ms)  # fmt: skip

    def as_text(self) -> str:
        """The open claims as JSON, for the next run."""
        return json.dumps([[gpu, pod, since_ms] for (gpu, pod), since_ms in sorted(self._since_ms.items())])

    def _follow(self, present: set[_Key], at_ms: int) -> list[Row]:
        known = self._since_ms
        gone, new = sorted(known.keys() - present), sorted(present - known.keys())
        ended = [_row(key, known[key], list(known)) | {"end": max(at_ms, known[key])} for key in gone]
        for key in gone:
            del known[key]
        known.update(dict.fromkeys(new, at_ms))
        return ended + [_row(key, at_ms, list(known)) for key in new]


def _row(key: _Key, since_ms: int, known: Sequence[_Key]) -> Row:
    gpu, pod = key
    namespace, _, name = pod.partition("/")
    return {
        "time": since_ms, "gpu": gpu, "claim_id": pod, "scheduler": "kubernetes", "account": namespace, "name": name,
        "gpu_count": sum(other == pod for _, other in known),
    }  # fmt: skip

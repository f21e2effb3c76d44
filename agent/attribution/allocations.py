"""Which GPUs Kubernetes gave to which pod: the pod of each process, and the rows of the `claim` table."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.collectors import Collector, Interval
from fallow.clock import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent.attribution.placement import Placement
    from agent.attribution.pod_resources import PodContainer
    from agent.rows import ClaimRow

_START_SLACK_MS = 1000  # a start is known from a boot time in whole seconds


@dataclass(frozen=True)
class Sighting:
    """A process of some pod, and the GPUs that it was seen on."""

    placement: Placement
    started_ms: int | None
    gpus: frozenset[str]


@dataclass(frozen=True)
class PodName:
    """A pod and, where known, which of its containers and what else the kubelet says of it."""

    namespace: str
    pod: str
    container: str | None = None
    labels: str | None = None
    runtime: str | None = None
    source: str = "kubelet"


@dataclass(frozen=True)
class Allocation:
    """What the pod-resources socket said, and when it was asked."""

    holders: Mapping[str, Sequence[PodContainer]] = field(default_factory=dict)
    asked_ms: int = 0


def match_by_gpu(
    sightings: Iterable[Sighting], allocation: Allocation, taken: Iterable[tuple[str, str]]
) -> dict[str, PodName]:
    """Pods by pod UID, as far as the allocation of GPUs leaves no choice.

    A pod is named if it is the only one that was given every GPU on which processes of that UID were seen, if the
    allocation is younger than the first of them, and if no other UID lays claim to the same pod: a container may use
    GPUs that it was never given (privileged, or all devices made visible), and then nobody is named.

    Args:
        sightings: processes in pods.
        allocation: who was given which GPU.
        taken: namespace and name of pods that are known to belong to other UIDs.
    """
    by_uid: dict[str, list[Sighting]] = {}
    for sighting in sightings:
        if sighting.placement.pod_uid is not None:
            by_uid.setdefault(sighting.placement.pod_uid, []).append(sighting)
    found = {uid: pod for uid, seen in by_uid.items() if (pod := _only_candidate(seen, allocation)) is not None}
    claims = [(pod.namespace, pod.pod) for pod in found.values()]
    claims += taken
    return {uid: pod for uid, pod in found.items() if claims.count((pod.namespace, pod.pod)) == 1}


def _only_candidate(seen: Sequence[Sighting], allocation: Allocation) -> PodName | None:
    starts = [sighting.started_ms for sighting in seen if sighting.started_ms is not None]
    # GPUs are given to a pod once and for its life: an answer from before it began speaks of another one
    if not starts or min(starts) + _START_SLACK_MS > allocation.asked_ms:
        return None
    gpus = frozenset[str]().union(*(sighting.gpus for sighting in seen))
    holders = [set(allocation.holders.get(gpu, ())) for gpu in gpus]
    pods = [{(holder.namespace, holder.pod) for holder in found} for found in holders]
    candidates = set.intersection(*pods) if pods else set()
    if len(candidates) != 1:
        return None
    namespace, pod = candidates.pop()
    names = {
        holder.container for found in holders for holder in found if (holder.namespace, holder.pod) == (namespace, pod)
    }
    only_container = len(names) == 1 and len({sighting.placement.container_id for sighting in seen}) == 1
    return PodName(namespace, pod, names.pop() if only_container else None, source="pod_resources")


SILENT_MS = DAY_MS
"""After so long without an answer from the kubelet its claims end with the last one: a node may have left its cluster."""

_Key = tuple[str, str]
"""GPU, and the pod as NAMESPACE/POD."""


class PodAllocations(Collector):
    """The open claims of this host's pods."""

    name = "claims"
    table = "claim"
    allocation: Callable[[int], Allocation | None]
    """What Kubernetes gave to whom, at a moment in ms."""

    def __init__(self, noted: Iterable[Any] = ()) -> None:
        """`noted` is what the run before left with `as_text`, decoded; entries that are damaged are left aside."""
        self._since_ms: dict[_Key, int] = {}
        for entry in noted:
            match entry:
                case [str(gpu), str(pod), int(since_ms)]:
                    self._since_ms[gpu, pod] = since_ms
        self._told_ms: int | None = None  # the newest answer
        self._began_ms: int | None = None

    def collect(self, interval: Interval) -> list[ClaimRow]:
        return self.rows(self.allocation(interval.end_ms), interval.end_ms)

    def rows(self, allocation: Allocation | None, now_ms: int) -> list[ClaimRow]:
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
        return self._follow(
            {
                (gpu, f"{holder.namespace}/{holder.pod}")
                for gpu, holders in allocation.holders.items()
                for holder in holders
            },
            allocation.asked_ms,
        )

    def as_text(self) -> str:
        """The open claims as JSON, for the next run."""
        return json.dumps([[gpu, pod, since_ms] for (gpu, pod), since_ms in sorted(self._since_ms.items())])

    def _follow(self, present: set[_Key], at_ms: int) -> list[ClaimRow]:
        known = self._since_ms
        gone, new = sorted(known.keys() - present), sorted(present - known.keys())
        ended: list[ClaimRow] = [
            {**_claim_row(key, known[key], list(known)), "end": max(at_ms, known[key])} for key in gone
        ]
        for key in gone:
            del known[key]
        known.update(dict.fromkeys(new, at_ms))
        return ended + [_claim_row(key, at_ms, list(known)) for key in new]


def _claim_row(key: _Key, since_ms: int, known: Sequence[_Key]) -> ClaimRow:
    gpu, pod = key
    namespace, _, name = pod.partition("/")
    return {
        "time": since_ms,
        "gpu": gpu,
        "claim_id": pod,
        "scheduler": "kubernetes",
        "account": namespace,
        "name": name,
        "gpu_count": sum(other == pod for _, other in known),
    }

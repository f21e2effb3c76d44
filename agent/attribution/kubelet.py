"""Which GPUs Kubernetes gave to which pod, by what the kubelet of this node says in the background.

Two questions: the pod-resources socket (which container was given which GPUs; every 30 s) and, where an address is set,
the list of pods (container ids and labels; every ten minutes, and when a container shows up that is not on it).
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.attribution.lookups import Background
from agent.attribution.proc import printable, printable_text
from agent.collectors import Collector, Interval
from agent.own_process import module_command
from fallow.clock import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent.attribution.lookups import AttributedProcess, Failures, LookupAnswer
    from agent.attribution.placement import Placement
    from agent.attribution.pod_resources import PodContainer
    from agent.attribution.settings import AttributionSettings
    from agent.rows import ClaimRow

_START_SLACK_MS = 1000  # a start is known from a boot time in whole seconds


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
    processes: Iterable[AttributedProcess], allocation: Allocation, taken: Iterable[tuple[str, str]]
) -> dict[str, PodName]:
    """Pods by pod UID, as far as the allocation of GPUs leaves no choice.

    A pod is named if it is the only one that was given every GPU on which processes of that UID were seen, if the
    allocation is younger than the first of them, and if no other UID lays claim to the same pod: a container may use
    GPUs that it was never given (privileged, or all devices made visible), and then nobody is named.

    Args:
        processes: those in pods.
        allocation: who was given which GPU.
        taken: namespace and name of pods that are known to belong to other UIDs.
    """
    by_uid: dict[str, list[AttributedProcess]] = {}
    for process in processes:
        if process.placement.pod_uid is not None:
            by_uid.setdefault(process.placement.pod_uid, []).append(process)
    found = {uid: pod for uid, seen in by_uid.items() if (pod := _only_candidate(seen, allocation)) is not None}
    claims = [(pod.namespace, pod.pod) for pod in found.values()]
    claims += taken
    return {uid: pod for uid, pod in found.items() if claims.count((pod.namespace, pod.pod)) == 1}


def _only_candidate(seen: Sequence[AttributedProcess], allocation: Allocation) -> PodName | None:
    starts = [each.started_ms for each in seen if each.started_ms is not None]
    # GPUs are given to a pod once and for its life: an answer from before it began speaks of another one
    if not starts or min(starts) + _START_SLACK_MS > allocation.asked_ms:
        return None
    gpus = frozenset[str]().union(*(each.gpus for each in seen))
    holders = [set(allocation.holders.get(gpu, ())) for gpu in gpus]
    pods = [{(holder.namespace, holder.pod) for holder in found} for found in holders]
    candidates = set.intersection(*pods) if pods else set()
    if len(candidates) != 1:
        return None
    namespace, pod = candidates.pop()
    names = {
        holder.container for found in holders for holder in found if (holder.namespace, holder.pod) == (namespace, pod)
    }
    only_container = len(names) == 1 and len({each.placement.container_id for each in seen}) == 1
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


_ALLOCATION_MS = 30_000
_NEWS_MS = 5_000  # a new container is worth asking early, though not at every tick
_PODS_MS = 600_000
_PODS_NEWS_MS = 30_000
_LOOKS = 3  # a container that the list has left out so often is none of the kubelet's
_CURRENT_MS = 120_000
_SOCKET_TIMEOUT_S = 1.0
_PROGRAM_TIMEOUT_S = 20.0
_LOCAL_S = 0.05  # how long a new container may hold up the tick

_RUNTIMES = {"docker": "docker", "containerd": "containerd", "cri-o": "cri-o"}


class PodsFailedError(Exception):
    """The program that asks for pods has failed; the message is what it said."""


class Kubelet:
    """The kubelet's views; both stay as they were while it does not answer."""

    def __init__(self, settings: AttributionSettings, proc: str, failures: Failures) -> None:
        self._settings = settings
        self._proc = proc
        self._failures = failures
        self._asking: Background[Allocation] = Background("fallow-pod-resources")
        self._allocation: Allocation | None = None
        self._asked_ms: int | None = None
        self._asking_pods: Background[list[dict[str, Any]]] = Background("fallow-pods")
        self._asked_pods_ms: int | None = None
        self._containers: dict[str, PodName] = {}
        self._pods: dict[str, PodName] = {}
        self._seen: set[str] = set()
        self._looked_for: dict[str, int] = {}

    @property
    def on(self) -> bool:
        """Whether there is anybody to ask: a socket that is there or was, or an address."""
        return bool(self._settings.kubelet_url) or self._has_socket()

    def refresh(self, processes: Sequence[AttributedProcess], now_ms: int) -> None:
        """Asks what is due and takes what has come; waits only where a container is new.

        Args:
            processes: those of now.
            now_ms: wall clock.
        """
        self.wait(0.0)
        # containers that Docker or podman runs on their own account are none of the kubelet's
        ids = {
            each.container_id
            for each in (process.placement for process in processes)
            if each.container_id is not None
            and (each.pod_uid is not None or each.container_runtime not in ("docker", "podman"))
        }
        new, self._seen = bool(ids - self._seen), ids
        if self._has_socket() and _due(self._asked_ms, now_ms, _NEWS_MS if new else _ALLOCATION_MS):
            self._ask_allocation(now_ms)
        if self._settings.kubelet_url:
            missing = ids - self._containers.keys()
            self._looked_for = {each: self._looked_for.get(each, 0) for each in missing}
            news = any(looks < _LOOKS for looks in self._looked_for.values())
            if _due(self._asked_pods_ms, now_ms, _PODS_NEWS_MS if news else _PODS_MS):
                self._ask_pods(now_ms)
        # the socket answers within milliseconds, the program takes longer than any tick may wait
        if new and (allocation := self._asking.take(_LOCAL_S)):
            self._take_allocation(allocation)

    def wait(self, wait_s: float) -> None:
        """Takes the answers that are there, or come within the wait."""
        if allocation := self._asking.take(wait_s):
            self._take_allocation(allocation)
        if pods := self._asking_pods.take(wait_s):
            self._take_pods(pods)

    def allocation(self, now_ms: int) -> Allocation | None:
        """Who was given which GPU; None where the last answer is missing or older than two minutes."""
        if self._allocation is None or abs(now_ms - self._allocation.asked_ms) > _CURRENT_MS:
            return None
        return self._allocation

    def locate(self, processes: Sequence[AttributedProcess]) -> dict[Placement, PodName]:
        """Pods by placement, as far as they are known."""
        found = {}
        for placement in {process.placement for process in processes}:
            pod = self._containers.get(placement.container_id or "") or self._pods.get(placement.pod_uid or "")
            if pod is not None:
                found[placement] = pod
        if self._allocation is not None:
            known = {placement.pod_uid for placement in found}
            taken = {(pod.namespace, pod.pod) for pod in found.values()}
            rest = [each for each in processes if each.placement.pod_uid not in known]
            by_uid = match_by_gpu(rest, self._allocation, taken)
            found |= {each.placement: by_uid[uid] for each in rest if (uid := each.placement.pod_uid or "") in by_uid}
        return found

    def _has_socket(self) -> bool:
        path = self._settings.pod_resources
        return bool(path) and (self._allocation is not None or Path(path).exists())

    def _ask_allocation(self, now_ms: int) -> None:
        if self._asking.busy:
            return
        path, proc = self._settings.pod_resources, self._proc
        self._asked_ms = now_ms
        self._asking.ask(lambda: _allocation(path, proc, now_ms))

    def _take_allocation(self, answer: LookupAnswer[Allocation]) -> None:
        if answer.result is not None:
            self._allocation = answer.result
            self._failures.worked("pod_resources")
            return
        path = self._settings.pod_resources
        reason = printable_text(getattr(answer.error, "strerror", None) or str(answer.error))
        self._failures.failed(
            "pod_resources",
            f"the kubelet's socket {path} cannot be used: {reason}; mount its folder, not the "
            "socket, and let the agent read it",
        )

    def _ask_pods(self, now_ms: int) -> None:
        if self._asking_pods.busy:
            return
        self._looked_for = {each: looks + 1 for each, looks in self._looked_for.items()}
        settings = self._settings
        self._asked_pods_ms = now_ms
        self._asking_pods.ask(lambda: _pods(settings))

    def _take_pods(self, answer: LookupAnswer[list[dict[str, Any]]]) -> None:
        if answer.result is None:
            self._failures.failed("pods", printable_text(str(answer.error)))
            return
        self._failures.worked("pods")
        self._containers, self._pods = {}, {}
        for pod in answer.result:
            namespace, name = printable_text(pod["namespace"]), printable_text(pod["pod"])
            texts = {printable_text(key): printable_text(value) for key, value in pod["labels"].items()}
            labels = json.dumps(texts, sort_keys=True, separators=(",", ":"))
            self._pods[pod["uid"]] = PodName(namespace, name, None, labels)
            for container_id, container in pod["containers"].items():
                runtime, _, plain = container_id.rpartition("://")
                self._containers[plain] = PodName(
                    namespace, name, printable_text(container), labels, _RUNTIMES.get(runtime)
                )


def _due(asked_ms: int | None, now_ms: int, after_ms: int) -> bool:
    return asked_ms is None or abs(now_ms - asked_ms) >= after_ms


def _allocation(path: str, proc: str, now_ms: int) -> Allocation:
    # on hosts without Kubernetes, h2 stays out of memory
    from agent.attribution import pod_resources

    message = pod_resources.call(path, pod_resources.METHOD, _SOCKET_TIMEOUT_S)
    return Allocation(pod_resources.parse_list(message, pod_resources.read_minors(proc)), now_ms)


def _pods(settings: AttributionSettings) -> list[dict[str, Any]]:
    places = (settings.kubelet_url, settings.kubelet_token_file, settings.kubelet_ca_file)
    try:
        done = subprocess.run(
            module_command("agent.attribution.pods", *places),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_PROGRAM_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise PodsFailedError(
            f"the kubelet at {settings.kubelet_url} did not answer within {_PROGRAM_TIMEOUT_S:g} s"
        ) from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise PodsFailedError(
            printable(said[-1])[:500] if said else f"asking for pods ended with code {done.returncode}"
        )
    pods: list[dict[str, Any]] = json.loads(done.stdout)
    return pods

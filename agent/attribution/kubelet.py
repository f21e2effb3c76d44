"""Which GPUs Kubernetes allocated to which pod, queried from this node's kubelet in the background.

The pod-resources socket gives the GPUs of each container, every 30 s. Where an address is set, the list of pods gives
container ids and labels, every ten minutes, and when a new container is not in the list.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.attribution.lookups import Background
from agent.attribution.proc import printable, printable_text
from agent.collectors import Collector, Interval, PodServer
from agent.own_process import module_command
from fallow.clock import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent.attribution.lookups import AttributedProcess, Failures, LookupAnswer
    from agent.attribution.placement import Placement
    from agent.attribution.pod_resources import PodContainer
    from agent.attribution.settings import AttributionSettings
    from agent.rows import AllocationRow

_START_SLACK_MS = 1000  # starts are computed from a boot time in whole seconds


@dataclass(frozen=True)
class PodName:
    """A pod and, where the kubelet reports them, its container and further facts."""

    namespace: str
    pod: str
    container: str | None = None
    labels: str | None = None
    runtime: str | None = None
    source: str = "kubelet"


@dataclass(frozen=True)
class Allocation:
    """The answer of the pod-resources socket, and the time of the query."""

    containers: Mapping[str, Sequence[PodContainer]] = field(default_factory=dict)
    asked_ms: int = 0


_Pod = tuple[str, str]
"""Namespace and name."""


def match_by_gpu(
    processes: Iterable[AttributedProcess], allocation: Allocation, taken: Iterable[tuple[str, str]]
) -> dict[str, PodName]:
    """Return pods by pod UID, where the allocated GPUs identify the pod unambiguously.

    A pod matches a UID if it is the only pod with all GPUs of the UID's processes, and no other UID matches the pod.
    The answer must be younger than the first of these processes. A container may use GPUs that are not allocated to it
    (privileged, or with all devices visible); then no pod matches.

    `taken` has namespace and name of pods that are known to belong to other UIDs.
    """
    by_uid: dict[str, list[AttributedProcess]] = {}
    for process in processes:
        if process.placement.pod_uid is not None:
            by_uid.setdefault(process.placement.pod_uid, []).append(process)
    found = {uid: pod for uid, seen in by_uid.items() if (pod := _only_candidate(seen, allocation)) is not None}
    matches = [(pod.namespace, pod.pod) for pod in found.values()]
    matches += taken
    return {uid: pod for uid, pod in found.items() if matches.count((pod.namespace, pod.pod)) == 1}


def _only_candidate(seen: Sequence[AttributedProcess], allocation: Allocation) -> PodName | None:
    starts = [each.started_ms for each in seen if each.started_ms is not None]
    # a pod keeps its GPUs for its whole life: an answer from before its start concerns another pod
    if not starts or min(starts) + _START_SLACK_MS > allocation.asked_ms:
        return None
    gpus = frozenset[str]().union(*(each.gpus for each in seen))
    containers = [set(allocation.containers.get(gpu, ())) for gpu in gpus]
    pods = [{(container.namespace, container.pod) for container in found} for found in containers]
    candidates = set.intersection(*pods) if pods else set()
    if len(candidates) != 1:
        return None
    namespace, pod = candidates.pop()
    names = {
        container.container
        for found in containers
        for container in found
        if (container.namespace, container.pod) == (namespace, pod)
    }
    only_container = len(names) == 1 and len({each.placement.container_id for each in seen}) == 1
    return PodName(namespace, pod, names.pop() if only_container else None, source="pod_resources")


SILENT_MS = DAY_MS
"""Without an answer for this time, the node may have left its cluster: allocations end with the last answer."""

_Key = tuple[str, str]
"""GPU, and the pod as NAMESPACE/POD."""


class PodAllocations(Collector):
    name = "allocations"
    table = "allocation"
    allocation: Callable[[int], Allocation | None]
    """The newest allocation of GPUs to pods by Kubernetes, with its time in ms."""

    def __init__(self, noted: Iterable[Any] = ()) -> None:
        """`noted` is the decoded text of `as_text` of the previous run; damaged entries are ignored."""
        self._since_ms: dict[_Key, int] = {}
        for entry in noted:
            match entry:
                case [str(gpu), str(pod), int(since_ms)]:
                    self._since_ms[gpu, pod] = since_ms
        self._answered_ms: int | None = None  # the newest answer
        self._began_ms: int | None = None

    def collect(self, interval: Interval) -> list[AllocationRow]:
        return self.rows(self.allocation(interval.end_ms), interval.end_ms)

    def rows(self, allocation: Allocation | None, now_ms: int) -> list[AllocationRow]:
        """Return the allocations that began or ended since the last call; none without a new answer from the kubelet.

        `allocation` is None where the kubelet's newest answer is missing or old.
        """
        if allocation is None:
            if self._began_ms is None:
                self._began_ms = now_ms
            heard_ms = self._began_ms if self._answered_ms is None else self._answered_ms
            return self._follow(set(), heard_ms) if now_ms - heard_ms >= SILENT_MS else []
        if allocation.asked_ms == self._answered_ms:
            return []
        self._answered_ms = allocation.asked_ms
        return self._follow(
            {
                (gpu, f"{container.namespace}/{container.pod}")
                for gpu, containers in allocation.containers.items()
                for container in containers
            },
            allocation.asked_ms,
        )

    def as_text(self) -> str:
        """Return the open allocations as JSON, for the next run."""
        return json.dumps([[gpu, pod, since_ms] for (gpu, pod), since_ms in sorted(self._since_ms.items())])

    def _follow(self, present: set[_Key], at_ms: int) -> list[AllocationRow]:
        known = self._since_ms
        gone, new = sorted(known.keys() - present), sorted(present - known.keys())
        ended: list[AllocationRow] = [
            {**_allocation_row(key, known[key], list(known)), "end": max(at_ms, known[key])} for key in gone
        ]
        for key in gone:
            del known[key]
        known.update(dict.fromkeys(new, at_ms))
        return ended + [_allocation_row(key, at_ms, list(known)) for key in new]


def _allocation_row(key: _Key, since_ms: int, known: Sequence[_Key]) -> AllocationRow:
    gpu, pod = key
    namespace, _, name = pod.partition("/")
    return {
        "time": since_ms,
        "gpu": gpu,
        "allocation_id": pod,
        "scheduler": "kubernetes",
        "account": namespace,
        "name": name,
        "gpu_count": sum(other == pod for _, other in known),
    }


_ALLOCATION_MS = 30_000
_NEWS_MS = 5_000  # a new container justifies an early query, but not at every tick
_PODS_MS = 600_000
_PODS_NEWS_MS = 30_000
_LISTED_MS = 3_600_000
_LOOKS = 3  # a container that is missing from this number of lists does not belong to the kubelet
_CURRENT_MS = 120_000
_SOCKET_TIMEOUT_S = 1.0
_PROGRAM_TIMEOUT_S = 20.0
_LOCAL_S = 0.05  # how long a new container may delay the tick

_RUNTIMES = {"docker": "docker", "containerd": "containerd", "cri-o": "cri-o"}


class PodsFailedError(Exception):
    """The program that fetches the pods has failed; the message is its output."""


class Kubelet:
    """The kubelet's answers; the newest stays valid while the kubelet does not answer."""

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
        self._metrics: dict[_Pod, str] = {}
        self._listed_ms = 0
        self._outdated_ms = -1
        self._seen: set[str] = set()
        self._looked_for: dict[str, int] = {}

    @property
    def on(self) -> bool:
        """Return whether there is a kubelet to query: a socket that exists or existed, or an address."""
        return bool(self._settings.kubelet_url) or self._has_socket()

    def refresh(self, processes: Sequence[AttributedProcess], now_ms: int) -> None:
        """Send the queries that are due and take the answers that have arrived; waits only for a new container."""
        self.wait(0.0)
        # containers that Docker or podman runs without Kubernetes do not belong to the kubelet
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
            news = self._listed_ms <= self._outdated_ms or any(looks < _LOOKS for looks in self._looked_for.values())
            if _due(self._asked_pods_ms, now_ms, _PODS_NEWS_MS if news else _PODS_MS):
                self._ask_pods(now_ms)
        # the socket answers within milliseconds, but the program takes longer than a tick may wait
        if new and (allocation := self._asking.take(_LOCAL_S)):
            self._take_allocation(allocation)

    def wait(self, wait_s: float) -> None:
        """Take the answers that have arrived, or arrive within the wait."""
        if allocation := self._asking.take(wait_s):
            self._take_allocation(allocation)
        if pods := self._asking_pods.take(wait_s):
            self._take_pods(pods)

    def allocation(self, now_ms: int) -> Allocation | None:
        """Return the newest allocation of GPUs; None where the answer is missing or older than two minutes."""
        if self._allocation is None or abs(now_ms - self._allocation.asked_ms) > _CURRENT_MS:
            return None
        return self._allocation

    def locate(self, processes: Sequence[AttributedProcess]) -> dict[Placement, PodName]:
        """Return the known pods by placement."""
        found = {}
        for placement in {process.placement for process in processes}:
            pod = self._containers.get(placement.container_id or "") or self._pods.get(placement.pod_uid or "")
            if pod is not None:
                found[placement] = pod
        if self._allocation is not None:
            known = {placement.pod_uid for placement in found}
            taken = {(pod.namespace, pod.pod) for pod in found.values()}
            unmatched = [each for each in processes if each.placement.pod_uid not in known]
            by_uid = match_by_gpu(unmatched, self._allocation, taken)
            found |= {
                each.placement: by_uid[uid] for each in unmatched if (uid := each.placement.pod_uid or "") in by_uid
            }
        return found

    def servers(self, processes: Sequence[AttributedProcess], now_ms: int, outdated_ms: int) -> list[PodServer]:
        """Return the pods with metrics in the allowed namespaces, with their GPUs; none by a list older than an hour.

        A list of up to `outdated_ms` is replaced soon.
        """
        self._outdated_ms = outdated_ms
        if abs(now_ms - self._listed_ms) > _LISTED_MS:
            return []  # addresses of pods that have gone may be other pods' by now
        held: dict[_Pod, set[str]] = {key: set() for key in self._metrics}
        allocated: dict[_Pod, set[str]] = {key: set() for key in self._metrics}
        pods = self.locate(processes)
        for process in processes:
            if (pod := pods.get(process.placement)) is not None and (pod.namespace, pod.pod) in held:
                held[pod.namespace, pod.pod].update(process.gpus)
        for gpu, containers in (self._allocation or Allocation()).containers.items():
            for container in containers:
                allocated.get((container.namespace, container.pod), set()).add(gpu)
        return [
            PodServer(*key, url, tuple(sorted(held[key] or allocated[key])), self._listed_ms)
            for key, url in self._metrics.items()
        ]

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
            f"the kubelet's socket {path} is unusable: {reason}; mount its folder, not the "
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
        self._containers, self._pods, self._metrics = {}, {}, {}
        self._listed_ms = self._asked_pods_ms or 0
        for pod in answer.result:
            namespace, name = printable_text(pod["namespace"]), printable_text(pod["pod"])
            if namespace in self._settings.server_namespaces and pod["metrics"]:
                self._metrics[namespace, name] = pod["metrics"]
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
        errors = done.stderr.strip().splitlines()
        raise PodsFailedError(
            printable(errors[-1])[:500] if errors else f"the query for pods ended with exit code {done.returncode}"
        )
    pods: list[dict[str, Any]] = json.loads(done.stdout)
    return pods

"""Reads when pods, Workloads of Kueue and Jobs asked for GPUs, got them and released them.

Fields of pods and Jobs are those of Kubernetes' API reference, v1 and batch/v1; those of Workloads of kueue.x-k8s.io/v1beta1 and v1beta2
(kueue.sigs.k8s.io/docs/reference), of which v1beta2 alone has `priorityClassRef`, and v1beta1 `priorityClassName`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from analytics.importers.records import listed_items
from analytics.importers.source import InputLimits
from fallow.clock import to_ms
from fallow.errors import InputError

EXPORT = "kubectl get pods,jobs,workloads.kueue.x-k8s.io -A -o json"
"""The command whose output is imported; leave out the kinds that the cluster does not have."""

Object = dict[str, Any]


def read_objects(path: str, text: bytes, limits: InputLimits) -> Iterator[Object]:
    """Return the objects, each with its `kind`. Raises InputError for text that is not JSON of Kubernetes."""
    try:
        around, _ = yield from listed_items(path, text, ("items", "object"), limits, lambda each: each)
        kind = str(around["kind"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _list_error(path, error) from error
    if not kind.endswith("List"):
        raise _list_error(path, f"its kind is {kind[:40]}")


def _list_error(path: str, why: object) -> InputError:
    return InputError(f"{path} is not the JSON of a list of Kubernetes objects ({why})", f"export it with: {EXPORT}")


_GPU = re.compile(r"nvidia\.com/(?:gpu|(mig-\d+g\.[\w.]*gb[\w.+-]*))(?<!\.shared)")
"""Resources whose unit is a GPU or a MIG instance for one user alone."""
_MODELS = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "karpenter.k8s.aws/instance-gpu-name")
_POOLS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "karpenter.sh/nodepool",
)
"""Labels of nodes by which a pod chooses its GPU model and its node pool."""
_PROJECTS = ("project", "app.kubernetes.io/part-of")
_QUEUE = "kueue.x-k8s.io/queue-name"
_WORKLOADS = ("kueue.x-k8s.io/workload", "kueue.x-k8s.io/pod-group-name")
"""The annotation that Kueue sets on the pods that it admits, and the label that groups pods under a Workload of that name."""


@dataclass(frozen=True)
class GpuDemand:
    """What the containers of one pod ask for: GPUs, or MIG instances; None for a kind that is not stated."""

    gpus: int
    model: str | None
    pool: str | None
    priority_class: str | None


@dataclass(frozen=True)
class ClusterObject:
    """Fields that pods, Workloads and Jobs share; times in milliseconds."""

    namespace: str
    name: str
    uid: str
    owners: tuple[tuple[str, str], ...]
    """UID and name of the objects that created it, the controller first."""
    created: int
    latest: int
    """The newest moment that the object states."""
    partition: str | None
    """The queue of the object."""
    project: str | None
    priority: int | None
    time_limit_s: int | None

    @property
    def allocation_id(self) -> str:
        """Return the id in the form that agents write."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Pod(ClusterObject):
    demand: GpuDemand
    workload: str | None
    """The name of its Workload, where the pod states one."""
    node: str | None
    placed: int | None
    """When it was bound to its node; None while it waits."""
    is_over: bool
    ended: int | None
    state: str
    reason: str | None


@dataclass(frozen=True)
class KueueWorkload(ClusterObject):
    """A Workload of Kueue, as columns of requests need it."""

    gpu_count: int
    gpu_model: str | None
    qos: str | None
    state: str
    reason: str | None
    admitted: int | None
    """When it was admitted; None while it waits, for the first time or again."""
    finished: int | None
    evicted: int | None
    """When it was last evicted, if it has waited since then."""
    was_evicted: bool


def pod_of(each: Object) -> Pod:
    """Return the pod. Raises LookupError, TypeError, ValueError and AttributeError for an object that Kubernetes cannot have written."""
    meta, spec, status = each["metadata"], each["spec"], each.get("status") or {}
    conditions = _conditions(status)
    ends = _container_ends(status)
    phase = str(status.get("phase") or "Unknown")
    is_over = phase in ("Succeeded", "Failed")
    ready, placed = conditions.get("Ready"), conditions.get("PodScheduled")
    at_end = [*ends, *([ready[1]] if not ends and ready is not None and ready[0] == "False" else [])]
    is_placed = spec.get("nodeName") and placed is not None and placed[0] == "True"
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    return Pod(
        **_common_fields(each, (*ends, *(at for _, at, _ in conditions.values()))),
        partition=labels.get(_QUEUE),
        priority=spec.get("priority"),
        time_limit_s=spec.get("activeDeadlineSeconds"),
        demand=demand_of(spec),
        workload=_first_label({**labels, **annotations}, _WORKLOADS),
        node=spec.get("nodeName"),
        placed=placed[1] if is_placed and placed is not None else _moment_ms(status.get("startTime")),
        is_over=is_over,
        ended=max(at_end, default=None) if is_over else None,
        state=str(status.get("reason") or phase),
        reason=placed[2] if placed is not None and placed[0] == "False" else None,
    )


def workload_of(each: Object) -> KueueWorkload:
    """Return the Workload. Raises as `pod_of`."""
    spec = each["spec"]
    conditions = _conditions(each.get("status") or {})
    times = {name: at for name, (status, at, _) in conditions.items() if status == "True"}
    sets = [(int(each_set.get("count", 1)), demand_of(each_set["template"]["spec"])) for each_set in spec["podSets"]]
    models = {demand.model for _, demand in sets if demand.gpus}
    waits_for = next(
        (conditions[name] for name in ("QuotaReserved", "Admitted") if name in conditions and name not in times), None
    )
    is_active = spec.get("active") is not False
    return KueueWorkload(
        **_common_fields(each, [at for _, at, _ in conditions.values()]),
        partition=spec.get("queueName"),
        priority=spec.get("priority"),
        time_limit_s=spec.get("maximumExecutionTimeSeconds"),
        gpu_count=sum(count * demand.gpus for count, demand in sets),
        gpu_model=models.pop() if len(models) == 1 else None,
        qos=(spec.get("priorityClassRef") or {}).get("name") or spec.get("priorityClassName") or None,
        state="Finished" if "Finished" in times else "Pending" if is_active else "Inactive",
        reason=None if waits_for is None else waits_for[2],
        admitted=times.get("Admitted"),
        finished=times.get("Finished"),
        evicted=times.get("Evicted"),
        was_evicted="Evicted" in conditions,
    )


def job_of(each: Object) -> ClusterObject:
    """Return the Job. Raises as `pod_of`."""
    limit = (each.get("spec") or {}).get("activeDeadlineSeconds")
    return ClusterObject(**_common_fields(each, ()), partition=None, priority=None, time_limit_s=limit)


def demand_of(spec: Mapping[str, Any]) -> GpuDemand:
    """Return what a pod with this spec asks for.

    Containers are added up, and sidecars with them; other init containers run before these, one after another
    (kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers).
    """
    at_once, before = Counter[str](), Counter[str]()
    for container in spec.get("containers") or ():
        at_once += _gpus(container)
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            at_once += _gpus(container)
        else:
            before |= _gpus(container)
    asked = at_once | before
    kinds = {found[1] for name in asked if (found := _GPU.fullmatch(name))}
    selector = spec.get("nodeSelector") or {}
    profile = kinds.pop() if len(kinds) == 1 else None
    return GpuDemand(
        asked.total(),
        profile or _first_label(selector, _MODELS),
        _first_label(selector, _POOLS),
        spec.get("priorityClassName"),
    )


def _gpus(container: Mapping[str, Any]) -> Counter[str]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return Counter({name: int(count) for name, count in asked.items() if _GPU.fullmatch(name)})


def _common_fields(each: Object, moments: Iterable[int]) -> dict[str, Any]:
    meta = each["metadata"]
    created = _moment_ms(meta["creationTimestamp"])
    if created is None:
        raise ValueError("no creationTimestamp")
    owners = sorted(meta.get("ownerReferences") or (), key=lambda owner: not owner.get("controller"))
    return {
        "namespace": str(meta["namespace"]),
        "name": str(meta["name"]),
        "uid": str(meta["uid"]),
        "owners": tuple((str(owner["uid"]), str(owner["name"])) for owner in owners),
        "created": created,
        "latest": max((created, *moments)),
        "project": _first_label(meta.get("labels") or {}, _PROJECTS),
    }


def _conditions(status: Mapping[str, Any]) -> dict[str, tuple[str, int, str | None]]:
    """Return status, time of the last transition and reason by type."""
    return {
        each["type"]: (each["status"], at, each.get("reason"))
        for each in status.get("conditions") or ()
        if (at := _moment_ms(each.get("lastTransitionTime"))) is not None
    }


def _container_ends(status: Mapping[str, Any]) -> Sequence[int]:
    ended = [(each.get("state") or {}).get("terminated") or {} for each in status.get("containerStatuses") or ()]
    return [at for each in ended if (at := _moment_ms(each.get("finishedAt"))) is not None]


def _first_label(labels: Mapping[str, str], names: Sequence[str]) -> str | None:
    return next((labels[name] for name in names if labels.get(name)), None)


def _moment_ms(text: str | None) -> int | None:
    """Return the milliseconds of an RFC 3339 time. Raises ValueError for anything else."""
    return None if text is None else to_ms(datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z"))

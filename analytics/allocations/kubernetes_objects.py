"""Reads when pods, Kueue's Workloads and Jobs requested, got and released GPUs, and what nodes and claims add.

Fields are those of Kubernetes' API reference, v1, batch/v1 and resource.k8s.io/v1; for Workloads kueue.x-k8s.io/v1beta1
(with `priorityClassName`) and v1beta2 (with `priorityClassRef`), kueue.sigs.k8s.io/docs/reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from analytics.allocations.kubernetes_demand import (
    ClaimedDevices,
    GpuDemand,
    GpuGroups,
    demand_of,
    devices_of,
    first_label,
    groups_of,
    hami_devices,
    uuids_of,
)
from analytics.importers.records import BETWEEN, document_at, end_of, fault_of, listed_items
from analytics.importers.source import InputLimits
from fallow.clock import SECOND_MS, to_ms
from fallow.errors import InputError

EXPORT = "kubectl get nodes,pods,jobs -A -o json"
"""The command whose output is imported, with the kinds that every cluster has."""

Object = dict[str, Any]


def read_objects(path: str, text: bytes, limits: InputLimits) -> Iterator[Object]:
    """Return the objects, each with its `kind`, in the API's camelCase.

    The text is a list, an array, an object, or several of them one after another, such as a line each; an event of a
    watch stands for its object. Raises InputError for text that is not JSON of Kubernetes.
    """
    at = 0
    while (at := end_of(BETWEEN, text, at)) < len(text):
        try:
            found = document_at(path, text, at, limits)
        except InputError:
            found = None
        if found is None:  # a list may be longer than a document may be
            yield from _items_of_long_list(path, text[at:], limits)
            return
        value, at = found
        yield from _objects_in(path, value)


def _objects_in(path: str, value: Any) -> Iterator[Object]:
    if not isinstance(value, dict):
        raise _list_error(path, f"it has a value that is no object: {str(value)[:40]}")
    if isinstance(value.get("object"), dict):
        value = value["object"]
    kind = str(value.get("kind"))
    if kind == "Status":
        raise InputError(
            f"{path} has no objects, but what the API server answered: {str(value.get('message'))[:200]}",
            "export with an account that may list them",
        )
    if "items" in value and not kind.endswith("List"):
        raise _list_error(path, f"its kind is {kind[:40]}")
    if "items" not in value and "metadata" not in value:
        raise _list_error(path, f"it has a value without items and without metadata: {str(value)[:40]}")
    for each in value["items"] or () if "items" in value else [value]:
        if not isinstance(each, dict):
            raise _list_error(path, f"an item is no object: {str(each)[:40]}")
        yield _named(each, kind.removesuffix("List"))


def _items_of_long_list(path: str, text: bytes, limits: InputLimits) -> Iterator[Object]:
    """Yield the items of one list, which is never in memory as a whole."""
    if not text.startswith(b"{"):
        first = text.partition(b"\n")[0].decode(errors="replace").strip()
        is_yaml = re.match(r"---|(apiVersion|items|kind|metadata):", first) is not None
        raise _list_error(path, "it is YAML" if is_yaml else f"it begins with '{first[:60]}'")
    found = _LIST_KIND.search(text)
    listed = found[1].decode() if found else ""
    try:
        yield from listed_items(path, text, ("items", "object"), limits, lambda each: _named(each, listed))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _list_error(path, fault_of(error)) from error


_LIST_KIND = re.compile(rb'"kind"\s*:\s*"(\w*)List"')
"""The kind of the list; the items of a PodList have none of their own."""
_MAPS = ("labels", "annotations", "nodeSelector", "limits", "requests", "capacity", "allocatable")
"""Fields whose keys are names, not fields."""


def _named(each: Object, listed: str) -> Object:
    """Return an object of a list with its kind, and in camelCase where a client library wrote snake_case."""
    fields = _camel_case(each) if "creation_timestamp" in (each.get("metadata") or {}) else each
    return fields | {"kind": fields.get("kind") or listed}


def _camel_case(value: Any) -> Any:
    if isinstance(value, list):
        return [_camel_case(each) for each in value]
    if not isinstance(value, dict):
        return value
    fields = {re.sub("_([a-z])", lambda found: found[1].upper(), key): each for key, each in value.items()}
    return {key: each if key in _MAPS and isinstance(each, dict) else _camel_case(each) for key, each in fields.items()}


def _list_error(path: str, why: str) -> InputError:
    return InputError(f"{path} is not JSON of Kubernetes objects: {why}", f"export it with: {EXPORT}")


_GPU = "nvidia.com/gpu"
_PROJECTS = ("project", "app.kubernetes.io/part-of")
_QUEUE = "kueue.x-k8s.io/queue-name"
_WORKLOADS = ("kueue.x-k8s.io/workload", "kueue.x-k8s.io/pod-group-name")
"""The annotation that Kueue sets on admitted pods, and the label that groups pods under a Workload of that name."""


@dataclass(frozen=True, kw_only=True)
class ClusterObject:
    """Fields that all objects share; times in milliseconds."""

    namespace: str
    name: str
    uid: str
    owners: tuple[tuple[str, str], ...]
    """UID and name of the objects that created it, the controller first."""
    created: int
    latest: int
    """The newest moment that the object states."""
    partition: str | None = None
    """The queue of the object."""
    project: str | None
    priority: int | None = None
    time_limit_s: int | None = None

    @property
    def allocation_id(self) -> str:
        """Return the id in the form that agents write."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class Pod(ClusterObject):
    demand: GpuDemand
    groups: GpuGroups
    given: tuple[tuple[str, ...], str | None]
    """UUIDs of its GPUs, and what is stated of a share, where its scheduler wrote them on it."""
    workload: str | None
    """The name of its Workload, where the pod states one."""
    node: str | None
    placed: int | None
    """When it was bound to its node; None while it waits."""
    is_over: bool
    is_rejected: bool
    """Its node refused it, so that it never had a GPU."""
    ended: int | None
    """None while it runs, and where the object does not tell."""
    state: str
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class KueueWorkload(ClusterObject):
    """A Workload of Kueue, as columns of requests need it."""

    sets: tuple[tuple[int, GpuDemand], ...]
    """Numbers of pods, and what each of them asks for."""
    qos: str | None
    state: str
    reason: str | None
    admitted: int | None
    """When it was admitted; None while it waits, for the first time or again."""
    finished: int | None
    evicted: int | None
    """When it was last evicted, if it has waited since then."""
    was_evicted: bool


@dataclass(frozen=True, kw_only=True)
class Node(ClusterObject):
    labels: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class ResourceClaim(ClusterObject):
    """A claim for devices, or a template of such claims."""

    is_template: bool
    devices: ClaimedDevices
    pod_claim: str | None
    """Its name in the pod that it was made for."""
    users: frozenset[str]
    """UIDs of the pods that may use it now."""


@dataclass(frozen=True, kw_only=True)
class ResourceSlice(ClusterObject):
    """Devices that a driver offers."""

    uuids: Mapping[tuple[str, str], str]
    """By pool and name."""
    generation: int
    """That of its pool: slices of an older one no longer count."""


def pod_of(each: Object) -> Pod:
    """Return the pod. Raises LookupError, TypeError, ValueError and AttributeError for an object that is no pod."""
    meta, spec, status = each["metadata"], each["spec"], each.get("status") or {}
    conditions = _conditions(status)
    phase, reason = str(status.get("phase") or "Unknown"), str(status.get("reason") or "")
    is_over = phase in ("Succeeded", "Failed")
    scheduled, started = conditions.get("PodScheduled"), _moment_ms(status.get("startTime"))
    is_placed = spec.get("nodeName") and scheduled is not None and scheduled[0] == "True"
    placed = scheduled[1] if is_placed and scheduled is not None else started
    start = max(placed or 0, started or 0)
    ends = _ends(spec, status, conditions, start) if is_over else []
    newest = max((at for _, at, _ in conditions.values()), default=0)
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    demand = demand_of(spec, status)
    return Pod(
        **_common_fields(each, (*_finishes(status), *ends, *(at for _, at, _ in conditions.values()))),
        partition=labels.get(_QUEUE),
        priority=spec.get("priority"),
        time_limit_s=spec.get("activeDeadlineSeconds"),
        demand=demand,
        groups=groups_of(meta, demand),
        given=hami_devices(annotations),
        workload=first_label({**labels, **annotations}, _WORKLOADS),
        node=spec.get("nodeName"),
        placed=placed,
        is_over=is_over,
        is_rejected=is_over and not ends and reason.startswith(_REJECTED) and newest <= start + _SAME_MS,
        ended=max(ends, default=None),
        state=reason or phase,
        reason=scheduled[2] if scheduled is not None and scheduled[0] == "False" else None,
    )


_REJECTED = ("OutOf", "UnexpectedAdmissionError", "NodeAffinity", "TopologyAffinityError")
"""A kubelet's reasons to refuse a pod (kubernetes.io/docs/concepts/scheduling-eviction, pkg/kubelet/lifecycle)."""
_SAME_MS = 10 * SECOND_MS
"""A node writes the first conditions of a pod within this time after its start."""


def _ends(spec: Object, status: Object, conditions: Mapping[str, _Condition], start: int) -> list[int]:
    """Return the moments at which a pod that is over may have ended, the last of them its end; none where unknown.

    Ready is false when a pod starts, so it marks an end only if it changed later.
    """
    ends = _finishes(status)
    disrupted, ready = conditions.get("DisruptionTarget"), conditions.get("Ready")
    started, deadline_s = _moment_ms(status.get("startTime")), spec.get("activeDeadlineSeconds")
    if disrupted is not None and disrupted[0] == "True":
        ends.append(disrupted[1])
    if status.get("reason") == "DeadlineExceeded" and started is not None and deadline_s is not None:
        ends.append(started + int(deadline_s) * SECOND_MS)
    is_complete = bool(status.get("containerStatuses")) and all(map(_finish_ms, status["containerStatuses"]))
    if not is_complete and ready is not None and ready[0] == "False" and ready[1] > start + _SAME_MS:
        ends.append(ready[1])
    return ends


def _finishes(status: Object) -> list[int]:
    """Return when containers of any kind last ended; one that waits to start again has its end in its last state."""
    kinds = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    found = [each for kind in kinds for each in status.get(kind) or ()]
    return [end for each in found for state in ("state", "lastState") if (end := _finish_ms(each, state))]


def _finish_ms(container: Object, state: str = "state") -> int | None:
    """Return when a container ended; None or 0, the zero time, where that is not known."""
    return _moment_ms(((container.get(state) or {}).get("terminated") or {}).get("finishedAt"))


def workload_of(each: Object) -> KueueWorkload:
    """Return the Workload. Raises as `pod_of`."""
    spec = each["spec"]
    conditions = _conditions(each.get("status") or {})
    times = {name: at for name, (status, at, _) in conditions.items() if status == "True"}
    sets = [
        (int(each_set.get("count", 1)), demand_of(each_set["template"]["spec"], {})) for each_set in spec["podSets"]
    ]
    waits_for = next(
        (conditions[name] for name in ("QuotaReserved", "Admitted") if name in conditions and name not in times), None
    )
    is_active = spec.get("active") is not False
    return KueueWorkload(
        **_common_fields(each, [at for _, at, _ in conditions.values()]),
        partition=spec.get("queueName"),
        priority=spec.get("priority"),
        time_limit_s=spec.get("maximumExecutionTimeSeconds"),
        sets=tuple(sets),
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
    return ClusterObject(**_common_fields(each, ()), time_limit_s=limit)


def node_of(each: Object) -> Node:
    """Return the node. Raises as `pod_of`."""
    meta, status = each["metadata"], each.get("status") or {}
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    cards, offered = labels.get(f"{_GPU}.count", ""), str((status.get("capacity") or {}).get(_GPU, ""))
    is_sliced = cards.isdecimal() and offered.isdecimal() and int(offered) > int(cards) > 0
    # MIG instances go by the same name, and HAMi offers more than it gives out
    if (
        is_sliced
        and "MIG" not in labels.get(f"{_GPU}.product", "")
        and not any("hami.io/" in name for name in annotations)
    ):
        labels = {f"{_GPU}.replicas": str(int(offered) // int(cards)), **labels}
    return Node(**_common_fields(each, ()), labels=labels)


def claim_of(each: Object) -> ResourceClaim:
    """Return the ResourceClaim, or the ResourceClaimTemplate. Raises as `pod_of`."""
    status, notes = each.get("status") or {}, each["metadata"].get("annotations") or {}
    is_template = each["kind"] == "ResourceClaimTemplate"
    spec = each["spec"]["spec"] if is_template else each["spec"]
    at = _moment_ms((status.get("allocation") or {}).get("allocationTimestamp"))
    return ResourceClaim(
        **_common_fields(each, () if at is None else (at,)),
        is_template=is_template,
        devices=devices_of(spec, status),
        pod_claim=notes.get("resource.kubernetes.io/pod-claim-name"),
        users=frozenset(str(user["uid"]) for user in status.get("reservedFor") or ()),
    )


def slice_of(each: Object) -> ResourceSlice:
    """Return the ResourceSlice. Raises as `pod_of`."""
    spec = each["spec"]
    generation = int((spec.get("pool") or {}).get("generation") or 0)
    return ResourceSlice(**_common_fields(each, ()), uuids=uuids_of(spec), generation=generation)


def _common_fields(each: Object, moments: Iterable[int]) -> dict[str, Any]:
    meta = each["metadata"]
    created = _moment_ms(meta["creationTimestamp"])
    if created is None:
        raise ValueError("no creationTimestamp")
    owners = sorted(meta.get("ownerReferences") or (), key=lambda owner: not owner.get("controller"))
    return {
        "namespace": str(meta.get("namespace") or ""),
        "name": str(meta["name"]),
        "uid": str(meta["uid"]),
        "owners": tuple((str(owner["uid"]), str(owner["name"])) for owner in owners),
        "created": created,
        "latest": max((created, *moments)),
        "project": first_label(meta.get("labels") or {}, _PROJECTS),
    }


_Condition = tuple[str, int, str | None]


def _conditions(status: Mapping[str, Any]) -> dict[str, _Condition]:
    """Return status, time of the last transition and reason by type."""
    return {
        each["type"]: (each["status"], at, each.get("reason"))
        for each in status.get("conditions") or ()
        if (at := _moment_ms(each.get("lastTransitionTime"))) is not None
    }


def _moment_ms(text: str | None) -> int | None:
    """Return the milliseconds of an RFC 3339 time. Raises ValueError for anything else."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"'{text[:40]}' is not a time") from None
    if moment.tzinfo is None:
        raise ValueError(f"{text[:40]} has no time zone")
    return to_ms(moment)

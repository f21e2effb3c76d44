"""Pods, Jobs and Workloads as `kubectl get ... -o json` prints them, cut to what concerns GPUs; times in s after T0."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fallow.clock import format_ms
from tests.ledger.rows import ms

if TYPE_CHECKING:
    from collections.abc import Sequence

Object = dict[str, Any]


def at(seconds: float) -> str:
    return format_ms(ms(seconds))


def kubectl(*items: Object) -> str:
    return json.dumps(
        {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}, indent=4
    )


def meta(name: str, created: float, owner: str = "", **more: Any) -> Object:
    owners = (
        [{"apiVersion": "batch/v1", "controller": True, "kind": "Job", "name": owner, "uid": f"uid-{owner}"}]
        if owner
        else []
    )
    return {
        "namespace": "nlp",
        "name": name,
        "uid": f"uid-{name}",
        "creationTimestamp": at(created),
        "ownerReferences": owners,
    } | more


def condition(kind: str, when: float, status: str = "True", reason: str = "") -> Object:
    return {"type": kind, "status": status, "lastTransitionTime": at(when), "reason": reason}


def pod_spec(gpus: int, resource: str = "nvidia.com/gpu", **more: Any) -> Object:
    return {"containers": [{"name": "main", "resources": {"limits": {resource: str(gpus), "cpu": "8"}}}]} | more


def pod(
    name: str, created: float, placed: float | None = None, ended: float | None = None, *, gpus: int = 2,
    owner: str = "", spec: Object | None = None, **more: Any,
) -> Object:  # fmt: skip
    """One that waits, runs or is over."""
    scheduled = (
        condition("PodScheduled", created, "False", "Unschedulable")
        if placed is None
        else condition("PodScheduled", placed)
    )
    status: Object = {
        "phase": "Pending" if placed is None else "Running" if ended is None else "Succeeded",
        "conditions": [scheduled],
    }
    if ended is not None:
        status["containerStatuses"] = [{"state": {"terminated": {"finishedAt": at(ended), "exitCode": 0}}}]
    asked = pod_spec(gpus) | (spec or {}) | ({} if placed is None else {"nodeName": "gn1"})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta(name, created, owner, **more),
        "spec": asked,
        "status": status,
    }


def job(name: str, created: float, **spec: Any) -> Object:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta(name, created), "spec": spec, "status": {}}


def workload(name: str, created: float, *conditions: Object, owner: str = "", pods: int = 4, **spec: Any) -> Object:
    sets: Sequence[Object] = [{"name": "main", "count": pods, "template": {"spec": pod_spec(2)}}]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": meta(name, created, owner),
        "spec": {"active": True, "podSets": sets, "queueName": "train", "priority": 100} | spec,
        "status": {"conditions": list(conditions)},
    }


def ended(seconds: float) -> Object:
    """A container that ended then."""
    return {"name": "c", "state": {"terminated": {"finishedAt": at(seconds), "exitCode": 1}}}


def claim(
    name: str, *devices: tuple[str, str], asks: Sequence[Object] = (), users: Sequence[str] = (), **more: Any
) -> Object:
    """A ResourceClaim; each device is that of a driver."""
    results = [
        {"request": "r", "driver": driver, "pool": "gn1", "device": device} | more.pop("result", {})
        for driver, device in devices
    ]
    status: Object = {"reservedFor": [{"resource": "pods", "name": each, "uid": f"uid-{each}"} for each in users]}
    if devices:
        status["allocation"] = {"devices": {"results": results}, "allocationTimestamp": at(20)}
    spec = {"devices": {"requests": list(asks)}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": meta(name, 0, **more),
        "spec": spec,
        "status": status,
    }


def template(name: str, *asks: Object) -> Object:
    spec = {"spec": {"devices": {"requests": list(asks)}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": meta(name, 0),
        "spec": spec,
    }


def resource_slice(
    *devices: tuple[str, str], generation: int = 1, basic: bool = False, driver: str = "gpu.nvidia.com"
) -> Object:
    """A ResourceSlice of the pool gn1 with devices and their UUIDs; with `basic` as up to v1beta1."""
    named = [(name, {"attributes": {"type": {"string": "gpu"}, "uuid": {"string": uuid}}}) for name, uuid in devices]
    own = [{"name": name, "basic": each} if basic else {"name": name, **each} for name, each in named]
    pool = {"name": "gn1", "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": "gn1", "pool": pool, "devices": own}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": meta(f"gn1-{generation}", 0),
        "spec": spec,
    }


def claims(**named: str) -> Object:
    """A pod's spec without any GPU resource, with claims; a name that begins with `t-` is that of a template."""
    own = [
        {"name": name, "resourceClaimTemplateName" if each.startswith("t-") else "resourceClaimName": each}
        for name, each in named.items()
    ]
    return {
        "containers": [{"name": "main", "resources": {"claims": [{"name": each} for each in named]}}],
        "resourceClaims": own,
    }

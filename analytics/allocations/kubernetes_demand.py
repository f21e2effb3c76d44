"""What pods ask of GPUs: whole GPUs and MIG instances, shares of a GPU, and devices by resource claims.

Sources: Kubernetes' API reference (v1, resource.k8s.io/v1, v1beta1), GKE on time-sharing and MPS, NVIDIA's GPU feature
discovery (node labels), KAI on GPU sharing, HAMi's user guide (project-hami.io/docs/userguide).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MIG = r"mig-\d+g\.[\w.]*gb[\w.+-]*"
_WHOLE = re.compile(
    rf"nvidia\.com/(?:gpu|({_MIG}))(?<!\.shared)"
    r"|deviceclass\.resource\.kubernetes\.io/(?:gpu|mig|vfio\.gpu)\.nvidia\.com"
)
"""Resources whose unit is a GPU or a MIG instance for one user alone."""
_SHARED = re.compile(rf"nvidia\.com/(?:gpu|{_MIG})\.shared")
_GPU_LIKE = re.compile(r"(?i).*(?:gpu|vcuda|gaudi|nvidia\.com/(?:mig-|NVIDIA_|GRID_|[A-Z]{2}\d{2,3}))")
"""Every resource that may be a GPU, also those of other vendors and of virtual machines."""
_CORES = ("nvidia.com/gpucores", "volcano.sh/vgpu-cores")
_SHARES = {
    **dict.fromkeys(_CORES, "{:,} % of its cores"),
    **dict.fromkeys(("nvidia.com/gpumem-percentage", "volcano.sh/vgpu-memory-percentage"), "{:,} % of its memory"),
    **dict.fromkeys(("nvidia.com/gpumem", "volcano.sh/vgpu-memory"), "{:,} MiB of its memory"),
}
"""Resources that limit a container to a part of each of its GPUs, and how a sentence says it."""
_STRATEGIES = ("cloud.google.com/gke-gpu-sharing-strategy",)
_CLIENTS = ("cloud.google.com/gke-max-shared-clients-per-gpu",)
_PARTITION = "cloud.google.com/gke-gpu-partition-size"
_MODELS = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "karpenter.k8s.aws/instance-gpu-name")
_POOLS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "karpenter.sh/nodepool",
)
"""Labels of nodes by which a pod chooses its GPU model and its node pool."""

NO_GPU = "no GPU or MIG instance of its own"
CLAIMS = "devices by resource claims"


@dataclass(frozen=True)
class GpuDemand:
    """What the containers of one pod ask for; None for a kind that is not stated."""

    asked: Mapping[str, int]
    """Whole GPUs, or MIG instances, by resource."""
    selector: Mapping[str, str]
    """Labels that its node must have."""
    part: str | None
    """What its containers state of a share of a GPU; empty if they do not state its size, None without a share."""
    others: tuple[str, ...]
    """Resources that are GPUs, and whose unit is not known."""
    claims: tuple[tuple[str, str | None, str | None], ...]
    """Name in the pod, ResourceClaim and ResourceClaimTemplate of its claims."""
    priority_class: str | None

    @property
    def gpus(self) -> int:
        return sum(self.asked.values())

    @property
    def model(self) -> str | None:
        profiles = {found[1] for name in self.asked if (found := _WHOLE.fullmatch(name))}
        size = self.selector.get(_PARTITION)
        profile = profiles.pop() if len(profiles) == 1 else None
        return profile or (f"mig-{size}" if size else first_label(self.selector, _MODELS))

    @property
    def pool(self) -> str | None:
        return first_label(self.selector, _POOLS)

    def share_on(self, node: Mapping[str, str]) -> str | None:
        """Return what is stated of the pod's share, by the node's labels too, empty if nothing; None for whole GPUs."""
        if not self.asked:
            return self.part
        labels = {**node, **self.selector}
        clients = first_label(labels, (*_CLIENTS, *(f"{name}.replicas" for name in self.asked)))
        if clients is not None:
            return f"one of {clients} clients" if clients not in ("0", "1") else None
        strategy = first_label(labels, (*_STRATEGIES, *(f"{name}.sharing-strategy" for name in self.asked)))
        is_shared = strategy not in (None, "none") or labels.get(_MODELS[0], "").endswith("-SHARED")
        return "" if is_shared else None

    def uncounted(self, share: str | None) -> str:
        """Return why a pod with this demand, of which nothing is counted, has no allocation."""
        if share is not None:
            return f"a share of a GPU: {share or 'how much is not known'}"
        if self.others:
            return f"GPUs by {', '.join(self.others)}, which this import does not count"
        return NO_GPU


def demand_of(spec: Mapping[str, Any], status: Mapping[str, Any]) -> GpuDemand:
    """Return what a pod with this spec asks for. Its status names the ResourceClaims that Kubernetes made for it.

    Containers are added up, and sidecars with them; other init containers run before these, one after another
    (kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers).
    """
    at_once, before = Counter[str](), Counter[str]()
    parts: list[str] = []
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or ():
            amounts = _amounts(container.get("resources") or {})
            if (part := _part_of(amounts)) is not None:
                parts.append(part)
            elif kind == "containers" or container.get("restartPolicy") == "Always":
                at_once += amounts
            else:
                before |= amounts
    asked = at_once | before
    claim_names = {each["name"]: each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
    whole = {name: count for name, count in asked.items() if _WHOLE.fullmatch(name)}
    # the claim names the other resources that a driver of claims provides
    by_class = (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName") if not whole else None
    return GpuDemand(
        whole,
        _selector(spec),
        ", ".join(filter(None, sorted(set(parts)))) if parts else None,
        tuple(sorted(name for name in asked if not _WHOLE.fullmatch(name))),
        tuple(
            (
                each["name"],
                source.get("resourceClaimName") or claim_names.get(each["name"]),
                source.get("resourceClaimTemplateName"),
            )
            for each in spec.get("resourceClaims") or ()
            for source in (each.get("source") or each,)  # up to v1alpha2 under `source`
        )
        + (((by_class, by_class, None),) if by_class else ()),
        spec.get("priorityClassName"),
    )


def _amounts(resources: Mapping[str, Any]) -> Counter[str]:
    """Return what a container asks of everything that may be a GPU or a part of one."""
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return +Counter({name: _quantity(count) for name, count in asked.items() if _GPU_LIKE.match(name)})


_QUANTITY = re.compile(r"(\d+)(k|M|G|Ki|Mi|Gi)?")
_FACTORS = {"k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def _quantity(text: object) -> int:
    """Return the whole number in a quantity of Kubernetes, which writes 16000 as `16k`. Raises ValueError."""
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        raise ValueError(f"{str(text)[:40]} is no number of devices")
    return int(found[1]) * _FACTORS.get(found[2], 1)


def _part_of(amounts: Mapping[str, int]) -> str | None:
    """Return what a container states of its share of a GPU; empty if it states no size, None without a share.

    A container that has all cores of a GPU has it alone, whatever memory it asks for.
    """
    stated = {name: amount for name, amount in amounts.items() if name in _SHARES}
    if any(stated.get(name, 0) >= _PERCENT for name in _CORES):
        return None
    limits = [
        _SHARES[name].format(amount) for name, amount in stated.items() if "%" not in _SHARES[name] or amount < _PERCENT
    ]
    if limits:
        return " and ".join(sorted(limits))
    return "" if any(_SHARED.fullmatch(name) for name in amounts) else None


_PERCENT = 100


def _selector(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels that a node must have for the pod, each of which allows one value alone."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or []
    rules = (terms[0].get("matchExpressions") or ()) if len(terms) == 1 else ()  # of several terms, any one suffices
    chosen = {rule["key"]: rule["values"][0] for rule in rules if rule["operator"] == "In" and len(rule["values"]) == 1}
    return {**chosen, **(spec.get("nodeSelector") or {})}


def first_label(labels: Mapping[str, str], names: Sequence[str]) -> str | None:
    return next((labels[name] for name in names if labels.get(name)), None)


_GROUP, _FRACTION, _MEMORY = "runai-gpu-group", "gpu-fraction", "gpu-memory"
RESERVED = ("kai-resource-reservation", "runai-reservation")
"""Namespaces of pods that only keep a GPU for pods that share it."""
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]+")


@dataclass(frozen=True)
class GpuGroups:
    """What KAI and Run:ai write on a pod that shares GPUs, and on the pod that reserves such a GPU."""

    groups: tuple[str, ...]
    """A name per GPU, which the reservation and its sharers have in common."""
    is_reservation: bool
    gpu: str | None
    """UUID of the reserved GPU, where it is stated."""
    ratio: float | None
    """Part of each GPU; None where it is not stated."""
    gpus: int
    """Number of GPUs of which the pod has a part; 0 without a share."""
    text: str
    """What the pod states of its share."""


def groups_of(meta: Mapping[str, Any], demand: GpuDemand) -> GpuGroups:
    """Return the groups of a pod by its metadata."""
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    groups = tuple(value for key, value in sorted(labels.items()) if key == _GROUP or key.startswith(f"{_GROUP}/"))
    has_share = _FRACTION in notes or _MEMORY in notes or (bool(groups) and not demand.asked)
    stated = str(notes.get(_FRACTION, ""))
    ratio = float(stated) if re.fullmatch(r"0?\.\d+|1(?:\.0*)?", stated) else None
    gpu = notes.get("run.ai/reserve_for_gpu_index") or ""
    devices = str(notes.get("gpu-fraction-num-devices") or max(len(groups), 1))
    return GpuGroups(
        groups,
        is_reservation=bool(demand.asked) and not has_share and (bool(groups) or meta.get("namespace") in RESERVED),
        gpu=gpu if _UUID.fullmatch(gpu) else None,
        ratio=ratio or None,
        gpus=int(devices) if has_share and devices.isdecimal() else 0,
        text=f"{100 * ratio:g} % of it" if ratio else f"{notes[_MEMORY]} MiB of its memory" if _MEMORY in notes else "",
    )


_HAMI = "hami.io/vgpu-devices-allocated"


def hami_devices(notes: Mapping[str, str]) -> tuple[tuple[str, ...], str | None]:
    """Return the UUIDs of the GPUs that HAMi gave a pod, and what it states of a share; None for whole GPUs.

    The annotation has `UUID,TYPE,MIB,CORES:` for each device, and a semicolon after each container; 0 cores: no limit.
    """
    fields = [each.split(",") for each in re.split("[:;]", notes.get(_HAMI, "")) if each]
    cores = {int(each[3]) for each in fields if len(each) > 3 and each[3].isdecimal()}  # the fourth
    share = next((_SHARES[_CORES[0]].format(each) for each in sorted(cores) if 0 < each < _PERCENT), None)
    return tuple(each[0] for each in fields if _UUID.fullmatch(each[0])), share


_GPU_CLASSES = frozenset(("gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com"))
_GPU_DRIVER = "gpu.nvidia.com"


@dataclass(frozen=True)
class ClaimedDevices:
    """The devices of a ResourceClaim: GPUs and MIG instances, and the drivers or classes of what is not counted."""

    gpus: int
    others: tuple[str, ...]
    is_share: bool
    names: tuple[tuple[str, str], ...] = ()
    """Pool and name of each GPU that it got."""


def uuids_of(spec: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Return the UUIDs of the GPUs and MIG instances in a ResourceSlice, by pool and name."""
    found = {}
    for each in spec.get("devices") or () if spec["driver"] == _GPU_DRIVER else ():
        attributes = (each.get("basic") or each).get("attributes") or {}  # up to v1beta1 under `basic`
        value = attributes.get("uuid") or attributes.get(f"{_GPU_DRIVER}/uuid") or {}
        if _UUID.fullmatch(value.get("string", "")):
            found[str(spec["pool"]["name"]), str(each["name"])] = str(value["string"])
    return found


def devices_of(spec: Mapping[str, Any], status: Mapping[str, Any]) -> ClaimedDevices:
    """Return the devices that a ResourceClaim got or, before that, asks for. Monitoring access takes no device."""
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results")
    if "devices" not in spec and "resourceClassName" in spec:  # up to v1alpha2, which names no device
        return ClaimedDevices(0, (str(spec["resourceClassName"]),), is_share=False)
    if results is None:
        return _requested((spec.get("devices") or {}).get("requests") or ())
    got = [each for each in results if not each.get("adminAccess")]
    gpus = [each for each in got if each["driver"] == _GPU_DRIVER]
    return ClaimedDevices(
        len(gpus),
        tuple(sorted({each["driver"] for each in got} - {_GPU_DRIVER})),
        any(each.get("shareID") or each.get("consumedCapacity") for each in gpus),
        tuple((str(each["pool"]), str(each["device"])) for each in gpus),
    )


def _requested(requests: Sequence[Mapping[str, Any]]) -> ClaimedDevices:
    gpus, others = 0, set[str]()
    for request in requests:
        choices = request.get("firstAvailable") or [request.get("exactly") or request]
        if any(each.get("adminAccess") for each in choices):
            continue
        classes = {each["deviceClassName"] for each in choices}
        counts = {int(each.get("count") or 1) if each.get("allocationMode") != "All" else 0 for each in choices}
        if classes <= _GPU_CLASSES and len(counts) == 1 and 0 not in counts:
            gpus += counts.pop()
        else:
            others |= classes
    return ClaimedDevices(gpus, tuple(sorted(others)), is_share=False)

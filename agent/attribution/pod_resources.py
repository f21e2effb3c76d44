"""Which container of which pod was given which GPUs: the kubelet's pod-resources socket, API v1.

Field numbers from k8s.io/kubelet/pkg/apis/podresources/v1/api.proto.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from agent.attribution.grpc_unary import submessages, text, texts
from agent.attribution.proc import printable_text

METHOD = "/v1.PodResourcesLister/List"

_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]+")
_MINOR = re.compile(r"nvidia(\d+)(?:/vgpu\d+)?")  # GKE's own device plugin
_DRA_DRIVER = "gpu.nvidia.com"
_DRA_MINOR = re.compile(r"gpu-(\d+)")


@dataclass(frozen=True, order=True)
class PodContainer:
    """One container of one pod."""

    namespace: str
    pod: str
    container: str


def parse_list(message: bytes, minors: dict[int, str]) -> dict[str, list[PodContainer]]:
    """Containers by the UUID of the GPU or MIG instance that they were given, given UUIDs by minor number.

    Raises WireError for what is no ListPodResourcesResponse.
    """
    holders: dict[str, set[PodContainer]] = {}
    for pod in submessages(message, 1):
        name, namespace = printable_text(text(pod, 1)), printable_text(text(pod, 2))
        for container in submessages(pod, 3):
            holder = PodContainer(namespace, name, printable_text(text(container, 1)))
            for uuid in _devices(container, minors):
                holders.setdefault(uuid, set()).add(holder)
    return {uuid: sorted(found) for uuid, found in sorted(holders.items())}


def _devices(container: bytes, minors: dict[int, str]) -> set[str]:
    """GPUs that a device plugin or a driver of dynamic resource allocation gave to a container."""
    found = set()
    for devices in submessages(container, 2):
        found |= {device_uuid(name, minors) for name in texts(devices, 2)}
    for claim in submessages(container, 5):
        for resource in submessages(claim, 4):
            found |= {device_uuid(text(device, 1).partition("=")[2], minors) for device in submessages(resource, 1)}
            minor = _DRA_MINOR.fullmatch(text(resource, 4)) if text(resource, 2) == _DRA_DRIVER else None
            found.add(minors.get(int(minor[1])) if minor else None)
    return {uuid for uuid in found if uuid is not None}


def device_uuid(name: str, minors: dict[int, str]) -> str | None:
    """The UUID that a device id stands for; None where it is no GPU, or one that cannot be told by its id.

    `GPU-...` and `MIG-...` stand for themselves, time slices carry `::` and a number behind it, GKE names the device node.
    """
    plain = name.partition("::")[0]
    if _UUID.fullmatch(plain):
        return plain
    minor = _MINOR.fullmatch(plain)
    return minors.get(int(minor[1])) if minor else None


def read_minors(proc: str) -> dict[int, str]:
    """UUIDs of whole GPUs by the number of their device node, as the kernel driver shows them in /proc."""
    minors = {}
    for path in Path(proc, "driver/nvidia/gpus").glob("*/information"):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        entry = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        uuid, minor = entry.get("GPU UUID", ""), entry.get("Device Minor", "")
        if _UUID.fullmatch(uuid) and minor.isdecimal():  # a GPU that nobody has opened yet shows `?` for its UUID
            minors[int(minor)] = uuid
    return minors

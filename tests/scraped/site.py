"""A small site for proofs and tutorials: four hosts of four A100, what runs on them by the hour, and how its exporters say it."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.scraped.exposed import Exposed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
MODEL = "NVIDIA A100-SXM4-80GB"
MEM_MIB = 81_920
_DRIVER_MIB = 563
MIB = 2**20


@dataclass(frozen=True)
class Moment:
    """What one GPU does at a moment."""

    util_pct: int
    mem_mib: int
    power_w: float
    temperature_c: int
    sm_clock_mhz: int


@dataclass(frozen=True)
class SiteGpu:
    """One card, its place, and who has it; `use` gives its utilization by hour of the day and a noise of 0 to 9; None: nobody is on it."""

    host: str
    index: int
    use: Callable[[int, int], int] | None
    mem_mib: int = 0
    namespace: str = ""
    pod: str = ""
    job: int = 0
    user_id: int = 0

    @property
    def uuid(self) -> str:
        return f"GPU-{zlib.crc32(f'{self.host}/{self.index}'.encode()):08x}-5f1c-4c3e-9d5b-{self.host[-1]}0000000000{self.index}"

    def at(self, time_ms: int) -> Moment:
        noise = zlib.crc32(f"{self.uuid}{time_ms // MINUTE_MS % 1440}".encode()) % 10
        if self.use is None:
            return Moment(0, 4, 55.0 + noise / 10, 31, 210)
        util = self.use(time_ms // HOUR_MS % 24, noise)
        return Moment(util, self.mem_mib, 68.0 + 3.2 * util + noise / 10, 34 + util // 3, 1410)


def _day(hour: int, noise: int) -> int:
    return 78 + noise if 9 <= hour < 18 else 0


GPUS: tuple[SiteGpu, ...] = (
    # a training that keeps four cards busy
    *(SiteGpu("gn001", n, lambda _, noise: 88 + noise, 71_200, "vision", "pretrain-0", 4101, 2001) for n in range(4)),
    # a notebook that holds two and runs nothing, and two that work by day
    *(SiteGpu("gn002", n, lambda _, __: 0, 39_700, "nlp", "notebook-7f", 4102, 2002) for n in range(2)),
    *(SiteGpu("gn002", n, _day, 52_300, "nlp", "sweep-12", 4103, 2002) for n in (2, 3)),
    # nobody
    *(SiteGpu("gn003", n, None) for n in range(4)),
    # a server that is hardly asked, and three more that nobody has
    SiteGpu("gn004", 0, lambda _, noise: 1 + noise // 3, 24_100, "serving", "llm-0", 4104, 2003),
    *(SiteGpu("gn004", n, None) for n in (1, 2, 3)),
)


def dcgm(gpu: SiteGpu, time_ms: int) -> Iterator[Exposed]:
    """As NVIDIA's dcgm-exporter with its default counters, on hosts without Kubernetes."""
    labels = {
        "gpu": str(gpu.index), "UUID": gpu.uuid, "pci_bus_id": f"00000000:{7 + 8 * gpu.index:02X}:00.0",
        "device": f"nvidia{gpu.index}", "modelName": MODEL, "Hostname": gpu.host, "DCGM_FI_DRIVER_VERSION": "570.86.15",
        "instance": f"{gpu.host}:9400", "job": "dcgm-exporter",
    }  # fmt: skip
    now = gpu.at(time_ms)
    values = {
        "DCGM_FI_DEV_GPU_UTIL": now.util_pct, "DCGM_FI_DEV_FB_USED": now.mem_mib, "DCGM_FI_DEV_FB_RESERVED": _DRIVER_MIB,
        "DCGM_FI_DEV_FB_FREE": MEM_MIB - _DRIVER_MIB - now.mem_mib, "DCGM_FI_DEV_POWER_USAGE": now.power_w,
        "DCGM_FI_DEV_GPU_TEMP": now.temperature_c, "DCGM_FI_DEV_SM_CLOCK": now.sm_clock_mhz, "DCGM_FI_DEV_XID_ERRORS": 0,
    }  # fmt: skip
    yield from _samples(values, labels, time_ms)


def dcgm_of_pods(gpu: SiteGpu, time_ms: int) -> Iterator[Exposed]:
    """The same on Kubernetes, where the exporter knows the pod; the server has put its own pod before it."""
    own = {
        "namespace": "gpu-operator",
        "pod": f"nvidia-dcgm-exporter-{gpu.host[-1]}",
        "container": "nvidia-dcgm-exporter",
    }
    holder = {
        "exported_namespace": gpu.namespace,
        "exported_pod": gpu.pod,
        "exported_container": "main" if gpu.pod else "",
    }
    for sample in dcgm(gpu, time_ms):
        yield sample.labelled(**own, **holder)


def princeton(gpu: SiteGpu, time_ms: int) -> Iterator[Exposed]:
    """As Princeton's nvidia_gpu_prometheus_exporter, which knows the Slurm job of a card and its user's number."""
    labels = {
        "minor_number": str(gpu.index), "uuid": gpu.uuid, "name": MODEL, "ordinal": str(gpu.index),
        "instance": f"{gpu.host}:9445", "job": "gpu",
    }  # fmt: skip
    now = gpu.at(time_ms)
    values = {
        "nvidia_gpu_duty_cycle": now.util_pct, "nvidia_gpu_memory_used_bytes": now.mem_mib * MIB,
        "nvidia_gpu_memory_total_bytes": MEM_MIB * MIB, "nvidia_gpu_power_usage_milliwatts": round(now.power_w * 1000),
        "nvidia_gpu_temperature_celsius": now.temperature_c, "nvidia_gpu_jobId": gpu.job, "nvidia_gpu_jobUid": gpu.user_id,
    }  # fmt: skip
    yield from _samples(values, labels, time_ms)


def nvidia_smi(gpu: SiteGpu, time_ms: int) -> Iterator[Exposed]:
    """As utkuozdemir's nvidia_gpu_exporter."""
    target = {"uuid": gpu.uuid.removeprefix("GPU-"), "instance": f"{gpu.host}:9835", "job": "nvidia-smi"}
    now = gpu.at(time_ms)
    values = {
        "nvidia_smi_utilization_gpu_ratio": now.util_pct / 100, "nvidia_smi_memory_used_bytes": now.mem_mib * MIB,
        "nvidia_smi_memory_total_bytes": MEM_MIB * MIB, "nvidia_smi_power_draw_watts": now.power_w,
        "nvidia_smi_temperature_gpu": now.temperature_c,
    }  # fmt: skip
    yield from _samples(values, target, time_ms)
    info = {"index": str(gpu.index), "name": MODEL, "driver_version": "570.86.15"}
    yield from _samples({"nvidia_smi_gpu_info": 1}, target | info, time_ms)


def kube_states(gpus: Iterable[SiteGpu], time_ms: int, since_ms: int) -> Iterator[Exposed]:
    """What kube-state-metrics says of the pods on these GPUs, all there since `since_ms`, and of one that waits for eight."""
    counts = Counter((gpu.host, gpu.namespace, gpu.pod) for gpu in gpus if gpu.pod)
    for (host, namespace, pod), count in counts.items():
        yield from _pod(namespace, pod, host, count, since_ms=since_ms, time_ms=time_ms)
    yield from _pod("vision", "finetune-0", "", 8, since_ms=since_ms, time_ms=time_ms)


def _pod(namespace: str, pod: str, host: str, gpus: int, *, since_ms: int, time_ms: int) -> Iterator[Exposed]:
    own = {
        "namespace": namespace,
        "pod": pod,
        "uid": f"uid-{pod}",
        "instance": "kube-state-metrics:8080",
        "job": "kube-state-metrics",
    }
    owner = {"owner_kind": "Job", "owner_name": pod.rpartition("-")[0], "owner_is_controller": "true"}
    wanted = {"container": "main", "resource": "nvidia_com_gpu", "unit": "integer", "node": host}
    yield from _samples({"kube_pod_info": 1}, own | {"node": host}, time_ms)
    yield from _samples({"kube_pod_owner": 1}, own | owner, time_ms)
    yield from _samples({"kube_pod_created": since_ms // 1000}, own, time_ms)
    yield from _samples({"kube_pod_container_resource_requests": gpus}, own | wanted, time_ms)
    yield from _samples({"kube_pod_status_phase": 1}, own | {"phase": "Running" if host else "Pending"}, time_ms)
    if host:
        yield from _samples({"kube_pod_start_time": since_ms // 1000 + 60}, own, time_ms)


def site_samples(
    exporter: Callable[[SiteGpu, int], Iterable[Exposed]], times_ms: Iterable[int], gpus: Iterable[SiteGpu] = GPUS
) -> Iterator[Exposed]:
    """What a server has that scraped the whole site at these times."""
    gpus = tuple(gpus)
    for time_ms in times_ms:
        for gpu in gpus:
            yield from exporter(gpu, time_ms)


def _samples(values: dict[str, float], labels: dict[str, str], time_ms: int) -> Iterator[Exposed]:
    key = tuple(sorted((name, value) for name, value in labels.items() if value))
    for name, value in values.items():
        yield Exposed(name, key, float(value), time_ms)

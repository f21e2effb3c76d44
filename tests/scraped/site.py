"""A small site for proofs and tutorials: four hosts of four A100, their work by the hour, as exporters report it."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from fallow.clock import format_ms
from tests.scraped.exposed import Exposed, Labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
_DAY_MINUTES = 1440
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
    energy_mj: int


@dataclass(frozen=True)
class SiteGpu:
    """One card, its place and its user; `use` maps hour of the day and noise (0 to 9) to utilization; None: unused."""

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
        return (
            f"GPU-{zlib.crc32(f'{self.host}/{self.index}'.encode()):08x}"
            f"-5f1c-4c3e-9d5b-{self.host[-1]}0000000000{self.index}"
        )

    def at(self, time_ms: int) -> Moment:
        minute, rest_ms = divmod(time_ms, MINUTE_MS)
        util, power_w = self._of_minute(minute % _DAY_MINUTES)
        before_mj, day_mj = self._energy_mj
        energy_mj = minute // _DAY_MINUTES * day_mj + before_mj[minute % _DAY_MINUTES] + round(power_w * rest_ms)
        if self.use is None:
            return Moment(0, 4, power_w, 31, 210, energy_mj)
        return Moment(util, self.mem_mib, power_w, 34 + util // 3, 1410, energy_mj)

    def _of_minute(self, minute: int) -> tuple[int, float]:
        """Utilization and power, which last for the minute: every day is the same."""
        noise = zlib.crc32(f"{self.uuid}{minute}".encode()) % 10
        if self.use is None:
            return 0, 55.0
        util = self.use(minute // 60, noise)
        return util, 68.0 + 3.2 * util

    @cached_property
    def _energy_mj(self) -> tuple[list[int], int]:
        """Drawn before each minute of a day, and in the day."""
        drawn = [round(self._of_minute(minute)[1] * MINUTE_MS) for minute in range(_DAY_MINUTES)]
        return list(accumulate(drawn, initial=0)), sum(drawn)


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
    return _samples(_dcgm_values(gpu.at(time_ms)), _dcgm_labels(gpu), time_ms)


def dcgm_of_pods(gpu: SiteGpu, time_ms: int) -> Iterator[Exposed]:
    """The same on Kubernetes, where the exporter knows the pod; the server has put its own pod before it."""
    return _samples(_dcgm_values(gpu.at(time_ms)), _dcgm_labels_of_pods(gpu), time_ms)


def _dcgm_values(now: Moment) -> dict[str, float]:
    return {
        "DCGM_FI_DEV_GPU_UTIL": now.util_pct,
        "DCGM_FI_DEV_FB_USED": now.mem_mib,
        "DCGM_FI_DEV_FB_RESERVED": _DRIVER_MIB,
        "DCGM_FI_DEV_FB_FREE": MEM_MIB - _DRIVER_MIB - now.mem_mib,
        "DCGM_FI_DEV_POWER_USAGE": now.power_w,
        "DCGM_FI_DEV_GPU_TEMP": now.temperature_c,
        "DCGM_FI_DEV_SM_CLOCK": now.sm_clock_mhz,
        "DCGM_FI_DEV_XID_ERRORS": 0,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": now.energy_mj,
    }


@cache
def _dcgm_labels(gpu: SiteGpu, **others: str) -> Labels:
    return labels_of(
        gpu=str(gpu.index), UUID=gpu.uuid, pci_bus_id=f"00000000:{7 + 8 * gpu.index:02X}:00.0",
        device=f"nvidia{gpu.index}", modelName=MODEL, Hostname=gpu.host, DCGM_FI_DRIVER_VERSION="570.86.15",
        instance=f"{gpu.host}:9400", job="dcgm-exporter", **others,
    )  # fmt: skip


@cache
def _dcgm_labels_of_pods(gpu: SiteGpu) -> Labels:
    own = {"namespace": "gpu-operator", "pod": f"dcgm-exporter-{gpu.host[-1]}", "container": "exporter"}
    user = {
        "exported_namespace": gpu.namespace,
        "exported_pod": gpu.pod,
        "exported_container": "main" if gpu.pod else "",
    }
    return _dcgm_labels(gpu, **own, **user)


def princeton(gpu: SiteGpu, time_ms: int) -> Iterator[Exposed]:
    """As Princeton's nvidia_gpu_prometheus_exporter, which knows the Slurm job of a card and its user's number."""
    now = gpu.at(time_ms)
    values = {
        "nvidia_gpu_duty_cycle": now.util_pct,
        "nvidia_gpu_memory_used_bytes": now.mem_mib * MIB,
        "nvidia_gpu_memory_total_bytes": MEM_MIB * MIB,
        "nvidia_gpu_power_usage_milliwatts": round(now.power_w * 1000),
        "nvidia_gpu_temperature_celsius": now.temperature_c,
        "nvidia_gpu_jobId": gpu.job,
        "nvidia_gpu_jobUid": gpu.user_id,
    }
    return _samples(values, _princeton_labels(gpu), time_ms)


@cache
def _princeton_labels(gpu: SiteGpu) -> Labels:
    index = str(gpu.index)
    return labels_of(
        minor_number=index, ordinal=index, uuid=gpu.uuid, name=MODEL, instance=f"{gpu.host}:9445", job="gpu"
    )


def nvidia_smi(gpu: SiteGpu, time_ms: int) -> Iterator[Exposed]:
    """As utkuozdemir's nvidia_gpu_exporter."""
    now = gpu.at(time_ms)
    values = {
        "nvidia_smi_utilization_gpu_ratio": now.util_pct / 100,
        "nvidia_smi_memory_used_bytes": now.mem_mib * MIB,
        "nvidia_smi_memory_total_bytes": MEM_MIB * MIB,
        "nvidia_smi_power_draw_watts": now.power_w,
        "nvidia_smi_temperature_gpu": now.temperature_c,
    }
    yield from _samples(values, _nvidia_smi_labels(gpu), time_ms)
    info = _nvidia_smi_labels(gpu, index=str(gpu.index), name=MODEL, driver_version="570.86.15")
    yield from _samples({"nvidia_smi_gpu_info": 1}, info, time_ms)


@cache
def _nvidia_smi_labels(gpu: SiteGpu, **others: str) -> Labels:
    return labels_of(uuid=gpu.uuid.removeprefix("GPU-"), instance=f"{gpu.host}:9835", job="nvidia-smi", **others)


def kube_states(gpus: Iterable[SiteGpu], time_ms: int, since_ms: int) -> Iterator[Exposed]:
    """What kube-state-metrics says of the pods on these GPUs, all since `since_ms`, and one that waits for eight."""
    counts = Counter((gpu.host, gpu.namespace, gpu.pod) for gpu in gpus if gpu.pod)
    for (host, namespace, pod), count in counts.items():
        yield from _pod(namespace, pod, host, count, since_ms=since_ms, time_ms=time_ms)
    yield from _pod("vision", "finetune-0", "", 8, since_ms=since_ms, time_ms=time_ms)


def _pod(namespace: str, pod: str, host: str, gpus: int, *, since_ms: int, time_ms: int) -> Iterator[Exposed]:
    yield from _of_pod({"kube_pod_info": 1}, namespace, pod, time_ms, node=host)
    owner = {"owner_kind": "Job", "owner_name": pod.rpartition("-")[0], "owner_is_controller": "true"}
    yield from _of_pod({"kube_pod_owner": 1}, namespace, pod, time_ms, **owner)
    yield from _of_pod({"kube_pod_created": since_ms // 1000}, namespace, pod, time_ms)
    wanted = {"container": "main", "resource": "nvidia_com_gpu", "unit": "integer", "node": host}
    yield from _of_pod({"kube_pod_container_resource_requests": gpus}, namespace, pod, time_ms, **wanted)
    phase = "Running" if host else "Pending"
    yield from _of_pod({"kube_pod_status_phase": 1}, namespace, pod, time_ms, phase=phase)
    if host:
        yield from _of_pod({"kube_pod_start_time": since_ms // 1000 + 60}, namespace, pod, time_ms)


def _of_pod(values: dict[str, float], namespace: str, pod: str, time_ms: int, **others: str) -> Iterator[Exposed]:
    own = {"namespace": namespace, "pod": pod, "uid": f"uid-{pod}", **others}
    return _samples(values, labels_of(instance="kube-state-metrics:8080", job="kube-state-metrics", **own), time_ms)


def site_samples(
    exporter: Callable[[SiteGpu, int], Iterable[Exposed]], times_ms: Iterable[int], gpus: Iterable[SiteGpu] = GPUS
) -> Iterator[Exposed]:
    """What a server has that scraped the whole site at these times."""
    gpus = tuple(gpus)
    for time_ms in times_ms:
        for gpu in gpus:
            yield from exporter(gpu, time_ms)


def labels_of(**labels: str) -> Labels:
    """Sorted, and without empty ones."""
    return tuple(sorted((name, value) for name, value in labels.items() if value))


def _samples(values: dict[str, float], labels: Labels, time_ms: int) -> Iterator[Exposed]:
    for name, value in values.items():
        yield Exposed(name, labels, float(value), time_ms)


_SACCT = (
    "JobIDRaw|JobID|User|Account|WCKey|Partition|QOS|Priority|State|Reason|Submit|Eligible|Start|End|ElapsedRaw|"
    "TimelimitRaw|NodeList|NNodes|AllocTRES|ReqTRES|JobName"
)
_JOBS = {4101: ("ann", "vis01"), 4102: ("bea", "nlp01"), 4103: ("bea", "nlp01"), 4104: ("dan", "srv01")}


def sacct_page(since_ms: int, until_ms: int) -> str:
    """What `sacct --parsable2` prints of the jobs on these GPUs, all since `since_ms`, and one that waits for eight."""
    since, until = (format_ms(each).rstrip("Z") for each in (since_ms, until_ms))
    lines = [_SACCT]
    for job, (user, account) in _JOBS.items():
        own = [gpu for gpu in GPUS if gpu.job == job]
        tres, seconds = f"gres/gpu={len(own)}", (until_ms - since_ms) // 1000
        lines.append(
            f"{job}|{job}|{user}|{account}||gpu|normal|100|RUNNING|None|{since}|{since}|{since}|Unknown|{seconds}|"
            f"43200|{own[0].host}|1|{tres}|{tres}|{own[0].pod}"
        )
    # a job without GPUs that has just ended: the newest moment of the file
    lines.append(
        f"4100|4100|ann|vis01||cpu|normal|100|COMPLETED|None|{since}|{since}|{since}|{until}|{seconds}|"
        "43200|cn001|1|cpu=8|cpu=8|prepare"
    )
    waiting = (
        f"4105|4105|ann|vis01||gpu|normal|90|PENDING|Resources|{since}|{since}|Unknown|Unknown|0|"
        "1440||1||gres/gpu=8|finetune"
    )
    return "\n".join([*lines, waiting, ""])

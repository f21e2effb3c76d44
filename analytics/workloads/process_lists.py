"""Who is on a GPU at the end of a window: its newest process list."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import polars as pl

from analytics.ledger.rollups import Rollups
from fallow.clock import DAY_MS

_SERVICES = (
    "Xorg",
    "X",
    "Xwayland",
    "gnome-shell",
    "kwin.*",
    "plasmashell",
    "mutter.*",
    "cinnamon",
    "sddm.*",
    "gdm.*",
    "lightdm",
    "xfwm4",
    "sway",
    "weston",
    "xrdp.*",
    "nvidia-cuda-mps.*",
    "nvidia-persiste.*",
    "nv-hostengine",
    "dcgm-exporter",
    "nvidia-smi",
)
_SERVICE = re.compile("|".join(_SERVICES))


def is_service() -> pl.Expr:
    """Whether a row of `process_day` is a display server, an MPS daemon or a monitor: on a GPU, but no work that holds it."""
    kind = pl.col("kind").is_in(("graphics", "mps"))
    named = pl.col("command").str.contains(f"^(?:{'|'.join(_SERVICES)})$")
    return kind.fill_null(value=False) | named.fill_null(value=False)


def serves_only(command: str | None) -> bool:
    return command is not None and _SERVICE.fullmatch(command) is not None


SERVER = (
    r"(?i)vllm|sglang|tritonserver|text-generation|lmdeploy|trtllm-serve|tensorrt_llm|llama-server|llama\.cpp|\bollama|mii-server|"
    r"torchserve|lorax|aphrodite"
)
"""How commands and arguments of inference servers read."""

NOTEBOOK_COMMAND = r"(?i)ipykernel|jupyter|colab_kernel"
NOTEBOOK_POD = r"(?i)singleuser-server|\"notebook-name\"|jupyter"
"""How commands of notebooks, and labels and names of their pods, read."""

_NEXT_JOB = re.compile(r"\+(?=(?:slurm|pod|ray|claim):)")
_GROUP_LABELS = (
    "training.kubeflow.org/job-name",
    "batch.kubernetes.io/job-name",
    "volcano.sh/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "leaderworkerset.sigs.k8s.io/name",
    "ray.io/cluster",
)
"""Labels whose value the pods of one job share: when one of them ends, so does the work of the others."""
_DAYS = 2
"""Days of a host's lists that are looked at: of the newest one, nobody may have been on a GPU just after midnight."""


@dataclass(frozen=True)
class ListedProcess:
    gpu: str
    host: str
    pid: int
    user: str | None
    command: str | None
    pod: str | None
    namespace: str | None
    slurm_job_id: str | None
    groups: tuple[tuple[str, str], ...] = ()
    """Labels that the pods of one job share, with their values."""

    @property
    def owners(self) -> set[tuple[str, ...]]:
        """Everything that `release_command` could end it by, and the job that its pod is a part of."""
        names: set[tuple[str, ...]] = {("pid", self.host, str(self.pid))}
        if self.slurm_job_id:
            names.add(("job", self.slurm_job_id))
        if self.pod:
            names.add(("pod", self.namespace or "default", self.pod))
        names.update(("pods", self.namespace or "default", *group) for group in self.groups)
        return names


@dataclass(frozen=True)
class ProcessHolders:
    lists: Mapping[str, tuple[ListedProcess, ...]]

    def on(self, gpus: Sequence[str]) -> tuple[ListedProcess, ...]:
        return tuple(process for gpu in gpus for process in self.lists.get(gpu, ()))

    def beyond(self, gpus: Sequence[str]) -> tuple[str, ...]:
        """Other GPUs that the processes, pods or Slurm jobs of these run on too: ending them would end that work."""
        own = {owner for process in self.on(gpus) for owner in process.owners}
        shared = {gpu for owner in own for gpu in self._gpus_of[owner]}
        return tuple(sorted(shared.difference(gpus)))

    def with_pod(self, namespace: str, pod: str) -> tuple[str, ...]:
        """The GPUs of the job that a pod is a part of by its name: of a pod without processes nobody lists the labels."""
        groups = self._groups_of.get(namespace, {})
        return tuple(gpu for name, gpus in groups.items() if pod.startswith(f"{name}-") for gpu in gpus)

    @cached_property
    def _groups_of(self) -> Mapping[str, Mapping[str, set[str]]]:
        """By namespace and job of pods the GPUs that the job is on."""
        found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for kind, *names in self._gpus_of:
            if kind == "pods":
                namespace, label, value = names
                found[namespace][value] |= self._gpus_of[kind, namespace, label, value]
        return found

    @cached_property
    def _gpus_of(self) -> Mapping[tuple[str, ...], set[str]]:
        """The GPUs that everything runs on that processes could be ended by."""
        found: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for gpu, processes in self.lists.items():
            for process in processes:
                for owner in process.owners:
                    found[owner].add(gpu)
        return found


def holders_at(rollups: Rollups, until_ms: int) -> ProcessHolders:
    """The processes that were on each GPU just before `until_ms`, from the daily table: no raw process list is read.

    They are those of the GPU's newest list, and none where a later row of that day says that there were none any more.
    For a moment inside a day only its first and last lists tell.
    """
    day = pl.col("time") // DAY_MS
    rows = rollups.processes().filter(pl.col("time") < until_ms).with_columns(day=day)
    days = rows.select("host", "day").unique().group_by("host").agg(first=pl.col("day").top_k(_DAYS).min())
    recent = rows.join(days, on="host").filter(pl.col("day") >= pl.col("first"))
    # a card that was moved is where it was seen last
    newest = (pl.col("day") == pl.col("day").max()) & (pl.col("host") == pl.col("host").sort_by("end", "host").last())
    there = recent.filter(
        newest.over("gpu"), pl.col("end") > pl.min_horizontal(pl.col("last_listed"), pl.lit(until_ms - 1))
    )
    lists: dict[str, list[ListedProcess]] = {}
    for row in there.sort("gpu", "pid").iter_rows(named=True):
        lists.setdefault(row["gpu"], []).append(_process(row))
    return ProcessHolders({gpu: tuple(processes) for gpu, processes in lists.items()})


def _process(row: Mapping[str, Any]) -> ListedProcess:
    """A row of `process_day` as a process of a list."""
    jobs = dict(each.split(":", 1) for each in _NEXT_JOB.split(row["job"] or "") if ":" in each)
    namespace, _, pod = jobs.get("pod", "").partition("/")
    return ListedProcess(
        gpu=row["gpu"],
        host=row["host"],
        pid=row["pid"],
        user=row["user"],
        command=row["command"],
        pod=pod or None,
        namespace=namespace or None,
        slurm_job_id=jobs.get("slurm"),
        groups=_groups(row["pod_labels"]),
    )


@lru_cache(maxsize=1024)
def _groups(labels: str | None) -> tuple[tuple[str, str], ...]:
    """The labels of _GROUP_LABELS that a pod has; none where the text is no JSON object."""
    try:
        known = json.loads(labels or "{}")
    except ValueError:
        return ()
    if not isinstance(known, dict):
        return ()
    return tuple((name, str(known[name])) for name in _GROUP_LABELS if known.get(name))

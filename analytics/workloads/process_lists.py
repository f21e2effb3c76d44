"""Users of a GPU at the end of a window, by its newest process list."""

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
    """Return whether a `process_day` row is a display server, MPS daemon or monitor: these hold no GPU for work."""
    kind = pl.col("kind").is_in(("graphics", "mps"))
    named = pl.col("command").str.contains(f"^(?:{'|'.join(_SERVICES)})$")
    return kind.fill_null(value=False) | named.fill_null(value=False)


def serves_only(command: str | None) -> bool:
    return command is not None and _SERVICE.fullmatch(command) is not None


COMMAND_LINE = pl.concat_str(pl.col("command", "arguments").fill_null(""), separator=" ")
"""Command and arguments of a row of `process_day`."""

_POD = pl.concat_str(pl.col("pod_labels", "job").fill_null(""), separator=" ")
IS_NOTEBOOK = COMMAND_LINE.str.contains(r"(?i)ipykernel|jupyter|colab_kernel") | _POD.str.contains(
    r"(?i)singleuser-server|\"notebook-name\"|jupyter"
)
"""Whether a row of `process_day` is a notebook, by its command or by the labels and the name of its pod."""

_NEXT_JOB = re.compile(r"\+(?=(?:slurm|pod|ray|allocation):)")
_GROUP_LABELS = (
    "training.kubeflow.org/job-name",
    "batch.kubernetes.io/job-name",
    "volcano.sh/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "leaderworkerset.sigs.k8s.io/name",
    "ray.io/cluster",
)
"""Labels that the pods of a job share: when one of the pods ends, the work of the others ends too."""
_DAYS = 2
"""Days of a host's lists that are read: just after midnight, the newest day may have no process on any GPU."""


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
    """Labels that the pods of a job share, with their values."""

    @property
    def owners(self) -> set[tuple[str, ...]]:
        """Return everything that `release_command` could end it by, and the job of its pod."""
        names: set[tuple[str, ...]] = {("pid", self.host, str(self.pid))}
        if self.slurm_job_id:
            names.add(("job", self.slurm_job_id))
        if self.pod:
            names.add(("pod", self.namespace or "default", self.pod))
        names.update(("pods", self.namespace or "default", *group) for group in self.groups)
        return names


@dataclass(frozen=True)
class ProcessUsers:
    lists: Mapping[str, tuple[ListedProcess, ...]]

    def on(self, gpus: Sequence[str]) -> tuple[ListedProcess, ...]:
        return tuple(process for gpu in gpus for process in self.lists.get(gpu, ()))

    def beyond(self, gpus: Sequence[str]) -> tuple[str, ...]:
        """Return other GPUs on which the processes, pods or Slurm jobs of these GPUs run too.

        Ending these would end that work as well.
        """
        own = {owner for process in self.on(gpus) for owner in process.owners}
        shared = {gpu for owner in own for gpu in self._gpus_of[owner]}
        return tuple(sorted(shared.difference(gpus)))

    def with_pod(self, namespace: str, pod: str) -> tuple[str, ...]:
        """Return the GPUs of a pod's job, found by its name: a pod without processes has no listed labels."""
        groups = self._groups_of.get(namespace, {})
        return tuple(gpu for name, gpus in groups.items() if pod.startswith(f"{name}-") for gpu in gpus)

    @cached_property
    def _groups_of(self) -> Mapping[str, Mapping[str, set[str]]]:
        """Return by namespace and job of pods the GPUs of the job."""
        found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for kind, *names in self._gpus_of:
            if kind == "pods":
                namespace, label, value = names
                found[namespace][value] |= self._gpus_of[kind, namespace, label, value]
        return found

    @cached_property
    def _gpus_of(self) -> Mapping[tuple[str, ...], set[str]]:
        """Return the GPUs of everything by which processes could be ended."""
        found: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for gpu, processes in self.lists.items():
            for process in processes:
                for owner in process.owners:
                    found[owner].add(gpu)
        return found


def users_at(rollups: Rollups, until_ms: int) -> ProcessUsers:
    """Return the processes on each GPU just before `until_ms`, from the daily table: no raw process list is read.

    These are the processes of the GPU's newest list; none if a later row of that day shows that there were none any
    more. For a moment inside a day, only its first and last lists are known.
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
    return ProcessUsers({gpu: tuple(processes) for gpu, processes in lists.items()})


def _process(row: Mapping[str, Any]) -> ListedProcess:
    """Return a row of `process_day` as a process of a list."""
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
    """Return the labels of _GROUP_LABELS of a pod; none if the text is no JSON object."""
    try:
        known = json.loads(labels or "{}")
    except ValueError:
        return ()
    if not isinstance(known, dict):
        return ()
    return tuple((name, str(known[name])) for name in _GROUP_LABELS if known.get(name))

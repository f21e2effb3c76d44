"""Who is on a GPU at the end of a window: its newest process list, and the command that would end what runs there."""

from __future__ import annotations

import json
import re
import shlex
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import polars as pl

from fallow.clock import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analytics.ledger.rollups import Rollups

_NEXT_JOB = re.compile(r"\+(?=(?:slurm|pod|ray|claim):)")
_GROUP_LABELS = (
    "training.kubeflow.org/job-name", "batch.kubernetes.io/job-name", "volcano.sh/job-name", "jobset.sigs.k8s.io/jobset-name",
    "leaderworkerset.sigs.k8s.io/name", "ray.io/cluster",
)  # fmt: skip
"""Labels whose value the pods of one job share: when one of them ends, so does the work of the others."""
_DAYS = 2
"""Days of a host's lists that are looked at: of the newest one, nobody may have been on a GPU just after midnight."""


@dataclass(frozen=True)
class Process:
    """One process in the newest list of a GPU."""

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
class Holders:
    """The newest process list per GPU."""

    lists: Mapping[str, tuple[Process, ...]]

    def of(self, gpus: Sequence[str]) -> tuple[Process, ...]:
        """All processes of these GPUs."""
        return tuple(process for gpu in gpus for process in self.lists.get(gpu, ()))

    def beyond(self, gpus: Sequence[str]) -> tuple[str, ...]:
        """Other GPUs that the processes, pods or Slurm jobs of these run on too: ending them would end that work."""
        own = {owner for process in self.of(gpus) for owner in process.owners}
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


def holders_at(rollups: Rollups, until_ms: int) -> Holders:
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
    lists: dict[str, list[Process]] = {}
    for row in there.sort("gpu", "pid").iter_rows(named=True):
        lists.setdefault(row["gpu"], []).append(_process(row))
    return Holders({gpu: tuple(processes) for gpu, processes in lists.items()})


def _process(row: Mapping[str, Any]) -> Process:
    """A row of `process_day` as a process of a list."""
    jobs = dict(each.split(":", 1) for each in _NEXT_JOB.split(row["job"] or "") if ":" in each)
    namespace, _, pod = jobs.get("pod", "").partition("/")
    return Process(
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


def release_command(host: str, processes: Sequence[Process]) -> str:
    """What ends these processes: the scheduler's own command where one owns them, `kill` otherwise."""
    jobs = sorted({process.slurm_job_id for process in processes if process.slurm_job_id})
    if jobs:
        return f"scancel {_operands(jobs)}"
    pods = sorted({(process.namespace or "default", process.pod) for process in processes if process.pod})
    if pods:
        return " && ".join(f"kubectl delete pod -n {quote(space)} {_operands([pod])}" for space, pod in pods)
    pids = sorted({process.pid for process in processes})
    if pids:
        return f"ssh {_operands([host])} kill {' '.join(map(str, pids))}"
    return look_command(host)


def look_command(host: str) -> str:
    """What shows who is on the host's GPUs, where no process list is known."""
    return f"ssh {_operands([host])} nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv"


def array_command(slurm_jobs: Sequence[str]) -> str:
    """What shows Slurm jobs with the arrays and heterogeneous jobs that they are a part of, task by task."""
    return f"squeue --jobs={quote(','.join(slurm_jobs))} --array"


def watch_command(host: str) -> str:
    """What shows how busy the host's GPUs are."""
    return f"ssh {_operands([host])} nvidia-smi --query-gpu=uuid,name,utilization.gpu,memory.used --format=csv"


def _operands(names: Sequence[str]) -> str:
    """Names as operands that no command takes for an option."""
    return " ".join([*(["--"] if any(name.startswith("-") for name in names) else []), *map(quote, names)])


def quote(name: str) -> str:
    """The name as one word of a shell line that holds no control character, whatever the name holds."""
    if name.isprintable():
        return shlex.quote(name)
    shown = (char if char.isprintable() and char not in "\\'" else _escaped(char) for char in name)
    return f"$'{''.join(shown)}'"


def _escaped(char: str) -> str:
    """Bash's and zsh's $'...' notation, byte by byte."""
    return "".join(f"\\{byte:03o}" for byte in char.encode())

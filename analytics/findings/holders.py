"""Who is on a GPU now: the newest process list of each, and the command that would end it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from analytics.ledger.build import milliseconds
from fallow import parquet, schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fallow.lake import Lake

_COLUMNS = ("gpu", "time", "pid", "user", "command", "pod", "namespace", "slurm_job_id")


@dataclass(frozen=True)
class Process:
    """One process in the newest list of a GPU."""

    gpu: str
    pid: int
    user: str | None
    command: str | None
    pod: str | None
    namespace: str | None
    slurm_job_id: str | None


@dataclass(frozen=True)
class Holders:
    """The newest process list per GPU."""

    lists: Mapping[str, tuple[Process, ...]]

    def of(self, gpus: Sequence[str]) -> tuple[Process, ...]:
        """All processes of these GPUs."""
        return tuple(process for gpu in gpus for process in self.lists.get(gpu, ()))


def load_holders(lake: Lake) -> Holders:
    """The newest list of every GPU, read from each host's newest day of process rows."""
    newest: dict[str, str] = {}
    files = lake.files("process")
    for file in files:
        newest[file.host] = max(newest.get(file.host, ""), file.date)
    recent = [file for file in files if file.date == newest[file.host]]
    frame = milliseconds(parquet.read(recent, schema.PROCESS, _COLUMNS)).drop("host")
    last = frame.filter(pl.col("time") == pl.col("time").max().over("gpu"))
    lists: dict[str, list[Process]] = {}
    for row in last.sort("gpu", "pid").drop("time").iter_rows(named=True):
        lists.setdefault(row["gpu"], []).append(Process(**row))
    return Holders({gpu: tuple(processes) for gpu, processes in lists.items()})


def release_command(host: str, processes: Sequence[Process]) -> str:
    """What ends these processes: the scheduler's own command where one owns them, `kill` otherwise."""
    jobs = sorted({process.slurm_job_id for process in processes if process.slurm_job_id})
    if jobs:
        return f"scancel {' '.join(map(shlex.quote, jobs))}"
    pods = sorted({(process.namespace or "default", process.pod) for process in processes if process.pod})
    if pods:
        return " && ".join(f"kubectl delete pod -n {shlex.quote(space)} {shlex.quote(pod)}" for space, pod in pods)
    pids = sorted({process.pid for process in processes})
    if pids:
        return f"ssh {shlex.quote(host)} kill {' '.join(map(str, pids))}"
    return look_command(host)


def look_command(host: str) -> str:
    """What shows who is on the host's GPUs, where no process list is known."""
    return f"ssh {shlex.quote(host)} nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv"

"""Who is on a GPU at the end of a window: its newest process list, and the command that would end what runs there."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from analytics.frames import milliseconds
from fallow import parquet, schema
from fallow.clock import utc_day

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fallow.lake import Lake

_COLUMNS = ("gpu", "time", "pid", "user", "command", "pod", "namespace", "slurm_job_id")


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

    @property
    def owners(self) -> set[tuple[str, ...]]:
        """Everything that `release_command` could end it by."""
        names: set[tuple[str, ...]] = {("pid", self.host, str(self.pid))}
        if self.slurm_job_id:
            names.add(("job", self.slurm_job_id))
        if self.pod:
            names.add(("pod", self.namespace or "default", self.pod))
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
        return tuple(
            gpu
            for gpu, processes in self.lists.items()
            if gpu not in gpus and any(own & process.owners for process in processes)
        )


def load_holders(lake: Lake, until_ms: int) -> Holders:
    """The newest list of every GPU before `until_ms`, read from each host's last two days of process rows until then."""
    days: dict[str, set[str]] = {}
    files = [file for file in lake.files("process") if file.date <= utc_day(until_ms)]
    for file in files:
        days.setdefault(file.host, set()).add(file.date)
    recent = [file for file in files if file.date in sorted(days[file.host])[-2:]]
    frame = milliseconds(parquet.read(recent, schema.PROCESS, _COLUMNS)).filter(pl.col("time") < until_ms)
    last = frame.filter(pl.col("time") == pl.col("time").max().over("gpu"))
    lists: dict[str, list[Process]] = {}
    for row in last.sort("gpu", "pid").drop("time").iter_rows(named=True):
        lists.setdefault(row["gpu"], []).append(Process(**row))
    return Holders({gpu: tuple(processes) for gpu, processes in lists.items()})


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

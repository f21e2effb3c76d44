"""Commands of findings: to inspect, and to end what is on a GPU.

A command ends work only if a recent list names the work, all of it belongs to the finding, and no other work ends with
it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from analytics.language.sentences import tr, tr_many
from analytics.ledger.summary import SILENT_AFTER_MS
from analytics.states import AT_REST
from analytics.workloads.confidence import other_work
from analytics.workloads.ledger_rows import by_job
from analytics.workloads.model import Context, once_per_context
from analytics.workloads.process_lists import ListedProcess, serves_only
from analytics.workloads.processes import launched_together
from analytics.workloads.window_end import allocations, last_rows, newest_rows, unseen_by_job, unseen_places, window_end
from fallow.clock import MINUTE_MS
from fallow.outside_text import has_hidden


def release_command(host: str, processes: Sequence[ListedProcess]) -> str:
    """Return a command that ends these processes: the scheduler's own command if one owns them, else `kill`."""
    jobs = sorted({process.slurm_job_id for process in processes if process.slurm_job_id})
    if jobs:
        return f"scancel {operands(jobs)}"
    pods = sorted({(process.namespace or "default", process.pod) for process in processes if process.pod})
    if pods:
        return " && ".join(f"kubectl delete pod -n {quote(space)} {operands([pod])}" for space, pod in pods)
    pids = sorted({process.pid for process in processes})
    if pids:
        return f"ssh {operands([host])} kill {' '.join(map(str, pids))}"
    return look_command(host)


_ENDS_WORK = re.compile(r"(scancel|kubectl delete pod) |ssh (-- )?\S+ kill ")


def ends_work(command: str) -> bool:
    """Return True if a finding's command ends work, and not only inspects."""
    return _ENDS_WORK.match(command) is not None


def acts(command: str) -> bool:
    """Return True if a finding's command changes something: it ends work, or is a line of a job script."""
    return ends_work(command) or command.startswith("#SBATCH")


def look_command(host: str) -> str:
    return f"ssh {operands([host])} nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv"


def array_command(slurm_jobs: Sequence[str]) -> str:
    """Return a command that shows Slurm jobs with their arrays and heterogeneous jobs, task by task."""
    return f"squeue --jobs={quote(','.join(slurm_jobs))} --array"


def log_command(job: str | None) -> str | None:
    """Return a command that names or shows the log of a Slurm job or pod; None for other work."""
    scheduler, _, name = (job or "").partition(":")
    if scheduler == "slurm":
        return f"scontrol show job {operands([name])}"
    if scheduler == "pod":
        space, _, pod = name.partition("/")
        return f"kubectl logs --tail=50 -n {quote(space)} {operands([pod])}"
    return None


def dump_command(job: str | None) -> str | None:
    """Return a command that ends a Slurm job such that its processes may write their stacks; None for other work."""
    scheduler, _, name = (job or "").partition(":")
    return f"scancel --signal=ABRT --full {operands([name])}" if scheduler == "slurm" else None


def watch_command(host: str) -> str:
    """Return a command that shows the load of the host's GPUs."""
    return f"ssh {operands([host])} nvidia-smi --query-gpu=uuid,name,utilization.gpu,memory.used --format=csv"


def operands(names: Sequence[str]) -> str:
    """Return names as operands that no command takes for an option."""
    return " ".join([*(["--"] if any(name.startswith("-") for name in names) else []), *map(quote, names)])


def quote(name: str) -> str:
    """Return the name as one word of a shell line without control characters, whatever the name contains."""
    if not has_hidden(name):
        return shlex.quote(name)
    shown = (char if not has_hidden(char) and char not in "\\'" else _escaped(char) for char in name)
    return f"$'{''.join(shown)}'"


def _escaped(char: str) -> str:
    """Return Bash's and zsh's $'...' notation, byte by byte."""
    return "".join(f"\\{byte:03o}" for byte in char.encode())


_GPUS_MAX = 8
"""Most UUIDs in one command: those of a whole host."""


def on_host(host: str, *words: str) -> str:
    """Return a command on another host. Its words pass two shells, this one and the host's, and are quoted for both."""
    return f"ssh {operands([host])} {' '.join(quote(quote(word)) for word in words)}"


def monitor_command(host: str, gpus: Sequence[str]) -> str:
    """Return a command that shows half a minute of utilization, power and clocks of some GPUs, second by second."""
    return on_host(host, "nvidia-smi", "dmon", "-i", ",".join(gpus[:_GPUS_MAX]), "-s", "puc", "-c", "30")


def throttle_command(host: str, gpu: str) -> str:
    """Return a command that shows why a GPU's clocks are reduced, its temperature and its power limit."""
    return on_host(host, "nvidia-smi", "-q", "-d", "PERFORMANCE,TEMPERATURE,POWER", "-i", gpu)


_SLURM = "slurm:"
_NUMBER = re.compile(r"\d+")
_COMPONENTS_MAX = 128
"""Slurm's own limit: ids of components follow one another, and a site may have any of them end all (`whole_hetjob`)."""


def tied_jobs(context: Context, jobs: Iterable[str]) -> tuple[str, ...]:
    """Return Slurm ids of other working jobs that may end with these jobs, by their names in the ledger."""
    own = {job for job in jobs if job.startswith(_SLURM)}
    users = _job_users(context)
    return tuple(
        sorted(
            other.removeprefix(_SLURM)
            for other in _slurm_jobs_at_work(context) - own
            if any(_may_end(job, other) and _same_user(users.get(job), users.get(other)) for job in own)
        )
    )


@once_per_context
def _slurm_jobs_at_work(context: Context) -> frozenset[str]:
    """Return Slurm jobs that work, that may work unobserved, or whose processes have not been idle for long."""
    shortest_ms = context.settings.held_min_ms
    begun = (pl.col("state") == "held") & (pl.col("end") - pl.col("segment_start") < shortest_ms)
    young = by_job(newest_rows(context).filter(begun))["work"]
    names = {*window_end(context).at_work, *unseen_by_job(context), *young}
    return frozenset(name for name in names if name.startswith(_SLURM))


@once_per_context
def _job_users(context: Context) -> Mapping[str, frozenset[str]]:
    """Return by present Slurm job all of its users, from allocations and processes."""
    found: dict[str, set[str]] = {}
    there = [*window_end(context).jobs_on.values(), unseen_by_job(context)]
    listed = [f"{_SLURM}{each.slurm_job_id}" for those in context.users.lists.values() for each in those]
    names = pl.Series([*{job for jobs in there for job in jobs}, *listed], dtype=pl.String)
    allocated = allocations(context).filter(pl.col("user").is_not_null() & pl.col("job").is_in(names.implode()))
    for job, user in allocated.select("job", "user").unique().iter_rows():
        found.setdefault(job, set()).add(user)
    for processes in context.users.lists.values():
        for each in processes:
            if each.slurm_job_id and each.user:
                found.setdefault(f"{_SLURM}{each.slurm_job_id}", set()).add(each.user)
    return {job: frozenset(users) for job, users in found.items()}


def _same_user(users: frozenset[str] | None, others: frozenset[str] | None) -> bool:
    return not users or not others or not users.isdisjoint(others)


def _may_end(job: str, other: str) -> bool:
    """Return True if `scancel` of one job may end the other, by their ids alone."""
    if "_" in job:
        return False  # one task of an array, by the name that means it alone
    number, another = (_NUMBER.match(name.removeprefix(_SLURM)) for name in (job, other))
    # tasks get ids of their own as they start, later ones than the array's
    return number is None or another is None or int(another[0]) > int(number[0]) - _COMPONENTS_MAX


LIST_INTERVALS = 3
"""Number of its intervals for which a process list is valid, in the ledger and here."""

FRESH_MS = 15 * MINUTE_MS
"""Longest time since a host's last data in which its pids are named: later a pid may belong to another process."""


@dataclass(frozen=True)
class Ties:
    """What else ends, or may end, with the work on some GPUs. True if there is anything."""

    gpus: tuple[str, ...] = ()
    """Other GPUs that lose work."""
    unseen: tuple[str, ...] = ()
    """GPUs and hosts that are allocated to the same jobs and not observed."""
    tied: tuple[str, ...] = ()
    """Working Slurm jobs that may be of one array, or one heterogeneous job, with these."""
    slurm: tuple[str, ...] = ()
    """The Slurm jobs that would be ended."""

    def __bool__(self) -> bool:
        return bool(self.gpus or self.unseen or self.tied)

    @property
    def failed(self) -> list[str]:
        failed = other_work(len(self.gpus))
        if self.unseen:
            failed.append(
                tr_many(
                    "{number} {GPU|GPUs} or {host|hosts} of the same job {is|are} not observed ({|such as }{place}):"
                    " the job may be working there",
                    len(self.unseen),
                    place=self.unseen[0],
                )
            )
        if self.tied:
            failed.append(
                tr(
                    "Slurm job {other} of the same user is working or not observed. Both may belong to one array or"
                    " heterogeneous job, which `scancel` ends as a whole",
                    other=self.tied[0],
                )
            )
        return failed

    def look(self, host: str) -> str:
        """Return a command that shows the state of the jobs, if the scheduler can show it."""
        if self.gpus or not self.slurm:
            return look_command(host)
        return array_command(self.slurm)


def works_elsewhere(context: Context, gpus: Sequence[str]) -> tuple[str, ...]:
    """Return other GPUs that lose work if these are ended: GPUs of the same processes, Slurm jobs, pods or Ray jobs.

    Process lists and the ledger's rows count: an allocation may name the job of a GPU without a process list.
    """
    standing = window_end(context)
    jobs = _jobs_on(context, gpus)
    together = launched_together(context)
    pods = (job.removeprefix("pod:").partition("/") for job in jobs if job.startswith("pod:"))
    listed = {
        *context.users.beyond(gpus),
        *(other for gpu in gpus for other in together.get(gpu, ())),
        *(gpu for space, _, pod in pods for gpu in context.users.with_pod(space, pod)),
    }
    at_work = (gpu for gpu in listed if standing.state.get(gpu) not in AT_REST)
    by_ledger = (gpu for job in jobs for gpu in standing.at_work.get(job, ()))
    return tuple(sorted({*at_work, *by_ledger}.difference(gpus)))


def ties(context: Context, gpus: Sequence[str], *, as_jobs: bool = True) -> Ties:
    """Return everything that speaks against ending the work on these GPUs.

    Without `as_jobs` only processes are ended, which affects no other task of an array.
    """
    if not gpus:
        return Ties()
    jobs = _jobs_on(context, gpus)
    slurm = tuple(sorted(job.removeprefix("slurm:") for job in jobs if job.startswith("slurm:"))) if as_jobs else ()
    tied = tied_jobs(context, jobs) if as_jobs else ()
    unseen = tuple(place for place in unseen_places(context, jobs) if place not in gpus)
    return Ties(works_elsewhere(context, gpus), unseen, tied, slurm)


def _jobs_on(context: Context, gpus: Sequence[str]) -> set[str]:
    """Return the Slurm jobs, pods and Ray jobs on these GPUs, from the ledger and process lists."""
    on = window_end(context).jobs_on
    return {job for gpu in gpus for job in on.get(gpu, ())} | {
        job for process in context.users.on(gpus) for job in _jobs_of(process)
    }


def own_processes(context: Context, gpus: Sequence[str], user: str | None) -> tuple[ListedProcess, ...]:
    """Return the user's processes on these GPUs, if they may be ended; empty if anything is uncertain.

    Every GPU must have a recent process list at the end of the window, and every process must belong to a user in the
    user's name. Display servers, MPS daemons and monitors are left out.
    """
    if not context.latest or not set(gpus) <= listed_now(context):
        return ()  # what ran then may belong to another user by now
    processes = tuple(each for each in context.users.on(gpus) if not serves_only(each.command))
    return processes if all(_is_of(each.user, user) for each in processes) else ()


def ending_command(
    context: Context,
    host: str,
    gpus: Sequence[str],
    user: str | None,
    *,
    bound: Ties | None = None,
    as_jobs: bool = True,
) -> str:
    """Return a command that ends the user's work on these GPUs, or one that inspects if other work might end too.

    `bound` is what else would end, if the caller already has it. Without `as_jobs` only processes are ended, for jobs
    and pods that have ended.
    """
    bound = ties(context, gpus) if bound is None else bound
    own = own_processes(context, gpus, user)
    if bound or not own:
        return bound.look(host) if bound else look_command(host)
    ended = own if as_jobs else tuple(replace(each, slurm_job_id=None, pod=None) for each in own)
    by_pid = not any(each.slurm_job_id or each.pod for each in ended)
    return look_command(host) if by_pid and host not in _fresh_hosts(context) else release_command(host, ended)


@once_per_context
def _fresh_hosts(context: Context) -> frozenset[str]:
    """Return the hosts with data recent enough that a pid still is the same process."""
    return frozenset(newest_rows(context).filter(pl.col("end") >= context.until_ms - FRESH_MS)["host"])


@once_per_context
def listed_now(context: Context) -> frozenset[str]:
    """Return the GPUs whose user the ledger knows by a valid process list at the end of the window.

    The list may be older than the GPU's last row, because hosts publish at different times; no list is valid for longer
    than SILENT_AFTER_MS.
    """
    last = last_rows(context).filter(pl.col("user_source") == "process").select("host", "gpu", seen="end")
    recent = context.rollups.processes(context.until_ms - SILENT_AFTER_MS).filter(
        pl.col("end") > context.until_ms - SILENT_AFTER_MS
    )
    lists = (
        recent.join(last, on=("host", "gpu"))
        .sort("end", "list_count")
        .group_by("gpu")
        .agg(pl.col("time", "end", "list_count", "seen").last())
        .with_columns(interval_ms=(pl.col("end") - pl.col("time")) / pl.col("list_count"))
    )
    listed_ms = pl.col("end") - pl.col("interval_ms")
    good = lists.filter(pl.col("seen") - listed_ms <= LIST_INTERVALS * pl.col("interval_ms"))
    return frozenset(good["gpu"])


def _jobs_of(process: ListedProcess) -> tuple[str, ...]:
    """Return the ledger's names of the job, pod or Ray job of a process."""
    slurm = (f"slurm:{process.slurm_job_id}",) if process.slurm_job_id else ()
    pod = (f"pod:{process.namespace or 'default'}/{process.pod}",) if process.pod else ()
    return (*slurm, *pod)


def _is_of(name: str | None, user: str | None) -> bool:
    """True if `name` is the user, or one of the users who share a GPU as `ann+bob`."""
    return name is not None and user is not None and (name == user or name in user.split("+"))

"""The commands that findings name: to look, and to end what is on a GPU.

Work may be ended only where a fresh list names it, all of it is the finding's own, and no other work ends with it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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
    """Ends these processes: the scheduler's own command where one owns them, `kill` otherwise."""
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
    """Whether a finding's command ends work, and does not only look."""
    return _ENDS_WORK.match(command) is not None


def acts(command: str) -> bool:
    """Whether a finding's command does something: ends work, or is a line of a job script. Others only look."""
    return ends_work(command) or command.startswith("#SBATCH")


def look_command(host: str) -> str:
    return f"ssh {operands([host])} nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv"


def array_command(slurm_jobs: Sequence[str]) -> str:
    """Shows Slurm jobs with their arrays and heterogeneous jobs, task by task."""
    return f"squeue --jobs={quote(','.join(slurm_jobs))} --array"


def watch_command(host: str) -> str:
    """Shows how busy the host's GPUs are."""
    return f"ssh {operands([host])} nvidia-smi --query-gpu=uuid,name,utilization.gpu,memory.used --format=csv"


def operands(names: Sequence[str]) -> str:
    """Names as operands that no command takes for an option."""
    return " ".join([*(["--"] if any(name.startswith("-") for name in names) else []), *map(quote, names)])


def quote(name: str) -> str:
    """The name as one word of a shell line that holds no control character, whatever the name holds."""
    if not has_hidden(name):
        return shlex.quote(name)
    shown = (char if not has_hidden(char) and char not in "\\'" else _escaped(char) for char in name)
    return f"$'{''.join(shown)}'"


def _escaped(char: str) -> str:
    """Bash's and zsh's $'...' notation, byte by byte."""
    return "".join(f"\\{byte:03o}" for byte in char.encode())


_GPUS_MAX = 8
"""UUIDs in one command: a whole host. Nobody reads more side by side."""


def on_host(host: str, *words: str) -> str:
    """A command on another host. Its words pass two shells, this one and the host's, and are quoted for both."""
    dashes = "-- " if host.startswith("-") else ""
    return f"ssh {dashes}{quote(host)} {' '.join(quote(quote(word)) for word in words)}"


def monitor_command(host: str, gpus: Sequence[str]) -> str:
    """Half a minute of utilization, power and clocks of some GPUs, second by second."""
    return on_host(host, "nvidia-smi", "dmon", "-i", ",".join(gpus[:_GPUS_MAX]), "-s", "puc", "-c", "30")


def throttle_command(host: str, gpu: str) -> str:
    """Why a GPU's clocks are held down, how hot it is and what it may draw."""
    return on_host(host, "nvidia-smi", "-q", "-d", "PERFORMANCE,TEMPERATURE,POWER", "-i", gpu)


_SLURM = "slurm:"
_NUMBER = re.compile(r"\d+")
_COMPONENTS_MAX = 128
"""Slurm's own limit: ids of components follow one another, and a site may have any of them end all (`whole_hetjob`)."""


def tied_jobs(context: Context, jobs: Iterable[str]) -> tuple[str, ...]:
    """Slurm ids of other jobs at work that may end with these, which are named as in the ledger."""
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
    """The Slurm jobs that work, that may do so unseen, or whose processes have not rested for long."""
    shortest_ms = context.settings.held_min_ms
    begun = (pl.col("state") == "held") & (pl.col("end") - pl.col("stretch_start") < shortest_ms)
    young = by_job(newest_rows(context).filter(begun))["work"]
    names = {*window_end(context).at_work, *unseen_by_job(context), *young}
    return frozenset(name for name in names if name.startswith(_SLURM))


@once_per_context
def _job_users(context: Context) -> Mapping[str, frozenset[str]]:
    """By Slurm job that is there now everybody who is named as its user, by a claim or a process."""
    found: dict[str, set[str]] = {}
    there = [*window_end(context).jobs_on.values(), unseen_by_job(context)]
    listed = [f"{_SLURM}{each.slurm_job_id}" for those in context.holders.lists.values() for each in those]
    names = pl.Series([*{job for jobs in there for job in jobs}, *listed], dtype=pl.String)
    claimed = allocations(context).filter(pl.col("user").is_not_null() & pl.col("job").is_in(names.implode()))
    for job, user in claimed.select("job", "user").unique().iter_rows():
        found.setdefault(job, set()).add(user)
    for processes in context.holders.lists.values():
        for each in processes:
            if each.slurm_job_id and each.user:
                found.setdefault(f"{_SLURM}{each.slurm_job_id}", set()).add(each.user)
    return {job: frozenset(users) for job, users in found.items()}


def _same_user(users: frozenset[str] | None, others: frozenset[str] | None) -> bool:
    return not users or not others or not users.isdisjoint(others)


def _may_end(job: str, other: str) -> bool:
    """Whether `scancel` of the one may end the other, by their ids alone."""
    if "_" in job:
        return False  # one task of an array, by the name that means it alone
    number, another = (_NUMBER.match(name.removeprefix(_SLURM)) for name in (job, other))
    # tasks get ids of their own as they start, later ones than the array's
    return number is None or another is None or int(another[0]) > int(number[0]) - _COMPONENTS_MAX


LIST_INTERVALS = 3
"""A process list is good for so many of its intervals, in the ledger as here."""

FRESH_MS = 15 * MINUTE_MS
"""A pid is named for so long after its host was last seen: what it is by then may be somebody else's."""


@dataclass(frozen=True)
class Ties:
    """What else would end with what is on some GPUs, or may: true where there is anything."""

    gpus: tuple[str, ...] = ()
    """Other GPUs that lose work."""
    unseen: tuple[str, ...] = ()
    """GPUs and hosts that the same jobs claim and nobody sees."""
    tied: tuple[str, ...] = ()
    """Slurm jobs at work that may be of one array, or one heterogeneous job, with these."""
    slurm: tuple[str, ...] = ()
    """The Slurm jobs that would be ended."""

    def __bool__(self) -> bool:
        return bool(self.gpus or self.unseen or self.tied)

    @property
    def failed(self) -> list[str]:
        return [*other_work(len(self.gpus)), *self._unseen_in_words(), *self._tied_in_words()]

    def look(self, host: str) -> str:
        """Shows how the jobs stand, where the scheduler can tell."""
        if self.gpus or not self.slurm:
            return look_command(host)
        return array_command(self.slurm)

    def _unseen_in_words(self) -> list[str]:
        if not self.unseen:
            return []
        return [
            tr_many(
                "{number} GPU or host of the same job is not observed ({place}): the job may be at work there",
                "{number} GPUs or hosts of the same job are not observed (such as {place}): the job may be at work there",
                len(self.unseen),
                place=self.unseen[0],
            )
        ]

    def _tied_in_words(self) -> list[str]:
        if not self.tied:
            return []
        return [
            tr(
                "Slurm job {other} of the same user is at work or not observed: both may belong to one array or heterogeneous job, which `scancel` would end as a whole",
                other=self.tied[0],
            )
        ]


def works_elsewhere(context: Context, gpus: Sequence[str]) -> tuple[str, ...]:
    """Other GPUs that lose work if what is on these is ended: of the same processes, or of the same Slurm job, pod or Ray job.

    By process lists, and by the ledger's own rows: of a GPU whose processes nobody lists, a claim may know the job.
    """
    standing = window_end(context)
    jobs = _jobs_on(context, gpus)
    together = launched_together(context)
    pods = (job.removeprefix("pod:").partition("/") for job in jobs if job.startswith("pod:"))
    listed = {
        *context.holders.beyond(gpus),
        *(other for gpu in gpus for other in together.get(gpu, ())),
        *(gpu for space, _, pod in pods for gpu in context.holders.with_pod(space, pod)),
    }
    at_work = (gpu for gpu in listed if standing.state.get(gpu) not in AT_REST)
    by_ledger = (gpu for job in jobs for gpu in standing.at_work.get(job, ()))
    return tuple(sorted({*at_work, *by_ledger}.difference(gpus)))


def ties(context: Context, gpus: Sequence[str], *, as_jobs: bool = True) -> Ties:
    """All that speaks against ending what is on these GPUs.

    Args:
        context: the window.
        gpus: the GPUs whose work would be ended.
        as_jobs: whether it is ended by its jobs; without, by process alone, and no other task of an array is touched.
    """
    if not gpus:
        return Ties()
    jobs = _jobs_on(context, gpus)
    slurm = tuple(sorted(job.removeprefix("slurm:") for job in jobs if job.startswith("slurm:"))) if as_jobs else ()
    tied = tied_jobs(context, jobs) if as_jobs else ()
    unseen = tuple(place for place in unseen_places(context, jobs) if place not in gpus)
    return Ties(works_elsewhere(context, gpus), unseen, tied, slurm)


def _jobs_on(context: Context, gpus: Sequence[str]) -> set[str]:
    """The Slurm jobs, pods and Ray jobs on these GPUs, by the ledger and by process lists."""
    on = window_end(context).jobs_on
    return {job for gpu in gpus for job in on.get(gpu, ())} | {
        job for process in context.holders.on(gpus) for job in _jobs_of(process)
    }


def own_processes(context: Context, gpus: Sequence[str], holder: str | None) -> tuple[ListedProcess, ...]:
    """The processes on these GPUs, if they may be ended as the holder's; none if any of it is unsure.

    Every GPU must be known by processes at the end of the window, by a list that is still good, and every process must be
    that of a user whom the holder's name names. Display servers, MPS daemons and monitors are left alone.
    """
    if not context.latest or not set(gpus) <= listed_now(context):
        return ()  # what ran then may be somebody else's by now
    processes = tuple(each for each in context.holders.on(gpus) if not serves_only(each.command))
    return processes if all(_is_of(each.user, holder) for each in processes) else ()


def ending_command(
    context: Context,
    host: str,
    gpus: Sequence[str],
    holder: str | None,
    processes: Sequence[ListedProcess] | None = None,
    *,
    bound: Ties | None = None,
) -> str:
    """What ends the holder's work on these GPUs; only a look where that is not sure to end nothing else.

    Args:
        context: the window.
        host: the GPUs' host.
        gpus: the GPUs.
        holder: whose processes may be ended.
        processes: those to end; all of the holder's by default.
        bound: what else would end, where the caller knows it already.
    """
    bound = ties(context, gpus) if bound is None else bound
    own = own_processes(context, gpus, holder)
    if bound or not own:
        return bound.look(host) if bound else look_command(host)
    ended = own if processes is None else processes
    by_pid = not any(each.slurm_job_id or each.pod for each in ended)
    return look_command(host) if by_pid and host not in _fresh_hosts(context) else release_command(host, ended)


@once_per_context
def _fresh_hosts(context: Context) -> frozenset[str]:
    """The hosts that were seen so lately that a pid of theirs is still the same process."""
    return frozenset(newest_rows(context).filter(pl.col("end") >= context.until_ms - FRESH_MS)["host"])


@once_per_context
def listed_now(context: Context) -> frozenset[str]:
    """The GPUs whose holder the ledger knows by processes at the end of the window, by a list that is still good.

    Beside the GPU's own last row, for hosts publish at different times; no list is good for longer than SILENT_AFTER_MS.
    """
    last = last_rows(context).filter(pl.col("holder_source") == "process").select("host", "gpu", seen="end")
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
    """The ledger's names for what a process belongs to."""
    slurm = (f"slurm:{process.slurm_job_id}",) if process.slurm_job_id else ()
    pod = (f"pod:{process.namespace or 'default'}/{process.pod}",) if process.pod else ()
    return (*slurm, *pod)


def _is_of(user: str | None, holder: str | None) -> bool:
    """Whether the user is the holder, or one of those who share a GPU as `ann+bob`."""
    return user is not None and holder is not None and (user == holder or user in holder.split("+"))

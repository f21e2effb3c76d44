"""Queries that run in the background and are cached: login names, Slurm jobs. A failure is reported once per cause."""

from __future__ import annotations

import pwd
import re
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from agent.attribution.placement import Placement
from agent.attribution.proc import printable, printable_text, shares_root
from agent.kernel_files import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.attribution.placement import JobIds
    from agent.rows import EventRow

Result = TypeVar("Result")


@dataclass(frozen=True)
class LookupAnswer(Generic[Result]):
    """The outcome of a query: a result or an error."""

    result: Result | None = None
    error: Exception | None = None


class Background(Generic[Result]):
    """Runs a query in a short-lived thread; a thread that hangs blocks only its own query.

    Threads are daemons, so the agent ends without waiting for them.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._answers: list[LookupAnswer[Result]] = []
        self._asked_s = 0.0

    @property
    def busy(self) -> bool:
        """Return whether a query runs, or its answer has not been taken."""
        return self._thread is not None

    @property
    def busy_s(self) -> float:
        """Return the seconds since the query began; 0 where none runs."""
        return 0.0 if self._thread is None else time.monotonic() - self._asked_s

    def ask(self, question: Callable[[], Result]) -> None:
        """Begin a query; only while not busy."""
        self._asked_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, args=(question,), name=self._name, daemon=True)
        self._thread.start()

    def take(self, wait_s: float = 0.0) -> LookupAnswer[Result] | None:
        """Return the answer if it has arrived or arrives within the wait; every answer is returned once."""
        if self._thread is None:
            return None
        if wait_s > 0:
            self._thread.join(wait_s)
        if not self._answers:
            return None
        self._thread = None
        return self._answers.pop()

    def _run(self, question: Callable[[], Result]) -> None:
        try:
            self._answers.append(LookupAnswer(result=question()))
        except Exception as error:  # noqa: BLE001  # the error becomes the answer, because a thread has no caller
            self._answers.append(LookupAnswer(error=error))


class Failures:
    """Collects failures that become rows of the `event` table."""

    def __init__(self) -> None:
        self._failing: set[str] = set()
        self._incidents: list[EventRow] = []

    def failed(self, cause: str, detail: str) -> None:
        """Note a failure, unless the same cause already fails."""
        if cause not in self._failing:
            self._failing.add(cause)
            self._incidents.append({"kind": "attribution_failed", "detail": detail})

    def worked(self, cause: str) -> None:
        """Note that the cause is over: its next failure is reported again."""
        self._failing.discard(cause)

    def take(self) -> list[EventRow]:
        """Return the failures since the last call, with `kind` and `detail`."""
        taken, self._incidents = self._incidents, []
        return taken


_KEEP_MS = 3_600_000  # users are added and removed daily
_ASK_AGAIN_MS = 600_000  # a number may get a name later, and a failed controller may answer later
_LOCAL_S = 0.02  # a local file answers within this wait; a directory server may not
_LATE_S = 5.0
_PASSWD_BYTES = 1 << 24


class LoginNames:
    """Names of users, queried in the background and cached."""

    def __init__(self, proc: str, failures: Failures) -> None:
        self._proc = proc
        self._failures = failures
        self._ours = shares_root(proc)
        self._background: Background[dict[int, str | None]] = Background("fallow-names")
        self._names: dict[int, tuple[str | None, int]] = {}
        self._late = False

    def name(self, user_id: int) -> str | None:
        """Return the login name; the number without a name or an answer; None before the first query."""
        if user_id in self._names:
            return self._names[user_id][0] or str(user_id)
        return str(user_id) if self._late else None

    def look_up(self, user_ids: Iterable[int], now_ms: int) -> None:
        """Query unknown and old names, and take the answers since the last call."""
        self._take(now_ms)
        due = {user_id for user_id in user_ids if self._is_due(user_id, now_ms)}
        if due and not self._background.busy:
            self._background.ask(lambda: self._ask(due))
            self._take(now_ms, _LOCAL_S)
        elif self._background.busy_s > _LATE_S and not due <= self._names.keys():
            self._late = True  # only the number is known
            self._failures.failed(
                "names", "the user directory does not answer, so users appear as numbers; check `getent passwd`"
            )

    def wait(self, now_ms: int, wait_s: float) -> None:
        """Wait at most this long for the running query."""
        self._take(now_ms, wait_s)

    def _is_due(self, user_id: int, now_ms: int) -> bool:
        if user_id not in self._names:
            return True
        name, asked_ms = self._names[user_id]
        return abs(now_ms - asked_ms) > (_ASK_AGAIN_MS if name is None else _KEEP_MS)

    def _take(self, now_ms: int, wait_s: float = 0.0) -> None:
        answer = self._background.take(wait_s)
        if answer is None:
            return
        self._names |= {user_id: (name, now_ms) for user_id, name in (answer.result or {}).items()}
        self._late = False
        self._failures.worked("names")

    def _ask(self, user_ids: set[int]) -> dict[int, str | None]:
        if self._ours:
            return {user_id: _from_directory(user_id) for user_id in user_ids}
        # in a container with the host's processes only the host knows the names of its users; None leaves the number
        names = _passwd(read(f"{self._proc}/1/root/etc/passwd", _PASSWD_BYTES) or b"")
        return {user_id: names.get(user_id) for user_id in user_ids}


def _from_directory(user_id: int) -> str | None:
    try:
        return printable_text(pwd.getpwuid(user_id).pw_name)
    except (KeyError, OverflowError):
        return None


def _passwd(text: bytes) -> dict[int, str]:
    """Return names by number from a passwd file; the first entry of a number counts (passwd(5))."""
    names: dict[int, str] = {}
    for line in text.splitlines():
        fields = line.split(b":")
        if len(fields) >= 7 and fields[2].isdigit():
            names.setdefault(int(fields[2]), printable(fields[0]))
    return names


_TIMEOUT_S = 10.0
_JOBS_AT_ONCE = 8
_FORGET_MS = 86_400_000  # ids are reused after weeks at the earliest

_JOB_LINE = re.compile(rb"JobId=([0-9]+) ")
# the job's name precedes these fields and may contain any text, but hardly this sequence
_ACCOUNT = re.compile(rb"\bNice=\S+ Account=(\S*) QOS=")

SLUIDS_ALONE = "cgroup paths name Slurm jobs by SLUID, and neither the environment nor scontrol gives the job ids"
SLUID_REMEDY = "set `CgroupJobIdPaths=yes` in cgroup.conf (Slurm 26.05.2 and later)"
"""The setting that makes Slurm name its jobs' folders by job id."""


@dataclass(frozen=True)
class SlurmJob:
    """The job of a process; None where it has no job, or the job is unknown."""

    job_id: str | None = None
    step_id: str | None = None
    account: str | None = None
    from_environ: bool = False
    sluid: str | None = None
    """Slurm's other name of the job, where the host does not show the job id."""

    @property
    def key(self) -> str | None:
        """Return the id by which scontrol finds the job."""
        return self.job_id or self.sluid


@dataclass(slots=True)
class AttributedProcess:
    """One process, identified by its id and its start."""

    start_ticks: int
    started_ms: int | None = None
    command_bytes: bytes = b""
    texts: tuple[bytes, ...] = ()
    command: str = ""
    parent_pid: int = 0
    host_mem_bytes: int = 0
    cpu_util_pct: float | None = None
    user_id: int | None = None
    placement: Placement = field(default_factory=Placement)
    slurm: SlurmJob = field(default_factory=SlurmJob)
    ray_job_id: str | None = None
    arguments: str | None = None
    gpus: dict[str, int] = field(default_factory=dict)
    seen_ms: int = 0
    read_ms: int | None = None
    cpu_ticks: int = 0
    cpu_ns: int | None = None


def slurm_job(placement: Placement, job: JobIds) -> SlurmJob:
    """Return the job by the cgroup, which a process cannot leave; else by the environment, which any user can write.

    An environment with another job than the cgroup's was inherited: its account does not belong to this job.
    A cgroup with only a SLUID gets its job id from an environment without another SLUID.
    """
    if placement.slurm_job_id is not None:
        account = job.slurm_account if job.slurm_job_id == placement.slurm_job_id else None
        return SlurmJob(placement.slurm_job_id, placement.slurm_step_id, account, account is not None)
    if placement.slurm_sluid is not None:
        if job.slurm_job_id is not None and job.slurm_sluid in (None, placement.slurm_sluid):
            return SlurmJob(job.slurm_job_id, placement.slurm_step_id, job.slurm_account, from_environ=True)
        return SlurmJob(step_id=placement.slurm_step_id, sluid=placement.slurm_sluid)
    if job.slurm_job_id is not None:
        return SlurmJob(job.slurm_job_id, job.slurm_step_id, job.slurm_account, from_environ=True)
    return SlurmJob()


def unknown_form(scheduler: str, path: str) -> str:
    """Return the sentence about a process whose cgroup path has an unknown form."""
    return f"{scheduler}, form not known: the cgroup path {path} does not show the job of its processes"


class ControllerError(Exception):
    """scontrol could not query Slurm's controller."""


class SlurmController:
    """Job ids and accounts of jobs whose environment is unreadable, queried with scontrol by job id or SLUID."""

    def __init__(self, command: str, failures: Failures) -> None:
        self._command = command
        self._failures = failures
        self._background: Background[dict[str, SlurmJob]] = Background("fallow-scontrol")
        self._jobs: dict[str, tuple[SlurmJob, int]] = {}
        self._not_before_ms: int | None = None

    def job(self, key: str | None) -> SlurmJob:
        """Return the job by its id or SLUID; all unknown where Slurm knows no job, or has not answered yet."""
        return self._jobs.get(key or "", (SlurmJob(), 0))[0]

    def is_silent(self, key: str) -> bool:
        """Return whether scontrol gave no id for a job, after a query or because it is unusable."""
        asked = key in self._jobs or not self._command or self._not_before_ms is not None
        return asked and self.job(key).job_id is None

    def look_up(self, keys: Iterable[str], now_ms: int) -> None:
        """Query unknown jobs, and take the answers since the last call."""
        self.wait(now_ms, 0.0)
        if self._not_before_ms is not None and abs(now_ms - self._not_before_ms) < _ASK_AGAIN_MS:
            return
        self._not_before_ms = None
        due = [key for key in dict.fromkeys(keys) if key not in self._jobs][:_JOBS_AT_ONCE]
        if due and self._command and not self._background.busy:
            self._background.ask(lambda: {key: ask_controller(self._command, key) for key in due})

    def wait(self, now_ms: int, wait_s: float) -> None:
        """Take the answer that has arrived, or arrives within the wait."""
        answer = self._background.take(wait_s)
        if answer is None:
            return
        if answer.error is not None:
            self._not_before_ms = now_ms
            if isinstance(answer.error, FileNotFoundError):
                return  # a host without Slurm's commands has no accounts
            self._failures.failed("scontrol", f"Slurm accounts are unknown: {answer.error}; try `{self._command} ping`")
            return
        self._failures.worked("scontrol")
        kept = {key: found for key, found in self._jobs.items() if abs(now_ms - found[1]) < _FORGET_MS}
        self._jobs = kept | {key: (job, now_ms) for key, job in (answer.result or {}).items()}


def ask_controller(command: str, key: str, timeout_s: float = _TIMEOUT_S) -> SlurmJob:
    """Return the job with this id or SLUID; all unknown for a job that the controller has forgotten.

    Raises FileNotFoundError where the command does not exist, ControllerError where the query fails.
    """
    try:
        done = subprocess.run(
            [command, "show", "job", "-o", key],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        raise ControllerError(f"scontrol did not answer within {timeout_s:g} s") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ControllerError(f"scontrol could not be started: {error.strerror}") from error
    if done.returncode == 0:
        return parse_job(done.stdout, key)
    if b"nvalid job id" in done.stderr:
        return SlurmJob()  # the job has ended, and the controller has forgotten it
    message = printable(done.stderr.strip().splitlines()[-1]) if done.stderr.strip() else f"exit code {done.returncode}"
    raise ControllerError(f"scontrol failed: {message[:200]}")


def parse_job(output: bytes, key: str) -> SlurmJob:
    """Return the job that `scontrol show job -o` prints. The first job of an array prints all; a SLUID has one."""
    jobs = [(match[1], line) for line in output.splitlines() if (match := _JOB_LINE.match(line))]
    own = [(job_id, line) for job_id, line in jobs if job_id == key.encode()] if key.isdigit() else jobs
    if not own or (len(own) > 1 and not key.isdigit()):
        return SlurmJob()
    job_id, line = own[0]
    match = _ACCOUNT.search(line)
    account = printable(match[1]) if match and match[1] not in (b"", b"(null)") else None
    return SlurmJob(job_id.decode(), account=account)

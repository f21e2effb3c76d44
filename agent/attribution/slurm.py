"""Slurm jobs of processes, and their accounts from `scontrol`, asked in the background and remembered per job."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.attribution.background import Background
from agent.attribution.proc import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.attribution.background import Failures
    from agent.attribution.placement import Job, Placement

_TIMEOUT_S = 10.0
_JOBS_AT_ONCE = 8
_FORGET_MS = 86_400_000  # ids are used again after weeks at the earliest
_ASK_AGAIN_MS = 600_000  # after a failure, and for a command that was not there

# the job's name stands before these fields and may hold anything, but hardly this very sequence
_ACCOUNT = re.compile(rb"\bNice=\S+ Account=(\S*) QOS=")


@dataclass(frozen=True)
class SlurmJob:
    """The job of a process; None where it has none, or nothing says so."""

    job_id: str | None = None
    step_id: str | None = None
    account: str | None = None
    from_environ: bool = False


def slurm_job(placement: Placement, job: Job) -> SlurmJob:
    """The job by the cgroup, which no process leaves by itself; else by an environment, which anybody can write.

    An environment that names another job than the cgroup was taken along from there: its account is not this job's.
    """
    if placement.slurm_job_id is not None:
        account = job.slurm_account if job.slurm_job_id == placement.slurm_job_id else None
        return SlurmJob(placement.slurm_job_id, placement.slurm_step_id, account, account is not None)
    if job.slurm_job_id is not None:
        return SlurmJob(job.slurm_job_id, job.slurm_step_id, job.slurm_account, from_environ=True)
    return SlurmJob()


class ControllerError(Exception):
    """scontrol could not ask Slurm's controller."""


class SlurmAccounts:
    """Which account a job is charged to, where the job's environment may not be read."""

    def __init__(self, command: str, failures: Failures) -> None:
        self._command = command
        self._failures = failures
        self._background: Background[dict[str, str | None]] = Background("fallow-scontrol")
        self._accounts: dict[str, tuple[str | None, int]] = {}
        self._not_before_ms: int | None = None

    def account(self, job_id: str) -> str | None:
        """The account; None where Slurm named none, or has not answered yet."""
        return self._accounts.get(job_id, (None, 0))[0]

    def look_up(self, job_ids: Iterable[str], now_ms: int) -> None:
        """Asks for jobs that are not known yet, and takes what came back since the last call."""
        self.wait(now_ms, 0.0)
        if self._not_before_ms is not None and abs(now_ms - self._not_before_ms) < _ASK_AGAIN_MS:
            return
        self._not_before_ms = None
        due = [job_id for job_id in dict.fromkeys(job_ids) if job_id not in self._accounts][:_JOBS_AT_ONCE]
        if due and self._command and not self._background.busy:
            self._background.ask(lambda: _ask(self._command, due))

    def wait(self, now_ms: int, wait_s: float) -> None:
        """Takes the answer that is there, or comes within the wait."""
        answer = self._background.take(wait_s)
        if answer is None:
            return
        if answer.error is not None:
            self._not_before_ms = now_ms
            if isinstance(answer.error, FileNotFoundError):
                return  # a host without Slurm's commands simply knows no accounts
            self._failures.failed("scontrol", f"Slurm accounts are unknown: {answer.error}; try `{self._command} ping`")
            return
        self._failures.worked("scontrol")
        kept = {job_id: found for job_id, found in self._accounts.items() if abs(now_ms - found[1]) < _FORGET_MS}
        self._accounts = kept | {job_id: (account, now_ms) for job_id, account in (answer.result or {}).items()}


def _ask(command: str, job_ids: Sequence[str]) -> dict[str, str | None]:
    return {job_id: _ask_one(command, job_id) for job_id in job_ids}


def _ask_one(command: str, job_id: str) -> str | None:
    """The account of one job.

    Raises FileNotFoundError where there is no such command, ControllerError where the controller cannot be asked.
    """
    try:
        done = subprocess.run(
            [command, "show", "job", "-o", job_id],
            stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_TIMEOUT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ControllerError(f"scontrol did not answer within {_TIMEOUT_S:g} s") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ControllerError(f"scontrol could not be started: {error.strerror}") from error
    if done.returncode == 0:
        return parse_account(done.stdout, job_id)
    if b"nvalid job id" in done.stderr:
        return None  # over, and forgotten by the controller
    said = printable(done.stderr.strip().splitlines()[-1]) if done.stderr.strip() else f"exit code {done.returncode}"
    raise ControllerError(f"scontrol said: {said[:200]}")


def parse_account(output: bytes, job_id: str) -> str | None:
    """The account in what `scontrol show job -o` prints; the first job of an array prints all of them."""
    lines = output.splitlines()
    own = [line for line in lines if line.startswith(b"JobId=%s " % job_id.encode())]
    match = _ACCOUNT.search(own[0]) if own else None
    return printable(match[1]) if match and match[1] not in (b"", b"(null)") else None

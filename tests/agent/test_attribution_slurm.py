"""Slurm jobs: from the cgroup, the environment, and scontrol (the real one where it is there)."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.attribution.lookups import ControllerJob, Failures, SlurmController, SlurmJob, parse_job, slurm_job
from agent.attribution.placement import JobIds, Placement, parse_environ
from tests.agent.conftest import wait_until

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_795_000_000_000
SLUID = "s7Q2MMABCD4E00"

# what scontrol of Slurm 22.05 printed for jobs whose name and comment were made to look like an account
PRINTED = (
    b"JobId=1 JobName=x Account=evil QOS= UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901759 Nice=0 Account=ml "
    b"QOS=normal JobState=RUNNING Reason=None Dependency=(null) WorkDir=/tmp Comment=Nice=0 Account=no QOS=z StdIn=/dev/null\n"
)
ARRAY = (
    b"JobId=3 ArrayJobId=2 ArrayTaskId=1 JobName=wrap UserId=root(0) GroupId=root(0) Nice=0 Account=other QOS=normal\n"
    b"JobId=2 ArrayJobId=2 ArrayTaskId=2 JobName=wrap UserId=root(0) GroupId=root(0) Nice=0 Account=ml QOS=normal\n"
)


@pytest.mark.parametrize(("printed", "job_id", "account"), [
    (PRINTED, "1", "ml"),
    (ARRAY, "2", "ml"),
    (ARRAY, "3", "other"),
    (ARRAY, "4", None),
    (b"JobId=5 JobName=x Nice=0 Account=(null) QOS=(null)\n", "5", None),
    (b"JobId=5 JobName=x Nice=0 Account=caf\xc3\xa9\xff QOS=n\n", "5", "caf\N{LATIN SMALL LETTER E WITH ACUTE}\N{REPLACEMENT CHARACTER}"),
    (b"", "5", None),
    (ARRAY, SLUID, None),
])  # fmt: skip
def test_accounts_in_what_scontrol_prints(printed: bytes, job_id: str, account: str | None) -> None:
    assert parse_job(printed, job_id).account == account


def test_the_cgroup_comes_before_the_environment() -> None:
    cgroup = Placement(slurm_job_id="42", slurm_step_id="0")
    assert slurm_job(cgroup, JobIds("42", "0", slurm_account="ml")) == SlurmJob("42", "0", "ml", from_environ=True)
    assert slurm_job(cgroup, JobIds("41", "3", slurm_account="other")) == SlurmJob("42", "0")
    assert slurm_job(cgroup, JobIds()) == SlurmJob("42", "0")
    assert slurm_job(Placement(), JobIds("41", "3", slurm_account="other")) == SlurmJob(
        "41", "3", "other", from_environ=True
    )
    assert slurm_job(Placement(), JobIds(slurm_account="other")) == SlurmJob()


def test_a_sluid_gets_its_job_from_an_environment_of_the_same_job() -> None:
    cgroup = Placement(slurm_sluid=SLUID, slurm_step_id="0")
    assert slurm_job(cgroup, JobIds("42", "7", SLUID, "ml")) == SlurmJob("42", "0", "ml", from_environ=True)
    assert slurm_job(cgroup, JobIds("42", "7")) == SlurmJob("42", "0", from_environ=True)
    assert slurm_job(cgroup, JobIds("41", "7", "s7Q2MMABCD4E01", "other")) == SlurmJob(step_id="0", sluid=SLUID)
    assert slurm_job(cgroup, JobIds()) == SlurmJob(step_id="0", sluid=SLUID)


@pytest.mark.parametrize(("environ", "job"), [
    (b"SLURM_JOB_ID=42\0SLURM_JOB_SLUID=s7Q2MMABCD4E00\0", JobIds("42", slurm_sluid=SLUID)),
    (b"A=1\0SLURM_JOB_ID=42\0SLURM_STEP_ID=3\0SLURM_JOB_ACCOUNT=ml\0RAY_JOB_ID=01000000\0", JobIds("42", "3", None, "ml", "01000000")),
    (b"SLURM_JOB_ID=42\0SLURM_STEP_ID=4294967291\0", JobIds("42")),
    (b"SLURM_JOB_ID=x\0SLURM_STEP_ID=\0", JobIds()),
    (b"XSLURM_JOB_ID=42\0PATH=SLURM_JOB_ID=42\0", JobIds()),
    (b"SLURM_JOB_ID=42\0SLURM_JOB_ID=43\0", JobIds("42")),
    (b"RAY_JOB_ID=ffffffff\0", JobIds()),
    (b"\0" * 4096, JobIds()),
    (b"", JobIds()),
])  # fmt: skip
def test_jobs_in_an_environment(environ: bytes, job: JobIds) -> None:
    assert parse_environ(environ) == job


@given(st.binary(max_size=300))
def test_any_environment_is_read(environ: bytes) -> None:
    for value in vars(parse_environ(b"RAY_JOB_ID=" + environ + b"\0SLURM_JOB_ACCOUNT=" + environ)).values():
        assert value is None or value.encode()


@pytest.fixture
def scontrol(tmp_path: Path) -> Path:
    """A command that prints what is put beside it, and notes that it was called."""
    script = tmp_path / "scontrol"
    script.write_text(
        '#!/bin/sh\necho "$*" >> "$0.calls"\n[ -e "$0.sleep" ] && exec sleep 20\n'
        'cat "$0.err" >&2 2>/dev/null\n[ -e "$0.out" ] && exec cat "$0.out"\nexit 1\n',
        encoding="ascii",
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "scontrol.err").write_bytes(b"")
    return script


def asked(accounts: SlurmController, now_ms: int, *job_ids: str) -> list[str | None]:
    accounts.look_up(job_ids, now_ms)
    accounts.wait(now_ms, 20)
    return [accounts.job(job_id).account for job_id in job_ids]


def test_an_account_is_asked_once_per_job(scontrol: Path) -> None:
    scontrol.with_name("scontrol.out").write_bytes(ARRAY)
    failures = Failures()
    accounts = SlurmController(str(scontrol), failures)
    for step in range(3):
        assert asked(accounts, NOW + step * 30_000, "2", "3", "2") == ["ml", "other", "ml"]
    calls = scontrol.with_name("scontrol.calls").read_text(encoding="ascii").splitlines()
    assert calls == ["show job -o 2", "show job -o 3"]
    assert failures.take() == []


def test_a_tick_does_not_wait_for_scontrol(scontrol: Path) -> None:
    scontrol.with_name("scontrol.sleep").touch()
    accounts = SlurmController(str(scontrol), Failures())
    accounts.look_up(["2"], NOW)  # returns, though the command sleeps
    accounts.look_up(["2"], NOW + 10_000)
    assert accounts.job("2") == ControllerJob()
    calls = scontrol.with_name("scontrol.calls")
    wait_until(lambda: calls.exists() and calls.read_text(encoding="ascii"))
    assert calls.read_text(encoding="ascii").splitlines() == ["show job -o 2"]


def test_a_job_that_is_over_has_no_account_and_is_no_failure(scontrol: Path) -> None:
    scontrol.with_name("scontrol.err").write_bytes(b"slurm_load_jobs error: Invalid job id specified\n")
    failures = Failures()
    accounts = SlurmController(str(scontrol), failures)
    assert asked(accounts, NOW, "2") == [None]
    assert failures.take() == []


def test_a_dead_controller_is_told_once_and_left_alone_for_a_while(scontrol: Path) -> None:
    scontrol.with_name("scontrol.err").write_bytes(
        b"slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
    )
    failures = Failures()
    accounts = SlurmController(str(scontrol), failures)
    for step in range(4):
        assert asked(accounts, NOW + step * 30_000, "2", "3") == [None, None]
    assert len(scontrol.with_name("scontrol.calls").read_text(encoding="ascii").splitlines()) == 1
    (incident,) = failures.take()
    assert incident["detail"] == (
        "Slurm accounts are unknown: scontrol said: slurm_load_jobs error: Unable to contact slurm controller (connect failure); "
        f"try `{scontrol} ping`"
    )
    scontrol.with_name("scontrol.out").write_bytes(ARRAY)
    assert asked(accounts, NOW + 700_000, "2", "3") == ["ml", "other"]


@pytest.mark.parametrize("command", ["", "/nonexistent/scontrol", "no-such-command-of-slurm"])
def test_a_host_without_slurm_knows_no_accounts_and_says_nothing(command: str) -> None:
    failures = Failures()
    assert asked(SlurmController(command, failures), NOW, "2") == [None]
    assert failures.take() == []

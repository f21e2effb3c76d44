"""Real processes as /proc shows them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from agent.attribution import AttributionSettings, ProcessOwners
from agent.attribution.proc import read_stat
from tests.agent.attribution_peers import NOW, described, entry
from tests.agent.conftest import login_name, wait_until
from tests.conftest import clean_environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOBODY = 2**22 + 1  # beyond the largest pid that Linux gives out


@pytest.fixture
def started() -> Iterator[Any]:
    """Starts processes and ends them."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*command: str, **environment: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=clean_environment(environment))
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_a_real_process(sleeper: subprocess.Popen[bytes]) -> None:
    owners = ProcessOwners(AttributionSettings())
    row = described(owners, sleeper.pid)
    real = psutil.Process(sleeper.pid)
    assert row | entry(sleeper.pid) == row
    assert (row["user"], row["command"], row["parent_pid"]) == (login_name(), "sleep", os.getpid())
    assert abs(row["started"] - real.create_time() * 1000) <= 1000
    assert row["attribution"].split("+")[0] == "proc"
    assert 0 < row["host_mem_bytes"] < 100 * 2**20
    assert "arguments" not in row
    assert owners.take_incidents() == []
    assert described(ProcessOwners(AttributionSettings()), sleeper.pid)["started"] == row["started"]


def test_cpu_is_unknown_at_first_and_a_mean_from_then_on(sleeper: subprocess.Popen[bytes], started: Any) -> None:
    busy = started(sys.executable, "-c", "while True: pass")
    owners = ProcessOwners(AttributionSettings())
    rows = [entry(sleeper.pid), entry(busy.pid), entry(busy.pid, "GPU-other")]
    assert [row.get("cpu_util_pct") for row in owners.describe(rows, NOW)] == [None, None, None]
    before = psutil.Process(busy.pid).cpu_times().user
    while psutil.Process(busy.pid).cpu_times().user < before + 0.3:
        time.sleep(0.02)
    idle, first, second = (row["cpu_util_pct"] for row in owners.describe(rows, NOW + 1000))
    assert idle == 0.0
    assert 0 < first <= 110
    assert first == second  # one process on two GPUs was looked at once


def test_names_may_hold_anything(tmp_path: Path, started: Any) -> None:
    for name in (b") R 1 (", b"a\xff\n\x1b[31m", "\N{GREEK SMALL LETTER LAMDA}".encode()):
        program = tmp_path / os.fsdecode(name)
        program.symlink_to(shutil.which("sleep") or "")
        process = started(str(program), "600")
        while psutil.Process(process.pid).cmdline()[1:] != ["600"]:
            time.sleep(0.01)  # not yet the new program
        row = described(ProcessOwners(AttributionSettings()), process.pid)
        assert row["parent_pid"] == os.getpid()
        row["command"].encode()
        if b"\xff" in name:
            assert row["command"] == "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}[31m"


def test_the_environment_says_the_job_and_nothing_else_of_it_is_kept(started: Any) -> None:
    process = started(
        "sleep", "600", SLURM_JOB_ID="42", SLURM_STEP_ID="0", SLURM_JOB_ACCOUNT="ml", RAY_JOB_ID="02000000",
        MY_PRIVATE="planted-value", SLURM_JOB_NAME="planted-name",
    )  # fmt: skip
    await_arguments(process.pid, "sleep", "600")
    owners = ProcessOwners(AttributionSettings(scontrol=""))
    row = described(owners, process.pid)
    if "slurm_job_id" in described(ProcessOwners(AttributionSettings(scontrol="")), os.getpid()):
        pytest.skip("this test runs inside a Slurm job itself")
    assert (row["slurm_job_id"], row["slurm_step_id"], row["slurm_account"]) == ("42", "0", "ml")
    assert row["ray_job_id"] == "02000000"
    assert "environ" in row["attribution"].split("+")
    assert "planted" not in json.dumps(row)


def test_arguments_are_recorded_only_where_they_are_on_and_never_with_secrets(started: Any) -> None:
    process = started("sleep", "600")
    await_arguments(process.pid, "sleep", "600")
    assert "arguments" not in described(ProcessOwners(AttributionSettings()), process.pid)
    assert (
        described(ProcessOwners(AttributionSettings(command_arguments=True)), process.pid)["arguments"] == "sleep 600"
    )
    secret = started(
        sys.executable, "-c", "import time; time.sleep(600)", "--token=planted", "https://me:planted@host/"
    )
    while "--token=planted" not in psutil.Process(secret.pid).cmdline():
        time.sleep(0.01)
    arguments = described(ProcessOwners(AttributionSettings(command_arguments=True)), secret.pid)["arguments"]
    assert "planted" not in arguments
    assert arguments.endswith("--token=*** https://***@host/")


def test_a_program_that_starts_itself_again_is_read_anew(started: Any) -> None:
    process = started("sh", "-c", "read line; export SLURM_JOB_ID=43; exec sh -c 'read another'", SLURM_JOB_ID="42")
    await_arguments(process.pid, "sh", "-c", "read line; export SLURM_JOB_ID=43; exec sh -c 'read another'")
    owners = ProcessOwners(AttributionSettings(command_arguments=True, scontrol=""))
    stat = read_stat(f"/proc/{process.pid}")
    if stat is None or stat.texts == ():
        pytest.skip("this kernel does not show where a program's arguments lie")
    assert described(owners, process.pid)["slurm_job_id"] == "42"
    process.stdin.write(b"go\n")
    process.stdin.flush()
    await_arguments(process.pid, "sh", "-c", "read another")
    after = described(owners, process.pid, NOW + 1000)
    assert (after["arguments"], after["slurm_job_id"]) == ("sh -c read another", "43")


def await_arguments(pid: int, *arguments: str) -> None:
    """Until the kernel has the process's whole command line in place; its name is there before."""
    wait_until(lambda: psutil.Process(pid).cmdline() == [*arguments])


def test_a_process_that_has_ended_and_waits_for_its_parent_is_no_trouble(started: Any) -> None:
    process = started("true")
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    row = described(ProcessOwners(AttributionSettings(command_arguments=True)), process.pid)
    assert (row["command"], row["host_mem_bytes"]) == ("true", 0)


def test_a_kernel_thread_is_no_trouble() -> None:
    if read_stat("/proc/2") is None or psutil.Process(2).cmdline():
        pytest.skip("no kernel threads are shown here")
    row = described(ProcessOwners(AttributionSettings(command_arguments=True)), 2)
    assert row["command"] == "kthreadd"
    assert "arguments" not in row

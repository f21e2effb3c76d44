"""Real processes as /proc shows them, and whose PIDs and user names hold where the agent runs in a container."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from agent.attribution import AttributionSettings, ProcessOwners
from agent.attribution import lookups as names
from agent.attribution.proc import INITIAL_PID_NAMESPACE, own_proc, sees_all_processes, shares_root
from agent.kernel_files import read_stat
from tests.agent.attribution_peers import NOW, FakeProc, described, entry
from tests.agent.conftest import login_name, wait_until
from tests.conftest import REPOSITORY, clean_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


def test_the_initial_namespace_has_its_well_known_number(proc: FakeProc) -> None:
    shown = str(Path("/proc/self/ns/pid").readlink())
    assert ProcessOwners(AttributionSettings()).sees_all_processes == (shown == INITIAL_PID_NAMESPACE)
    assert sees_all_processes("auto", str(proc.folder))
    (proc.folder / "self/ns/pid").unlink()
    assert not sees_all_processes("auto", str(proc.folder))
    (proc.folder / "self/ns/pid").symlink_to("pid:[4026532836]")
    assert not sees_all_processes("auto", str(proc.folder))
    assert sees_all_processes("yes", None)
    assert not sees_all_processes("no", str(proc.folder))
    assert not sees_all_processes("auto", None)


_LOOK = """
import json, os, sys, time
from agent.attribution import AttributionSettings, ProcessOwners
owners = ProcessOwners(AttributionSettings(proc=sys.argv[1], sees_all_processes=sys.argv[2]))
rows = owners.describe([{"pid": os.getpid(), "gpu": "g"}], 1_795_000_000_000)
print(json.dumps([owners.sees_all_processes, rows[0]["attribution"], rows[0].get("command")]))
"""


# with the outer /proc in place, the process ids that the driver names would be those of strangers
@pytest.mark.parametrize(("mount", "shown"), [(["--mount-proc"], True), ([], False)])
def test_another_namespace_shows_its_own_processes_or_says_hidden(mount: list[str], *, shown: bool) -> None:
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", *mount]
    if (
        not shutil.which("unshare")
        or subprocess.run([*unshare, sys.executable, "-c", ""], check=False, capture_output=True).returncode
    ):
        pytest.skip("namespaces cannot be made here")
    looked = subprocess.run(
        [*unshare, sys.executable, "-c", _LOOK, "/proc", "auto"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=REPOSITORY,
        env=clean_environment(),
    )
    sees_all, attribution, _ = json.loads(looked.stdout)
    assert sees_all is False
    assert (attribution != "hidden") is shown


def test_a_proc_of_an_outer_namespace_is_not_used(proc: FakeProc) -> None:
    (proc.folder / "self/status").write_text("Name:\tx\nPid:\t12345\nNSpid:\t12345\t7\n", encoding="ascii")
    assert own_proc(str(proc.folder)) == own_proc("/proc")
    (proc.folder / "self/status").write_text("Name:\tx\nPid:\t7\nNSpid:\t7\n", encoding="ascii")
    assert own_proc(str(proc.folder)) == str(proc.folder)
    (proc.folder / "self/status").write_text("Name:\tx\nPid:\t7\n", encoding="ascii")  # a kernel without PID namespaces
    assert own_proc(str(proc.folder)) == str(proc.folder)


def test_users_without_a_name_are_numbers(proc: FakeProc) -> None:
    proc.add(7, user_id=4_000_000_123)
    assert described(ProcessOwners(AttributionSettings(proc=str(proc.folder))), 7)["user"] == "4000000123"


def test_a_container_with_the_hosts_processes_takes_the_hosts_names_or_numbers(proc: FakeProc) -> None:
    proc.add(1)
    proc.add(7, user_id=4_000_000_001)
    proc.add(8, user_id=4_000_000_002)
    root = "36 35 98:0 / / rw - ext4 /dev/sda1 rw\n30 36 0:5 / /proc rw - proc proc rw\n"
    (proc.folder / "1/mountinfo").write_text(root, encoding="ascii")
    (proc.folder / "self/mountinfo").write_text(root, encoding="ascii")
    assert shares_root(str(proc.folder))
    (proc.folder / "self/mountinfo").write_text(root + "99 36 0:77 / / rw - overlay overlay rw\n", encoding="ascii")
    assert not shares_root(str(proc.folder))
    assert described(ProcessOwners(AttributionSettings(proc=str(proc.folder))), 7)["user"] == "4000000001"
    (proc.folder / "1/root/etc").mkdir(parents=True)
    (proc.folder / "1/root/etc/passwd").write_text(
        "root:x:0:0::/:\n+\nada:x:4000000001:1::/home/ada:/bin/sh\n", encoding="ascii"
    )
    owners = ProcessOwners(AttributionSettings(proc=str(proc.folder)))
    assert (described(owners, 7)["user"], described(owners, 8)["user"]) == ("ada", "4000000002")


def test_a_directory_that_hangs_holds_up_no_tick_and_is_told(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(names, "_from_directory", lambda _: "ada" if released.wait(60) else None)
    monkeypatch.setattr(names, "_LATE_S", 0.0)
    proc.add(7, user_id=1234)
    owners = ProcessOwners(AttributionSettings(proc=str(proc.folder)))
    (row,) = owners.describe([entry(7)], NOW)
    assert "user" not in row  # not known yet
    (row,) = owners.describe([entry(7)], NOW + 30_000)
    assert row["user"] == "1234"
    assert [incident["kind"] for incident in owners.take_incidents()] == ["attribution_failed"]
    released.set()
    owners.wait(20)
    assert owners.describe([entry(7)], NOW + 60_000)[0]["user"] == "ada"

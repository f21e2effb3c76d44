"""Whose PIDs and whose user names hold where the agent runs in a container."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent.attribution import AttributionSettings, ProcessOwners
from agent.attribution import lookups as names
from agent.attribution.proc import INITIAL_PID_NAMESPACE, own_proc, sees_all_processes, shares_root
from tests.agent.attribution_peers import NOW, FakeProc, described, entry
from tests.conftest import REPOSITORY, clean_environment


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
        [*unshare, sys.executable, "-c", _LOOK, "/proc", "auto"], capture_output=True, text=True, check=True, timeout=60,
        cwd=REPOSITORY, env=clean_environment(),
    )  # fmt: skip
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

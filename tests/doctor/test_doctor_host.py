"""The checks of device nodes, processes, clock, spool, lake and containers."""

from __future__ import annotations

import errno
import os
import pwd
import socket
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.doctor.case import Status
from agent.doctor.checks import storage as spool
from agent.doctor.checks.storage import file_system
from agent.doctor.host import HostFiles, KernelClock, User, kernel_clock
from agent.doctor.look import DriverLook
from fallow.host_claims import HostClaim
from fallow.host_identity import machine_hash
from tests.conftest import clean_environment, run_python
from tests.doctor.conftest import H100, NO_LIBRARY, answers, finding, findings
from tests.lakes import LAKE_ID, made_lake

if TYPE_CHECKING:
    from fallow.lake import Lake
    from tests.doctor.conftest import Tree

NOBODY = next(name for name in ("nobody", "daemon") if pwd.getpwnam(name).pw_uid != os.geteuid())
"""A user who does not run these tests."""
HUNG = DriverLook("hung", step="nvmlInit")


def test_all_nodes_are_there(healthy: Tree) -> None:
    assert finding("device.nodes", healthy.case()).status is Status.OK


def test_without_uvm_cuda_fails_and_monitoring_works(tree: Tree) -> None:
    found = finding("device.nodes", tree.module().nodes("nvidiactl", "nvidia0").case())
    assert (found.status, found.next) == (Status.ERROR, "sudo nvidia-modprobe -u -c 0")
    tree.file("usr/bin/nvidia-modprobe", mode=0o755)
    assert finding("device.nodes", tree.case()).status is Status.ERROR, "it may not make nodes for an ordinary user"
    tree.file("usr/bin/nvidia-modprobe", mode=0o4755)
    assert finding("device.nodes", tree.case()).status is Status.WARNING
    tree.file(".dockerenv")
    assert finding("device.nodes", tree.case()).status is Status.ERROR, "a container may not make nodes"
    tree.environment["NVIDIA_DRIVER_CAPABILITIES"] = "utility"
    assert finding("device.nodes", tree.case()).status is Status.WARNING, "it is for monitoring"
    tree.environment["NVIDIA_DRIVER_CAPABILITIES"] = "compute,utility"
    assert finding("device.nodes", tree.case()).status is Status.ERROR


def test_a_missing_node_is_an_error_where_the_driver_does_not_answer(tree: Tree) -> None:
    tree.module().nodes("nvidiactl", "nvidia-uvm")
    tree.file("proc/driver/nvidia/gpus/0000:17:00.0/information", "Model: \t X\nDevice Minor: \t 3\n")
    found = finding("device.nodes", tree.case(HUNG))
    assert (found.status, found.facts["missing"]) == (Status.ERROR, ["nvidia3"])
    tree.file(".dockerenv")
    assert finding("device.nodes", tree.case()).status is Status.OK, "a container is given its own GPUs only"


def test_a_user_without_rights_is_told_the_group(tree: Tree) -> None:
    tree.module().nodes(mode=0o660)
    found = finding("device.rights", tree.case(user=NOBODY))
    assert found.status is Status.ERROR
    assert NOBODY in found.found
    assert finding("device.rights", tree.nodes(mode=0o666).case(user=NOBODY)).status is Status.OK


def test_rights_follow_owner_group_and_others(tmp_path: Path) -> None:
    node = tmp_path / "nvidia0"
    node.touch()
    owner, group = node.stat().st_uid, node.stat().st_gid
    for mode, uid, groups, allowed in (
        (0o660, owner, frozenset[int](), True),
        (0o660, 40001, frozenset({group}), True),
        (0o660, 40001, frozenset[int](), False),
        (0o640, 40001, frozenset({group}), False),
        (0o606, 40001, frozenset({group}), False),
        (0o666, 40001, frozenset[int](), True),
        (0o000, 0, frozenset[int](), True),
    ):
        node.chmod(mode)
        assert User("x", uid, groups).may_use(node) is allowed, oct(mode)


def test_a_revoked_right_is_told_from_a_closed_one(healthy: Tree) -> None:
    found = finding("device.rights", healthy.case(answers(H100, control_errno=errno.EPERM), user=NOBODY))
    assert found.status is Status.ERROR
    assert "daemon-reload" in found.found


def test_an_unknown_user_is_an_error(healthy: Tree) -> None:
    assert finding("device.rights", healthy.case(user="no-such-user")).status is Status.ERROR


def test_mig_off_is_nothing_to_look_at(healthy: Tree) -> None:
    assert finding("device.mig", healthy.case()).status is Status.SKIPPED


def test_mig_without_instances_and_without_the_monitor_right(healthy: Tree) -> None:
    split = replace(H100, mig=True, mig_instances=0)
    empty = finding("device.mig", healthy.case(answers(split)))
    assert (empty.status, empty.next) == (Status.WARNING, "sudo nvidia-smi mig -i 0 -lgip")
    full = answers(replace(split, mig_instances=7))
    assert finding("device.mig", healthy.case(full)).status is Status.OK

    healthy.file("proc/driver/nvidia/capabilities/mig/monitor", "DeviceFileMinor: 2\nDeviceFileMode: 256\n")
    missing = finding("device.mig", healthy.case(full, user=NOBODY))
    assert missing.status is Status.ERROR
    assert missing.next == "sudo nvidia-modprobe -f /proc/driver/nvidia/capabilities/mig/monitor"
    healthy.file("dev/nvidia-caps/nvidia-cap2", mode=0o400)
    assert "chmod 444" in finding("device.mig", healthy.case(full, user=NOBODY)).next
    healthy.file("dev/nvidia-caps/nvidia-cap2", mode=0o444)
    assert finding("device.mig", healthy.case(full, user=NOBODY)).status is Status.OK


def test_the_hosts_own_namespace_sees_everything(healthy: Tree) -> None:
    assert finding("host.namespace", healthy.case()).status is Status.OK


SLUID_PATH = "0::/system.slice/slurmstepd.scope/s7Q2MMABCD4E00/step_0/user/task_0\n"


def test_a_host_whose_paths_all_name_their_jobs_hears_nothing(healthy: Tree) -> None:
    healthy.process(7, "python").file("proc/7/cgroup", "0::/system.slice/slurmstepd.scope/job_42/step_0\n")
    healthy.process(8, "vllm").file("proc/8/cgroup", "0::/system.slice/vllm.service\n")
    assert findings("host.jobs", healthy.case()) == []


def test_jobs_named_by_sluid_alone_get_one_sentence_with_the_setting(healthy: Tree) -> None:
    for pid in (7, 8, 9):
        healthy.process(pid, "python").file(f"proc/{pid}/cgroup", SLUID_PATH)
    found = finding("host.jobs", healthy.case(scontrol="/nonexistent/scontrol"))
    assert (found.status, "CgroupJobIdPaths=yes" in found.remedy) == (Status.WARNING, True)
    healthy.file("proc/7/environ", "SLURM_JOB_ID=42\0")
    assert finding("host.jobs", healthy.case(scontrol="")).status is Status.OK


def test_scontrol_tells_the_job_of_a_sluid(healthy: Tree) -> None:
    healthy.process(7, "python").file("proc/7/cgroup", SLUID_PATH)
    scontrol = healthy.file("usr/bin/scontrol", "#!/bin/sh\necho JobId=77 JobName=x\n", mode=0o755)
    assert finding("host.jobs", healthy.case(scontrol=str(scontrol))).status is Status.OK


def test_a_schedulers_path_of_an_unknown_form_is_reported(healthy: Tree) -> None:
    healthy.process(7, "python").file("proc/7/cgroup", "0::/system.slice/slurmstepd.scope/next_42/step_0\n")
    found = finding("host.jobs", healthy.case())
    assert found.found.startswith("Slurm's, form not known: ")
    assert found.status is Status.WARNING


def test_another_namespace_hides_processes_unless_the_operator_knows_better(tree: Tree) -> None:
    tree.namespace("pid:[4026532999]").file(".dockerenv")
    found = finding("host.namespace", tree.case())
    assert (found.status, found.next) == (Status.WARNING, "docker run --pid=host")
    assert finding("host.namespace", tree.case(sees_all_processes="yes")).status is Status.OK
    assert finding("host.namespace", tree.case(sees_all_processes="no")).status is Status.WARNING


def test_hidepid_hides_owners(healthy: Tree) -> None:
    healthy.file("proc/mounts", "proc /proc proc rw,nosuid,hidepid=invisible 0 0\n")
    assert finding("host.namespace", healthy.case()).status is Status.WARNING
    healthy.file("proc/mounts", "proc /proc proc rw,nosuid,hidepid=0 0 0\n")
    assert finding("host.namespace", healthy.case()).status is Status.OK


def test_other_collectors_are_named_with_their_pids(healthy: Tree) -> None:
    assert finding("host.samplers", healthy.process(7, "python3", "python3 train.py").case()).status is Status.OK
    healthy.process(41, "nv-hostengine", "/usr/bin/nv-hostengine -n").process(42, "dcgm-exporter", "/bin/dcgm-exporter")
    healthy.process(43, "ncu", "ncu --set full python train.py")
    found = finding("host.samplers", healthy.case())
    assert found.status is Status.WARNING
    assert found.facts["samplers"] == ["DCGM's host engine (pid 41)", "DCGM exporter (pid 42)"]
    assert found.facts["profilers"] == ["ncu (pid 43)"]


def test_a_clock_that_is_kept(healthy: Tree) -> None:
    assert finding("host.clock", healthy.case()).status is Status.OK


@pytest.mark.parametrize("year", [1970, 2099])
def test_a_clock_that_cannot_be_right(healthy: Tree, year: int) -> None:
    healthy.now = datetime(year, 1, 1, tzinfo=UTC)
    assert finding("host.clock", healthy.case()).status is Status.ERROR


def test_a_clock_that_nothing_keeps_and_one_that_cannot_be_asked(healthy: Tree) -> None:
    healthy.clock = KernelClock(synchronised=False, max_error_s=16)
    assert finding("host.clock", healthy.case()).status is Status.WARNING
    healthy.clock = None
    assert finding("host.clock", healthy.case()).status is Status.SKIPPED


def test_the_kernels_clock_is_read_and_makes_sense() -> None:
    clock = kernel_clock()
    assert clock is None or 0 <= clock.max_error_s < 3600


def test_the_file_system_is_that_of_the_longest_mount(tmp_path: Path) -> None:
    mounts = "/dev/a / ext4 rw 0 0\nserver:/x /data nfs4 rw 0 0\ntmpfs /data/fast tmpfs rw 0 0\n/dev/b /my\\040disk xfs rw 0 0\n"
    for path, kind in (("/var/lib", "ext4"), ("/data/spool", "nfs4"), ("/data/fast/x", "tmpfs"), ("/database", "ext4"),
                       ("/my disk/x", "xfs")):  # fmt: skip
        assert file_system(mounts, tmp_path / path)[0] == kind


def spool_on(tree: Tree, kind: str, place: Path) -> None:
    tree.file("proc/self/mounts", f"/dev/a / ext4 rw 0 0\nx {place} {kind} rw 0 0\n")


def test_a_spool_on_a_local_disk(healthy: Tree, tmp_path: Path) -> None:
    spool_on(healthy, "xfs", tmp_path)
    found = finding("host.spool", healthy.case(spool=str(tmp_path / "spool")))
    assert found.status is Status.OK
    assert not (tmp_path / "spool").exists(), "the doctor makes nothing"
    assert found.facts["file_system"] == "xfs"


@pytest.mark.parametrize(
    ("kind", "status"), [("nfs4", Status.ERROR), ("lustre", Status.ERROR), ("tmpfs", Status.WARNING)]
)
def test_a_spool_where_sqlite_or_a_reboot_loses_it(healthy: Tree, tmp_path: Path, kind: str, status: Status) -> None:
    spool_on(healthy, kind, tmp_path)
    assert finding("host.spool", healthy.case(spool=str(tmp_path))).status is status


def test_a_spool_that_the_agents_user_may_not_fill(healthy: Tree, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir(mode=0o755)
    found = finding("host.spool", healthy.case(spool=str(folder), user=NOBODY))
    assert (found.status, found.next) == (Status.ERROR, f"sudo chown {NOBODY} {folder}")
    found = finding("host.spool", healthy.case(spool=str(folder / "deeper"), user=NOBODY))
    assert found.next == f"sudo install -d -o {NOBODY} -m 0750 {folder}/deeper"
    folder.chmod(0o777)
    assert finding("host.spool", healthy.case(spool=str(folder), user=NOBODY)).status is Status.OK


def test_a_spool_without_room(healthy: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "LEAST_FREE_BYTES", 1 << 62)
    found = finding("host.spool", healthy.case(spool=str(tmp_path)))
    assert found.status is Status.ERROR
    assert "inodes left" in found.found


def test_a_spool_that_is_a_file(healthy: Tree, tmp_path: Path) -> None:
    (tmp_path / "spool").touch()
    assert finding("host.spool", healthy.case(spool=str(tmp_path / "spool"))).status is Status.ERROR


def test_what_is_not_set_is_not_looked_at(healthy: Tree) -> None:
    assert finding("host.spool", healthy.case()).status is Status.SKIPPED
    assert finding("host.lake", healthy.case()).status is Status.SKIPPED


OTHER_ID = "11111111-2222-4333-8444-555555555555"


def test_a_lake_is_tried_and_left_as_it_was(healthy: Tree, tmp_path: Path) -> None:
    healthy.environment |= clean_environment()
    lake = made_lake(tmp_path / "lake")
    before = sorted(each.name for each in Path(lake.root).iterdir())
    found = finding("host.lake", healthy.case(lake=lake.root, host="gn001", lake_id=LAKE_ID))
    assert (found.status, found.found) == (Status.OK, f"{lake.root} can be written, listed and cleaned")
    assert found.facts["lake_id"] == LAKE_ID
    assert sorted(each.name for each in Path(lake.root).iterdir()) == before


def test_a_place_that_is_no_lake_is_not_written_to(healthy: Tree, tmp_path: Path) -> None:
    healthy.environment |= clean_environment()
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "a/lake"):
        found = finding("host.lake", healthy.case(lake=str(place), host="gn001"))
        assert (found.status, found.next) == (Status.ERROR, f"fallow lake init --lake {place}")
        assert found.found == f"there is no fallow lake at {place}, so an agent publishes nothing there"
    assert not (tmp_path / "a").exists()
    assert list((tmp_path / "empty").iterdir()) == []


def test_another_lake_than_the_one_that_is_set_is_an_error(healthy: Tree, lake: Lake) -> None:
    healthy.environment |= clean_environment()
    found = finding("host.lake", healthy.case(lake=lake.root, host="gn001", lake_id=OTHER_ID))
    assert (found.status, found.found) == (
        Status.ERROR, f"the lake at {lake.root} has the id {LAKE_ID}, and lake.id is {OTHER_ID}",
    )  # fmt: skip


def test_a_name_that_another_machine_holds_is_told(healthy: Tree, lake: Lake, tmp_path: Path) -> None:
    healthy.environment |= clean_environment()
    (tmp_path / "machine-id").write_text("3d1219c7c4c5404aaa1f6d2a48adfda4")
    here = machine_hash(str(tmp_path / "machine-id"))
    for number, (machine, state) in enumerate(((here, "holds"), ("m" * 32, "yields"), ("o" * 32, "holds"))):
        claim = HostClaim("gn001", f"{number}" * 32, machine, "gn099", "fallow", "r", 1, state, 1, 1, 300)
        lake.store.put(claim.key, claim.content())
    case = healthy.case(lake=lake.root, host="gn001", machine_id=str(tmp_path / "machine-id"))
    tried, taken = findings("host.lake", case)
    assert (tried.status, taken.status) == (Status.OK, Status.WARNING)
    assert "another machine publishes as gn001" in taken.found
    assert "the installation 222222222222 on machine oooooooooooo, which calls itself gn099" in taken.found


def test_a_lake_that_cannot_be_written(healthy: Tree, tmp_path: Path) -> None:
    healthy.environment |= clean_environment()
    (tmp_path / "lake").touch()
    assert finding("host.lake", healthy.case(lake=str(tmp_path / "lake/below"))).status is Status.ERROR
    found = finding("host.lake", healthy.case(lake="ftp://x/y"))
    assert found.status is Status.ERROR
    assert "no store for ftp://" in found.found


@pytest.mark.long
def test_a_store_that_never_answers_is_left_behind(healthy: Tree) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        healthy.environment |= clean_environment(
            {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}", "AWS_ALLOW_HTTP": "true",
             "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "us-east-1"}
        )  # fmt: skip
        found = finding("host.lake", healthy.case(lake="s3://bucket/lake", timeout_s=1.25))
    assert found.status is Status.ERROR
    assert found.found == "s3://bucket/lake: to look whether it is there does not return within 5 s"


def test_containers_get_the_gpus_of_this_driver(healthy: Tree) -> None:
    assert finding("host.containers", healthy.case()).status is Status.SKIPPED
    healthy.file("usr/bin/containerd")
    assert finding("host.containers", healthy.case()).status is Status.WARNING
    healthy.file("usr/bin/nvidia-ctk")
    assert finding("host.containers", healthy.case()).status is Status.OK
    healthy.file("etc/cdi/nvidia.yaml", "    - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06\n")
    stale = finding("host.containers", healthy.case())
    assert (stale.status, stale.next) == (Status.ERROR, "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")
    healthy.file("etc/cdi/nvidia.yaml", "    - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05\n")
    assert finding("host.containers", healthy.case()).status is Status.OK


def test_windows_and_jetson_are_no_errors(tree: Tree) -> None:
    tree.file("proc/device-tree/compatible", "nvidia,p3737-0000+p3701-0005\0nvidia,tegra234\0")
    assert finding("driver.module", tree.case(NO_LIBRARY)).status is Status.SKIPPED
    tree.file("proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n")
    host = HostFiles(tree.root, tree.root / "proc", tree.root / "sys", tree.root / "dev", {})
    assert host.wsl
    assert finding("driver.module", replace(tree.case(NO_LIBRARY), host=host)).status is Status.SKIPPED


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("ID=ubuntu\nID_LIKE=debian\n", "debian"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "rhel"),
        ("ID=arch\n", ""),
    ],
)
def test_the_family_of_package_managers(tree: Tree, text: str, family: str) -> None:
    assert tree.distribution(text).host.distribution == family


_AS_NOBODY = """
import os, sys
from pathlib import Path
from agent.doctor.case import Case, Options
from agent.doctor.checks import CHECKS
from agent.doctor.host import HostFiles
from agent.doctor.host import read_kernel
from agent.doctor.look import DriverLook
from agent.doctor.store_probe import main
root = Path(sys.argv[1])
closed = root / "closed"
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    (closed / "x").stat()
except PermissionError:
    print("closed")
driver = DriverLook("ok", driver_version="580.95.05", gpu_count=0)
for host in (HostFiles(root=root), HostFiles(root=closed, dev=closed, proc=closed, sys=closed)):
    case = Case(host, read_kernel(host), driver, Options(spool=f"{closed}/spool", pythons=(f"{closed}/python",)))
    for check in CHECKS:
        list(check.look(case))
sys.argv[1:] = [f"{closed}/lake"]
main()
"""


def test_a_closed_folder_breaks_no_check_for_an_ordinary_user() -> None:
    # not below tmp_path, which is closed to other users as a whole
    with tempfile.TemporaryDirectory() as folder:
        closed = Path(folder, "closed")
        Path(folder).chmod(0o755)
        closed.mkdir(mode=0o000)
        done = run_python(
            "-c", _AS_NOBODY, folder, PATH=f"{closed}:{os.environ['PATH']}", HOME=str(closed),
            VIRTUAL_ENV=str(closed / "venv"), LD_LIBRARY_PATH=str(closed), CUDA_HOME=str(closed),
        )  # fmt: skip
        closed.chmod(0o700)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("closed\n")

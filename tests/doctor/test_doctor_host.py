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

from agent.doctor.checks import storage as spool
from agent.doctor.checks.storage import file_system
from agent.doctor.host import KernelClock, User, kernel_clock
from agent.doctor.look import DriverLook
from fallow.host_claims import HostClaim
from fallow.host_identity import machine_hash
from tests.conftest import clean_environment, run_python
from tests.doctor.conftest import H100, NO_LIBRARY, answers, findings, says
from tests.lakes import LAKE_ID

if TYPE_CHECKING:
    from fallow.lake import Lake
    from tests.doctor.conftest import Hosts, Tree

NOBODY = next(name for name in ("nobody", "daemon") if pwd.getpwnam(name).pw_uid != os.geteuid())
"""A user who does not run these tests."""


def test_nodes_that_are_missing(hosts: Hosts) -> None:
    says("device.nodes", hosts.healthy().case(), "ok")
    tree = hosts.bare().module().nodes("nvidiactl", "nvidia0")
    says("device.nodes", tree.case(), r"error: .*\$ sudo nvidia-modprobe -u -c 0\n")
    tree.file("usr/bin/nvidia-modprobe", mode=0o755)
    says("device.nodes", tree.case(), "error")  # it may not make nodes for an ordinary user
    tree.file("usr/bin/nvidia-modprobe", mode=0o4755)
    says("device.nodes", tree.case(), "warning")
    tree.file(".dockerenv")
    says("device.nodes", tree.case(), "error")  # a container may not make nodes
    for capabilities, status in (("utility", "warning"), ("compute,utility", "error")):
        tree.environment["NVIDIA_DRIVER_CAPABILITIES"] = capabilities
        says("device.nodes", tree.case(), status)


def test_a_missing_node_is_an_error_where_the_driver_does_not_answer(hosts: Hosts) -> None:
    tree = hosts.bare().module().nodes("nvidiactl", "nvidia-uvm")
    tree.file("proc/driver/nvidia/gpus/0000:17:00.0/information", "Model: \t X\nDevice Minor: \t 3\n")
    hung = says("device.nodes", tree.case(DriverLook("hung", step="nvmlInit")), "error")
    assert hung.facts["missing"] == ["nvidia3"]
    tree.file(".dockerenv")
    says("device.nodes", tree.case(), "ok")  # a container is given its own GPUs only


def test_a_user_without_rights_is_told_the_group(hosts: Hosts) -> None:
    tree = hosts.bare().module().nodes(mode=0o660)
    says("device.rights", tree.case(user=NOBODY), f"error: .*{NOBODY}")
    says("device.rights", tree.nodes(mode=0o666).case(user=NOBODY), "ok")
    says("device.rights", tree.case(user="no-such-user"), "error")
    revoked = answers(H100, control_errno=errno.EPERM)
    says("device.rights", tree.case(revoked, user=NOBODY), "error: .*daemon-reload")


def test_rights_follow_owner_group_and_others(tmp_path: Path) -> None:
    node = tmp_path / "nvidia0"
    node.touch()
    owner, nobody, none, own = node.stat().st_uid, 40001, frozenset[int](), frozenset({node.stat().st_gid})
    node.chmod(0o000)
    assert User("root", 0, none).may_use(node)
    may = {
        0o660: [True, True, False],
        0o640: [True, False, False],
        0o606: [True, False, True],
        0o666: [True, True, True],
    }
    for mode, expected in may.items():
        node.chmod(mode)
        users = (User("x", owner, none), User("x", nobody, own), User("x", nobody, none))
        assert [each.may_use(node) for each in users] == expected, oct(mode)


def test_mig_without_instances_and_without_the_monitor_right(healthy: Tree) -> None:
    says("device.mig", healthy.case(), "skipped")  # off
    split = replace(H100, mig=True, mig_instances=0)
    says("device.mig", healthy.case(answers(split)), r"warning: .*\$ sudo nvidia-smi mig -i 0 -lgip\n")
    full = answers(replace(split, mig_instances=7))
    says("device.mig", healthy.case(full), "ok")
    healthy.file("proc/driver/nvidia/capabilities/mig/monitor", "DeviceFileMinor: 2\nDeviceFileMode: 256\n")
    make = r"\$ sudo nvidia-modprobe -f /proc/driver/nvidia/capabilities/mig/monitor\n"
    says("device.mig", healthy.case(full, user=NOBODY), f"error: .*{make}")
    healthy.file("dev/nvidia-caps/nvidia-cap2", mode=0o400)
    says("device.mig", healthy.case(full, user=NOBODY), r"error: .*\$ .*chmod 444")
    healthy.file("dev/nvidia-caps/nvidia-cap2", mode=0o444)
    says("device.mig", healthy.case(full, user=NOBODY), "ok")


SLUID_PATH = "0::/system.slice/slurmstepd.scope/s7Q2MMABCD4E00/step_0/user/task_0\n"


def test_jobs_that_only_a_sluid_names_get_one_sentence_with_the_setting(hosts: Hosts) -> None:
    tree = hosts.healthy()
    tree.process(7, "python").file("proc/7/cgroup", "0::/system.slice/slurmstepd.scope/job_42/step_0\n")
    tree.process(8, "vllm").file("proc/8/cgroup", "0::/system.slice/vllm.service\n")
    assert findings("host.jobs", tree.case()) == [], "all their paths name their jobs"
    for pid in (7, 8, 9):
        tree.process(pid, "python").file(f"proc/{pid}/cgroup", SLUID_PATH)
    says("host.jobs", tree.case(scontrol="/nonexistent/scontrol"), "warning: .*-> .*CgroupJobIdPaths=yes")
    scontrol = tree.file("usr/bin/scontrol", "#!/bin/sh\necho JobId=77 JobName=x\n", mode=0o755)
    says("host.jobs", tree.case(scontrol=str(scontrol)), "ok")
    tree.file("proc/7/environ", "SLURM_JOB_ID=42\0")
    says("host.jobs", tree.case(scontrol=""), "ok")
    tree = hosts.healthy()
    tree.process(7, "python").file("proc/7/cgroup", "0::/system.slice/slurmstepd.scope/next_42/step_0\n")
    says("host.jobs", tree.case(), "warning: Slurm, form not known: ")


def test_another_namespace_hides_processes_unless_the_operator_knows_better(hosts: Hosts) -> None:
    tree = hosts.bare().namespace("pid:[4026532999]")
    tree.file(".dockerenv")
    says("host.namespace", tree.case(), r"warning: .*\$ docker run --pid=host\n")
    says("host.namespace", tree.case(sees_all_processes="yes"), "ok")
    says("host.namespace", tree.case(sees_all_processes="no"), "warning")
    tree = hosts.healthy()
    says("host.namespace", tree.case(), "ok")
    for hidepid, status in (("invisible", "warning"), ("0", "ok")):
        tree.file("proc/mounts", f"proc /proc proc rw,nosuid,hidepid={hidepid} 0 0\n")
        says("host.namespace", tree.case(), status)


def test_other_collectors_are_named_with_their_pids(healthy: Tree) -> None:
    says("host.samplers", healthy.process(7, "python3", "python3 train.py").case(), "ok")
    healthy.process(41, "nv-hostengine", "/usr/bin/nv-hostengine -n").process(42, "dcgm-exporter", "/bin/dcgm-exporter")
    healthy.process(43, "ncu", "ncu --set full python train.py")
    found = says("host.samplers", healthy.case(), "warning")
    assert found.facts["samplers"] == ["DCGM's host engine (pid 41)", "DCGM exporter (pid 42)"]
    assert found.facts["profilers"] == ["ncu (pid 43)"]


def test_a_clock_that_is_wrong_not_kept_or_cannot_be_asked(healthy: Tree) -> None:
    says("host.clock", healthy.case(), "ok")
    healthy.clock = KernelClock(synchronised=False, max_error_s=16)
    says("host.clock", healthy.case(), "warning")
    healthy.clock = None
    says("host.clock", healthy.case(), "skipped")
    for year in (1970, 2099):
        healthy.now = datetime(year, 1, 1, tzinfo=UTC)
        says("host.clock", healthy.case(), "error")
    real = kernel_clock()
    assert real is None or 0 <= real.max_error_s < 3600


def test_the_file_system_is_that_of_the_longest_mount(tmp_path: Path) -> None:
    of = {"/": "ext4", "/data": "nfs4", "/data/fast": "tmpfs", "/my\\040disk": "xfs"}
    mounts = "".join(f"x {place} {kind} rw 0 0\n" for place, kind in of.items())
    places = ("/var/lib", "/data/spool", "/data/fast/x", "/database", "/my disk/x")
    assert [file_system(mounts, tmp_path / each)[0] for each in places] == ["ext4", "nfs4", "tmpfs", "ext4", "xfs"]


def spool_on(tree: Tree, kind: str, place: Path) -> None:
    tree.file("proc/self/mounts", f"/dev/a / ext4 rw 0 0\nx {place} {kind} rw 0 0\n")


def test_a_spool_where_sqlite_or_a_reboot_loses_it(healthy: Tree, tmp_path: Path) -> None:
    says("host.spool", healthy.case(), "skipped")  # not set
    for kind, status in {"nfs4": "error", "lustre": "error", "tmpfs": "warning", "xfs": "ok"}.items():
        spool_on(healthy, kind, tmp_path)
        found = says("host.spool", healthy.case(spool=str(tmp_path / "spool")), status)
        assert found.facts["file_system"] == kind
    assert not (tmp_path / "spool").exists(), "the doctor makes nothing"


def test_a_spool_that_the_agents_user_may_not_fill(
    healthy: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "spool"
    folder.touch()
    says("host.spool", healthy.case(spool=str(folder)), "error")  # a file
    folder.unlink()
    folder.mkdir(mode=0o755)
    says("host.spool", healthy.case(spool=str(folder), user=NOBODY), rf"error: .*\$ sudo chown {NOBODY} {folder}\n")
    make = rf"\$ sudo install -d -o {NOBODY} -m 0750 {folder}/deeper\n"
    says("host.spool", healthy.case(spool=str(folder / "deeper"), user=NOBODY), f"error: .*{make}")
    folder.chmod(0o777)
    says("host.spool", healthy.case(spool=str(folder), user=NOBODY), "ok")
    monkeypatch.setattr(spool, "LEAST_FREE_BYTES", 1 << 62)
    says("host.spool", healthy.case(spool=str(folder)), "error: .*inodes left")


OTHER_ID = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def apart(healthy: Tree) -> Tree:
    """A healthy host whose probes see none of this machine's settings."""
    healthy.environment |= clean_environment()
    return healthy


def test_a_lake_is_tried_and_left_as_it_was(apart: Tree, lake: Lake) -> None:
    says("host.lake", apart.case(), "skipped")  # not set
    before = sorted(each.name for each in Path(lake.root).iterdir())
    case = apart.case(lake=lake.root, host="gn001", lake_id=LAKE_ID)
    found = says("host.lake", case, f"ok: this host can write, list and delete files in {lake.root}\n")
    assert found.facts["lake_id"] == LAKE_ID
    assert sorted(each.name for each in Path(lake.root).iterdir()) == before
    other = f"error: the lake at {lake.root} has the id {LAKE_ID}, but lake.id is {OTHER_ID}\n"
    says("host.lake", apart.case(lake=lake.root, host="gn001", lake_id=OTHER_ID), other)


def test_a_place_that_is_no_lake_is_not_written_to(apart: Tree, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "a/lake"):
        none = f"error: there is no fallow lake at {place}, so an agent publishes nothing there\n"
        says("host.lake", apart.case(lake=str(place), host="gn001"), rf"{none}.*\$ fallow lake init --lake {place}\n")
    assert not (tmp_path / "a").exists()
    assert list((tmp_path / "empty").iterdir()) == []
    (tmp_path / "file").touch()
    says("host.lake", apart.case(lake=str(tmp_path / "file/below")), "error")
    says("host.lake", apart.case(lake="ftp://x/y"), "error: .*no store for ftp://")


def test_a_name_that_another_machine_holds_is_told(apart: Tree, lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "machine-id").write_text("3d1219c7c4c5404aaa1f6d2a48adfda4")
    here = machine_hash(str(tmp_path / "machine-id"))
    for number, (machine, state) in enumerate(((here, "holds"), ("m" * 32, "yields"), ("o" * 32, "holds"))):
        claim = HostClaim("gn001", f"{number}" * 32, machine, "gn099", "fallow", "r", 1, state, 1, 1, 300)
        lake.store.put(claim.key, claim.content())
    case = apart.case(lake=lake.root, host="gn001", machine_id=str(tmp_path / "machine-id"))
    tried, taken = findings("host.lake", case)
    assert (tried.status, taken.status) == ("ok", "warning")
    assert "another machine publishes under the name gn001" in taken.found
    assert "the installation 222222222222 on machine oooooooooooo with the host name gn099" in taken.found


@pytest.mark.long
def test_a_store_that_never_answers_is_left_behind(apart: Tree) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        apart.environment |= {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "AWS_ALLOW_HTTP": "true",
        }
        apart.environment |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "us-east-1"}
        hangs = "error: s3://bucket/lake: the step `look for the lake` did not finish within 5 s\n"
        says("host.lake", apart.case(lake="s3://bucket/lake", timeout_s=1.25), hangs)


def test_containers_get_the_gpus_of_this_driver(healthy: Tree) -> None:
    specification = "    - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.{}\n"
    says("host.containers", healthy.case(), "skipped")
    healthy.file("usr/bin/containerd")
    says("host.containers", healthy.case(), "warning")
    healthy.file("usr/bin/nvidia-ctk")
    says("host.containers", healthy.case(), "ok")
    healthy.file("etc/cdi/nvidia.yaml", specification.format("570.124.06"))
    says("host.containers", healthy.case(), r"error: .*\$ sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml\n")
    healthy.file("etc/cdi/nvidia.yaml", specification.format("580.95.05"))
    says("host.containers", healthy.case(), "ok")


def test_windows_and_jetson_are_no_errors(hosts: Hosts) -> None:
    tree = hosts.bare()
    tree.file("proc/device-tree/compatible", "nvidia,p3737-0000+p3701-0005\0nvidia,tegra234\0")
    says("driver.module", tree.case(NO_LIBRARY), "skipped")
    case = tree.case(NO_LIBRARY)
    tree.file("proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n")
    says("driver.module", case, "skipped: Windows")


def test_the_family_of_package_managers(hosts: Hosts) -> None:
    for text, family in (
        ("ID=ubuntu\nID_LIKE=debian\n", "debian"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "rhel"),
        ("ID=arch\n", ""),
    ):
        assert hosts.bare().distribution(text).host.distribution == family


_AS_NOBODY = """
import os, sys
from pathlib import Path
from agent.doctor.case import Case, Options
from agent.doctor.checks import CHECKS
from agent.doctor.host import HostFiles, read_kernel
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
        inside = {name: f"{closed}/{name}" for name in ("HOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "CUDA_HOME")}
        done = run_python("-c", _AS_NOBODY, folder, PATH=f"{closed}:{os.environ['PATH']}", **inside)
        closed.chmod(0o700)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("closed\n")

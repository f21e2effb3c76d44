"""Cgroup paths of runtimes and schedulers, as found on hosts; Slurm jobs by cgroup, environment and scontrol."""

from __future__ import annotations

import stat
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.attribution.lookups import Failures, SlurmController, SlurmJob, parse_job, slurm_job
from agent.attribution.placement import JobIds, Placement, parse_cgroup, parse_environ
from tests.agent.conftest import wait_until

if TYPE_CHECKING:
    from pathlib import Path

ID = "3f0c5b8a9d2e4f60718293a4b5c6d7e8f90123456789abcdef0123456789abcd"
OUTER = "a" * 64
UID = "0d9c4f3e-5b1a-4c2d-8e7f-6a5b4c3d2e1f"
UID_ = UID.replace("-", "_")
POD_V2 = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice"

CONTAINERS = {
    "docker, systemd, v2": (f"0::/system.slice/docker-{ID}.scope", "docker", None),
    "docker, cgroupfs, v1": (f"4:memory:/docker/{ID}", "docker", None),
    "docker, rootless": (
        f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{ID}.scope", "docker", None,
    ),
    "docker, its own cgroups inside": (f"0::/system.slice/docker-{ID}.scope/system.slice/a.service", "docker", None),
    "docker in docker": (f"0::/docker/{OUTER}/docker/{ID}", "docker", None),
    "docker, other parent": (f"0::/batch/{ID}", None, None),
    "containerd, systemd, v2": (f"0::{POD_V2}/cri-containerd-{ID}.scope", "containerd", UID),
    "containerd, guaranteed": (
        f"0::/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{ID}.scope", "containerd", UID,
    ),
    "containerd, cgroupfs, v1": (f"9:cpuset:/kubepods/besteffort/pod{UID}/{ID}", None, UID),
    "containerd, cgroupfs, guaranteed": (f"9:cpuset:/kubepods/pod{UID}/{ID}", None, UID),
    "containerd, mixed drivers": (
        f"1:name=systemd:/system.slice/containerd.service/kubepods-burstable-pod{UID_}.slice:cri-containerd:{ID}",
        "containerd", UID,
    ),
    "containerd, nerdctl": (f"0::/system.slice/nerdctl-{ID}.scope", "containerd", None),
    "containerd, plain": (f"0::/k8s.io/{ID}", "containerd", None),
    "static pod": (f"0::/kubepods/burstable/pod{'b' * 32}/{ID}", None, "b" * 32),
    "cri-o, systemd": (f"0::{POD_V2}/crio-{ID}.scope", "cri-o", UID),
    "cri-o, systemd, split": (f"0::{POD_V2}/crio-{ID}.scope/container", "cri-o", UID),
    "cri-o, cgroupfs": (f"0::/kubepods/burstable/pod{UID}/crio-{ID}", "cri-o", UID),
    "podman, systemd": (f"0::/machine.slice/libpod-{ID}.scope/container", "podman", None),
    "podman, rootless": (
        f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container", "podman", None,
    ),
    "podman, pod, rootless": (
        f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/user-libpod_pod_{OUTER}.slice/libpod-{ID}.scope",
        "podman", None,
    ),
    "podman, cgroupfs": (f"4:memory:/libpod_parent/libpod-{ID}", "podman", None),
    "podman, quadlet": (f"0::/system.slice/web.service/libpod-payload-{ID}", "podman", None),
    "kind, v1": (f"5:devices:/docker/{OUTER}/kubelet/kubepods/besteffort/pod{UID}/{ID}", None, UID),
    "kind, v2": (
        (f"0::/system.slice/docker-{OUTER}.scope/kubelet.slice/kubelet-kubepods-pod{UID_}.slice"
         f"/cri-containerd-{ID}.scope"), "containerd", UID,
    ),
    "kind, v2, best effort": (
        (f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort-pod{UID_}.slice"
         f"/cri-containerd-{ID}.scope"), "containerd", UID,
    ),
    "cri-dockerd": (f"0::{POD_V2}/docker-{ID}.scope", "docker", UID),
    "k3s": (f"0::/kubepods/burstable/pod{UID}/{ID}", None, UID),
    "ECS on EC2": (f"4:memory:/ecs/{'c' * 32}/{ID}", None, None),
    "ECS, systemd": (f"0::/ecstasks.slice/ecstasks-{'c' * 32}.slice/docker-{ID}.scope", "docker", None),
    "seen from another pod's cgroup namespace": (
        f"0::/../../kubepods-burstable-pod{UID_}.slice/cri-containerd-{ID}.scope", "containerd", UID,
    ),
    "the same under cgroupfs": (f"0::/../../pod{UID}/{ID}", None, UID),
    "v1 of a kind node, whose controllers end at different depths": (
        f"12:misc:/docker/{OUTER}\n4:memory:/docker/{OUTER}/kubelet/kubepods/pod{UID}/{ID}\n0::/docker/{OUTER}",
        None, UID,
    ),
}  # fmt: skip


NAMED = {
    "LXC, v2": ("0::/lxc.payload.web", "lxc", "web", None),
    "LXC, v1": ("4:memory:/lxc/web\n1:name=systemd:/lxc/web/init.scope", "lxc", "web", None),
    "LXC, own folder": ("0::/lxc.payload/web/init.scope", "lxc", "web", None),
    "LXD, a service inside": (
        "0::/lxc.payload.ml_train-1/system.slice/vllm.service",
        "lxc",
        "ml_train-1",
        "vllm.service",
    ),
    "LXC in LXC": ("0::/lxc.payload.outer/lxc.payload.inner", "lxc", "inner", None),
    "Proxmox": ("0::/lxc/101/ns/system.slice/ollama.service", "lxc", "101", "ollama.service"),
    "nspawn, by machinectl": ("0::/machine.slice/machine-web.scope/payload", "systemd-nspawn", "web", None),
    "nspawn, escaped": (r"0::/machine.slice/machine-ml\x2dtrain.scope/payload", "systemd-nspawn", "ml-train", None),
    "nspawn, template": ("0::/machine.slice/systemd-nspawn@web.service/payload", "systemd-nspawn", "web", None),
}


UNITS = {
    "system service, v2": ("0::/system.slice/vllm.service", "vllm.service"),
    "system service, v1": ("4:memory:/system.slice\n1:name=systemd:/system.slice/vllm.service", "vllm.service"),
    "template": ("0::/system.slice/system-vllm.slice/vllm@0.service", "vllm@0.service"),
    "escaped": (
        r"0::/system.slice/system-vllm.slice/vllm@qwen\x2d72b\xc3\xa9.service",
        "vllm@qwen-72b\N{LATIN SMALL LETTER E WITH ACUTE}.service",
    ),
    "a name that the kernel could mistake": ("0::/system.slice/_memory.service", "memory.service"),
    "slices of the site": ("0::/hpc.slice/hpc-gpu.slice/train.service/worker", "train.service"),
    "a user's service": ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/vllm.service", "vllm.service"),
    "a desktop's application": (
        r"0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-org.blender\x2d77.scope",
        "app-org.blender-77.scope",
    ),
    "systemd-run": ("0::/system.slice/run-u33.scope", "run-u33.scope"),
    "podman, quadlet": (f"0::/system.slice/web.service/libpod-payload-{ID}", "web.service"),
    "a daemon's own process": ("0::/system.slice/docker.service", "docker.service"),
    "a service that is gone": ("0::/system.slice/vllm.service (deleted)", "vllm.service"),
}


SLUIDS = {
    "v2, by SLUID": ("0::/system.slice/slurmstepd.scope/s7Q2MMABCD4E00/step_0/user/task_0", "0"),
    "v2, by SLUID, several slurmd": (
        "0::/system.slice/gn01_slurmstepd.scope/s7Q2MMABCD4E00/step_batch/user/task_special",
        "batch",
    ),
    "v2, by SLUID, the job alone": ("0::/system.slice/slurmstepd.scope/s7Q2MMABCD4E00", None),
}


UNKNOWN = {
    "0::/system.slice/slurmstepd.scope/next_42/step_0": "Slurm",
    "0::/system.slice/slurmstepd.scope/job_x/step_0": "Slurm",
    "0::/system.slice/slurmstepd.scope/s7Q2MMABCD4I00/step_0": "Slurm",  # no digit I
    "9:freezer:/slurm/uid_x/job_42/step_0": "Slurm",
    f"0::{POD_V2}": "Kubernetes",
    f"0::{POD_V2}/newcri-{ID[:12]}.scope": "Kubernetes",
}


SLURM = {
    "v1": ("9:freezer:/slurm/uid_1000/job_42/step_0/task_0", "0"),
    "v1, batch": ("9:freezer:/slurm/uid_1000/job_42/step_batch/task_0", "batch"),
    "v1, several slurmd": ("9:freezer:/slurm_node-1/uid_1000/job_42/step_extern", "extern"),
    "v1, interactive": ("10:devices:/slurm/uid_1000/job_42/step_interactive/task_0", "interactive"),
    "v1, job alone": ("9:freezer:/slurm/uid_1000/job_42", None),
    "v1, controllers of different depth": (
        (
            "10:memory:/slurm/uid_1000/job_42\n9:cpuset:/slurm/uid_1000/job_42/step_7\n8:cpu:/\n"
            "0::/system.slice/slurmd.service"
        ),
        "7",
    ),
    "v2": ("0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0", "0"),
    "v2, several slurmd": ("0::/system.slice/gpu-1.example_slurmstepd.scope/job_42/step_12/user/task_3", "12"),
    "v2, batch": ("0::/system.slice/slurmstepd.scope/job_42/step_batch/user/task_special", "batch"),
    "v2, adopted by pam_slurm_adopt": (
        "0::/system.slice/slurmstepd.scope/job_42/step_extern/user/task_4294967293",
        "extern",
    ),
    "v2, other slice": ("0::/hpc.slice/slurmstepd.scope/job_42/step_0/user/task_0", "0"),
    "v2, seen from a container": ("0::/../slurmstepd.scope/job_42/step_0/user/task_0", "0"),
}


NOBODY = [
    "",
    "garbage",
    "0::/",
    "0::/user.slice/user-1000.slice/session-3.scope",
    "0::/system.slice/slurmstepd.scope/system",
    "9:cpuset:/slurm/system",
    "0::/user.slice/user-1000.slice/user@1000.service/init.scope",
    "0::/lxc.monitor.web",
    r"0::/machine.slice/machine-qemu\x2d3\x2dvm.scope/libvirt/emulator",
    "0::/home/slurm/job_42/step_0",
    "0::/job_42/step_0",
    f"0::/machine.slice/libpod-conmon-{ID}.scope",
    f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-conmon-{ID}.scope",
    f"0::{POD_V2}/crio-conmon-{ID}.scope",
    "4:memory:/garden/6a3c0e9e-6c0f-4a0f-6b1c-7a5f",
    "0::/docker/buildkit/r5g0xq1n2c3v4b5n6m7k8j9h0",
    f"0::/system.slice/docker-{ID[:12]}.scope",
    f"0::/system.slice/docker-{ID}0.scope",
    f"4:memory:/ecs/{'c' * 32}/{'c' * 32}-1234567890",
]


FORMS = [
    *(
        (text, Placement(container_runtime=runtime, container_id=ID, pod_uid=uid))
        for text, runtime, uid in CONTAINERS.values()
    ),
    *(
        (text, Placement(container_runtime=runtime, container=name, unit=unit))
        for text, runtime, name, unit in NAMED.values()
    ),
    *((text, Placement(slurm_sluid="s7Q2MMABCD4E00", slurm_step_id=step)) for text, step in SLUIDS.values()),
    *((text, Placement(slurm_job_id="42", slurm_step_id=step)) for text, step in SLURM.values()),
    *((text, Placement(unknown_form=(scheduler, text.split(":", 2)[2]))) for text, scheduler in UNKNOWN.items()),
    *((text, Placement()) for text in NOBODY),
    (
        f"0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0/libpod-{ID}.scope",
        Placement("podman", ID, None, "42", "0"),
    ),
]


@pytest.mark.parametrize(("text", "placement"), FORMS)
def test_what_a_path_names_is_found_and_nothing_else(text: str, placement: Placement) -> None:
    found = parse_cgroup(f"{text}\n")
    assert replace(found, unit=placement.unit if placement.container_id else found.unit) == placement
    assert found.known is (placement not in (Placement(), Placement(unknown_form=placement.unknown_form)))


@pytest.mark.parametrize("form", UNITS)
def test_units_of_systemd(form: str) -> None:
    text, unit = UNITS[form]
    assert parse_cgroup(f"{text}\n").unit == unit


_SEGMENTS = st.sampled_from([
    "", "..", ".", "docker", "kubepods", "kubepods.slice", f"pod{UID}", f"kubepods-pod{UID_}.slice", ID,
    f"docker-{ID}.scope", f"crio-{ID}", f"x:crio:{ID}", "slurm", "slurm_n", "uid_1", "job_42", "step_0", "step_batch",
    "slurmstepd.scope", ":", "::",
])  # fmt: skip
_PATHS = st.lists(_SEGMENTS | st.text(max_size=8), max_size=9).map("/".join)


@given(st.lists(_PATHS.map("0::{}".format) | st.text(), max_size=4).map("\n".join))
def test_no_text_ever_raises(text: str) -> None:
    found = parse_cgroup(text)
    assert found.container_id in {None, ID} or len(found.container_id or "") == 64
    assert found.slurm_job_id is None or found.slurm_job_id.isascii()


@given(_PATHS, _PATHS)
def test_order_of_the_lines_does_not_matter_for_different_depths(first: str, second: str) -> None:
    one, other = parse_cgroup(f"0::{first}"), parse_cgroup(f"1:cpu:{second}")
    both = parse_cgroup(f"0::{first}\n1:cpu:{second}")
    assert both.container_id in {one.container_id, other.container_id}
    assert both.slurm_job_id in {one.slurm_job_id, other.slurm_job_id}


NOW = 1_795_000_000_000
SLUID = "s7Q2MMABCD4E00"

# what scontrol of Slurm 22.05 printed for jobs whose name and comment were made to look like an account
PRINTED = (
    b"JobId=1 JobName=x Account=evil QOS= UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901759 Nice=0"
    b" Account=ml QOS=normal JobState=RUNNING Reason=None Dependency=(null) WorkDir=/tmp Comment=Nice=0 Account=no"
    b" QOS=z StdIn=/dev/null\n"
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
    (b"JobId=5 JobName=x Nice=0 Account=caf\xc3\xa9\xff QOS=n\n", "5",
     "caf\N{LATIN SMALL LETTER E WITH ACUTE}\N{REPLACEMENT CHARACTER}"),
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
    (b"A=1\0SLURM_JOB_ID=42\0SLURM_STEP_ID=3\0SLURM_JOB_ACCOUNT=ml\0RAY_JOB_ID=01000000\0",
     JobIds("42", "3", None, "ml", "01000000")),
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
    assert accounts.job("2") == SlurmJob()
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
    assert (
        incident["detail"]
        == "Slurm accounts are unknown: scontrol failed: slurm_load_jobs error: Unable to contact slurm controller"
        f" (connect failure); try `{scontrol} ping`"
    )
    scontrol.with_name("scontrol.out").write_bytes(ARRAY)
    assert asked(accounts, NOW + 700_000, "2", "3") == ["ml", "other"]


@pytest.mark.parametrize("command", ["", "/nonexistent/scontrol", "no-such-command-of-slurm"])
def test_a_host_without_slurm_knows_no_accounts_and_says_nothing(command: str) -> None:
    failures = Failures()
    assert asked(SlurmController(command, failures), NOW, "2") == [None]
    assert failures.take() == []

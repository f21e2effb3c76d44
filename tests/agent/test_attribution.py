"""Whose a process is, all sources together, for processes that a test machine cannot have."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from agent.attribution import AttributionSettings, ProcessOwners
from agent.attribution.pods import PodsError, fetch_pods
from fallow import config
from fallow.errors import UsageError
from tests.agent.attribution_peers import (
    GPU,
    NOW,
    FakeProc,
    api_pod,
    described,
    entry,
    gpu_pod,
    pod_list,
    pod_resources_server,
    pods_server,
    told,
)

if TYPE_CHECKING:
    from pathlib import Path

MINUTE = 60_000
NOBODY = 2**22 + 1
ID, UID = "1" * 64, "0d9c4f3e-5b1a-4c2d-8e7f-6a5b4c3d2e1f"
POD_CGROUP = f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope\n"


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


def test_a_pid_that_is_used_again_is_another_process(proc: FakeProc) -> None:
    owners = ProcessOwners(AttributionSettings(proc=str(proc.folder)))
    proc.add(7, command=b"old", start_ticks=1000, cpu_ticks=500, user_id=0)
    first = described(owners, 7)
    proc.add(7, command=b"old", start_ticks=2000, cpu_ticks=3, user_id=4_000_000_001)
    (second,) = owners.describe([entry(7)], NOW + 1000)
    assert second["started"] - first["started"] == 1000 * 1000 // os.sysconf("SC_CLK_TCK")
    assert "cpu_util_pct" not in second
    assert described(owners, 7, NOW + 1000)["user"] == "4000000001"
    proc.remove(7)
    assert owners.describe([entry(7)], NOW + 2000)[0]["attribution"] == "hidden"


def test_a_program_that_was_met_while_it_started_is_read_again(proc: FakeProc) -> None:
    """The kernel names a new program before its arguments and environment are in place."""
    owners = ProcessOwners(AttributionSettings(proc=str(proc.folder), command_arguments=True, scontrol=""))
    before, after = b"SLURM_JOB_ID=1\0", b"SLURM_JOB_ID=2\0"
    proc.add(7, command=b"bash", cmdline=b"bash\0job.sh\0", environ=before, texts="100 112 112 127")
    assert described(owners, 7)["arguments"] == "bash job.sh"
    proc.add(7, command=b"python", texts="500 500 0 0")
    started = described(owners, 7, NOW + 1000)
    assert started["command"] == "python"
    assert "arguments" not in started, "not those of the program before it"
    assert "slurm_job_id" not in started
    proc.add(7, command=b"python", cmdline=b"python\0train.py\0", environ=after, texts="500 516 516 531")
    whole = described(owners, 7, NOW + 2000)
    assert (whole["arguments"], whole["slurm_job_id"]) == ("python train.py", "2")


def test_what_a_process_was_stays_known_when_it_has_ended_and_waits_for_its_parent(proc: FakeProc) -> None:
    owners = ProcessOwners(AttributionSettings(proc=str(proc.folder), command_arguments=True, scontrol=""))
    proc.add(7, cmdline=b"python\0train.py\0", environ=b"SLURM_JOB_ID=2\0", texts="500 516 516 531")
    described(owners, 7)
    proc.add(7)
    row = described(owners, 7, NOW + 1000)
    assert (row["arguments"], row["slurm_job_id"]) == ("python train.py", "2")


def test_a_process_that_slurm_adopts_later_is_found_in_its_job(proc: FakeProc) -> None:
    owners = ProcessOwners(AttributionSettings(proc=str(proc.folder), scontrol=""))
    proc.add(7)
    assert "slurm_job_id" not in described(owners, 7)
    proc.add(7, cgroup="0::/system.slice/slurmstepd.scope/job_42/step_extern/user/task_4294967293\n")
    assert "slurm_job_id" not in described(owners, 7, NOW + MINUTE)
    row = described(owners, 7, NOW + 6 * MINUTE)
    assert (row["slurm_job_id"], row["slurm_step_id"], row["attribution"]) == ("42", "extern", "proc+cgroup")


SLUID_CGROUP = "0::/system.slice/slurmstepd.scope/s7Q2MMABCD4E00/step_0/user/task_0\n"


def test_the_job_of_a_sluid_is_the_environments_else_scontrols(proc: FakeProc, tmp_path: Path) -> None:
    script = tmp_path / "scontrol"
    script.write_text(
        '#!/bin/sh\n[ $4 = 42 ] && id=42 || id=77\necho "JobId=$id JobName=x Nice=0 Account=ml QOS=normal"\n',
        encoding="ascii",
    )
    script.chmod(0o755)
    proc.add(7, cgroup=SLUID_CGROUP)
    proc.add(9, cgroup="0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0\n")
    proc.add(
        8, cgroup=SLUID_CGROUP, environ=b"SLURM_JOB_ID=76\0SLURM_JOB_ACCOUNT=web\0SLURM_JOB_SLUID=s7Q2MMABCD4E00\0"
    )
    owners = ProcessOwners(AttributionSettings(proc=str(proc.folder), scontrol=str(script)))
    rows = [entry(7), entry(8), entry(9)]
    owners.describe(rows, NOW)
    owners.wait(20)
    found = owners.describe(rows, NOW + 1000)
    told = [(row["slurm_job_id"], row["slurm_step_id"], row["slurm_account"], row["attribution"]) for row in found]
    by_scontrol = "proc+cgroup+scontrol"
    assert told == [
        ("77", "0", "ml", by_scontrol),
        ("76", "0", "web", "proc+cgroup+environ"),
        ("42", "0", "ml", by_scontrol),
    ]
    assert owners.take_incidents() == []


def test_a_sluid_that_nothing_tells_the_job_of_is_an_event_that_names_the_setting(proc: FakeProc) -> None:
    owners = ProcessOwners(AttributionSettings(proc=str(proc.folder), scontrol="/nonexistent/scontrol"))
    proc.add(7, cgroup=SLUID_CGROUP)
    for step in range(4):
        row = described(owners, 7, NOW + step * 30_000)
        owners.wait(20)
        assert (row.get("slurm_job_id"), row["slurm_step_id"]) == (None, "0")
    (incident,) = owners.take_incidents()
    assert "CgroupJobIdPaths=yes" in incident["detail"]


def test_a_form_that_is_not_known_in_a_schedulers_folder_is_an_event(proc: FakeProc) -> None:
    owners = ProcessOwners(AttributionSettings(proc=str(proc.folder), scontrol=""))
    proc.add(7, cgroup="0::/system.slice/slurmstepd.scope/next_42/step_0\n")
    for step in range(2):
        assert described(owners, 7, NOW + step * 30_000)["attribution"] == "proc"
    (incident,) = owners.take_incidents()
    assert incident["detail"].startswith("Slurm, form not known: ")
    assert "/system.slice/slurmstepd.scope/next_42/step_0" in incident["detail"]


def test_services_and_named_containers_are_columns_and_no_event(proc: FakeProc) -> None:
    owners = ProcessOwners(AttributionSettings(proc=str(proc.folder), scontrol=""))
    proc.add(7, cgroup="0::/system.slice/vllm.service\n")
    proc.add(8, cgroup="0::/lxc.payload.web/system.slice/ollama.service\n")
    service, inside = owners.describe([entry(7), entry(8)], NOW)
    assert (service["unit"], service.get("container")) == ("vllm.service", None)
    assert (inside["unit"], inside["container"], inside["container_runtime"]) == ("ollama.service", "web", "lxc")
    assert owners.take_incidents() == []


def test_not_all_processes_are_read_anew_at_once(proc: FakeProc) -> None:
    owners = ProcessOwners(AttributionSettings(proc=str(proc.folder), scontrol=""))
    rows = [entry(pid) for pid in range(100, 120)]
    for row in rows:
        proc.add(row["pid"])
    owners.describe(rows, NOW)
    for row in rows:
        proc.add(row["pid"], cgroup="0::/system.slice/slurmstepd.scope/job_42/step_0\n")
    moved = [
        sum("slurm_job_id" in row for row in owners.describe(rows, NOW + 6 * MINUTE + step * 30_000))
        for step in range(3)
    ]
    assert moved == [8, 16, 20]


def test_every_source_is_named(proc: FakeProc, tmp_path: Path) -> None:
    proc.add(7, cgroup=POD_CGROUP, environ=b"RAY_JOB_ID=01000000\0SECRET=x\0")
    with (
        pods_server(tmp_path) as endpoint,
        pod_resources_server(tmp_path / "k.sock", lambda _: pod_list(gpu_pod("train-0", GPU))),
    ):
        settings = AttributionSettings(proc=str(proc.folder), pod_resources=str(tmp_path / "k.sock"), scontrol="")
        row = described(ProcessOwners(settings), 7)
        assert (row["pod"], row["namespace"], row["container"]) == ("train-0", "ml", "main")
        assert (row["container_runtime"], row["container_id"]) == ("containerd", ID)
        assert row["attribution"] == "proc+cgroup+environ+pod_resources"
        assert "pod_labels" not in row
        endpoint.pods = [api_pod("train-0", UID, {f"containerd://{ID}": "worker"}, team="vision")]
        sockets = {"proc": str(proc.folder), "pod_resources": str(tmp_path / "k.sock")}
        owners = ProcessOwners(told(endpoint, **sockets))
        row = described(owners, 7)
        assert (row["pod"], row["container"], row["pod_labels"]) == ("train-0", "worker", '{"team":"vision"}')
        assert row["attribution"] == "proc+cgroup+environ+kubelet"
        assert owners.take_incidents() == []


def test_a_title_that_a_program_has_written_over_its_arguments_is_read_without_its_padding(proc: FakeProc) -> None:
    owners = ProcessOwners(AttributionSettings(proc=str(proc.folder), command_arguments=True))
    proc.add(7, cmdline=b"ray::A" + b" " * 700)
    proc.add(8, cmdline=b"nginx: worker process\0" + b"\0" * 40)
    proc.add(9, cmdline=b"x " * 4000 + b"hf_" + b"A" * 400)
    assert described(owners, 7)["arguments"] == "ray::A"
    assert described(owners, 8)["arguments"] == "nginx: worker process"
    assert "AAA" not in described(owners, 9)["arguments"]


def test_a_host_process_on_a_pods_gpu_is_not_the_pods(proc: FakeProc, tmp_path: Path) -> None:
    proc.add(7, cgroup="0::/system.slice/nvidia-dcgm.service\n")
    with pod_resources_server(tmp_path / "k.sock", lambda _: pod_list(gpu_pod("train-0", GPU))):
        row = described(
            ProcessOwners(AttributionSettings(proc=str(proc.folder), pod_resources=str(tmp_path / "k.sock"))), 7
        )
    assert "pod" not in row
    assert (row["unit"], row["attribution"]) == ("nvidia-dcgm.service", "proc+cgroup")


def test_a_kubelet_that_hangs_holds_up_no_tick(proc: FakeProc, tmp_path: Path) -> None:
    proc.add(7, cgroup=POD_CGROUP)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "k.sock"))
        silent.listen()
        owners = ProcessOwners(AttributionSettings(proc=str(proc.folder), pod_resources=str(tmp_path / "k.sock")))
        (row,) = owners.describe([entry(7)], NOW)  # comes back although the kubelet never answers
        assert row["container_id"] == ID
        assert "pod" not in row
        owners.wait(20)
        assert [incident["kind"] for incident in owners.take_incidents()] == ["attribution_failed"]


def test_rows_keep_their_order_and_no_rows_are_no_trouble(proc: FakeProc) -> None:
    proc.add(7)
    owners = ProcessOwners(AttributionSettings(proc=str(proc.folder)))
    assert owners.describe([], NOW) == []
    rows = [entry(7, "b"), entry(NOBODY, "a"), entry(7, "a")]
    assert [(row["pid"], row["gpu"]) for row in owners.describe(rows, NOW)] == [(7, "b"), (NOBODY, "a"), (7, "a")]


def test_settings_come_from_the_config() -> None:
    loaded = config.load({
        "agent.proc": "/host/proc", "agent.command_arguments": "on", "agent.sees_all_processes": "no",
        "kubernetes.kubelet_url": "https://node:10250", "slurm.scontrol": "/opt/slurm/bin/scontrol",
    }, None, {})  # fmt: skip
    assert AttributionSettings.from_config(loaded) == AttributionSettings(
        proc="/host/proc",
        command_arguments=True,
        sees_all_processes="no",
        pod_resources="/var/lib/kubelet/pod-resources/kubelet.sock",
        kubelet_url="https://node:10250",
        kubelet_token_file="/var/run/secrets/kubernetes.io/serviceaccount/token",  # noqa: S106  # a path
        kubelet_ca_file="/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
        scontrol="/opt/slurm/bin/scontrol",
    )


@pytest.mark.parametrize(
    "url",
    [
        "https://user:SEKRET@node:10250", "https://SEKRET@node:10250", "https://node:10250/?token=SEKRET",
        "https://node:10250/#SEKRET", "http://SEKRET:10255", "https:///SEKRET", "https://node:SEKRET",
        "https://node\\SEKRET", "SEKRET",
    ],
)  # fmt: skip
def test_an_address_of_the_kubelet_that_may_hold_a_secret_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(UsageError, match=r"kubernetes\.kubelet_url is not a plain https address") as refused:
        AttributionSettings.from_config(config.load({"kubernetes.kubelet_url": url}, None, {}))
    assert "SEKRET" not in str(refused.value)
    with pytest.raises(PodsError) as failed:
        fetch_pods(url, "", "")
    assert "SEKRET" not in str(failed.value)

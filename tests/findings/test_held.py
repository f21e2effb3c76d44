"""The rule `held`: where it begins, whose the GPU is, what ends it, and its evidence on the processes there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from analytics.rules import RULES_BY_NAME
from analytics.workloads.commands import quote
from tests.findings.conftest import BUSY, HELD, HOUR, idle_findings, only
from tests.findings.one_rule import found, one_host, only_of
from tests.findings.scenarios.builder import H100, Fleet
from tests.findings.scenarios.situations import train
from tests.ledger.rows import allocation, device, fill, ms, processes, samples

if TYPE_CHECKING:
    from collections.abc import Callable

    from fallow.lake import Lake
    from tests.findings.scenarios.builder import Gpu
    from tests.ledger.recording import Recording

LOOK = "ssh h1 nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv"
Rows = list[dict[str, Any]]


def held(gpu: str, first_s: float, last_s: float, **values: object) -> Rows:
    return samples(gpu, first_s, last_s, every_s=60, **HELD | values)


def busy(gpu: str, first_s: float, last_s: float) -> Rows:
    return samples(gpu, first_s, last_s, every_s=60, **BUSY)


def lists(gpu: str, first_s: int, last_s: int, **values: Any) -> Rows:
    return processes(gpu, *range(first_s, last_s, 60), every_s=60, **values)


def test_the_thresholds_of_held_stand_beside_the_headline_and_are_a_setting(
    site: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Intervals of 40, 90 and 150 minutes: 60 is the headline, 30 and 120 show what the choice does."""
    rows, at = [], 0
    for minutes in (40, 90, 150):
        rows += held("a", at, at + minutes * 60) + busy("a", at + minutes * 60, at + minutes * 60 + 600)
        at += minutes * 60 + 600
    each = only(fill(site, rows, lists("a", 0, at)))
    numbers = each.evidence.numbers
    shown = [numbers[f"held_gpu_hours_in_segments_of_{minutes}_min"] for minutes in (30, 60, 120)]
    assert shown == [pytest.approx(280 / 60), pytest.approx(4.0), pytest.approx(2.5)]
    assert (each.gpu_hours, numbers["segment_count"], numbers["longest_h"]) == (pytest.approx(4.0), 2, 2.5)
    monkeypatch.setenv("FALLOW_FINDINGS_HELD_MIN", "30min")
    assert only(site).gpu_hours == pytest.approx(280 / 60)


def test_the_length_over_a_window_and_a_midnight_is_the_whole_length(site: Recording) -> None:
    fill(site, held("a", -1800, 1800), lists("a", -1800, 1800))
    each = only(site, since="2026-11-20")
    assert (each.gpu_hours, each.since_ms, each.evidence.since_ms) == (0.5, ms(-1800), ms(0))
    assert each.evidence.numbers["segment_count"] == 1


def test_an_interval_over_midnight_is_one_and_ends_with_the_newest_lists(site: Recording) -> None:
    rows = held("a", -2 * HOUR, 60) + held("b", -2 * HOUR, 60)
    fill(site, rows, lists("a", -2 * HOUR, 30, pid=1) + lists("b", -2 * HOUR, 60, pid=2))
    each = only(site)
    assert (each.gpus, each.next_command) == (("a", "b"), "ssh h1 kill 1 2")


NEXT_COMMANDS: dict[str, tuple[dict[str, str], str]] = {
    "h1": ({"slurm_job_id": "123", "pod": "p"}, "scancel 123"),
    "h2": ({"slurm_job_id": "1; rm -rf /"}, "scancel '1; rm -rf /'"),
    "h3": ({"slurm_job_id": "-f"}, "scancel -- -f"),
    "h4": ({"pod": "nb-0", "namespace": "lab"}, "kubectl delete pod -n lab nb-0"),
    "h5": ({"pod": "nb-0"}, "kubectl delete pod -n default nb-0"),
    "h6": ({"pod": "--all", "namespace": "$(x)"}, "kubectl delete pod -n '$(x)' -- --all"),
    "gpu 1": ({}, "ssh 'gpu 1' kill 4711"),
    "-oProxyCommand=x": ({}, "ssh -- -oProxyCommand=x kill 4711"),
    "ü": ({}, "ssh 'ü' kill 4711"),
    "a'b": ({}, """ssh 'a'"'"'b' kill 4711"""),
}
"""By host: what the processes say of themselves, and the command."""


def test_the_next_command_is_that_of_what_runs_the_work_and_odd_names_are_one_harmless_word(site: Recording) -> None:
    for host, (owner, _) in NEXT_COMMANDS.items():
        own = {"user": f"user of {host}"} | owner  # for one user's jobs and GPUs look at each other
        fill(site, held(f"on {host}", 0, 2 * HOUR), lists(f"on {host}", 0, 2 * HOUR, **own), host=host)
    found = {each.host: each.next_command for each in idle_findings(site)}
    assert found == {host: command for host, (_, command) in NEXT_COMMANDS.items()}


@pytest.mark.parametrize(
    "name", ["a\nb", "x\x1b[2J", "\u202etxt", "it's\n", "back\\slash\n", "tab\there", "`id`\n$(id)"]
)
def test_a_name_with_control_characters_is_one_line_and_the_same_name_to_bash(name: str) -> None:
    word = quote(name)
    assert word.isprintable()
    done = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert done.stdout.decode() == name


def test_several_jobs_of_one_user_are_one_line_and_one_job_idles_on_two_hosts(site: Recording) -> None:
    rows = held("a", 0, 2 * HOUR) + held("b", 0, 2 * HOUR)
    fill(site, rows, lists("a", 0, 2 * HOUR, slurm_job_id="9") + lists("b", 0, 2 * HOUR, slurm_job_id="10"))
    for host in ("h2", "h3"):
        fill(site, held(host, 0, 2 * HOUR), lists(host, 0, 2 * HOUR, slurm_job_id="5", user="bob"), host=host)
    commands = {each.host: each.next_command for each in idle_findings(site)}
    assert commands == {"h1": "scancel 10 9", "h2": "scancel 5", "h3": "scancel 5"}


@pytest.mark.parametrize(
    ("listed_from", "allocations", "expected"),
    [
        pytest.param(None, [], (None, "process", LOOK), id="of nobody known it is only looked at"),
        pytest.param(
            None,
            [allocation("a", 0, None)],
            ("bob", "allocation", LOOK),
            id="by the allocation where processes do not say",
        ),
        pytest.param(
            2 * HOUR, [allocation("a", 0, None)], ("bob", "process", "ssh h1 kill 4711"), id="by the newest interval"
        ),
    ],
)
def test_how_the_user_is_known(
    site: Recording, listed_from: int | None, allocations: Rows, expected: tuple[str | None, str | None, str]
) -> None:
    users = [] if listed_from is None else lists("a", listed_from, 4 * HOUR, user="bob")
    each = only(fill(site, held("a", 0, 4 * HOUR), users, allocations))
    assert (each.user, each.evidence.numbers["user_source"], each.next_command) == expected
    assert ("the user is not known" in each.confidence.failed) == (expected[0] is None)


def test_energy_and_power_are_those_of_the_held_time_in_the_window_and_unknown_is_not_zero(site: Recording) -> None:
    rows = held("a", -HOUR, HOUR, power_w=90.0) + busy("a", HOUR, 2 * HOUR)
    fill(site, rows, lists("a", -HOUR, HOUR), devices=[device("a", source="simulated")])
    each = only(site, since="2026-11-20T00:30Z")
    assert (each.energy_kwh, each.evidence.numbers["power_mean_w"]) == (pytest.approx(0.045), pytest.approx(90.0))
    assert (only(site).energy_kwh, each.simulated) == (pytest.approx(0.18), True)
    whole = only_of("held", one_host(when=lambda fleet: fleet.between(-1), util=0.0, mem_gb=8, power_w=60.0))
    assert whole.energy_kwh == pytest.approx(24 * 0.060, rel=0.01)
    assert not whole.notes, "the energy of a whole GPU is measured"
    silent = one_host(when=lambda fleet: fleet.between(-1), util=0.0)
    silent.gpus[0].override(silent.always, power_w=None, energy_mj=None)
    unknown = only_of("held", silent)
    assert (unknown.energy_kwh, unknown.evidence.numbers["power_mean_w"]) == (None, None)


# --- the processes on held GPUs ---------------------------------------------------------------------------------------


NOTHING = {"requests_per_s": 0.0, "running_requests": 0.0, "waiting_requests": 0.0, "generated_tokens_per_s": 0.0}


def served(days: float, util: float = 50, metrics: dict[str, Any] | None = None, **columns: Any) -> Fleet:
    """A GPU with a server that worked until so many days before the end, and says so where it has metrics."""
    fleet = Fleet(3)
    first, second = fleet.host("h1", H100, 2)
    settled = {"command": "vllm", "mem_gb": 60}
    fleet.run(first, "mlops", util=np.where(fleet.between(-days), 0, util), **(settled | columns))
    train(fleet, second, "ann")
    if metrics is not None:
        fleet.serving(first, **{"model": "llama-70b"} | metrics)
    return fleet


def asked_until(days: float) -> Fleet:
    return served(days, metrics=NOTHING | {"requests_per_s": np.where(Fleet(3).between(-days), 0.0, 3.0)})


def asked_once(column: str) -> Fleet:
    once = np.zeros(Fleet(3).rows)
    once[-100] = 0.01
    return served(2, metrics=NOTHING | {column: once})


def silent_metrics() -> Fleet:
    fleet = served(2, util=0)
    fleet.serving(fleet.gpus[0], ~fleet.between(-1.5, -1), **NOTHING)
    return fleet


def orphan(days: float) -> Any:
    return np.where(Fleet(3).between(-days), 1.0, 4000.0)


PARENT_GONE = {"parent_pid": orphan(2.95)}
NOTEBOOK = {"arguments": "python3 -m ipykernel_launcher"}


def idle(days: float, **columns: Any) -> Fleet:
    """Two GPUs of one process each; ann's ran kernels until so many days before the end, bob's still does."""
    fleet = Fleet(3)
    first, second = fleet.host("h1", H100, 2)
    fleet.run(first, "ann", util=np.where(fleet.between(-days), 0, 90), mem_gb=40, cpu_util_pct=1.0, **columns)
    train(fleet, second, "bob", job="2002")
    return fleet


def job_idle(ended: float | None, days: float = 1.5) -> Fleet:
    """The same in a job that ended so many days before the end, or ends later."""
    fleet = idle(days, slurm_job_id="1001", slurm_account="lab")
    fleet.allocation(fleet.gpus[:1], "ann", 0, ended, allocation_id="1001", account="lab")
    return fleet


def beside_a_service() -> Fleet:
    fleet = idle(2, **PARENT_GONE)
    fleet.run(fleet.gpus[0], "root", mem_gb=0.1, kind="graphics", command="Xorg", parent_pid=1)
    return fleet


def with_a_purpose() -> Fleet:
    fleet = idle(2, **PARENT_GONE)
    fleet.run(fleet.gpus[0], "eve", fleet.between(-2.5), mem_gb=4)
    return fleet


def pid_of(gpu: Gpu) -> object:
    return gpu.stays[0].columns["pid"]


def evidence_on_first(fleet: Fleet) -> dict[str, Any]:
    """The evidence of the finding about the first GPU."""
    (each,) = (each for each in found("held", fleet) if "GPU-h1-0" in each.gpus)
    return dict(each.evidence.numbers)


@pytest.mark.parametrize(
    ("build", "kind"),
    [
        pytest.param(lambda: job_idle(-15 / 1440), "job ended", id="a job that ended before its epilog's time"),
        pytest.param(lambda: job_idle(-10 / 1440), None, id="a job is given its epilog"),
        pytest.param(lambda: job_idle(None), None, id="a job that runs"),
        pytest.param(lambda: job_idle(9), None, id="a job whose end is planned"),
        pytest.param(lambda: idle(2, slurm_job_id="1001"), None, id="a job without an allocation"),
        pytest.param(lambda: idle(2, parent_pid=orphan(2)), "parent gone", id="a parent that went"),
        pytest.param(lambda: idle(2, parent_pid=1), None, id="a daemon: parent 1 from the start"),
        pytest.param(lambda: idle(2, container_id="c1", **PARENT_GONE), None, id="in a container"),
        pytest.param(lambda: idle(2, pod="p", namespace="n", **PARENT_GONE), None, id="in a pod"),
        pytest.param(lambda: idle(2, arguments="python3 -m sglang.launch_server", **PARENT_GONE), None, id="a server"),
        pytest.param(lambda: idle(2, **NOTEBOOK), "notebook", id="a notebook"),
        pytest.param(beside_a_service, "parent gone", id="beside a display server"),
        pytest.param(with_a_purpose, None, id="beside a process of another kind"),
    ],
)
def test_held_says_what_all_processes_on_its_gpus_are(build: Callable[[], Fleet], kind: str | None) -> None:
    assert evidence_on_first(build()).get("processes") == kind


def test_what_an_ended_job_left_behind_is_ended_by_its_pid_and_by_operators() -> None:
    """The job is gone: scancel does nothing."""
    fleet = job_idle(-1)
    each = only_of("held", fleet)
    assert (each.user, each.next_command) == ("ann", f"ssh h1 kill {pid_of(fleet.gpus[0])}")
    assert RULES_BY_NAME["held"].has_lost_user(each)
    assert not RULES_BY_NAME["held"].has_lost_user(only_of("held", idle(2, parent_pid=orphan(2))))


def test_allocations_are_read_once_a_day_for_all_hosts(lake: Lake) -> None:
    """As everything else reads them: the hosts' own files are not opened again once the day is kept."""
    fleet = job_idle(-1)
    for number in range(8):
        fleet.allocation(fleet.host(f"n{number}", H100, 1), "bob", 0, allocation_id=f"20{number}")
    before = only_of("held", fleet.write(lake))
    for path in Path(lake.root, "allocation").rglob("*.parquet"):
        times = path.stat()
        path.write_bytes(bytes(times.st_size))
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert only_of("held", lake) == before


def test_who_takes_a_notebook_back_is_told_what_is_lost() -> None:
    each = only_of("held", idle(2, pod="jupyter-ann", namespace="hub", container_id="c1"))
    assert each.next_command == "kubectl delete pod -n hub jupyter-ann"
    assert each.notes == ("a notebook loses its unsaved results with its kernel: ask the user first",)


@pytest.mark.parametrize(
    ("build", "hours"),
    [
        pytest.param(lambda: asked_until(2), 48, id="the last request was two days ago"),
        pytest.param(lambda: served(2), None, id="no metrics"),
        pytest.param(lambda: served(2, metrics={"running_requests": 0.0, "waiting_requests": 0.0}), None, id="gauges"),
        pytest.param(silent_metrics, None, id="metrics that did not answer for half a day"),
        *(pytest.param(lambda name=name: asked_once(name), 8, id=f"one request hours ago: {name}") for name in NOTHING),
    ],
)
def test_held_says_for_how_long_a_server_got_no_request(build: Callable[[], Fleet], hours: float | None) -> None:
    assert evidence_on_first(build()).get("quiet_h") == hours


def test_a_replica_of_a_busy_model_is_kept() -> None:
    fleet = Fleet(3)
    for gpu, util in zip(fleet.host("h1", H100, 2), (80.0, 0.0), strict=True):
        fleet.run(gpu, "mlops", util=util, command="vllm", mem_gb=60)
        fleet.serving(gpu, model="llama", **NOTHING | {"requests_per_s": util / 20})
    each = only_of("held", fleet)
    assert (each.gpus, each.evidence.numbers["quiet_h"]) == (("GPU-h1-1",), 72)
    assert "the same model serves traffic elsewhere, so this may be a spare replica" in each.confidence.failed


@pytest.mark.parametrize(
    "columns",
    [
        {"arguments": "vllm serve llama --served-model-name standby"},
        {"pod": "llm-failover-0", "namespace": "prod"},
        {"pod": "p", "namespace": "n", "pod_labels": '{"role": "canary"}'},
    ],
)
def test_a_server_that_is_meant_to_wait_is_less_sure(columns: dict[str, str]) -> None:
    waits = "its name marks it as a spare (standby, failover, backup or canary)"
    assert waits in only_of("held", served(2, **columns)).confidence.failed
    assert waits not in only_of("held", served(2)).confidence.failed

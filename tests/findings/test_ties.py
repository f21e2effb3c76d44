"""What would end with what is to be ended: tasks of one array, ranks of one run, pods of one job, and GPUs that nobody sees."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from analytics.rules import RULES_BY_NAME
from fallow import schema
from tests.findings.conftest import BUSY, DAY, FREE, HELD, HOUR
from tests.findings.one_rule import found_in
from tests.findings.scenarios import bound_together
from tests.findings.scenarios.suite import findings
from tests.ledger.rows import claim, device, fill, ms, processes, samples, write

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.workloads.model import Finding
    from tests.findings.scenarios.model import Scenario
    from tests.ledger.recording import Recording

LOOK = "ssh h1 nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv"
STEP = 300
UNLISTED = {"gpu_util_pct": 90.0, "process_count": None, "gpu_util_coverage_ratio": 1.0}
NOT_SEEN = "1 GPU or host of the same job is not observed ({}): the job may be at work there"


def found(site: Recording, rule: str) -> list[Finding]:
    return found_in(RULES_BY_NAME[rule], site)


def gpu(name: str, first_s: float, last_s: float, **values: Any) -> list[dict[str, Any]]:
    return samples(name, first_s, last_s, every_s=STEP, **values)


def lists(name: str, first_s: int, last_s: int, **values: Any) -> list[dict[str, Any]]:
    return processes(name, *range(first_s, last_s, STEP), every_s=STEP, **values)


def job(name: str | None, claim_id: str, **values: Any) -> dict[str, Any]:
    return claim(name, 0, None, user="ann", claim_id=claim_id) | {"scheduler": "slurm"} | values


def outcome(finding: Finding) -> tuple[bool, str]:
    return finding.reclaimable, finding.next_command


# --- arrays and heterogeneous jobs: `scancel` of their own id ends all of them -------------------------------------------


@pytest.mark.parametrize(
    ("own", "other", "user", "ends"),
    [
        ("36", "37", "ann", False),
        ("36", "5000", "ann", False),  # a task that started days later
        ("36", "37", None, False),
        ("36", "37", "bob", True),
        ("60", "50", "ann", False),  # a component of the same heterogeneous job
        ("600", "50", "ann", True),  # tasks and components come after the job
    ],
)
def test_another_job_of_the_user_works(site: Recording, own: str, other: str, user: str | None, *, ends: bool) -> None:
    fill(site, gpu("a", 0, 3 * HOUR, **HELD), lists("a", 0, 3 * HOUR, slurm_job_id=own))
    theirs = lists("b", 0, 3 * HOUR, slurm_job_id=other, user=user)
    fill(site, gpu("b", 0, 3 * HOUR, **BUSY), theirs, host="h2")
    (each,) = found(site, "held")
    assert outcome(each) == ((True, f"scancel {own}") if ends else (False, f"squeue --jobs={own} --array"))
    assert any(f"Slurm job {other} of the same user" in failure for failure in each.confidence.failed) != ends


@pytest.mark.parametrize(("held_s", "ends"), [(3 * HOUR, True), (HOUR // 2, False)])
def test_another_job_of_the_user_that_rests(site: Recording, held_s: int, *, ends: bool) -> None:
    fill(site, gpu("a", 0, 3 * HOUR, **HELD), lists("a", 0, 3 * HOUR, slurm_job_id="36"))
    fill(
        site,
        gpu("b", 0, 3 * HOUR - held_s, **BUSY) + gpu("b", 3 * HOUR - held_s, 3 * HOUR, **HELD),
        lists("b", 0, 3 * HOUR, slurm_job_id="37"),
        host="h2",
    )
    commands = [each.next_command for each in found(site, "held") if each.host == "h1"]
    assert commands == ["scancel 36" if ends else "squeue --jobs=36 --array"]


def test_a_component_of_a_heterogeneous_job_without_a_process(site: Recording) -> None:
    rows = gpu("a", 0, 3 * HOUR, **FREE) + gpu("b", 0, 3 * HOUR, **BUSY)
    fill(site, rows, lists("b", 0, 3 * HOUR, slurm_job_id="61"), [job("a", "60"), job("b", "61")])
    (each,) = found(site, "reserved_unused")
    assert outcome(each) == (False, "squeue --jobs=60 --array")


def test_another_job_of_the_user_where_nobody_looks(site: Recording) -> None:
    fill(site, gpu("a", 0, 3 * HOUR, **HELD), lists("a", 0, 3 * HOUR, slurm_job_id="36"))
    write(site, schema.CLAIM, [job(None, "37", host_gpu_count=1)], "h2")
    (each,) = found(site, "held")
    assert outcome(each) == (False, "squeue --jobs=36 --array")


def test_a_task_that_is_called_by_its_own_name_is_ended(site: Recording) -> None:
    rows = gpu("a", 0, 3 * HOUR, **FREE) + gpu("b", 0, 3 * HOUR, **BUSY)
    fill(site, rows, lists("b", 0, 3 * HOUR, slurm_job_id="37"), [job("a", "36_3")])
    (each,) = found(site, "reserved_unused")
    assert outcome(each) == (True, "scancel 36_3")


def test_what_an_ended_job_left_behind_is_ended_by_pid(site: Recording) -> None:
    rows = gpu("a", 0, 20 * HOUR, **BUSY) + gpu("a", 20 * HOUR, 24 * HOUR, **HELD) + gpu("b", 0, 24 * HOUR, **BUSY)
    seen = lists("a", 0, 24 * HOUR, slurm_job_id="36", started=ms(0), parent_pid=90)
    theirs = lists("b", 0, 24 * HOUR, slurm_job_id="37", pid=5)
    fill(site, rows, seen + theirs, [job("a", "36", end=ms(20 * HOUR)), job("b", "37")])
    (each,) = found(site, "zombie_holder")
    assert outcome(each) == (True, "ssh h1 kill 4711")


# --- ranks of one run ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "ends"),
    [
        ({"parent_pid": 50, "started": ms(-55)}, False),
        ({"parent_pid": 51, "started": ms(-55)}, True),  # of another launcher
        ({"parent_pid": 50, "started": ms(-55), "user": "bob"}, True),
    ],
)
def test_a_rank_whose_run_works_on_another_gpu(site: Recording, other: dict[str, Any], *, ends: bool) -> None:
    rows = gpu("a", 0, 3 * HOUR, **HELD) + gpu("b", 0, 3 * HOUR, **BUSY)
    own = lists("a", 0, 3 * HOUR, pid=100, parent_pid=50, started=ms(-60))
    fill(site, rows, own + lists("b", 0, 3 * HOUR, **{"pid": 101} | other))
    (each,) = found(site, "held")
    assert outcome(each) == ((True, "ssh h1 kill 100") if ends else (False, LOOK))


def test_a_rank_that_has_left_its_gpu_ties_nobody(site: Recording) -> None:
    rows = gpu("a", 0, 6 * HOUR, **HELD) + gpu("b", 0, 6 * HOUR, **BUSY)
    own = lists("a", 0, 6 * HOUR, pid=100, parent_pid=50, started=ms(-60))
    left = lists("b", 0, 3 * HOUR, pid=101, parent_pid=50, started=ms(-60))
    fill(site, rows, own + left + lists("b", 3 * HOUR, 6 * HOUR, pid=7, user="bob", parent_pid=60))
    assert outcome(found(site, "held")[0]) == (True, "ssh h1 kill 100")


# --- GPUs of the job that nobody sees ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["held", "reserved_unused"])
@pytest.mark.parametrize("named", ["GPU-z", None])
def test_a_host_of_the_job_that_never_reported(site: Recording, rule: str, named: str | None) -> None:
    on = rule == "held"
    seen = lists("a", 0, 3 * HOUR, slurm_job_id="50") if on else []
    fill(site, gpu("a", 0, 3 * HOUR, **(HELD if on else FREE)), seen, [job("a", "50")])
    write(site, schema.CLAIM, [job(named, "50", host_gpu_count=8)], "h2")
    (each,) = found(site, rule)
    assert outcome(each) == (False, f"squeue --jobs=50 {'--array' if on else '--long'}")
    assert NOT_SEEN.format(named or "h2") in each.confidence.failed


@pytest.mark.parametrize(
    ("values", "user", "ends"),
    [
        (UNLISTED, None, False),
        (BUSY, "ann", False),  # without the name of a job
        (BUSY, "bob", True),
        (FREE, None, True),
    ],
)
def test_gpus_of_the_job_that_are_only_counted(
    site: Recording, values: dict[str, Any], user: str | None, *, ends: bool
) -> None:
    fill(site, gpu("a", 0, 3 * HOUR, **HELD), lists("a", 0, 3 * HOUR, slurm_job_id="50"), [job("a", "50")])
    seen = [row for name in "xyz" for row in lists(name, 0, 3 * HOUR, user=user, pid=ord(name))] if user else []
    rows = [row for name in "xyz" for row in gpu(name, 0, 3 * HOUR, **values)]
    fill(site, rows, seen, [job(None, "50", host_gpu_count=2)], host="h2")
    (each,) = (one for one in found(site, "held") if one.host == "h1")
    assert outcome(each) == ((True, "scancel 50") if ends else (False, "squeue --jobs=50 --array"))
    assert (NOT_SEEN.format("h2") in each.confidence.failed) != ends


def test_a_gpu_of_the_job_that_fell_silent_at_rest(site: Recording) -> None:
    fill(site, gpu("a", 0, 6 * HOUR, **HELD), lists("a", 0, 6 * HOUR, slurm_job_id="50"), [job("a", "50")])
    fill(site, gpu("b", 0, HOUR, **FREE), claims=[job("b", "50")], host="h2")
    (each,) = found(site, "held")
    assert outcome(each) == (False, "squeue --jobs=50 --array")


# --- GPUs that are claimed by a number alone ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "end_s", "free", "said"),
    [
        (4, None, 0, "4 GPUs of h1 are allocated by count only: which ones is not known"),
        (1, None, 0, "1 GPU of h1 is allocated by count only: which one is not known"),
        (None, None, 0, "GPUs of h1 are allocated: how many and which ones is not known"),
        (4, 8 * DAY, 8, None),
    ],
)
@pytest.mark.parametrize("rule", ["never_used", "standing_surplus"])
def test_free_gpus_of_a_host_with_a_counted_claim(
    site: Recording, rule: str, count: int | None, end_s: float | None, *, free: int, said: str | None
) -> None:
    names = [f"GPU-{number}" for number in range(8)]
    rows = [row for name in names for row in samples(name, 0, 9 * DAY, every_s=1800, **FREE, mem_used_bytes=0)]
    counted = claim(None, 0, end_s, user="ann", claim_id="r1") | {"scheduler": "csv", "host_gpu_count": count}
    fill(site, rows, claims=[counted], devices=[device(name) for name in names])
    (each,) = found(site, rule)
    assert len(each.reclaimable_gpus) == free
    assert (said in each.confidence.failed) == (said is not None)


def test_a_counted_claim_that_is_at_work_namelessly_takes_no_free_gpu(site: Recording) -> None:
    names = [f"GPU-{number}" for number in range(8)]
    rows = [row for name in names[4:] for row in samples(name, 0, 9 * DAY, every_s=1800, **FREE, mem_used_bytes=0)]
    rows += [row for name in names[:4] for row in samples(name, 0, 9 * DAY, every_s=1800, **UNLISTED)]
    fill(site, rows, claims=[job(None, "50", host_gpu_count=4)], devices=[device(name) for name in names])
    (each,) = found(site, "never_used")
    assert each.reclaimable_gpus == tuple(names[4:])


# --- pods of one job ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "value", "ends"),
    [
        ("training.kubeflow.org/job-name", "t1", False),
        ("batch.kubernetes.io/job-name", "t1", False),
        ("volcano.sh/job-name", "t1", False),
        ("jobset.sigs.k8s.io/jobset-name", "t1", False),
        ("leaderworkerset.sigs.k8s.io/name", "t1", False),
        ("ray.io/cluster", "t1", False),
        ("ray.io/cluster", "t2", True),
        ("app", "t1", True),
    ],
)
def test_a_worker_whose_job_works_in_another_pod(site: Recording, label: str, value: str, *, ends: bool) -> None:
    for name, host, values, at in (("a", "h1", HELD, "t1"), ("b", "h2", BUSY, value)):
        pod = {"pod": f"worker-{name}", "namespace": "ml", "pod_labels": json.dumps({label: at}), "container_id": name}
        fill(site, gpu(name, 0, 3 * HOUR, **values), lists(name, 0, 3 * HOUR, **pod), host=host)
    (each,) = found(site, "held")
    assert outcome(each) == ((True, "kubectl delete pod -n ml worker-a") if ends else (False, LOOK))


@pytest.mark.parametrize(("pod", "space", "ends"), [("t1-worker-0", "ml", False), ("t1-worker-0", "other", True), ("t10-0", "ml", True)])  # fmt: skip
def test_a_worker_without_a_process_whose_job_works(site: Recording, pod: str, space: str, *, ends: bool) -> None:
    labels = json.dumps({"training.kubeflow.org/job-name": "t1"})
    seen = lists("b", 0, 3 * HOUR, pod="t1-worker-1", namespace="ml", pod_labels=labels, container_id="c")
    claimed = job("a", f"{space}/{pod}", scheduler="kubernetes", user=None)
    fill(site, gpu("a", 0, 3 * HOUR, **FREE) + gpu("b", 0, 3 * HOUR, **BUSY), seen, [claimed])
    (each,) = found(site, "reserved_unused")
    assert outcome(each) == (ends, f"kubectl {'delete' if ends else 'get'} pod -n {space} {pod}")


@pytest.mark.parametrize("labels", ["[1]", "no JSON", '{"ray.io/cluster": ""}'])
def test_labels_that_say_nothing(site: Recording, labels: str) -> None:
    for name, values in (("a", HELD), ("b", BUSY)):
        pod = {"pod": f"worker-{name}", "namespace": "ml", "pod_labels": labels, "container_id": name}
        fill(site, gpu(name, 0, 3 * HOUR, **values), lists(name, 0, 3 * HOUR, **pod), host=f"h-{name}")
    assert found(site, "held")[0].next_command == "kubectl delete pod -n ml worker-a"


# --- pids of a host that was seen a while ago --------------------------------------------------------------------------


@pytest.mark.parametrize(("ago_s", "kills"), [(0, True), (900, True), (1200, False), (3300, False)])
@pytest.mark.parametrize("by", ["pid", "job"])
def test_a_pid_is_named_only_while_its_host_reports(site: Recording, ago_s: int, by: str, *, kills: bool) -> None:
    last_s = 6 * HOUR - ago_s
    own = {"slurm_job_id": "36"} if by == "job" else {}
    fill(site, gpu("a", 0, last_s, **HELD), lists("a", 0, last_s, **own))
    fill(site, gpu("b", 0, 6 * HOUR, **BUSY), lists("b", 0, 6 * HOUR, user="bob"), host="h2")
    (each,) = found(site, "held")
    ending = "scancel 36" if by == "job" else "ssh h1 kill 4711"
    assert each.next_command == (ending if kills or by == "job" else LOOK)


# --- whole situations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", bound_together.SCENARIOS, ids=lambda each: each.name)
def test_nothing_is_taken_that_is_bound_to_work(scenario: Scenario, tmp_path: Path) -> None:
    about = [each for each in findings(scenario, tmp_path) if each.rule in scenario.fires]
    assert about
    assert {each.reclaimable_gpus for each in about} == {()}
    ending = ("scancel", "kubectl delete", " kill ")
    assert [each.next_command for each in about if any(word in each.next_command for word in ending)] == []

"""What may be ended: no work that also runs elsewhere, no other user's process, none that only an old list knows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fallow import schema
from tests.findings.conftest import BUSY, DAY, FREE, HELD, HOUR
from tests.findings.one_rule import found, only_of
from tests.ledger.rows import GB, allocation, device, fill, held_by, ms, processes, samples, write

if TYPE_CHECKING:
    from analytics.workloads.model import Finding
    from tests.ledger.recording import Recording

Rows = list[dict[str, Any]]
LOOK = "ssh h1 nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv"
UNLISTED = {"process_count": None, "mem_used_bytes": 60 * GB, "gpu_util_coverage_ratio": 1.0}
AT_WORK = UNLISTED | {"gpu_util_pct": 95.0}
STEP = 300
NOT_SEEN = "1 GPU or host of the same job is not observed ({}): the job may be working there"


def gpu(name: str, first_s: float = 0, last_s: float = 3 * HOUR, **values: Any) -> Rows:
    return samples(name, first_s, last_s, every_s=STEP, **values)


def lists(name: str, first_s: int = 0, last_s: int = 3 * HOUR, **values: Any) -> Rows:
    return processes(name, *range(first_s, last_s, STEP), every_s=STEP, **values)


def job(name: str | None, allocation_id: str = "77", **values: Any) -> dict[str, Any]:
    user = "bob" if allocation_id == "78" else "ann"
    return (
        allocation(name, 0, None, user=user, allocation_id=allocation_id)
        | {"scheduler": "slurm", "host_gpu_count": 1}
        | values
    )


def outcome(finding: Finding) -> tuple[bool, str]:
    return finding.reclaimable, finding.next_command


# --- work that the ledger knows elsewhere by an allocation only -------------------------------------------------------

ELSEWHERE = [
    pytest.param(AT_WORK, "77", False, id="works"),
    pytest.param({"gpu_util_pct": 0.0} | UNLISTED, "77", False, id="nobody lists what is there"),
    pytest.param(AT_WORK, "78", True, id="another job, of somebody else"),
    pytest.param(FREE, "77", True, id="allocated, and seen to be empty"),
]


@pytest.mark.parametrize(("there", "allocation_id", "ends"), ELSEWHERE)
def test_a_held_job_that_a_allocation_puts_on_another_gpu(
    site: Recording, there: dict[str, Any], allocation_id: str, *, ends: bool
) -> None:
    allocations = [job("a"), job("b", allocation_id)]
    each = only_of("held", fill(site, gpu("a", **HELD) + gpu("b", **there), lists("a", slurm_job_id="77"), allocations))
    assert each.next_command == ("scancel 77" if ends else LOOK)
    # where b is held too, both can be asked for; where it works, neither
    assert each.reclaimable == (ends or "b" in each.gpus)


@pytest.mark.parametrize(("there", "allocation_id", "ends"), ELSEWHERE)
def test_a_allocated_gpu_of_a_job_that_works_on_another(
    site: Recording, there: dict[str, Any], allocation_id: str, *, ends: bool
) -> None:
    fill(site, gpu("a", **FREE) + gpu("b", **there), allocations=[job("a"), job("b", allocation_id)])
    each = only_of("reserved_unused", site)
    assert outcome(each) == (ends, "scancel 77" if ends else "squeue --jobs=77 --long")
    assert any("also have kernels on" in failure for failure in each.confidence.failed) != ends


@pytest.mark.parametrize("scheduler", ["slurm", "csv"])
@pytest.mark.parametrize("working", [6, 0])
def test_idle_gpus_of_an_allocation_whose_processes_nobody_lists(site: Recording, scheduler: str, working: int) -> None:
    """Six of its eight GPUs train: a file tells as much as Slurm, that the other two cannot be had without them."""
    levels = {name: 95.0 if number < working else 0.0 for number, name in enumerate("abcdefgh")}
    rows = [row for name, util in levels.items() for row in gpu(name, 0, 6 * HOUR, **UNLISTED, gpu_util_pct=util)]
    fill(site, rows, allocations=[job(name, scheduler=scheduler, host_gpu_count=None) for name in levels])
    held = only_of("held", site)
    assert (held.gpus, held.reclaimable) == (tuple("abcdefgh"[working:]), working == 0)
    assert any("also have kernels on" in failure for failure in held.confidence.failed) == (working > 0)
    assert not any(each.reclaimable for each in found("partial_use", site))


def test_a_pod_that_works_on_another_gpu(site: Recording) -> None:
    pod = {"scheduler": "kubernetes", "account": "ml", "host_gpu_count": None, "user": None}
    fill(site, gpu("a", **FREE) + gpu("b", **AT_WORK), allocations=[job(name, "ml/train-0", **pod) for name in "ab"])
    assert outcome(only_of("reserved_unused", site)) == (False, "kubectl get pod -n ml train-0")


# --- allocated time without observations ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "source"),
    [
        ({"process_count": None}, "allocation_unwatched"),
        ({"process_count": 0}, "allocation"),
        ({"process_count": None, "mem_used_bytes": 0}, "allocation"),
        ({"process_count": None, "health": "asleep"}, "allocation"),
    ],
)
def test_a_allocated_gpu_that_nobody_could_look_at(site: Recording, values: dict[str, Any], source: str) -> None:
    fill(site, gpu("a", 0, 12 * HOUR, gpu_util_coverage_ratio=1.0, **values), allocations=[job("a")])
    assert held_by(site) == [("reserved", 0.0, 12.0 * HOUR, "ann", source)]  # type: ignore[arg-type]  # as a lake
    expected = [("a",)] if source == "allocation" else []
    assert [each.reclaimable_gpus for each in found("reserved_unused", site)] == expected


def test_a_gpu_never_looked_at_is_not_never_used(site: Recording) -> None:
    fill(site, samples("a", 0, 8 * DAY, every_s=1800, process_count=None), allocations=[job("a")])
    each = only_of("never_used", site)
    assert (each.reclaimable, each.evidence.numbers["user_source"]) == (False, None)


# --- jobs that ended, and those that only may have --------------------------------------------------------------------

ENDED = allocation("a", 0, 20 * HOUR)
RESTARTED = [allocation("a", 0, None), allocation("a", 12 * HOUR, None) | {"planned_end": ms(20 * HOUR)}]


@pytest.mark.parametrize(
    ("allocations", "started_h", "command"),
    [
        pytest.param([ENDED], 0, "ssh h1 kill 4711", id="a stated end after the process began"),
        pytest.param([allocation("a", 0, None) | {"planned_end": ms(20 * HOUR)}], 0, "scancel 77", id="a planned end"),
        pytest.param([allocation("a", 0, 10 * HOUR)], 15, "scancel 77", id="an end before the process began"),
        pytest.param([allocation("a", 0, 10 * HOUR)], 10, "scancel 77", id="an end as the process began"),
        pytest.param(RESTARTED, 0, "scancel 77", id="the start of a next run"),
        pytest.param([ENDED], None, "scancel 77", id="a process of unknown age"),
        pytest.param([ENDED, job("b", "78")], 0, "ssh h1 kill 4711", id="another job of the host works"),
    ],
)
def test_what_an_ended_job_left_behind_is_ended_by_pid(
    site: Recording, allocations: Rows, started_h: int | None, command: str
) -> None:
    """Where the job may still run, or run again, its own command ends it, and ends nothing where it has ended."""
    rows = gpu("a", 0, 20 * HOUR, **BUSY) + gpu("a", 20 * HOUR, 24 * HOUR, **HELD) + gpu("b", 0, 24 * HOUR, **BUSY)
    began = {} if started_h is None else {"started": ms(started_h * HOUR)}
    seen = lists("a", 0, 24 * HOUR, slurm_job_id="77", parent_pid=90, **began)
    seen += lists("b", 0, 24 * HOUR, slurm_job_id="78", pid=5, user="bob")
    own = {"scheduler": "slurm", "user": "ann", "allocation_id": "77"}
    fill(site, rows, seen, [each | own if each["gpu"] == "a" else each for each in allocations])
    each = only_of("held", site)
    assert outcome(each) == (True, command)
    assert (each.evidence.numbers.get("processes") == "job ended") is (command != "scancel 77")


# --- lists that are old, or another user's ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every_s", "last_list_s", "ends"), [(STEP, 6 * HOUR, True), (3 * STEP, 6 * HOUR, True), (STEP, 3 * HOUR, False)]
)
def test_only_the_newest_list_is_a_list(site: Recording, every_s: int, last_list_s: int, *, ends: bool) -> None:
    fill(site, gpu("a", 0, 6 * HOUR, **HELD), processes("a", *range(0, last_list_s, every_s), every_s=every_s))
    assert any("kill 4711" in each.next_command for each in found("held", site)) == ends


def test_pids_of_an_old_list_of_another_user_are_not_named(site: Recording) -> None:
    """Bob left GPU b a day ago; since then ann claims it, and nobody could list what is there."""
    rows = gpu("a", 0, 30 * HOUR, **HELD) + gpu("b", **BUSY)
    rows += gpu("b", 3 * HOUR, 30 * HOUR, gpu_util_pct=0.0, **UNLISTED)
    seen = lists("a", 0, 30 * HOUR, pid=100) + lists("b", user="bob", pid=666)
    each = only_of("held", fill(site, rows, seen, [allocation("b", 3 * HOUR, None, user="ann")]))
    assert (each.gpus, each.next_command) == (("a", "b"), LOOK)


@pytest.mark.parametrize(("second", "command"), [("bob", "ssh h1 kill 1 2"), (None, LOOK)])
def test_both_users_of_a_shared_gpu_are_asked_and_nobody_unknown_is_ended(
    site: Recording, second: str | None, command: str
) -> None:
    seen = lists("a", user="ann", pid=1) + lists("a", user=second, pid=2)
    fill(site, gpu("a", **HELD | {"process_count": 2}), seen)
    assert [each.next_command for each in found("held", site)] == [command]


@pytest.mark.parametrize(("ago_s", "kills"), [(0, True), (900, True), (1200, False), (3300, False)])
@pytest.mark.parametrize("by", ["pid", "job"])
def test_a_pid_is_named_only_while_its_host_reports(site: Recording, ago_s: int, by: str, *, kills: bool) -> None:
    last_s = 6 * HOUR - ago_s
    fill(site, gpu("a", 0, last_s, **HELD), lists("a", 0, last_s, **({"slurm_job_id": "36"} if by == "job" else {})))
    fill(site, gpu("b", 0, 6 * HOUR, **BUSY), lists("b", 0, 6 * HOUR, user="bob"), host="h2")
    expected = "scancel 36" if by == "job" else "ssh h1 kill 4711" if kills else LOOK
    assert only_of("held", site).next_command == expected


# --- arrays and heterogeneous jobs: `scancel` of their own id ends all of them ----------------------------------------


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
    fill(site, gpu("a", **HELD), lists("a", slurm_job_id=own))
    fill(site, gpu("b", **BUSY), lists("b", slurm_job_id=other, user=user), host="h2")
    each = only_of("held", site)
    assert outcome(each) == ((True, f"scancel {own}") if ends else (False, f"squeue --jobs={own} --array"))
    assert any(f"Slurm job {other} of the same user" in failure for failure in each.confidence.failed) != ends


@pytest.mark.parametrize(("held_s", "command"), [(3 * HOUR, "scancel 36"), (HOUR // 2, "squeue --jobs=36 --array")])
def test_another_job_of_the_user_that_rests(site: Recording, held_s: int, command: str) -> None:
    begun = 3 * HOUR - held_s
    fill(site, gpu("a", **HELD), lists("a", slurm_job_id="36"))
    fill(site, gpu("b", 0, begun, **BUSY) + gpu("b", begun, **HELD), lists("b", slurm_job_id="37"), host="h2")
    assert [each.next_command for each in found("held", site) if each.host == "h1"] == [command]


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [("60", "61", (False, "squeue --jobs=60 --array")), ("36_3", "37", (True, "scancel 36_3"))],
    ids=["a component of a heterogeneous job", "a task that is called by its own name"],
)
def test_a_job_without_a_process_beside_another_of_its_user(
    site: Recording, own: str, other: str, expected: tuple[bool, str]
) -> None:
    allocations = [job("a", own), *([job("b", other)] if own == "60" else [])]
    fill(site, gpu("a", **FREE) + gpu("b", **BUSY), lists("b", slurm_job_id=other), allocations)
    assert outcome(only_of("reserved_unused", site)) == expected


def test_another_job_of_the_user_where_nobody_looks(site: Recording) -> None:
    fill(site, gpu("a", **HELD), lists("a", slurm_job_id="36"))
    write(site, schema.ALLOCATION, [job(None, "37")], "h2")
    assert outcome(only_of("held", site)) == (False, "squeue --jobs=36 --array")


# --- ranks of one run ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "left_s", "ends"),
    [
        pytest.param({"parent_pid": 50, "started": ms(-55)}, None, False, id="of the same launcher"),
        pytest.param({"parent_pid": 51, "started": ms(-55)}, None, True, id="of another launcher"),
        pytest.param({"parent_pid": 50, "started": ms(-55), "user": "bob"}, None, True, id="of another user"),
        pytest.param({"parent_pid": 50, "started": ms(-60)}, HOUR, True, id="it has left its GPU"),
    ],
)
def test_a_rank_whose_run_works_on_another_gpu(
    site: Recording, other: dict[str, Any], left_s: int | None, *, ends: bool
) -> None:
    own = lists("a", pid=100, parent_pid=50, started=ms(-60))
    theirs = lists("b", 0, left_s or 3 * HOUR, **{"pid": 101} | other)
    theirs += lists("b", left_s, pid=7, user="bob", parent_pid=60) if left_s else []
    fill(site, gpu("a", **HELD) + gpu("b", **BUSY), own + theirs)
    assert outcome(only_of("held", site)) == ((True, "ssh h1 kill 100") if ends else (False, LOOK))


# --- unobserved GPUs of the job ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["held", "reserved_unused"])
@pytest.mark.parametrize("named", ["GPU-z", None])
def test_a_host_of_the_job_that_never_reported(site: Recording, rule: str, named: str | None) -> None:
    on = rule == "held"
    fill(site, gpu("a", **(HELD if on else FREE)), lists("a", slurm_job_id="50") if on else [], [job("a", "50")])
    write(site, schema.ALLOCATION, [job(named, "50", host_gpu_count=8)], "h2")
    each = only_of(rule, site)
    assert outcome(each) == (False, f"squeue --jobs=50 {'--array' if on else '--long'}")
    assert NOT_SEEN.format(named or "h2") in each.confidence.failed


@pytest.mark.parametrize(
    ("values", "user", "ends"),
    [
        (UNLISTED | {"gpu_util_pct": 90.0}, None, False),
        (BUSY, "ann", False),  # without the name of a job
        (BUSY, "bob", True),
        (FREE, None, True),
    ],
)
def test_gpus_of_the_job_that_are_only_counted(
    site: Recording, values: dict[str, Any], user: str | None, *, ends: bool
) -> None:
    fill(site, gpu("a", **HELD), lists("a", slurm_job_id="50"), [job("a", "50")])
    seen = [row for name in "xyz" for row in lists(name, user=user, pid=ord(name))] if user else []
    rows = [row for name in "xyz" for row in gpu(name, **values)]
    fill(site, rows, seen, [job(None, "50", host_gpu_count=2)], host="h2")
    (each,) = (one for one in found("held", site) if one.host == "h1")
    assert outcome(each) == ((True, "scancel 50") if ends else (False, "squeue --jobs=50 --array"))
    assert (NOT_SEEN.format("h2") in each.confidence.failed) != ends


@pytest.mark.parametrize(("last", "command"), [(FREE, "squeue --jobs=50 --array"), (AT_WORK, LOOK)])
def test_a_gpu_of_the_job_that_fell_silent_at_rest_or_at_work(
    site: Recording, last: dict[str, Any], command: str
) -> None:
    fill(site, gpu("b", 0, HOUR, **last), allocations=[job("b", "50")], host="h2")
    fill(site, gpu("a", 0, 6 * HOUR, **HELD), lists("a", 0, 6 * HOUR, slurm_job_id="50"), [job("a", "50")])
    assert outcome(only_of("held", site)) == (False, command)


# --- GPUs that are allocated by a number alone ------------------------------------------------------------------------

NAMES = [f"GPU-{number}" for number in range(8)]


@pytest.mark.parametrize(
    ("count", "end_s", "free", "said"),
    [
        (4, None, 0, "4 GPUs of h1 are allocated by count only, so it is unknown which GPUs"),
        (1, None, 0, "1 GPU of h1 is allocated by count only, so it is unknown which GPU"),
        (None, None, 0, "GPUs of h1 are allocated, but their number and names are unknown"),
        (4, 8 * DAY, 8, None),
    ],
)
def test_free_gpus_of_a_host_with_a_counted_allocation(
    site: Recording, count: int | None, end_s: float | None, free: int, said: str | None
) -> None:
    rows = [row for name in NAMES for row in samples(name, 0, 9 * DAY, every_s=1800, **FREE, mem_used_bytes=0)]
    counted = allocation(None, 0, end_s, user="ann", allocation_id="r1") | {"scheduler": "csv", "host_gpu_count": count}
    fill(site, rows, allocations=[counted], devices=[device(name) for name in NAMES])
    each = only_of("never_used", site)
    assert len(each.reclaimable_gpus) == free
    assert (said in each.confidence.failed) == (said is not None)
    assert [len(each.reclaimable_gpus) for each in found("releasable_pool", site)] == ([free] if free else [])


def test_a_counted_allocation_that_is_at_work_namelessly_takes_no_free_gpu(site: Recording) -> None:
    rows = [row for name in NAMES[4:] for row in samples(name, 0, 9 * DAY, every_s=1800, **FREE, mem_used_bytes=0)]
    rows += [row for name in NAMES[:4] for row in samples(name, 0, 9 * DAY, every_s=1800, **AT_WORK)]
    fill(site, rows, allocations=[job(None, "50", host_gpu_count=4)], devices=[device(name) for name in NAMES])
    assert only_of("never_used", site).reclaimable_gpus == tuple(NAMES[4:])


# --- pods of one job --------------------------------------------------------------------------------------------------


WORKERS = [
    ('{"training.kubeflow.org/job-name": "t1"}', "t1", False),
    ('{"batch.kubernetes.io/job-name": "t1"}', "t1", False),
    ('{"volcano.sh/job-name": "t1"}', "t1", False),
    ('{"jobset.sigs.k8s.io/jobset-name": "t1"}', "t1", False),
    ('{"leaderworkerset.sigs.k8s.io/name": "t1"}', "t1", False),
    ('{"ray.io/cluster": "t1"}', "t1", False),
    ('{"ray.io/cluster": "t1"}', "t2", True),
    ('{"app": "t1"}', "t1", True),
    ("[1]", "t1", True),
    ("no JSON", "t1", True),
    ('{"ray.io/cluster": ""}', "", True),
]
"""Labels of a pod, the name of the job in those of the other, and whether the first is ended."""


def test_a_worker_whose_job_works_in_another_pod(site: Recording) -> None:
    """Each pair is in a namespace of its own; a job of another namespace is another job."""
    expected = {}
    for number, (labels, value, ends) in enumerate(WORKERS):
        for name, values, own in ((f"a{number}", HELD, labels), (f"b{number}", BUSY, labels.replace("t1", value))):
            pod = {"pod": f"worker-{name}", "namespace": f"ml{number}", "pod_labels": own, "container_id": name}
            fill(site, gpu(name, **values), lists(name, **pod), host=f"h-{name}")
        deleted = (True, f"kubectl delete pod -n ml{number} worker-a{number}")
        expected[f"h-a{number}"] = deleted if ends else (False, LOOK.replace("h1", f"h-a{number}"))
    assert {each.host: outcome(each) for each in found("held", site)} == expected


@pytest.mark.parametrize(
    ("pod", "space", "ends"), [("t1-worker-0", "ml", False), ("t1-worker-0", "other", True), ("t10-0", "ml", True)]
)
def test_a_worker_without_a_process_whose_job_works(site: Recording, pod: str, space: str, *, ends: bool) -> None:
    labels = json.dumps({"training.kubeflow.org/job-name": "t1"})
    seen = lists("b", pod="t1-worker-1", namespace="ml", pod_labels=labels, container_id="c")
    allocated = job("a", f"{space}/{pod}", scheduler="kubernetes", user=None)
    fill(site, gpu("a", **FREE) + gpu("b", **BUSY), seen, [allocated])
    expected = (ends, f"kubectl {'delete' if ends else 'get'} pod -n {space} {pod}")
    assert outcome(only_of("reserved_unused", site)) == expected

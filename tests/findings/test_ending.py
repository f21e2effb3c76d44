"""What may be ended: nothing that works elsewhere, nobody else's processes, and none that only an old list knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from analytics.rules import RULES_BY_NAME
from fallow import schema
from tests.findings.conftest import BUSY, DAY, FREE, HELD, HOUR
from tests.findings.one_rule import found_in
from tests.ledger.rows import GB, claim, device, fill, held_by, ms, processes, samples, write

if TYPE_CHECKING:
    from analytics.workloads.model import Finding
    from tests.ledger.recording import Recording

LOOK = "ssh h1 nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv"
UNLISTED = {"process_count": None, "mem_used_bytes": 60 * GB, "gpu_util_coverage_ratio": 1.0}
SLURM = {"scheduler": "slurm", "host_gpu_count": 1}
STEP = 300
NOTHING = {"requests_per_s": 0.0, "running_requests": 0.0, "waiting_requests": 0.0, "generated_tokens_per_s": 0.0}


def found(site: Recording, rule: str) -> list[Finding]:
    return found_in(RULES_BY_NAME[rule], site)


def gpu(name: str, first_s: float, last_s: float, **values: Any) -> list[dict[str, Any]]:
    return samples(name, first_s, last_s, every_s=STEP, **values)


def lists(name: str, first_s: int, last_s: int, **values: Any) -> list[dict[str, Any]]:
    return processes(name, *range(first_s, last_s, STEP), every_s=STEP, **values)


def job(names: str, claim_id: str = "77", **values: Any) -> list[dict[str, Any]]:
    user = "ann" if claim_id == "77" else "bob"
    return [claim(name, 0, None, user=user, claim_id=claim_id) | SLURM | values for name in names]


# --- work that the ledger knows elsewhere by a claim only ------------------------------------------------------------

ELSEWHERE = [
    ({"gpu_util_pct": 95.0} | UNLISTED, "77", False),  # works
    ({"gpu_util_pct": 0.0} | UNLISTED, "77", False),  # nobody lists what is there
    ({"gpu_util_pct": 95.0} | UNLISTED, "78", True),  # another job, of somebody else
    (FREE, "77", True),  # claimed, and seen to be empty
]


@pytest.mark.parametrize(("there", "claim_id", "ends"), ELSEWHERE)
def test_a_held_job_that_a_claim_puts_on_another_gpu(
    site: Recording, there: dict[str, Any], claim_id: str, *, ends: bool
) -> None:
    rows = gpu("a", 0, 3 * HOUR, **HELD) + gpu("b", 0, 3 * HOUR, **there)
    fill(site, rows, lists("a", 0, 3 * HOUR, slurm_job_id="77"), job("a") + job("b", claim_id))
    (each,) = found(site, "held")
    assert each.next_command == ("scancel 77" if ends else LOOK)
    # where b is held too, both can be asked for; where it works, neither
    assert each.reclaimable == (ends or "b" in each.gpus)


@pytest.mark.parametrize(("there", "claim_id", "ends"), ELSEWHERE)
def test_a_claimed_gpu_of_a_job_that_works_on_another(
    site: Recording, there: dict[str, Any], claim_id: str, *, ends: bool
) -> None:
    rows = gpu("a", 0, 3 * HOUR, **FREE) + gpu("b", 0, 3 * HOUR, **there)
    fill(site, rows, claims=job("a") + job("b", claim_id))
    (each,) = found(site, "reserved_unused")
    assert each.next_command == ("scancel 77" if ends else "squeue --jobs=77 --long")
    assert each.reclaimable == ends
    assert any("are also at work on" in failure for failure in each.confidence.failed) != ends


@pytest.mark.parametrize("scheduler", ["slurm", "csv"])
@pytest.mark.parametrize("working", [6, 0])
def test_idle_gpus_of_an_allocation_whose_processes_nobody_lists(site: Recording, scheduler: str, working: int) -> None:
    """Six of its eight GPUs train: a file tells as much as Slurm, that the other two cannot be had without them."""
    names = "abcdefgh"
    rows = [
        row
        for number, name in enumerate(names)
        for row in gpu(name, 0, 6 * HOUR, **UNLISTED, gpu_util_pct=95.0 if number < working else 0.0)
    ]
    fill(site, rows, claims=job(names, scheduler=scheduler, host_gpu_count=None))
    (held,) = found(site, "held")
    assert held.gpus == tuple(names[working:])
    assert held.reclaimable == (working == 0)
    assert any("are also at work on" in failure for failure in held.confidence.failed) == (working > 0)
    assert not any(each.reclaimable for each in found(site, "partial_use"))


def test_a_pod_that_works_on_another_gpu(site: Recording) -> None:
    rows = gpu("a", 0, 3 * HOUR, **FREE) + gpu("b", 0, 3 * HOUR, gpu_util_pct=95.0, **UNLISTED)
    pod = {"scheduler": "kubernetes", "account": "ml", "host_gpu_count": None, "user": None}
    fill(site, rows, claims=job("ab", "ml/train-0", **pod))
    (each,) = found(site, "reserved_unused")
    assert (each.reclaimable, each.next_command) == (False, "kubectl get pod -n ml train-0")


def test_a_job_whose_other_host_fell_silent_at_work_is_not_ended(site: Recording) -> None:
    fill(site, gpu("b", 0, HOUR, gpu_util_pct=95.0, **UNLISTED), claims=job("b"), host="h2")
    fill(site, gpu("a", 0, 6 * HOUR, **HELD), lists("a", 0, 6 * HOUR, slurm_job_id="77"), job("a"))
    (each,) = found(site, "held")
    assert (each.reclaimable, each.next_command) == (False, LOOK)


# --- claimed time in which nobody looked -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "source"),
    [
        ({"process_count": None}, "claim_unwatched"),
        ({"process_count": 0}, "claim"),
        ({"process_count": None, "mem_used_bytes": 0}, "claim"),
        ({"process_count": None, "health": "asleep"}, "claim"),
    ],
)
def test_a_claimed_gpu_that_nobody_could_look_at(site: Recording, values: dict[str, Any], source: str) -> None:
    fill(site, gpu("a", 0, 12 * HOUR, gpu_util_coverage_ratio=1.0, **values), claims=job("a"))
    assert held_by(site) == [("reserved", 0.0, 12.0 * HOUR, "ann", source)]
    assert [each.reclaimable_gpus for each in found(site, "reserved_unused")] == ([("a",)] if source == "claim" else [])


def test_a_gpu_never_looked_at_is_not_never_used(site: Recording) -> None:
    fill(site, samples("a", 0, 8 * DAY, every_s=1800, process_count=None), claims=job("a"))
    (each,) = found(site, "never_used")
    assert (each.reclaimable, each.evidence.numbers["holder_source"]) == (False, None)


# --- jobs that ended, and those that only may have ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claimed", "started", "fires"),
    [
        (claim("a", 0, 20 * HOUR), 0, True),
        (claim("a", 0, None) | {"planned_end": ms(20 * HOUR)}, 0, False),
        (claim("a", 0, 10 * HOUR), 15 * HOUR, False),
        (claim("a", 0, 10 * HOUR), 10 * HOUR, False),
    ],
)
def test_only_a_stated_end_after_the_process_began_makes_a_zombie(
    site: Recording, claimed: dict[str, Any], started: int, *, fires: bool
) -> None:
    rows = gpu("a", 0, 20 * HOUR, **BUSY) + gpu("a", 20 * HOUR, 24 * HOUR, **HELD)
    seen = lists("a", 0, 24 * HOUR, slurm_job_id="77", started=ms(started), parent_pid=90)
    fill(site, rows, seen, [claimed | SLURM | {"claim_id": "77", "user": "ann"}])
    assert [each.next_command for each in found(site, "zombie_holder")] == (["ssh h1 kill 4711"] if fires else [])


def test_the_start_of_a_next_run_is_no_stated_end(site: Recording) -> None:
    rows = gpu("a", 0, 20 * HOUR, **BUSY) + gpu("a", 20 * HOUR, 24 * HOUR, **HELD)
    runs = [claim("a", at * HOUR, None, user="ann", claim_id="77") | SLURM for at in (0, 12)]
    runs[1]["planned_end"] = ms(20 * HOUR)
    fill(site, rows, lists("a", 0, 24 * HOUR, slurm_job_id="77", started=ms(0), parent_pid=90), runs)
    assert found(site, "zombie_holder") == []


def test_a_process_of_unknown_age_is_only_looked_at(site: Recording) -> None:
    rows = gpu("a", 0, 20 * HOUR, **BUSY) + gpu("a", 20 * HOUR, 24 * HOUR, **HELD)
    ended = claim("a", 0, 20 * HOUR, user="ann", claim_id="77") | SLURM
    fill(site, rows, lists("a", 0, 24 * HOUR, slurm_job_id="77", parent_pid=90), [ended])
    (each,) = found(site, "zombie_holder")
    assert (each.reclaimable, each.next_command) == (False, "ssh h1 ps -o pid,ppid,lstart,user,args -p 4711")


# --- servers that share their GPU --------------------------------------------------------------------------------------


def served(site: Recording, util: float, *others: dict[str, Any]) -> list[Finding]:
    """A vLLM that nobody asks for two days, and what else is on its GPU."""
    span = range(0, 2 * DAY, STEP)
    mine = lists("a", 0, 2 * DAY, user="svc", pid=100, command="vllm")
    theirs = [
        row for number, each in enumerate(others) for row in lists("a", 0, 2 * DAY, **{"pid": 200 + number} | each)
    ]
    rows = gpu("a", 0, 2 * DAY, gpu_util_pct=util, process_count=1 + len(others), gpu_util_coverage_ratio=1.0)
    fill(site, rows, mine + theirs, devices=[device("a")])
    said = {"interval_ms": STEP * 1000, "endpoint": "http://x", "model": "llm", "engine": "vllm", "health": "ok"}
    write(site, schema.SERVING, [said | NOTHING | {"time": ms(at), "gpu": "a", "pid": 100} for at in span])
    return found(site, "loaded_no_traffic")


@pytest.mark.parametrize("util", [6.0, 60.0])
def test_somebody_works_beside_the_server(site: Recording, util: float) -> None:
    assert served(site, util, {"user": "ann", "command": "train.py"}) == []


@pytest.mark.parametrize("other", [{"user": "ann", "command": "train.py"}, {"user": "ann", "command": "vllm"},
                                   {"user": "svc", "command": "train.py"}])  # fmt: skip
def test_somebody_waits_beside_the_server(site: Recording, other: dict[str, str]) -> None:
    (each,) = served(site, 0.0, other)
    assert (each.reclaimable, each.next_command) == (False, LOOK)
    assert "other processes share the GPUs with the server" in each.confidence.failed


@pytest.mark.parametrize(
    ("others", "pids"),
    [
        ((), "100"),
        (({"user": "svc", "command": "VLLM::Worker"},), "100 200"),
        (({"user": "x", "command": "Xorg"},), "100"),
    ],
)
def test_the_server_alone_is_ended_with_its_own_pids(
    site: Recording, others: tuple[dict[str, str], ...], pids: str
) -> None:
    (each,) = served(site, 0.0, *others)
    assert (each.reclaimable, each.next_command) == (True, f"ssh h1 kill {pids}")


# --- lists that are old, or somebody else's ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every_s", "last_list_s", "ends"), [(STEP, 6 * HOUR, True), (3 * STEP, 6 * HOUR, True), (STEP, 3 * HOUR, False)]
)
def test_only_the_newest_list_is_a_list(site: Recording, every_s: int, last_list_s: int, *, ends: bool) -> None:
    fill(site, gpu("a", 0, 6 * HOUR, **HELD), processes("a", *range(0, last_list_s, every_s), every_s=every_s))
    assert any("kill 4711" in each.next_command for each in found(site, "held")) == ends


def test_pids_of_an_old_list_of_another_user_are_not_named(site: Recording) -> None:
    """Bob left GPU b a day ago; since then ann claims it, and nobody could list what is there."""
    rows = (
        gpu("a", 0, 30 * HOUR, **HELD)
        + gpu("b", 0, 3 * HOUR, **BUSY)
        + gpu("b", 3 * HOUR, 30 * HOUR, gpu_util_pct=0.0, **UNLISTED)
    )
    seen = lists("a", 0, 30 * HOUR, pid=100) + lists("b", 0, 3 * HOUR, user="bob", pid=666)
    fill(site, rows, seen, [claim("b", 3 * HOUR, None, user="ann")])
    (each,) = found(site, "held")
    assert (each.gpus, each.next_command) == (("a", "b"), LOOK)


def test_both_users_of_a_shared_gpu_are_its_holder(site: Recording) -> None:
    seen = lists("a", 0, 3 * HOUR, user="ann", pid=1) + lists("a", 0, 3 * HOUR, user="bob", pid=2)
    fill(site, gpu("a", 0, 3 * HOUR, **HELD | {"process_count": 2}), seen)
    assert [each.next_command for each in found(site, "held")] == ["ssh h1 kill 1 2"]


def test_a_process_of_nobody_known_beside_the_holders_is_not_ended(site: Recording) -> None:
    seen = lists("a", 0, 3 * HOUR, user="ann", pid=1) + lists("a", 0, 3 * HOUR, user=None, pid=2)
    fill(site, gpu("a", 0, 3 * HOUR, **HELD | {"process_count": 2}), seen)
    assert [each.next_command for each in found(site, "held")] == [LOOK]

"""The rules about GPUs that nothing runs on: never used, reserved and unused, partly used, and left free."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest

from fallow.clock import DAY_MS, HOUR_MS
from tests.findings.conftest import BUSY, DAY, FREE, HOUR, idle_findings, only
from tests.findings.one_rule import Case, edges, finds_so_many, found, numbers_of, one_host, only_of
from tests.findings.scenarios.builder import H100, T_END, Fleet
from tests.findings.scenarios.situations import train
from tests.ledger.rows import GB, allocation, device, fill, ms, processes, samples

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.ledger.recording import Recording

ELSEWHERE = "the same processes also have kernels on 1 GPU"
WEEK = 7 * DAY
JOB = {"slurm_job_id": "7"}
Rows = list[dict[str, Any]]

# --- fleets -----------------------------------------------------------------------------------------------------------


def allocated(days: float = 1, last: float | None = None, **allocation: Any) -> Fleet:
    """Two free GPUs, which bob allocations from so many days before the end on."""
    fleet = Fleet(3)
    fleet.allocation(
        fleet.host("h1", H100, 2), "bob", -days, last, **({"allocation_id": "77", "account": "lab"} | allocation)
    )
    return fleet


def pair(second: Any = 0.0, *, first: float = 90.0, days: float = 1, **columns: Any) -> Fleet:
    """Two GPUs of one job; the second at another level, which may be a function of the fleet."""
    level = (lambda fleet: (first, second(fleet))) if callable(second) else (first, second)
    return one_host(H100, 2, days=days, util=level, **(columns or JOB))


def started_apart(seconds: int, parent: int) -> Fleet:
    fleet = Fleet(1)
    began = fleet.start_ms - 600_000
    for gpu, util, at in zip(fleet.host("h1", H100, 2), (90.0, 0.0), (0, seconds), strict=True):
        fleet.run(gpu, "ann", util=util, parent_pid=parent, started=began + at * 1000)
    return fleet


def counted(count: int, *, used: int = 1, size: int = 8, first: float = 0, days: float = 2) -> Fleet:
    """A Slurm job that was seen on some GPUs of a host; its allocation only counts how many it has."""
    fleet = Fleet(days)
    gpus = fleet.host("h1", H100, size)
    fleet.run(gpus[:used], "ann", fleet.between(first), util=90.0, slurm_job_id="7", slurm_account="lab")
    fleet.allocation(gpus[0].host, "ann", first, allocation_id="7", count=count, account="lab")
    return fleet


def never_measured() -> Fleet:
    fleet = pair()
    fleet.gpus[1].override(fleet.always, gpu_util_pct=None, gpu_util_max_pct=None)
    return fleet


def not_watched() -> Fleet:
    fleet = counted(3, size=4)
    for gpu in fleet.gpus[2:]:
        gpu.absent(fleet.between(0.5, 1))
    return fleet


def requeued() -> Fleet:
    """On which of the host's GPUs the first run of the job was nobody knows."""
    fleet = counted(4, first=-1)
    fleet.allocation(fleet.hosts[0], "ann", 0, 0.5, allocation_id="7", count=4)
    return fleet


def on_two_hosts(util: tuple[float, ...]) -> Fleet:
    fleet = Fleet(1)
    fleet.run(fleet.host("h1", H100, 2) + fleet.host("h2", H100, 2), "ann", util=util, slurm_job_id="7")
    return fleet


EDGES = [
    edges(
        "reserved_unused",
        ("a job from the shortest length of held on", {55: 0, 60: 1}, lambda minutes: allocated(minutes / 1440)),
        (
            "a standing allocation from three days on",
            {2.95: 0, 3.0: 1},
            lambda days: allocated(days, scheduler="csv", allocation_id="c"),
        ),
    ),
    edges(
        "partial_use",
        (
            "bare processes belong together by parent and start",
            {(0, 50): 1, (60, 50): 1, (61, 50): 0, (0, 1): 0},
            started_apart,
        ),
        (
            "a job of an hour may still be loading",
            {60: 0, 65: 1},
            lambda minutes: pair(when=lambda fleet: fleet.between(-minutes / 1440), **JOB),
        ),
        (
            "unused is a mean over all of the time",
            {0.4: 1, 0.6: 0},
            lambda least: pair(lambda fleet: fleet.wave(least * 10, period_h=10 / 6, on_h=1 / 6)),
        ),
        ("used is a mean of 5 %", {5.5: 1, 4.5: 0}, lambda most: pair(first=most)),
        ("what was never measured is not unused", 0, never_measured),
        ("an allocation of what was seen leaves nothing", {1: 0, 2: 0}, lambda count: counted(count, used=2)),
        ("GPUs that were not watched are not unused", 0, not_watched),
        (
            "an allocation of an hour may still be loading",
            {60: 0, 65: 1},
            lambda minutes: counted(2, first=-minutes / 1440, days=1),
        ),
        ("an allocation of another run is not this one", 0, requeued),
    ),
]


@pytest.mark.parametrize(("rule", "cases", "apart"), EDGES)
def test_where_a_rule_begins_and_ends(rule: str, cases: list[Case], *, apart: bool) -> None:
    finds_so_many(rule, cases, apart=apart)


COMMANDS = [
    (
        "reserved_unused",
        allocated,
        {"scheduler": "kubernetes", "allocation_id": "lab/nb-0"},
        "kubectl delete pod -n lab nb-0",
    ),
    (
        "reserved_unused",
        allocated,
        {"scheduler": "kubernetes", "allocation_id": "$(x)/--all"},
        "kubectl delete pod -n '$(x)' -- --all",
    ),
    ("reserved_unused", allocated, {"allocation_id": "1; rm -rf /"}, "scancel '1; rm -rf /'"),
    ("reserved_unused", allocated, {"allocation_id": "-u root"}, "scancel -- '-u root'"),
    # Slurm is asked for what was used on each host; what works a little is part of the work
    ("partial_use", on_two_hosts, {"util": (90, 90, 90, 0)}, "#SBATCH --gpus=3"),
    ("partial_use", on_two_hosts, {"util": (90, 0, 90, 0)}, "#SBATCH --nodes=2 --gres=gpu:1"),
    ("partial_use", on_two_hosts, {"util": (90, 90, 0, 0)}, "#SBATCH --gres=gpu:2"),
    ("partial_use", on_two_hosts, {"util": (90, 2, 0, 0)}, "#SBATCH --gres=gpu:2"),
]


@pytest.mark.parametrize(("rule", "build", "columns", "command"), COMMANDS)
def test_the_next_command_of_a_finding(
    rule: str, build: Callable[..., Fleet], columns: dict[str, Any], command: str
) -> None:
    assert only_of(rule, build(**columns)).next_command == command


# --- never used -------------------------------------------------------------------------------------------------------

EVERY_S = 600


def free(gpu: str, first_s: float = 0, last_s: float = WEEK, **values: object) -> Rows:
    return samples(gpu, first_s, last_s, every_s=EVERY_S, **FREE | values)


def used(gpu: str, at_s: float, last_s: float | None = None, **values: object) -> Rows:
    return samples(gpu, at_s, last_s or at_s + EVERY_S, every_s=EVERY_S, **BUSY | values)


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        pytest.param(free("a", 0, WEEK - EVERY_S), 0, id="less than a week"),
        pytest.param(free("a"), 1, id="a week"),
        pytest.param(free("a", 0, 4 * DAY) + free("a", 6 * DAY, 8 * DAY), 0, id="six days of eight"),
        pytest.param(free("a", 0, 4 * DAY) + free("a", 6 * DAY, 9 * DAY), 1, id="seven days of nine"),
        pytest.param(free("a", 0, 2 * WEEK, gpu_util_pct=None, health="ok"), 0, id="nobody could measure it"),
        pytest.param(free("a", 0, 2 * WEEK, gpu_util_pct=None, health="lost"), 0, id="lost"),
    ],
)
def test_never_used_takes_seven_observed_days(site: Recording, rows: Rows, count: int) -> None:
    assert [each.rule for each in idle_findings(fill(site, rows))] == ["never_used"] * count


def test_what_never_used_says(site: Recording) -> None:
    rows = free("a", power_w=60.0) + free("b", DAY, 8 * DAY, power_w=60.0)
    each = only(fill(site, rows, devices=[device("a"), device("b", model="NVIDIA L40S")]))
    assert (each.gpus, each.host, each.user, each.since_ms) == (("a", "b"), "h1", None, ms(0))
    assert (each.gpu_hours, each.reclaimable, each.simulated) == (336.0, True, False)
    assert each.energy_kwh == pytest.approx(0.06 * 336)
    # nothing was ever used here, so that little more than what is believed beforehand tells
    numbers = dict(each.evidence.numbers)
    week, day = (numbers.pop(f"stays_unused_{name}probability") for name in ("", "1d_"))
    assert 0.75 < week < day < 0.96  # type: ignore[operator]  # they are numbers
    known = {"stays_unused_horizon_h": 168.0, "observed_gpu_hours": 336.0, "reserved_gpu_hours": 0.0}
    known |= {"gpu_util_max_pct": 0.0, "mem_used_max_bytes": None, "sample_count": 2016, "coverage": 1.0}
    assert numbers == known | {"model": "NVIDIA H100 80GB HBM3+NVIDIA L40S"}
    assert each.next_command == "ssh h1 nvidia-smi --query-gpu=uuid,name,utilization.gpu,memory.used --format=csv"


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"gpu_util_pct": 0.0},  # a process that ran no kernel
        {"process_count": 0, "gpu_util_pct": 0.25},  # a kernel of nobody known
        {"process_count": None, "gpu_util_pct": 0.0, "mem_used_bytes": 2 * GB},
    ],
)
def test_one_use_ever_is_a_use_from_then_on(site: Recording, values: dict[str, Any]) -> None:
    fill(site, free("a", 0, 8 * DAY) + used("a", 8 * DAY, **values) + free("a", 8 * DAY + EVERY_S, 3 * WEEK))
    assert only(site, until="2026-11-27").rule == "never_used"
    assert idle_findings(site) == idle_findings(site, since="2026-12-01") == ()


def test_a_card_that_was_used_in_another_host_has_been_used(site: Recording) -> None:
    fill(site, used("a", 0) + used("b", 0), host="old")
    fill(site, free("a", DAY, 9 * DAY) + free("c", DAY, 9 * DAY), host="new")
    assert (only(site).host, only(site).gpus) == ("new", ("c",))


def test_an_allocated_gpu_without_a_process_is_unused_and_says_whose_it_is(site: Recording) -> None:
    each = only(fill(site, free("a"), allocations=[allocation("a", DAY, None)]))
    assert (each.user, each.evidence.numbers["reserved_gpu_hours"]) == ("bob", 144.0)


def test_a_gpu_that_was_lost_or_silent_at_the_end_is_nothing_to_hand_out(site: Recording) -> None:
    lost = samples("a", WEEK, WEEK + DAY, every_s=EVERY_S, gpu_util_pct=None, process_count=None, health="lost")
    fill(site, free("a") + lost + free("c") + used("b", WEEK, WEEK + DAY), processes("b", WEEK))
    assert (only(site).gpus, only(site).reclaimable) == (("a", "c"), False)


def test_only_gpus_seen_in_the_window_are_reported_for_it(site: Recording) -> None:
    assert idle_findings(fill(site, free("a") + used("b", 2 * WEEK, 2 * WEEK + DAY)), since="2026-12-04") == ()


# --- reserved and unused ----------------------------------------------------------------------------------------------


def test_a_job_without_a_process() -> None:
    each = only_of("reserved_unused", allocated(1))
    assert (each.user, each.job, each.subject, each.gpu_hours) == ("bob", "slurm:77", "bob", pytest.approx(48))
    assert (each.reclaimable_gpus, each.next_command) == (("GPU-h1-0", "GPU-h1-1"), "scancel 77")
    assert each.since_ms == T_END - DAY_MS
    numbers = each.evidence.numbers
    assert (numbers["longest_h"], numbers["gpus_reserved_now"], numbers["accounts"]) == (24, 2, "lab")
    shown = [numbers[f"reserved_gpu_hours_in_segments_of_{minutes}_min"] for minutes in (30, 60, 120)]
    assert shown == [pytest.approx(48)] * 3
    assert not [failure for failure in each.confidence.failed if "user" in failure]


def test_a_allocation_that_stands_has_ended_or_is_of_a_past_window_is_not_ended() -> None:
    each = only_of("reserved_unused", allocated(3, scheduler="csv", allocation_id="contract"))
    assert each.next_command.startswith("ssh h1 nvidia-smi --query-gpu")
    assert each.notes == ("release the allocation contract where it was created; fallow does not know the command",)
    each = only_of("reserved_unused", allocated(2), until="2026-11-18")
    assert each.next_command == "squeue --jobs=77 --long"
    each = only_of("reserved_unused", allocated(2, -1))
    assert (each.reclaimable, each.next_command, each.gpu_hours) == (False, "", pytest.approx(48))


def test_work_on_another_gpu_of_the_job_or_of_the_last_day_is_a_doubt() -> None:
    fleet = allocated(2)
    train(fleet, fleet.gpus[0], "bob", fleet.between(-2), job="77")
    each = only_of("reserved_unused", fleet)
    assert (each.gpus, each.reclaimable_gpus, each.next_command) == (("GPU-h1-1",), (), "squeue --jobs=77 --long")
    assert ELSEWHERE in each.confidence.failed
    fleet = allocated(2)
    train(fleet, fleet.gpus, "bob", fleet.between(-2, -0.5), job="77")
    each = only_of("reserved_unused", fleet)
    assert any("in the last 24 h" in failure for failure in each.confidence.failed)
    assert each.next_command == "scancel 77"


def test_unknown_users_are_told_apart_by_their_jobs() -> None:
    fleet = Fleet(3)
    for gpu, job in zip(fleet.host("h1", H100, 2), "12", strict=True):
        fleet.allocation([gpu], None, -1, allocation_id=job)
    there = found("reserved_unused", fleet)
    assert [each.subject for each in there] == ["slurm:1", "slurm:2"]
    assert all("the user is not known" in each.confidence.failed for each in there)


# --- GPUs of a job that never worked ----------------------------------------------------------------------------------

NEXT_TIME = "reclaiming the unused GPUs ends the work on the others: change the next submission instead"


def test_the_unused_gpus_of_a_job_and_what_they_cost() -> None:
    each = only_of("partial_use", one_host(H100, 4, util=(90.0, 80.0, 0.0, 0.0), power_w=100.0, **JOB))
    assert (each.gpus, each.host, each.user, each.job) == (("GPU-h1-2", "GPU-h1-3"), "h1", "ann", "slurm:7")
    # what the counter stood at before its first row of 5 minutes is not known
    assert (each.gpu_hours, each.energy_kwh) == (96.0, pytest.approx(9.6 * 287 / 288))
    assert each.cost is not None
    numbers = each.evidence.numbers
    assert [numbers[f"gpus_{name}"] for name in ("of_the_job", "used", "never_used")] == [4, 2, 2]
    assert (numbers["used_gpu_util_mean_pct"], numbers["unused_gpu_util_mean_pct"]) == (pytest.approx(85.0), 0.0)
    assert (each.next_command, each.reclaimable_gpus) == ("#SBATCH --gres=gpu:2", ())
    assert NEXT_TIME in each.notes


def test_a_pod_is_looked_at_and_a_bare_process_exports_what_it_used() -> None:
    each = only_of("partial_use", pair(pod="a b", namespace="lab"))
    assert shlex.split(each.next_command) == ["kubectl", "get", "pod", "-n", "lab", "a b", "-o", "yaml"]
    assert "resubmit with 1 of nvidia.com/gpu" in each.notes
    bare = only_of("partial_use", pair(one_process=True))
    assert (bare.job, bare.next_command) == (None, "export CUDA_VISIBLE_DEVICES=GPU-h1-0")
    assert not bare.reclaimable


def test_a_child_belongs_to_its_parent_whenever_it_was_started() -> None:
    fleet = Fleet(1)
    first, second = fleet.host("h1", H100, 2)
    fleet.run(first, "ann", util=90.0, pid=600, parent_pid=1)
    fleet.run(second, "ann", fleet.between(0.2), parent_pid=600)
    assert only_of("partial_use", fleet).gpus == ("GPU-h1-1",)


def test_a_gpu_that_worked_before_the_window_was_of_use() -> None:
    early = pair(lambda fleet: fleet.wave(90, period_h=72, on_h=24), days=3)
    assert found("partial_use", early, since="2026-11-19") == []


@pytest.mark.parametrize(("pids", "reclaimable"), [((11, 12), ("GPU-h1-1",)), ((11, 11), ())])
def test_processes_of_their_own_under_one_allocation_are_told_apart(
    pids: tuple[int, int], reclaimable: tuple[str, ...]
) -> None:
    """A group's allocation on two GPUs: idle time on the second is its own, unless one process is on both."""
    fleet = Fleet(1)
    gpus = fleet.host("h1", H100, 2)
    fleet.allocation(gpus, "ann", 0, allocation_id="42", scheduler="csv")
    for gpu, util, pid in zip(gpus, (90.0, 0.0), pids, strict=True):
        fleet.run(gpu, None, util=util, pid=pid, parent_pid=1)
    each = only_of("partial_use", fleet)
    assert (each.job, each.reclaimable_gpus) == ("allocation:42", reclaimable)
    # nobody knows whose the process is, so that it is never ended
    assert each.next_command.startswith("ssh h1 nvidia-smi")


def test_gpus_that_the_allocation_counts_and_the_job_was_never_on() -> None:
    fleet = counted(4)
    each = only_of("partial_use", fleet)
    assert (each.job, each.user, each.reclaimable_gpus) == ("slurm:7", "ann", ())
    assert each.gpus == tuple(gpu.uuid for gpu in fleet.gpus[1:])
    assert each.sentence == "of which 3 were never used while other GPUs of the same job were used"
    assert (each.gpu_hours, each.cost) == (pytest.approx(3 * 48), pytest.approx(3 * 48 * 6.88))
    assert each.energy_kwh is None
    assert [each.evidence.numbers[f"gpus_{name}"] for name in ("allocated", "seen_of_the_allocation")] == [4, 1]
    assert each.evidence.numbers["gpus_never_seen_of_the_allocation"] == 3
    assert each.confidence.failed[-1].startswith("the allocation has a number of GPUs and does not name them")
    assert each.confidence.failed[-1].endswith("3 of these 7 GPUs)")
    assert each.confidence.grade != "high"
    assert (each.next_command, NEXT_TIME in each.notes) == ("#SBATCH --gres=gpu:1", True)


def test_where_as_many_are_left_over_they_are_the_jobs() -> None:
    fleet = counted(4, size=6)
    fleet.run(fleet.gpus[4:], "bob", util=50.0, slurm_job_id="8")
    each = only_of("partial_use", fleet)
    assert (each.gpus, each.gpu_hours) == (tuple(gpu.uuid for gpu in fleet.gpus[1:4]), pytest.approx(144))
    assert each.energy_kwh is not None
    assert each.sentence == "never used while other GPUs of the same job were used"


def test_work_of_no_known_job_may_be_the_allocations() -> None:
    fleet = counted(4)
    fleet.run(fleet.gpus[5], "ann", fleet.between(0, 0.1), util=50.0)
    assert numbers_of("partial_use", fleet)["gpus_never_seen_of_the_allocation"] == 2


# --- left free --------------------------------------------------------------------------------------------------------


def left_by(site: Recording, free_s: float, **values: Any) -> Recording:
    """One GPU that is used for an hour, and free after that for so long."""
    return fill(site, used("a", 0, HOUR) + free("a", HOUR, HOUR + free_s, **values))


TEN_DAYS_OF_BOB = [allocation("a", DAY, 10 * DAY)]


@pytest.mark.parametrize(
    ("build", "count"),
    [
        pytest.param(lambda site: left_by(site, 2 * WEEK), 0, id="two weeks"),
        pytest.param(lambda site: left_by(site, 2 * WEEK + EVERY_S), 1, id="more than two weeks"),
        pytest.param(lambda site: left_by(site, 3 * WEEK, process_count=None), 0, id="unreadable processes"),
        pytest.param(lambda site: left_by(site, 3 * WEEK, health="lost"), 0, id="lost"),
        pytest.param(lambda site: left_by(site, 3 * WEEK, gpu_util_pct=0.25), 0, id="kernels of unknown processes"),
        pytest.param(lambda site: fill(left_by(site, WEEK), free("a", 2 * WEEK, 3 * WEEK - DAY)), 0, id="a gap"),
        pytest.param(
            lambda site: fill(left_by(site, WEEK), free("a", 2 * WEEK, 3 * WEEK + DAY)), 1, id="enough beside"
        ),
        pytest.param(lambda site: fill(left_by(site, 20 * DAY), (), allocations=TEN_DAYS_OF_BOB), 0, id="allocated"),
        pytest.param(
            lambda site: fill(left_by(site, 20 * DAY), used("a", 20 * DAY + HOUR, 21 * DAY), host="h2"), 0, id="moved"
        ),
    ],
)
def test_left_free_takes_more_than_two_observed_weeks_without_anybody(
    site: Recording, build: Callable[[Recording], Recording], count: int
) -> None:
    assert len(found("left_free", build(site))) == count


def test_what_left_free_says(site: Recording) -> None:
    each = only_of("left_free", left_by(site, 20 * DAY), since="2026-12-05")
    assert (each.gpus, each.reclaimable_gpus, each.host, each.user) == (("a",), ("a",), "h1", None)
    assert (each.since_ms, each.evidence.numbers["free_days"]) == (ms(HOUR), 20)
    assert each.gpu_hours == pytest.approx((ms(20 * DAY + HOUR) - each.evidence.since_ms) / HOUR_MS)
    assert each.evidence.numbers["stays_unused_probability"] is not None
    assert found("never_used", site) == []

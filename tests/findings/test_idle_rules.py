"""The rules about GPUs that are kept for nothing: held, never used, allocated, loaded, partly used, faded and left behind."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from analytics.rules import RULES_BY_NAME
from analytics.workloads.commands import quote
from fallow.clock import DAY_MS, HOUR_MS
from tests.findings.conftest import BUSY, DAY, FREE, HELD, HOUR, idle_findings, only
from tests.findings.one_rule import edges, finds_so_many, found, numbers_of, one_host, only_of
from tests.findings.scenarios.builder import H100, T_END, Fleet
from tests.findings.scenarios.situations import train
from tests.ledger.rows import GB, allocation, device, fill, ms, processes, samples

if TYPE_CHECKING:
    from collections.abc import Callable

    from fallow.lake import Lake
    from tests.findings.scenarios.builder import Gpu
    from tests.ledger.recording import Recording

LOOK = "ssh h1 nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv"
ELSEWHERE = "the same processes also have kernels on 1 GPU"
WEEK = 7 * DAY
JOB = {"slurm_job_id": "7"}
Rows = list[dict[str, Any]]

# --- fleets ------------------------------------------------------------------------------------------------------------


def allocated(days: float = 1, last: float | None = None, **allocation: Any) -> Fleet:
    """Two free GPUs, which bob allocations from so many days before the end on."""
    fleet = Fleet(3)
    fleet.allocation(
        fleet.host("h1", H100, 2), "bob", -days, last, **({"allocation_id": "77", "account": "lab"} | allocation)
    )
    return fleet


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


def held_by_bob(util: Any, *, days: float = 19, gpus: int = 2, interval_s: float = 1800, **columns: Any) -> Fleet:
    """GPUs of bob's in one long process each; the level is a function of the fleet."""
    return one_host(H100, gpus, days=days, interval_s=interval_s, user="bob", util=util, mem_gb=60, **columns)


def on_two_hosts(util: tuple[float, ...]) -> Fleet:
    fleet = Fleet(1)
    fleet.run(fleet.host("h1", H100, 2) + fleet.host("h2", H100, 2), "ann", util=util, slurm_job_id="7")
    return fleet


def by_day(until_days: float) -> Callable[[Fleet], Any]:
    """Work of eight hours a day until so many days before the end: gaps of 16 hours."""
    return lambda fleet: np.where(fleet.daily(8, 16) & fleet.between(0, -until_days), 90.0, 0.0)


def until(days: float) -> Callable[[Fleet], Any]:
    return lambda fleet: np.where(fleet.between(-days), 0.0, 90.0)


def faded(**columns: str) -> Fleet:
    return held_by_bob(until(4), **columns)


def faded_to(share: float) -> Fleet:
    """All day long before; for three days then so much of the day."""
    level = lambda fleet: np.where(fleet.between(-3) & ~fleet.every(24, 24 * share), 0.0, 90.0)  # noqa: E731
    return held_by_bob(level, days=20, gpus=1, interval_s=300)


def with_a_new_process(hours: float) -> Fleet:
    fleet = held_by_bob(until(3.5))
    fleet.run(fleet.host("h2", H100, 1), "bob", fleet.between(-hours / 24, -hours / 24 + 0.05), mem_gb=1)
    return fleet


def back_after_weeks() -> Fleet:
    return held_by_bob(lambda fleet: np.where(fleet.between(0, -20) | fleet.between(-2), 90.0, 0.0), days=36)


def given_back() -> Fleet:
    fleet = Fleet(19, interval_s=1800)
    train(fleet, fleet.host("h1", H100, 2), "bob", fleet.between(0, -5))
    return fleet


def lull_of_everybody() -> Fleet:
    fleet = Fleet(19, interval_s=1800)
    for gpu, user in zip(fleet.host("h1", H100, 4), ("ann", "bob", "eve", "joe"), strict=True):
        fleet.run(gpu, user, util=np.where(fleet.between(-4), 0, 90), mem_gb=60)
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


EDGES = [
    *edges(
        "reserved_unused",
        ("a job from the shortest length of held on", {55: 0, 60: 1}, lambda minutes: allocated(minutes / 1440)),
        ("a standing allocation from three days on", {2.95: 0, 3.0: 1},
         lambda days: allocated(days, scheduler="csv", allocation_id="c")),
    ),
    *edges(
        "partial_use",
        ("bare processes belong together by parent and start", {(0, 50): 1, (60, 50): 1, (61, 50): 0, (0, 1): 0},
         started_apart),
        ("a job of an hour may still be loading", {60: 0, 65: 1},
         lambda minutes: pair(when=lambda fleet: fleet.between(-minutes / 1440), **JOB)),
        ("unused is a mean over all of the time", {0.4: 1, 0.6: 0},
         lambda least: pair(lambda fleet: fleet.wave(least * 10, period_h=10 / 6, on_h=1 / 6))),
        ("used is a mean of 5 %", {5.5: 1, 4.5: 0}, lambda most: pair(first=most)),
        ("what was never measured is not unused", 0, never_measured),
        ("an allocation of what was seen leaves nothing", {1: 0, 2: 0}, lambda count: counted(count, used=2)),
        ("GPUs that were not watched are not unused", 0, not_watched),
        ("an allocation of an hour may still be loading", {60: 0, 65: 1},
         lambda minutes: counted(2, first=-minutes / 1440, days=1)),
        ("an allocation of another run is not this one", 0, requeued),
    ),
    *edges(
        "ending",
        ("a gap of two days", 0, lambda: held_by_bob(by_day(2))),
        ("who is back after weeks", 0, back_after_weeks),
        ("a fall to more than a fifth", 0, lambda: faded_to(0.21)),
        ("a new process is no end", {47: 0, 49: 1}, with_a_new_process),
        ("what is not held any more is nobody's", 0, given_back),
        ("a lull of everybody is no end", 0, lull_of_everybody),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "build", "count"), EDGES)
def test_where_a_rule_begins_and_ends(rule: str, build: Callable[[], Fleet], count: int) -> None:
    finds_so_many(rule, build, count)


COMMANDS = [
    ("reserved_unused", allocated, {"scheduler": "kubernetes", "allocation_id": "lab/nb-0"}, "kubectl delete pod -n lab nb-0"),
    ("reserved_unused", allocated, {"scheduler": "kubernetes", "allocation_id": "$(x)/--all"}, "kubectl delete pod -n '$(x)' -- --all"),
    ("reserved_unused", allocated, {"allocation_id": "1; rm -rf /"}, "scancel '1; rm -rf /'"),
    ("reserved_unused", allocated, {"allocation_id": "-u root"}, "scancel -- '-u root'"),
    # Slurm is asked for what was used on each host; what works a little is part of the work
    ("partial_use", on_two_hosts, {"util": (90, 90, 90, 0)}, "#SBATCH --gpus=3"),
    ("partial_use", on_two_hosts, {"util": (90, 0, 90, 0)}, "#SBATCH --nodes=2 --gres=gpu:1"),
    ("partial_use", on_two_hosts, {"util": (90, 90, 0, 0)}, "#SBATCH --gres=gpu:2"),
    ("partial_use", on_two_hosts, {"util": (90, 2, 0, 0)}, "#SBATCH --gres=gpu:2"),
    # for work that has faded it only looks
    ("ending", faded, {"slurm_job_id": "7"}, "squeue --user=bob"),
    ("ending", faded, {"pod": "p", "namespace": "lab"}, "kubectl get pods -n lab"),
    ("ending", faded, {}, LOOK),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "build", "columns", "command"), COMMANDS)
def test_the_next_command_of_a_finding(
    rule: str, build: Callable[..., Fleet], columns: dict[str, Any], command: str
) -> None:
    assert only_of(rule, build(**columns)).next_command == command


# --- held --------------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("host", "owner", "command"),
    [
        ("h1", {"slurm_job_id": "123", "pod": "p"}, "scancel 123"),
        ("h1", {"slurm_job_id": "1; rm -rf /"}, "scancel '1; rm -rf /'"),
        ("h1", {"slurm_job_id": "-f"}, "scancel -- -f"),
        ("h1", {"pod": "nb-0", "namespace": "lab"}, "kubectl delete pod -n lab nb-0"),
        ("h1", {"pod": "nb-0"}, "kubectl delete pod -n default nb-0"),
        ("h1", {"pod": "--all", "namespace": "$(x)"}, "kubectl delete pod -n '$(x)' -- --all"),
        ("gpu 1", {}, "ssh 'gpu 1' kill 4711"),
        ("-oProxyCommand=x", {}, "ssh -- -oProxyCommand=x kill 4711"),
        ("ü", {}, "ssh 'ü' kill 4711"),
        ("a'b", {}, """ssh 'a'"'"'b' kill 4711"""),
    ],
)
def test_the_next_command_is_that_of_what_runs_the_work_and_odd_names_are_one_harmless_word(
    site: Recording, host: str, owner: dict[str, str], command: str
) -> None:
    fill(site, held("a", 0, 2 * HOUR), lists("a", 0, 2 * HOUR, **owner), host=host)
    assert only(site).next_command == command


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


# --- never used --------------------------------------------------------------------------------------------------------

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


# --- reserved and unused -----------------------------------------------------------------------------------------------


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


# --- GPUs of a job that never worked -----------------------------------------------------------------------------------

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
    """A group's allocation on two GPUs: what idles on the second has nothing to do with the first, unless it is the same process."""
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


# --- work that fades ---------------------------------------------------------------------------------------------------


def test_a_gap_longer_than_a_weekend() -> None:
    each = only_of("ending", held_by_bob(by_day(4)))
    numbers = each.evidence.numbers
    assert (each.subject, each.user, each.host) == ("bob", "bob", "h1")
    assert numbers["days_without_activity"] == pytest.approx(4 + 8 / 24)
    assert (numbers["past_gaps_p95_days"], numbers["past_gap_count"]) == (pytest.approx(16 / 24), 14)
    assert each.gpu_hours == pytest.approx(2 * (4 * 24 + 8))
    assert (each.reclaimable_gpus, each.notes) == (("GPU-h1-0", "GPU-h1-1"), ())


def test_a_fall_to_a_fifth() -> None:
    numbers = numbers_of("ending", faded_to(0.19))
    assert numbers["active_gpu_hours_a_day_lately"] == pytest.approx(24 * 0.19, rel=0.02)
    assert numbers["active_gpu_hours_a_day_before"] == pytest.approx(24)


@pytest.mark.parametrize("at_weekends", [True, False])
def test_it_stays_while_the_gpus_stay_idle(*, at_weekends: bool) -> None:
    """Bob trained day and night, without a pause to compare with, and has not come back for four days."""
    fleet = held_by_bob(0.0, days=36)
    grid = fleet.between(0, -4) & (fleet.weekdays | at_weekends)
    fleet.run(fleet.gpus, "bob", util=np.where(grid, 90.0, 0.0), mem_gb=1)
    train(fleet, fleet.host("h2", H100, 1), "ann", job="9")
    each = only_of("ending", fleet, since="2026-11-13")
    assert (each.subject, each.reclaimable_gpus) == ("bob", ("GPU-h1-0", "GPU-h1-1"))
    idle = each.evidence.numbers["days_without_activity"]
    assert idle == (4 if at_weekends else pytest.approx(4, abs=2))
    # all of the fall counts that lies in the window
    assert each.gpu_hours == pytest.approx(2 * 24 * min(float(idle), 7))  # type: ignore[arg-type]  # a number


def test_of_who_shares_a_gpu_it_names_no_work_of_the_other() -> None:
    """Bob's work has faded, in the same pod list as Ann's, whose namespace comes first."""
    fleet = held_by_bob(by_day(4), pod="bobs", namespace="speech")
    fleet.run(fleet.gpus, "ann", fleet.between(-5), mem_gb=5, pod="anns", namespace="robotics")
    theirs = [each for each in found("ending", fleet) if each.user == "bob"]
    assert theirs
    for each in theirs:
        assert "robotics" not in f"{each.job} {each.next_command} {each.evidence.numbers}"
        assert "ann" not in f"{each.job} {each.next_command} {each.notes}"


@pytest.mark.parametrize(
    ("end", "days"), [("2026-11-09", -10), ("2026-11-19", 0), ("2026-12-04", 15), ("2026-12-05", None)]
)
def test_a_project_end_on_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, days: float | None) -> None:
    file = tmp_path / "owners.csv"
    file.write_text(f"kind,name,team,project_end\naccount,lab,physics,{end}\n", encoding="utf-8")
    monkeypatch.setenv("FALLOW_MONEY_OWNERS", str(file))
    there = found("ending", held_by_bob(90.0, days=14, slurm_account="lab", slurm_job_id="7"))
    assert [each.evidence.numbers["days_until_project_end"] for each in there] == [days] * (days is not None)
    for each in there:
        assert (each.subject, each.team, each.user) == ("project end: account lab", "physics", "bob")
        assert each.reclaimable_gpus == ()  # kernels run on them
        assert (each.gpu_hours, len(each.gpus)) == (pytest.approx(2 * 24 * (10 if days == -10 else 14)), 2)


# --- processes on held GPUs, in the evidence of `held` ------------------------------------------------------------------


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


# --- left free ---------------------------------------------------------------------------------------------------------


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

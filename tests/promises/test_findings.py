"""What fallow promises of findings: whose GPUs they name, from when on, how sure, and what it offers to type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from analytics.rules import rules_of_kind
from analytics.workloads.confidence import grade
from analytics.workloads.model import Outlook
from analytics.workloads.waste import ALLOCATED_IDLE, HELD_IDLE
from fallow.clock import DAY_MS, HOUR_MS
from tests.findings.conftest import BUSY, DAY, FREE, HELD, HOUR, idle_findings, only, reviewed
from tests.ledger.rows import fill, ms, processes, samples

if TYPE_CHECKING:
    from fallow.lake import Lake
    from tests.promises.site import Site

LOOK = "ssh h1 nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv"
OF_USERS = {rule.name for kind in (ALLOCATED_IDLE, HELD_IDLE) for rule in rules_of_kind(kind)}


def minutes(gpu: str, first_s: float, last_s: float, **values: Any) -> list[dict[str, Any]]:
    return samples(gpu, first_s, last_s, every_s=60, **values)


def lists(gpu: str, first_s: int, last_s: int, **values: Any) -> list[dict[str, Any]]:
    return processes(gpu, *range(first_s, last_s, 60), every_s=60, **values)


def test_no_user_is_asked_to_release_a_gpu_that_another_user_holds(handed_on: Site) -> None:
    """docs/recommendations.md: "which of the GPUs can be given to another user now", and their user."""
    findings = [each for each in handed_on.whole.review.findings if each.rule in OF_USERS]
    assert {each.rule for each in findings} >= {"held", "reserved_unused", "partial_use"}
    assert {each.user for each in findings} >= {"ann", "bob", "cy", "dan", "eve", "ann+bob", None}
    users = handed_on.users_now
    asked = [
        *((each.user, each.reclaimable_gpus) for each in findings),
        *((each.user, each.gpus_now) for each in handed_on.recommendations().listed if each.user is not None),
        *((each.user, each.gpus) for each in handed_on.nudge_items.items if not each.to_operators),
    ]
    assert [(user, gpu, users[gpu]) for user, gpus in asked for gpu in gpus if user != users[gpu]] == []
    held = [each for each in findings if each.rule == "held" and each.reclaimable]
    said = {f"{each.user} {' '.join(each.reclaimable_gpus)}".replace("GPU-", "") for each in held}
    assert said == {"ann h1-2 h1-6", "bob h1-0", "bob h2-7", "None h2-6", "ann+bob h1-3", "dan h2-0 h2-2 h2-3"}


def test_no_command_ends_a_process_of_another_user(lake: Lake) -> None:
    """docs/recommendations.md, Commands: no command "if more than the finding could end".

    Each user's command names their own processes.
    """
    rows = minutes("a", 0, 4 * HOUR, **HELD) + minutes("b", 0, 4 * HOUR, **HELD)
    users = lists("a", 0, 2 * HOUR, pid=1) + lists("a", 2 * HOUR, 4 * HOUR, pid=2, user="bob")
    users += lists("b", 0, 4 * HOUR, pid=3) + lists("b", 3 * HOUR, 4 * HOUR, pid=4, user="bob")
    commands = {each.user: each.next_command for each in idle_findings(fill(lake, rows, users))}
    assert commands == {"ann": "", "bob": "ssh h1 kill 2", "ann+bob": "ssh h1 kill 3 4"}


@pytest.mark.parametrize(("length_min", "count"), [(59, 0), (60, 1), (61, 1)])
def test_a_gpu_is_found_held_from_exactly_held_min_on(lake: Lake, length_min: int, count: int) -> None:
    """docs/rules.md: "held idle, without a running kernel" for `findings.held_min`, 60 min."""
    rows = minutes("a", 0, length_min * 60, **HELD) + minutes("a", length_min * 60, 2 * HOUR, **BUSY)
    assert len(idle_findings(fill(lake, rows, lists("a", 0, 2 * HOUR)))) == count


@pytest.mark.parametrize(("silent_s", "is_reclaimable"), [(HOUR - 60, True), (HOUR, False), (HOUR + 60, False)])
def test_nothing_of_a_gpu_that_was_silent_for_the_last_hour_can_be_taken_back(
    lake: Lake, silent_s: int, *, is_reclaimable: bool
) -> None:
    """docs/recommendations.md, Reclaimable: "whether any of its GPUs can be reclaimed at the end of the window"."""
    rows = minutes("a", 0, 2 * HOUR, **HELD) + minutes("b", 0, 2 * HOUR + silent_s, **BUSY)
    found = only(fill(lake, rows, lists("a", 0, 2 * HOUR)))
    assert (found.reclaimable, found.reclaimable_gpus) == (is_reclaimable, ("a",) * is_reclaimable)


@pytest.mark.parametrize("later", [FREE, BUSY])
def test_who_has_left_or_works_again_has_nothing_to_release_and_nothing_to_type(
    lake: Lake, later: dict[str, Any]
) -> None:
    """docs/recommendations.md: reclaimable is what can be taken back now; low efficiency never is."""
    rows = minutes("a", 0, 2 * HOUR, **HELD) + minutes("a", 2 * HOUR, 3 * HOUR, **later)
    found = only(fill(lake, rows, lists("a", 0, 3 * HOUR if later is BUSY else 2 * HOUR)))
    assert (found.user, found.reclaimable_gpus, found.next_command) == ("ann", (), "")


@pytest.mark.parametrize("owner", [{"slurm_job_id": "5"}, {"pod": "p"}, {}])
def test_work_that_also_runs_on_other_gpus_is_not_ended(lake: Lake, owner: dict[str, str]) -> None:
    """docs/recommendations.md, `alone`, Commands: it only looks "if more than the finding could end"."""
    rows = minutes("a", 0, 2 * HOUR, **HELD) + minutes("b", 0, 2 * HOUR, **BUSY)
    users = lists("a", 0, 2 * HOUR, pid=1, **owner) + lists("b", 0, 2 * HOUR, pid=2 if owner else 1, **owner)
    found = only(fill(lake, rows, users))
    assert (found.gpus, found.reclaimable, found.next_command) == (("a",), False, LOOK)
    assert "the same processes also have kernels on 1 GPU" in found.confidence.failed


def test_a_command_that_ends_something_is_offered_only_where_the_window_has_no_end_in_the_past(lake: Lake) -> None:
    """docs/recommendations.md, Commands: "Later, the processes may be gone and their PIDs reused"."""
    rows = minutes("a", 0, 3 * HOUR, **HELD) + minutes("a", DAY, DAY + 3 * HOUR, **HELD)
    users = lists("a", 0, 3 * HOUR, pid=1) + lists("a", DAY, DAY + 3 * HOUR, pid=2, user="bob", command="vllm")
    fill(lake, rows, users)
    past = only(lake, until="2026-11-20T03:00Z")
    assert (past.user, past.next_command, past.evidence.numbers["commands"]) == ("ann", LOOK, "python3")
    assert only(lake, since="2026-11-21").next_command == "ssh h1 kill 2"


@pytest.mark.parametrize(("later_ms", "command"), [(0, "kill 4711"), (HOUR_MS - 1, "kill 4711"), (HOUR_MS, LOOK)])
def test_a_command_that_ends_something_is_offered_only_where_the_newest_row_is_less_than_an_hour_old(
    lake: Lake, later_ms: int, command: str
) -> None:
    """docs/recommendations.md, Commands: "a newest row of the lake that is less than an hour old"."""
    fill(lake, minutes("a", 0, 2 * HOUR, **HELD), lists("a", 0, 2 * HOUR))
    (found,) = [each for each in reviewed(lake, later_ms=later_ms).findings if each.rule == "held"]
    assert found.next_command.removeprefix("ssh h1 ") == command.removeprefix("ssh h1 ")


def test_a_finding_keeps_its_id_from_week_to_week(lake: Lake) -> None:
    """docs/recommendations.md, Id: "depends on the rule, the subject", "for rules that look at each host, the host"."""
    rows = minutes("a", 0, 2 * HOUR, **HELD) + minutes("b", 8 * DAY, 8 * DAY + 3 * HOUR, **HELD)
    fill(lake, rows, lists("a", 0, 2 * HOUR) + lists("b", 8 * DAY, 8 * DAY + 3 * HOUR, pid=2))
    fill(lake, minutes("c", 0, 2 * HOUR, **HELD), lists("c", 0, 2 * HOUR, user="bob"), host="h2")
    fill(lake, minutes("d", 0, 2 * HOUR, **HELD), lists("d", 0, 2 * HOUR), host="h3")
    first, later = idle_findings(lake, until="2026-11-22"), only(lake, since="2026-11-27")
    ids = {(each.host, each.user): each.finding_id for each in first}
    assert (later.gpus, later.finding_id) == (("b",), ids["h1", "ann"])
    assert len({*ids.values()}) == len(ids) == 3


@pytest.mark.parametrize(
    ("failures", "probability", "expected"),
    [
        *((0, None, "high"), (1, None, "medium"), (2, None, "low"), (3, None, "low")),
        *((0, 0.95, "high"), (0, 0.9499, "medium"), (0, 0.80, "medium"), (0, 0.7999, "low")),
        *((1, 0.95, "medium"), (1, 0.80, "low")),
    ],
)
def test_high_means_that_no_condition_failed_medium_that_one_did_and_low_two_or_a_probability_below_80_percent(
    failures: int, probability: float | None, expected: str
) -> None:
    """docs/recommendations.md, Confidence; docs/glossary.md."""
    outlook = None if probability is None else Outlook(probability, DAY_MS, 7 * DAY_MS)
    confidence = grade(["x"] * failures, outlook=outlook)
    assert confidence.grade == expected
    assert len(confidence.failed) == failures + (probability is not None and probability < 0.95)
    if probability is not None:
        likely = grade(["x"] * failures, outlook=Outlook(probability, DAY_MS, 7 * DAY_MS, 0.96))
        assert (likely.grade, likely.day_grade) == (expected, ("high", "medium")[failures])
    unknown = grade(outlook=Outlook(None, None, 7 * DAY_MS))
    assert (unknown.grade, len(unknown.failed)) == ("low", 1)


def test_the_same_window_of_the_same_lake_gives_the_same_findings_whatever_came_after(lake: Lake) -> None:
    """docs/recommendations.md, Repeatable: "A segment is only as long as it was at the end of the window"."""
    fill(lake, minutes("a", 0, 3 * HOUR, **HELD), lists("a", 0, 3 * HOUR))
    alone = only(lake, until="2026-11-20T03:00Z")
    rows = minutes("a", 3 * HOUR, 6 * HOUR, **HELD) + samples("a", 6 * HOUR, 20 * DAY, every_s=300, **BUSY)
    fill(lake, rows, lists("a", 3 * HOUR, 6 * HOUR, user="bob", pid=8))
    later = only(lake, until="2026-11-20T03:00Z")
    assert (later.confidence, later.evidence, later.gpu_ms) == (alone.confidence, alone.evidence, alone.gpu_ms)
    assert later.evidence.until_ms == ms(3 * HOUR)


def test_a_user_that_nobody_can_name_is_not_one_person(lake: Lake) -> None:
    """docs/recommendations.md, condition `attribution`: GPUs of unknown users are one finding each, and less sure."""
    found = idle_findings(fill(lake, [row for gpu in "ab" for row in minutes(gpu, 0, 2 * HOUR, **HELD)]))
    assert {(each.user, each.gpus) for each in found} == {(None, ("a",)), (None, ("b",))}
    assert all("the user is not known" in each.confidence.failed for each in found)

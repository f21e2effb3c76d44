"""What a recommendation asks of whom: everybody is asked what they can do something about, and each GPU once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from analytics.decide.actions import Action
from analytics.decide.deadlines import Deadlines
from analytics.decide.recommendations import Recommendations, Waste
from analytics.decide.right_sizing import RightSizing
from analytics.language.languages import language
from analytics.language.sentences import tr
from analytics.proportions import Estimate
from analytics.tables.recommendations import DECISION_COLUMNS
from analytics.tables.recommendations import recommendations as section
from analytics.tables.table import record
from analytics.workloads.commands import acts as changes_something
from analytics.workloads.model import Confidence
from analytics.workloads.waste import FAULTY, RELEASE, REPAIR, RETURN, RIGHT_SIZE, TUNE
from fallow import config
from fallow.clock import DAY_MS, HOUR_MS, WEEK_MS
from fallow.errors import ConfigError
from tests.delivery.made_items import DEADLINES, asked, found, left_behind, recommendation, worth
from tests.ledger.rows import T0

if TYPE_CHECKING:
    from analytics.workloads.model import Finding


@pytest.mark.parametrize(
    ("rule", "action", "to_operators", "due"),
    [
        ("held", RELEASE, False, "2026-11-23"),
        ("reserved_unused", RELEASE, False, "2026-11-23"),
        ("memory_oversized", RIGHT_SIZE, False, "2026-11-27"),
        ("inefficient", TUNE, False, "2026-11-27"),
        ("never_used", RETURN, True, "2026-12-04"),
        ("throttled", REPAIR, True, "2026-11-23"),
        ("blind_spot", REPAIR, True, "2026-11-23"),
    ],
)
def test_what_is_asked_of_whom_and_until_when(rule: str, action: str, due: str, *, to_operators: bool) -> None:
    [item] = asked(recommendation(found(rule, next_command="#SBATCH --gres=gpu:l40s:1"))).items
    assert (item.action, item.to_operators, str(item.about.deadline)) == (action, to_operators, due)
    assert item.request.startswith(("Release it", "Return it")) is (action in (RELEASE, RETURN))


def test_what_a_job_left_behind_is_for_operators() -> None:
    [item] = asked(recommendation(left_behind())).items
    assert (item.action, item.to_operators, item.request.startswith("Release it")) == (RELEASE, True, False)


def test_only_what_can_be_acted_on_now_is_asked_for() -> None:
    held = found("held", "abc")
    [item] = asked(recommendation(held, gpus_now=("b",), cents=300, value=worth(1, 2, 3))).items
    assert (item.gpus, item.about.host) == (("b",), "h-b")
    # the waste is that of three GPUs, the saving that of the one
    assert (item.is_whole, item.about.value) == (False, worth(1, 2, 3))
    [whole] = asked(recommendation(held, cents=300)).items
    assert (whole.is_whole, whole.about.cents, whole.about.gpu_ms) == (True, 300, 3.6e6)


@pytest.mark.parametrize(
    ("finding", "changes", "why"),
    [
        (found("held"), {"status": "acknowledged"}, "acknowledged"),
        (found("held"), {"status": "snoozed", "gpus_now": ()}, "snoozed"),
        (
            found("held"),
            {"gpus_now": ()},
            "no action now: the waste has ended, or its GPUs are in another recommendation",
        ),
        (found("never_used"), {"gpus_now": ()}, "kept: the pool may need it"),
        (found("inefficient", user=None), {}, "no user"),
        (found("preallocated"), {}, "for planning: the user of the GPUs cannot act on it"),
        (found("low_efficiency"), {"gpu_ms": HOUR_MS - 1.0}, "the waste is less than a GPU-hour"),
        (
            found("mig_fit", next_command="ssh h1 nvidia-smi mig -i a -lgip"),
            {},
            "only with other workloads on the card: operators get a nudge where packing saves money",
        ),
    ],
)
def test_what_nobody_can_do_anything_about_is_left_out_with_the_reason(
    finding: Finding, changes: dict[str, object], why: str
) -> None:
    done = asked(recommendation(finding, **changes))
    assert (done.items, [said for _, said in done.left_out]) == ((), [why])


@pytest.mark.parametrize(
    ("rule", "said"), [("low_efficiency", "Put more work on each GPU"), ("inefficient", "larger batches or lower")]
)
def test_work_that_runs_is_asked_about_with_what_to_do(rule: str, said: str) -> None:
    [item] = asked(recommendation(found(rule))).items
    assert said in item.request


def test_an_answer_settles_no_finding_that_is_about_other_gpus_too() -> None:
    held, faded, wide = found("held", "ab"), found("ending", "b"), found("inefficient", "abc")
    [item] = asked(recommendation(held, faded, wide)).items
    assert item.finding_ids == (held.finding_id, faded.finding_id)
    assert item.about.evidence == (held, faded, wide)


def test_nobody_reads_what_others_did_with_their_gpu_nor_of_faults() -> None:
    own = found("held", "ab")
    others = (found("inefficient", user="bob"), found("throttled"), found("inefficient", "b", status="acknowledged"))
    [item] = asked(recommendation(own, *others)).items
    assert item.about.evidence == (own,)
    [theirs] = asked(recommendation(left_behind(), *others)).items
    assert len(theirs.about.evidence) == 4


def test_each_of_several_users_is_asked_about_their_own_and_nothing_is_settled_for_the_others() -> None:
    one = recommendation(found("held", "abc", user="ann+bob"), cents=300, value=worth(1, 2, 3))
    items = asked(one, users={"a": "ann", "b": "bob", "c": "bob"}).items
    assert [(each.user, each.gpus) for each in items] == [("ann", ("a",)), ("bob", ("b", "c"))]
    assert {(each.is_whole, each.about.value, each.finding_ids) for each in items} == {(False, None, ())}
    assert len({each.key for each in items}) == 2
    [together] = asked(one, users=dict.fromkeys("abc", "ann+bob")).items
    assert (together.user, together.is_whole, together.about.cents) == ("ann+bob", True, 300)


def test_what_no_finding_leads_is_said_in_words_and_settles_nothing() -> None:
    one = recommendation(
        found("held"), recommendation_id="R-1", kind=FAULTY, finding=None, action="repair", evidence=()
    )
    [item] = asked(one).items
    assert (item.key, item.finding_ids, item.action) == ("R-1", (), REPAIR)
    assert str(item.sentence) == "1 GPU on h-a down at the end of the window"


@pytest.mark.parametrize("about", [found("held"), left_behind(), found("inefficient")])
def test_nobody_is_asked_about_what_is_of_low_confidence(about: Finding) -> None:
    medium, low = (recommendation(replace(about, confidence=Confidence(failed))) for failed in (("x",), ("x", "y")))
    assert (len(asked(medium).items), asked(low).items) == (1, ())
    assert [why for _, why in asked(low).left_out] == ["of low confidence"]


@pytest.mark.parametrize(
    ("commands", "command", "acts"),
    [
        (("scancel 7", ""), "scancel 7", True),
        (("ssh h1 nvidia-smi", "ssh h1 kill 4"), "ssh h1 kill 4", True),
        (("ssh h1 nvidia-smi", "kubectl delete pod -n n p"), "kubectl delete pod -n n p", True),
        (("ssh h1 nvidia-smi", "squeue --jobs=7"), "ssh h1 nvidia-smi", False),
        (("squeue --jobs=7 --array", "ssh scancel nvidia-smi"), "squeue --jobs=7 --array", False),
    ],
)
def test_the_command_is_one_that_does_something_where_there_is_one(
    commands: tuple[str, str], command: str, *, acts: bool
) -> None:
    lead, other = found("reserved_unused", next_command=commands[0]), found("held", next_command=commands[1])
    [item] = asked(recommendation(lead, other)).items
    assert (item.about.next_command, changes_something(item.about.next_command)) == (command, acts)


LOOK_AT_B = "ssh h-b nvidia-smi dmon -i b -s puc -c 30"


@pytest.mark.parametrize("command", ["scancel 7", "ssh h1 nvidia-smi dmon -i a", "#SBATCH --gres=gpu:l40s:2"])
def test_of_a_part_the_command_is_about_that_part(command: str) -> None:
    [item] = asked(recommendation(found("held", "ab", next_command=command), gpus_now=("b",))).items
    assert (item.gpus, item.about.next_command) == (("b",), LOOK_AT_B)
    assert not changes_something(LOOK_AT_B)


@pytest.mark.parametrize(
    ("said_ms", "broken"), [(T0 - DAY_MS, T0 - DAY_MS), (T0 - HOUR_MS, T0 - HOUR_MS), (T0 - HOUR_MS + 1, None)]
)
def test_who_said_released_and_did_not_is_reminded_of_it(said_ms: int, broken: int | None) -> None:
    finding = found("held", "ab", reclaimable_gpus=("a",))
    actions = {finding.finding_id: (Action(said_ms, "A-1", finding.finding_id, "ack", "ann", reason="released"),)}
    [item] = asked(recommendation(finding, gpus_now=("a",)), actions=actions).items
    assert item.broken_release_ms == broken


def test_a_recommendation_is_about_every_gpu_that_it_acts_on() -> None:
    """Also one without wasted time in the window: another recommendation may have that."""
    one = recommendation(found("held", "ab"), gpus=("a",), gpus_now=("b", "c"))
    assert (one.gpus, one.gpus_now) == (("a", "b", "c"), ("b", "c"))


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=4), st.integers(1, 32))
@example([0.1, 0.1, 0.1], 11)
def test_an_estimate_lies_between_its_bounds(weeks: list[float], gpus: int) -> None:
    """The mean of equal weeks, or what all of some GPUs cost, may be off by a digit that only floats have."""
    paid = weeks[0] / 7
    for low, point in ((min(weeks), sum(weeks) / len(weeks)), (paid * gpus / gpus, paid)):
        saving = Estimate(low, point, max(*weeks, point))
        assert saving.low <= saving.point <= saving.high
    for wrong in ((2.0, 1.0, 3.0), (1.0, 4.0, 3.0)):
        with pytest.raises(ValueError, match="does not lie between"):
            Estimate(*wrong)


@pytest.mark.parametrize(
    ("deadlines", "due"),
    [
        (replace(DEADLINES, days_off=set(range(7))), "2026-11-21"),
        (replace(DEADLINES, days_off=(), zone=ZoneInfo("Asia/Tokyo")), "2026-11-21"),
        (Deadlines(2, 5, 10, {5, 6}, ZoneInfo("America/New_York")), "2026-11-23"),
    ],
)
def test_a_deadline_is_the_end_of_a_working_day_of_the_site(deadlines: Deadlines, due: str) -> None:
    assert str(deadlines.last_day(T0, deadlines.release_days)) == due


def test_the_settings_of_nudges_are_those_of_every_deadline() -> None:
    settings = {"report.nudge_deadline": "3", "report.nudge_deadline_return": "20", "report.quiet_days": "fri"}
    assert Deadlines.of(config.load(settings, None, {}), UTC) == Deadlines(3, 5, 20, frozenset({4}), UTC)
    with pytest.raises(ConfigError, match="'someday' is not a weekday"):
        Deadlines.of(config.load({"report.quiet_days": "someday"}, None, {}), UTC)


@pytest.mark.parametrize(
    ("command", "said", "acts"),
    [("scancel 7", "scancel 7", True), ("squeue --jobs=7", "to check first: squeue --jobs=7", False), ("", "", False)],
)
def test_a_next_command_that_only_looks_is_called_so(command: str, said: str, *, acts: bool) -> None:
    one = recommendation(found("held", next_command=command), value=worth(1, 2, 3))
    spent = Waste({"low": 0.0}, None, {}, None, 0.0, None, 0.0, "USD")
    [row] = section(Recommendations((one,), spent, None, RightSizing((), (), {}), ((0, WEEK_MS),))).cells
    assert ([str(cell) for cell in row][-1], record(DECISION_COLUMNS, one)["next_acts"]) == (said, acts)
    # the day that the letter names: the last one on which there is time
    assert language("en", "UTC").translate(tr("{day}", day=row[-2])) == "23 Nov 2026"

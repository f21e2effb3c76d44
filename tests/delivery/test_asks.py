"""What a recommendation asks of whom: everybody is asked what they can do something about, and each GPU once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from analytics.decide.actions import Action
from analytics.decide.deadlines import Deadlines
from analytics.decide.recommendations import Recommendations, Saving, Waste
from analytics.decide.right_sizing import RightSizing
from analytics.language.languages import language
from analytics.language.sentences import tr
from analytics.tables.recommendations import DECISION_COLUMNS
from analytics.tables.recommendations import recommendations as section
from analytics.tables.table import record
from analytics.workloads.commands import acts as changes_something
from analytics.workloads.model import Confidence
from analytics.workloads.waste import FAULTY, RELEASE, REPAIR, RETURN, RIGHT_SIZE, TUNE
from fallow import config
from fallow.clock import DAY_MS, HOUR_MS, format_ms
from fallow.errors import ConfigError
from tests.delivery.asking import DEADLINES, asked, found, recommendation
from tests.ledger.rows import T0

if TYPE_CHECKING:
    from analytics.workloads.model import Finding


@pytest.mark.parametrize(
    ("rule", "action", "to_operators", "due"),
    [
        ("held", RELEASE, False, "2026-11-24T00:00:00Z"),
        ("reserved_unused", RELEASE, False, "2026-11-24T00:00:00Z"),
        ("memory_oversized", RIGHT_SIZE, False, "2026-11-28T00:00:00Z"),
        ("inefficient", TUNE, False, "2026-11-28T00:00:00Z"),
        ("zombie_holder", RELEASE, True, "2026-11-24T00:00:00Z"),
        ("never_used", RETURN, True, "2026-12-05T00:00:00Z"),
        ("throttled", REPAIR, True, "2026-11-24T00:00:00Z"),
        ("blind_spot", REPAIR, True, "2026-11-24T00:00:00Z"),
    ],
)
def test_what_is_asked_of_whom_and_until_when(rule: str, action: str, due: str, *, to_operators: bool) -> None:
    [ask] = asked(recommendation(found(rule, next_command="#SBATCH --gres=gpu:l40s:1"))).asks
    assert (ask.action, ask.to_operators, format_ms(ask.about.deadline_ms)) == (action, to_operators, due)
    assert ("give it back" in ask.asked.lower()) is (action in (RELEASE, RETURN) and rule != "zombie_holder")


def test_only_what_can_be_acted_on_now_is_asked_for() -> None:
    held = found("held", "abc")
    [ask] = asked(recommendation(held, gpus_now=("b",), cents=300, saving=Saving(1, 2, 3))).asks
    assert (ask.gpus, ask.about.host) == (("b",), "h-b")
    # the waste is that of three GPUs, the saving that of the one
    assert (ask.is_whole, ask.about.saving) == (False, Saving(1, 2, 3))
    [whole] = asked(recommendation(held, cents=300)).asks
    assert (whole.is_whole, whole.about.cents, whole.about.gpu_ms) == (True, 300, 3.6e6)


@pytest.mark.parametrize(
    ("finding", "changes", "why"),
    [
        (found("held"), {"status": "acknowledged"}, "acknowledged"),
        (found("held"), {"status": "suppressed", "gpus_now": ()}, "suppressed"),
        (found("held"), {"gpus_now": ()}, "nothing to do now: it is over, or its GPUs are in another decision"),
        (found("never_used"), {"gpus_now": ()}, "kept: the pool may need it"),
        (found("inefficient", holder=None), {}, "no user"),
        (found("preallocated"), {}, "for planning: whoever holds the GPUs cannot do anything about it"),
        (found("low_efficiency"), {"gpu_ms": HOUR_MS - 1.0}, "less than a GPU-hour of it was wasted"),
        (
            found("mig_fit", next_command="ssh h1 nvidia-smi mig -i a -lgip"),
            {},
            "only together with the work of others: operators are told where that saves something",
        ),
    ],
)
def test_what_nobody_can_do_anything_about_is_left_out_with_the_reason(
    finding: Finding, changes: dict[str, object], why: str
) -> None:
    done = asked(recommendation(finding, **changes))
    assert (done.asks, [said for _, said in done.left_out]) == ((), [why])


@pytest.mark.parametrize(
    ("rule", "said"), [("low_efficiency", "Put more work on each GPU"), ("inefficient", "larger batches or lower")]
)
def test_work_that_runs_is_asked_about_with_what_to_do(rule: str, said: str) -> None:
    [ask] = asked(recommendation(found(rule))).asks
    assert said in ask.asked


def test_an_answer_settles_no_finding_that_is_about_other_gpus_too() -> None:
    held, zombie, wide = found("held", "ab"), found("wind_down", "b"), found("inefficient", "abc")
    [ask] = asked(recommendation(held, zombie, wide)).asks
    assert ask.finding_ids == (held.finding_id, zombie.finding_id)
    assert ask.about.evidence == (held, zombie, wide)


def test_nobody_reads_what_others_did_with_their_gpu_nor_of_faults() -> None:
    own = found("held", "ab")
    others = (found("inefficient", holder="bob"), found("throttled"), found("inefficient", "b", status="acknowledged"))
    [ask] = asked(recommendation(own, *others)).asks
    assert ask.about.evidence == (own,)
    [theirs] = asked(recommendation(found("zombie_holder"), *others)).asks
    assert len(theirs.about.evidence) == 4


def test_each_of_several_holders_is_asked_about_their_own_and_nothing_is_settled_for_the_others() -> None:
    one = recommendation(found("held", "abc", holder="ann+bob"), cents=300, saving=Saving(1, 2, 3))
    asks = asked(one, holders={"a": "ann", "b": "bob", "c": "bob"}).asks
    assert [(each.holder, each.gpus) for each in asks] == [("ann", ("a",)), ("bob", ("b", "c"))]
    assert {(each.is_whole, each.about.saving, each.finding_ids) for each in asks} == {(False, None, ())}
    assert len({each.key for each in asks}) == 2
    [together] = asked(one, holders=dict.fromkeys("abc", "ann+bob")).asks
    assert (together.holder, together.is_whole, together.about.cents) == ("ann+bob", True, 300)


def test_what_no_finding_leads_is_said_in_words_and_settles_nothing() -> None:
    one = recommendation(
        found("held"), recommendation_id="R-1", kind=FAULTY, finding=None, action="repair", evidence=()
    )
    [ask] = asked(one).asks
    assert (ask.key, ask.finding_ids, ask.action) == ("R-1", (), REPAIR)
    assert str(ask.sentence) == "1 GPU on h-a out of order at the end of the window"


def test_who_may_be_wrong_asks_first() -> None:
    unsure = Confidence(("x", "y"))
    said = [asked(recommendation(found("held", confidence=each))).asks[0].asked for each in (Confidence(()), unsure)]
    assert [each.startswith(start) for each, start in zip(said, ("Give it back", "Do you still need it?"), strict=True)]
    [orphan] = asked(recommendation(found("zombie_holder", confidence=unsure))).asks
    assert orphan.asked.startswith("Find out whose it is")


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
    [ask] = asked(recommendation(lead, other)).asks
    assert (ask.about.next_command, changes_something(ask.about.next_command)) == (command, acts)


LOOK_AT_B = "ssh h-b nvidia-smi dmon -i b -s puc -c 30"


@pytest.mark.parametrize("command", ["scancel 7", "ssh h1 nvidia-smi dmon -i a", "#SBATCH --gres=gpu:l40s:2"])
def test_of_a_part_the_command_is_about_that_part(command: str) -> None:
    [ask] = asked(recommendation(found("held", "ab", next_command=command), gpus_now=("b",))).asks
    assert (ask.gpus, ask.about.next_command) == (("b",), LOOK_AT_B)
    assert not changes_something(LOOK_AT_B)


@pytest.mark.parametrize(
    ("said_ms", "broken"), [(T0 - DAY_MS, T0 - DAY_MS), (T0 - HOUR_MS, T0 - HOUR_MS), (T0 - HOUR_MS + 1, None)]
)
def test_who_said_released_and_did_not_is_reminded_of_it(said_ms: int, broken: int | None) -> None:
    finding = found("held", "ab", reclaimable_gpus=("a",))
    actions = {finding.finding_id: (Action(said_ms, "A-1", finding.finding_id, "ack", "ann", reason="released"),)}
    [ask] = asked(recommendation(finding, gpus_now=("a",)), actions=actions).asks
    assert ask.broken_release_ms == broken


@pytest.mark.parametrize(
    ("deadlines", "due"),
    [
        (replace(DEADLINES, days_off=set(range(7))), "2026-11-22T00:00:00Z"),
        (replace(DEADLINES, days_off=(), zone=ZoneInfo("Asia/Tokyo")), "2026-11-21T15:00:00Z"),
        (Deadlines(2, 5, 10, {5, 6}, ZoneInfo("America/New_York")), "2026-11-24T05:00:00Z"),
    ],
)
def test_a_deadline_is_the_end_of_a_working_day_of_the_site(deadlines: Deadlines, due: str) -> None:
    assert format_ms(deadlines.end_ms(T0, deadlines.release_days)) == due


def test_the_settings_of_nudges_are_those_of_every_deadline() -> None:
    settings = {"report.nudge_deadline": "3", "report.nudge_deadline_return": "20", "report.quiet_days": "fri"}
    assert Deadlines.of(config.load(settings, None, {}), UTC) == Deadlines(3, 5, 20, frozenset({4}), UTC)
    with pytest.raises(ConfigError, match="'someday' is not a weekday"):
        Deadlines.of(config.load({"report.quiet_days": "someday"}, None, {}), UTC)


@pytest.mark.parametrize(
    ("command", "said", "acts"),
    [("scancel 7", "scancel 7", True), ("squeue --jobs=7", "to look first: squeue --jobs=7", False), ("", "", False)],
)
def test_a_next_command_that_only_looks_is_called_so(command: str, said: str, *, acts: bool) -> None:
    one = recommendation(found("held", next_command=command), saving=Saving(1, 2, 3))
    spent = Waste({"low": 0.0}, None, {}, None, 0.0, None, 0.0, "USD")
    [row] = section(Recommendations((one,), spent, None, RightSizing((), (), {}))).cells
    assert ([str(cell) for cell in row][-1], record(DECISION_COLUMNS, one)["next_acts"]) == (said, acts)
    # the day that the letter names: the last one on which there is time
    assert language("en", "UTC").translate(tr("{day}", day=row[-2])) == "23 Nov 2026"

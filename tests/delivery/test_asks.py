"""Each GPU is asked about once, by its strongest finding, and everybody is asked what they can do something about."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from analytics.decide.actions import Action
from analytics.decide.asks import RELEASE, REPAIR, RIGHT_SIZE, TUNE, rank
from analytics.decide.deadlines import Deadlines
from analytics.rules import RULES
from analytics.workloads.model import Confidence
from fallow.clock import DAY_MS, HOUR_MS, format_ms
from tests.delivery.asking import asked, found
from tests.ledger.rows import T0

STRONGEST_FIRST = (
    "never_used", "standing_surplus", "reserved_unused", "held", "memory_oversized", "inefficient",
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(STRONGEST_FIRST)))
def test_a_gpu_of_several_findings_is_asked_for_once_by_the_strongest(number: int) -> None:
    findings = [found(rule) for rule in reversed(STRONGEST_FIRST[number:])]
    [ask] = asked(*findings).asks
    assert (ask.key, ask.gpus) == (found(STRONGEST_FIRST[number]).finding_id, ("a",))
    assert ask.finding_ids == tuple(found(rule).finding_id for rule in STRONGEST_FIRST[number:])


def test_no_gpu_is_in_two_asks() -> None:
    asks = asked(
        found("held", "ab"), found("zombie_holder", "bc"), found("inefficient", "abcd"), found("memory_oversized", "d")
    ).asks
    gpus = [gpu for ask in asks for gpu in ask.gpus]
    assert sorted(gpus) == ["a", "b", "c", "d"]


def test_of_a_part_neither_cost_nor_time_is_known_and_the_hosts_are_its_own() -> None:
    first, second = asked(found("held", "a", cost=3.0), found("inefficient", "ab", cost=8.0, host="h-a+h-b")).asks
    assert (first.cost, first.gpu_ms) == (3.0, 3.6e6)
    assert (second.gpus, second.host, second.cost, second.gpu_ms) == (("b",), "h-b", None, None)


def test_an_answer_settles_no_finding_that_is_about_other_gpus_too() -> None:
    held, wide = found("held", "a"), found("inefficient", "abc")
    ask = next(each for each in asked(held, wide).asks if each.key == held.finding_id)
    assert ask.finding_ids == (held.finding_id,)
    assert ask.evidence == (held, wide)


def test_nobody_reads_what_others_did_with_their_gpu() -> None:
    [ask] = asked(found("held"), found("inefficient", holder="bob")).asks
    assert [each.holder for each in ask.evidence] == ["ann"]


def test_surplus_of_nobody_does_not_hide_whom_to_ask() -> None:
    done = asked(found("standing_surplus", "ab", holder=None), found("held", "a"))
    assert [each.gpus for each in done.asks] == [("a",)]
    assert [why for _, why in done.left_out] == ["no user"]


@pytest.mark.parametrize("status", ["acknowledged", "suppressed"])
def test_what_was_answered_is_not_asked_again_by_a_weaker_finding(status: str) -> None:
    done = asked(found("held", status=status), found("zombie_holder"), found("inefficient", "ab"))
    assert [(each.action, each.gpus) for each in done.asks] == [(TUNE, ("b",))]
    assert status in [why for _, why in done.left_out]


def test_what_is_over_is_not_asked_for() -> None:
    [(_, why)] = asked(found("held", reclaimable_gpus=())).left_out
    assert "it is over" in why
    [ask] = asked(found("held", "abc", reclaimable_gpus=("b",))).asks
    assert ask.gpus == ("b",)


@pytest.mark.parametrize(
    ("rule", "action", "due"),
    [
        ("held", RELEASE, "2026-11-24T00:00:00Z"), ("memory_oversized", RIGHT_SIZE, "2026-11-28T00:00:00Z"),
        ("inefficient", TUNE, "2026-11-28T00:00:00Z"), ("throttled", REPAIR, "2026-11-24T00:00:00Z"), ("blind_spot", REPAIR, "2026-11-24T00:00:00Z"),
    ],
)  # fmt: skip
def test_what_is_asked_and_until_when(rule: str, action: str, due: str) -> None:
    [ask] = asked(found(rule)).asks
    assert (ask.action, format_ms(ask.deadline_ms)) == (action, due)
    assert ("give it back" in ask.asked.lower()) is (action == RELEASE)


def test_who_may_be_wrong_asks_first() -> None:
    sure, unsure = asked(found("held")).asks, asked(found("held", confidence=Confidence(("x", "y")))).asks
    assert sure[0].asked.startswith("Give it back")
    assert unsure[0].asked.startswith("Do you still need it?")


def test_a_throttled_gpu_is_not_blamed_on_whoever_works_on_it() -> None:
    done = asked(found("throttled", "ab"), found("inefficient", "abc"), found("held", "a"))
    assert {(each.action, each.gpus) for each in done.asks} == {(REPAIR, ("a", "b")), (TUNE, ("c",)), (RELEASE, ("a",))}


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
    findings = (found("reserved_unused", next_command=commands[0]), found("held", next_command=commands[1]))
    [ask] = asked(*findings).asks
    assert (ask.command, ask.command_acts) == (command, acts)


LOOK_AT_B = "ssh h-b nvidia-smi dmon -i b -s puc -c 30"


@pytest.mark.parametrize("command", ["scancel 7", "ssh h1 nvidia-smi dmon -i a", "#SBATCH --gres=gpu:l40s:2"])
def test_of_a_part_the_command_is_about_that_part(command: str) -> None:
    second = asked(found("reserved_unused", "a"), found("held", "ab", next_command=command)).asks[1]
    assert (second.gpus, second.command_acts, second.command) == (("b",), False, LOOK_AT_B)


def test_a_user_is_not_told_to_do_what_takes_root() -> None:
    [ask] = asked(found("memory_oversized", "b", next_command="ssh h1 nvidia-smi mig -i b -lgip")).asks
    assert (ask.command, ask.command_acts) == (LOOK_AT_B, False)


@pytest.mark.parametrize(
    ("said_ms", "reclaimable", "broken"),
    [(T0 - DAY_MS, True, T0 - DAY_MS), (T0 - HOUR_MS, True, T0 - HOUR_MS), (T0 - HOUR_MS + 1, True, None), (T0 - DAY_MS, False, None)],
)  # fmt: skip
def test_who_said_released_and_did_not_is_reminded_of_it(
    said_ms: int, broken: int | None, *, reclaimable: bool
) -> None:
    finding = found("held", "ab", reclaimable_gpus=("a",) if reclaimable else ())
    actions = {finding.finding_id: (Action(said_ms, "A-1", finding.finding_id, "ack", "ann", reason="released"),)}
    asks = asked(finding, actions=actions).asks
    assert [each.broken_release_ms for each in asks] == ([broken] if reclaimable else [])


def test_every_rule_has_its_place_in_the_order() -> None:
    ranks = {rule.name: rank(replace(found("held"), rule=rule.name, category=rule.category)) for rule in RULES}
    assert [ranks[name] for name in STRONGEST_FIRST] == sorted(ranks[name] for name in STRONGEST_FIRST)
    assert ranks["throttled"] < ranks["inefficient"]


@pytest.mark.parametrize(
    ("deadlines", "due"),
    [
        (Deadlines(1, 5, set(range(7)), UTC), "2026-11-22T00:00:00Z"),
        (Deadlines(1, 5, (), ZoneInfo("Asia/Tokyo")), "2026-11-21T15:00:00Z"),
        (Deadlines(2, 5, {5, 6}, ZoneInfo("America/New_York")), "2026-11-24T05:00:00Z"),
    ],
)
def test_a_deadline_is_the_end_of_a_working_day_of_the_site(deadlines: Deadlines, due: str) -> None:
    assert format_ms(deadlines.release_ms(T0)) == due

"""Whom to tell, where several hold together, and what never goes to a holder."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from analytics.decide.actions import load_actions, record
from analytics.delivery.model import Delivery
from analytics.delivery.nudge_message import pack_nudge
from analytics.delivery.nudges import Chosen, Nudge, Past, choose
from analytics.delivery.payloads import payload
from analytics.delivery.targets import parse_targets
from analytics.language.languages import language
from analytics.workloads.model import Confidence
from fallow.clock import DAY_MS, WEEK_MS
from tests.delivery.asking import asked, found
from tests.delivery.hands import Hands, journal
from tests.delivery.test_contacts import FINDING, TABLE, load

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.delivery.model import Message
    from analytics.workloads.model import Finding
    from fallow.lake import Lake


def chosen(lake: Lake, folder: Path, *findings: Finding, operators: tuple[str, ...] = ()) -> Chosen:
    hands = Hands()
    past = Past(load_actions(lake), journal(lake, hands), hands.now_ms() - WEEK_MS)
    return choose(asked(*findings).asks, load(folder, TABLE), parse_targets(operators), past)


def told(lake: Lake, channel: str | None) -> None:
    record(lake, "notify", [TOGETHER.finding_id], "zoe", now_ms=Hands().now_ms() - DAY_MS, channel=channel)


TOGETHER = replace(FINDING, holder="ann+proj")


def message(nudge: Nudge, code: str = "en") -> Message:
    return pack_nudge(nudge, language(code, "UTC"), "2026-11-20", (0, Hands().now_ms()), None)


def addresses(done: Chosen) -> list[str]:
    return [nudge.target.address for nudge in done.nudges]


def test_several_who_hold_together_are_all_told(lake: Lake, tmp_path: Path) -> None:
    assert addresses(chosen(lake, tmp_path, TOGETHER)) == ["ann@example.org", "pi@example.org"]


@pytest.mark.parametrize(
    ("channel", "left"),
    [("mailto:ann@example.org", ["pi@example.org"]), ("by telephone", []), (None, []), ("mailto:pi@example.org", ["ann@example.org"])],
)  # fmt: skip
def test_that_one_of_them_was_told_leaves_the_other(
    lake: Lake, tmp_path: Path, channel: str | None, left: list[str]
) -> None:
    told(lake, channel)
    assert addresses(chosen(lake, tmp_path, TOGETHER)) == left


def test_whoever_has_no_address_is_held_back(lake: Lake, tmp_path: Path) -> None:
    nobody = chosen(lake, tmp_path, replace(FINDING, holder="stranger", team=None))
    assert (nobody.nudges, [why for _, why in nobody.held_back]) == ((), ["no address, or wants no nudges"])


def test_asks_of_one_address_are_one_mail_the_first_due_first(lake: Lake, tmp_path: Path) -> None:
    change, release = found("memory_oversized", "b"), found("held", "a")
    [nudge] = chosen(lake, tmp_path, change, release).nudges
    assert [each.key for each in nudge.asks] == [release.finding_id, change.finding_id]


def test_faults_go_to_the_operators_in_one_message_and_to_nobody_else(lake: Lake, tmp_path: Path) -> None:
    faults = found("throttled", "ab"), found("blind_spot", "c", holder=None)
    user, operators = chosen(lake, tmp_path, *faults, found("held", "d"), operators=("mailto:ops@example.org",)).nudges
    assert (user.target.address, [each.gpus for each in user.asks]) == ("ann@example.org", [("d",)])
    assert (operators.target.address, [each.gpus for each in operators.asks]) == (
        "ops@example.org",
        [("a", "b"), ("c",)],
    )
    without = chosen(lake, tmp_path, *faults)
    assert (without.nudges, {why for _, why in without.held_back}) == (
        (),
        {"a fault, and report.operators names nobody"},
    )


@pytest.mark.parametrize(
    ("findings", "subject", "intro"),
    [
        ((found("held", "ab"),), "Give 2 GPUs back, or say why not, by 23 Nov 2026", "seem to do no work"),
        ((found("memory_oversized"),), "1 question about your GPUs, by 27 Nov 2026", "needs less than the GPUs it has"),
        ((found("inefficient"),), "1 question about your GPUs, by 27 Nov 2026", "uses little of its GPUs"),
        ((found("held"), found("inefficient", "b")), "2 questions about your GPUs, by 23 Nov 2026", "or less than they could"),
        ((found("throttled", "ab"),), "1 fault of GPUs to look at", "Those who use the GPUs are not told"),
    ],
)  # fmt: skip
def test_the_message_says_what_is_asked_and_no_more(
    lake: Lake, tmp_path: Path, findings: tuple[Finding, ...], subject: str, intro: str
) -> None:
    [nudge] = chosen(lake, tmp_path, *findings, operators=("ops@example.org",)).nudges
    made = message(nudge)
    assert made.subject == subject
    for mark in (made.subject, message(nudge, "fr").subject):
        assert len(mark) <= 70 - len("SIMULATED: ")
    for body in (" ".join(made.text.split()), made.html or ""):
        assert intro in body
        assert bool(re.search(r"\bback\b", body)) is any(each.rule == "held" for each in findings)


@pytest.mark.parametrize("kind", ["slack", "mattermost", "teams", "generic"])
def test_a_chat_of_operators_reads_what_the_fault_is(lake: Lake, tmp_path: Path, kind: str) -> None:
    target = f"{kind}+https://chat.example.org/hooks/secret"
    [nudge] = chosen(lake, tmp_path, found("throttled", "ab"), operators=(target,)).nudges
    delivery = Delivery("nudge", "2026-11-20", "operators/en", nudge.target.shown)
    sent = json.dumps(payload(kind, message(nudge), delivery))
    assert "2 GPUs on h1 said to be throttled" in sent
    assert ("****" in sent, '"-"' in sent, "secret" in sent) == (False, False, False)


def test_simulated_ones_are_called_so_first_of_all(lake: Lake, tmp_path: Path) -> None:
    [real] = chosen(lake, tmp_path, found("held", "ab")).nudges
    [nudge] = chosen(lake, tmp_path, found("held", "ab", simulated=True), found("inefficient", "c")).nudges
    made = message(nudge)
    assert made.subject == "SIMULATED: 2 questions about your GPUs, by 23 Nov 2026"
    assert made.text.startswith("SIMULATED: 2 GPUs in this message do not exist.")
    assert (made.html or "").partition("<h1")[0].count("SIMULATED: 2 GPUs in this message do not exist.") == 1
    assert "SIMULATED" not in message(real).subject + message(real).text + (message(real).html or "")


def test_without_links_it_says_how_to_answer_and_names_commands_that_run(lake: Lake, tmp_path: Path) -> None:
    held, zombie = found("held"), found("zombie_holder")
    [nudge] = chosen(lake, tmp_path, held, zombie).nudges
    text = message(nudge).text
    assert "/answer/" not in text
    assert "and until when, or that you gave them back, answer this mail." in " ".join(text.split())
    ids = f"{held.finding_id} {zombie.finding_id}"
    assert "Or, where you can reach the lake of fallow:" in text
    assert f"fallow findings suppress {ids} --until 2026-11-30 --reason 'still needed'" in text
    assert f"fallow findings ack {ids} --reason released" in text


def test_a_command_that_acts_says_of_when_it_is(lake: Lake, tmp_path: Path) -> None:
    [nudge] = chosen(lake, tmp_path, found("held", next_command="scancel 7")).nudges
    assert "to give back:\n       scancel 7\n   as of 20 Nov 2026, 00:00 UTC: look whether" in message(nudge).text


@pytest.mark.parametrize("code", ["en", "fr"])
def test_names_in_a_nudge_are_nothing_but_names(lake: Lake, tmp_path: Path, code: str) -> None:
    evil = "{0} {holder} \r\n.\r\nBcc: x \u202e\x1b[31m"
    finding = replace(
        FINDING, job=evil, host=evil, gpus=(evil,), reclaimable_gpus=(evil,), next_command=evil, confidence=Confidence((evil, evil)),
    )  # fmt: skip
    [nudge] = chosen(lake, tmp_path, finding).nudges
    made = message(nudge, code)
    assert "\x1b" not in (made.html or "")
    text = made.text
    assert "{holder}" in text
    assert not any(line.startswith(("Bcc", ".")) for line in text.splitlines())
    assert all(character.isprintable() or character == "\n" for character in text)

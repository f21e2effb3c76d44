"""Whom to tell, where several hold together, and what never goes to a holder."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from analytics.decide.actions import load_actions, record
from analytics.delivery.content import pack_nudge
from analytics.delivery.nudges import Chosen, Past, choose
from analytics.language.languages import language
from analytics.workloads.model import Confidence
from fallow.clock import DAY_MS, WEEK_MS
from tests.delivery.hands import Hands, journal
from tests.delivery.test_contacts import FINDING, TABLE, load

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.workloads.model import Finding
    from fallow.lake import Lake


def chosen(lake: Lake, folder: Path, *findings: Finding) -> Chosen:
    hands = Hands()
    past = Past(load_actions(lake), journal(lake, hands), hands.now_ms() - WEEK_MS)
    return choose(findings, load(folder, TABLE), past)


def told(lake: Lake, channel: str | None) -> None:
    record(lake, "notify", [TOGETHER.finding_id], "zoe", now_ms=Hands().now_ms() - DAY_MS, channel=channel)


TOGETHER = replace(FINDING, holder="ann+proj")


def addresses(found: Chosen) -> list[str]:
    return [nudge.address for nudge in found.nudges]


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


@pytest.mark.parametrize(
    "change",
    [
        {"category": "demand"}, {"category": "coverage"}, {"holder": None}, {"status": "acknowledged"},
        {"status": "suppressed"}, {"status": "reversed"}, {"holder": "stranger", "team": None},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_for_a_holder(lake: Lake, tmp_path: Path, change: dict[str, str | None]) -> None:
    found = chosen(lake, tmp_path, replace(FINDING, **change))
    assert found.nudges == ()
    [(_, why)] = found.held_back
    assert why


def test_findings_of_one_address_are_one_mail(lake: Lake, tmp_path: Path) -> None:
    other = replace(FINDING, rule="never_used")
    [nudge] = chosen(lake, tmp_path, FINDING, other).nudges
    assert [each.finding_id for each in nudge.findings] == [FINDING.finding_id, other.finding_id]


@pytest.mark.parametrize("code", ["en", "fr"])
def test_names_in_a_nudge_are_nothing_but_names(lake: Lake, tmp_path: Path, code: str) -> None:
    evil = "{0} {holder} \r\n.\r\nBcc: x \u202e\x1b[31m"
    finding = replace(
        FINDING, job=evil, host=evil, gpus=(evil,) * 20, next_command=evil, confidence=Confidence((evil, evil)),
    )  # fmt: skip
    [nudge] = chosen(lake, tmp_path, finding).nudges
    text = pack_nudge(nudge, language(code, "Europe/Paris"), "2026-11-20", (0, 1)).text
    assert "{holder}" in text
    assert not any(line.startswith(("Bcc", ".")) for line in text.splitlines())
    assert all(character.isprintable() or character == "\n" for character in text)

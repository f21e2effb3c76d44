"""What one edition is to those who do not open its documents: the chats, the names of files, the mail's own words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from analytics.delivery.content import pack
from analytics.language.languages import language
from analytics.render.report.json_format import JsonFormat
from analytics.scope import Scope
from fallow.clock import parse_window
from tests.lakes import made_lake
from tests.report.conftest import everything
from tests.report.html.reports import changed, report_of

if TYPE_CHECKING:
    from analytics.delivery.model import Message
    from analytics.report.report import Report
    from fallow.lake import Lake

WEEK = "2026-W40"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return everything(made_lake(tmp_path_factory.mktemp("packed") / "lake"))


@pytest.fixture(scope="module")
def week(lake: Lake) -> Report:
    return report_of(lake, WEEK)


def packed(report: Report, code: str = "en") -> Message:
    assert report.asked.week is not None
    return pack(report, report.asked.week, language(code), [JsonFormat()], None)


def test_a_chat_has_the_observed_share_beside_the_window(week: Report) -> None:
    share = f"{100 * (week.ledger.seen.share or 0):.1f}"
    outside = "285.0 GPU-hours before a host's first row or after its last are in no sum"
    for code, said in (
        (
            "en",
            f"; observed: {share} % of the time; 0.5 % of it by point samples, one every 5 min; {outside}; silent: import since",
        ),
        ("fr", " ; observé : "),
    ):
        shown = packed(week, code).brief.window.replace("\N{NO-BREAK SPACE}", " ")
        assert said in shown
        assert (share if code == "en" else share.replace(".", ",")) + " %" in shown


def test_a_chat_has_what_each_decision_saves(week: Report) -> None:
    ranked = week.recommendations.ranked
    lines = packed(week).brief.lines
    assert [each.finding_id for each in lines] == [each.recommendation_id for each in ranked[:5]]
    saving = f"{round(ranked[0].saving.point):,}" if ranked[0].saving else ""
    assert f": worth {saving} USD" in lines[0].text.replace("\N{NO-BREAK SPACE}", " ")


def test_the_subject_asks_in_fewer_than_70_characters(lake: Lake, week: Report) -> None:
    saving = week.recommendations.freed
    assert (saving is not None, week.recommendations.given_back) == (True, None)
    assert f"GPU time worth {round(saving.point):,} USD a year: {WEEK}" in packed(week).subject.replace(
        "\N{NO-BREAK SPACE}", " "
    )
    simulated = changed(week, heading=replace(week.heading, simulated_gpus=1))
    long_name = changed(simulated, asked=replace(week.asked, scope=Scope(pool="p" * 80)))
    for report in (week, simulated, long_name, report_of(lake, "2026-W41")):
        for code in ("en", "fr"):
            said = packed(report, code).subject
            assert len(said) < 70
            assert ("SIMUL" in said) == bool(report.heading.simulated)


def test_the_part_of_the_fleet_is_named_in_the_readers_language(lake: Lake) -> None:
    part = report_of(lake, WEEK, scope=Scope(pool="train", holder="ann"))
    assert packed(part).scope == "pool train, user ann"
    assert packed(part, "fr").scope == "pool train, utilisateur ann"
    assert packed(report_of(lake, WEEK)).scope == ""


def test_a_week_in_which_nothing_was_seen_has_no_share(lake: Lake) -> None:
    window = parse_window("2026-W41", "2026-W41")
    empty = report_of(lake, "2026-W41")
    assert (empty.ledger.is_empty, empty.ledger.summary.since_ms) == (True, window.since_ms)
    assert "observed" not in packed(empty).brief.window

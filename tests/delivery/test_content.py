"""What one edition is to those who do not open its documents: the chats, the names of files, the mail's own words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from analytics.delivery.content import pack
from analytics.language.languages import language
from analytics.render.report.json_format import JsonFormat
from analytics.scope import Scope
from analytics.sections.findings import costliest
from fallow.clock import parse_window
from fallow.lake import Lake
from tests.report.conftest import everything
from tests.report.html.reports import report_of

if TYPE_CHECKING:
    from analytics.delivery.model import Message
    from analytics.report.model import Report

WEEK = "2026-W40"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return everything(Lake.at(str(tmp_path_factory.mktemp("packed") / "lake")))


@pytest.fixture(scope="module")
def week(lake: Lake) -> Report:
    return report_of(lake, WEEK)


def packed(report: Report, code: str = "en") -> Message:
    assert report.week is not None
    return pack(report, report.week, language(code), [JsonFormat()], None)


def test_a_chat_has_the_observed_share_beside_the_window(week: Report) -> None:
    share = f"{100 * (week.seen.share or 0):.1f}"
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


def test_a_chat_has_the_cost_of_each_finding_that_has_a_price(week: Report) -> None:
    first = costliest(week)[0]
    assert first.cost is not None
    [line, *_] = packed(week).brief.lines
    hours = f"{first.gpu_hours:,.1f} GPU-hours"
    assert line.text.replace("\N{NO-BREAK SPACE}", " ").startswith(f"{hours}, {first.cost:,.2f} USD: 1 GPU on ")
    without = [each for each in costliest(week)[:5] if each.cost is None]
    priced = [each for each in packed(week).brief.lines if " USD" in each.text.replace("\N{NO-BREAK SPACE}", " ")]
    assert len(priced) + len(without) == len(packed(week).brief.lines)


def test_the_part_of_the_fleet_is_named_in_the_readers_language(lake: Lake) -> None:
    part = report_of(lake, WEEK, scope=Scope(pool="train", holder="ann"))
    assert packed(part).scope == "pool train, user ann"
    assert packed(part, "fr").scope == "pool train, utilisateur ann"
    assert packed(report_of(lake, WEEK)).scope == ""


def test_a_week_in_which_nothing_was_seen_has_no_share(lake: Lake) -> None:
    window = parse_window("2026-W41", "2026-W41")
    empty = report_of(lake, "2026-W41")
    assert (empty.is_empty, empty.summary.since_ms) == (True, window.since_ms)
    assert "observed" not in packed(empty).brief.window

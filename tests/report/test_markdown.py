"""Markdown says of a decision what it rests on: who reads a ticket is to need no terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from analytics.decide.actions import record
from analytics.language.languages import language
from analytics.render.report.markdown import MarkdownFormat
from fallow.actors import Actor
from fallow.outside_text import markdown_text as escape
from tests.lakes import made_lake
from tests.ledger.rows import T0
from tests.report.conftest import BACK_S, everything
from tests.report.html.reports import report_of

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.report.report import Report

NOTE = "asked greta on the phone | twice"


@pytest.fixture
def week(tmp_path: Path) -> Report:
    lake = everything(made_lake(tmp_path / "lake"))
    ids = [finding.finding_id for finding in report_of(lake, "2026-W40").review.shown]
    record(lake, "ack", ids, Actor("ops"), now_ms=T0 - BACK_S * 1000 + 1, reason=NOTE)
    return report_of(lake, "2026-W40")


@pytest.mark.parametrize("code", ["en", "fr"])
def test_each_decision_has_what_it_rests_on(week: Report, code: str) -> None:
    shown = MarkdownFormat().render(week, language(code)).decode()
    parts = {part[:12]: part.split("\n### ")[0] for part in shown.split("\n#### ")[1:]}
    assert list(parts) == [each.recommendation_id for each in week.recommendations.listed]
    found = [each for each in week.recommendations.listed if each.evidence]
    assert found
    for each in found:
        part = parts[each.recommendation_id]
        assert each.evidence[0].finding_id in part
        assert all(escape(gpu) in part for gpu in each.gpus_now[:2])
        assert each.next_command in part

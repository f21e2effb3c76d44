"""Markdown says of a finding what the text says: who reads a ticket is to need no terminal."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from analytics.decide.actions import record
from analytics.language.languages import language
from analytics.render.report.markdown import MarkdownFormat, escape
from analytics.sections.findings import to_act_on
from fallow.lake import Lake
from tests.ledger.rows import T0
from tests.report.conftest import BACK_S, everything
from tests.report.html.reports import report_of

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.report.model import Report

NOTE = "asked greta on the phone | twice"


@pytest.fixture
def week(tmp_path: Path) -> Report:
    lake = everything(Lake.at(str(tmp_path / "lake")))
    ids = [finding.finding_id for finding in report_of(lake, "2026-W40").findings]
    record(lake, "ack", ids, "ops", now_ms=T0 - BACK_S * 1000 + 1, reason=NOTE)
    return report_of(lake, "2026-W40")


@pytest.mark.parametrize(("code", "amount"), [("en", "{:,.2f} USD"), ("fr", "{:,.2f} USD")])
def test_each_finding_has_all_that_the_text_has(week: Report, code: str, amount: str) -> None:
    shown = MarkdownFormat().render(week, language(code)).decode().replace("\u202f", " ")
    parts = {part[:12]: part.split("\n### ")[0] for part in shown.split("\n#### ")[1:]}
    assert list(parts) == [finding.finding_id for finding in to_act_on(week)[:10]]
    for finding in to_act_on(week)[:10]:
        part = parts[finding.finding_id]
        told = amount.format(finding.cost or 0.0)
        assert finding.cost is None or (told.replace(",", " ").replace(".", ",") if code == "fr" else told) in part
        assert all(escape(gpu) in part for gpu in finding.reclaimable_gpus)
        assert escape(finding.rule) in part
        assert escape(finding.holder or language(code).translate(finding.without_holder)) in part
        assert finding.job is None or escape(finding.job) in part
        assert escape(NOTE) in part
        assert language(code).translate(finding.status) in part


def test_what_can_be_taken_back_is_named_however_much_it_is(week: Report) -> None:
    names = tuple(f"GPU-{number:08x}-0000-0000-0000-000000000000" for number in range(300))
    first = to_act_on(week)[0]
    many = replace(first, gpus=names, reclaimable_gpus=names)
    report = replace(week, review=replace(week.review, findings=(many,)))
    shown = MarkdownFormat().render(report, language("en")).decode()
    assert [name for name in names if name not in shown] == []
    assert re.search(r"\(300 of 300\)$", shown, re.MULTILINE)

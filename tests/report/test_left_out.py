"""What a section leaves out of its list or its chart: the count is right, and the report and the pages draw the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from analytics.capacity.off_peak import OffPeak
from analytics.decide.recommendations import Saving
from analytics.language.languages import language
from analytics.render.html.page import page
from analytics.render.report.markdown import MarkdownFormat
from analytics.render.report.text import TextFormat
from analytics.tables.off_peak import off_peak
from analytics.workloads.model import Confidence
from tests.report.html.reports import changed, report_of

if TYPE_CHECKING:
    from analytics.report.report import Report
    from fallow.lake import Lake

ENGLISH = language("en")


@pytest.fixture(scope="module")
def week(full: Lake) -> Report:
    return report_of(full, "2026-W40")


def as_documents(report: Report) -> list[str]:
    """Text, Markdown and HTML without line breaks."""
    made = (TextFormat().render(report, ENGLISH).decode(), MarkdownFormat().render(report, ENGLISH).decode())
    return [" ".join(each.split()) for each in (*made, page(report, ENGLISH))]


@pytest.mark.parametrize("number", [12, 20])
def test_every_document_has_the_count_and_the_page_has_each_decision(week: Report, number: int) -> None:
    first = replace(
        week.recommendations.listed[0], saving=Saving(1.0, 2.0, 3.0), action="return", confidence=Confidence(())
    )
    listed = tuple(replace(first, recommendation_id=f"R-{each:010x}") for each in range(number))
    report = changed(week, recommendations=replace(week.recommendations, listed=listed))
    for document in as_documents(report):
        assert ("and 8 more in the list of all" in document) == (number == 20)
    html = page(report, ENGLISH)
    assert all(f'<details class="fold" id="{each.recommendation_id}">' in html for each in listed)


@pytest.mark.parametrize(("number", "drawn", "said"), [(4, 4, ""), (7, 4, "The chart shows 4 of 7 pools")])
def test_the_grid_of_the_week_says_how_many_pools_it_has(week: Report, number: int, drawn: int, said: str) -> None:
    """The pool with the widest window is drawn, whatever its name."""
    narrow = [OffPeak(f"pool{each}", 5, 7, 9, 2, 4) for each in range(number - 1)]
    section = off_peak((*narrow, OffPeak("wide", 5, 0, 24, 2, 4)), week.heading, week.ledger)
    assert section is not None
    assert section.chart is not None
    names = [ENGLISH.shown(each.title) for each in section.chart.panels]
    assert (len(names), names[-1]) == (drawn, "wide")
    assert ENGLISH.translate(section.chart_note).startswith(said)

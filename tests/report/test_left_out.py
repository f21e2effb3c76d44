"""What a section leaves out of its list or its chart: the count is right, and the report and the pages draw the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from analytics.capacity.off_peak import OffPeak
from analytics.language.languages import language
from analytics.render.html import page
from analytics.render.report.markdown import MarkdownFormat
from analytics.render.report.text import TextFormat
from analytics.report.figures import Reclaimable
from analytics.sections.findings import findings, further_findings
from analytics.sections.off_peak import off_peak
from analytics.sections.section import Intervals, WeekGrid
from analytics.sections.surplus import surplus
from tests.report.html.reports import report_of

if TYPE_CHECKING:
    from analytics.report.model import Report
    from fallow.lake import Lake

ENGLISH = language("en")


@pytest.fixture(scope="module")
def week(full: Lake) -> Report:
    return report_of(full, "2026-W40")


def with_findings(report: Report, number: int) -> Report:
    """So many findings, each of one GPU of its own to take back."""
    first = next(each for each in report.findings if each.reclaimable_gpus)
    found = [
        replace(first, subject=f"s{each}", gpus=(f"GPU-{each}",), reclaimable_gpus=(f"GPU-{each}",), surplus=None)
        for each in range(number)
    ]
    return replace(report, review=replace(report.review, findings=tuple(found)))


def as_documents(report: Report) -> list[str]:
    """Text, Markdown and HTML without line breaks."""
    made = (TextFormat().render(report, ENGLISH).decode(), MarkdownFormat().render(report, ENGLISH).decode())
    return [" ".join(each.split()) for each in (*made, page(report, ENGLISH))]


@pytest.mark.parametrize(
    ("number", "in_full", "further"),
    [
        (10, "", None), (11, "and 1 more finding with 1 more GPU to take back or ask about; `fallow findings` lists all", ""),
        (34, "and 24 more findings with 24 more GPUs to take back or ask about; `fallow findings` lists all", ""),
        (35, "and 25 more findings with 25 more GPUs to take back or ask about; `fallow findings` lists all", "and 1 more finding"),
        (41, "and 31 more findings with 31 more GPUs to take back or ask about; `fallow findings` lists all", "and 7 more findings"),
    ],
)  # fmt: skip
def test_the_further_findings_are_counted(week: Report, number: int, in_full: str, further: str | None) -> None:
    report = with_findings(week, number)
    assert ENGLISH.translate(findings(report).left_out) == in_full
    section = further_findings(report)
    if section is None:
        assert further is None
        return
    assert (len(section.rows), len(section.listed)) == (number - 10, min(number - 10, 24))
    assert ENGLISH.translate(section.left_out) == further


def test_every_document_has_the_count(week: Report) -> None:
    for document in as_documents(with_findings(week, 41)):
        assert "and 7 more findings" in document


@pytest.mark.parametrize(("number", "drawn", "said"), [(4, 4, ""), (7, 4, "The chart shows 4 of 7 pools")])
def test_the_grid_of_the_week_says_how_many_pools_it_has(week: Report, number: int, drawn: int, said: str) -> None:
    """The pool with the widest window is drawn, whatever its name."""
    narrow = [OffPeak(f"pool{each}", 5, 7, 9, 2, 4) for each in range(number - 1)]
    report = replace(week, off_peak=(*narrow, OffPeak("wide", 5, 0, 24, 2, 4)))
    section = off_peak(report)
    assert section is not None
    assert isinstance(section.chart, WeekGrid)
    names = [ENGLISH.shown(name) for name, _ in section.chart.grids]
    assert (len(names), names[-1]) == (drawn, "wide")
    assert ENGLISH.translate(section.chart_note).startswith(said)
    assert ("The chart shows" in page(report, ENGLISH)) == bool(said)


@pytest.mark.parametrize(
    ("number", "drawn", "said"), [(12, 12, ""), (13, 12, "The chart shows the first 12 of 13 groups")]
)
def test_the_intervals_that_are_drawn_are_counted(week: Report, number: int, drawn: int, said: str) -> None:
    group = Reclaimable("", "NVIDIA H100", 24.0, 3, 4, 6, {1: 4, 2: 4, 4: 4, 8: 0}, 28.0, None)
    report = replace(week, reclaimable=tuple(replace(group, pool=f"p{each}") for each in range(number)))
    section = surplus(report)
    assert section is not None
    assert isinstance(section.chart, Intervals)
    assert (len(section.rows), len(section.chart.rows)) == (number, drawn)
    assert ENGLISH.translate(section.chart_note).startswith(said)
    html = page(report, ENGLISH)
    assert html.count("4 [3, 6]</text>") == drawn
    assert ("The chart shows" in html) == bool(said)

"""The report's chapters: which sections it has, in which order, and which pages show them too.

A new section is its own file and an entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from analytics.language.sentences import tr
from analytics.report.model import Report
from analytics.sections.breakdowns import models, pools, user_time
from analytics.sections.days import days
from analytics.sections.film import film
from analytics.sections.findings import findings, further_findings, gone, inefficient, suppressed, winding_down
from analytics.sections.goals import goals
from analytics.sections.idle import idle
from analytics.sections.method import data_quality, how_made
from analytics.sections.money_basis import energy, prices
from analytics.sections.off_peak import off_peak
from analytics.sections.people import teams, users
from analytics.sections.point_samples import point_samples
from analytics.sections.section import Section
from analytics.sections.surplus import surplus
from analytics.sections.trends import trends
from analytics.sections.waterfall import waterfall
from analytics.sections.weeks import last_weeks

MakeSection: TypeAlias = Callable[[Report], Section | None]
"""None where the section has nothing to be about."""


@dataclass(frozen=True)
class Chapter:
    """Sections under one heading."""

    title: str
    sections: tuple[MakeSection, ...]


REPORT: tuple[Chapter, ...] = (
    Chapter(tr("Where the money goes"), (waterfall, days, last_weeks, goals, trends)),
    Chapter(tr("What can be taken back"), (findings, further_findings, surplus, idle, winding_down)),
    Chapter(tr("Who was given GPUs"), (teams, users, user_time)),
    Chapter(tr("When and where"), (film, off_peak, pools, models)),
    Chapter(tr("Other findings"), (inefficient, gone, suppressed)),
    Chapter(tr("What the figures rest on"), (data_quality, point_samples, how_made, prices, energy)),
)

ON_PAGES: Mapping[str, tuple[MakeSection, ...]] = {"/capacity": (off_peak,)}
"""Sections of the report that a page shows below its own, by the page's path: `/`, `/capacity`, `/holders`, `/quality`, `/right-size`.

One that stands elsewhere on its page is named in the page's file.
"""


def chapters(report: Report) -> Iterator[tuple[str, tuple[Section, ...]]]:
    """The title and the sections of each chapter, without those that have nothing to be about."""
    for chapter in REPORT:
        made = tuple(section for make in chapter.sections if (section := make(report)) is not None)
        if made:
            yield chapter.title, made

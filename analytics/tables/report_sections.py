"""Chapters of the report: their sections and their order.

A new section is its own file and an entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from analytics.language.sentences import tr
from analytics.report.report import Report
from analytics.tables.breakdowns import pools
from analytics.tables.days import days
from analytics.tables.evidence_folds import evidence_folds
from analytics.tables.findings import gone, snoozed
from analytics.tables.goals import goals
from analytics.tables.method import data_quality, how_made
from analytics.tables.money_basis import energy, prices
from analytics.tables.people import teams, users
from analytics.tables.plan_endings import endings_in_report
from analytics.tables.plan_forecast import orders_in_report
from analytics.tables.plan_queue import waits_in_report
from analytics.tables.plan_scenarios import scenario_table
from analytics.tables.point_samples import point_samples
from analytics.tables.recommendations import by_group, recommendations, to_look_at, waste
from analytics.tables.table import Table
from analytics.tables.timeline import timeline
from analytics.tables.trends import trends
from analytics.tables.verdicts import pool_verdicts
from analytics.tables.waterfall import waterfall
from analytics.tables.weeks import last_weeks

MakeSection: TypeAlias = Callable[[Report], Table | None]
"""A function that makes a section; None if the section has no content."""


@dataclass(frozen=True)
class Chapter:
    """Sections under one heading.

    `on_paper` is False for chapters that print leaves out: a printed report has at most five pages.
    """

    title: str
    sections: tuple[MakeSection, ...]
    on_paper: bool = True


REPORT: tuple[Chapter, ...] = (
    Chapter(
        tr("Recommendations"),
        (
            lambda report: recommendations(report.recommendations, in_brief=True),
            lambda report: pool_verdicts(report.recommendations.fleet),
            lambda report: last_weeks(report.weeks),
            lambda report: trends(report.weeks),
            lambda report: goals(report.weeks),
        ),
    ),
    Chapter(
        tr("Evidence of the recommendations"),
        (lambda report: evidence_folds(report.recommendations, report.decision_review),),
        on_paper=False,
    ),
    Chapter(
        tr("Totals and waste without a known value"),
        (
            lambda report: by_group(report.recommendations, "owner") if report.recommendations.ranked else None,
            lambda report: (
                by_group(report.recommendations, "pool")
                if report.recommendations.ranked and not report.scope.is_personal
                else None
            ),
            lambda report: waste(report.recommendations),
            lambda report: to_look_at(report.recommendations),
        ),
    ),
    Chapter(
        tr("Where the money goes"),
        (lambda report: waterfall(report.ledger), lambda report: days(report.breakdown)),
    ),
    Chapter(tr("Who had GPUs"), (lambda report: teams(report.people), lambda report: users(report.people))),
    Chapter(
        tr("When and where"),
        (
            lambda report: timeline(report.timeline),
            lambda report: pools(report.breakdown),
            lambda report: waits_in_report(report.waits),
            lambda report: orders_in_report(report.pools) if report.asked.week is not None else None,
            lambda report: endings_in_report(report.endings),
            lambda report: scenario_table(report.scenarios, report.money) if report.scenarios else None,
        ),
        on_paper=False,
    ),
    Chapter(
        tr("Last week's findings"),
        (lambda report: gone(report.review), lambda report: snoozed(report.review)),
        on_paper=False,
    ),
    Chapter(
        tr("Where the figures come from"),
        (
            lambda report: data_quality(report.quality),
            lambda report: point_samples(report.ledger),
            lambda report: how_made(report.heading),
        ),
    ),
    Chapter(
        tr("Prices and energy"),
        (lambda report: prices(report.money), lambda report: energy(report.money)),
        on_paper=False,
    ),
)
"""Sections are shown only where their part of the report has content."""


def chapters(report: Report) -> Iterator[tuple[Chapter, tuple[Table, ...]]]:
    """Return each chapter with its sections that have content."""
    for chapter in REPORT:
        shown = tuple(section for make in chapter.sections if (section := make(report)) is not None)
        if shown:
            yield chapter, shown

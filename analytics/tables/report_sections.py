"""The report's chapters: which sections it has, and in which order.

A new section is its own file and an entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from analytics.language.sentences import tr
from analytics.report.model import Report
from analytics.tables.breakdowns import pools
from analytics.tables.days import days
from analytics.tables.evidence_folds import evidence_folds
from analytics.tables.film import film
from analytics.tables.findings import gone, suppressed
from analytics.tables.give_back import give_back
from analytics.tables.goals import goals
from analytics.tables.method import data_quality, how_made
from analytics.tables.money_basis import energy, prices
from analytics.tables.people import teams, users
from analytics.tables.plan_endings import endings_in_report
from analytics.tables.plan_forecast import orders_in_report
from analytics.tables.plan_queue import waits_in_report
from analytics.tables.plan_scenarios import scenarios_in_report
from analytics.tables.point_samples import point_samples
from analytics.tables.recommendations import by_group, recommendations, to_look_at, waste
from analytics.tables.table import Table
from analytics.tables.trends import trends
from analytics.tables.waterfall import waterfall
from analytics.tables.weeks import last_weeks

MakeSection: TypeAlias = Callable[[Report], Table | None]
"""None where the section has nothing to be about."""


@dataclass(frozen=True)
class Chapter:
    """Sections under one heading; `on_paper` is whether print has them too: a reader there wants at most five pages."""

    title: str
    sections: tuple[MakeSection, ...]
    on_paper: bool = True


def give_back_now(report: Report) -> Table | None:
    """What can be given back; None in an edition for people, who have no pools."""
    found = report.recommendations.reclaimable
    return None if found is None else give_back(found)


def ranked(report: Report) -> Table:
    """The decisions in a few columns; the rest stands behind each."""
    return recommendations(report.recommendations, in_brief=True)


def unranked(report: Report) -> Table | None:
    """What is to be looked at."""
    return to_look_at(report.recommendations)


def wasted(report: Report) -> Table:
    """How the decisions add up to the waste."""
    return waste(report.recommendations)


def by_owner(report: Report) -> Table | None:
    """What the decisions of each who acts come to; None where there are none."""
    return by_group(report.recommendations, "owner") if report.recommendations.ranked else None


def by_pool(report: Report) -> Table | None:
    """The same of each pool; None in an edition for people, who have no pools."""
    return (
        by_group(report.recommendations, "pool")
        if report.recommendations.ranked and not report.scope.is_personal
        else None
    )


REPORT: tuple[Chapter, ...] = (
    Chapter(tr("Decisions"), (ranked, give_back_now, last_weeks, trends, goals)),
    Chapter(tr("Behind the decisions"), (evidence_folds,), on_paper=False),
    Chapter(tr("Totals and what to look at"), (by_owner, by_pool, wasted, unranked)),
    Chapter(tr("Where the money goes"), (waterfall, days)),
    Chapter(tr("Who was given GPUs"), (teams, users)),
    Chapter(
        tr("When and where"),
        (film, pools, waits_in_report, orders_in_report, endings_in_report, scenarios_in_report),
        on_paper=False,
    ),
    Chapter(tr("What became of last week's findings"), (gone, suppressed), on_paper=False),
    Chapter(tr("What the figures rest on"), (data_quality, point_samples, how_made)),
    Chapter(tr("Prices and energy"), (prices, energy), on_paper=False),
)


def chapters(report: Report) -> Iterator[tuple[Chapter, tuple[Table, ...]]]:
    """Each chapter with its sections, without those that have nothing to be about."""
    for chapter in REPORT:
        made = tuple(section for make in chapter.sections if (section := make(report)) is not None)
        if made:
            yield chapter, made

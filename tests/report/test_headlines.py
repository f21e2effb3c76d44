"""Headlines of sections where nothing went unused, nothing was observed, or all days are alike; and rows left out."""

from __future__ import annotations

from datetime import UTC, date

import pytest

from analytics.language.language import ENGLISH
from analytics.ledger.summary import Totals
from analytics.report.parts import Breakdown
from analytics.tables.breakdowns import pools
from analytics.tables.coverage import coverage_by, coverage_by_day
from analytics.tables.days import days
from fallow.clock import HOUR_MS
from fallow.schema import STATES


def hours(gpus: int = 8, **states: int) -> Totals:
    """GPU-hours by state."""
    return Totals(gpus, {state: HOUR_MS * states.get(state, 0) for state in STATES})


def breakdown(by: str, groups: dict[str, Totals]) -> Breakdown:
    return Breakdown({by: groups}, {}, UTC)


def dates(*totals: Totals) -> dict[str, Totals]:
    return {str(date.fromordinal(739_000 + number)): each for number, each in enumerate(totals)}


def said(text: str) -> str:
    return ENGLISH.translate(text)


@pytest.mark.parametrize(
    ("totals", "headline"),
    [
        (hours(active=9), "None of the observed time went unused."),
        (hours(unknown=9), "Nothing was observed."),
        (hours(active=6, free=2), "The most unused GPU-hours: 2.0, by train, 25.0 % of what was observed there."),
    ],
)
def test_a_breakdown_names_the_worst_only_where_there_is_one(totals: Totals, headline: str) -> None:
    section = pools(breakdown("pool", {"train": totals, "dev": hours(gpus=1, active=1 if totals.observed_ms else 0)}))
    assert section is not None
    assert said(section.headline) == headline


def test_days_that_are_alike_are_not_told_apart() -> None:
    alike = breakdown("day", dates(*[hours(active=24)] * 7))
    assert said(days(alike).headline) == "0.0 % went unused in each of them."
    differ = breakdown("day", dates(hours(active=24), hours(free=24)))
    assert said(days(differ).headline).startswith("Between 0.0 % (on ")


def test_of_many_days_the_last_are_listed() -> None:
    seen = [hours(active=24)] * 80 + [hours(unknown=24)] * 10
    section = coverage_by_day(dates(*seen))
    assert len(section.rows) == 60
    assert [str(row[1]) for row in section.cells[-10:]] == ["0.0 %"] * 10
    assert [said(note) for note in section.notes] == ["and 30 days before"]


def test_of_many_pools_the_least_observed_are_listed() -> None:
    pools = {f"pool-{number:02}": hours(active=24, unknown=number) for number in range(70)}
    section = coverage_by("pool", pools)
    assert section.cells[0][0] == "pool-69"
    assert [said(note) for note in section.notes] == ["and 10 more, none of them observed less"]

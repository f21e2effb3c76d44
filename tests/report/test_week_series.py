"""The trend over weeks: a week that nobody saw is a gap, one seen in part is marked, and only whole ones are compared."""

from __future__ import annotations

import re
from datetime import UTC

import pytest

from analytics.language.language import ENGLISH
from analytics.render.html.charts import drawing
from analytics.report.parts import WeekHistory
from analytics.report.trends import QUARTER_WEEKS, WEEKS_BEFORE, WeekFigures
from analytics.scope import Scope
from analytics.tables.chart import ChartPlace, Line, Panel
from analytics.tables.weeks import week_series
from tests.money.fleet import Row, stretch
from tests.report.test_trends import MONDAY_S, WEEK_S, looked_back


def history(weeks: tuple[WeekFigures, ...]) -> WeekHistory:
    return WeekHistory(None, Scope(), UTC, "USD", weeks[0].seen, weeks, ())


def idle_weeks(shares: list[float | None]) -> list[Row]:
    """One GPU, the newest week first: free for that share of a tenth of each week, else active; None is not seen."""
    rows = []
    for number, share in enumerate(shares):
        start = MONDAY_S - number * WEEK_S
        if share is not None:
            rows += [stretch("a0", start, start + share * WEEK_S, "free")] if share else []
            rows.append(stretch("a0", start + share * WEEK_S, start + WEEK_S, "active", holder="ann"))
    return rows


def test_each_week_is_beside_those_four_and_thirteen_weeks_before() -> None:
    weeks = looked_back(idle_weeks([0.3, *([0.5] * 3), 0.4, *([0.5] * 8), 0.6]), QUARTER_WEEKS)
    assert [each.is_whole for each in weeks] == [True] * 14
    assert [weeks[number].unused_share for number in (0, 4, 13)] == pytest.approx([0.3, 0.4, 0.6])
    assert weeks[0].idle_gpus == pytest.approx(0.3)
    assert weeks[0].waste == pytest.approx(0.3 * (weeks[0].paid or 0), abs=0.01)
    section = week_series(history(weeks), QUARTER_WEEKS)
    assert section.headline.endswith(
        "-25.0 % and -10.0 points against 4 weeks before; -50.0 % and -30.0 points against 13 weeks before.".replace(
            "-", "\N{MINUS SIGN}"
        )
    )
    assert [str(row[0]) for row in section.cells] == [each.week.label for each in reversed(weeks)]


def test_unavailable_time_is_waste_and_is_not_unused() -> None:
    rows = [stretch("a0", MONDAY_S, MONDAY_S + WEEK_S / 2, "unavailable")]
    rows += [stretch("a0", MONDAY_S + WEEK_S / 2, MONDAY_S + WEEK_S, "active", holder="ann")]
    (week,) = looked_back(rows, 0)
    assert week.waste == pytest.approx((week.paid or 0) / 2, abs=0.01)
    assert (week.unused_share, week.idle_gpus, week.useful_share) == (0, 0, 0.5)


@pytest.mark.parametrize("seen_share", [0.0, 0.5])
def test_a_week_that_nobody_saw_is_a_gap_and_one_seen_in_part_is_hollow(seen_share: float) -> None:
    rows = idle_weeks([0.5, 0.5, None, 0.5, 0.5])
    start = MONDAY_S - 2 * WEEK_S
    rows += [stretch("a0", start, start + seen_share * WEEK_S, "free")] if seen_share else []
    weeks = looked_back(rows, WEEKS_BEFORE)
    assert [each.is_whole for each in weeks] == [True, True, False, True, True]
    assert (weeks[2].figures is None) == (not seen_share)
    section = week_series(history(weeks), WEEKS_BEFORE)
    middle = section.cells[2]
    assert middle[-1] == ("observed in part" if seen_share else "not observed")
    assert (middle[1] is None) == (not seen_share)
    drawn = str(drawing(section, ENGLISH))
    lines = [re.findall(r'<path d="M([^"]*)" fill="none"', each) for each in re.findall(r"<g class=\"l-.*?</g>", drawn)]
    assert [[part.count("L") for part in each] for each in lines] == [[1, 1]] * 5
    assert drawn.count("<circle") == (5 if seen_share else 0)


@pytest.mark.parametrize(
    ("most", "ticks"), [(0.47, (0, 0.2, 0.4, 0.6)), (1340, (0, 500, 1000, 1500)), (7, (0, 2.5, 5, 7.5)), (0, ())]
)
def test_ticks_are_round(most: float, ticks: tuple[float, ...]) -> None:
    panel = Panel("", (Line("", "held", (None, most)),), (ChartPlace("a"), ChartPlace("b")))
    assert panel.ticks == pytest.approx(ticks)

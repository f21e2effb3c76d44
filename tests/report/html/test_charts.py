"""The charts of the report: what is drawn is what is in the figures."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from analytics.capacity.off_peak import OffPeak
from analytics.language.languages import language
from analytics.ledger.summary import Totals
from analytics.render.html.charts import MOST_BYTES, MOST_ROWS, drawing, png
from analytics.report.timeline import NOT_THERE, FleetTimeline
from analytics.tables.days import days
from analytics.tables.off_peak import off_peak
from analytics.tables.palette import LIGHT
from analytics.tables.timeline import timeline
from analytics.tables.waterfall import waterfall
from fallow.clock import HOUR_MS
from fallow.schema import STATES
from tests.report.html.reports import report_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from analytics.report.report import Report
    from analytics.tables.table import Table
    from fallow.lake import Lake

ENGLISH = language("en")


@pytest.fixture(scope="module")
def week(full: Lake) -> Report:
    return report_of(full, "2026-W40")


def mark(section: Table | None, panel: int = 0) -> Any:
    """The first mark of a panel of the chart."""
    assert section is not None
    assert section.chart is not None
    return section.chart.panels[panel].marks[0]


def said(section: Table) -> list[list[str]]:
    """The cells of the table as text."""
    return [["-" if cell is None else ENGLISH.shown(cell) for cell in row] for row in section.cells]


def test_without_waste_the_waterfall_says_so(week: Report) -> None:
    busy = tuple(replace(step, gpu_ms=step.gpu_ms if step.state == "active" else 0.0) for step in week.ledger.steps)
    assert (
        waterfall(replace(week.ledger, steps=busy)).headline
        == "100.0 % of the paid GPU time was busy; no idle time was observed."
    )


def test_a_short_window_is_shown_by_the_hour(week: Report) -> None:
    totals = next(iter(week.breakdown.by["day"].values()))
    hours = {week.ledger.summary.since_ms + hour * HOUR_MS: totals for hour in range(48)}
    section = days(replace(week.breakdown, hours=hours))
    assert section.title == "GPU time by hour"
    assert len(section.rows) == 48


def test_an_off_peak_window_over_the_weeks_end_goes_on_on_monday(week: Report) -> None:
    section = off_peak((OffPeak("train", 6, 20, 30, 12, 4),), week.heading, week.ledger)
    assert section is not None
    spans = [(each.row, each.since, each.until, each.value) for each in mark(section).cells]
    assert spans == [(6, 20, 24, 12), (0, 0, 6, 12)]
    assert section.headline == "The largest off-peak window is 12 GPUs of train, Sun 20:00 to Mon 06:00."
    assert said(section) == [["train", "Sun 20:00", "Mon 06:00", "12", "4"]]


def strip(codes: NDArray[np.uint8], report: Report) -> Table:
    names = tuple(f"GPU-{row}" for row in range(len(codes)))
    since_ms, totals = report.ledger.summary.since_ms, report.timeline.totals[:1] * len(codes)
    return timeline(FleetTimeline(names, names, since_ms, 1_800_000, codes, totals))


def rgba(state: str) -> tuple[int, int, int, int]:
    red, green, blue = bytes.fromhex(LIGHT.state[state][1:])
    return red, green, blue, 255


def test_the_timelines_sums_are_those_of_the_ledger(week: Report) -> None:
    """A GPU that works an hour a day is no colour of a bin, and not unused all the time."""
    day_ms = 86_400_000
    spent = dict.fromkeys(STATES, 0) | {"held": 6 * day_ms, "active": day_ms}
    idle = Totals(1, dict.fromkeys(STATES, 0) | {"held": 7 * day_ms})
    codes = np.full((2, 7), STATES.index("held"), np.uint8)
    own = FleetTimeline(
        ("GPU-0", "GPU-1"), ("h", "h"), week.ledger.summary.since_ms, day_ms, codes, (Totals(1, spent), idle)
    )
    section = timeline(own)
    assert section.headline == "1 of 2 GPUs was never used; 92.9 % of all observed time was not used."
    assert [[str(cell) for cell in row[2:]] for row in section.cells] == [
        ["144.0", "85.7 %", "0.0 %"],
        ["168.0", "100.0 %", "0.0 %"],
    ]


def test_the_timeline_has_a_pixel_of_its_states_colour_for_every_gpu_and_bin() -> None:
    codes = np.array([[*range(len(STATES)), NOT_THERE], [STATES.index("active")] * (len(STATES) + 1)], np.uint8)
    image = Image.open(io.BytesIO(png(codes))).convert("RGBA")
    assert image.size == (len(STATES) + 1, 2)
    shown = [image.getpixel((x, 0)) for x in range(len(STATES) + 1)]
    assert shown[:-1] == [rgba(state) for state in STATES]
    assert shown[-1][3] == 0  # type: ignore[index]
    assert {image.getpixel((x, 1)) for x in range(len(STATES) + 1)} == {rgba("active")}


def test_a_large_fleets_rows_stand_for_most_of_their_gpus(week: Report) -> None:
    codes = np.full((5000, 336), STATES.index("active"), np.uint8)
    codes[:2500] = STATES.index("free")
    section = strip(codes, week)
    assert "One row per 20 GPUs" in drawing(section, ENGLISH)
    assert section.left_out == "and 4,988 more GPUs"
    assert MOST_ROWS == 250


def test_a_timeline_of_noise_is_made_coarser_until_it_fits(week: Report) -> None:
    codes = np.random.default_rng(2).integers(0, 7, (1000, 336), dtype=np.uint8)
    source = re.search(r"base64,([\w+/=]+)", str(drawing(strip(codes, week), ENGLISH)))
    assert source is not None
    assert len(source[1]) * 3 / 4 <= MOST_BYTES + 2

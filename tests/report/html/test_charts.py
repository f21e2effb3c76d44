"""The drawings: what is drawn is what is in the figures."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from analytics.render.html.charts.days import days
from analytics.render.html.charts.idle import idle
from analytics.render.html.charts.owners import owners
from analytics.render.html.charts.reclaim import reclaim
from analytics.render.html.charts.waterfall import waterfall
from analytics.render.html.states import LOOKS, ORDER
from PIL import Image

from analytics.capacity.off_peak import OffPeak
from analytics.language.languages import language
from analytics.language.plain_text import plain
from analytics.render.html.drawings import drawing
from analytics.render.html.film import MOST_BYTES, MOST_ROWS, film_strip, png
from analytics.report.figures import NOT_THERE, BackTest, Film, Reclaimable
from analytics.sections.off_peak import off_peak
from fallow.schema import STATES
from tests.report.html.reports import report_of

if TYPE_CHECKING:
    from analytics.render.html.chart import Chart
    from markupsafe import Markup
    from numpy.typing import NDArray

    from analytics.report.model import Report
    from fallow.lake import Lake

ENGLISH = language("en")


@pytest.fixture(scope="module")
def week(full: Lake) -> Report:
    return report_of(full, "2026-W40")


def bars(chart: Chart) -> list[dict[str, str]]:
    return rectangles(chart.drawing)


def rectangles(drawing: Markup) -> list[dict[str, str]]:
    """The rectangles that are drawn, without those of patterns."""
    drawn = re.sub(r"<defs>.*?</defs>", "", str(drawing), flags=re.DOTALL)
    return [dict(re.findall(r'([\w-]+)="([^"]*)"', each)) for each in re.findall(r"<rect [^>]*>", drawn)]


def test_the_waterfalls_steps_are_as_long_as_their_hours(week: Report) -> None:
    chart = waterfall(week, ENGLISH)
    total_ms = sum(step.gpu_ms for step in week.steps)
    paid, *steps = bars(chart)
    drawn = [step for step in week.steps if step.gpu_ms]
    for step, bar in zip(drawn, steps, strict=True):
        assert float(bar["width"]) == pytest.approx(float(paid["width"]) * step.gpu_ms / total_ms, abs=0.11)
    assert float(steps[-1]["x"]) == float(paid["x"])


def test_the_waterfall_has_the_ledgers_hours_and_cents(week: Report) -> None:
    rows = waterfall(week, ENGLISH).table.rows
    cents = [round(100 * float(str(row[3]).split("\N{NO-BREAK SPACE}")[0].replace(",", ""))) for row in rows]
    assert cents[0] == week.money.accounts.total.paid_cents == sum(cents[1:])
    assert [row[1] for row in rows[1:]] == [ENGLISH.hours(step.gpu_ms) for step in week.steps]


def test_each_days_column_holds_its_states(week: Report) -> None:
    chart = days(week, ENGLISH)
    columns = {bar["x"] for bar in bars(chart)}
    assert len(chart.table.rows) == len(columns) == 7
    heights = sum(float(bar["height"]) for bar in bars(chart))
    groups = week.groups["day"].values()
    most = max(each.total_ms for each in groups)
    assert heights == pytest.approx(256 * sum(each.total_ms for each in groups) / most, abs=3)


def test_idle_bars_never_grow_with_the_threshold(week: Report) -> None:
    widths = [float(bar["width"]) for bar in bars(idle(week, ENGLISH))]
    held, zero = widths[:4], widths[4:]
    assert held == sorted(held, reverse=True)
    assert zero == sorted(zero, reverse=True)
    assert len(zero) == 5


def test_reclaimable_shows_interval_blocks_and_back_test(week: Report) -> None:
    spare = Reclaimable(
        "train", "NVIDIA H100", 24.0, 3, 4, 6, {1: 4, 2: 4, 4: 4, 8: 0}, 28.0, BackTest(0, 1, 4, 168, 3)
    )
    chart = reclaim(replace(week, reclaimable=(spare, replace(spare, pool="old", back_test=None))), ENGLISH)
    assert chart.finding == (
        "8 GPUs can go with the reserve kept, counted over 2 groups of pool and model, each with its own interval. "
        "In whole blocks of eight: 0."
    )
    assert "4 [3, 6]" in chart.drawing
    assert [plain(str(cell)) for cell in chart.table.rows[0][1:]] == [
        "24", "3", "4", "6", "4", "4", "4", "0", "would have left too few in 3 hours of 168",
    ]  # fmt: skip
    assert chart.table.rows[1][-1] == "not enough history"


def test_what_can_go_is_said_with_the_reserve_and_the_interval_of_its_own(week: Report) -> None:
    spare = Reclaimable("train", "NVIDIA H100", 24.0, 3, 4, 6, {1: 4, 2: 4, 4: 4, 8: 0}, 28.0, None)
    for code, said in (
        ("en", "4 GPUs of train can go with the reserve kept, by the interval 3 to 6. In whole blocks of eight: 0."),
        ("fr", "4 GPU de train peuvent partir, réserve gardée ; intervalle : de 3 à 6. Par blocs entiers de huit : 0."),
    ):
        found = reclaim(replace(week, reclaimable=(spare,)), language(code)).finding
        assert " ".join(found.replace("\u2068", "").replace("\u2069", "").split()) == said
    one, none = (replace(spare, low=0, point=most, high=most) for most in (1, 0))
    assert reclaim(replace(week, reclaimable=(one,)), language("fr")).finding.startswith("1 GPU de ")
    assert " peut partir" in reclaim(replace(week, reclaimable=(one,)), language("fr")).finding
    assert reclaim(replace(week, reclaimable=(none,)), ENGLISH).finding == "No GPU can go with the reserve kept."


def test_without_history_nothing_is_said_to_be_reclaimable(week: Report) -> None:
    chart = reclaim(replace(week, reclaimable=()), ENGLISH)
    assert (chart.drawing, chart.table.rows) == ("", ())
    assert chart.finding == (
        "No pool is known to have GPUs to spare: all of them were needed at once, or the history is too short."
    )


def test_an_off_peak_window_over_the_weeks_end_goes_on_on_monday(week: Report) -> None:
    section = off_peak(replace(week, off_peak=(OffPeak("train", 6, 20, 30, 12, 4),)))
    assert section is not None
    rows = [(bar["x"], bar["y"], bar["width"]) for bar in rectangles(drawing(section, ENGLISH))[7:]]
    assert rows == [("322.5", "149", "57"), ("32.5", "35", "86")]
    assert section.headline == "The widest window: 12 GPUs of train, Sun 20:00 to Mon 06:00."
    assert [str(cell) for cell in section.rows[0]] == ["train", "Sun 20:00", "Mon 06:00", "12", "4"]


def test_owners_are_ranked_by_the_time_that_they_were_given(week: Report) -> None:
    chart = owners(week, ENGLISH)[-1]
    ranks = [row[0] for row in chart.table.rows if row[0]]
    assert ranks == [str(number + 1) for number in range(len(ranks))]
    assert len(chart.table.rows) == len(week.holders)


def film(codes: NDArray[np.uint8], report: Report) -> Report:
    names = tuple(f"GPU-{row}" for row in range(len(codes)))
    return replace(report, film=Film(names, names, report.summary.since_ms, 1_800_000, codes))


def test_the_film_has_a_pixel_of_its_states_colour_for_every_gpu_and_bin() -> None:
    codes = np.array([[*range(len(STATES)), NOT_THERE], [6] * 8], np.uint8)
    image = Image.open(io.BytesIO(png(codes))).convert("RGBA")
    assert image.size == (8, 2)
    shown = [image.getpixel((x, 0)) for x in range(8)]
    assert shown[:-1] == [LOOKS[state].rgba for state in STATES]
    assert shown[-1][3] == 0  # type: ignore[index]
    assert {image.getpixel((x, 1)) for x in range(8)} == {LOOKS["active"].rgba}


def test_a_large_fleets_rows_stand_for_most_of_their_gpus(week: Report) -> None:
    codes = np.full((5000, 336), STATES.index("active"), np.uint8)
    codes[:2500] = STATES.index("free")
    chart = film_strip(film(codes, week), ENGLISH)
    assert "A row per 20 GPUs" in chart.note
    assert chart.finding.startswith("2,500 GPUs of 5,000 went unused all the time; 50.0")
    assert chart.table.rest == "and 4,988 more GPUs"
    assert MOST_ROWS == 250


def test_a_film_of_noise_is_made_coarser_until_it_fits(week: Report) -> None:
    codes = np.random.default_rng(2).integers(0, 7, (1000, 336), dtype=np.uint8)
    chart = film_strip(film(codes, week), ENGLISH)
    source = re.search(r"base64,([\w+/=]+)", str(chart.drawing))
    assert source is not None
    assert len(source[1]) * 3 / 4 <= MOST_BYTES + 2


def test_states_differ_in_lightness_or_pattern_and_not_in_hue_alone() -> None:
    seen = set()
    for state in ORDER:
        red, green, blue, opacity = LOOKS[state].rgba
        light = sum(
            weight * (255 + (part - 255) * opacity / 255)
            for weight, part in zip((0.299, 0.587, 0.114), (red, green, blue), strict=True)
        )
        seen.add((round(light / 20), LOOKS[state].lines))
    assert len(seen) == len(ORDER)

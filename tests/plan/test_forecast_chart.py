"""The fan as it is drawn: the same points in SVG and in Plotly, and no mark on each of two hundred days."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import numpy as np
import pytest

from analytics.language.languages import language
from analytics.plan.forecast import outlooks
from analytics.render.html.lines import line_panels
from analytics.tables.line_chart import LineBand, LineChart, LinePanel
from analytics.tables.palette import LIGHT
from analytics.tables.plan_forecast import demand_chart
from dashboard.render.lines import lines_figure
from dashboard.render.page_figures import chart_legend
from tests.plan.test_forecast import GAP, growing, series


class Reader:
    """As much of a view as a figure asks for."""

    language = language("en")
    zone = UTC

    def translate(self, text: str) -> str:
        return self.language.translate(text)


@pytest.fixture
def chart() -> LineChart:
    gpus = growing(6, noise=1.0)
    gpus[20] = GAP
    found = demand_chart(outlooks([series(gpus, capacity=40)], 28, 84), 6)
    assert found is not None
    return found


def test_days_that_were_and_days_to_come_stand_on_one_axis(chart: LineChart) -> None:
    [panel] = chart.panels
    measured, ahead = panel.lines
    assert len(chart.names) == len(measured.values) == len(ahead.values) == 42 + 28
    assert measured.values[20] is None
    assert all(each is None for each in (*measured.values[42:], *ahead.values[:42]))
    assert not chart.is_dotted
    widths = [[high - low for _, low, high in band.edges] for band in panel.bands]
    assert [len(each) for each in widths] == [28, 28, 28]
    assert np.all(np.diff(np.array(widths), axis=0) <= 0)  # the wider ones below
    assert panel.ticks[-1] >= max(high for _, _, high in panel.bands[0].edges)
    assert str(chart.short[0]) == "3 Aug"


def test_both_renderers_draw_the_bands(chart: LineChart) -> None:
    drawn = "".join(line_panels(chart, language("en")))
    assert drawn.count('fill-opacity=".2"') == 3
    assert "stroke-linecap" not in drawn
    reader: Any = Reader()
    figure, _ = lines_figure(reader, LIGHT, chart)
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    highs = [high for _, _, high in chart.panels[0].bands[0].edges]
    assert [len(trace.x) for trace in bands] == [2 * 28] * 3
    assert list(bands[0].y[:28]) == highs
    assert {trace.mode for trace in figure.data} == {"lines"}


def test_a_band_may_have_gaps_and_alone_makes_the_axis() -> None:
    band = LineBand("", "held", (None, 1.0, 2.0), (None, 3.0, 40.0))
    assert band.edges == ((1, 1.0, 3.0), (2, 2.0, 40.0))
    assert LinePanel("", "count", (), bands=(band,)).ticks == (0.0, 20.0, 40.0)


def test_without_a_forecast_there_is_no_chart() -> None:
    assert demand_chart(outlooks([series(growing(1))], 28, 84), 6) is None
    assert demand_chart(outlooks([series(growing(6))], 28, 84), 0) is None


def test_the_legend_names_each_line_once_whatever_the_number_of_panels() -> None:
    found = demand_chart(outlooks([series(growing(6)), series(growing(7))], 28, 84), 6)
    assert found is not None
    reader: Any = Reader()
    [legend] = chart_legend(reader, LIGHT, found)
    shown = str(legend.to_plotly_json())
    assert len(found.panels) == 2
    assert shown.count("llocated or in use") == shown.count("orecast") == 1
    assert "95 % band, 80 % band, 50 % band" in shown

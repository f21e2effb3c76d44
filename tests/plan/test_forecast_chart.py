"""The fan as it is drawn: its bands in both drawings, and no mark on each of two hundred days."""

from __future__ import annotations

import numpy as np
import pytest

from analytics.plan.forecast import outlooks
from analytics.tables.chart import Band, Chart, ChartPlace, Line, Panel, signs
from analytics.tables.plan_forecast import demand_chart
from tests.drawn_charts import as_table, assert_drawn
from tests.plan.test_forecast import GAP, growing, series


@pytest.fixture
def chart() -> Chart:
    gpus = growing(6, noise=1.0)
    gpus[20] = GAP
    found = demand_chart(outlooks([series(gpus, capacity=40)], 28, 84), 6)
    assert found is not None
    return found


def test_days_that_were_and_days_to_come_stand_on_one_axis(chart: Chart) -> None:
    [panel] = chart.panels
    measured, ahead = (each for each in panel.marks if isinstance(each, Line))
    assert len(panel.places) == len(measured.values) == len(ahead.values) == 42 + 28
    assert measured.values[20] is None
    assert all(each is None for each in (*measured.values[42:], *ahead.values[:42]))
    assert not panel.is_dotted
    bands = [each for each in panel.marks if isinstance(each, Band)]
    widths = [[high - low for (_, low), (_, high) in zip(each.low, each.high, strict=True)] for each in bands]
    assert [len(each) for each in widths] == [28, 28, 28]
    assert [at for at, _ in bands[0].low] == list(range(42, 70))
    assert np.all(np.diff(np.array(widths), axis=0) <= 0)  # the wider ones below
    assert panel.ticks[-1] >= max(high for _, high in bands[0].high)
    assert str(panel.places[0].short) == "3 Aug"


def test_both_drawings_have_the_bands(chart: Chart) -> None:
    assert_drawn(as_table(chart))


def test_a_band_alone_makes_the_axis() -> None:
    band = Band("", "held", ((1, 1.0), (2, 2.0)), ((1, 3.0), (2, 40.0)))
    places = tuple(ChartPlace(name) for name in "abc")
    assert Panel("", (band, Line("", "held", (None,) * 3)), places).ticks == (0.0, 20.0, 40.0)


def test_without_a_forecast_there_is_no_chart() -> None:
    assert demand_chart(outlooks([series(growing(1))], 28, 84), 6) is None
    assert demand_chart(outlooks([series(growing(6))], 28, 84), 0) is None


def test_the_legend_names_each_line_once_whatever_the_number_of_panels() -> None:
    found = demand_chart(outlooks([series(growing(6)), series(growing(7))], 28, 84), 6)
    assert found is not None
    assert len(found.panels) == 2
    assert [str(words) for _, _, words in signs(found)] == [
        "95 % band, 80 % band, 50 % band", "allocated or in use", "forecast"
    ]  # fmt: skip

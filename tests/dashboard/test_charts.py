"""The drawing of a chart carries its numbers: of every table of the report, the pages and the plan."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from html import unescape
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from analytics.commands import table_verb
from analytics.language.sentences import Share
from analytics.render.html.charts import drawing, picture
from analytics.report.timeline import FleetTimeline
from analytics.tables.chart import (
    Band,
    Bars,
    Cells,
    Chart,
    ChartPlace,
    Dots,
    GpuTimeline,
    GridCell,
    Level,
    Line,
    Panel,
    signs,
    stacked,
)
from analytics.tables.palette import LIGHT
from analytics.tables.report_sections import chapters
from analytics.tables.table import Table
from dashboard.pages import PAGES
from dashboard.render import panel as panels
from dashboard.render.charts import chart_drawings
from fallow.cli import main
from tests.dashboard.sites import WEEK, WINDOW, Site
from tests.drawn_charts import ENGLISH, as_table, assert_drawn, in_svg

PLACES = tuple(ChartPlace(name, figure=f"figure {name}") for name in "abcd")

EXAMPLES = {
    "stacked bars with a gap": Panel(
        "GPUs",
        stacked((Bars("x", "held", (1.0, None, 3.0, 0.0)),
                 Bars("y", "free", (2.0, 5.0, 0.5, 1.0), shown=("two", "five", "half", "one")))),
        PLACES,
    ),
    "bars over bars": Panel(
        "", (Bars("x", "free", (0.5, 1.0, None, 0.0)), Bars("y", "active", (0.25, 1.0, None, 0.1)),
             Bars("z", "unknown", (0.25, 0.0, None, 0.2), (0.25, 1.0, 0.0, 0.1))),
        PLACES, kind="share", ceiling=1.0,
    ),
    "rows from a base": Panel(
        "", (Bars("", ("muted", "held", "held", "active"), (10.0, 4.0, 1.0, 5.0), (0.0, 6.0, 5.0, 0.0)),),
        PLACES, lying=True,
    ),
    "rows of which one is not known": Panel(
        "title", (Bars("", "free", (0.9, None, 0.4, 0.1)),), PLACES, lying=True, ceiling=1.0,
    ),
    "estimates in a whole": Panel(
        "", (Bars("", "muted", (9.0, 8.0)), Bars("", "soft", (2.0, None), (1.0, 0.0)),
             Dots("", "mark", "tick", (0, 1), (2.0, 3.0))),
        (ChartPlace("a long name that stands above its bar", figure="2 [1, 3]", detail="of 9"),
         ChartPlace("b", figure="3 [not known]")), lying=True,
    ),
    "lines with gaps, hollow points and a level": Panel(
        "a", (Level("goal", "held", 4.0), Line("x", "held", (1.0, None, 3.0, 2.0)),
              Line("y", "muted", (None, 5.0, 5.5, 0.0), dashed=True)),
        (*PLACES[:3], ChartPlace("d", is_whole=False)),
    ),
    "dots on a line over places": Panel(
        "a", (Line("x", "mark", (3.0, 2.0, 1.0, 0.5)), Dots("today", "active", "circle", (1.0,), (2.0,)),
              Dots("then", "held", "diamond", (3.0,), (0.7,))), PLACES,
    ),
    "a line of many points in a band": Panel(
        "a", (Band("z", "held", tuple((each, 1.0) for each in range(80)),
                   tuple((each, 3.0 + each / 40) for each in range(80))), Line("x", "held", (2.0,) * 80)),
        tuple(ChartPlace(str(each)) for each in range(80)),
    ),
    "steps over percentages": Panel(
        "a", (
            Band("z", "unknown", ((0.0, 4.0), (50.0, 4.0), (100.0, 1.0)), ((0.0, 5.0), (70.0, 5.0), (100.0, 2.0)),
                 stepped=True),
            Line("x", "active", (4.0, 4.0, 1.0), (0.0, 50.0, 100.0), stepped=True), Level("all", "muted", 5.0),
        ),
    ),
    "marks of several sizes and shapes": Panel(
        "GiB", tuple(
            Dots(shape, "held", shape, (10.0, 90.0), (5.0, 70.0), (1.0, 9.0), (("said",), ("more",)),
                 is_hollow=shape == "star")
            for shape in ("circle", "diamond", "triangle", "star", "square")
        ), unit="GiB",
    ),
    "a grid of spans": Panel(
        "a", (Cells("soft", ("Mon", "Tue"), (GridCell(0, 1, 4, 7, "7"), GridCell(1, 0, 1, 3, "3")), "GPU"),), PLACES,
    ),
    "a shaded grid": Panel(
        "", (Cells("held", ("Mon", "Tue"), (GridCell(0, 1, 2, 0.3, "30"), GridCell(1, 0, 1, 1.0, "100")), "%",
                   most=1.0),), PLACES,
    ),
    "every GPU over time": Panel(
        "", (GpuTimeline(FleetTimeline(("a",), ("h",), 0, 3_600_000, np.zeros((1, 3), np.uint8), ())),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("panel", EXAMPLES.values(), ids=EXAMPLES)
def test_the_drawing_of_every_kind_of_mark_carries_its_numbers(panel: Panel) -> None:
    assert_drawn(as_table(Chart((panel,))))
    assert_drawn(
        as_table(Chart((panel, panel), across="what places are", annotations=(0, None) if panel.places else ()))
    )


def test_every_chart_of_the_report_is_drawn_alike(planned: Site) -> None:
    report = planned.view(WEEK).report
    drawn = [each for _, sections in chapters(report) for each in sections if each.chart is not None]
    assert {"waterfall", "days", "timeline"} <= {each.name for each in drawn}
    for table in drawn:
        assert_drawn(table)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.path in ("/", "/capacity", "/right-size", "/timeline")],
    ids=lambda page: page.path,
)
def test_every_chart_of_the_pages_is_drawn_alike(page: Any, planned: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    charts: list[Chart] = []
    draw: Callable[..., Any] = panels.chart_drawings

    def drawn(view: Any, section: Table, chart: Chart, *, wide: bool) -> Any:
        charts.append(chart)
        return draw(view, section, chart, wide=wide)

    monkeypatch.setattr(panels, "chart_drawings", drawn)
    page.content(planned.view(WEEK), LIGHT)
    assert charts
    for chart in charts:
        assert_drawn(as_table(chart))


@pytest.mark.parametrize("verb", ["queue", "forecast", "carbon", "purchase", "scenarios"])
def test_every_chart_of_the_plan_is_drawn_alike(verb: str, planned: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    tables: list[Table] = []
    monkeypatch.setattr(
        table_verb,
        "document",
        lambda answer, *_, **__: tables.extend(answer.for_people) or b"",  # type: ignore[func-returns-value]
    )
    with redirect_stdout(io.TextIOWrapper(io.BytesIO())):
        main(["plan", verb, "--config", str(planned.config), *WINDOW])
    assert tables
    for table in tables:
        if table.chart is not None:
            assert_drawn(table)
            places = [place.short for panel in table.chart.panels for place in panel.places]
            assert table.chart.across or not any(isinstance(each, Share) for each in places), "shares of what?"


def test_levels_are_named_at_both_sides_in_turn() -> None:
    levels = tuple(Level(f"{size} GiB", "muted", size) for size in (40, 44, 80))
    svg = in_svg(as_table(Chart((Panel("", levels),))))
    named = [(each.text, each.get("text-anchor")) for each in svg.iter("text") if "GiB" in (each.text or "")]
    assert named == [("40 GiB", None), ("44 GiB", "end"), ("80 GiB", None)]


def test_hatching_comes_from_the_palette() -> None:
    chart = Chart((Panel("", (Bars("", ("held", "free"), (1.0, 2.0)),), PLACES[:2], lying=True),))
    drawn = drawing(as_table(chart), ENGLISH)
    assert 'fill="url(#drawn-held)"' in drawn
    assert 'class="s-free"' in drawn


def test_a_legend_names_each_sign_once_and_no_state_that_has_its_own() -> None:
    panel = Panel(
        "", (Line("a", "held", (1.0,)), Line("b", "held", (2.0,)), Line("c", "muted", (1.0,), dashed=True)), PLACES[:1]
    )
    assert signs(Chart((panel, panel))) == [("━━", "held", "a, b"), ("╍╍", "muted", "c")]
    assert signs(Chart((panel,)), known=("held",)) == [("╍╍", "muted", "c")]
    assert "━━</i> a, b</li>" in drawing(as_table(Chart((panel,))), ENGLISH)


def test_a_value_between_two_gaps_is_drawn_where_there_are_too_many_for_dots() -> None:
    values = (1.0, 2.0, None, 3.0, None, *(2.0,) * 70)
    places = tuple(ChartPlace(str(each)) for each in range(len(values)))
    chart = Chart((Panel("a", (Line("x", "held", values),), places),))
    [group] = (each for each in in_svg(as_table(chart)).iter("g") if each.get("class") == "d")
    whole = Chart((Panel("a", (Line("x", "held", (2.0,) * 70),), places[:70]),))
    [without] = (each for each in in_svg(as_table(whole)).iter("g") if each.get("class") == "d")
    assert len(list(group.iter())) == len(list(without.iter())) + 2  # a second run of the line, and the dot


def test_the_pointer_finds_the_value_of_each_place_and_no_sum_of_two_bars() -> None:
    bars = (Bars("used", "active", (0.28, None)), Bars("not known", "unknown", (0.12, 0.4), (0.28, 0.0)))
    assert hints(Panel("", bars, PLACES[:2], "share")) == ["a\nused: 28.0 %\nnot known: 12.0 %", "b\nnot known: 40.0 %"]


def test_the_pointer_finds_a_row_a_cell_a_step_and_a_dot() -> None:
    assert hints(Panel("", (Bars("", "free", (9.0,)),), PLACES[:1], lying=True)) == ["a\nfigure a"]
    assert hints(EXAMPLES["a shaded grid"]) == ["Mon b: 30 %", "Tue a: 100 %"]
    steps = Line("x", "active", (4.0, 1.0), (50.0, 100.0), stepped=True)
    assert hints(Panel("GPUs", (steps,), unit="GPUs")) == ["50.0 %\nx: 4.0 GPUs", "100.0 %\nx: 1.0 GPUs"]
    assert hints(EXAMPLES["marks of several sizes and shapes"])[0] == "said\n5.0 GiB\n10.0 %\ncircle"


def test_a_page_has_a_drawing_for_each_width_and_ids_that_differ() -> None:
    chart = Chart((Panel("", (Bars("", ("held", "free"), (1.0, 2.0)),), PLACES[:2], lying=True),))
    view: Any = SimpleNamespace(language=ENGLISH)
    shown = chart_drawings(view, as_table(chart), chart, wide=True)
    drawings = [getattr(each, "data-drawing") for each in shown.children]
    ids = [re.findall(r'pattern id="([^"]+)"', each) for each in drawings]
    assert [len(each) for each in ids] == [1, 1, 1]
    assert len({each for own in ids for each in own}) == 3
    assert all("aria-hidden" in each for each in drawings)
    assert len(chart_drawings(view, as_table(chart), chart, wide=False).children) == 2


def hints(panel: Panel) -> list[str]:
    """What the pointer shows, place after place."""
    shapes = picture(as_table(Chart((panel,))), Chart((panel,)), ENGLISH, on_page=True).shapes
    return [unescape(each).replace("\N{NO-BREAK SPACE}", " ") for each in re.findall(r'data-tip="([^"]*)"', shapes)]

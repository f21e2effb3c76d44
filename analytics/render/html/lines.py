"""Lines over weeks as SVG: panels below one another on the same weeks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from markupsafe import Markup

from analytics.language.language import Language
from analytics.render.html import svg
from analytics.tables.line_chart import GoalLine, Line, LineBand, LineChart, LinePanel
from analytics.tables.palette import LIGHT

_LEFT, _RIGHT, _HEAD, _HIGH, _APART, _FOOT = 50.0, 14.0, 24.0, 78.0, 14.0, 22.0
_MOST_LABELS = 7
_SIGN, _LETTER = 28.0, 5.8
"""How wide a sign of the legend is, and a letter beside it."""


def lines_height(chart: LineChart) -> float:
    """How high the whole drawing is."""
    return (_HEAD + _HIGH + _APART) * len(chart.panels) + _FOOT


def line_panels(chart: LineChart, language: Language) -> Iterator[Markup]:
    """The panels, and below the last one the weeks."""
    pitch = (svg.WIDTH - _LEFT - _RIGHT) / max(1, len(chart.names) - 1)
    xs = [_LEFT + place * pitch for place in range(len(chart.names))]
    top = 0.0
    for panel in chart.panels:
        yield from _panel(chart, panel, xs, top, language)
        top += _HEAD + _HIGH + _APART
    every = -(-len(xs) // _MOST_LABELS)
    shown = [place for place in range(len(xs)) if (len(xs) - 1 - place) % every == 0]
    yield svg.labels(((xs[place], top + 2, language.shown(chart.short[place])) for place in shown), "middle")


def _panel(chart: LineChart, panel: LinePanel, xs: list[float], top: float, language: Language) -> Iterator[Markup]:
    bottom = top + _HEAD + _HIGH
    scale = _HIGH / panel.ticks[-1]
    yield svg.text(0, top + 10, language.translate(panel.title), kind="m")
    ys = [bottom - tick * scale for tick in panel.ticks]
    words = [_tick(panel, tick, language) for tick in panel.ticks]
    yield svg.levels(_LEFT, ys)
    yield svg.labels(((_LEFT - 6, y + 4, each) for y, each in zip(ys, words, strict=True)), "end")
    yield from _legend(panel, top, language)
    for band in panel.bands:
        yield _band(band, xs, bottom, scale)
    for goal in panel.goals:
        yield from _goal(goal, bottom - goal.level * scale, language)
    for line in panel.lines:
        yield from _line(chart, line, [(x, bottom - (value or 0.0) * scale) for x, value in zip(xs, line.values, strict=True)])  # fmt: skip


def _legend(panel: LinePanel, top: float, language: Language) -> Iterator[Markup]:
    """At the right of the title; a panel with one line is named by its title."""
    words = [language.translate(line.name) for line in panel.lines]
    x = svg.WIDTH - sum(_SIGN + _LETTER * len(each) for each in words)
    for line, each in zip(panel.lines, words, strict=True) if len(words) > 1 else ():
        yield svg.curve([(x, top + 6.5), (x + 16, top + 6.5)], _stroke(line.state))
        yield svg.text(x + 20, top + 10, each, kind="m")
        x += _SIGN + _LETTER * len(each)


def _line(chart: LineChart, line: Line, points: list[tuple[float, float]]) -> Iterator[Markup]:
    """Runs of whole weeks joined; every known week has its mark."""
    known = [value is not None for value in line.values]
    whole = [there and is_whole for there, is_whole in zip(known, chart.whole, strict=True)]
    look, shapes = _stroke(line.state), list[Markup]()
    colour = {name: look.pop(name) for name in ("class", "stroke")}
    for joined, run in groupby(zip(points, whole, strict=True), lambda each: each[1]):
        if joined and len(own := [point for point, _ in run]) > 1:
            shapes.append(svg.curve(own, look))
    if chart.is_dotted:
        shapes.append(svg.dots(point for point, each in zip(points, whole, strict=True) if each))
    shapes += [svg.ring(*point) for point, there, each in zip(points, known, whole, strict=True) if there and not each]
    yield svg.group(shapes, colour)


def _band(band: LineBand, xs: list[float], bottom: float, scale: float) -> Markup:
    upper = [(xs[place], bottom - high * scale) for place, _, high in band.edges]
    lower = [(xs[place], bottom - low * scale) for place, low, _ in reversed(band.edges)]
    return svg.area([*upper, *lower], svg.state(band.state) | {"fill-opacity": ".2"})


def _goal(goal: GoalLine, y: float, language: Language) -> Iterator[Markup]:
    yield svg.curve(
        [(_LEFT, y), (svg.WIDTH, y)], _stroke(goal.state) | {"stroke-dasharray": "1 4", "stroke-width": "1.6"}
    )
    yield svg.text(_LEFT + 4, y - 4 if goal.is_reached else y + 11, language.translate(goal.name), kind="m")


def _stroke(state: str) -> dict[str, str]:
    if not state:
        return {"class": "l-whole", "stroke": LIGHT.muted, "stroke-width": "1.4", "stroke-dasharray": "5 3"}
    return {"class": f"l-{state}", "stroke": LIGHT.state[state], "stroke-width": "1.8"}


def _tick(panel: LinePanel, value: float, language: Language) -> str:
    return language.percent(value, panel.digits) if panel.unit == "share" else language.number(value, panel.digits)

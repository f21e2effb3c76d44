"""Charts as SVG: each encoding of `analytics.tables.table` has one drawing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from markupsafe import Markup

from analytics.language.language import Language
from analytics.language.quantities import Quantity
from analytics.language.sentences import tr
from analytics.render.html import svg
from analytics.render.html.film import film_strip
from analytics.render.html.lines import line_panels, lines_height
from analytics.tables.line_chart import LineChart
from analytics.tables.palette import LIGHT, ORDER
from analytics.tables.table import Cell, FilmStrip, Intervals, RankedBars, StackedBars, Table, Waterfall, WeekGrid


def drawing(section: Table, language: Language) -> Markup:
    """The section's chart with its title and headline as its name; nothing where it has none."""
    chart, key = section.chart, section.name
    name = language.translate(tr("{label}: {value}", label=section.title, value=section.headline))
    if isinstance(chart, FilmStrip):
        return film_strip(chart.film, name, language)
    height: float = 0
    parts: Iterable[Markup] = ()
    match chart:
        case Waterfall():
            height, parts = _STEP * len(chart.steps), _waterfall(chart, key, language)
        case StackedBars():
            height, parts = _BOTTOM + 24, _stacked(chart, key, language)
        case RankedBars():
            height, parts = _ranked_height(chart), _ranked(chart, key, language)
        case Intervals():
            height, parts = _INTERVAL * len(chart.rows), _intervals(chart, language)
        case WeekGrid():
            height, parts = _GRID * len(chart.grids) - 14, _grids(chart, language)
        case LineChart():
            height, parts = lines_height(chart), line_panels(chart, language)
    return svg.drawing(height, parts, name) if height else Markup()


def _words(cell: Cell, language: Language) -> str:
    """A cell as text in a drawing."""
    if cell is None:
        return ""
    return cell.shown(language) if isinstance(cell, Quantity) else language.shown(cell)


_STEP, _BAR, _FROM, _TO = 37.0, 18.0, 84.0, 270.0


def _waterfall(chart: Waterfall, key: str, language: Language) -> Iterator[Markup]:
    yield svg.hatching(key, (step.state for step in chart.steps if step.length))
    most = max((step.length for step in chart.steps), default=0.0)
    scale = (_TO - _FROM) / most if most else 0.0
    for place, step in enumerate(chart.steps):
        y, bold = place * _STEP, "b" if step.remark or not step.state else ""
        yield svg.text(0, y + 13, language.translate(step.label), kind=bold)
        if step.remark:
            yield svg.text(0, y + 26, language.translate(step.remark), kind="m")
        x, width = _FROM + step.start * scale, step.length * scale
        if step.state:
            yield svg.line(x + width, y - _STEP + _BAR, x + width, y)
        yield svg.rect(
            x, y, width, _BAR, svg.state(step.state, key) if step.state else {"class": "m", "fill": LIGHT.muted}
        )
        yield svg.text(svg.WIDTH, y + 10, _words(step.figure, language), anchor="end", kind="" if step.state else "b")
        if step.detail:
            yield svg.text(svg.WIDTH, y + 23, _words(step.detail, language), anchor="end", kind="m")


_TOP, _BOTTOM, _LEFT = 14.0, 270.0, 42.0


def _stacked(chart: StackedBars, key: str, language: Language) -> Iterator[Markup]:
    sums = [sum(column) for column in zip(*chart.values.values(), strict=True)]
    most = max(sums, default=0.0)
    if not most:
        return
    yield svg.hatching(key, (state for state in ORDER if any(chart.values[state])))
    scale = (_BOTTOM - _TOP) / most
    ticks = [(_BOTTOM - part * most * scale, language.number(part * most)) for part in (0.0, 0.5, 1.0)]
    yield svg.levels(_LEFT, (y for y, _ in ticks))
    yield svg.labels(((_LEFT - 6, y + 4, words) for y, words in ticks), "end")
    pitch = (svg.WIDTH - _LEFT) / len(sums)
    width = min(pitch * 0.82, 56.0)
    every = -(-len(sums) // 8)
    xs = [_LEFT + place * pitch + (pitch - width) / 2 for place in range(len(sums))]
    tops = [_BOTTOM] * len(sums)
    for state in ORDER:
        heights = [value * scale for value in chart.values[state]]
        tops = [top - height for top, height in zip(tops, heights, strict=True)]
        yield svg.columns(zip(xs, tops, heights, strict=True), width, svg.state(state, key))
    named = (
        (x + width / 2, _BOTTOM + 16, _words(short, language))
        for x, short in list(zip(xs, chart.short, strict=True))[::every]
    )
    yield svg.labels(named, "middle")


_ROW, _THICK, _LABEL, _END, _HEAD = 25.0, 15.0, 92.0, 310.0, 27.0
_LETTER = 6.6
"""How wide a letter of a label is, in the mean."""


def _ranked_height(chart: RankedBars) -> float:
    return sum(_HEAD + _ROW * len(bars) for _, _, bars in chart.groups)


def _ranked(chart: RankedBars, key: str, language: Language) -> Iterator[Markup]:
    yield svg.hatching(key, {state: None for _, state, _ in chart.groups})
    longest = max((len(language.shown(bar.label)) for _, _, bars in chart.groups for bar in bars), default=0)
    top, left = 0.0, max(_LABEL, _LETTER * longest)
    for title, state, bars in chart.groups:
        yield svg.text(0, top + 13, language.translate(title), kind="m")
        for place, bar in enumerate(bars):
            y = top + _HEAD - 5 + place * _ROW
            yield svg.text(0, y + 12, language.shown(bar.label))
            yield svg.rect(left, y, (_END - left) * (bar.length or 0.0), _THICK, svg.state(state, key))
            yield svg.text(svg.WIDTH, y + 12, _words(bar.figure, language), anchor="end")
        top += _HEAD + _ROW * len(bars)


_INTERVAL, _SPAN = 54.0, 296.0


def _intervals(chart: Intervals, language: Language) -> Iterator[Markup]:
    most = max(each.whole for each in chart.rows) or 1
    for place, each in enumerate(chart.rows):
        y, scale = place * _INTERVAL, _SPAN / most
        yield svg.text(0, y + 12, svg.name(language.shown(each.name), 46))
        yield svg.rect(4, y + 20, each.whole * scale, 10, {"class": "c-whole", "fill": LIGHT.whole})
        if each.low is not None and each.high is not None:
            yield svg.rect(4 + each.low * scale, y + 20, (each.high - each.low) * scale, 10, {"class": "c-soft", "fill": LIGHT.soft})  # fmt: skip
        yield svg.rect(2 + each.point * scale, y + 16, 4, 18, {"class": "c-mark", "fill": LIGHT.mark})
        yield svg.text(svg.WIDTH, y + 30, language.shown(each.figure), anchor="end", kind="b")
        yield svg.text(4, y + 45, language.shown(each.detail), kind="m")


_MARGIN, _DAY, _HOURS = 32.0, 19.0, 34.0
_HOUR = (svg.WIDTH - _MARGIN) / 24
_GRID = _HOURS + 7 * _DAY + 22


def _grids(chart: WeekGrid, language: Language) -> Iterator[Markup]:
    for place, (name, spans) in enumerate(chart.grids):
        top = place * _GRID
        yield svg.text(0, top + 12, svg.name(language.shown(name), 40), kind="b")
        for hour in range(0, 25, 6):
            x = _MARGIN + hour * _HOUR
            anchor = {0: "start", 24: "end"}.get(hour, "middle")
            yield svg.text(x, top + 28, f"{hour:02}", anchor=anchor, kind="m")
            yield svg.line(x, top + _HOURS, x, top + _HOURS + 7 * _DAY)
        for day in range(7):
            y = top + _HOURS + day * _DAY
            yield svg.text(0, y + 13, language.weekday(day), kind="m")
            yield svg.rect(_MARGIN, y + 1, 24 * _HOUR, _DAY - 2, {"class": "g", "fill": LIGHT.grid})
        for span in spans:
            label, y = language.number(span.value), top + _HOURS + span.weekday * _DAY
            x, width = _MARGIN + span.from_hour * _HOUR, (span.until_hour - span.from_hour) * _HOUR
            yield svg.rect(x + 0.5, y + 1, width - 1, _DAY - 2, {"class": "c-soft", "fill": LIGHT.soft})
            if width >= 8 * len(label):
                yield svg.text(x + width / 2, y + 13.5, label, anchor="middle")

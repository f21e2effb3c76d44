"""When are GPUs not needed? A grid of the hours of the week for each pool."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from markupsafe import Markup

from analytics.language.quantities import Number
from analytics.language.sentences import say
from analytics.render.html import svg
from analytics.render.html.cells import bdi, labelled
from analytics.render.html.chart import Chart, Table
from analytics.render.wording import placed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analytics.capacity.off_peak import OffPeak
    from analytics.language.languages import Language
    from analytics.report.model import Report

_KEY = "p"
_MOST = 4
_LEFT, _ROW, _HEAD = 32.0, 19.0, 34.0
_HOUR = (svg.WIDTH - _LEFT) / 24
_POOL = _HEAD + 7 * _ROW + 22


def off_peak(report: Report, language: Language) -> Chart:
    """Windows of the week in which a pool's GPUs were not needed in nine weeks of ten."""
    found = report.off_peak
    pools = [(pool, tuple(own)) for pool, own in groupby(found, key=lambda each: each.pool)]
    title = language.say("Off-peak hours")
    finding = language.say(_finding(found, language))
    drawn = pools[:_MOST]
    parts = [part for place, (pool, own) in enumerate(drawn) for part in _grid(place * _POOL, pool, own, language)]
    head = ("pool", "from", "until", "GPUs", "weeks looked at")
    return Chart(
        key=_KEY,
        title=title,
        finding=finding,
        drawing=svg.drawing(_POOL * len(drawn) - 14, parts, labelled(title, finding, language)) if drawn else Markup(),
        table=Table(
            tuple(language.say(each) for each in head),
            tuple(_row(each, language) for each in found),
            words=frozenset({1, 2}),
        ),
        note=language.say("The number is how many GPUs were not needed in nine weeks of ten; hours are local time.")
        if drawn
        else "",
    )


def _finding(found: Sequence[OffPeak], language: Language) -> str:
    if not found:
        return say("No hours of the week stand out, or fewer than four weeks are known.")
    best = max(found, key=lambda each: (each.gpus * (each.until_hour - each.from_hour), each.pool))
    return say(
        "The widest window: {gpus} GPUs of {pool}, {since} to {until}.",
        gpus=Number(best.gpus), pool=svg.isolated(placed(best.pool, language)),
        since=_hour(best.weekday, best.from_hour, language), until=_hour(best.weekday, best.until_hour, language),
    )  # fmt: skip


def _grid(top: float, pool: str, windows: Sequence[OffPeak], language: Language) -> Iterator[Markup]:
    yield svg.text(0, top + 12, svg.name(pool, 40), kind="b")
    for hour in range(0, 25, 6):
        x = _LEFT + hour * _HOUR
        place = {0: "start", 24: "end"}.get(hour, "middle")
        yield svg.text(x, top + 28, f"{hour:02}", anchor=place, kind="m")
        yield svg.line(x, top + _HEAD, x, top + _HEAD + 7 * _ROW)
    for day in range(7):
        y = top + _HEAD + day * _ROW
        yield svg.text(0, y + 13, language.weekday(day), kind="m")
        yield svg.rect(_LEFT, y + 1, 24 * _HOUR, _ROW - 2, {"fill": "#7d889c", "fill-opacity": ".18"})
    for window in windows:
        label = language.number(window.gpus)
        for day, start, end in _by_day(window):
            y = top + _HEAD + day * _ROW
            x, width = _LEFT + start * _HOUR, (end - start) * _HOUR
            yield svg.rect(x + 0.5, y + 1, width - 1, _ROW - 2, {"fill": "#7db4ee"})
            if width >= 8 * len(label):
                yield svg.text(x + width / 2, y + 13.5, label, anchor="middle", kind="k")


def _by_day(window: OffPeak) -> Iterator[tuple[int, int, int]]:
    """Weekday, first and last hour of each part of a window; after Sunday comes Monday."""
    for day in range(window.from_hour // 24, -(-window.until_hour // 24)):
        start, end = max(window.from_hour, day * 24), min(window.until_hour, day * 24 + 24)
        yield (window.weekday + day) % 7, start - day * 24, end - day * 24


def _row(each: OffPeak, language: Language) -> tuple[str | Markup, ...]:
    return (
        bdi(placed(each.pool, language)),
        _hour(each.weekday, each.from_hour, language),
        _hour(each.weekday, each.until_hour, language),
        language.number(each.gpus),
        language.number(each.weeks),
    )


def _hour(weekday: int, hour: int, language: Language) -> str:
    """`Sat 06:00`; an hour beyond 24 lies in the next days."""
    return f"{language.weekday((weekday + hour // 24) % 7)} {hour % 24:02}:00"

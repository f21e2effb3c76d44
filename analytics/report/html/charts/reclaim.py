"""How many GPUs of each pool can go with the reserve kept: an interval, in blocks that a job could use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from analytics.language.quantities import Number
from analytics.language.sentences import say, say_many
from analytics.report.html import svg
from analytics.report.html.cells import bdi, labelled
from analytics.report.html.chart import Chart, Table
from analytics.report.wording import placed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analytics.language.languages import Language
    from analytics.report.model import Report
    from analytics.report.parts import BackTest, Reclaimable

_KEY = "r"
_MOST = 8
_ROW, _LEFT, _RIGHT = 54.0, 4.0, 300.0
_BLOCKS = (1, 2, 4, 8)


def reclaim(report: Report, language: Language) -> Chart:
    """A row for each pool and model: what there is, and [low, point, high] of what is beyond need."""
    found = report.reclaimable
    title = language.say("Beyond what was needed at once")
    finding = language.say(_finding(found, language))
    head = (
        "pool and model",
        "GPUs",
        "low",
        "point",
        "high",
        *(f"in blocks of {size}" for size in _BLOCKS),
        "back-test",
    )
    return Chart(
        key=_KEY,
        title=title,
        finding=finding,
        drawing=svg.drawing(
            _ROW * min(len(found), _MOST), _rows(found[:_MOST], language), labelled(title, finding, language)
        )
        if found
        else Markup(),
        table=Table(
            tuple(language.say(each) for each in head),
            tuple(_row(each, language) for each in found),
            words=frozenset({9}),
        ),
        note=language.say(
            "Low to high is the interval of the estimate; a block lies on one host. The back-test asks the estimate of a week earlier how it would have done."
        )
        if found
        else "",
    )


def _finding(found: Sequence[Reclaimable], language: Language) -> str:
    """Of several the points are added, which can all go; their intervals are not one, and stand at each."""
    if not found:
        return say(
            "No pool is known to have GPUs to spare: all of them were needed at once, or the history is too short."
        )
    if not any(each.high for each in found):
        return say("No GPU can go with the reserve kept.")
    point, eight = sum(each.point for each in found), Number(sum(each.blocks.get(8, 0) for each in found))
    if len(found) > 1:
        return say_many(
            "{number} GPU can go with the reserve kept, counted over {groups} groups of pool and model, each with its own interval. In whole blocks of eight: {eight}.",
            "{number} GPUs can go with the reserve kept, counted over {groups} groups of pool and model, each with its own interval. In whole blocks of eight: {eight}.",
            point, groups=Number(len(found)), eight=eight,
        )  # fmt: skip
    [own] = found
    return say_many(
        "{number} GPU of {pool} can go with the reserve kept, by the interval {low} to {high}. In whole blocks of eight: {eight}.",
        "{number} GPUs of {pool} can go with the reserve kept, by the interval {low} to {high}. In whole blocks of eight: {eight}.",
        point, pool=svg.isolated(placed(own.pool, language)), low=Number(own.low), high=Number(own.high), eight=eight,
    )  # fmt: skip


def _rows(found: Sequence[Reclaimable], language: Language) -> Iterator[Markup]:
    most = max((each.gpus for each in found), default=0) or 1
    for place, each in enumerate(found):
        y = place * _ROW
        scale = (_RIGHT - _LEFT) / most
        yield svg.text(0, y + 12, svg.name(f"{placed(each.pool, language)}, {placed(each.model, language)}", 46))
        yield svg.rect(_LEFT, y + 20, each.gpus * scale, 10, {"fill": "#7d889c", "fill-opacity": ".34"})
        yield svg.rect(_LEFT + each.low * scale, y + 20, (each.high - each.low) * scale, 10, {"fill": "#2470c4", "fill-opacity": ".42"})  # fmt: skip
        yield svg.rect(_LEFT + each.point * scale - 2, y + 16, 4, 18, {"fill": "#2470c4"})
        yield svg.text(svg.WIDTH, y + 30, _interval(each, language), anchor="end", kind="b")
        yield svg.text(_LEFT, y + 45, _blocks(each, language), kind="m")


def _interval(each: Reclaimable, language: Language) -> str:
    return f"{language.number(each.point)} [{language.number(each.low)}, {language.number(each.high)}]"


def _blocks(each: Reclaimable, language: Language) -> str:
    sizes = ", ".join(labelled(str(size), language.number(each.blocks.get(size, 0)), language) for size in _BLOCKS)
    return language.say(say("of {gpus} GPUs; in blocks of {sizes}", gpus=Number(each.gpus), sizes=sizes))


def _row(each: Reclaimable, language: Language) -> tuple[str | Markup, ...]:
    return (
        Markup("{}, {}").format(bdi(placed(each.pool, language)), bdi(placed(each.model, language))),
        language.number(each.gpus),
        *(language.number(value) for value in (each.low, each.point, each.high)),
        *(language.number(each.blocks.get(size)) for size in _BLOCKS),
        language.say(_tested(each.back_test)),
    )


def _tested(test: BackTest | None) -> str:
    if test is None:
        return say("not enough history")
    return say_many(
        "would have left too few in {number} hour of {hours}",
        "would have left too few in {number} hours of {hours}",
        test.short_hours, hours=Number(test.hours),
    )  # fmt: skip

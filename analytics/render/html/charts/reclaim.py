"""How many GPUs of each pool can go with the reserve kept: an interval, in blocks that a job could use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from analytics.language.quantities import Number
from analytics.language.sentences import say
from analytics.render import surplus as spare
from analytics.render.html import svg
from analytics.render.html.cells import bdi, labelled
from analytics.render.html.chart import Chart, Table
from analytics.render.wording import placed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analytics.language.languages import Language
    from analytics.report.figures import Reclaimable
    from analytics.report.model import Report

_KEY = "r"
_MOST = 8
_ROW, _LEFT, _RIGHT = 54.0, 4.0, 300.0


def reclaim(report: Report, language: Language) -> Chart:
    """A row for each pool and model: what there is, and [low, point, high] of what is beyond need."""
    found = report.reclaimable
    title = language.say("Beyond what was needed at once")
    first = svg.isolated(placed(found[0].pool, language)) if found else ""
    finding = language.say(spare.finding(found, first))
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
            tuple(language.say(each) for each in spare.HEAD),
            tuple(_row(each, language) for each in found),
            words=frozenset({len(spare.HEAD) - 1}),
        ),
        note=language.say(spare.NOTE) if found else "",
    )


def _rows(found: Sequence[Reclaimable], language: Language) -> Iterator[Markup]:
    most = max((each.gpus for each in found), default=0) or 1
    for place, each in enumerate(found):
        y = place * _ROW
        scale = (_RIGHT - _LEFT) / most
        yield svg.text(0, y + 12, svg.name(f"{placed(each.pool, language)}, {placed(each.model, language)}", 46))
        yield svg.rect(_LEFT, y + 20, each.gpus * scale, 10, {"fill": "#7d889c", "fill-opacity": ".34"})
        yield svg.rect(_LEFT + each.low * scale, y + 20, (each.high - each.low) * scale, 10, {"fill": "#2470c4", "fill-opacity": ".42"})  # fmt: skip
        yield svg.rect(_LEFT + each.point * scale - 2, y + 16, 4, 18, {"fill": "#2470c4"})
        yield svg.text(svg.WIDTH, y + 30, spare.interval(each, language), anchor="end", kind="b")
        yield svg.text(_LEFT, y + 45, _blocks(each, language), kind="m")


def _blocks(each: Reclaimable, language: Language) -> str:
    sizes = ", ".join(labelled(str(size), language.number(each.blocks.get(size, 0)), language) for size in spare.BLOCKS)
    return language.say(say("of {gpus} GPUs; in blocks of {sizes}", gpus=Number(each.gpus), sizes=sizes))


def _row(each: Reclaimable, language: Language) -> tuple[str | Markup, ...]:
    return (
        Markup("{}, {}").format(bdi(placed(each.pool, language)), bdi(placed(each.model, language))),
        *spare.figures(each, language),
        language.say(spare.tested(each.back_test)),
    )

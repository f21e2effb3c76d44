"""How many GPUs of each pool could go: an interval, in blocks that a job could use, and whether last week's answer held."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.glossary import term
from analytics.language.language import SentenceList
from analytics.language.quantities import Number
from analytics.language.sentences import tr, tr_many
from analytics.report.figures import BackTest, SurplusInterval
from analytics.report.model import Report
from analytics.tables.chart import Bars, Chart, ChartPlace, Dots, Panel
from analytics.tables.names import MODEL, POOL, place_name
from analytics.tables.table import Column, Table, column

BLOCKS = (1, 2, 4, 8)
_DRAWN = 12
_BLOCK_TITLES = (tr("by 1"), tr("by 2"), tr("by 4"), tr("by 8"))


def surplus(report: Report) -> Table | None:
    """A row for each pool and model with a surplus; None in an edition for people, who have no pools."""
    if report.scope.is_personal:
        return None
    found = report.reclaimable
    return Table(
        name="surplus",
        title=tr("Beyond what was needed at once"),
        question=tr("How many GPUs could go? From up to four weeks before the end of the window."),
        headline=_headline(found),
        columns=(
            POOL,
            MODEL,
            column("gpus", tr("GPUs"), "count", _gpus),
            column("low", tr("low"), "count", lambda each: Number(each.low)),
            column("point", tr("point"), "count"),
            column("high", tr("high"), "count", lambda each: Number(each.high)),
            *map(_blocks, BLOCKS, _BLOCK_TITLES),
            column("back_test", tr("back-test"), "words", lambda each: _tested(each.back_test)),
        ),
        rows=tuple(found),
        chart=_chart(found[:_DRAWN]) if found else None,
        chart_note=tr(
            "The chart shows the first {shown} of {number} groups; the table lists all.",
            shown=Number(_DRAWN),
            number=Number(len(found)),
        )
        if len(found) > _DRAWN
        else "",
        notes=(
            tr(
                "Low to high: what next week leaves without a reserve, in 9 of 10 weeks, judged by how far off the weeks before were."
            ),
            tr("By 2, 4 and 8: how many can go if only whole blocks of that many on one host do."),
            tr("The back-test: in how many hours the estimate of a week earlier would have left too few."),
        )
        if found
        else (),
        terms=(term("surplus"), term("reserve")),
    )


def _headline(found: Sequence[SurplusInterval]) -> str:
    """Of several the points are added, which can all go; their intervals are not one, and stand at each."""
    if not found:
        return tr("No pool is known to have a surplus: all GPUs were needed at once, or the history is too short.")
    if not any(each.point or each.high for each in found):
        return tr("No GPU can go with the reserve kept.")
    point, eight = sum(each.point for each in found), Number(sum(each.blocks.get(8, 0) for each in found))
    if len(found) > 1:
        return tr_many(
            "{number} GPU can go with the reserve kept, counted over {groups} groups of pool and model, each with its own interval. In whole blocks of eight: {eight}.",
            "{number} GPUs can go with the reserve kept, counted over {groups} groups of pool and model, each with its own interval. In whole blocks of eight: {eight}.",
            point, groups=Number(len(found)), eight=eight,
        )  # fmt: skip
    [own] = found
    if own.low == own.high:
        return tr_many(
            "{number} GPU of {pool} can go with the reserve kept. In whole blocks of eight: {eight}.",
            "{number} GPUs of {pool} can go with the reserve kept. In whole blocks of eight: {eight}.",
            point, pool=place_name(own.pool), eight=eight,
        )  # fmt: skip
    return tr_many(
        "{number} GPU of {pool} can go with the reserve kept (next week, without one: {low} to {high}). In whole blocks of eight: {eight}.",
        "{number} GPUs of {pool} can go with the reserve kept (next week, without one: {low} to {high}). In whole blocks of eight: {eight}.",
        point, pool=place_name(own.pool), low=Number(own.low), high=Number(own.high), eight=eight,
    )  # fmt: skip


def _blocks(size: int, title: str) -> Column:
    return column(f"blocks_of_{size}", title, "count", lambda each: Number(each.blocks.get(size)))


def _gpus(each: SurplusInterval) -> Number:
    return Number(each.gpus, 0 if float(each.gpus).is_integer() else 1)


def _tested(test: BackTest | None) -> str:
    if test is None:
        return tr("not known")
    return tr("{short} of {hours} h", short=Number(test.short_hours), hours=Number(test.hours))


def _chart(found: Sequence[SurplusInterval]) -> Chart:
    """The GPUs of each group, in them the interval, and in it the estimate."""
    bounds = [(each.low, each.high) if each.low is not None and each.high is not None else None for each in found]
    marks = (
        Bars("", "whole", tuple(each.gpus for each in found)),
        Bars(
            "",
            "soft",
            tuple(None if each is None else each[1] - each[0] for each in bounds),
            tuple(0.0 if each is None else each[0] for each in bounds),
        ),
        Dots("", "mark", "tick", tuple(range(len(found))), tuple(each.point for each in found)),
    )
    return Chart((Panel("", marks, tuple(map(_place, found)), unit=tr("GPUs"), lying=True),))


def _place(each: SurplusInterval) -> ChartPlace:
    blocks = (tr("{label}: {value}", label=str(size), value=Number(each.blocks.get(size))) for size in BLOCKS)
    return ChartPlace(
        tr("{pool}, {model}", pool=place_name(each.pool), model=place_name(each.model)),
        figure=tr("{point} [{low}, {high}]", point=Number(each.point), low=Number(each.low), high=Number(each.high))
        if each.low is not None
        else tr("{point} [not known]", point=Number(each.point)),
        detail=tr("of {gpus} GPUs; in blocks of {sizes}", gpus=_gpus(each), sizes=SentenceList(blocks, ", ")),
    )

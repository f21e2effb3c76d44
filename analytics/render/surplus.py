"""GPUs beyond what was needed at once, in words and cells: what the report and the pages say of them alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.language.quantities import Number
from analytics.language.sentences import say, say_many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.language.languages import Language
    from analytics.report.figures import BackTest, Reclaimable

BLOCKS = (1, 2, 4, 8)
HEAD: tuple[str, ...] = (
    say("pool and model"),
    say("GPUs"),
    say("low"),
    say("point"),
    say("high"),
    say("in blocks of 1"),
    say("in blocks of 2"),
    say("in blocks of 4"),
    say("in blocks of 8"),
    say("back-test"),
)
"""The columns; the last one is in words."""

NOTE: str = say(
    "Low to high is the interval of the estimate; a block lies on one host. The back-test asks the estimate of a week earlier how it would have done."
)


def finding(found: Sequence[Reclaimable], pool: str) -> str:
    """Of several the points are added, which can all go; their intervals are not one, and stand at each.

    Args:
        found: the groups of pool and model.
        pool: how the first one's pool is written.
    """
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
        point, pool=pool, low=Number(own.low), high=Number(own.high), eight=eight,
    )  # fmt: skip


def figures(each: Reclaimable, language: Language) -> tuple[str, ...]:
    """The cells between the first, which has the names, and the last, which has the back-test."""
    return (
        language.number(each.gpus),
        *(language.number(value) for value in (each.low, each.point, each.high)),
        *(language.number(each.blocks.get(size)) for size in BLOCKS),
    )


def interval(each: Reclaimable, language: Language) -> str:
    """`4 [2, 6]`: the point, and from low to high."""
    return f"{language.number(each.point)} [{language.number(each.low)}, {language.number(each.high)}]"


def tested(test: BackTest | None) -> str:
    """How the estimate of a week earlier would have done."""
    if test is None:
        return say("not enough history")
    return say_many(
        "would have left too few in {number} hour of {hours}",
        "would have left too few in {number} hours of {hours}",
        test.short_hours, hours=Number(test.hours),
    )  # fmt: skip

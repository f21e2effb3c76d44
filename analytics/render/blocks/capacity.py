"""GPUs beyond what was needed, and the hours in which a pool's GPUs are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.inventory import NO_POOL, UNKNOWN_MODEL
from analytics.language.plain_text import plain
from analytics.language.quantities import Number
from analytics.language.sentences import say, say_many
from analytics.render.blocks.block import Block

if TYPE_CHECKING:
    from analytics.language.languages import Language
    from analytics.report.figures import BackTest, Reclaimable
    from analytics.report.model import Report

_BLOCKS = (1, 2, 4, 8)
_MOST = 12


def beyond_need(report: Report, language: Language) -> Block | None:
    """[low, point, high] of each pool and model, in blocks, with last week's back-test; None for people's editions."""
    if report.scope.is_personal:
        return None
    title = language.say("GPUs beyond what was needed at once")
    if not report.reclaimable:
        none = say(
            "No pool is known to have GPUs to spare: all of them were needed at once, or the history is too short."
        )
        return Block(title, lines=(language.say(none),))
    blocks = tuple(say("by {size}", size=size) for size in _BLOCKS)
    heads = (say("pool and model"), say("GPUs"), say("[low, point, high]"), *blocks, say("back-test"))
    return Block(
        title=title,
        head=tuple(language.say(each) for each in heads),
        rows=tuple(_row(each, language) for each in report.reclaimable),
        words=frozenset({0, 3 + len(_BLOCKS)}),
        lines=(
            language.say("By 2, 4 and 8: how many can go if only whole blocks of that many on one host do."),
            language.say("The back-test: in how many hours the estimate of a week earlier would have left too few."),
        ),
    )


def _row(each: Reclaimable, language: Language) -> tuple[str, ...]:
    named = say("{pool}, {model}", pool=_name(each.pool, NO_POOL), model=_name(each.model, UNKNOWN_MODEL))
    interval = ", ".join(language.number(value) for value in (each.low, each.point, each.high))
    return (
        language.say(named),
        language.number(each.gpus, 0 if float(each.gpus).is_integer() else 1),
        f"[{interval}]",
        *(language.number(each.blocks[size]) for size in _BLOCKS),
        language.say(_tested(each.back_test)),
    )


def _name(name: str, otherwise: str) -> str:
    return say(otherwise) if name == otherwise else plain(name)


def _tested(test: BackTest | None) -> str:
    if test is None:
        return say("not known")
    return say("{short} of {hours} h", short=Number(test.short_hours), hours=Number(test.hours))


def off_peak(report: Report, language: Language) -> Block | None:
    """Windows of the week in which GPUs were not needed in nine weeks of ten; None for people's editions."""
    if report.scope.is_personal:
        return None
    title, found = language.say("Off-peak hours"), report.off_peak
    if not found:
        none = say("No hours of the week stand out, or fewer than four weeks are known.")
        return Block(title, lines=(language.say(none),))
    widest = sorted(found, key=lambda each: each.gpus * (each.until_hour - each.from_hour), reverse=True)[:_MOST]
    rest = len(found) - len(widest)
    more = say_many("and {number} more window", "and {number} more windows", rest)
    zone = say("local time, {zone}; GPUs not needed in nine weeks of ten", zone=str(report.zone))
    heads = (say("pool"), say("from"), say("until"), say("GPUs"), say("weeks looked at"))
    return Block(
        title=title,
        about=language.say(zone),
        head=tuple(language.say(each) for each in heads),
        rows=tuple(
            (
                language.say(_name(each.pool, NO_POOL)),
                _hour(each.weekday, each.from_hour, language),
                _hour(each.weekday, each.until_hour, language),
                language.number(each.gpus),
                language.number(each.weeks),
            )
            for each in found
            if each in widest
        ),
        words=frozenset({0, 1, 2}),
        lines=(language.say(more),) if rest else (),
    )


def _hour(weekday: int, hour: int, language: Language) -> str:
    """`Sat 06:00`; an hour beyond 24 lies in the next days."""
    return f"{language.weekday((weekday + hour // 24) % 7)} {hour % 24:02}:00"

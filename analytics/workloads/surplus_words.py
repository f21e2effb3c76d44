"""What a pool has, needs at once and has to spare, in words."""

from __future__ import annotations

import re

from analytics.language.plain_text import plain
from analytics.language.quantities import Number, Share
from analytics.language.sentences import Listed, Sentence, say

_BLOCKS = re.compile(r"surplus_gpus_in_blocks_of_(\d+)")


def surplus_words(known: dict[str, float | str]) -> list[str]:
    """Takes a pool's reserve out of `known`: what there is, what was needed, and what that leaves."""
    if "surplus_gpus" not in known:
        return []
    names = ("pool_gpus", "needed_at_once_gpus", "needed_at_once_max_gpus", "needed_with_reserve_gpus",
             "surplus_low_gpus", "surplus_gpus", "surplus_high_gpus", "surplus_free_now_gpus")  # fmt: skip
    there, need, most, reserve, low, point, high, free = (whole_gpus(known.pop(name, None)) for name in names)
    quantile = known.pop("needed_quantile", None)
    needed = say("at most {number} needed at once", number=most)
    if need != most and quantile is not None:
        share = Share(float(quantile), 0)
        needed = say("{needed} ({number} for {share} of the hours)", needed=needed, number=need, share=share)
    return [
        say(
            "pool {pool}, {model}: {there} GPUs, {needed}, {reserve} with the reserve: {point} to spare ({low} to {high})",
            pool=plain(str(known.pop("pool", ""))),
            model=plain(str(known.pop("model", ""))),
            there=there,
            needed=needed,
            reserve=reserve,
            point=point,
            low=low,
            high=high,
        ),
        say("{number} of these free now", number=free) if free.value else say("none of these free now"),
        _backtest(known),
        *_in_blocks(known),
    ]


def _backtest(known: dict[str, float | str]) -> Sentence:
    """Takes out of `known` what became of last week's estimate."""
    names = ("surplus_gpus", "enough_gpus", "hours", "exceeded_hours", "needed_max_gpus")
    spare, enough, hours, exceeded, most = (whole_gpus(known.pop(f"backtest_{name}", None)) for name in names)
    if hours.value is None:
        return say("no back-test: it takes 14 days of hours in which the pool was seen")
    said = say("none was to spare")
    if spare.value:
        said = say("{enough} were to be enough and {spare} to spare", enough=enough, spare=spare)
    return say(
        "back-test: a week earlier {said}; more than {enough} were needed at once in {exceeded} of the {hours} h since, "
        "at most {most}",
        said=said,
        enough=enough,
        exceeded=exceeded,
        hours=hours,
        most=most,
    )


def _in_blocks(known: dict[str, float | str]) -> list[str]:
    """Takes the sums by block out of `known`; blocks of one are all there are, and none says nothing."""
    found = {match[1]: known.pop(name) for name in list(known) if (match := _BLOCKS.fullmatch(name))}
    told = [
        say("{number} in blocks of {size}", number=Number(float(number)), size=size)
        for size, number in found.items()
        if number and size != "1"
    ]
    hosts = str(known.pop("surplus_blocks", "") or "").replace("; ", ", ")
    return [
        *([Listed(told, ", ")] if told else []),
        *([say("by host: {hosts}", hosts=plain(hosts, 400))] if hosts else []),
    ]


def whole_gpus(value: float | str | None) -> Number:
    """A number of GPUs; parts of one only where a split card leaves them."""
    if value is None:
        return Number(None)
    number = round(float(value), 1)
    return Number(number, 0 if number.is_integer() else 1)

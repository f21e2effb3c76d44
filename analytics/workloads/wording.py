"""What sentences about findings have in common: counted things, and sentences that agree with a number of GPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from analytics.language.language import Sentence, SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.names import JOINER


def of_gpus(one: str, many: str = "") -> str:
    """A rule's sentence, said of one GPU and of several; the second form is for languages too where English has one."""
    return Sentence(one, {}, 2, many or one)


def agreeing(sentence: str, gpus: int) -> str:
    """A rule's sentence as it is said of so many GPUs."""
    if not isinstance(sentence, Sentence) or sentence.many is None:
        return sentence
    return Sentence(sentence.template, sentence.values, gpus, sentence.many)


def gpus_of(number: int) -> Sentence:
    return tr_many("{number} GPU", "{number} GPUs", number)


_HOSTS_NAMED = 3
"""Hosts up to which each is named."""


def gpus_on_hosts(number: int, host: str) -> Sentence:
    """`8 GPUs on node-07`; of more than three hosts, which `host` joins, only how many."""
    gpus = gpus_of(number)
    hosts = host.split(JOINER) if host else []
    if not hosts:
        return gpus
    several = tr_many("{number} host", "{number} hosts", len(hosts))
    where = SentenceList([plain(each) for each in hosts], ", ") if len(hosts) <= _HOSTS_NAMED else several
    return tr("{gpus} on {where}", gpus=gpus, where=where)


def joined_by_and(names: Sequence[str]) -> str:
    shown = names[0]
    for name in names[1:]:
        shown = tr("{name} and {other}", name=shown, other=name)
    return shown


def at_most_below(share: float) -> Share:
    """The share with one decimal, never rounded up."""
    return Share(math.floor(10 * (100 * share)) / 1000)


def floored(value: float) -> Number:
    """The number with one digit, never rounded up."""
    return Number(math.floor(10 * value) / 10, 1)


def hours_by_threshold(gpu_hours: Mapping[int, float]) -> Sentence:
    """`4.0 / 3.0 / 2.0 GPU-hours in intervals of at least 30 / 60 / 120 min`."""
    return tr(
        "{sums} GPU-hours in intervals of at least {minutes} min",
        sums=SentenceList((tr("{sum}", sum=Number(hours, 1)) for hours in gpu_hours.values()), " / "),
        minutes=" / ".join(map(str, gpu_hours)),
    )


def whole_gpus(value: float | str | None) -> Number:
    """A number of GPUs; parts of one only where a split card leaves them."""
    if value is None:
        return Number(None)
    number = round(float(value), 1)
    return Number(number, 0 if number.is_integer() else 1)

"""A finding's evidence in words: every number with its unit, shares as percent, amounts with their currency."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from analytics.language.plain import plain
from analytics.language.quantities import Amount, Bytes, Number, Share
from analytics.language.sentences import Listed, Sentence, say, say_many
from analytics.workloads.evidence_labels import COUNTS, IN_WORDS, TOLD, WHOLE, WORDS
from analytics.workloads.phrases import gpus_of
from analytics.workloads.sensitivity import in_words as in_stretches
from analytics.workloads.surplus_words import surplus_words, whole_gpus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from analytics.language.quantities import Quantity
    from analytics.workloads.model import Finding

_UNTOLD = ("recommended_in_fleet",)
"""Of use to machines only: how many of a card there are does not say that any is free, and a note tells where there is none."""
_Known = dict[str, float | str]
"""Numbers by name without the unknown ones."""
_STRETCHES = re.compile(r"(?:held|reserved)_gpu_hours_in_stretches_of_(\d+)_min")
_UNITS = (
    ("_gpu_hours", "GPU-hours"), ("_hours", "h"), ("_h", "h"), ("_days", "days"), ("_min", "min"), ("_s", "s"), ("_pct", "%"),
    ("_kwh", "kWh"), ("_w", "W"), ("_mhz", "MHz"), ("_c", "°C"),
)  # fmt: skip
"""What a name's ending says of its number."""
_SHARE = re.compile(r"(^|_)(share|ratio|efficiency|coverage|spread|reserve|variation)(_|$)")


def evidence(finding: Finding) -> Listed:
    """The known numbers of the evidence in words."""
    known: _Known = {name: value for name, value in finding.evidence.numbers.items() if value is not None}
    for name in _UNTOLD:
        known.pop(name, None)
    first = [*surplus_words(known), *_stretches(known)]
    last = _prices(known, finding.currency)
    told: list[str] = []
    while known:
        name = next(iter(known))
        together = next((each for each in _TOGETHER if name in each and known.keys() >= set(each)), None)
        if together is None:
            told.append(words(name, known.pop(name), len(finding.gpus)))
        else:
            told.append(_TOGETHER[together]([known.pop(each) for each in together]))
    return Listed([*first, *told, *last])


def words(name: str, value: float | str, gpus: int = 0) -> str:
    """One number of the evidence of a finding about so many GPUs; `name` carries its unit."""
    if name in _SPECIAL:
        return _SPECIAL[name](value, gpus)
    if name in COUNTS and isinstance(value, int):
        return say_many(*COUNTS[name], value)
    if name in WORDS:
        return say(WORDS[name], value=_shown(name, value))
    ending = next((each for each in _UNITS if name.endswith(each[0])), ("", ""))
    if isinstance(value, str | bool) or _SHARE.search(name) or "_bytes" in name:
        ending = ("", "")
    base = re.sub("_bytes(_per_s)?$", "", name.removesuffix(ending[0]) if ending[0] else name)
    per_second = "/s" if name.endswith("_bytes_per_s") else ""
    return f"{base.replace('_', ' ')} {_shown(name, value)}{per_second} {ending[1]}".rstrip()


def money(amount: float, currency: str | None) -> str:
    """`1,234.50 USD`."""
    return f"{amount:,.2f} {plain(currency or '')}".rstrip()


def _held_now(value: float | str, gpus: int) -> Sentence:
    if value == 0:
        return say_many("no longer held at the end", "none of the {number} GPUs still held at the end", gpus)
    return say("{part} of {gpus} held at the end", part=_shown("", value), gpus=gpus_of(gpus))


def _reserved_now(value: float | str, gpus: int) -> Sentence:
    if value == 0:
        return say_many("no longer reserved at the end", "none of the {number} GPUs still reserved at the end", gpus)
    return say("{part} of {gpus} reserved at the end", part=_shown("", value), gpus=gpus_of(gpus))


def _memory_in_use(value: float | str, _: int) -> Sentence:
    return say("no memory in use") if value == 0 else say("memory in use up to {value}", value=_shown("_bytes", value))


def _with_sm_activity(value: float | str, gpus: int) -> Sentence:
    if value == 0:
        return say("SM activity not measured")
    return say("SM activity measured on {part} of {gpus}", part=_shown("", value), gpus=gpus_of(gpus))


def _memory_varies(value: float | str, _: int) -> Sentence:
    if float(value) < _LEAST_SHARE:
        return say("memory varies by less than {share}", share=Share(_LEAST_SHARE))
    return say("memory varies by {share}", share=Share(float(value)))


def _period_varies(value: float | str, _: int) -> Sentence:
    if float(value) < _LEAST_SHARE:
        return say("intervals vary by less than {share}", share=Share(_LEAST_SHARE))
    return say("intervals vary by {share}", share=Share(float(value)))


def _rank(value: float | str, _: int) -> Sentence:
    rank, holders = str(value).split(" of ")
    return say("rank {rank} of {holders} among the holders", rank=rank, holders=holders)


_LEAST_SHARE = 0.001
"""What is shown with one digit of a percent."""

_SPECIAL: Mapping[str, Callable[[float | str, int], Sentence]] = {
    "gpus_held_now": _held_now,
    "gpus_reserved_now": _reserved_now,
    "mem_used_max_bytes": _memory_in_use,
    "gpus_with_sm_activity": _with_sm_activity,
    "mem_variation": _memory_varies,
    "period_cv": _period_varies,
    "rank_among_holders": _rank,
}


def _mig(values: list[float | str]) -> Sentence:
    name, share, size = values
    return say(
        "profile {profile} with {share} of the card's SMs and {size}",
        profile=plain(str(name)),
        share=Share(float(share)),
        size=Bytes(float(size)),
    )


def _uneven(values: list[float | str]) -> Sentence:
    uneven, judged = (Number(float(each)) for each in values)
    return say("uneven in {uneven} of the {judged} h in which all of its GPUs worked", uneven=uneven, judged=judged)


def _project(values: list[float | str]) -> Sentence:
    day, days = plain(str(values[0])), float(values[1])
    if days <= 0:
        return say("the project ended on {day}, {days} days ago", day=day, days=Number(abs(days), 1))
    return say("the project ends on {day}, in {days} days", day=day, days=Number(days, 1))


def _pauses(values: list[float | str]) -> Sentence:
    return say_many(
        "{number} past pause, of {days} days",
        "{number} past pauses, 95 % of them of {days} days at most",
        int(float(values[1])),
        days=Number(float(values[0]), 1),
    )


_TOGETHER: Mapping[tuple[str, ...], Callable[[list[float | str]], Sentence]] = {
    ("mig_profile", "mig_sm_share", "mig_memory_bytes"): _mig,
    ("uneven_h", "judged_h"): _uneven,
    ("project_end", "days_until_project_end"): _project,
    ("past_gaps_p95_days", "past_gap_count"): _pauses,
}
"""Numbers that say something only beside each other."""


def _stretches(known: _Known) -> list[Sentence]:
    """Takes the sums by the shortest stretch out of `known`: they stand beside each other."""
    found = {match[1]: known.pop(name) for name in list(known) if (match := _STRETCHES.fullmatch(name))}
    return [in_stretches({int(minutes): float(value) for minutes, value in found.items()})] if found else []


def _prices(known: _Known, currency: str | None) -> list[Sentence]:
    """Takes prices and what would be saved out of `known`."""
    hourly, other, saving = (known.pop(name, None) for name in ("hourly", "recommended_hourly", "saving"))
    card = plain(str(known["recommended_card"])) if "recommended_card" in known else say("the other card")
    plainly = plain(currency or "") or None
    price = None if other is None else Amount(float(other), plainly if hourly is None else None)
    return [
        *([] if hourly is None else [say("{amount} per GPU-hour", amount=Amount(float(hourly), plainly))]),
        *([] if price is None else [say("{card}: {amount}", card=card, amount=price)]),
        *([] if saving is None else [say("saves {amount} in this window", amount=Amount(float(saving), plainly))]),
    ]


def _shown(name: str, value: float | str) -> str | Quantity:
    if isinstance(value, str):
        return _told(value) if name in IN_WORDS else plain(value)
    if isinstance(value, bool):
        return say("yes") if value else say("no")
    return _number(name, value)


def _told(value: str) -> Listed:
    """Words of ours, of which a finding about several works may join some."""
    parts = value.split("+")
    return Listed([say(TOLD[each]) if each in TOLD else say("{value}", value=plain(each)) for each in parts], "+")


def _number(name: str, value: float) -> Quantity:
    if name in WHOLE:
        return whole_gpus(value)
    if _SHARE.search(name):
        return Share(value)
    if "_bytes" in name:
        return Bytes(value)
    return Number(value, 1) if isinstance(value, float) else Number(value)

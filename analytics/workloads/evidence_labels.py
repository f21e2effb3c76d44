"""How the evidence reads: what makes a label, and the labels of values that several rules give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from analytics.language.language import Sentence, SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, Bytes, Number, Quantity, Share, Span
from analytics.language.sentences import tr, tr_many
from analytics.workloads.ledger_rows import THRESHOLDS_MIN
from analytics.workloads.model import HIGH_MIN, Finding, Label, Value
from analytics.workloads.wording import at_most_below, gpus_of, hours_by_threshold
from fallow.clock import HOUR_MS

Shown = str | Quantity
Known = Mapping[str, Value]


_LEAST_SHARE = 0.001
"""What is shown with one digit of a percent."""


def shown_plainly(value: Value) -> Shown:
    """A name, yes or no, or a number with one digit where it is no count."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, bool):
        return tr("yes") if value else tr("no")
    return Number(value, 1) if isinstance(value, float) else Number(value)


def label(key: str, text: str, shown: Callable[[Any], Shown] = shown_plainly) -> Label:
    """One value; `text` holds it as `{value}`, with its unit unless `shown` (Share, Bytes, ...) brings it."""
    return Label((key,), lambda known, _: [tr(text, value=shown(known[key]))])


def counted(key: str, one: str, many: str) -> Label:
    return Label((key,), lambda known, _: [tr_many(one, many, int(known[key]))])


def varying(key: str, below: str, by: str) -> Label:
    """How much something varies: `below` where that is less than one digit of a percent shows, else `by`."""

    def words(known: Known, _: Finding) -> list[Sentence]:
        part = float(known[key])
        return [tr(below, share=Share(_LEAST_SHARE)) if part < _LEAST_SHARE else tr(by, share=Share(part))]

    return Label((key,), words)


def for_machines(*keys: str) -> Label:
    return Label(keys, lambda _, __: [])


def words_for(meanings: Mapping[str, str]) -> Callable[[Any], Shown]:
    """Values that are words of ours, of which a finding about several workloads may join some, by what they mean."""

    def shown(value: str) -> SentenceList:
        parts = value.split("+")
        return SentenceList(
            [tr(meanings[each]) if each in meanings else tr("{value}", value=plain(each)) for each in parts], "+"
        )

    return shown


def _at_the_end(key: str, none: tuple[str, str], some: str) -> Label:
    """How many of the finding's GPUs are still as it says at the end of the window."""

    def words(known: Known, finding: Finding) -> list[Sentence]:
        gpus = len(finding.gpus)
        if known[key] == 0:
            return [tr_many(*none, gpus)]
        return [tr(some, part=shown_plainly(known[key]), gpus=gpus_of(gpus))]

    return Label((key,), words)


def _by_threshold(prefix: str) -> Label:
    """GPU-hours in intervals of at least each of THRESHOLDS_MIN, side by side."""
    keys = {f"{prefix}_gpu_hours_in_stretches_of_{minutes}_min": minutes for minutes in THRESHOLDS_MIN}
    return Label(
        tuple(keys), lambda known, _: [hours_by_threshold({keys[key]: float(hours) for key, hours in known.items()})]
    )


def _promise(known: Known, _: Finding) -> list[Sentence]:
    if float(known.get("stays_unused_probability") or 0) < HIGH_MIN:
        return []  # the failed condition says it
    horizon = Span(round(float(known["stays_unused_horizon_h"]) * HOUR_MS))
    share = at_most_below(float(known["stays_unused_probability"]))
    return [tr("stays unused for another {horizon} with a probability of {share}", horizon=horizon, share=share)]


def _memory_in_use(known: Known, _: Finding) -> list[Sentence]:
    value = float(known["mem_used_max_bytes"])
    return [tr("memory in use up to {value}", value=Bytes(value)) if value else tr("no memory in use")]


def _with_sm_activity(known: Known, finding: Finding) -> list[Sentence]:
    part = known["gpus_with_sm_activity"]
    if part == 0:
        return [tr("SM activity not measured")]
    return [tr("SM activity measured on {part} of {gpus}", part=shown_plainly(part), gpus=gpus_of(len(finding.gpus)))]


def bounded(key: str, text: str, limit: float) -> Label:
    """A value beside the limit that it was tested against, which the text has as `{limit}`."""
    return Label((key,), lambda known, _: [tr(text, value=shown_plainly(known[key]), limit=Number.as_given(limit))])


def rank_label(sentence: str) -> Label:
    """The rank among the users; the sentence, with `{rank}` and `{holders}`, names the figure of which rank 1 has the most."""

    def words(known: Known, _: Finding) -> list[Sentence]:
        rank, holders = str(known["rank_among_holders"]).split(" of ")
        return [tr(sentence, rank=rank, holders=holders)]

    return Label(("rank_among_holders",), words)


def _prices(known: Known, finding: Finding) -> list[Sentence]:
    hourly, other, saving = (known.get(name) for name in ("hourly", "recommended_hourly", "saving"))
    name = finding.evidence.numbers.get("recommended_card")
    card = tr("the other card") if name is None else plain(str(name))
    currency = plain(finding.currency or "") or None
    price = None if other is None else Amount(float(other), currency if hourly is None else None)
    return [
        *([] if hourly is None else [tr("{amount} per GPU-hour", amount=Amount(float(hourly), currency))]),
        *([] if price is None else [tr("{card}: {amount}", card=card, amount=price)]),
        *([] if saving is None else [tr("saves {amount} in this window", amount=Amount(float(saving), currency))]),
    ]


SOURCES = {"process": "process", "claim": "allocation", "memory": "memory"}
"""How the ledger knows a user."""

SHARED_LABELS = (
    label("holder_source", "user known by {value}", words_for(SOURCES)),
    counted("sample_count", "{number} sample", "{number} samples"),
    label("coverage", "observed {value}", Share),
    label("unconfirmed", "{value} of it idle by point samples alone", Share),
    _by_threshold("held"),
    _by_threshold("reserved"),
    counted("stretch_count", "in {number} interval", "in {number} intervals"),
    _at_the_end(
        "gpus_held_now",
        ("no longer held at the end", "none of the {number} GPUs still held at the end"),
        "{part} of {gpus} held at the end",
    ),
    _at_the_end(
        "gpus_reserved_now",
        ("no longer reserved at the end", "none of the {number} GPUs still reserved at the end"),
        "{part} of {gpus} reserved at the end",
    ),
    label("longest_h", "longest {value} h"),
    Label(("stays_unused_probability", "stays_unused_horizon_h"), _promise),
    Label(("mem_used_max_bytes",), _memory_in_use),
    label("mem_need_bytes", "memory needed {value}", Bytes),
    label("card_memory_bytes", "the card has {value}", Bytes),
    label("power_mean_w", "mean power {value} W"),
    label("power_limit_w", "power limit {value} W"),
    label("gpu_util_mean_pct", "mean utilization {value} %"),
    label("gpu_util_max_pct", "highest utilization {value} %"),
    label("sm_active_mean_pct", "mean SM activity {value} %"),
    Label(("gpus_with_sm_activity",), _with_sm_activity),
    label("reserved_gpu_hours", "{value} GPU-hours reserved"),
    label("used_gpu_hours", "{value} GPU-hours used"),
    label("history_days", "{value} days of history"),
    counted("works", "{number} job", "{number} jobs"),
    label("model", "model {value}"),
    label("commands", "commands {value}"),
    label("jobs", "jobs {value}"),
    label("gpus_of_the_job", "{value} GPUs in the job"),
    label("recommended_card", "{value} would do"),
    label("recommended_memory_bytes", "it has {value}", Bytes),
    # how many of a card there are does not say that any is free, and a note tells where there is none
    for_machines("recommended_in_fleet"),
    Label(("hourly", "recommended_hourly", "saving"), _prices),
)

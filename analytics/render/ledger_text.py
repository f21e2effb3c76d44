"""The ledger's numbers as plain text."""

from __future__ import annotations

from collections.abc import Mapping

from analytics import glossary
from analytics.language.language import ENGLISH, Language
from analytics.language.plain_text import PAGE_COLUMNS, count, hours, moment, percent
from analytics.language.sentences import tr_many
from analytics.ledger.summary import Summary, Totals, ratio
from analytics.states import UNUSED
from fallow.clock import SECOND_MS, format_duration
from fallow.schema import STATES

_SHOWN_FROM = 0.0005
"""Less of the observed time would be written as 0.0 %."""


def summary_text(
    summary: Summary, costs: Mapping[str, str] | None = None, currency: str = "", width: int = PAGE_COLUMNS
) -> str:
    """The window's numbers on about fifteen lines, with what each state cost where that is given."""
    totals = summary.totals
    lines = [
        f"{count(totals.gpus, 'GPU')}, {moment(summary.since_ms)} to {moment(summary.until_ms)}, {percent(summary.coverage)} of the time {_seen(summary)}",
        *_sampled(summary),
        *_outside(summary),
        *stopped_lines(summary),
        "",
        *(cost_lines(totals, costs, currency, width) if costs else state_lines(totals, width)),
        *_bounds(summary),
        "",
        f"measured at zero utilization, whoever holds the GPU (share of {_word(totals)} time)",
        f"  {'in all':<35} {percent(ratio(summary.idle.zero_ms, totals.observed_ms)):>8}",
    ]
    lines += [
        f"  {f'in idle intervals of at least {name}':<35} {percent(ratio(spell_ms, totals.observed_ms)):>8}"
        for name, spell_ms in summary.idle.spell_ms.items()
    ]
    return "\n".join(lines)


def _outside(summary: Summary) -> list[str]:
    """What of the rest is not among the unknown hours below."""
    told = hours(round(summary.outside_ms))
    return [] if told == "0.0" else [f"{told} GPU-hours before a host's first row or after its last are in no sum"]


def _seen(summary: Summary) -> str:
    """How the time was seen; what nobody watched but by moments is not called observed."""
    word = _word(summary.totals)
    return word if word == "observed" else f"{word} every {_every(summary)}"


def _word(totals: Totals) -> str:
    return "sampled" if (totals.sampled or 0) >= 1 - _SHOWN_FROM else "observed"


def _sampled(summary: Summary) -> list[str]:
    """How much of the observed time was seen at moments only."""
    if not _SHOWN_FROM <= (summary.totals.sampled or 0) < 1 - _SHOWN_FROM:
        return []
    return [f"{percent(summary.totals.sampled)} of it by point samples, one every {_every(summary)}"]


def _every(summary: Summary) -> str:
    return format_duration(max(SECOND_MS, round((summary.samples.every_ms or 0) / SECOND_MS) * SECOND_MS))


def _bounds(summary: Summary) -> list[str]:
    """Between what the states lie that rest on point samples at 0."""
    totals, observed = summary.totals, summary.totals.observed_ms
    found = []
    for state in UNUSED:
        bound = totals.bound(state)
        above_ms = bound.high_ms - totals.state_ms[state] if totals.leaves_open else 0
        if (ratio(totals.unconfirmed_ms.get(state, 0) + above_ms, observed) or 0) >= _SHOWN_FROM:
            low, high = (percent(ratio(each, observed)) for each in (bound.low_ms, bound.high_ms))
            found.append(
                f"  {state} {percent(totals.share(state))} is sampled every {_every(summary)}: between {low} and {high}"
            )
    if (ratio(summary.samples.by_power_ms, observed) or 0) >= _SHOWN_FROM:
        found.append(
            f"  {hours(summary.samples.by_power_ms)} GPU-hours are confirmed by power readings alone: unless work keeps step with them"
        )
    if found and totals.leaves_open:
        low, high = (
            percent(ratio(each, observed)) for each in (summary.samples.idle.low_ms, summary.samples.idle.high_ms)
        )
        found.append(f"  without a kernel, for however short a time: between {low} and {high} (95 %)")
        found.append("  a point sample at 0 says that the GPU was idle at that moment and no more")
    return ["", *found] if found else []


def stopped_lines(summary: Summary) -> list[str]:
    """What to say of GPUs that were not seen to the end; empty where there are none."""
    if not summary.stopped_gpus:
        return []
    return [
        tr_many(
            "{number} GPU stopped reporting before the end: the time after that is in no sum",
            "{number} GPUs stopped reporting before the end: the time after that is in no sum",
            summary.stopped_gpus,
        )
    ]


def state_lines(totals: Totals, width: int = PAGE_COLUMNS, language: Language = ENGLISH) -> list[str]:
    """One line per state: GPU-hours, share of the observed time and, as the width allows, the meaning and a bar."""
    heading = [
        language.translate(each)
        for each in ("state", "GPU-hours", "of sampled" if _word(totals) == "sampled" else "of observed")
    ]
    lines = [f"  {heading[0]:<12} {heading[1]:>12} {heading[2]:>12}"]
    room = width - len(lines[0])
    for state in STATES:
        share = None if state == "unknown" else totals.share(state)
        spent, part = language.hours(totals.state_ms[state]), _shown(state, share, language)
        lines.append(
            f"  {language.translate(state):<12} {spent:>12} {part:>12}" + _remark(state, share, 20, room, language)
        )
    lines.append(f"  {language.translate('total'):<12} {language.hours(totals.total_ms):>12}")
    return lines


def cost_lines(
    totals: Totals,
    costs: Mapping[str, str],
    currency: str,
    width: int = PAGE_COLUMNS,
    language: Language = ENGLISH,
) -> list[str]:
    """The same with what each state and the whole (`total`) cost."""
    money = max(len(currency), *map(len, costs.values()))
    heading = [language.translate(each) for each in ("state", "GPU-hours", _word(totals), "total", "paid")]
    first = max(11, *(len(language.translate(state)) for state in STATES))
    lines = [f"  {heading[0]:<{first}} {heading[1]:>11} {heading[2]:>9} {currency:>{money}}"]
    room = width - len(lines[0])
    for state in STATES:
        share = None if state == "unknown" else totals.share(state)
        spent, part = language.hours(totals.state_ms[state]), _shown(state, share, language)
        numbers = f"  {language.translate(state):<{first}} {spent:>11} {part:>9} {costs[state]:>{money}}"
        lines.append(numbers + _remark(state, share, 10, room, language))
    lines.append(
        f"  {heading[3]:<{first}} {language.hours(totals.total_ms):>11} {'':>9} {costs['total']:>{money}}  {heading[4]}"
    )
    return lines


def _remark(state: str, share: float | None, bar: int, room: int, language: Language) -> str:
    """What stands behind a state's numbers: a bar and the meaning, the meaning alone, or nothing, the same for all."""
    meanings = {name: language.translate(term.short) for name, term in glossary.STATES.items()}
    longest = max(map(len, meanings.values()))
    if room >= 2 + bar + 1 + longest:
        return f"  {_bar(share, bar)} {meanings[state]}"
    return f"  {meanings[state]}" if room >= 2 + longest else ""


def _shown(state: str, share: float | None, language: Language) -> str:
    return "-" if state == "unknown" else language.percent(share)


def _bar(share: float | None, width: int) -> str:
    drawn = "█" * round(width * (share or 0))
    return f"{drawn:<{width}}"

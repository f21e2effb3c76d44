"""The sentences that more than one format says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from analytics.inventory import NO_POOL, UNKNOWN_MODEL
from analytics.language.languages import Language
from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Moment, Number, Share, Span
from analytics.language.sentences import Listed, say, say_many
from analytics.render.facts import silent_hosts
from analytics.render.review_text import reversals_text
from analytics.states import UNUSED
from analytics.workloads.wording import hours_by_threshold
from fallow.clock import from_ms

if TYPE_CHECKING:
    from analytics.language.sentences import Sentence
    from analytics.ledger.summary import Totals
    from analytics.report.model import Report, Section
    from analytics.scope import Scope

TITLE = say("GPU waste report")
BY = {"pool": say("By pool"), "model": say("By model"), "day": say("By day"), "holder": say("By holder")}
"""Headings of the sections."""


@dataclass(frozen=True)
class _Sortable(Language):
    """English with days as machines sort them, as the commands print them."""

    def moment(self, moment_ms: int) -> str:
        """`2026-11-20 06:00 UTC`."""
        local = from_ms(moment_ms).astimezone(self.zone)
        return f"{local:%Y-%m-%d %H:%M} {local.tzname()}"

    def day(self, moment_ms: int) -> str:
        """`2026-11-20`."""
        return f"{from_ms(moment_ms).astimezone(self.zone):%Y-%m-%d}"


def for_text(language: Language) -> Language:
    """The language as plain text has it: with ordinary spaces, which every terminal and editor shows alike."""
    return _Sortable(zone=language.zone, space=" ") if language.code == "en" else replace(language, space=" ")


def title(report: Report) -> Listed:
    """What it is, the week, and what it is narrowed to: `GPU waste report, 2026-W46, pool train`."""
    return Listed([TITLE, *([report.week.label] if report.week else []), *scope_parts(report.scope)], ", ")


def scope_parts(scope: Scope) -> list[Sentence]:
    """What a report is narrowed to; nothing for the whole fleet."""
    return [
        *([say("pool {name}", name=plain(scope.pool))] if scope.pool is not None else []),
        *([say("model {name}", name=plain(scope.model))] if scope.model is not None else []),
        *([say("team {name}", name=plain(scope.team))] if scope.team is not None else []),
        *([say("holder {name}", name=plain(scope.holder))] if scope.holder is not None else []),
    ]


def headline(report: Report) -> str:
    """The one sentence that a reader takes away."""
    totals = report.summary.totals
    wasted = sum(totals.state_ms[state] for state in UNUSED)
    if report.is_empty:
        known = report.known
        if report.fleet_was_seen and report.seen.silent:
            return say(
                "Nothing of {scope} was observed in this window. Silent: {hosts}.",
                scope=Listed(scope_parts(report.scope), ", "), hosts=silent_hosts(report.seen.silent),
            )  # fmt: skip
        if report.fleet_was_seen:
            return say("Nothing in this window is of {scope}.", scope=Listed(scope_parts(report.scope), ", "))
        return say(
            "Nothing was observed in this window. The lake has rows from {since} to {until}.",
            since=Moment(known.since_ms or 0), until=Moment(known.until_ms or 0),
        )  # fmt: skip
    if not totals.observed_ms:
        return say("Nothing was observed in this window.")
    return say(
        "{wasted} of {observed} observed GPU-hours went unused: {free} free, {reserved} reserved, {held} held; {active} were active.",
        wasted=GpuHours(wasted), observed=GpuHours(totals.observed_ms), active=Share(totals.share("active")),
        **{state: Share(totals.share(state)) for state in UNUSED},
    )  # fmt: skip


def reclaimable(report: Report) -> str:
    """What the findings add up to, as of the end or of the last moment seen; a GPU in two findings counts once.

    Nothing where nothing was seen.
    """
    if report.is_empty:
        return ""
    now = {gpu for finding in report.findings for gpu in finding.reclaimable_gpus}
    sure = {
        gpu for finding in report.findings if finding.confidence.grade == "high" for gpu in finding.reclaimable_gpus
    }  # fmt: skip
    last_ms = report.seen.last_ms
    if last_ms is not None and not report.seen.to_the_end:
        return _reclaimable_at(last_ms, len(now), len(sure))
    if not now:
        return say("No GPU could be taken back at the end of the window.")
    return say_many(
        "{number} GPU could be taken back at the end of the window, {sure} with high confidence.",
        "{number} GPUs could be taken back at the end of the window, {sure} with high confidence.",
        len(now), sure=Number(len(sure)),
    )  # fmt: skip


def _reclaimable_at(last_ms: int, now: int, sure: int) -> str:
    if not now:
        return say(
            "Whether a GPU could be taken back is not known: nothing was seen after {moment}.", moment=Moment(last_ms)
        )
    return say_many(
        "{number} GPU could be taken back at {moment}, {sure} with high confidence; nothing was seen after that.",
        "{number} GPUs could be taken back at {moment}, {sure} with high confidence; nothing was seen after that.",
        now, moment=Moment(last_ms), sure=Number(sure),
    )  # fmt: skip


def how_sure(report: Report, language: Language) -> list[str]:
    """What the threshold does to the idle headline, how last week's findings fared, and what is hidden."""
    found = report.review
    hidden = say_many("{number} finding suppressed.", "{number} findings suppressed.", len(found.suppressed))
    return [
        language.say(say("Held without a kernel: {held}.", held=hours_by_threshold(found.sensitivity))),
        *([as_sentence(language.say(reversals(report)))] if found.reversals else []),
        *([language.say(hidden)] if found.suppressed else []),
    ]


def reversals(report: Report) -> str:
    """How often last week's findings were wrong; of an edition for people too it is the rate of all of them."""
    found = report.review.reversals
    if found is None:
        return ""
    rate = reversals_text(found)
    return rate if report.scope.is_all else say("whole fleet, {rate}", rate=rate)


def as_sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


_MOST_GROUPS = {"holder": 10}


def shown_groups(section: Section) -> tuple[list[tuple[str, Totals]], str]:
    """The groups that are listed, and a line that counts the others; the most GPU time first, days in their order.

    Left out: what would show as 0.0 GPU-hours, such as the 20 ms by which a last interval reaches into a day.
    """
    groups = list(section.groups.items())
    if section.name != "day":
        groups.sort(key=lambda item: -item[1].total_ms)
    sizeable = [item for item in groups if _shows(item[1].total_ms)] or groups
    most = _MOST_GROUPS.get(section.name, 40)
    shown = sizeable[-most:] if section.name == "day" else sizeable[:most]
    if len(shown) == len(groups):
        return shown, ""
    rest_ms = sum(totals.total_ms for _, totals in groups) - sum(totals.total_ms for _, totals in shown)
    rest = say(
        "and {number} more with {hours} GPU-hours", number=Number(len(groups) - len(shown)), hours=GpuHours(rest_ms)
    )
    return shown, rest if _shows(rest_ms) else ""


def _shows(milliseconds: float) -> bool:
    """Whether it is more than 0.0 GPU-hours."""
    return str(GpuHours(milliseconds)) != "0.0"


def group_name(section: Section, name: str, language: Language) -> str:
    """A group's name on one line: days as the language writes them, and the words for what has no name."""
    if section.name == "day":
        return language.date(date.fromisoformat(name))
    return placed(plain(name), language)


def placed(name: str, language: Language) -> str:
    """The name of a pool or a model; where there is none, the words for that."""
    return language.say(name) if name in (NO_POOL, UNKNOWN_MODEL) else name


def how_made(report: Report) -> list[str]:
    """How each figure is made, with the thresholds in force."""
    settings = report.settings
    return [
        say("A sample stands for the time to the next one, at most three intervals; the rest is unknown."),
        say(
            "Held: a holder, and no kernel for at least {held}. Low: a mean below {low} % over the stretch.",
            held=Span(settings.idle_after_ms), low=figure(settings.low_below_pct),
        ),
        say("A held finding counts stretches of at least {least}.", least=Span(report.held_min_ms)),
        say(
            "Without a process list, more than {least} GB in use stands for a holder.",
            least=figure(settings.held_min_bytes / 1e9),
        ),
        say("Shares are of the observed time. States add up to the total to the millisecond."),
    ]  # fmt: skip


def figure(value: float) -> Number:
    """A figure of the settings with the decimals that it needs, six at the most."""
    return Number(value, len(f"{value:.6f}".rstrip("0").partition(".")[2]))

"""Is it getting better? The states of each day, stacked."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from analytics.language.quantities import Share
from analytics.language.sentences import say
from analytics.ledger.summary import ratio
from analytics.render.html import svg
from analytics.render.html.cells import labelled
from analytics.render.html.chart import Chart, Table
from analytics.render.html.states import fill, patterns
from analytics.states import UNUSED, USED_FIRST
from fallow.clock import HOUR_MS, to_ms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from markupsafe import Markup

    from analytics.language.languages import Language
    from analytics.ledger.summary import Totals
    from analytics.report.model import Report

_KEY = "d"
_MOST_DAYS = 35
_TOP, _BOTTOM, _LEFT = 14.0, 270.0, 42.0


def days(report: Report, language: Language) -> Chart:
    """The last days of the window, a column each."""
    shown = shown_days(report)
    title = language.say("Every day by state")
    finding = language.say(_finding(shown, language))
    parts = [patterns(_KEY), *_columns(shown, language)]
    head = (language.say("day"), *(language.say(state) for state in USED_FIRST), language.say("unused"))
    rows = tuple(
        (
            _day(day, language),
            *(language.hours(totals.state_ms[state]) for state in USED_FIRST),
            language.percent(_unused(totals)),
        )
        for day, totals in shown.items()
    )
    return Chart(
        key=_KEY,
        title=title,
        finding=finding,
        drawing=svg.drawing(_BOTTOM + 24, parts, labelled(title, finding, language)),
        table=Table(head, rows),
        legend=tuple(state for state in USED_FIRST if any(each.state_ms[state] for each in shown.values())),
        note=language.say(
            say(
                "GPU-hours; days are those of {zone}. Unused is free, reserved and held, of the observed time.",
                zone=str(report.zone),
            )
        ),
    )


def shown_days(report: Report) -> dict[str, Totals]:
    """The last days, without one into which only the end of a last interval reaches."""
    groups = next(section.groups for section in report.sections if section.name == "day")
    sizeable = [(str(day), totals) for day, totals in groups.items() if totals.total_ms >= HOUR_MS / 20]
    return dict(sizeable[-_MOST_DAYS:])


def _unused(totals: Totals) -> float | None:
    return ratio(sum(totals.state_ms[state] for state in UNUSED), totals.observed_ms)


def _finding(shown: Mapping[str, Totals], language: Language) -> str:
    known = {day: share for day, totals in shown.items() if (share := _unused(totals)) is not None}
    if not known:
        return say("Nothing was observed on any day.")
    if len(known) == 1:
        (day, share) = next(iter(known.items()))
        return say("{share} went unused on {day}.", share=Share(share), day=_day(day, language))
    worst, best = max(known, key=lambda day: known[day]), min(known, key=lambda day: known[day])
    return say(
        "Between {least} (on {best}) and {most} (on {worst}) went unused.",
        least=Share(known[best]), best=_day(best, language), most=Share(known[worst]), worst=_day(worst, language),
    )  # fmt: skip


def _columns(shown: Mapping[str, Totals], language: Language) -> Iterator[Markup]:
    most = max((totals.total_ms for totals in shown.values()), default=0)
    if not most:
        return
    scale = (_BOTTOM - _TOP) / most
    for part in (0.0, 0.5, 1.0):
        y = _BOTTOM - part * most * scale
        yield svg.line(_LEFT, y, svg.WIDTH, y)
        yield svg.text(_LEFT - 6, y + 4, language.number(part * most / HOUR_MS), anchor="end", kind="m")
    pitch = (svg.WIDTH - _LEFT) / len(shown)
    width = min(pitch * 0.82, 56.0)
    every = -(-len(shown) // 8)
    for place, (day, totals) in enumerate(shown.items()):
        x = _LEFT + place * pitch + (pitch - width) / 2
        y = _BOTTOM
        for state in USED_FIRST:
            height = totals.state_ms[state] * scale
            y -= height
            yield svg.rect(x, y, width, height, fill(state, _KEY))
        if place % every == 0:
            yield svg.text(x + width / 2, _BOTTOM + 16, _short(day, language), anchor="middle", kind="m")


def _short(day: str, language: Language) -> str:
    """`Mon 9`."""
    date = datetime.fromisoformat(day)
    return f"{language.weekday(date.weekday())} {date.day}"


def _day(day: str, language: Language) -> str:
    return replace(language, zone=UTC).day(to_ms(datetime.fromisoformat(day).replace(tzinfo=UTC)))

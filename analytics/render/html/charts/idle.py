"""How much the choice of a threshold does to an idle headline: the same time, counted in longer and longer stretches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.language.quantities import Number
from analytics.language.sentences import say
from analytics.ledger.summary import SPELLS, ratio
from analytics.render.html import svg
from analytics.render.html.cells import labelled
from analytics.render.html.chart import Chart, Table
from analytics.render.html.states import fill, patterns
from fallow.clock import HOUR_MS, MINUTE_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markupsafe import Markup

    from analytics.language.languages import Language
    from analytics.report.model import Report

_KEY = "i"
_ROW, _BAR, _LEFT, _RIGHT = 25.0, 15.0, 92.0, 310.0
_Row = tuple[str, float | None, str]
"""Label, share of the longest bar, figure."""


def idle(report: Report, language: Language) -> Chart:
    """GPU-hours held without a kernel, and time at 0 % whoever holds the GPU, by the shortest stretch that counts."""
    held, zero = _held(report, language), _zero(report, language)
    title = language.say("What counts as idle?")
    finding = language.say(_finding(report))
    first = language.say("held without a kernel, GPU-hours")
    second = language.say("measured at 0 %, whoever holds the GPU, of the observed time")
    at = 26 + _ROW * len(held)
    parts = [
        patterns(_KEY, ("held",)),
        svg.text(0, 11, first, kind="m"),
        *_bars(held, 20, fill("held", _KEY)),
        svg.text(0, at + 18, second, kind="m"),
        *_bars(zero, at + 27, fill("free", _KEY)),
    ]
    rows = [(f"{first}, {label}", figure) for label, _, figure in held]
    rows += [(f"{second}, {label}", figure) for label, _, figure in zero]
    return Chart(
        key=_KEY,
        title=title,
        finding=finding,
        drawing=svg.drawing(at + 30 + _ROW * len(zero), parts, labelled(title, finding, language)),
        table=Table((language.say("in stretches of"), language.say("value")), tuple(rows)),
        note=language.say("A threshold is a choice: it can move an idle headline several times over."),
    )


def _finding(report: Report) -> str:
    held = report.review.sensitivity
    if not report.summary.totals.state_ms["held"]:
        return say("No GPU was held without a kernel.")
    return say(
        "Held without a kernel: {half} GPU-hours in stretches of 30 min and more, {two} in stretches of 120 min and more.",
        half=Number(held[30], 1), two=Number(held[120], 1),
    )  # fmt: skip


def _held(report: Report, language: Language) -> list[_Row]:
    whole = report.summary.totals.state_ms["held"] / HOUR_MS
    rows = [(language.say("in all"), whole)]
    rows += [(_at_least(minutes * MINUTE_MS, language), value) for minutes, value in report.review.sensitivity.items()]
    return [(label, ratio(value, whole) or 0.0, language.number(value, 1)) for label, value in rows]


def _zero(report: Report, language: Language) -> list[_Row]:
    observed, spent = report.summary.totals.observed_ms, report.summary.idle
    rows = [(language.say("in all"), spent.zero_ms)]
    rows += [(_at_least(SPELLS[name], language), value) for name, value in spent.spell_ms.items()]
    return [(label, ratio(value, observed), language.percent(ratio(value, observed))) for label, value in rows]


def _at_least(span_ms: int, language: Language) -> str:
    return f"≥{language.space}{language.minutes(span_ms)}"


def _bars(rows: Sequence[_Row], top: float, look: dict[str, str]) -> Iterator[Markup]:
    for place, (label, share, figure) in enumerate(rows):
        y = top + place * _ROW
        yield svg.text(0, y + 12, label)
        yield svg.rect(_LEFT, y, (_RIGHT - _LEFT) * (share or 0.0), _BAR, look)
        yield svg.text(svg.WIDTH, y + 12, figure, anchor="end")

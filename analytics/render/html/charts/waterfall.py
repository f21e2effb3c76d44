"""Where the money goes: from what was paid, state by state, down to what was useful."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.language.quantities import Amount, GpuHours, Share
from analytics.language.sentences import say
from analytics.ledger.summary import ratio
from analytics.render.html import svg
from analytics.render.html.amounts import cents
from analytics.render.html.cells import labelled
from analytics.render.html.chart import Chart, Table
from analytics.render.html.states import fill, patterns
from analytics.states import UNUSED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markupsafe import Markup

    from analytics.language.languages import Language
    from analytics.report.figures import Step
    from analytics.report.model import Report

_KEY = "w"
_ROW, _BAR = 37.0, 18.0
_LEFT, _RIGHT = 84.0, 270.0


def waterfall(report: Report, language: Language) -> Chart:
    """The steps from paid to useful, in GPU-hours and money."""
    total_ms = sum(step.gpu_ms for step in report.steps)
    paid = report.money.accounts.total.paid_cents
    title = language.say("From paid to useful")
    finding = language.say(_finding(report, total_ms))
    parts = [patterns(_KEY, tuple(step.state for step in report.steps)), *_paid(report, language, total_ms)]
    left_ms = total_ms
    for place, step in enumerate(report.steps, start=1):
        last = place == len(report.steps)
        start_ms = 0.0 if last else left_ms - step.gpu_ms
        parts += _step(report, language, step, place, (start_ms, total_ms))
        left_ms -= step.gpu_ms
    rows = [
        (language.say("paid"), language.hours(total_ms), "", language.money(cents(paid), report.money.currency)),
        *(
            (
                language.say(step.state),
                language.hours(step.gpu_ms),
                language.percent(ratio(step.gpu_ms, total_ms)),
                language.money(cents(step.cents), report.money.currency),
            )
            for step in report.steps
        ),
    ]
    return Chart(
        key=_KEY,
        title=title,
        finding=finding,
        drawing=svg.drawing(_ROW * (len(report.steps) + 1), parts, labelled(title, finding, language)),
        table=Table(
            (language.say("state"), language.say("GPU-hours"), language.say("of all"), language.say("cost")),
            tuple(rows),
        ),
        note=language.say("Shares are of all GPU time, unknown time included."),
    )


def _finding(report: Report, total_ms: float) -> str:
    steps = {step.state: step for step in report.steps}
    if not total_ms:
        return say("There was no GPU time in this window.")
    useful = Share(ratio(steps["active"].gpu_ms, total_ms))
    worst = max((steps[state] for state in UNUSED), key=lambda step: (step.cents or 0, step.gpu_ms))
    if not worst.gpu_ms:
        return say("{share} of the GPU time was useful; nothing was idle.", share=useful)
    if worst.cents is None:
        return say(
            "{share} of the GPU time was useful; the most was lost {state}: {hours} GPU-hours.",
            share=useful, state=say(worst.state), hours=GpuHours(worst.gpu_ms),
        )  # fmt: skip
    return say(
        "{share} of the GPU time was useful; the most was lost {state}: {hours} GPU-hours, {money}.",
        share=useful, state=say(worst.state), hours=GpuHours(worst.gpu_ms),
        money=Amount(cents(worst.cents), report.money.currency),
    )  # fmt: skip


def _paid(report: Report, language: Language, total_ms: float) -> Iterator[Markup]:
    yield svg.text(0, 14, language.say("paid"), kind="b")
    yield svg.rect(_LEFT, 0, _RIGHT - _LEFT if total_ms else 0, _BAR, {"fill": "#7d889c"})
    yield svg.text(svg.WIDTH, 10, language.hours(total_ms), anchor="end", kind="b")
    paid = report.money.accounts.total.paid_cents
    if paid is not None:
        yield svg.text(svg.WIDTH, 23, language.money(cents(paid), report.money.currency), anchor="end", kind="m")


def _step(report: Report, language: Language, step: Step, place: int, span_ms: tuple[float, float]) -> Iterator[Markup]:
    """One row: `span_ms` is where its bar starts, and what the whole width stands for."""
    start_ms, total_ms = span_ms
    y = place * _ROW
    scale = (_RIGHT - _LEFT) / total_ms if total_ms else 0.0
    useful = place == len(report.steps)
    yield svg.text(0, y + 13, language.say(step.state), kind="b" if useful else "")
    if useful:
        yield svg.text(0, y + 26, language.say("useful"), kind="m")
    x = _LEFT + start_ms * scale
    edge = x + step.gpu_ms * scale
    yield svg.line(edge, y - _ROW + _BAR, edge, y)
    yield svg.rect(x, y, step.gpu_ms * scale, _BAR, fill(step.state, _KEY))
    share = language.percent(ratio(step.gpu_ms, total_ms))
    yield svg.text(svg.WIDTH, y + 10, f"{language.hours(step.gpu_ms)}, {share}", anchor="end")
    if step.cents is not None:
        yield svg.text(
            svg.WIDTH, y + 23, language.money(cents(step.cents), report.money.currency), anchor="end", kind="m"
        )

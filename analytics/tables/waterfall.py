"""Where the money goes: from what was paid, state by state, down to what was useful."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from analytics.glossary import STATES
from analytics.language.quantities import Amount, GpuHours, Number, Share, from_cents
from analytics.language.sentences import tr
from analytics.ledger.summary import ratio
from analytics.report.figures import Step
from analytics.report.model import Report
from analytics.states import UNUSED
from analytics.tables.point_samples import sampled_note
from analytics.tables.table import Cell, Column, Table, Waterfall, WaterfallStep
from fallow.clock import HOUR_MS

_USEFUL = "active"
_WASTE = {
    "free": tr("GPUs without any user"),
    "reserved": tr("allocated GPUs without a process"),
    "held": tr("GPUs held without a running kernel"),
}


def waterfall(report: Report) -> Table:
    """What each state takes away of what was paid, and what is left; an edition for people lacks states that nobody is charged for."""
    steps = [step for step in report.steps if step.gpu_ms or not report.scope.is_personal]
    total_ms = sum(step.gpu_ms for step in report.steps)
    paid = report.money.accounts.total.paid_cents
    money = (
        (Column("cost", tr("cost, {currency}", currency=report.money.currency), "money"),) if paid is not None else ()
    )
    return Table(
        name="waterfall",
        title=tr("From paid to useful"),
        question=tr("Where does the money go? GPU-hours, state by state, until the useful ones are left."),
        headline=_headline(report, total_ms),
        columns=(
            Column("state", tr("state"), "state"),
            Column("gpu_hours", tr("GPU-hours"), "gpu_hours"),
            Column("share", tr("of all"), "share"),
            Column("left", tr("left"), "share"),
            Column("observed_share", tr("of observed"), "share"),
            *money,
        ),
        rows=tuple(_rows(report, steps, total_ms)),
        chart=Waterfall(tr("GPU-hours"), tuple(_bars(report, steps, total_ms))) if total_ms else None,
        notes=(tr("Shares are of all GPU time, unknown time included."), *sampled_note([report.summary.totals])),
        terms=tuple(STATES[step.state] for step in steps),
    )  # fmt: skip


def _headline(report: Report, total_ms: float) -> str:
    steps = {step.state: step for step in report.steps}
    if not total_ms:
        return tr("There was no GPU time in this window.")
    useful: Share | str = Share(ratio(steps[_USEFUL].gpu_ms, total_ms))
    totals = report.summary.totals
    if totals.leaves_open:
        bounds = (Share(ratio(each, total_ms)) for each in (totals.active_bound.low_ms, totals.active_bound.high_ms))
        useful = tr("{low} to {high}", **dict(zip(("low", "high"), bounds, strict=True)))
    worst = max((_confirmed(report, steps[state]) for state in UNUSED), key=lambda step: (step.cents or 0, step.gpu_ms))
    if not worst.gpu_ms and totals.leaves_open:
        return tr("{share} of the GPU time was useful; what was idle is not confirmed.", share=useful)
    if not worst.gpu_ms:
        return tr("{share} of the GPU time was useful; nothing was idle.", share=useful)
    waste = tr("{waste}, {hours} GPU-hours", waste=_WASTE[worst.state], hours=GpuHours(worst.gpu_ms))
    if worst.cents is not None:
        waste = tr("{waste}, {money}", waste=waste, money=Amount(from_cents(worst.cents), report.money.currency))
    return tr("{share} of the GPU time was useful. Most waste: {waste}.", share=useful, waste=waste)


def _confirmed(report: Report, step: Step) -> Step:
    """The step without what point samples alone call idle."""
    totals = report.summary.totals
    if not totals.leaves_open:
        return step
    cents = None if step.cents is None else step.cents - report.money.accounts.total.open_cents[step.state]
    return replace(step, gpu_ms=max(0.0, step.gpu_ms - totals.unconfirmed_ms.get(step.state, 0)), cents=cents)


def _rows(report: Report, steps: Sequence[Step], total_ms: float) -> Iterator[tuple[Cell, ...]]:
    priced = report.money.accounts.total.paid_cents
    money = () if priced is None else (Number(from_cents(priced), 2),)
    yield tr("paid"), GpuHours(total_ms), "", "", "", *money
    left_ms = total_ms
    for step in steps:
        left_ms -= step.gpu_ms
        yield (
            tr(step.state),
            GpuHours(step.gpu_ms),
            Share(ratio(step.gpu_ms, total_ms)),
            "" if step is steps[-1] else Share(ratio(left_ms, total_ms)),
            "" if step.state == "unknown" else Share(report.summary.totals.share(step.state)),
            *(() if priced is None else (Number(from_cents(step.cents), 2),)),
        )


def _bars(report: Report, steps: Sequence[Step], total_ms: float) -> Iterator[WaterfallStep]:
    currency = report.money.currency

    def amount(cents: int | None) -> Cell:
        return "" if cents is None else Amount(from_cents(cents), currency)

    total = GpuHours(total_ms)
    yield WaterfallStep(tr("paid"), "", 0.0, total_ms / HOUR_MS, total, amount(report.money.accounts.total.paid_cents))
    left_ms = total_ms
    for step in steps:
        left_ms -= step.gpu_ms
        useful = step.state == _USEFUL
        yield WaterfallStep(
            label=tr(step.state),
            state=step.state,
            start=0.0 if useful else left_ms / HOUR_MS,
            length=step.gpu_ms / HOUR_MS,
            figure=tr("{hours}, {share}", hours=GpuHours(step.gpu_ms), share=Share(ratio(step.gpu_ms, total_ms))),
            detail=amount(step.cents),
            remark=tr("useful") if useful else "",
        )

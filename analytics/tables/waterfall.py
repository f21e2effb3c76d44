"""Where the money goes: from the amount paid, state by state, down to busy time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from analytics.glossary import STATES, state_label
from analytics.language.sentences import Amount, GpuHours, Number, Share, from_cents, tr
from analytics.ledger.summary import ratio
from analytics.report.figures import Step
from analytics.report.parts import LedgerFigures
from analytics.states import UNUSED
from analytics.tables.basis import marked
from analytics.tables.chart import Bars, Chart, ChartPlace, Panel
from analytics.tables.names import GPU_HOURS
from analytics.tables.point_samples import sampled_note
from analytics.tables.table import Table, column
from fallow.clock import HOUR_MS

_BUSY = "active"
_WASTE = {
    "free": tr("unallocated GPUs"),
    "reserved": tr("allocated GPUs without a process"),
    "held": tr("GPUs held idle"),
    "stalled": tr("stalled GPUs"),
}


def waterfall(ledger: LedgerFigures) -> Table:
    """Return what each state takes from the amount paid, and the remainder.

    An edition for people leaves out states that users do not pay for.
    """
    steps = [step for step in ledger.steps if step.gpu_ms or not ledger.scope.is_personal]
    total_ms = sum(step.gpu_ms for step in ledger.steps)
    paid = Step("paid", total_ms, ledger.money.accounts.total.paid_cents)
    spent = accumulate(step.gpu_ms for step in steps)
    left_ms = {step.state: total_ms - spent_ms for step, spent_ms in zip(steps, spent, strict=True)}

    def left(step: Step) -> Share | str:
        return "" if step is paid or step is steps[-1] else Share(ratio(left_ms[step.state], total_ms))

    def observed_share(step: Step) -> Share | str:
        return "" if step.state in ("paid", "unknown") else Share(ledger.summary.totals.share(step.state))

    def unconfirmed(step: Step) -> float:
        return ledger.summary.totals.unconfirmed(step.state) if step.state in UNUSED else 0.0

    cost = column(
        "cost",
        tr("cost, {currency}", currency=ledger.money.currency),
        "money",
        lambda step: Number(from_cents(step.cents), 2),
        audience="programs" if paid.cents is None else "all",
    )
    return Table(
        name="waterfall",
        title=tr("From paid to busy"),
        question=tr("Where does the money go? From all GPU-hours, state by state, down to the busy ones."),
        headline=_headline(ledger, total_ms),
        columns=(
            column("state", tr("state"), "state", _name, "state"),
            marked(GPU_HOURS, unconfirmed),
            column(
                "share",
                tr("share of total"),
                "share",
                lambda step: "" if step is paid else Share(ratio(step.gpu_ms, total_ms)),
            ),
            column("left", tr("remaining"), "share", left),
            column("observed_share", tr("share of observed"), "share", observed_share),
            marked(cost, unconfirmed),
        ),
        rows=(paid, *steps),
        chart=_chart(ledger, (paid, *steps), left_ms) if total_ms else None,
        notes=(
            tr("Shares refer to all GPU time, including time that was not observed."),
            *sampled_note([ledger.summary.totals]),
        ),
        terms=tuple(STATES[step.state] for step in steps),
    )


def _name(step: Step) -> str:
    return state_label(step.state) if step.state in STATES else tr("paid")


def _headline(ledger: LedgerFigures, total_ms: float) -> str:
    steps = {step.state: step for step in ledger.steps}
    if not total_ms:
        return tr("There was no GPU time in this window.")
    busy: Share | str = Share(ratio(steps[_BUSY].gpu_ms, total_ms))
    totals = ledger.summary.totals
    is_open = totals.leaves_open or totals.leaves_doubt
    if is_open:
        low, high = totals.active_bound.low_ms, totals.active_bound.high_ms
        busy = tr("{low} to {high}", low=Share(ratio(low, total_ms)), high=Share(ratio(high, total_ms)))
    worst = max((_confirmed(ledger, steps[state]) for state in UNUSED), key=lambda step: (step.cents or 0, step.gpu_ms))
    if not worst.gpu_ms and is_open:
        return tr("{share} of the paid GPU time was busy; no waste is confirmed.", share=busy)
    if not worst.gpu_ms:
        return tr("{share} of the paid GPU time was busy; no idle time was observed.", share=busy)
    waste = tr("{waste}, {hours} GPU-hours", waste=_WASTE[worst.state], hours=GpuHours(worst.gpu_ms))
    if worst.cents is not None:
        waste = tr("{waste}, {money}", waste=waste, money=Amount(from_cents(worst.cents), ledger.money.currency))
    return tr("{share} of the paid GPU time was busy. The largest waste is {waste}.", share=busy, waste=waste)


def _confirmed(ledger: LedgerFigures, step: Step) -> Step:
    """Return the step without time that only point samples show as idle."""
    totals = ledger.summary.totals
    if not totals.leaves_open:
        return step
    cents = None if step.cents is None else step.cents - ledger.money.accounts.total.open_cents[step.state]
    return replace(step, gpu_ms=max(0.0, step.gpu_ms - totals.unconfirmed_ms.get(step.state, 0)), cents=cents)


def _chart(ledger: LedgerFigures, steps: Sequence[Step], left_ms: Mapping[str, float]) -> Chart:
    """Return the chart: a bar per step, which ends where the bar above begins. Paid and busy time begin at zero."""
    paid = steps[0]

    def place(step: Step) -> ChartPlace:
        hours = GpuHours(step.gpu_ms)
        return ChartPlace(
            _name(step),
            figure=hours
            if step is paid
            else tr("{hours}, {share}", hours=hours, share=Share(ratio(step.gpu_ms, paid.gpu_ms))),
            detail="" if step.cents is None else Amount(from_cents(step.cents), ledger.money.currency),
        )

    bars = Bars(
        "",
        ("muted", *(step.state for step in steps[1:])),
        tuple(step.gpu_ms / HOUR_MS for step in steps),
        tuple(0.0 if step.state in (paid.state, _BUSY) else left_ms[step.state] / HOUR_MS for step in steps),
    )
    return Chart((Panel("", (bars,), tuple(map(place, steps)), unit=tr("GPU-hours"), lying=True),))

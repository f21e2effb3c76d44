"""Sampled time: its amount, the uncertainty of each figure, and what confirms it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from analytics.glossary import state_label
from analytics.language.sentences import Amount, GpuHours, Number, Share, Span, from_cents, plain, tr
from analytics.ledger.sampled import Bound
from analytics.ledger.summary import OPEN_FROM, Summary, Totals, ratio
from analytics.report.parts import LedgerFigures
from analytics.states import UNUSED
from analytics.tables.table import Table, column
from analytics.workloads.confidence import likely_idle
from fallow.clock import SECOND_MS

_SHOWN_FROM = 0.0005
"""Least sampled share that is shown: less is written as 0.0 %."""

_MOSTLY = 0.5
"""From this sampled share, the interval of the samples is shown; below it, only that the time was partly sampled."""


def is_sampled(totals: Totals) -> bool:
    """Return True if the sampled share is large enough to mention."""
    return (totals.sampled or 0.0) >= _SHOWN_FROM


def every(summary: Summary) -> Span:
    """Return the average interval between samples."""
    return Span(max(SECOND_MS, round((summary.samples.every_ms or 0.0) / SECOND_MS) * SECOND_MS))


def by_samples(summary: Summary) -> str:
    """Return the sampled share of the observed time, in words."""
    share = Share(summary.totals.sampled)
    return tr("{share} of that time only sampled, once every {span}", share=share, span=every(summary))


def state_share(summary: Summary, state: str) -> str | Share:
    """Return a state's share of the observed time, with bounds where it is only sampled."""
    share, sampled = Share(summary.totals.share(state)), open_between(summary, state)
    return tr("{share} ({sampled})", share=share, sampled=sampled) if sampled else share


def open_between(summary: Summary, state: str) -> str:
    """Return the bounds of a state's share; empty if it is exact."""
    totals = summary.totals
    if state == "active" and totals.leaves_open:
        return between(summary, totals.active_bound)
    if state in ("active", "stalled") and totals.leaves_doubt:
        bound = totals.active_bound if state == "active" else totals.bound(state)
        return tr("between {low} and {high}", **_shares(totals, bound))
    is_open = totals.unconfirmed_ms.get(state) or (state == "held" and totals.leaves_open)
    return between(summary, totals.bound(state)) if is_open else ""


def busy_share(summary: Summary) -> str | Share:
    """Return the busy share of the observed time, with bounds where it is only sampled."""
    totals = summary.totals
    if not (totals.leaves_open or totals.leaves_doubt):
        return Share(totals.share("active"))
    return tr("{low} to {high}", **_shares(totals, totals.active_bound))


def doubt(totals: Totals) -> list[str]:
    """Return the busy time that may be stalled, as a part of a sentence; empty if there is next to none."""
    if not totals.leaves_doubt:
        return []
    hours = GpuHours(totals.perhaps_stalled_ms)
    return [tr("{hours} GPU-hours of busy time may be stalled: one witness alone speaks against work", hours=hours)]


def _shares(totals: Totals, bound: Bound) -> dict[str, Share]:
    low, high = (Share(ratio(each, totals.observed_ms)) for each in (bound.low_ms, bound.high_ms))
    return {"low": low, "high": high}


def between(summary: Summary, bound: Bound) -> str:
    """Return the bounds of a share of the observed time, and how it was sampled."""
    totals = summary.totals
    shares = _shares(totals, bound)
    if (totals.sampled or 0.0) < _MOSTLY:
        return tr("partly sampled: between {low} and {high}", **shares)
    return tr("sampled every {span}: between {low} and {high}", span=every(summary), **shares)


def sampled_note(shown: Iterable[Totals]) -> tuple[str, ...]:
    """Return a note for a section whose figures are partly sampled; empty otherwise."""
    groups = list(shown)
    return unconfirmed_note(sum(each.open_ms for each in groups) if any(each.leaves_open for each in groups) else 0)


def unconfirmed_note(open_ms: float) -> tuple[str, ...]:
    """Return a note about unconfirmed idle time that does not count as unused; empty if there is none."""
    sentence = tr(
        "{hours} GPU-hours of idle time are only sampled. They do not count as unused, because nothing confirms them:"
        " see “Point samples” in the report or in `fallow ledger`.",
        hours=GpuHours(open_ms),
    )
    return (sentence,) if open_ms else ()


def counted_note(open_ms: float) -> tuple[str, ...]:
    """Return a note about unconfirmed idle time that counts as unused; empty if there is none."""
    sentence = tr(
        "{hours} GPU-hours that count as unused here are only sampled. Nothing confirms them, and work between samples"
        " would not show.",
        hours=GpuHours(open_ms),
    )
    return (sentence,) if open_ms else ()


def point_samples(ledger: LedgerFigures) -> Table | None:
    """Return a row per state of unused time with its bounds; None if nearly all time was watched."""
    summary, totals = ledger.summary, ledger.summary.totals
    if (totals.sampled or 0.0) < OPEN_FROM:
        return None
    return Table(
        name="point_samples",
        title=tr("Point samples"),
        question=tr("How certain is the idle time? A sample at 0 shows only that the GPU was idle at that moment."),
        headline=_headline(summary),
        columns=(
            column("state", tr("state"), "state", state_label, str),
            column("gpu_hours", tr("GPU-hours"), "gpu_hours", totals.state_ms.get),
            column("low_gpu_hours", tr("at least"), "gpu_hours", lambda state: totals.bound(state).low_ms),
            column("high_gpu_hours", tr("at most"), "gpu_hours", lambda state: totals.bound(state).high_ms),
            column("share", tr("share of observed"), "share", totals.share),
        ),
        rows=UNUSED,
        lines=tuple(_lines(ledger)),
        notes=(
            tr(
                "Confirmed: between the samples, the energy counter rose as it does for an idle card of this model."
                " Very likely: no counter was read, and the power readings are flat. The remaining time may hide work"
                " between samples."
            ),
        ),
        wide=True,
    )


def _headline(summary: Summary) -> str:
    totals = summary.totals
    seen = tr(
        "{share} of the observed time was only sampled, once every {span} on average.",
        share=Share(totals.sampled),
        span=every(summary),
    )
    if not totals.leaves_open:
        return tr("{seen} Its idle time is confirmed.", seen=seen) if totals.unused_ms else seen
    if not totals.open_ms:
        return tr(
            "{seen} {hours} GPU-hours next to samples at 0 may also have been idle.",
            seen=seen,
            hours=GpuHours(totals.perhaps_ms),
        )
    hours = GpuHours(totals.open_ms)
    return tr("{seen} Nothing else confirms {hours} GPU-hours of idle time.", seen=seen, hours=hours)


def _lines(ledger: LedgerFigures) -> Iterator[str]:
    """Yield how much work samples can miss, the cost and the time that they leave open, and the power of idle cards."""
    summary, samples, floors = ledger.summary, ledger.summary.samples, ledger.floors
    yield tr(
        "A reading covers at least a sixth of a second. Work between two readings, up to {share} of the time, leaves no"
        " trace in utilization.",
        share=Share(samples.hidden_ratio),
    )
    if cents := sum(ledger.money.accounts.total.open_cents.values()):
        yield tr(
            "The cost of unused time leaves out {amount} of unconfirmed idle time.",
            amount=Amount(from_cents(cents), ledger.money.currency),
        )
    if likely := samples.likely:
        yield tr(
            "{hours} GPU-hours are very likely idle, unless work runs in step with the readings. {readings}.",
            hours=GpuHours(likely.time_ms),
            readings=likely_idle(likely),
        )
    yield tr(
        "Time without a kernel, including very short pauses: between {low} and {high} of the observed time (95 %).",
        **_shares(summary.totals, samples.idle),
    )
    models = sorted({*floors.held, *floors.free}) if floors else []
    for model in models:
        floor = floors.of(model) if floors else None
        if floor is not None:
            yield tr(
                "{model}: an idle card draws {watts} W, measured over {hours} GPU-hours of this window.",
                model=plain(model),
                watts=Number(floor.watts, 0),
                hours=Number(floor.gpu_hours, 1),
            )
    if not models:
        yield tr("The power of an idle card is not known: too little idle time has power readings.")

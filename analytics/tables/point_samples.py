"""What was seen by point samples only: how much, what that leaves open of each figure, and what confirms it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, GpuHours, Number, Share, Span, from_cents
from analytics.language.sentences import tr
from analytics.ledger.sampled import Bound, IdleFloors
from analytics.ledger.summary import OPEN_FROM, Summary, Totals, ratio
from analytics.money.window_money import Money
from analytics.report.parts import LedgerFigures
from analytics.states import UNUSED
from analytics.tables.table import Table, column
from fallow.clock import SECOND_MS

_SHOWN_FROM = 0.0005
"""Less of the observed time would be written as 0.0 %."""

_MOSTLY = 0.5
"""From this share of the time on the samples' own pace says how it was seen."""


def is_sampled(totals: Totals) -> bool:
    """Whether enough of the time was seen by point samples for a figure to show it."""
    return (totals.sampled or 0.0) >= _SHOWN_FROM


def every(summary: Summary) -> Span:
    """How far apart the samples are on average."""
    return Span(max(SECOND_MS, round((summary.samples.every_ms or 0.0) / SECOND_MS) * SECOND_MS))


def by_samples(summary: Summary) -> str:
    """How much of the observed time was seen at moments only."""
    share = Share(summary.totals.sampled)
    return tr("{share} of it by point samples, one every {span}", share=share, span=every(summary))


def state_share(summary: Summary, state: str) -> str | Share:
    """A state's share of the observed time, and between which bounds it lies where point samples leave that open."""
    share, sampled = Share(summary.totals.share(state)), open_between(summary, state)
    return tr("{share} ({sampled})", share=share, sampled=sampled) if sampled else share


def open_between(summary: Summary, state: str) -> str:
    """Between which bounds a state's share lies; nothing where point samples leave nothing of it open."""
    totals = summary.totals
    if state == "active" and totals.leaves_open:
        return between(summary, totals.active_bound)
    is_open = totals.unconfirmed_ms.get(state) or (state == "held" and totals.leaves_open)
    return between(summary, totals.bound(state)) if is_open else ""


def useful_share(summary: Summary) -> str | Share:
    """The active share of the observed time, between its bounds where point samples leave it open."""
    totals = summary.totals
    if not totals.leaves_open:
        return Share(totals.share("active"))
    low, high = (
        Share(ratio(each, totals.observed_ms)) for each in (totals.active_bound.low_ms, totals.active_bound.high_ms)
    )
    return tr("{low} to {high}", low=low, high=high)


def between(summary: Summary, bound: Bound) -> str:
    """The bounds of a share of the observed time, and how it was sampled."""
    totals = summary.totals
    low, high = (Share(ratio(each, totals.observed_ms)) for each in (bound.low_ms, bound.high_ms))
    if (totals.sampled or 0.0) < _MOSTLY:
        return tr("partly sampled: between {low} and {high}", low=low, high=high)
    return tr("sampled every {span}: between {low} and {high}", span=every(summary), low=low, high=high)


def sampled_note(shown: Iterable[Totals]) -> tuple[str, ...]:
    """What a section says whose figures point samples leave open; nothing where they do not."""
    groups = list(shown)
    return unconfirmed_note(sum(each.open_ms for each in groups) if any(each.leaves_open for each in groups) else 0)


def unconfirmed_note(open_ms: float) -> tuple[str, ...]:
    """The same of a sum; nothing of none."""
    said = tr(
        "{hours} GPU-hours of the idle time are point samples that nothing confirms, and not called unused: see “Point samples”.",
        hours=GpuHours(open_ms),
    )
    return (said,) if open_ms else ()


def counted_note(open_ms: float) -> tuple[str, ...]:
    """What a section says that counts it as unused all the same; nothing of none."""
    said = tr(
        "{hours} GPU-hours of what counts as unused here are point samples that nothing confirms: work between them would not be seen.",
        hours=GpuHours(open_ms),
    )
    return (said,) if open_ms else ()


def point_samples(ledger: LedgerFigures) -> Table | None:
    """A row for each state of unused time with its bounds; None where nearly everything was watched."""
    summary, totals = ledger.summary, ledger.summary.totals
    if (totals.sampled or 0.0) < OPEN_FROM:
        return None
    return Table(
        name="point_samples",
        title=tr("Point samples"),
        question=tr("How sure is the idle time? A sample at 0 says that the GPU was idle at that moment and no more."),
        headline=_headline(summary),
        columns=(
            column("state", tr("state"), "state", tr, str),
            column("gpu_hours", tr("GPU-hours"), "gpu_hours", totals.state_ms.get),
            column("low_gpu_hours", tr("at least"), "gpu_hours", lambda state: totals.bound(state).low_ms),
            column("high_gpu_hours", tr("at most"), "gpu_hours", lambda state: totals.bound(state).high_ms),
            column("share", tr("of observed"), "share", totals.share),
        ),
        rows=UNUSED,
        lines=(_hidden(summary), *_money(ledger.money), *_by_power(summary), *_idle(summary), *_floors(ledger.floors)),
        notes=(
            tr(
                "Confirmed is what the energy counter between the samples, or enough power readings, show to be an idle card of its model; the rest may hide work between the samples."
            ),
        ),
        wide=True,
    )


def _headline(summary: Summary) -> str:
    totals = summary.totals
    seen = tr(
        "{share} of the observed time was seen by point samples, one every {span} on average.",
        share=Share(totals.sampled),
        span=every(summary),
    )
    if not totals.leaves_open:
        return tr("{seen} The idle time among it is confirmed.", seen=seen) if totals.unused_ms else seen
    if not totals.open_ms:
        return tr(
            "{seen} {hours} GPU-hours beside samples at 0 may have been idle for long as well.",
            seen=seen,
            hours=GpuHours(totals.perhaps_ms),
        )
    hours = GpuHours(totals.open_ms)
    return tr("{seen} {hours} GPU-hours of idle time are not confirmed by anything else.", seen=seen, hours=hours)


def _hidden(summary: Summary) -> str:
    """How much work could hide between the samples."""
    return tr(
        "A reading sees a sixth of a second for certain: work between two of them, up to {share} of the time, leaves no trace in utilization.",
        share=Share(summary.samples.hidden_ratio),
    )


def _money(money: Money) -> Iterator[str]:
    cents = sum(money.accounts.total.open_cents.values())
    if cents:
        yield tr(
            "Not confirmed, and left out of the cost of unused time: {amount}.",
            amount=Amount(from_cents(cents), money.currency),
        )


def _by_power(summary: Summary) -> Iterator[str]:
    if by_power_ms := summary.samples.by_power_ms:
        yield tr(
            "Confirmed by power readings alone, unless work keeps step with them: {hours} GPU-hours.",
            hours=GpuHours(by_power_ms),
        )


def _idle(summary: Summary) -> Iterator[str]:
    samples, observed_ms = summary.samples, summary.totals.observed_ms
    yield tr(
        "Without a kernel, for however short a time: between {low} and {high} of the observed time (95 %).",
        low=Share(ratio(samples.idle.low_ms, observed_ms)),
        high=Share(ratio(samples.idle.high_ms, observed_ms)),
    )


def _floors(floors: IdleFloors | None) -> Iterator[str]:
    """What idle cards draw, by model."""
    models = sorted({*floors.held, *floors.free}) if floors else []
    for model in models:
        floor = floors.of(model) if floors else None
        if floor is not None:
            yield tr(
                "{model}: an idle card draws {watts} W, by {hours} GPU-hours of this window.",
                model=plain(model),
                watts=Number(floor.watts, 0),
                hours=Number(floor.gpu_hours, 1),
            )
    if not models:
        yield tr("What an idle card draws is not known: too little idle time with power readings.")

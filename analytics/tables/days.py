"""GPU-hours by state, by day or, in a short window, by hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from analytics.decide.annotations import Annotation
from analytics.language.sentences import Date, Moment, Quantity, Share, ShortDay, ShortHour, tr
from analytics.ledger.summary import Totals, ratio
from analytics.report.parts import Breakdown
from analytics.tables.annotations import annotation_lines
from analytics.tables.basis import state_hours
from analytics.tables.chart import Bars, Chart, ChartPlace, Panel, stacked
from analytics.tables.palette import ORDER
from analytics.tables.point_samples import sampled_note
from analytics.tables.table import Table, column, column_of, drawn
from analytics.workloads.confidence import COVERAGE_MIN
from fallow.clock import HOUR_MS, from_ms

MOST_BARS = 72
"""Most bars: about ten weeks of days."""
_SHOWS_MS = HOUR_MS / 20
"""Least GPU time of a last bar: less is written as 0.0 GPU-hours, such as the last 20 ms of an interval."""


@dataclass(frozen=True)
class Bin:
    """A day or an hour: its unique name, a short name for an axis, and its time by state."""

    name: Quantity
    short: Quantity
    totals: Totals


def days(breakdown: Breakdown, annotations: Sequence[Annotation] = ()) -> Table:
    """Return a bar per day, or per hour in a short window; only the last bars of a long window."""
    bins = bins_of(breakdown)
    hourly = bool(breakdown.hours)
    return Table(
        name="days",
        title=tr("GPU time by hour") if hourly else tr("GPU time by day"),
        question=tr("Is the waste falling? The window may cut the first and the last bar."),
        headline=_headline(bins),
        columns=(
            column("hour" if hourly else "day", tr("hour") if hourly else tr("day"), "moment", "name"),
            column("gpu_hours", tr("total"), "gpu_hours", "totals.total_ms"),
            *_STATE_COLUMNS.values(),
            column("unused_share", tr("unused"), "share", lambda each: Share(unused_share(each.totals))),
        ),
        rows=tuple(bins),
        chart=_chart(bins, tuple(_bin_of(breakdown, bins, each) for each in annotations)),
        lines=tuple(annotation_lines(annotations)),
        notes=(
            tr(
                "GPU-hours; days are those of {zone}. Unused: unallocated, allocated but unused, held idle, and"
                " stalled, as a share of the observed time.",
                zone=str(breakdown.zone),
            ),
            *sampled_note(each.totals for each in bins),
        ),
        states=tuple(state for state in ORDER if any(each.totals.state_ms[state] for each in bins)),
    )


_STATE_COLUMNS = {state: column_of("totals", state_hours(state)) for state in ORDER}


def _chart(bins: Sequence[Bin], annotations: tuple[int | None, ...]) -> Chart:
    hours = tr("GPU-hours")
    bars = stacked(Bars(each.title, state, **drawn(each, bins)) for state, each in _STATE_COLUMNS.items())
    panel = Panel(hours, bars, tuple(ChartPlace(each.name, each.short) for each in bins), unit=hours)
    return Chart((panel,), annotations=annotations)


def _bin_of(breakdown: Breakdown, bins: Sequence[Bin], annotation: Annotation) -> int | None:
    """Return the place of the bar that contains an annotation."""
    at_ms = annotation.at_ms
    day = Date(from_ms(at_ms).astimezone(breakdown.zone).date())
    hours = [Moment(start_ms) for start_ms in breakdown.hours if start_ms <= at_ms < start_ms + HOUR_MS]
    wanted = hours if breakdown.hours else [day]
    return next((place for place, each in enumerate(bins) if each.name in wanted), None)


def bins_of(breakdown: Breakdown) -> list[Bin]:
    """Return the last days, or the hours of a short window, without a last bin that has only the end of an interval."""
    if breakdown.hours:
        found = [Bin(Moment(start_ms), ShortHour(start_ms), totals) for start_ms, totals in breakdown.hours.items()]
    else:
        named = ((date.fromisoformat(name), totals) for name, totals in breakdown.by["day"].items())
        found = [Bin(Date(day), ShortDay(day), totals) for day, totals in named]
    return ([each for each in found if each.totals.total_ms >= _SHOWS_MS] or found)[-MOST_BARS:]


def unused_share(totals: Totals) -> float | None:
    """Return the confirmed unused share of the observed time; None if nothing was observed."""
    return ratio(totals.wasted_ms, totals.observed_ms)


def _headline(bins: Sequence[Bin]) -> str:
    """Return the best and the worst share of the well observed bins.

    A first or last bin may be short, so shares count, not hours.
    """
    known = [
        (share, each.name)
        for each in bins
        if (share := unused_share(each.totals)) is not None and (each.totals.coverage or 0) >= COVERAGE_MIN
    ]
    if not known:
        return tr("No period was observed for {least} of its time.", least=Share(COVERAGE_MIN, 0))
    (least, best), (most, worst) = min(known, key=lambda each: each[0]), max(known, key=lambda each: each[0])
    if len(known) == 1:
        return tr("{share} of the observed time was not used on {day}.", share=Share(least), day=best)
    if str(Share(least)) == str(Share(most)):
        return tr("{share} of the observed time was not used in every period.", share=Share(least))
    return tr(
        "Between {least} ({best}) and {most} ({worst}) of the observed time was not used.",
        least=Share(least),
        best=best,
        most=Share(most),
        worst=worst,
    )

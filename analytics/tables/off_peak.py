"""Hours of the week in which a pool does not need GPUs, so that batch jobs have room."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from analytics.capacity.off_peak import WEEKS_MIN, OffPeak
from analytics.glossary import term
from analytics.language.sentences import Number, WeekHour, tr, tr_many
from analytics.report.parts import Heading, LedgerFigures
from analytics.tables.chart import Cells, Chart, GridCell, Panel
from analytics.tables.hour_of_week import HOURS, WEEKDAYS
from analytics.tables.names import GPUS, POOL, place_name
from analytics.tables.point_samples import sampled_note
from analytics.tables.table import Column, Table, column, fact
from fallow.clock import WEEK_MS, Window

_LISTED = 12
_DRAWN = 4


def _hour(key: str, title: str) -> Column:
    return column(
        key, title, "moment", lambda window: WeekHour(window.weekday, getattr(window, key)), key, json_type="integer"
    )


OFF_PEAK_COLUMNS = (
    POOL,
    fact("weekday", "count", about="0 is Monday."),
    _hour("from_hour", tr("from")),
    _hour("until_hour", tr("until")),
    GPUS,
    column("weeks", tr("weeks observed"), "count"),
)
"""Columns of an `OffPeak`. For programs, hours count from midnight of the weekday: `until_hour` may exceed 24."""


def off_peak(windows: Sequence[OffPeak] | None, heading: Heading, ledger: LedgerFigures) -> Table | None:
    """Return off-peak windows of the week, the most GPU-hours first; None in editions for people, who have no pools."""
    if windows is None:
        return None
    found = sorted(windows, key=lambda window: -window.gpus * (window.until_hour - window.from_hour))
    pools = tuple(dict.fromkeys(each.pool for each in found))
    return Table(
        name="off_peak",
        title=tr("Off-peak hours"),
        question=tr(
            "When is there room for workloads that can wait? The figures cover the last weeks, not the window."
        ),
        headline=_headline(found, heading.known, ledger.summary.until_ms),
        columns=OFF_PEAK_COLUMNS,
        rows=tuple(found),
        shown=_LISTED,
        rest=tr_many("and {number} more {window|windows}", len(found) - _LISTED),
        chart=_chart(windows, pools[:_DRAWN]) if found else None,
        chart_note=(
            tr(
                "The chart shows {shown} of {number} pools: the pools with the largest off-peak windows. The table on"
                " the page Release or order lists all pools.",
                shown=_DRAWN,
                number=len(pools),
            )
            if len(pools) > _DRAWN
            else ""
        ),
        notes=(
            (
                tr(
                    "The number is the GPUs that were not needed in nine of ten weeks. Hours are those of {zone}.",
                    zone=str(heading.zone),
                ),
                tr("Blank hours have no more room than usual, or were not observed enough."),
                *sampled_note([ledger.summary.totals]),
            )
            if found
            else ()
        ),
        terms=(term("off-peak hours"),),
    )


def _headline(found: Sequence[OffPeak], known: Window, until_ms: int) -> str:
    if found:
        widest = found[0]
        return tr(
            "The largest off-peak window is {gpus} GPUs of {pool}, {since} to {until}.",
            gpus=widest.gpus,
            pool=place_name(widest.pool),
            since=WeekHour(widest.weekday, widest.from_hour),
            until=WeekHour(widest.weekday, widest.until_hour),
        )
    weeks = 0.0 if known.since_ms is None else max(0, until_ms - known.since_ms) / WEEK_MS
    if weeks < WEEKS_MIN:
        return tr(
            "Not known: {least} weeks are needed, and the lake has {weeks} before the end of the window.",
            least=WEEKS_MIN,
            weeks=Number(weeks, 1),
        )
    return tr("No hours of the week have more room: the GPUs are needed at all hours, or at none.")


def _chart(found: Sequence[OffPeak], pools: Collection[str]) -> Chart:
    drawn = sorted((each for each in found if each.pool in pools), key=lambda window: window.pool)
    by_pool = groupby(drawn, key=lambda window: window.pool)
    return Chart(
        tuple(
            Panel(
                place_name(pool),
                (Cells("soft", WEEKDAYS, tuple(cell for each in own for cell in _cells(each)), "GPU"),),
                HOURS,
            )
            for pool, own in by_pool
        ),
        across=tr("hour of the day"),
    )


def _cells(each: OffPeak) -> Iterator[GridCell]:
    """Yield the part of a window on each of its days; Monday follows Sunday."""
    for day in range(each.from_hour // 24, -(-each.until_hour // 24)):
        start, end = max(each.from_hour, day * 24), min(each.until_hour, day * 24 + 24)
        yield GridCell((each.weekday + day) % 7, start - day * 24, end - day * 24, each.gpus, Number(each.gpus))

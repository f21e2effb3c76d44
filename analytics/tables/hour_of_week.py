"""Unused share of GPU time by hour of the week: seven rows of twenty-four."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo

from analytics.capacity.off_peak import WEEKS_MIN, HoursOfWeek
from analytics.language.sentences import Language, Number, Quantity, SentenceList, Share, WeekHour, tr, tr_many
from analytics.ledger.summary import Totals
from analytics.tables.chart import Cells, Chart, ChartPlace, GridCell, Panel
from analytics.tables.point_samples import counted_note
from analytics.tables.table import Column, Table, column


@dataclass(frozen=True)
class Weekday(Quantity):
    """A day of the week; 0 is Monday."""

    number: int

    def shown(self, language: Language) -> str:
        """Return the short name: `Mon`."""
        return language.weekday(self.number)


WEEKDAYS = tuple(map(Weekday, range(7)))
HOURS = tuple(ChartPlace(f"{hour:02}:00", f"{hour:02}") for hour in range(24))
"""Rows and columns of a week's grid."""


def hour_of_week(found: HoursOfWeek | None, totals: Totals, zone: tzinfo) -> Table:
    """Return the unused share of each hour of the week; None if there is no GPU time."""
    if found is not None and all(share is None for share in found.shares):
        found = None
    shares = () if found is None else found.shares

    def hour_column(hour: int) -> Column:
        return column(f"hour_{hour}", f"{hour:02}", "share", lambda day: shares[24 * day + hour], digits=0, missing="-")

    return Table(
        name="hours",
        title=tr("The hours of the week"),
        question=tr(
            "When could other workloads run? Unused share of the observed GPU time by hour of the week, in local time"
            " ({zone}).",
            zone=str(zone),
        ),
        headline=_headline(found) if found is not None else tr("Nothing was observed."),
        columns=(column("day", tr("day"), "words", Weekday), *map(hour_column, range(24))),
        rows=tuple(range(7)) if shares else (),
        chart=_chart(shares) if shares else None,
        notes=counted_note(totals.open_ms if totals.leaves_open else 0),
        wide=True,
    )


def _chart(shares: Sequence[float | None]) -> Chart:
    """Return a cell per hour of the week from Monday 0:00; an empty cell where the share is unknown."""
    cells = (
        GridCell(*divmod(hour, 24), hour % 24 + 1, share, f"{100 * share:.0f}")
        for hour, share in enumerate(shares)
        if share is not None
    )
    return Chart((Panel("", (Cells("held", WEEKDAYS, tuple(cells), "%", most=1.0),), HOURS),))


def _headline(found: HoursOfWeek) -> str:
    ranked = sorted((share, hour) for hour, share in enumerate(found.shares) if share is not None)
    (least, used), (most, unused) = ranked[0], ranked[-1]
    parts = [
        tr(
            "The unused share is highest on {unused} ({most}) and lowest on {used} ({least}).",
            unused=WeekHour(0, unused),
            most=Share(most),
            used=WeekHour(0, used),
            least=Share(least),
        ),
        tr_many(
            "The data cover {weeks} {week|weeks}, {share} of {it|the time} observed.",
            1 if found.weeks == 1 else 2,
            weeks=Number(found.weeks, 0 if found.weeks >= 1 else 1),
            share=Share(found.coverage),
        ),
    ]
    if found.weeks < WEEKS_MIN:
        parts.append(tr("With fewer than {weeks} weeks, a single unusual week affects the result.", weeks=WEEKS_MIN))
    return SentenceList(parts, " ")

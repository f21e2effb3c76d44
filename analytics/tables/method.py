"""What the figures rest on: remarks on the data, and how each figure is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analytics.language.quantities import Number, Span
from analytics.language.sentences import tr, tr_many
from analytics.quality.model import Remark
from analytics.report.parts import Heading
from analytics.tables.table import Table, fact

_FIRST_REMARKS = 4


def data_quality(quality: Sequence[Remark] | None) -> Table | None:
    """Remarks on the data; None in an edition for people, as they name others."""
    if quality is None:
        return None
    remarks = tuple(remark.sentence for remark in quality)
    return Table(
        name="data_quality",
        title=tr("Data quality"),
        question=tr("What is wrong with the data that the figures are made of?"),
        headline=tr_many("{number} remark.", "{number} remarks.", len(remarks))
        if remarks
        else tr("Nothing to remark."),
        columns=_REMARK_COLUMNS,
        rows=tuple(quality),
        lines=remarks,
        wide=True,
    )


_REMARK_COLUMNS = (
    fact("kind", "words", nullable=False),
    fact("sentence", "words", nullable=False),
    fact("count", "count"),
    fact("example", "words"),
)
"""Of `Remark`; people read the sentences."""


def first_remarks(quality: Sequence[Remark] | None) -> Table:
    """The first few remarks, and how many there are; in an edition for people that there are none for it."""
    question, found = tr("Can these figures be relied on?"), data_quality(quality)
    if found is None:
        headline = tr("Remarks on the data of the fleet are not shown for a single team.")
        return Table(name="remarks", title=tr("Data quality"), question=question, headline=headline)
    headline = (
        tr_many(
            "{number} remark on the data behind these figures.",
            "{number} remarks on the data behind these figures.",
            len(found.lines),
        )
        if found.lines
        else tr("No remark on the data behind these figures.")
    )
    return replace(
        found, name="remarks", question=question, headline=headline, lines=found.lines[:_FIRST_REMARKS], wide=False
    )


def how_made(heading: Heading) -> Table:
    """How each figure is made, with the thresholds in force."""
    settings = heading.settings
    return Table(
        name="how_made",
        title=tr("How each figure is made"),
        question=tr("From what, and with which thresholds?"),
        headline=tr("Shares are of the observed time. States add up to the total to the millisecond."),
        lines=(
            tr("A sample stands for the time to the next one, at most three intervals; the rest is unknown."),
            tr(
                "Held: a user, and no kernel for at least {held}. Low: a mean below {low} % over the interval.",
                held=Span(settings.idle_after_ms),
                low=Number.as_given(settings.low_below_pct),
            ),
            tr("A held finding counts intervals of at least {least}.", least=Span(heading.held_min_ms)),
            tr(
                "Without a process list, more than {least} GB in use stands for a user.",
                least=Number.as_given(settings.held_min_bytes / 1e9),
            ),
        ),
        wide=True,
    )

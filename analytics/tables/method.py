"""Where the figures come from: problems in the data, and how the figures are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analytics.language.sentences import Number, Span, tr, tr_many
from analytics.quality.model import Remark
from analytics.report.parts import Heading
from analytics.tables.table import Table, fact

_FIRST_REMARKS = 4


def data_quality(quality: Sequence[Remark] | None) -> Table | None:
    """Return problems in the data; None in an edition for people, because they name others."""
    if quality is None:
        return None
    remarks = tuple(remark.sentence for remark in quality)
    return Table(
        name="data_quality",
        title=tr("Data quality"),
        question=tr("What is wrong with the data behind these figures?"),
        headline=tr_many("{number} {problem|problems}.", len(remarks)) if remarks else tr("No problem was found."),
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
"""Columns of a `Remark`. People get the sentences."""


def first_remarks(quality: Sequence[Remark] | None) -> Table:
    """Return the first problems and their number. An edition for people shows none."""
    question, found = tr("Are these figures reliable?"), data_quality(quality)
    if found is None:
        headline = tr("Problems with the fleet's data are not shown for a single team.")
        return Table(name="remarks", title=tr("Data quality"), question=question, headline=headline)
    headline = (
        tr_many("{number} {problem|problems} with the data behind these figures.", len(found.lines))
        if found.lines
        else tr("No problem with the data behind these figures.")
    )
    return replace(
        found, name="remarks", question=question, headline=headline, lines=found.lines[:_FIRST_REMARKS], wide=False
    )


def how_made(heading: Heading) -> Table:
    """Return how the figures are computed, with the thresholds in force."""
    settings = heading.settings
    return Table(
        name="how_made",
        title=tr("How the figures are computed"),
        question=tr("What are the figures computed from, and with which thresholds?"),
        headline=tr("Shares refer to the observed time. The states add up to the total, to the millisecond."),
        lines=(
            tr(
                "A sample counts for the time up to the next sample, at most three intervals. The remaining time is not"
                " observed."
            ),
            tr(
                "Held idle: a process on the GPU and no kernel for at least {held}. Low use: a mean utilization below"
                " {low} % over the interval.",
                held=Span(settings.idle_after_ms),
                low=Number.as_given(settings.low_below_pct),
            ),
            tr("A finding about held GPUs counts intervals of at least {least}.", least=Span(heading.held_min_ms)),
            tr(
                "Without a process list, a GPU with more than {least} GB of memory in use counts as held by a user.",
                least=Number.as_given(settings.held_min_bytes / 1e9),
            ),
        ),
        wide=True,
    )

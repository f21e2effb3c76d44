"""The first remarks on the data behind the figures, for a page that has more to say."""

from __future__ import annotations

from dataclasses import replace

from analytics.language.sentences import tr, tr_many
from analytics.report.model import Report
from analytics.tables.method import data_quality
from analytics.tables.table import Table

_FIRST = 4


def first_remarks(report: Report) -> Table:
    """The first few remarks, and how many there are; in an edition for people that there are none for it."""
    question, found = tr("Can these figures be relied on?"), data_quality(report)
    if found is None:
        headline = tr("Remarks on the data of the fleet are not shown for a single team.")
        return Table(name="remarks", title=tr("Data quality"), question=question, headline=headline)
    headline = tr_many(
        "{number} remark on the data behind these figures.", "{number} remarks on the data behind these figures.", len(found.lines)
    ) if found.lines else tr("No remark on the data behind these figures.")  # fmt: skip
    return replace(found, name="remarks", question=question, headline=headline, lines=found.lines[:_FIRST], wide=False)

"""Every GPU over time, a row each, coloured by state."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analytics.language.plain_text import plain
from analytics.language.quantities import Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.ledger.summary import ratio
from analytics.report.figures import Film
from analytics.report.model import Report
from analytics.sections.palette import ORDER
from analytics.sections.section import Cell, FilmStrip, Section, SectionColumn
from analytics.states import IN_USE, UNUSED
from fallow.schema import STATES

_LISTED = 12
_UNUSED = [STATES.index(state) for state in UNUSED]
_USED = [STATES.index(state) for state in IN_USE]


def film(report: Report) -> Section:
    """The strip, with a row for each GPU, the most wasted first."""
    own = report.film
    rest = len(own.gpus) - _LISTED
    return Section(
        name="film",
        title=tr("Every GPU over time"),
        question=tr("Which GPUs go unused, and when?"),
        headline=_headline(own),
        columns=(
            SectionColumn("gpu", tr("GPU"), "gpu"),
            SectionColumn("host", tr("host"), "host"),
            SectionColumn("unused", tr("unused"), "share"),
            SectionColumn("used", tr("used"), "share"),
            SectionColumn("unknown", tr("not known"), "share"),
        ),
        rows=tuple(_rows(own)),
        shown=_LISTED,
        rest=tr_many("and {number} more GPU", "and {number} more GPUs", rest),
        chart=FilmStrip(own) if own.codes.size else None,
        states=ORDER,
        wide=True,
    )


def _headline(own: Film) -> str:
    unused = np.isin(own.codes, _UNUSED)
    known = (own.codes < len(STATES)) & (own.codes != STATES.index("unknown"))
    always = int(((unused | ~known).all(axis=1) & unused.any(axis=1)).sum())
    if not known.any():
        return tr("Nothing is known of any GPU.")
    return tr_many(
        "{number} GPU of {all} went unused all the time; {share} of what was seen is unused.",
        "{number} GPUs of {all} went unused all the time; {share} of what was seen is unused.",
        always, all=Number(len(own.gpus)), share=Share(ratio(int(unused.sum()), int(known.sum()))),
    )  # fmt: skip


def _rows(own: Film) -> Iterator[tuple[Cell, ...]]:
    there = (own.codes < len(STATES)).sum(axis=1)
    unused, used = (np.isin(own.codes, codes).sum(axis=1) for codes in (_UNUSED, _USED))
    for gpu, host, *bins in zip(own.gpus, own.hosts, there.tolist(), unused.tolist(), used.tolist(), strict=True):
        in_all, lost, worked = bins
        shares = (Share(ratio(part, in_all), 0) for part in (lost, worked, in_all - lost - worked))
        yield plain(gpu), plain(host), *shares

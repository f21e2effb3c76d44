"""Every GPU over time, a row each, coloured by state."""

from __future__ import annotations

from collections.abc import Iterator

from analytics.language.plain_text import plain
from analytics.language.quantities import Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.ledger.summary import ratio
from analytics.report.figures import Film
from analytics.report.model import Report
from analytics.states import IN_USE
from analytics.tables.palette import ORDER
from analytics.tables.table import Cell, Column, FilmStrip, Table

_LISTED = 12


def film(report: Report) -> Table:
    """The strip, with a row for each GPU, the most wasted first."""
    own = report.film
    rest = len(own.gpus) - _LISTED
    return Table(
        name="film",
        title=tr("Every GPU over time"),
        question=tr("Which GPUs go unused, and when?"),
        headline=_headline(own),
        columns=(
            Column("gpu", tr("GPU"), "gpu"),
            Column("host", tr("host"), "host"),
            Column("unused", tr("unused"), "share"),
            Column("used", tr("used"), "share"),
            Column("unknown", tr("neither"), "share"),
        ),
        rows=tuple(_rows(own)),
        shown=_LISTED,
        rest=tr_many("and {number} more GPU", "and {number} more GPUs", rest),
        notes=(tr("Of the GPU's time. Neither: unavailable, unknown or not confirmed."),) if own.gpus else (),
        chart=FilmStrip(own) if own.codes.size else None,
        states=ORDER,
        wide=True,
    )


def _headline(own: Film) -> str:
    observed_ms = sum(each.observed_ms for each in own.totals)
    if not observed_ms:
        return tr("Nothing is known of any GPU.")
    always = sum(each.wasted_ms == each.observed_ms > 0 for each in own.totals)
    return tr_many(
        "{number} GPU of {all} went unused all the time; {share} of what was seen is unused.",
        "{number} GPUs of {all} went unused all the time; {share} of what was seen is unused.",
        always, all=Number(len(own.gpus)), share=Share(ratio(sum(each.wasted_ms for each in own.totals), observed_ms)),
    )  # fmt: skip


def _rows(own: Film) -> Iterator[tuple[Cell, ...]]:
    for gpu, host, totals in zip(own.gpus, own.hosts, own.totals, strict=True):
        used_ms = sum(totals.state_ms[state] for state in IN_USE)
        parts = (totals.wasted_ms, used_ms, totals.total_ms - totals.wasted_ms - used_ms)
        yield plain(gpu), plain(host), *(Share(ratio(part, totals.total_ms)) for part in parts)

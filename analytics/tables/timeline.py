"""States of every GPU over time, one row per GPU."""

from __future__ import annotations

from collections.abc import Callable

from analytics.language.sentences import Share, plain, tr, tr_many
from analytics.ledger.summary import ratio
from analytics.report.timeline import FleetTimeline
from analytics.states import IN_USE
from analytics.tables.chart import Chart, GpuTimeline, Panel
from analytics.tables.palette import ORDER
from analytics.tables.point_samples import sampled_note
from analytics.tables.table import Column, Table, column

_LISTED = 12


def timeline(own: FleetTimeline) -> Table:
    """Return the timeline with a row per GPU, the most unused GPU-hours first."""
    rest = len(own.gpus) - _LISTED

    def unused_ms(place: int) -> int:
        return own.totals[place].wasted_ms

    def neither_ms(place: int) -> int:
        used_ms = sum(own.totals[place].state_ms[state] for state in IN_USE)
        return own.totals[place].total_ms - own.totals[place].wasted_ms - used_ms

    def share_column(key: str, title: str, spent_ms: Callable[[int], int]) -> Column:
        return column(key, title, "share", lambda place: Share(ratio(spent_ms(place), own.totals[place].total_ms)))

    return Table(
        name="timeline",
        title=tr("Every GPU over time"),
        question=tr("Which GPUs go unused, and when?"),
        headline=_headline(own),
        columns=(
            column("gpu", tr("GPU"), "gpu", lambda place: plain(own.gpus[place]), own.gpus.__getitem__),
            column("host", tr("host"), "host", lambda place: plain(own.hosts[place]), own.hosts.__getitem__),
            column("unused_gpu_hours", tr("unused, GPU-hours"), "gpu_hours", unused_ms),
            share_column("unused_share", tr("unused"), unused_ms),
            share_column("neither_share", tr("neither used nor unused"), neither_ms),
        ),
        rows=tuple(range(len(own.gpus))),
        shown=_LISTED,
        rest=tr_many("and {number} more {GPU|GPUs}", rest),
        notes=(
            (
                tr(
                    "Shares of the GPU's time. The last column is time when the GPU was down, not observed or not"
                    " confirmed as idle."
                ),
                *sampled_note(own.totals),
            )
            if own.gpus
            else ()
        ),
        chart=Chart((Panel("", (GpuTimeline(own),)),)) if own.codes.size else None,
        states=ORDER,
        wide=True,
    )


def _headline(own: FleetTimeline) -> str:
    observed_ms = sum(each.observed_ms for each in own.totals)
    if not observed_ms:
        return tr("No GPU was observed in this window.")
    always = sum(each.wasted_ms == each.observed_ms > 0 for each in own.totals)
    return tr_many(
        "{number} of {all} GPUs {was|were} never used; {share} of all observed time was not used.",
        always,
        all=len(own.gpus),
        share=Share(ratio(sum(each.wasted_ms for each in own.totals), observed_ms)),
    )

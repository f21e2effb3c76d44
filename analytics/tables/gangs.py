"""Job sizes that could start: unallocated GPUs on different hosts cannot run a job that needs them together."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.capacity.demand import Gang
from analytics.language.sentences import Number, Share, tr, tr_many
from analytics.ledger.summary import Totals
from analytics.tables.chart import Bars, Chart, ChartPlace, Panel
from analytics.tables.names import least_to_most
from analytics.tables.point_samples import sampled_note
from analytics.tables.table import Table, column, drawn, fact

_SCATTERED_FROM = 0.01
"""Below this share of the time, unallocated GPUs were nearly always usable together."""


_FREE = column("free_share", tr("time with enough unallocated GPUs"), "share")
NOW = column(
    "now",
    tr("jobs that could start now"),
    "count",
    lambda gang: least_to_most(Number(gang.now), Number(gang.now_most)),
    "now",
)
START = column(
    "start_share",
    tr("time in which a job could start"),
    "share",
    lambda gang: least_to_most(Share(gang.start_share), Share(gang.start_share_most)),
    "start_share",
)
"""Columns of a `Gang`."""


def gang_staircase(found: tuple[Gang, ...], totals: Totals) -> Table:
    """Return a row per job size: how often enough GPUs were unallocated, and how often such a job could start."""
    return Table(
        name="gangs",
        title=tr("Job sizes that could start"),
        question=tr(
            "Unallocated GPUs can be scattered over hosts. How often were there enough, and how often could a job have"
            " used them together?"
        ),
        headline=_headline(found),
        columns=(
            column("gpus", tr("GPUs per job"), "count", "size"),
            NOW,
            fact("now_most", "count"),
            _FREE,
            START,
            fact("start_share_most", "share"),
        ),
        rows=found,
        chart=_chart(found),
        notes=(
            tr(
                "“Now” is the end of the window. A job needs GPUs of one model in one pool: on one host if the host has"
                " enough, or else on whole unallocated hosts. MIG instances do not count."
            ),
            *sampled_note([totals]),
        ),
        wide=True,
    )


def _chart(found: Sequence[Gang]) -> Chart:
    """Return the chart: per size, how long enough GPUs were unallocated and how long such a job could start.

    Unknown time lies above both.
    """
    start = [each.start_share for each in found]
    beyond = tuple(
        None if least is None or each.start_share_most is None else each.start_share_most - least
        for each, least in zip(found, start, strict=True)
    )
    marks = (
        Bars(tr("enough GPUs unallocated in one pool and model"), "free", **drawn(_FREE, found)),
        Bars(tr("a job could start"), "active", **drawn(START, found)),
        *([Bars(tr("not known"), "unknown", beyond, tuple(each or 0.0 for each in start))] if any(beyond) else []),
    )
    places = tuple(ChartPlace(str(each.size)) for each in found)
    return Chart((Panel(tr("share of the time"), marks, places, "share", ceiling=1.0),), across=tr("GPUs per job"))


def _headline(found: Sequence[Gang]) -> str:
    startable = [each for each in found if each.now]
    if not startable:
        return tr("No job could start at the end of the window, because no GPU was unallocated.")
    now = tr_many("A job of at most {number} {GPU|GPUs} could start now", startable[-1].size)
    gaps = [
        (each.free_share - each.start_share, each)
        for each in found
        if each.free_share is not None and each.start_share is not None
    ]
    apart, gang = max(gaps, key=lambda pair: pair[0], default=(0.0, startable[-1]))
    if apart < _SCATTERED_FROM:
        return tr("{now}; unallocated GPUs were nearly always usable together.", now=now)
    return tr(
        "{now}. Enough GPUs for a job of {size} were unallocated for {free} of the time, and usable together for"
        " {start}.",
        now=now,
        size=gang.size,
        free=Share(gang.free_share),
        start=Share(gang.start_share),
    )

"""How much of the time was observed: by day, pool, model and host, and which hosts went silent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from analytics.language.quantities import Date, GpuHours, Moment, Number, Quantity, Share
from analytics.language.sentences import tr, tr_many
from analytics.ledger.summary import Totals, ratio, totals_by
from analytics.report.coverage import WHOLLY_OBSERVED
from analytics.report.model import Report
from analytics.tables.basis import PageBasis
from analytics.tables.names import place_name
from analytics.tables.point_samples import is_sampled
from analytics.tables.table import Column, LinkedCell, Table

_Groups = Sequence[tuple[str | Quantity | LinkedCell, Totals]]

_SHOWN = 60
_TITLES = {"day": tr("Coverage by day"), "pool": tr("Coverage by pool"), "model": tr("Coverage by model"), "host": tr("Coverage by host")}  # fmt: skip
_QUESTIONS = {
    "day": tr("Which days were not fully observed? Known share of the GPU-hours in the sums."),
    "pool": tr("Which pools are observed less than the others?"),
    "model": tr("Which models are observed less than the others?"),
    "host": tr("Which hosts are observed less than the others?"),
}
_HEADS = {"day": tr("day"), "pool": tr("pool"), "model": tr("model"), "host": tr("host")}


def coverage_by_day(basis: PageBasis) -> Table:
    groups = basis.report.groups["day"]
    days = [(Date(date.fromisoformat(day)), each) for day, each in groups.items()]
    return _coverage("day", days, days[-_SHOWN:], tr("and {number} days before", number=Number(len(days) - _SHOWN)))


def coverage_by_pool(basis: PageBasis) -> Table:
    return _least_covered("pool", [(place_name(name), each) for name, each in basis.report.groups["pool"].items()])


def coverage_by_model(basis: PageBasis) -> Table:
    return _least_covered("model", [(place_name(name), each) for name, each in basis.report.groups["model"].items()])


def coverage_by_host(basis: PageBasis) -> Table:
    hosts = totals_by(basis.part.inside.stretches, "host")
    return _least_covered("host", [(LinkedCell(name, "host", name), each) for name, each in hosts.items()])


def _least_covered(by: str, groups: _Groups) -> Table:
    ordered = sorted(groups, key=lambda each: (each[1].coverage or 0.0, str(each[0])))
    more = tr("and {number} more, none of them observed less", number=Number(len(groups) - _SHOWN))
    return _coverage(by, ordered, ordered[:_SHOWN], more)


def _coverage(by: str, groups: _Groups, shown: _Groups, more: str) -> Table:
    """A row for each group shown; `more` says what the others are."""
    sampled = (
        [Column("sampled", tr("by point samples"), "share")] if any(is_sampled(each) for _, each in groups) else []
    )
    return Table(
        name=f"coverage-{by}",
        title=_TITLES[by],
        question=_QUESTIONS[by],
        headline=_headline(groups),
        columns=(
            Column(by, _HEADS[by], "name"),
            Column("coverage", tr("known"), "share_bar"),
            *sampled,
            Column("gpus", tr("GPUs"), "count"),
            Column("gpu_hours", tr("GPU-hours"), "gpu_hours"),
            Column("unknown", tr("unknown"), "gpu_hours"),
        ),
        rows=tuple(
            (
                name,
                Share(each.coverage),
                *([Share(each.sampled)] if sampled else []),
                Number(each.gpus),
                GpuHours(each.total_ms),
                GpuHours(each.state_ms["unknown"]),
            )
            for name, each in shown
        ),
        notes=(more,) if len(shown) < len(groups) else (),
    )


def _headline(groups: _Groups) -> str:
    known = [(totals.coverage, name) for name, totals in groups if totals.coverage is not None]
    if not known:
        return tr("Nothing was there to be observed.")
    least, name = min(known, key=lambda each: each[0])
    sampled = ratio(
        sum(totals.sampled_ms for _, totals in groups if is_sampled(totals)),
        sum(totals.observed_ms for _, totals in groups),
    )
    if least >= WHOLLY_OBSERVED and sampled:
        return tr("All of it was observed, {share} of it by point samples.", share=Share(sampled))
    if least >= WHOLLY_OBSERVED:
        return tr("All of it was observed.")
    if sampled:
        return tr(
            "The least: {name}, {share} observed; {sampled} of all that was observed by point samples.",
            name=name, share=Share(least), sampled=Share(sampled),
        )  # fmt: skip
    return tr("The least: {name}, {share} observed.", name=name, share=Share(least))


def silent_hosts(report: Report) -> Table:
    """Hosts that were not observed to the end, or some of whose GPUs were not."""
    found = report.seen.silent
    return Table(
        name="silent",
        title=tr("Silent hosts"),
        question=tr("Which hosts were not seen to the end of the window?"),
        headline=tr_many("{number} host; the time after that is in no sum.", "{number} hosts; the time after that is in no sum.", len(found))
        if found
        else tr("All hosts were seen to the end of the window."),
        columns=(
            Column("host", tr("host"), "host"),
            Column("gpus", tr("GPUs"), "count"),
            Column("last_seen", tr("last seen"), "moment"),
            Column("silent", tr("what is silent"), "words"),
        ),
        rows=tuple(
            (each.host, Number(each.gpus), Moment(each.since_ms), tr("the whole host") if each.whole_host else tr("some of its GPUs"))
            for each in found
        ),
        wide=True,
    )  # fmt: skip

"""How much of the time was observed: by day, pool, model and host, and which hosts went silent."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from analytics.language.quantities import Date, GpuHours, Moment, Number, Share
from analytics.language.sentences import say, say_many
from analytics.ledger.summary import totals_by
from analytics.report.coverage import WHOLLY_OBSERVED
from analytics.sections.names import place_name
from analytics.sections.section import Column, LinkedCell, Section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from analytics.language.quantities import Quantity
    from analytics.ledger.summary import Totals
    from analytics.report.model import Report
    from analytics.sections.basis import Basis

_SHOWN = 60
_TITLES = {"day": say("Coverage by day"), "pool": say("Coverage by pool"), "model": say("Coverage by model"), "host": say("Coverage by host")}  # fmt: skip
_QUESTIONS = {
    "day": say("On which days did nobody look? Observed share of the GPU time."),
    "pool": say("Which pools are seen less than others?"),
    "model": say("Which models are seen less than others?"),
    "host": say("Which hosts are seen less than others?"),
}
_HEADS = {"day": say("day"), "pool": say("pool"), "model": say("model"), "host": say("host")}


def coverage_by_day(basis: Basis) -> Section:
    groups = basis.report.groups["day"]
    return _coverage("day", [(Date(date.fromisoformat(day)), totals) for day, totals in groups.items()])


def coverage_by_pool(basis: Basis) -> Section:
    return _coverage("pool", [(place_name(name), totals) for name, totals in _least_first(basis.report.groups["pool"])])


def coverage_by_model(basis: Basis) -> Section:
    return _coverage(
        "model", [(place_name(name), totals) for name, totals in _least_first(basis.report.groups["model"])]
    )


def coverage_by_host(basis: Basis) -> Section:
    hosts = totals_by(basis.part.inside.stretches, "host")
    return _coverage("host", [(LinkedCell(name, "host", name), totals) for name, totals in _least_first(hosts)])


def _least_first(groups: Mapping[str, Totals]) -> list[tuple[str, Totals]]:
    return sorted(groups.items(), key=lambda each: (each[1].coverage or 0.0, each[0]))


def _coverage(by: str, groups: list[tuple[str | Quantity, Totals]]) -> Section:
    """One group per row, in this order."""
    more = len(groups) - _SHOWN
    return Section(
        name=f"coverage-{by}",
        title=_TITLES[by],
        question=_QUESTIONS[by],
        headline=_headline(groups),
        columns=(
            Column(by, _HEADS[by], "name"),
            Column("coverage", say("observed"), "share_bar"),
            Column("gpus", say("GPUs"), "count"),
            Column("gpu_hours", say("GPU-hours"), "gpu_hours"),
            Column("unknown", say("unknown"), "gpu_hours"),
        ),
        rows=tuple(
            (name, Share(each.coverage), Number(each.gpus), GpuHours(each.total_ms), GpuHours(each.state_ms["unknown"]))
            for name, each in groups[:_SHOWN]
        ),
        notes=(say("and {number} more, all of them better observed", number=Number(more)),) if more > 0 else (),
    )


def _headline(groups: list[tuple[str | Quantity, Totals]]) -> str:
    known = [(totals.coverage, name) for name, totals in groups if totals.coverage is not None]
    if not known:
        return say("Nothing was there to be observed.")
    least, name = min(known, key=lambda each: each[0])
    if least >= WHOLLY_OBSERVED:
        return say("All of it was observed.")
    return say("The least: {name}, {share} observed.", name=name, share=Share(least))


def silent_hosts(report: Report) -> Section:
    """Hosts that were not observed to the end, or some of whose GPUs were not."""
    found = report.seen.silent
    return Section(
        name="silent",
        title=say("Silent hosts"),
        question=say("Which hosts were not seen to the end of the window?"),
        headline=say_many("{number} host; the time after that is in no sum.", "{number} hosts; the time after that is in no sum.", len(found))
        if found
        else say("All hosts were seen to the end of the window."),
        columns=(
            Column("host", say("host"), "host"),
            Column("gpus", say("GPUs"), "count"),
            Column("last_seen", say("last seen"), "moment"),
            Column("silent", say("what is silent"), "words"),
        ),
        rows=tuple(
            (each.host, Number(each.gpus), Moment(each.since_ms), say("the whole host") if each.whole_host else say("some of its GPUs"))
            for each in found
        ),
        wide=True,
    )  # fmt: skip

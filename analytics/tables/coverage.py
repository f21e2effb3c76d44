"""Observed share of the time by day, pool, model and host, and silent hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date

from analytics.language.sentences import Date, Quantity, Share, tr, tr_many
from analytics.ledger.summary import Totals, ratio
from analytics.report.coverage import WHOLLY_OBSERVED, Seen
from analytics.tables.names import GPUS, HOST, place_name
from analytics.tables.point_samples import is_sampled
from analytics.tables.table import LinkedCell, Table, column

_SHOWN = 60
_BY: Mapping[str, tuple[str, str, str, Callable[[str], str | Quantity]]] = {
    "day": (
        tr("Coverage by day"),
        tr("Which days were not fully observed? Observed share of the GPU-hours in the sums."),
        tr("day"),
        lambda day: Date(date.fromisoformat(day)),
    ),
    "pool": (
        tr("Coverage by pool"),
        tr("Which pools are observed less than the others?"),
        tr("pool"),
        place_name,
    ),
    "model": (
        tr("Coverage by model"),
        tr("Which models are observed less than the others?"),
        tr("model"),
        place_name,
    ),
    "host": (
        tr("Coverage by host"),
        tr("Which hosts are observed less than the others?"),
        tr("host"),
        lambda host: LinkedCell(host, "host", host),
    ),
}
"""Title, question, heading and name of a group, by the kind of group."""


def coverage_by_day(days: Mapping[str, Totals]) -> Table:
    """Return a row per day, for the last days."""
    more = tr("and {number} earlier days", number=len(days) - _SHOWN)
    return _coverage("day", days, tuple(days)[-_SHOWN:], more)


def coverage_by(by: str, groups: Mapping[str, Totals]) -> Table:
    """Return a row per pool, model or host, the least observed first."""
    ordered = sorted(groups, key=lambda name: (groups[name].coverage or 0.0, str(_BY[by][3](name))))
    more = tr("and {number} more, observed at least as well", number=len(groups) - _SHOWN)
    return _coverage(by, groups, tuple(ordered[:_SHOWN]), more)


def _coverage(by: str, groups: Mapping[str, Totals], shown: tuple[str, ...], more: str) -> Table:
    """Return a row per shown group. `more` describes the other groups."""
    title, question, head, label = _BY[by]
    sampled = column("sampled_share", tr("sampled"), "share", lambda name: groups[name].sampled)
    return Table(
        name=f"coverage_{by}",
        title=title,
        question=question,
        headline=_headline([(label(name), totals) for name, totals in groups.items()]),
        columns=(
            column(by, head, "name", label, str),
            column("coverage", tr("observed"), "share_bar", lambda name: Share(groups[name].coverage)),
            *((sampled,) if any(is_sampled(each) for each in groups.values()) else ()),
            column("gpus", tr("GPUs"), "count", lambda name: groups[name].gpus),
            column("gpu_hours", tr("GPU-hours"), "gpu_hours", lambda name: groups[name].total_ms),
            column("unknown_gpu_hours", tr("unknown"), "gpu_hours", lambda name: groups[name].state_ms["unknown"]),
        ),
        rows=shown,
        notes=(more,) if len(shown) < len(groups) else (),
    )


def _headline(groups: Sequence[tuple[str | Quantity, Totals]]) -> str:
    known = [(totals.coverage, name) for name, totals in groups if totals.coverage is not None]
    if not known:
        return tr("There was no GPU to observe.")
    least, name = min(known, key=lambda pair: pair[0])
    sampled = ratio(
        sum(totals.sampled_ms for _, totals in groups if is_sampled(totals)),
        sum(totals.observed_ms for _, totals in groups),
    )
    if least >= WHOLLY_OBSERVED and sampled:
        return tr("All of the time was observed, {share} of it only sampled.", share=Share(sampled))
    if least >= WHOLLY_OBSERVED:
        return tr("All of the time was observed.")
    if sampled:
        return tr(
            "{name} is observed least, {share} of its time; {sampled} of all observed time was only sampled.",
            name=name,
            share=Share(least),
            sampled=Share(sampled),
        )
    return tr("{name} is observed least: {share} of its time.", name=name, share=Share(least))


def silent_hosts(seen: Seen) -> Table:
    """Return the hosts of which a GPU was not observed up to the end of the window."""
    found = seen.silent
    return Table(
        name="silent",
        title=tr("Silent hosts"),
        question=tr("Which hosts were not observed up to the end of the window?"),
        headline=tr_many("{number} {host|hosts} stopped reporting; no sum includes the time after that.", len(found))
        if found
        else tr("All hosts were observed up to the end of the window."),
        columns=(
            HOST,
            GPUS,
            column("last_seen", tr("last observed"), "moment", "since_ms"),
            column(
                "silent",
                tr("what is silent"),
                "words",
                lambda host: tr("the whole host") if host.whole_host else tr("some of its GPUs"),
            ),
        ),
        rows=tuple(found),
        wide=True,
    )

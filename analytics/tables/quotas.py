"""Each team's quota against what it had at once."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.capacity.user_jobs import QuotaUse, against_quota
from analytics.language.plain_text import plain
from analytics.language.quantities import Number, Share
from analytics.language.sentences import tr
from analytics.report.coverage import WHOLE_FROM, WHOLLY_OBSERVED, Seen
from analytics.report.report import Report
from analytics.scope import Scope
from analytics.tables.table import LinkedCell, StateBar, Table, column, fact


def quotas(report: Report) -> Table | None:
    """The widest gap first and unknown ones last; None where no team of the scope has a quota, and for a part of the GPUs."""
    uses = sorted(quota_uses(report), key=_by_gap)
    if not uses:
        return None
    of = dict(uses)
    longest = max(max(use.quota_gpus, use.most or 0.0) for use in of.values())
    seen = report.ledger.seen
    may_be_higher = tr(
        "{share} of the GPU time was observed: the averages and the most may have been higher.", share=Share(seen.share)
    )
    return Table(
        name="quotas",
        title=tr("Quotas"),
        question=tr("Do teams need what they may have? GPUs at once, over the whole window."),
        headline=quota_headline(seen, uses),
        columns=(
            column("team", tr("team"), "team", lambda name: LinkedCell(name, "team", name)),
            column(
                "bar", tr("used and given of the quota"), "bar", lambda name: _bar(of[name], longest), audience="people"
            ),
            column("quota_gpus", tr("quota"), "number", lambda name: of[name].quota_gpus),
            column("allocated_mean", tr("given on average"), "number", lambda name: Number(of[name].allocated_mean, 1)),
            column("working_mean", tr("used on average"), "number", lambda name: Number(of[name].working_mean, 1)),
            column("most", tr("most at once"), "number", lambda name: Number(of[name].most, 1)),
            column(
                "hours_above",
                tr("hours above the quota"),
                "count",
                lambda name: _hours_above(of[name]),
                lambda name: of[name].hours_above if of[name].hours else None,
            ),
            fact("hours", "count", lambda name: of[name].hours),
        ),
        rows=tuple(of),
        notes=(
            tr(
                "The bar ends at the quota; in it the GPUs used on average, then those given and not used. The line is the most at once."
            ),
            *(() if seen.share is not None and seen.share >= WHOLLY_OBSERVED else (may_be_higher,)),
        ),
        wide=True,
    )


def quota_uses(report: Report) -> list[tuple[str, QuotaUse]]:
    """The teams of the scope with a quota, by name; none for a part of the GPUs: a quota is for all of them."""
    if not report.scope.of_gpus.is_all:
        return []
    whole, summary = report.whole, report.part.summary
    return [
        (
            team.name,
            against_quota(
                whole.narrowed(report.part.inside, Scope(team=team.name)).stretches,
                team.quota_gpus,
                summary.since_ms,
                summary.until_ms,
            ),
        )
        for team in whole.money.owners.teams().values()
        if team.quota_gpus is not None and report.scope.team in (None, team.name)
    ]


def quota_headline(seen: Seen, uses: Sequence[tuple[str, QuotaUse]]) -> str:
    """The widest gap; none where too little was observed: hours that nobody saw would pass for hours without use."""
    if not seen.is_whole:
        return tr(
            "Only {share} of the GPU time was observed, {least} are wanted: whether a quota is too wide is not known.",
            share=Share(seen.share),
            least=Share(WHOLE_FROM, 0),
        )
    known = [(gap, name, use) for name, use in uses if (gap := _unused_gpus(use)) is not None]
    if not known:
        return tr("The window has no time.")
    _, name, use = max(known, key=lambda each: each[0])
    return tr(
        "The widest gap: {team} may have {quota} GPUs at once and used {used} on average.",
        team=plain(name),
        quota=Number(use.quota_gpus),
        used=Number(use.working_mean, 1),
    )


def _by_gap(named: tuple[str, QuotaUse]) -> tuple[bool, float, str]:
    name, use = named
    gap = _unused_gpus(use)
    return gap is None, 0.0 if gap is None else -gap, name


def _unused_gpus(use: QuotaUse) -> float | None:
    """GPUs of the quota that were not used on average; None where that is not known."""
    return None if use.working_mean is None else use.quota_gpus - use.working_mean


def _hours_above(use: QuotaUse) -> str | None:
    if not use.hours:
        return None
    return tr("{number} of {hours}", number=use.hours_above, hours=use.hours)


def _bar(use: QuotaUse, longest: float) -> StateBar:
    """As long as the quota beside the largest; in it what was used and given, and a mark at the most."""

    def length(gpus: float) -> float:
        return gpus / longest if longest else 0.0

    used, given = use.working_mean, use.allocated_mean
    known = {} if used is None or given is None else {"active": length(used), "held": length(given - used)}
    return StateBar(known, track=length(use.quota_gpus), mark=None if use.most is None else length(use.most))

"""Each team's quota beside its GPUs at once."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.capacity.user_jobs import QuotaUse, against_quota
from analytics.language.sentences import Number, Share, plain, tr
from analytics.report.coverage import WHOLE_FROM, WHOLLY_OBSERVED, Seen
from analytics.report.report import Report
from analytics.scope import Scope
from analytics.tables.table import LinkedCell, StateBar, Table, column, fact


def quotas(report: Report) -> Table | None:
    """Return teams by unused quota, the largest first and unknown ones last.

    None without quotas in the scope, and for a part of the GPUs.
    """
    uses = sorted(quota_uses(report), key=lambda each: ((gap := _unused_gpus(each[1])) is None, -(gap or 0.0), each[0]))
    if not uses:
        return None
    of = dict(uses)
    longest = max(max(use.quota_gpus, use.most or 0.0) for use in of.values())
    seen = report.ledger.seen
    may_be_higher = tr(
        "{share} of the GPU time was observed, so the averages and the peak may have been higher.",
        share=Share(seen.share),
    )
    return Table(
        name="quotas",
        title=tr("Quotas"),
        question=tr("Do teams need their quotas? GPUs at once, over the whole window."),
        headline=quota_headline(seen, uses),
        columns=(
            column("team", tr("team"), "team", lambda name: LinkedCell(name, "team", name)),
            column(
                "bar",
                tr("used and allocated of the quota (line: peak)"),
                "bar",
                lambda name: _bar(of[name], longest),
                audience="people",
            ),
            column("quota_gpus", tr("quota"), "number", lambda name: of[name].quota_gpus),
            column(
                "allocated_mean", tr("allocated on average"), "number", lambda name: Number(of[name].allocated_mean, 1)
            ),
            column("working_mean", tr("used on average"), "number", lambda name: Number(of[name].working_mean, 1)),
            column("most", tr("peak"), "number", lambda name: Number(of[name].most, 1)),
            column(
                "hours_above",
                tr("hours above the quota"),
                "count",
                lambda name: (
                    tr("{number} of {hours}", number=of[name].hours_above, hours=of[name].hours)
                    if of[name].hours
                    else None
                ),
                lambda name: of[name].hours_above if of[name].hours else None,
            ),
            fact("hours", "count", lambda name: of[name].hours),
        ),
        rows=tuple(of),
        notes=(
            tr(
                "The bar ends at the quota. It shows the GPUs used on average, then the GPUs allocated and not used."
                " The line is the peak."
            ),
            *(() if seen.share is not None and seen.share >= WHOLLY_OBSERVED else (may_be_higher,)),
        ),
        wide=True,
    )


def quota_uses(report: Report) -> list[tuple[str, QuotaUse]]:
    """Return teams of the scope with a quota, by name.

    Empty for a part of the GPUs, because a quota covers all GPUs.
    """
    if not report.scope.of_gpus.is_all:
        return []
    whole, summary = report.whole, report.part.summary
    return [
        (
            team.name,
            against_quota(
                whole.narrowed(report.part.inside, Scope(team=team.name)).segments,
                team.quota_gpus,
                summary.since_ms,
                summary.until_ms,
            ),
        )
        for team in whole.money.owners.teams().values()
        if team.quota_gpus is not None and report.scope.team in (None, team.name)
    ]


def quota_headline(seen: Seen, uses: Sequence[tuple[str, QuotaUse]]) -> str:
    """Return the largest unused quota, or that too little was observed: unobserved hours would look unused."""
    if not seen.is_whole:
        return tr(
            "Only {share} of the GPU time was observed, and {least} is needed to judge the quotas.",
            share=Share(seen.share),
            least=Share(WHOLE_FROM, 0),
        )
    known = [(gap, name, use) for name, use in uses if (gap := _unused_gpus(use)) is not None]
    if not known:
        return tr("The window has no time.")
    _, name, use = max(known, key=lambda each: each[0])
    return tr(
        "{team} has the largest unused quota: {quota} GPUs, of which it used {used} on average.",
        team=plain(name),
        quota=Number(use.quota_gpus),
        used=Number(use.working_mean, 1),
    )


def _unused_gpus(use: QuotaUse) -> float | None:
    """Return the average unused GPUs of the quota; None if they are not known."""
    return None if use.working_mean is None else use.quota_gpus - use.working_mean


def _bar(use: QuotaUse, longest: float) -> StateBar:
    """Return a bar as long as the quota relative to the largest, with used and allocated GPUs, and the peak marked."""

    def length(gpus: float) -> float:
        return gpus / longest if longest else 0.0

    used, given = use.working_mean, use.allocated_mean
    known = {} if used is None or given is None else {"active": length(used), "held": length(given - used)}
    return StateBar(known, track=length(use.quota_gpus), mark=None if use.most is None else length(use.most))

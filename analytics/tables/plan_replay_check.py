"""The replay of today held against what was observed, and what is not answered because of it."""

from __future__ import annotations

from analytics.language.quantities import Number, Quantity, Share, Span
from analytics.language.sentences import tr
from analytics.plan.replay.validation import JOBS_MIN, CheckedUse, CheckedWaits, ReplayCheck
from analytics.tables.names import place_name
from analytics.tables.table import Cell, Column, Table


def replay_check(check: ReplayCheck) -> Table:
    """Waits and use of each pool, observed and replayed, with the error."""
    pairs = zip((check.waits, *check.pools), (check.use, *check.use_of_pools), strict=True)
    return Table(
        name="replay_check",
        title=tr("Does the replay say what was observed?"),
        question=tr("How far is the replay of today off what was observed?"),
        headline=_headline(check),
        columns=(
            Column("pool", tr("pool"), "pool"),
            Column("jobs", tr("jobs"), "count"),
            Column("p50", tr("half within"), "number"),
            Column("p95", tr("19 of 20 within"), "number"),
            Column("waits_error", tr("off by"), "share"),
            Column("use", tr("given out"), "number"),
            Column("use_error", tr("off by"), "share"),
        ),
        rows=tuple(_row(waits, use) for waits, use in pairs),
        notes=(
            tr(
                "Observed / replayed: within what jobs began, and how much of the GPU time was given out. Waits are those of jobs that asked in the second half of the window; the order of the queue, and what else holds jobs, were learnt from the first. "
                "Errors are shares of what was observed, of waits below an hour shares of an hour; fewer than {least} jobs say nothing. Beyond {most} the replay says nothing (plan.replay_error_pct).",
                least=Number(JOBS_MIN), most=Share(check.error_max),
            ),
        ),
        wide=True,
    )  # fmt: skip


def _headline(check: ReplayCheck) -> str:
    if check.waits.error is None:
        return tr("GPU time given out is replayed to {use}; waits could not be checked.", use=Share(check.use.error))
    return tr(
        "Replayed as it is run today, waits are off by {waits} at most, GPU time given out by {use}.",
        waits=Share(check.waits.error), use=Share(check.use.error),
    )  # fmt: skip


def _row(waits: CheckedWaits, use: CheckedUse) -> tuple[Cell, ...]:
    return (
        tr("all pools") if waits.pool is None else place_name(waits.pool),
        Number(waits.observed.jobs),
        _both(span(waits.observed.p50_ms), span(waits.replayed.p50_ms)),
        _both(span(waits.observed.p95_ms), span(waits.replayed.p95_ms)),
        Share(waits.error),
        _both(Share(use.observed), Share(use.replayed)),
        Share(use.error),
    )


def _both(observed: Quantity | None, replayed: Quantity | None) -> Cell:
    return (
        None
        if observed is None or replayed is None
        else tr("{observed} / {replayed}", observed=observed, replayed=replayed)
    )


def span(milliseconds: float | None) -> Span | None:
    """To the second; None is unknown."""
    return None if milliseconds is None else Span(round(milliseconds / 1000) * 1000)


def words(milliseconds: float | None) -> Quantity | str:
    """The same in a sentence."""
    return span(milliseconds) or tr("(not known)")


def today_and_then(today: Quantity | None, then: Quantity | None) -> Cell:
    """Both, or the one where both are the same."""
    if today is None or then is None or today == then:
        return today
    return tr("{today}, then {then}", today=today, then=then)


def refusal(check: ReplayCheck) -> str | None:
    """Why the replay says nothing, or nothing of waits, and what to do; None where it says both."""
    if not check.has_use:
        return tr(
            "Nothing is answered: replayed as it is run today, {replayed} of the GPU time is given out and {observed} was observed; name a --pool for which it holds.",
            replayed=Share(check.use.replayed), observed=Share(check.use.observed),
        )  # fmt: skip
    jobs, then = check.waits.observed, check.waits.replayed
    if not jobs.jobs:
        return tr(
            "Waits are not answered: no job tells when it asked for GPUs. `fallow allocations import slurm`, `kubernetes` or `csv` brings that in."
        )
    if check.waits.error is None:
        return tr(
            "Waits are not answered: {jobs} jobs of the second half of the window tell when they asked, and {least} are needed; give a longer --since.",
            jobs=Number(jobs.jobs), least=Number(JOBS_MIN),
        )  # fmt: skip
    if check.has_waits:
        return None
    return tr(
        "Waits are not answered: replayed as it is run today, 19 of 20 jobs begin within {then} and half within {half}, where {seen} and {half_seen} were observed; "
        "`fallow plan waits` says what else holds them, and the replay may hold for a single --pool.",
        then=words(then.p95_ms), half=words(then.p50_ms), seen=words(jobs.p95_ms), half_seen=words(jobs.p50_ms),
    )  # fmt: skip

"""The replay of today compared with what was observed, and the queue wait columns that the replay tables share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from analytics.language.sentences import Quantity, SentenceList, Share, rounded_span, tr, tr_many
from analytics.plan.replay.replayed_waits import JOBS_MIN, CheckedPool, CheckedWaits, ReplayCheck
from analytics.tables.names import place_name
from analytics.tables.table import Cell, Column, Table, column, column_of, fact


def words(milliseconds: float | None) -> Quantity | str:
    """Return a duration for a sentence, to the second, from an hour on to the minute."""
    return tr("(not known)") if milliseconds is None else rounded_span(milliseconds)


MEAN_WAIT = column("mean_wait_s", tr("mean queue wait"), "duration", "mean_ms")
MEDIAN_WAIT = column("median_wait_s", tr("half within"), "duration", "p50_ms")
P95_WAIT = column("p95_wait_s", tr("19 of 20 within"), "duration", "p95_ms")
NOT_STARTED = column("jobs_not_started", tr("not started"), "count", "open_jobs")
WAITED = column("gpu_hours_waited", tr("GPU-hours waited"), "gpu_hours", "gpu_ms")
WAITS = (MEAN_WAIT, MEDIAN_WAIT, P95_WAIT, NOT_STARTED, WAITED)
"""Columns that read WaitFigures."""


def compared_waits(
    first: str, second: str, joined: Callable[[Cell, Cell], Cell], shown: Collection[Column]
) -> Iterator[Column]:
    """Yield the columns of two WaitFigures of a row: people see `shown`, `joined` in one cell; programs get all."""
    for figure in WAITS:
        both = {part.rpartition(".")[2]: column_of(part, figure) for part in (first, second)}
        if figure in shown:
            yield replace(figure, read=_in_one_cell(joined, *both.values()), audience="people")
        for name, each in both.items():
            yield replace(each, key=f"{name}_{each.key}", audience="programs")


def _in_one_cell(joined: Callable[[Cell, Cell], Cell], first: Column, second: Column) -> Callable[[object], Cell]:
    return lambda row: joined(first.cell(row), second.cell(row))


def replay_check(check: ReplayCheck) -> Table:
    """Return queue waits and allocated GPU time of each pool, observed and replayed, with the error."""
    pools = check.pools if len(check.pools) == 1 else (CheckedPool(None, check.waits, check.use), *check.pools)
    return Table(
        name="replay_check",
        title=tr("Does the replay of today match what was observed?"),
        question=tr("By how much is the replay of today off?"),
        headline=tr(
            "The replay of today is off by {use} in allocated GPU time; its queue waits cannot be checked."
            if pools[0].waits.error is None
            else "The replay of today is off by {waits} in queue waits, and by {use} in allocated GPU time.",
            waits=Share(pools[0].waits.error),
            use=Share(pools[0].use.error),
        ),
        columns=(
            column(
                "pool",
                tr("pool"),
                "pool",
                lambda row: tr("all pools") if row.pool is None else place_name(row.pool),
                "pool",
            ),
            column("jobs", tr("jobs"), "count", "waits.observed.jobs"),
            *compared_waits("waits.observed", "waits.replayed", _both, (MEDIAN_WAIT, P95_WAIT)),
            column("waits_error", tr("off by"), "share", lambda row: Share(row.waits.error)),
            column(
                "use",
                tr("allocated"),
                "number",
                lambda row: _both(Share(row.use.observed), Share(row.use.replayed)),
                audience="people",
            ),
            column("use_error", tr("off by"), "share", lambda row: Share(row.use.error)),
            fact("observed_use", "share", "use.observed"),
            fact("replayed_use", "share", "use.replayed"),
        ),
        rows=pools,
        notes=(
            tr(
                "Observed / replayed: the queue wait of half and of 19 of 20 jobs, and the allocated share of the GPU"
                " time. Waits are those of jobs submitted in the second half of the window; the queue's order and other"
                " delays come from the first half."
            ),
            tr(
                "Errors are shares of the observed value; for waits below an hour, shares of an hour. With fewer than"
                " {least} jobs, or an error above {most} (plan.replay_error_pct), waits are not shown.",
                least=JOBS_MIN,
                most=Share(check.error_max),
            ),
        ),
        wide=True,
    )


def _both(observed: Cell, replayed: Cell) -> Cell:
    if not isinstance(observed, Quantity) or not isinstance(replayed, Quantity):
        return None
    return tr("{observed} / {replayed}", observed=observed, replayed=replayed)


def refusal(check: ReplayCheck) -> str | None:
    """Return why the replay has no answer, or none about queue waits, and what can be done; None if it has both."""
    if not check.has_use:
        return tr(
            "The replay has no answer: the replay of today allocates {replayed} of the GPU time, and {observed} was"
            " observed.",
            replayed=Share(check.use.replayed),
            observed=Share(check.use.observed),
        )
    if check.has_waits:
        return None
    reason = unknown_waits(None if len(check.pools) > 1 else check.pools[0].pool if check.pools else None, check.waits)
    return SentenceList([reason, waits_remedy(check)], " ")


def unknown_waits(pool: str | None, waits: CheckedWaits) -> str:
    """Return that the queue waits of a pool, or of all pools, cannot be computed, and why."""
    why = waits_gap(waits)
    if pool is None:
        return tr("Queue waits of all pools together cannot be computed: {why}.", why=why)
    return tr("Queue waits in {pool} cannot be computed: {why}.", pool=place_name(pool), why=why)


def waits_remedy(check: ReplayCheck) -> str:
    """Return where queue waits can be computed, or how they can be."""
    if others := [place_name(pool) for pool in check.pools_with_waits]:
        return tr("They can be computed in {pools}.", pools=SentenceList(others, ", "))
    if not check.waits.observed.jobs:
        return tr("`fallow allocations import slurm`, `kubernetes` or `csv` adds submission times.")
    if check.waits.error is None:
        return tr("A longer window has more jobs.")
    return tr("`fallow plan queue` shows what else delays jobs.")


def waits_gap(waits: CheckedWaits) -> str:
    """Return why the queue waits of some jobs are not known, as half a sentence."""
    seen, then = waits.observed, waits.replayed
    if not seen.jobs:
        return tr("no job has a submission time in the second half of the window")
    if waits.error is None:
        return tr_many(
            "{number} {job has|jobs have} a submission time in the second half of the window, and {least} are needed",
            seen.jobs,
            least=JOBS_MIN,
        )
    is_p95 = waits.error == waits.error_of(then.p95_ms, seen.p95_ms)
    return tr(
        "19 of 20 jobs started within {seen}, but in the replay without a change within {then}"
        if is_p95
        else "half of the jobs started within {seen}, but in the replay without a change within {then}",
        then=words(then.p95_ms if is_p95 else then.p50_ms),
        seen=words(seen.p95_ms if is_p95 else seen.p50_ms),
    )

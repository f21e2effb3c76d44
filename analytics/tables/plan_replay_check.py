"""The replay of today held against what was observed, and the figures of waits that the tables of a replay share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from analytics.language.quantities import Quantity, Share, Span
from analytics.language.sentences import tr
from analytics.plan.replay.replayed_waits import JOBS_MIN, CheckedPool, ReplayCheck
from analytics.tables.names import place_name
from analytics.tables.table import Cell, Column, Table, column, column_of, fact


def span(milliseconds: float | None) -> Span | None:
    """To the second; None is unknown."""
    return None if milliseconds is None else Span(round(milliseconds / 1000) * 1000)


def words(milliseconds: float | None) -> Quantity | str:
    """The same in a sentence."""
    return span(milliseconds) or tr("(not known)")


MEDIAN_WAIT = column("median_wait_s", tr("half within"), "duration", lambda waits: span(waits.p50_ms))
P95_WAIT = column("p95_wait_s", tr("19 of 20 within"), "duration", lambda waits: span(waits.p95_ms))
NOT_BEGUN = column("jobs_not_begun", tr("not begun"), "count", "open_jobs")
WAITED = column("gpu_hours_waited", tr("GPU-hours waited"), "gpu_hours", "gpu_ms")
WAITS = (
    MEDIAN_WAIT,
    P95_WAIT,
    column("max_wait_s", tr("the last within"), "duration", lambda waits: span(waits.most_ms)),
    NOT_BEGUN,
    WAITED,
)
"""Columns that read WaitFigures."""


def compared_waits(
    first: str, second: str, said: Callable[[Cell, Cell], Cell], shown: Collection[Column]
) -> Iterator[Column]:
    """Yield the columns of two WaitFigures of a row: `said` puts both in one cell of those `shown`, programs get all."""
    for figure in WAITS:
        both = {part.rpartition(".")[2]: column_of(part, figure) for part in (first, second)}
        if figure in shown:
            yield replace(figure, read=_in_one_cell(said, *both.values()), audience="people")
        for name, each in both.items():
            yield replace(each, key=f"{name}_{each.key}", audience="programs")


def _in_one_cell(said: Callable[[Cell, Cell], Cell], first: Column, second: Column) -> Callable[[object], Cell]:
    return lambda row: said(first.cell(row), second.cell(row))


def replay_check(check: ReplayCheck) -> Table:
    """Waits and use of each pool, observed and replayed, with the error."""
    return Table(
        name="replay_check",
        title=tr("Does the replay say what was observed?"),
        question=tr("How far is the replay of today off what was observed?"),
        headline=_headline(check),
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
                tr("given out"),
                "number",
                lambda row: _both(Share(row.use.observed), Share(row.use.replayed)),
                audience="people",
            ),
            column("use_error", tr("off by"), "share", lambda row: Share(row.use.error)),
            fact("observed_use", "share", "use.observed"),
            fact("replayed_use", "share", "use.replayed"),
        ),
        rows=(CheckedPool(None, check.waits, check.use), *check.pools),
        notes=(
            tr(
                "Observed / replayed: within what jobs began, and how much of the GPU time was given out. Waits are those of jobs that asked in the second half of the window; the order of the queue, and what else holds jobs, were learnt from the first. "
                "Errors are shares of what was observed, of waits below an hour shares of an hour; fewer than {least} jobs say nothing. Beyond {most} the replay says nothing (plan.replay_error_pct).",
                least=JOBS_MIN,
                most=Share(check.error_max),
            ),
        ),
        wide=True,
    )


def _headline(check: ReplayCheck) -> str:
    if check.waits.error is None:
        return tr("GPU time given out is replayed to {use}; waits could not be checked.", use=Share(check.use.error))
    return tr(
        "Replayed as it is run today, waits are off by {waits} at most, GPU time given out by {use}.",
        waits=Share(check.waits.error),
        use=Share(check.use.error),
    )


def _both(observed: Cell, replayed: Cell) -> Cell:
    if not isinstance(observed, Quantity) or not isinstance(replayed, Quantity):
        return None
    return tr("{observed} / {replayed}", observed=observed, replayed=replayed)


def refusal(check: ReplayCheck) -> str | None:
    """Why the replay says nothing, or nothing of waits, and what to do; None where it says both."""
    if not check.has_use:
        return tr(
            "Nothing is answered: replayed as it is run today, {replayed} of the GPU time is given out and {observed} was observed; name a --pool for which it holds.",
            replayed=Share(check.use.replayed),
            observed=Share(check.use.observed),
        )
    jobs, then = check.waits.observed, check.waits.replayed
    if not jobs.jobs:
        return tr(
            "Waits are not answered: no job tells when it asked for GPUs. `fallow allocations import slurm`, `kubernetes` or `csv` brings that in."
        )
    if check.waits.error is None:
        return tr(
            "Waits are not answered: {jobs} jobs of the second half of the window tell when they asked, and {least} are needed; give a longer --since.",
            jobs=jobs.jobs,
            least=JOBS_MIN,
        )
    if check.has_waits:
        return None
    return tr(
        "Waits are not answered: replayed as it is run today, 19 of 20 jobs begin within {then} and half within {half}, where {seen} and {half_seen} were observed; "
        "`fallow plan queue` says what else holds them, and the replay may hold for a single --pool.",
        then=words(then.p95_ms),
        half=words(then.p50_ms),
        seen=words(jobs.p95_ms),
        half_seen=words(jobs.p50_ms),
    )

"""What a change would have made of the jobs of a window, against the replay of today."""

from __future__ import annotations

from collections.abc import Iterator

from analytics.language.quantities import Amount, GpuHours, Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.money.energy import Grid
from analytics.plan.replay.outcome import FleetUse, ReplayOutcome
from analytics.plan.replay.replay_base import ReplayBase
from analytics.tables.plan_replay_check import refusal, span, words
from analytics.tables.table import Cell, Column, Table
from fallow.clock import HOUR_MS

_ORDERS = {
    "fifo": tr("strictly in order"),
    "conservative": tr("in order, later ones first where by the time limits that delays nobody"),
    "backfill": tr("in order, later ones first where by the time limits that does not delay the first"),
}


def replay_answer(base: ReplayBase, outcome: ReplayOutcome, grid: Grid, currency: str | None) -> Table:
    """The figures of both replays side by side, and what they rest on."""
    return Table(
        name="replay",
        title=tr("What the change would have made of the same jobs"),
        question=tr("What would jobs have waited for, and what would the GPUs have been used for, had it been otherwise?"),
        headline=_headline(base, outcome),
        columns=(
            Column("figure", tr("figure"), "words"),
            Column("today", tr("replay of today"), "number"),
            Column("then", tr("with the change"), "number"),
        ),
        rows=tuple(_rows(outcome, grid, currency)) if base.check.has_use else (),
        lines=tuple(_gains(outcome, currency)) if base.check.has_use else (),
        notes=(*_assumptions(base), _counted(base), *_homeless(base), *_emitted(outcome, grid)),
        wide=True,
    )  # fmt: skip


def _headline(base: ReplayBase, outcome: ReplayOutcome) -> str:
    if outcome.waits is None:
        return refusal(base.check) or ""
    if outcome.waits.today == outcome.waits.then and outcome.today == outcome.then:
        return tr("Nothing would have been otherwise than in the replay of today.")
    if outcome.waits.today == outcome.waits.then or _looks_same(outcome):
        return tr(
            "Jobs would have waited as long as in the replay of today; what else would have been otherwise stands below."
        )
    then, today, hours = outcome.waits.then, outcome.waits.today, GpuHours(abs(outcome.waits.saved_ms))
    if outcome.waits.saved_ms < 0:
        return tr("19 of 20 jobs would have begun within {then} instead of {today}; all of them would have waited {hours} GPU-hours more.",
                  then=words(then.p95_ms), today=words(today.p95_ms), hours=hours)  # fmt: skip
    return tr("19 of 20 jobs would have begun within {then} instead of {today}; all of them would have waited {hours} GPU-hours less.",
              then=words(then.p95_ms), today=words(today.p95_ms), hours=hours)  # fmt: skip


def _looks_same(outcome: ReplayOutcome) -> bool:
    """Whether waits differ by less than what is shown of them: seconds, and tenths of a GPU-hour."""
    assert outcome.waits is not None  # noqa: S101  # asked of waits only
    today, then = outcome.waits.today, outcome.waits.then
    return span(today.p95_ms) == span(then.p95_ms) and abs(outcome.waits.saved_ms) < HOUR_MS / 20


def _rows(outcome: ReplayOutcome, grid: Grid, currency: str | None) -> Iterator[tuple[Cell, ...]]:
    both = (outcome.today, outcome.then)
    totals = [each.total for each in both]
    if outcome.waits is not None:
        waits = (outcome.waits.today, outcome.waits.then)
        yield tr("half of the jobs began within"), *(span(each.p50_ms) for each in waits)
        yield tr("19 of 20 began within"), *(span(each.p95_ms) for each in waits)
        yield tr("the last one within"), *(span(each.most_ms) for each in waits)
        yield tr("had not begun at the end"), *(Number(each.open_jobs) for each in waits)
        yield tr("GPU-hours waited"), *(GpuHours(each.gpu_ms) for each in waits)
    yield tr("GPUs"), *(Number(each.gpus) for each in totals)
    yield tr("GPU-hours there"), *(GpuHours(each.there_ms) for each in totals)
    yield tr("GPU-hours that jobs had"), *(GpuHours(each.held_ms) for each in totals)
    yield tr("of the GPU time"), *(Share(each.utilization) for each in totals)
    yield tr("GPUs that jobs had at the same moment, at most"), *(_decimal(each.most) for each in totals)
    yield tr("cost of the GPUs"), *(None if each.cost is None else Amount(each.cost, currency) for each in totals)
    yield tr("kWh drawn by the site"), *(_decimal(_drawn(each, grid)) for each in both)
    yield (
        tr("kg of CO2"),
        *(_decimal(None if (drawn := _drawn(each, grid)) is None else drawn * grid.kg_per_kwh) for each in both),
    )


def _decimal(value: float | None) -> Number | None:
    return None if value is None else Number(value, 0 if value == round(value) else 1)


def _drawn(use: FleetUse, grid: Grid) -> float | None:
    return None if use.kwh is None else use.kwh * grid.pue


def _gains(outcome: ReplayOutcome, currency: str | None) -> Iterator[str]:
    """What is saved or lost beside waits, a sentence each."""
    if outcome.cuts:
        yield _freed(outcome, currency)
    today, then = outcome.today.total, outcome.then.total
    if then.most is None:
        yield tr(
            "Where jobs share GPUs, the GPU-hours that they had are the parts that each has of one: how many GPUs that keeps busy, and what these draw, nobody knows."
        )
    if then.gpus == today.gpus and outcome.spare:
        yield _spare(outcome.spare, then.there_ms / then.gpus)
    if then.gpus != today.gpus and then.cost is not None and today.cost is not None:
        less = today.cost - then.cost
        yield (
            tr("The GPUs would have cost {amount} less.", amount=Amount(less, currency))
            if less >= 0
            else tr("The GPUs would have cost {amount} more.", amount=Amount(-less, currency))
        )
    if outcome.unplaced:
        yield tr_many(
            "{number} job could not have run.",
            "{number} jobs could not have run.",
            sum(each.jobs for each in outcome.unplaced),
        )
    if outcome.postponed:
        yield tr_many(
            "{number} job would have come later, off peak.",
            "{number} jobs would have come later, off peak.",
            outcome.postponed,
        )
    if outcome.preempted:
        yield tr_many("{number} job would have lost its GPUs to another one.", "{number} jobs would have lost their GPUs to others.", outcome.preempted)  # fmt: skip


def _spare(gpus: float, window_ms: float) -> str:
    """How many GPUs fewer the highest moment needs."""
    hours, shown = GpuHours(abs(gpus) * window_ms), _decimal(abs(gpus)) or Number(0)
    if gpus > 0:
        return tr(
            "The jobs would have got by with fewer GPUs at the highest moment, by {gpus}: {hours} GPU-hours of the window.",
            gpus=shown,
            hours=hours,
        )
    return tr("The jobs would have had more GPUs at the highest moment, by {gpus}.", gpus=shown)


def _freed(outcome: ReplayOutcome, currency: str | None) -> str:
    costs = [each.cost for each in outcome.cuts]
    worth = None if None in costs else Amount(sum(each for each in costs if each is not None), currency)
    shown = {
        "hours": GpuHours(outcome.freed_ms), "worked": GpuHours(sum(each.worked_ms for each in outcome.cuts)),
        "later": Number(sum(each.worked_later for each in outcome.cuts)),
    }  # fmt: skip
    jobs = sum(each.jobs for each in outcome.cuts)
    freed = tr_many(
        "The time-out would have freed {hours} GPU-hours of {number} job, which would have worked in {worked} of them.",
        "The time-out would have freed {hours} GPU-hours of {number} jobs, {later} of which would have worked in {worked} of them.",
        jobs, **shown,
    )  # fmt: skip
    return freed if worth is None else tr("{freed} They cost {amount}.", freed=freed, amount=worth)


def _assumptions(base: ReplayBase) -> Iterator[str]:
    order = _ORDERS[base.policy.order]
    if base.policy.priorities is None:
        yield tr(
            "Each job comes when it could have begun, holds as many GPUs for as long as it really did, and begins as soon as its pool has room for it: {order}.",
            order=order,
        )
    else:
        yield tr(
            "Each job comes when it could have begun, holds as many GPUs for as long as it really did, and begins as soon as its pool has room for it: by its priority, then {order}.",
            order=order,
        )
    yield tr(
        "No other order explains the first half of the window better. The fleet is that of the end of the window, all the time; a partition has the hosts on which its jobs ever ran. "
        "On cards of another model jobs take as long as on their own, unless a scenario states by how much longer. What somebody would have asked for, had it been faster, nobody sees."
    )
    if base.delays:
        yield tr("Something else than GPUs holds jobs here as well: those of each team come later, by what was left unexplained in the first half of the window.")  # fmt: skip


def _counted(base: ReplayBase) -> str:
    jobs = base.rebuilt
    return tr(
        "Jobs replayed: {jobs}, of which {bare} are use of GPUs without a job. Nobody knows when {unasked} of the others were asked for; these, and use without a job, come when they began. "
        "Left out: {never} that never had GPUs, {unplaced} without a number of GPUs or a known pool, or on parts of cards.",
        jobs=Number(jobs.jobs.height), bare=Number(jobs.jobs.height - jobs.queued), unasked=Number(jobs.unasked), never=Number(jobs.never_ran),
        unplaced=Number(jobs.unplaced),
    )  # fmt: skip


def _homeless(base: ReplayBase) -> Iterator[str]:
    """How many jobs fit nowhere today: a count that no change is to blame for."""
    if jobs := base.homeless:
        yield tr_many(
            "{number} job asks for more than today's fleet has where it may run: it waits to the end in the replay of today, and does not count as one that could not run.",
            "{number} jobs ask for more than today's fleet has where they may run: they wait to the end in the replay of today, and do not count as ones that could not run.",
            jobs,
        )  # fmt: skip


def _emitted(outcome: ReplayOutcome, grid: Grid) -> Iterator[str]:
    """What energy and carbon dioxide rest on."""
    if outcome.today.kwh is not None or outcome.then.kwh is not None:
        yield tr(
            "Energy is by what the GPUs of each model drew on average, with PUE {pue}; CO2 by one number for all hours, {grams} g per kWh (`fallow plan carbon` knows the hours).",
            pue=Number(grid.pue, 2), grams=Number(grid.kg_per_kwh * 1000),
        )  # fmt: skip

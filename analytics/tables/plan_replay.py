"""What a change would have made of the jobs of a window, against the replay of today: figures, who gains, who is hit, what cannot run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, GpuHours, Number, Quantity, Share
from analytics.language.sentences import tr, tr_many
from analytics.money.energy import Grid
from analytics.money.priced_segments import NOT_KNOWN
from analytics.money.window_money import Money
from analytics.plan.replay.replay_base import ComparedWaits, CutUser, FleetUse, ReplayBase, ReplayOutcome, Unplaced
from analytics.plan.replay.station import NO_GPUS, TOO_LITTLE_MEMORY, TOO_MANY, TOO_WIDE
from analytics.tables.names import GPU_HOURS, GPUS, NAME_MOST, TEAM, account_name, amount, decimals
from analytics.tables.plan_replay_check import (
    NOT_BEGUN,
    WAITS,
    compared_waits,
    refusal,
    replay_check,
    span,
    words,
)
from analytics.tables.table import Cell, Column, Kind, Table, column, column_of, fact, rows_column, single
from fallow.clock import HOUR_MS

_ORDERS = {
    "fifo": tr("strictly in order"),
    "conservative": tr("in order, later ones first where by the time limits that delays nobody"),
    "backfill": tr("in order, later ones first where by the time limits that does not delay the first"),
}


def replay_tables(base: ReplayBase, outcome: ReplayOutcome, money: Money) -> tuple[Table, ...]:
    """Return what a replay answers, in the order in which the command and the page show it."""
    return (replay_answer(base, outcome, money.grid, money.currency), replay_check(base.check), *_about(outcome, money))


def _about(outcome: ReplayOutcome, money: Money) -> tuple[Table, ...]:
    """Who gains, who is hit and what cannot run, where there is any."""
    found = (
        who_gains(outcome, "team"),
        who_gains(outcome, "rank"),
        whom_it_hits(outcome.cuts, money.currency),
        what_cannot_run(outcome.unplaced),
    )
    return tuple(each for each in found if each is not None)


def outcome_figures(outcome: ReplayOutcome, money: Money) -> Table:
    """Return for programs the figures of both replays, in all and of each pool."""
    use = _pool_use(money.currency)
    pools = (fact("pool", "pool"), *use)
    return single(
        "replay_outcome",
        (
            *(
                each
                for side in ("today", "then")
                for each in (
                    *(column_of(f"{side}.waits", each, f"{side}_{each.key}") for each in (JOBS, *WAITS)),
                    *(column_of(f"{side}.total", each, f"{side}_{each.key}") for each in use),
                    fact(f"{side}_gpu_kwh", "number", f"{side}.kwh"),
                    rows_column(f"{side}_pools", pools, f"{side}.pools"),
                )
            ),
            fact("freed_gpu_hours", "gpu_hours", "freed_ms"),
            fact("jobs_put_off", "count", "postponed"),
            fact("jobs_preempted", "count", "preempted"),
        ),
        outcome,
    )


def outcome_column(money: Money) -> Column:
    """Return a column for programs: the rows of all tables of an outcome by their names, where it stands beside others."""

    def rows(outcome: ReplayOutcome) -> dict[str, object]:
        return {each.name: each.records() for each in (outcome_figures(outcome, money), *_about(outcome, money))}

    return column_of("outcome", fact("outcome", "words", rows, "object"))


def replay_basis(base: ReplayBase) -> Table:
    """Return for programs which jobs are replayed, how the queue is taken to work, and what the check refuses."""
    return single(
        "replay_basis",
        (
            fact("jobs", "count", "rebuilt.jobs.height"),
            fact("jobs_without_time_of_asking", "count", "rebuilt.unasked"),
            fact("use_without_a_job", "count", lambda base: base.rebuilt.jobs.height - base.rebuilt.queued),
            fact("jobs_that_never_ran", "count", "rebuilt.never_ran"),
            fact("jobs_without_gpus_or_pool", "count", "rebuilt.unplaced"),
            fact("jobs_that_fit_nowhere_today", "count", "homeless"),
            fact("order", "words", "policy.order"),
            column_of("policy.priorities", fact("by", "words"), "first_by"),
            fact("delayed_teams", "count", lambda base: len(base.delays)),
            fact("error_max", "share", "check.error_max"),
            fact("has_waits", "words", "check.has_waits", "boolean"),
            fact("refused", "sentence", lambda base: refusal(base.check)),
        ),
        base,
    )


def replay_answer(base: ReplayBase, outcome: ReplayOutcome, grid: Grid, currency: str | None) -> Table:
    """The figures of both replays side by side, and what they rest on."""
    return Table(
        name="replay",
        title=tr("What the change would have made of the same jobs"),
        question=tr(
            "What would jobs have waited for, and what would the GPUs have been used for, had it been otherwise?"
        ),
        headline=_headline(base, outcome),
        columns=(
            column("figure", tr("figure"), "words", "title", "key"),
            column("today", tr("replay of today"), "number", lambda figure: figure.cell(outcome.today)),
            column("then", tr("with the change"), "number", lambda figure: figure.cell(outcome.then)),
        ),
        rows=tuple(_figures(outcome, grid, currency)) if base.check.has_use else (),
        lines=tuple(_gains(outcome, currency)) if base.check.has_use else (),
        notes=(*_assumptions(base), _counted(base), *_homeless(base), *_emitted(outcome, grid)),
        wide=True,
    )


def _headline(base: ReplayBase, outcome: ReplayOutcome) -> str:
    if outcome.waits is None:
        return refusal(base.check) or ""
    if outcome.today == outcome.then:
        return tr("Nothing would have been otherwise than in the replay of today.")
    if outcome.waits.today == outcome.waits.then or _looks_same(outcome):
        return tr(
            "Jobs would have waited as long as in the replay of today; what else would have been otherwise stands below."
        )
    then, today, hours = outcome.waits.then, outcome.waits.today, GpuHours(abs(outcome.waits.saved_ms))
    if outcome.waits.saved_ms < 0:
        return tr(
            "19 of 20 jobs would have begun within {then} instead of {today}; all of them would have waited {hours} GPU-hours more.",
            then=words(then.p95_ms),
            today=words(today.p95_ms),
            hours=hours,
        )
    return tr(
        "19 of 20 jobs would have begun within {then} instead of {today}; all of them would have waited {hours} GPU-hours less.",
        then=words(then.p95_ms),
        today=words(today.p95_ms),
        hours=hours,
    )


def _looks_same(outcome: ReplayOutcome) -> bool:
    """Whether waits differ by less than what is shown of them: seconds, and tenths of a GPU-hour."""
    assert outcome.waits is not None  # noqa: S101  # asked of waits only
    today, then = outcome.waits.today, outcome.waits.then
    return span(today.p95_ms) == span(then.p95_ms) and abs(outcome.waits.saved_ms) < HOUR_MS / 20


JOBS = column("jobs", tr("jobs"), "count")
_TITLES = (
    tr("half of the jobs began within"),
    tr("19 of 20 began within"),
    tr("the last one within"),
    tr("had not begun at the end"),
    tr("GPU-hours waited"),
)
"""Of each of WAITS, where it names a row."""


def _figures(outcome: ReplayOutcome, grid: Grid, currency: str | None) -> Iterator[Column]:
    """The figures of a FleetUse."""
    if outcome.waits is not None:
        both = zip(WAITS, _TITLES, strict=True)
        yield from (column_of("waits", replace(each, title=title)) for each, title in both)
    yield from (column_of("total", each) for each in _pool_use(currency))
    yield column("site_kwh", tr("kWh drawn by the site"), "number", lambda use: _decimal(site_kwh(use, grid)))
    yield column("co2_kg", tr("kg of CO2"), "number", lambda use: _decimal(_co2_kg(use, grid)))


def _pool_use(currency: str | None) -> tuple[Column, ...]:
    """The figures of a PoolUse."""
    return (
        GPUS,
        column("gpu_hours", tr("GPU-hours there"), "gpu_hours", "there_ms"),
        column("gpu_hours_held", tr("GPU-hours that jobs had"), "gpu_hours", "held_ms"),
        column("utilization", tr("of the GPU time"), "share", lambda use: Share(use.utilization)),
        column(
            "max_gpus_at_once",
            tr("GPUs that jobs had at the same moment, at most"),
            "number",
            lambda use: _decimal(use.most),
        ),
        column("cost", tr("cost of the GPUs"), "money", lambda use: amount(use.cost, currency)),
    )


def _decimal(value: float | None) -> Number | None:
    return decimals(value, 0 if value is None or value == round(value) else 1)


def site_kwh(use: FleetUse, grid: Grid) -> float | None:
    """Return what the site draws for the GPUs."""
    return None if use.kwh is None else use.kwh * grid.pue


def _co2_kg(use: FleetUse, grid: Grid) -> float | None:
    drawn = site_kwh(use, grid)
    return None if drawn is None else drawn * grid.kg_per_kwh


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
        yield tr_many(
            "{number} job would have lost its GPUs to another one.",
            "{number} jobs would have lost their GPUs to others.",
            outcome.preempted,
        )


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
        "hours": GpuHours(outcome.freed_ms),
        "worked": GpuHours(sum(each.worked_ms for each in outcome.cuts)),
        "later": Number(sum(each.worked_later for each in outcome.cuts)),
    }
    jobs = sum(each.jobs for each in outcome.cuts)
    freed = tr_many(
        "The time-out would have freed {hours} GPU-hours of {number} job, which would have worked in {worked} of them.",
        "The time-out would have freed {hours} GPU-hours of {number} jobs, {later} of which would have worked in {worked} of them.",
        jobs,
        **shown,
    )
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
        yield tr(
            "Something else than GPUs holds jobs here as well: those of each team come later, by what was left unexplained in the first half of the window."
        )


def _counted(base: ReplayBase) -> str:
    jobs = base.rebuilt
    return tr(
        "Jobs replayed: {jobs}, of which {bare} are use of GPUs without a job. Nobody knows when {unasked} of the others were asked for; these, and use without a job, come when they began. "
        "Left out: {never} that never had GPUs, {unplaced} without a number of GPUs or a known pool, or on parts of cards.",
        jobs=jobs.jobs.height,
        bare=jobs.jobs.height - jobs.queued,
        unasked=jobs.unasked,
        never=jobs.never_ran,
        unplaced=jobs.unplaced,
    )


def _homeless(base: ReplayBase) -> Iterator[str]:
    """How many jobs fit nowhere today: a count that no change is to blame for."""
    if jobs := base.homeless:
        yield tr_many(
            "{number} job asks for more than today's fleet has where it may run: it waits to the end in the replay of today, and does not count as one that could not run.",
            "{number} jobs ask for more than today's fleet has where they may run: they wait to the end in the replay of today, and do not count as ones that could not run.",
            jobs,
        )


def _emitted(outcome: ReplayOutcome, grid: Grid) -> Iterator[str]:
    """What energy and carbon dioxide rest on."""
    if outcome.today.kwh is not None or outcome.then.kwh is not None:
        yield tr(
            "Energy is by what the GPUs of each model drew on average, with PUE {pue}; CO2 by one number for all hours, {grams} g per kWh (`fallow plan carbon` knows the hours).",
            pue=Number(grid.pue, 2),
            grams=Number(grid.kg_per_kwh * 1000),
        )


_GROUPS: dict[str, tuple[str, str, Kind]] = {
    "team": (tr("Who gains, team by team"), tr("team"), "team"),
    "rank": (tr("Who gains, priority by priority"), tr("QoS or priority"), "name"),
}


def who_gains(outcome: ReplayOutcome, by: str) -> Table | None:
    """The waits of each `team` or `rank`, those that gain most first; None where waits are not known."""
    groups = outcome.teams if by == "team" else outcome.ranks
    if not groups:
        return None
    title, name, kind = _GROUPS[by]
    return Table(
        name=f"replay_{by}",
        title=title,
        question=tr("Who would have waited less, and who longer?"),
        headline=_gain_sentence(groups),
        columns=(
            column(by, name, kind, "name"),
            column_of("today", JOBS),
            *compared_waits("today", "then", _today_and_then, {*WAITS} - {NOT_BEGUN}),
        ),
        rows=groups,
        wide=True,
    )


def _today_and_then(today: Cell, then: Cell) -> Cell:
    """Both, or the one where both are the same."""
    if not isinstance(today, Quantity) or not isinstance(then, Quantity) or today == then:
        return today
    return tr("{today}, then {then}", today=today, then=then)


def _gain_sentence(groups: Sequence[ComparedWaits]) -> str:
    first, last = groups[0], groups[-1]
    if first.saved_ms <= 0 and last.saved_ms >= 0:
        return tr("Nobody would have waited less or longer.")
    name, hours = _name(first.name), GpuHours(first.saved_ms)
    other, more = _name(last.name), GpuHours(-last.saved_ms)
    if last.saved_ms >= 0:
        return tr("{name} gains most, {hours} GPU-hours of waiting; nobody loses.", name=name, hours=hours)
    if first.saved_ms <= 0:
        return tr("{other} loses most, {more} GPU-hours of waiting; nobody gains.", other=other, more=more)
    return tr(
        "{name} gains most, {hours} GPU-hours of waiting; {other} loses most, {more}.",
        name=name,
        hours=hours,
        other=other,
        more=more,
    )


def _name(name: str | None) -> str:
    return tr("(not known)") if name is None else plain(name, NAME_MOST)


def whom_it_hits(cuts: Sequence[CutUser], currency: str | None) -> Table | None:
    """Users whose jobs an idle time-out would have ended, the most GPU time first; None where it ended none."""
    if not cuts:
        return None
    jobs, later = (sum(each) for each in zip(*((each.jobs, each.worked_later) for each in cuts), strict=True))
    return Table(
        name="replay_cuts",
        title=tr("Whom the time-out would have hit"),
        question=tr("Whose jobs would have been ended, and would they have missed their GPUs?"),
        headline=tr_many(
            "{number} job would have been ended, {later} of which worked again after it.",
            "{number} jobs would have been ended, {later} of which worked again after it.",
            jobs,
            later=later,
        ),
        columns=(
            column("user", tr("user"), "holder", lambda cut: cut.user or account_name(NOT_KNOWN), "user"),
            TEAM,
            JOBS,
            column("worked_later", tr("worked again later"), "count"),
            column("freed_gpu_hours", tr("GPU-hours freed"), "gpu_hours", "freed_ms"),
            column("worked_gpu_hours", tr("of them at work"), "gpu_hours", "worked_ms"),
            column("cost", tr("worth"), "money", lambda cut: amount(cut.cost, currency)),
        ),
        rows=tuple(cuts),
        notes=(
            tr(
                "A job ends once none of its GPUs has worked for the time-out, and from then on all of its time is free; at work is the part of it in which any of its GPUs worked, or was not seen. "
                "Idle is what the ledger saw of all of its GPUs; jobs that it did not see whole are not ended."
            ),
        ),
    )


_WHY_NOT = {
    NO_GPUS: tr("its pool has no GPUs"),
    TOO_LITTLE_MEMORY: tr("not enough memory"),
    TOO_WIDE: tr("more GPUs than any host has"),
    TOO_MANY: tr("more GPUs than the pool has"),
}


def what_cannot_run(unplaced: Sequence[Unplaced]) -> Table | None:
    """Jobs that could not have run, by why; None where all could."""
    if not unplaced:
        return None
    return Table(
        name="replay_unplaced",
        title=tr("Jobs that could not have run"),
        question=tr("Which jobs would have found no room, however long they waited?"),
        headline=tr_many(
            "{number} job could not have run.", "{number} jobs could not have run.", sum(each.jobs for each in unplaced)
        ),
        columns=(
            column("why", tr("why"), "words", lambda each: _WHY_NOT[each.why], "why"),
            JOBS,
            GPU_HOURS,
        ),
        rows=tuple(unplaced),
    )

"""Effects of a change on a window's jobs, against the replay of today: figures, ended jobs, gains, impossible jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from analytics.language.sentences import (
    Amount,
    GpuHours,
    Number,
    Quantity,
    SentenceList,
    Share,
    Span,
    plain,
    tr,
    tr_many,
)
from analytics.money.energy import Grid
from analytics.money.priced_segments import NOT_KNOWN
from analytics.money.window_money import Money
from analytics.plan.replay.replay_base import (
    ComparedPool,
    ComparedWaits,
    CutUser,
    FleetUse,
    ReplayBase,
    ReplayOutcome,
    Unplaced,
)
from analytics.plan.replay.replayed_waits import ReplayCheck
from analytics.plan.replay.station import NO_GPUS, TOO_LITTLE_MEMORY, TOO_MANY, TOO_WIDE
from analytics.tables.names import GPU_HOURS, GPUS, NAME_MOST, TEAM, amount_column, place_name
from analytics.tables.plan_replay_check import (
    MEAN_WAIT,
    NOT_STARTED,
    P95_WAIT,
    WAITED,
    WAITS,
    compared_waits,
    refusal,
    replay_check,
    unknown_waits,
    waits_remedy,
    words,
)
from analytics.tables.table import Cell, Column, Kind, Table, column, column_of, fact, rows_column, single
from fallow.clock import HOUR_MS

_ORDERS = {
    "fifo": tr("strictly in order"),
    "conservative": tr("in order, but later jobs start first where, by the time limits, that delays no earlier job"),
    "backfill": tr("in order, but later jobs start first where, by the time limits, that does not delay the first job"),
}


def replay_tables(base: ReplayBase, outcome: ReplayOutcome, money: Money) -> tuple[Table, ...]:
    """Return the tables of a replay, in the order of the command and the page."""
    return (replay_answer(base, outcome, money.grid, money.currency), replay_check(base.check), *_about(outcome, money))


def _about(outcome: ReplayOutcome, money: Money) -> tuple[Table, ...]:
    found = (
        ended_jobs(outcome.cuts, money.currency),
        who_gains(outcome, "team"),
        who_gains(outcome, "rank"),
        what_cannot_run(outcome.unplaced),
    )
    return tuple(each for each in found if each is not None)


def outcome_figures(outcome: ReplayOutcome) -> Table:
    """Return for programs the figures of both replays, of all pools and of each pool."""
    pools = (
        fact("pool", "pool", "today.pool"),
        *(
            column_of(part, each, f"{side}_{each.key}")
            for side in ("today", "then")
            for part, figures in ((side, _POOL_USE), (f"waits.{side}", WAITS))
            for each in figures
        ),
    )
    return single(
        "replay_outcome",
        (
            *(
                each
                for side in ("today", "then")
                for each in (
                    *(column_of(f"{side}.waits", each, f"{side}_{each.key}") for each in (JOBS, *WAITS)),
                    *(column_of(f"{side}.total", each, f"{side}_{each.key}") for each in _POOL_USE),
                    fact(f"{side}_gpu_kwh", "number", f"{side}.kwh"),
                )
            ),
            rows_column("pools", pools, "pools"),
            fact("freed_gpu_hours", "gpu_hours", "freed_ms"),
            fact("jobs_put_off", "count", "postponed"),
            fact("jobs_preempted", "count", "preempted"),
        ),
        outcome,
    )


def outcome_column(money: Money) -> Column:
    """Return a column for programs: the rows of all tables of an outcome, by table name."""

    def rows(outcome: ReplayOutcome) -> dict[str, object]:
        return {each.name: each.records() for each in (outcome_figures(outcome), *_about(outcome, money))}

    return column_of("outcome", fact("outcome", "words", rows, "object"))


def replay_basis(base: ReplayBase) -> Table:
    """Return for programs the replayed jobs, the order of the queue, and what the check refuses."""
    return single(
        "replay_basis",
        (
            fact("jobs", "count", "rebuilt.jobs.height"),
            fact("jobs_without_submission_time", "count", "rebuilt.unasked"),
            fact("use_without_a_job", "count", lambda base: base.rebuilt.jobs.height - base.rebuilt.queued),
            fact("jobs_that_never_ran", "count", "rebuilt.never_ran"),
            fact("jobs_without_gpus_or_pool", "count", "rebuilt.unplaced"),
            fact("jobs_that_fit_nowhere_today", "count", "homeless"),
            fact("order", "words", "policy.order"),
            column_of("policy.priorities", fact("by", "words"), "first_by"),
            fact("delayed_teams", "count", lambda base: len(base.delays)),
            fact("error_max", "share", "check.error_max"),
            fact("has_waits", "words", "check.has_waits", "boolean"),
            fact("pools_with_waits", "words", lambda base: [*base.check.pools_with_waits], "array"),
            fact("refused", "sentence", lambda base: refusal(base.check)),
        ),
        base,
    )


@dataclass(frozen=True)
class ComparedFigure:
    """One figure of a pool in both replays.

    Attributes:
        pool: empty for all pools.
        figure: a column that reads `today` and `then`; of None it reads None.
        today: what the column reads; None where the figure is not known.
        then: the same with the change.
    """

    pool: str
    figure: Column
    today: object
    then: object

    @property
    def cells(self) -> tuple[Cell, Cell]:
        """The figure today and with the change; None is unknown."""
        return self.figure.cell(self.today), self.figure.cell(self.then)

    @property
    def values(self) -> tuple[object, object]:
        """Both in the unit of programs; None is unknown."""
        return self.figure.value(self.today), self.figure.value(self.then)

    @property
    def change(self) -> float | None:
        """The difference in the unit of programs; None where either value is unknown."""
        today, then = self.values
        return then - today if isinstance(today, int | float) and isinstance(then, int | float) else None

    def words(self) -> Cell:
        """The difference for people, with its sign."""
        today, then = self.cells
        if self.change is None:
            return None
        change = _magnitude(today, then)
        if str(change) == str(_magnitude(today, today)):
            return change
        sign = "+" if self.change > 0 else "\N{MINUS SIGN}"
        if isinstance(today, Share):
            return tr("{sign}{points} points", sign=sign, points=change)
        return tr("{sign}{amount}", sign=sign, amount=change)


def _magnitude(today: Cell, then: Cell) -> Quantity:
    """Return the difference of two quantities of one kind, without its sign; that of shares in points."""
    match today, then:
        case GpuHours(milliseconds=before), GpuHours(milliseconds=after):
            return GpuHours(abs(after - before))
        case Span(milliseconds=before), Span(milliseconds=after):
            return Span(abs(after - before))
        case Share(ratio=float(before)), Share(ratio=float(after)):
            return Number(100 * abs(after - before), 1)
        case Amount(value=float(before), currency=currency), Amount(value=float(after)):
            return Amount(abs(after - before), currency)
        case Number(value=int() | float() as before), Number(value=int() | float() as after, digits=digits):
            return Number(abs(after - before), digits)
    raise TypeError(type(today), type(then))


def replay_answer(base: ReplayBase, outcome: ReplayOutcome, grid: Grid, currency: str | None) -> Table:
    """Return the figures of today and of the change, and their difference, of all pools and of those that change."""
    figures = (
        column("pool", tr("pool"), "pool", lambda row: place_name(row.pool) if row.pool else tr("all pools"), "pool"),
        column("figure", tr("figure"), "words", "figure.title", "figure.key"),
        column("today", tr("replay of today"), "number", lambda row: row.cells[0], lambda row: row.values[0]),
        column("then", tr("this scenario"), "number", lambda row: row.cells[1], lambda row: row.values[1]),
        column("difference", tr("difference"), "number", ComparedFigure.words, "change"),
    )
    unknown = _unknown_waits(base.check, outcome)[0 if outcome.waits or _most_changed(outcome) else 1 :]
    return Table(
        name="replay",
        title=tr("The same jobs with the change"),
        question=QUESTION,
        headline=replay_headline(base, outcome),
        columns=figures[:3] if outcome.is_today else figures,
        rows=compared_figures(outcome, grid, currency) if base.check.has_use else (),
        lines=(*_gains(outcome, currency), *unknown) if base.check.has_use else (),
        notes=tuple(_notes(base, outcome, grid)),
        wide=True,
    )


QUESTION = tr("What would change for the same jobs with other GPUs or other rules?")


def compared_figures(outcome: ReplayOutcome, grid: Grid, currency: str | None) -> tuple[ComparedFigure, ...]:
    """Return the known figures of all pools, then of each pool the figures that the change affects."""
    rows = [ComparedFigure("", each, outcome.today, outcome.then) for each in _fleet_figures(outcome, grid, currency)]
    changed = [pool for pool in outcome.pools if pool.differs] if len(outcome.pools) > 1 else []
    for pool in changed:
        waits = (None, None) if pool.waits is None else (pool.waits.today, pool.waits.then)
        rows.append(ComparedFigure(pool.name, GPUS, pool.today, pool.then))
        rows += (ComparedFigure(pool.name, each, *waits) for each in _WAIT_ROWS)
        rows += (ComparedFigure(pool.name, each, pool.today, pool.then) for each in _use_rows(currency))
    return tuple(row for row in rows if row.values != (None, None) and (not row.pool or row.values[0] != row.values[1]))


def _unknown_waits(check: ReplayCheck, outcome: ReplayOutcome) -> list[str]:
    """Return why the queue waits of shown pools are not known: of pools that change, then of all together."""
    checked = {each.pool: each.waits for each in check.pools}
    changed = [pool for pool in outcome.pools if pool.differs] if len(outcome.pools) > 1 else []
    gaps = [
        unknown_waits(pool.name, checked[pool.name]) for pool in changed if pool.waits is None and pool.name in checked
    ]
    whole = None if len(outcome.pools) > 1 else outcome.pools[0].name if outcome.pools else None
    return [*gaps, *([] if check.has_waits else [unknown_waits(whole, check.waits)])]


def replay_headline(base: ReplayBase, outcome: ReplayOutcome) -> str:
    """Return the answer: what a time-out frees and whose jobs it ends, then queue waits, then unallocated GPU-hours."""
    if not base.check.has_use:
        return refusal(base.check) or ""
    timeout = [] if outcome.idle_timeout_ms is None else [_timeout_sentence(outcome, outcome.idle_timeout_ms)]
    waits, hours = [*_waits_sentences(base, outcome)], [*_hours_sentences(outcome)]
    known = outcome.waits is not None or _most_changed(outcome) is not None
    return SentenceList([*timeout, *(waits + hours if known else hours + waits)], " ")


_NAMED_USERS = 5


def _timeout_sentence(outcome: ReplayOutcome, timeout_ms: int) -> str:
    after = Span(timeout_ms)
    if not outcome.cuts:
        return tr("An idle time-out of {after} frees no GPU-hours: it ends no job.", after=after)
    jobs, freed_ms = Counter[str](), Counter[str]()
    for cut in outcome.cuts:
        jobs[cut.user or NOT_KNOWN] += cut.jobs
        freed_ms[cut.user or NOT_KNOWN] += round(cut.freed_ms)
    ordered = sorted(jobs.items(), key=lambda user: (-freed_ms[user[0]], user[0]))
    people = [
        tr("{name} ({jobs})", name=tr(name) if name == NOT_KNOWN else plain(name, NAME_MOST), jobs=count)
        for name, count in ordered[:_NAMED_USERS]
    ]
    if rest := ordered[_NAMED_USERS:]:
        others = sum(count for _, count in rest)
        people.append(tr_many("{number} other {user|users} ({jobs})", len(rest), jobs=others))
    return tr_many(
        "An idle time-out of {after} frees {hours} GPU-hours and ends {number} {job|jobs} of {this person|these"
        " people}: {people}.",
        sum(jobs.values()),
        after=after,
        hours=GpuHours(outcome.freed_ms),
        people=SentenceList(people, ", "),
    )


def _waits_sentences(base: ReplayBase, outcome: ReplayOutcome) -> Iterator[str]:
    """Yield how long jobs wait with the change: all jobs, or those of the changed pool with known waits."""
    if outcome.is_same and not outcome.is_today:
        yield tr("This change makes no difference.")
    if outcome.waits is not None:
        yield _wait_sentence("", outcome.waits, is_same=outcome.is_same)
        if outcome.waits.saved_ms < 0 and outcome.then.total.gpus > outcome.today.total.gpus:
            yield tr("With more GPUs some jobs start earlier, and others wait for them.")
    elif (pool := _most_changed(outcome)) is not None and pool.waits is not None:
        yield _wait_sentence(pool.name, pool.waits, is_same=False)
    else:
        yield _unknown_waits(base.check, outcome)[0]
        yield waits_remedy(base.check)


def _hours_sentences(outcome: ReplayOutcome) -> Iterator[str]:
    """Yield what another number of GPUs makes of the unallocated GPU-hours."""
    today, then = outcome.today.total, outcome.then.total
    if then.gpus == today.gpus:
        return
    hours = GpuHours(abs(then.there_ms - today.there_ms))
    if then.gpus > today.gpus:
        yield tr_many("{number} more {GPU adds|GPUs add} {hours} GPU-hours.", then.gpus - today.gpus, hours=hours)
    else:
        yield tr_many(
            "{number} {GPU less removes|GPUs fewer remove} {hours} GPU-hours.", today.gpus - then.gpus, hours=hours
        )
    rise_ms = then.unallocated_ms - today.unallocated_ms
    yield tr(
        "Unallocated GPU-hours rise by {hours}." if rise_ms >= 0 else "Unallocated GPU-hours fall by {hours}.",
        hours=GpuHours(abs(rise_ms)),
    )


def _most_changed(outcome: ReplayOutcome) -> ComparedPool | None:
    """Return the pool whose known queue waits change most; None where no changed pool has known waits."""
    known = [(abs(each.waits.saved_ms), each) for each in outcome.pools if each.waits is not None and each.differs]
    return max(known, key=lambda found: found[0])[1] if known else None


def _wait_sentence(pool: str, waits: ComparedWaits, *, is_same: bool) -> str:
    """Return the waits of a pool's jobs, or of all where `pool` is empty."""
    place = tr("In {pool}", pool=place_name(pool)) if pool else tr("In all pools")
    today, then = words(waits.today.p95_ms), words(waits.then.p95_ms)
    if is_same:
        mean = words(waits.today.mean_ms)
        return tr(
            "{place}, 19 of 20 jobs start within {today}; the mean queue wait is {mean}.",
            place=place,
            today=today,
            mean=mean,
        )
    if str(today) == str(then) and abs(waits.saved_ms) < HOUR_MS / 20:
        return tr("{place}, queue waits do not change: 19 of 20 jobs start within {today}.", place=place, today=today)
    return tr(
        "{place}, 19 of 20 jobs start within {then} instead of {today}; jobs wait {hours} GPU-hours more."
        if waits.saved_ms < 0
        else "{place}, 19 of 20 jobs start within {then} instead of {today}; jobs wait {hours} GPU-hours less.",
        place=place,
        then=then,
        today=today,
        hours=GpuHours(abs(waits.saved_ms)),
    )


JOBS = column("jobs", tr("jobs"), "count")
_WAIT_ROWS = (
    MEAN_WAIT,
    replace(P95_WAIT, title=tr("19 of 20 start within")),
    replace(WAITED, title=tr("GPU-hours waited in queue")),
)


def _use_rows(currency: str | None) -> tuple[Column, ...]:
    """Return the rows of a PoolUse beside its GPUs."""
    return (
        column("unallocated_gpu_hours", tr("GPU-hours unallocated"), "gpu_hours", "unallocated_ms"),
        amount_column("cost", tr("cost of the GPUs"), currency),
    )


def _fleet_figures(outcome: ReplayOutcome, grid: Grid, currency: str | None) -> Iterator[Column]:
    rate = grid.kg_per_kwh(*outcome.window)
    yield column_of("total", GPUS)
    yield from (column_of("waits", each) for each in _WAIT_ROWS)
    unallocated, cost = _use_rows(currency)
    yield column_of("total", unallocated)
    yield column("utilization", tr("GPU time allocated"), "share", lambda use: Share(use.total.utilization))
    yield column("max_gpus_at_once", tr("GPUs allocated at peak"), "number", lambda use: _decimal(use.total.most))
    yield column_of("total", cost)
    yield column("site_kwh", tr("kWh drawn by the site"), "number", lambda use: _decimal(site_kwh(use, grid)))
    yield column("co2_kg", tr("kg of CO2"), "number", lambda use: _decimal(_co2_kg(use, grid, rate)))


_POOL_USE = (
    GPUS,
    fact("gpu_hours", "gpu_hours", "there_ms"),
    fact("gpu_hours_held", "gpu_hours", "held_ms"),
    fact("gpu_hours_unallocated", "gpu_hours", "unallocated_ms"),
    fact("utilization", "share"),
    fact("max_gpus_at_once", "number", "most"),
    fact("cost", "money"),
)


def _decimal(value: float | None) -> Number | None:
    return None if value is None else Number(value, 0 if value == round(value) else 1)


def site_kwh(use: FleetUse, grid: Grid) -> float | None:
    """Return the energy that the site draws for the GPUs, in kWh; None where it is not known."""
    return None if use.kwh is None else use.kwh * grid.pue


def _co2_kg(use: FleetUse, grid: Grid, kg_per_kwh: float | None) -> float | None:
    drawn = site_kwh(use, grid)
    return None if drawn is None or kg_per_kwh is None else drawn * kg_per_kwh


def _gains(outcome: ReplayOutcome, currency: str | None) -> Iterator[str]:
    if outcome.cuts:
        yield _freed(outcome, currency)
    today, then = outcome.today.total, outcome.then.total
    if then.most is None:
        yield tr("Jobs share GPUs here, so the number of busy GPUs and their energy are not known.")
    if then.gpus == today.gpus and outcome.spare:
        if outcome.spare > 0:
            yield tr_many(
                "At the peak, jobs need {number} {GPU less|GPUs fewer}: {hours} GPU-hours of the window.",
                round(outcome.spare),
                hours=GpuHours(outcome.spare * (then.there_ms / then.gpus)),
            )
        else:
            yield tr_many("At the peak, jobs have {number} {GPU|GPUs} more.", round(-outcome.spare))
    if then.gpus != today.gpus and then.cost is not None and today.cost is not None:
        less = today.cost - then.cost
        yield tr(
            "The GPUs cost {amount} less." if less >= 0 else "The GPUs cost {amount} more.",
            amount=Amount(abs(less), currency),
        )
    if outcome.unplaced:
        yield _cannot_run(outcome.unplaced)
    if outcome.postponed:
        yield tr_many("{number} {job starts|jobs start} later, off peak.", outcome.postponed)
    if outcome.preempted:
        yield tr_many("{number} {job loses its|jobs lose their} GPUs to {another job|other jobs}.", outcome.preempted)


def _freed(outcome: ReplayOutcome, currency: str | None) -> str:
    costs = [each.cost for each in outcome.cuts]
    worth = None if None in costs else Amount(sum(each for each in costs if each is not None), currency)
    freed = tr_many(
        "Of the ended jobs, {number} worked again later: {worked} of the {hours} freed GPU-hours.",
        sum(each.worked_later for each in outcome.cuts),
        hours=GpuHours(outcome.freed_ms),
        worked=GpuHours(sum(each.worked_ms for each in outcome.cuts)),
    )
    if worth is None:
        return freed
    return tr("{freed} The freed GPU-hours cost {amount}.", freed=freed, amount=worth)


def _notes(base: ReplayBase, outcome: ReplayOutcome, grid: Grid) -> Iterator[str]:
    """Yield the assumptions, the jobs that count, those that fit nowhere today, and how energy and CO2 are computed."""
    yield tr(
        "A job arrives when it could have started, runs as long as it really ran on as many GPUs, and starts as soon as"
        " its pool has room."
    )
    yield tr(
        "Jobs start {order}." if base.policy.priorities is None else "Jobs start by priority, then {order}.",
        order=_ORDERS[base.policy.order],
    )
    yield tr(
        "This order explains the first half of the window best. The fleet is that of the end of the window. A partition"
        " has the hosts on which its jobs ever ran."
    )
    yield tr(
        "On another GPU model jobs take the same time, unless a scenario states a slowdown. Jobs that users would"
        " submit if queues were shorter are not known."
    )
    if base.delays:
        yield tr(
            "Something other than GPUs delays jobs here: the jobs of a team arrive later by the delays that the first"
            " half of the window leaves unexplained."
        )
    jobs = base.rebuilt
    yield tr(
        "Replayed jobs: {jobs}; {bare} of them are GPU use without a job. {unasked} other jobs have no submission time."
        " Both arrive when they started. Left out: {never} jobs that never had GPUs (the forecast counts the GPUs for"
        " which they wait), and {unplaced} jobs without a number of GPUs, without a known pool, or on parts of cards.",
        jobs=jobs.jobs.height,
        bare=jobs.jobs.height - jobs.queued,
        unasked=jobs.unasked,
        never=jobs.never_ran,
        unplaced=jobs.unplaced,
    )
    if base.homeless:
        yield tr_many(
            "{number} {job asks|jobs ask} for more GPUs than today's fleet has for {it. It waits|them. They wait} to"
            " the end of the window in both replays, and {does|do} not count as {a job|jobs} that cannot run.",
            base.homeless,
        )
    rate = grid.kg_per_kwh(*outcome.window)
    if outcome.today.kwh is not None or outcome.then.kwh is not None:
        yield tr(
            "Energy: the mean power of each GPU model times time, with PUE {pue}. CO2: the mean of all hours, {grams} g"
            " per kWh (`fallow plan carbon` counts each hour).",
            pue=Number(grid.pue, 2),
            grams=Number(None if rate is None else rate * 1000),
        )


_GROUPS: dict[str, tuple[str, str, Kind]] = {
    "team": (tr("Queue waits by team"), tr("team"), "team"),
    "rank": (tr("Queue waits by priority"), tr("QoS or priority"), "name"),
}


def who_gains(outcome: ReplayOutcome, by: str) -> Table | None:
    """Return the queue waits of each `team` or `rank`, the largest gain first; None where waits are not known."""
    groups = outcome.teams if by == "team" else outcome.ranks
    if not groups:
        return None
    title, name, kind = _GROUPS[by]
    return Table(
        name=f"replay_{by}",
        title=title,
        question=tr("Who waits less, and who waits longer?"),
        headline=_gain_sentence(groups),
        columns=(
            column(by, name, kind, "name"),
            column_of("today", JOBS),
            *compared_waits("today", "then", _today_and_then, {*WAITS} - {NOT_STARTED}),
        ),
        rows=groups,
        wide=True,
    )


def _today_and_then(today: Cell, then: Cell) -> Cell:
    if not isinstance(today, Quantity) or not isinstance(then, Quantity) or today == then:
        return today
    return tr("{today}, then {then}", today=today, then=then)


def _gain_sentence(groups: Sequence[ComparedWaits]) -> str:
    first, last = groups[0], groups[-1]
    if first.saved_ms <= 0 and last.saved_ms >= 0:
        return tr("Queue waits do not change.")
    return tr(
        "{name} gains most, {hours} GPU-hours of queue time; no group loses."
        if last.saved_ms >= 0
        else "{other} loses most, {more} GPU-hours of queue time; no group gains."
        if first.saved_ms <= 0
        else "{name} gains most, {hours} GPU-hours of queue time; {other} loses most, {more}.",
        name=_name(first.name),
        hours=GpuHours(first.saved_ms),
        other=_name(last.name),
        more=GpuHours(-last.saved_ms),
    )


def _name(name: str | None) -> str:
    return tr("(not known)") if name is None else plain(name, NAME_MOST)


def ended_jobs(cuts: Sequence[CutUser], currency: str | None) -> Table | None:
    """Return the users whose jobs an idle time-out ends, the most freed GPU time first; None where it ends no job."""
    if not cuts:
        return None
    jobs, later = (sum(each) for each in zip(*((each.jobs, each.worked_later) for each in cuts), strict=True))
    return Table(
        name="replay_cuts",
        title=tr("Users whose jobs the time-out ends"),
        question=tr("Whose jobs does the time-out end, and do they need their GPUs again?"),
        headline=tr_many("{number} {job ends|jobs end}; {later} of them worked again later.", jobs, later=later),
        columns=(
            column("user", tr("user"), "user", lambda cut: cut.user or tr(NOT_KNOWN), "user"),
            TEAM,
            JOBS,
            column("worked_later", tr("worked again later"), "count"),
            column("freed_gpu_hours", tr("GPU-hours freed"), "gpu_hours", "freed_ms"),
            column("worked_gpu_hours", tr("of them at work"), "gpu_hours", "worked_ms"),
            amount_column("cost", tr("worth"), currency),
        ),
        rows=tuple(cuts),
        notes=(
            tr(
                "A job ends once none of its GPUs has worked for the time-out; its remaining time is freed. At work:"
                " the part of that time in which one of its GPUs worked, or was not observed."
            ),
            tr("Jobs whose GPUs the ledger did not observe completely do not end."),
        ),
    )


_WHY_NOT = {
    NO_GPUS: tr("its pool has no GPUs"),
    TOO_LITTLE_MEMORY: tr("not enough memory"),
    TOO_WIDE: tr("more GPUs than any host has"),
    TOO_MANY: tr("more GPUs than the pool has"),
}


def _cannot_run(unplaced: Sequence[Unplaced]) -> str:
    return tr_many("{number} {job|jobs} cannot run.", sum(each.jobs for each in unplaced))


def what_cannot_run(unplaced: Sequence[Unplaced]) -> Table | None:
    """Return the jobs that cannot run, by reason; None where all jobs can."""
    if not unplaced:
        return None
    return Table(
        name="replay_unplaced",
        title=tr("Jobs that cannot run"),
        question=tr("Which jobs find no room, however long they wait?"),
        headline=_cannot_run(unplaced),
        columns=(column("why", tr("why"), "words", lambda each: _WHY_NOT[each.why], "why"), JOBS, GPU_HOURS),
        rows=tuple(unplaced),
    )

"""Who gains and who loses by a change, whom an idle time-out would have hit, and which jobs could not have run."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, GpuHours, Number
from analytics.language.sentences import tr, tr_many
from analytics.money.priced_segments import NOT_KNOWN
from analytics.plan.replay.outcome import ComparedWaits, CutUser, ReplayOutcome, Unplaced
from analytics.plan.replay.stations import NO_GPUS, TOO_LITTLE_MEMORY, TOO_MANY, TOO_WIDE
from analytics.tables.names import NAME_MOST, account_name
from analytics.tables.plan_replay_check import span, today_and_then
from analytics.tables.table import Cell, Column, Kind, Table

_WHY_NOT = {
    NO_GPUS: tr("its pool has no GPUs"),
    TOO_LITTLE_MEMORY: tr("not enough memory"),
    TOO_WIDE: tr("more GPUs than any host has"),
    TOO_MANY: tr("more GPUs than the pool has"),
}


def who_gains(outcome: ReplayOutcome, by: str) -> Table | None:
    """The waits of each `team` or `rank`, those that gain most first; None where waits are not told."""
    groups = outcome.teams if by == "team" else outcome.ranks
    if not groups:
        return None
    title, name, kind = _GROUPS[by]
    return Table(
        name=f"replay_{by}",
        title=title,
        question=tr("Who would have waited less, and who longer?"),
        headline=_headline(groups),
        columns=(
            Column(by, name, kind),
            Column("jobs", tr("jobs"), "count"),
            Column("p50", tr("half within"), "number"),
            Column("p95", tr("19 of 20 within"), "number"),
            Column("most", tr("the last within"), "number"),
            Column("gpu_hours", tr("GPU-hours waited"), "gpu_hours"),
        ),
        rows=tuple(_row(each) for each in groups),
        wide=True,
    )


_GROUPS: dict[str, tuple[str, str, Kind]] = {
    "team": (tr("Who gains, team by team"), tr("team"), "team"),
    "rank": (tr("Who gains, priority by priority"), tr("QoS or priority"), "name"),
}


def _headline(groups: Sequence[ComparedWaits]) -> str:
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


def _row(each: ComparedWaits) -> tuple[Cell, ...]:
    today, then = each.today, each.then
    return (
        None if each.name is None else plain(each.name, NAME_MOST),
        Number(today.jobs),
        today_and_then(span(today.p50_ms), span(then.p50_ms)),
        today_and_then(span(today.p95_ms), span(then.p95_ms)),
        today_and_then(span(today.most_ms), span(then.most_ms)),
        today_and_then(GpuHours(today.gpu_ms), GpuHours(then.gpu_ms)),
    )


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
            jobs, later=Number(later),
        ),
        columns=(
            Column("user", tr("user"), "holder"),
            Column("team", tr("team"), "team"),
            Column("jobs", tr("jobs"), "count"),
            Column("worked_later", tr("worked again later"), "count"),
            Column("freed", tr("GPU-hours freed"), "gpu_hours"),
            Column("worked", tr("of them at work"), "gpu_hours"),
            Column("cost", tr("worth"), "money"),
        ),
        rows=tuple(
            (
                account_name(NOT_KNOWN) if each.user is None else plain(each.user, NAME_MOST),
                None if each.team is None else plain(each.team, NAME_MOST),
                Number(each.jobs), Number(each.worked_later), GpuHours(each.freed_ms), GpuHours(each.worked_ms),
                None if each.cost is None else Amount(each.cost, currency),
            )
            for each in cuts
        ),
        notes=(
            tr(
                "A job ends once none of its GPUs has worked for the time-out, and from then on all of its time is free; at work is the part of it in which any of its GPUs worked, or was not seen. "
                "Idle is what the ledger saw of all of its GPUs; jobs that it did not see whole are not ended."
            ),
        ),
    )  # fmt: skip


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
            Column("why", tr("why"), "words"),
            Column("jobs", tr("jobs"), "count"),
            Column("gpu_hours", tr("GPU-hours"), "gpu_hours"),
        ),
        rows=tuple((_WHY_NOT[each.why], Number(each.jobs), GpuHours(each.gpu_ms)) for each in unplaced),
    )

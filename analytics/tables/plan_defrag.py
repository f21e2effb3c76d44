"""Room for jobs on several GPUs: which could start, what would make room, and how much of the free GPUs lies apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, GpuHours, Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.plan.moves import Moves
from analytics.plan.occupants import Occupant
from analytics.plan.room_for_jobs import PoolRoom, RoomCheck, RoomFor, of_pools
from analytics.tables.basis import PageBasis
from analytics.tables.names import NAME_MOST, card_name, least_to_most, place_name
from analytics.tables.table import Cell, Column, Table

_CHECKED_FROM = 10
"""Jobs below which their fate says nothing."""


def room_on_page(basis: PageBasis) -> Table | None:
    """How to make room, on a page; None for people, who have no pools."""
    scope = basis.report.scope
    return None if scope.is_personal else room_for_jobs(of_pools(basis.whole.plan.rooms, scope))


def moves_on_page(basis: PageBasis) -> Table | None:
    """Who would be asked and what would move, on a page; None for people, and where there is no way or no need."""
    scope = basis.report.scope
    return (
        None
        if scope.is_personal
        else moves_table(of_pools(basis.whole.plan.rooms, scope), basis.whole.money.costs.currency)
    )


def fragments_on_page(basis: PageBasis) -> Table | None:
    """What lies apart, on a page; None for people, and where no GPU was free."""
    scope = basis.report.scope
    return None if scope.is_personal else fragmentation_table(of_pools(basis.whole.plan.rooms, scope))


def room_for_jobs(rooms: Sequence[PoolRoom]) -> Table:
    """A row for each pool and size of a job."""
    return Table(
        name="room",
        title=tr("Which jobs could start, and what would make room"),
        question=tr("Could a job on several GPUs start now, how often could it, and who would have to move?"),
        headline=room_sentence(rooms),
        columns=(
            Column("pool", tr("pool"), "pool"),
            Column("model", tr("model"), "name"),
            Column("gpus", tr("GPUs"), "count"),
            Column("now", tr("start now"), "count"),
            Column("start_share", tr("could start"), "share"),
            Column("room", tr("to make room"), "words"),
        ),
        rows=tuple(_row(pool, each) for pool in rooms for each in pool.sizes),
        notes=(
            tr("GPUs are those of one job; it could start for that share of the window. It wants GPUs of one model in one pool: as many as a host has lie on one host, more of them on whole hosts. What moves has to "
               "fit on one other host, into GPUs that are free now. Work whose user is not known, jobs over several hosts and MIG instances do not move."),
            check_sentence(sum((each.check for each in rooms), RoomCheck())),
        ),
        wide=True,
    )  # fmt: skip


def room_sentence(rooms: Sequence[PoolRoom]) -> str:
    """The largest job that could start, and the largest that could after moves."""
    startable = [(each.gang.size, pool) for pool in rooms for each in pool.sizes if each.gang.now]
    if not startable:
        now = _none_startable(rooms)
    else:
        size, pool = max(startable, key=lambda each: each[0])
        now = tr_many(
            "The largest job that could start now takes {number} GPU, in {pool}.",
            "The largest job that could start now takes {number} GPUs, in {pool}.",
            size, pool=place_name(pool.pool),
        )  # fmt: skip
    made = [(each.gang.size, pool, each.moves) for pool in rooms for each in pool.sizes if each.moves is not None]
    if not made:
        return now
    size, pool, moves = max(made, key=lambda each: (each[0], -each[2].moved_gpus))
    return tr(
        "{now} Room for one of {size} in {pool}: {moves}.",
        now=now, size=Number(size), pool=place_name(pool.pool), moves=_moves_words(moves),
    )  # fmt: skip


def _none_startable(rooms: Sequence[PoolRoom]) -> str:
    """Why no job of the sizes that were asked for could start."""
    sizes = [each.gang.size for pool in rooms for each in pool.sizes]
    if not any(pool.free for pool in rooms):
        return tr("No job could start at the end of the window: no GPU is free.")
    if not sizes:
        return tr("No pool has GPUs of one model for a job of that size.")
    return tr_many(
        "No job of {number} GPU or more could start at the end of the window.",
        "No job of {number} GPUs or more could start at the end of the window.",
        min(sizes),
    )


def check_sentence(check: RoomCheck) -> str:
    """How often the answer was right about jobs that came."""
    if check.jobs < _CHECKED_FROM:
        return tr("Whether jobs that came did begin at once is not known: too few tell when they were submitted.")
    return tr(
        "Checked against the {jobs} jobs that came in the window and ran: where there was room for one, {right} of {room} began within 5 minutes; "
        "where there was none, {waited} of {none} waited longer. The others met a fence, a priority or a limit, or a queue before them.",
        jobs=Number(check.jobs), right=Number(check.at_once_with_room),
        room=Number(check.at_once_with_room + check.waited_with_room), waited=Number(check.waited_without),
        none=Number(check.waited_without + check.at_once_without),
    )  # fmt: skip


def _row(pool: PoolRoom, each: RoomFor) -> tuple[Cell, ...]:
    return (
        place_name(pool.pool),
        card_name(pool.model),
        Number(each.gang.size),
        least_to_most(Number(each.gang.now), Number(each.gang.now_most)),
        least_to_most(Share(each.gang.start_share), Share(each.gang.start_share_most)),
        _room_words(each),
    )


def _room_words(each: RoomFor) -> str:
    if each.gang.now:
        return ""
    if each.moves is not None:
        return _moves_words(each.moves)
    if each.short:
        return tr_many("{number} GPU too few", "{number} GPUs too few", each.short)
    return tr("no move makes room")


def _moves_words(moves: Moves) -> str:
    move = tr_many("move {number} working GPU", "move {number} working GPUs", moves.moved_gpus)
    ask = tr_many("ask for {number} idle GPU", "ask for {number} idle GPUs", moves.asked_gpus)
    if not moves.moved_gpus:
        return ask
    return tr("{ask}, {move}", ask=ask, move=move) if moves.asked_gpus else move


def moves_table(rooms: Sequence[PoolRoom], currency: str | None) -> Table | None:
    """Every step of every way to make room; None where there is no way, or no need."""
    rows = [
        row for pool in rooms for each in pool.sizes if each.moves is not None
        for row in _steps(each.gang.size, each.moves, currency)
    ]  # fmt: skip
    if not rows:
        return None
    proven = all(each.moves.is_least for pool in rooms for each in pool.sizes if each.moves is not None)
    return Table(
        name="moves",
        title=tr("How to make room"),
        question=tr("Who is asked, what moves, and what does that cost?"),
        headline=tr("Whoever holds idle GPUs is asked first; then the fewest working GPUs move."),
        columns=(
            Column("gpus", tr("GPUs"), "count"),
            Column("step", tr("step"), "words"),
            Column("host", tr("from"), "host"),
            Column("target", tr("to"), "host"),
            Column("holder", tr("user"), "holder"),
            Column("job", tr("job"), "name"),
            Column("taken", tr("of it"), "count"),
            Column("ran", tr("GPU-hours"), "gpu_hours"),
            Column("cost", tr("cost"), "money"),
        ),
        rows=tuple(rows),
        notes=(
            tr("GPU-hours and their cost are what a restart may lose: what was computed since the last checkpoint, which fallow does not see; at most what the job has run."),
            *(() if proven else (tr("The search ended before it was sure that no way moves fewer GPUs."),)),
        ),
        wide=True,
    )  # fmt: skip


def _steps(size: int, moves: Moves, currency: str | None) -> Iterator[tuple[Cell, ...]]:
    for each in moves.asked:
        yield (Number(size), tr("ask"), each.host, "", *_who(each), "", "")
    for each, target in moves.moved:
        cost = None if each.ran_cost is None else Amount(each.ran_cost, currency)
        yield (Number(size), tr("move"), each.host, target, *_who(each), GpuHours(each.ran_ms), cost)


def _who(each: Occupant) -> tuple[Cell, ...]:
    return (
        None if each.holder is None else plain(each.holder, NAME_MOST),
        None if each.job is None else plain(each.job, NAME_MOST),
        Number(each.gpus),
    )


def fragmentation_table(rooms: Sequence[PoolRoom]) -> Table | None:
    """How much of the free GPUs of each pool the jobs that come could not use; None where none was free."""
    known = [pool for pool in rooms if pool.fragmentation.mean is not None]
    if not known:
        return None
    worst = max(known, key=lambda pool: pool.fragmentation.mean or 0.0)
    return Table(
        name="fragmentation",
        title=tr("Free GPUs that lie apart"),
        question=tr("How much of what is free could the jobs that come here not use?"),
        headline=tr(
            "In the mean of the window, jobs could not use {share} of the free GPUs of {pool}.",
            share=Share(worst.fragmentation.mean), pool=place_name(worst.pool),
        ),
        columns=(
            Column("pool", tr("pool"), "pool"),
            Column("model", tr("model"), "name"),
            Column("free", tr("free now"), "count"),
            Column("now", tr("of them no use now"), "share"),
            Column("mean", tr("in the mean of the window"), "share"),
            Column("pieces", tr("pieces of jobs"), "count"),
        ),
        rows=tuple(
            (place_name(pool.pool), card_name(pool.model), Number(pool.free), Share(pool.fragmentation.now),
             Share(pool.fragmentation.mean), Number(pool.fragmentation.pieces))
            for pool in rooms
        ),
        notes=(
            tr("Measured as by Weng et al. (USENIX ATC 2023): the free GPUs of a host count for each job that does not fit on it, each job as often as it came. "
               "Where no job is known, sizes of 1, 2, 4 and 8 count alike. What jobs want of CPUs is not known here."),
        ),
    )  # fmt: skip

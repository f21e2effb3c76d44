"""Room for jobs on several GPUs: which could start, what would make room, and how much of the free GPUs lies apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from analytics.language.quantities import Amount, Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.plan.room_for_jobs import Moves, Occupant, PoolRoom, RoomCheck, RoomFor
from analytics.tables.names import least_to_most, model_column, place_name, pool_column
from analytics.tables.table import Cell, Table, column, fact, for_programs

_CHECKED_FROM = 10
"""Jobs below which their fate says nothing."""


def room_for_jobs(rooms: Sequence[PoolRoom]) -> Table:
    """A row for each pool and size of a job."""
    return Table(
        name="room",
        title=tr("Which jobs could start, and what would make room"),
        question=tr("Could a job on several GPUs start now, how often could it, and who would have to move?"),
        headline=room_sentence(rooms),
        columns=(
            pool_column(),
            model_column(),
            column("gpus", tr("GPUs"), "count", "gang.size"),
            column(
                "could_start",
                tr("start now"),
                "count",
                lambda room: least_to_most(Number(room.gang.now), Number(room.gang.now_most)),
                "gang.now",
            ),
            fact("could_start_most", "count", "gang.now_most"),
            column(
                "start_share",
                tr("could start"),
                "share",
                lambda room: least_to_most(Share(room.gang.start_share), Share(room.gang.start_share_most)),
                "gang.start_share",
            ),
            fact("start_share_most", "share", "gang.start_share_most"),
            column("to_make_room", tr("to make room"), "words", _room_words),
            fact("missing_gpus", "count", lambda room: 0 if room.gang.now else room.short),
        ),
        rows=tuple(size for pool in rooms for size in pool.sizes),
        notes=(
            tr(
                "GPUs are those of one job; it could start for that share of the window. It wants GPUs of one model in one pool: as many as a host has lie on one host, more of them on whole hosts. What moves has to "
                "fit on one other host, into GPUs that are free now. Work whose user is not known, jobs over several hosts and MIG instances do not move."
            ),
            check_sentence(sum((each.check for each in rooms), RoomCheck())),
        ),
        wide=True,
    )


def room_sentence(rooms: Sequence[PoolRoom]) -> str:
    """The largest job that could start, and the largest that could after moves."""
    sizes = [each for pool in rooms for each in pool.sizes]
    startable = [each for each in sizes if each.gang.now]
    if not startable:
        now = _none_startable(rooms)
    else:
        largest = max(startable, key=lambda each: each.gang.size)
        now = tr_many(
            "The largest job that could start now takes {number} GPU, in {pool}.",
            "The largest job that could start now takes {number} GPUs, in {pool}.",
            largest.gang.size,
            pool=place_name(largest.pool),
        )
    made = [(each, each.moves) for each in sizes if each.moves is not None]
    if not made:
        return now
    room, moves = max(made, key=lambda each: (each[0].gang.size, -each[1].moved_gpus))
    return tr(
        "{now} Room for one of {size} in {pool}: {moves}.",
        now=now,
        size=room.gang.size,
        pool=place_name(room.pool),
        moves=_moves_words(moves),
    )


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
        jobs=check.jobs,
        right=check.at_once_with_room,
        room=check.at_once_with_room + check.waited_with_room,
        waited=check.waited_without,
        none=check.waited_without + check.at_once_without,
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


@dataclass(frozen=True)
class _Step:
    """A user who is asked for GPUs, or, with a host as `target`, work that moves there; both make `room`."""

    room: RoomFor
    occupant: Occupant
    target: str | None = None


def _steps(room: RoomFor) -> tuple[_Step, ...]:
    if room.moves is None:
        return ()
    moved = (_Step(room, occupant, target) for occupant, target in room.moves.moved)
    return (*(_Step(room, occupant) for occupant in room.moves.asked), *moved)


def moves_table(rooms: Sequence[PoolRoom], currency: str | None) -> Table | None:
    """Every step of every way to make room; None where there is no way, or no need."""
    made = [each for pool in rooms for each in pool.sizes if each.moves is not None]
    if not made:
        return None

    def lost_cost(step: _Step) -> Cell:
        cost = step.occupant.ran_cost
        return "" if step.target is None else None if cost is None else Amount(cost, currency)

    proven = all(each.moves.is_least for each in made if each.moves is not None)
    return Table(
        name="moves",
        title=tr("How to make room"),
        question=tr("Who is asked, what moves, and what does that cost?"),
        headline=tr("Whoever holds idle GPUs is asked first; then the fewest working GPUs move."),
        columns=(
            replace(pool_column("room.pool"), audience="programs"),
            replace(model_column("room.model"), audience="programs"),
            column("gpus", tr("GPUs"), "count", "room.gang.size"),
            column("step", tr("step"), "words", lambda step: tr("move") if step.target else tr("ask")),
            column("host", tr("from"), "host", "occupant.host"),
            column("to_host", tr("to"), "host", lambda step: step.target or ""),
            column("user", tr("user"), "holder", "occupant.holder"),
            column("job", tr("job"), "name", "occupant.job"),
            column("step_gpus", tr("of it"), "count", "occupant.gpus"),
            column(
                "lost_gpu_hours_most",
                tr("GPU-hours"),
                "gpu_hours",
                lambda step: step.occupant.ran_ms if step.target else "",
            ),
            column("lost_cost_most", tr("cost"), "money", lost_cost),
            fact("hosts_with_room", "words", "room.moves.hosts", "array"),
            fact("is_least", "words", "room.moves.is_least", "boolean"),
        ),
        rows=tuple(step for each in made for step in _steps(each)),
        notes=(
            tr(
                "GPU-hours and their cost are what a restart may lose: what was computed since the last checkpoint, which fallow does not see; at most what the job has run."
            ),
            *(() if proven else (tr("The search ended before it was sure that no way moves fewer GPUs."),)),
        ),
        wide=True,
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
            share=Share(worst.fragmentation.mean),
            pool=place_name(worst.pool),
        ),
        columns=(
            pool_column(),
            model_column(),
            column("free_gpus", tr("free now"), "count", "free"),
            column("fragmentation_now", tr("of them no use now"), "share", lambda pool: Share(pool.fragmentation.now)),
            column(
                "fragmentation_mean",
                tr("in the mean of the window"),
                "share",
                lambda pool: Share(pool.fragmentation.mean),
            ),
            column("job_pieces", tr("pieces of jobs"), "count", "fragmentation.pieces"),
        ),
        rows=tuple(rooms),
        notes=(
            tr(
                "Measured as by Weng et al. (USENIX ATC 2023): the free GPUs of a host count for each job that does not fit on it, each job as often as it came. "
                "Where no job is known, sizes of 1, 2, 4 and 8 count alike. What jobs want of CPUs is not known here."
            ),
        ),
    )


def room_checks(rooms: Sequence[PoolRoom]) -> Table:
    """Return for programs the GPUs of each pool, and what became of the jobs that came."""
    counts = ("at_once_with_room", "waited_with_room", "at_once_without", "waited_without")
    columns = (
        pool_column(),
        model_column(),
        fact("gpus", "count"),
        fact("free_gpus", "count", "free"),
        fact("host_gpus_most", "count", "width"),
        *(fact(f"jobs_{count}", "count", f"check.{count}") for count in counts),
    )
    return for_programs("room_pools", columns, rooms)

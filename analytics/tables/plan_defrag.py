"""Room for multi-GPU jobs: which could start, which moves would make room, and the scattered share of free GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from analytics.language.sentences import Amount, Share, tr, tr_many
from analytics.plan.room_for_jobs import Moves, Occupant, PoolRoom, RoomCheck, RoomFor
from analytics.tables.gangs import NOW, START
from analytics.tables.names import MODEL, POOL, place_name
from analytics.tables.table import Cell, Table, column, column_of, fact, for_programs

_CHECKED_FROM = 10
"""With fewer jobs, their result says nothing."""


def room_for_jobs(rooms: Sequence[PoolRoom]) -> Table:
    """Return a row per pool and job size."""
    return Table(
        name="room",
        title=tr("Room for jobs on several GPUs"),
        question=tr("Could a job on several GPUs start now, how often could it start, and what would make room?"),
        headline=room_sentence(rooms),
        columns=(
            POOL,
            MODEL,
            column("gpus", tr("GPUs"), "count", "gang.size"),
            column_of("gang", NOW, "could_start"),
            fact("could_start_most", "count", "gang.now_most"),
            replace(column_of("gang", START), title=tr("time in which one could start")),
            fact("start_share_most", "share", "gang.start_share_most"),
            column("to_make_room", tr("to make room"), "words", _room_words),
            fact("missing_gpus", "count", lambda room: 0 if room.gang.now else room.missing_gpus),
        ),
        rows=tuple(size for pool in rooms for size in pool.sizes),
        notes=(
            tr(
                "GPUs: the size of one job, on GPUs of one model in one pool. A job that fits on a host runs on a"
                " single host, a larger job on whole hosts. The time is a share of the window. Work that moves must fit"
                " on one other host, on GPUs that are free now. Work without a known user, jobs on several hosts and"
                " MIG instances do not move."
            ),
            tr(
                "Idle GPUs: held, reserved or stalled for at least `findings.held_min` now. A GPU is reclaimable only"
                " if a finding also says that it stays unused."
            ),
            check_sentence(sum((each.check for each in rooms), RoomCheck())),
        ),
        wide=True,
    )


def room_sentence(rooms: Sequence[PoolRoom]) -> str:
    """Return the largest job that could start, and the largest that could after moves, as a sentence."""
    sizes = [each for pool in rooms for each in pool.sizes]
    startable = [each for each in sizes if each.gang.now]
    if not startable:
        now = _none_startable_sentence(rooms)
    else:
        largest = max(startable, key=lambda each: each.gang.size)
        now = tr_many(
            "The largest job that could start now takes {number} {GPU|GPUs}, in {pool}.",
            largest.gang.size,
            pool=place_name(largest.pool),
        )
    ways = [(each, each.moves) for each in sizes if each.moves is not None]
    if not ways:
        return now
    room, moves = max(ways, key=lambda each: (each[0].gang.size, -each[1].moved_gpus))
    return tr(
        "{now} To make room for a job of {size} in {pool}: {moves}.",
        now=now,
        size=room.gang.size,
        pool=place_name(room.pool),
        moves=_moves_words(moves),
    )


def _none_startable_sentence(rooms: Sequence[PoolRoom]) -> str:
    """Return why no job of the requested sizes could start, as a sentence."""
    sizes = [each.gang.size for pool in rooms for each in pool.sizes]
    if not any(pool.free for pool in rooms):
        return tr("No job could start at the end of the window: no GPU is free.")
    if not sizes:
        return tr("No pool has enough GPUs of one model for a job of that size.")
    return tr_many("No job of {number} {GPU|GPUs} or more could start at the end of the window.", min(sizes))


def check_sentence(check: RoomCheck) -> str:
    """Return how often the answer was right for submitted jobs, as a sentence."""
    if check.jobs < _CHECKED_FROM:
        return tr("No back-test: too few jobs have a submission time.")
    return tr(
        "Back-test with the {jobs} jobs that came in the window and ran: with room, {right} of {room} started within 5"
        " minutes. Without room, {waited} of {none} waited longer. The other jobs met an access rule, a priority, a"
        " limit or a queue.",
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
    if each.missing_gpus:
        return tr_many("{number} {GPU is|GPUs are} missing", each.missing_gpus)
    return tr("no move makes room")


def _moves_words(moves: Moves) -> str:
    move = tr_many("move {number} working {GPU|GPUs}", moves.moved_gpus)
    reclaim = tr_many("reclaim {number} idle {GPU|GPUs}", moves.asked_gpus)
    if not moves.moved_gpus:
        return reclaim
    return tr("{reclaim}, {move}", reclaim=reclaim, move=move) if moves.asked_gpus else move


@dataclass(frozen=True)
class _Step:
    """A user whose GPUs are reclaimed, or, with a host as `target`, work that moves there; both make `room`."""

    room: RoomFor
    occupant: Occupant
    target: str | None = None


def _steps(room: RoomFor) -> tuple[_Step, ...]:
    if room.moves is None:
        return ()
    moved = (_Step(room, occupant, target) for occupant, target in room.moves.moved)
    return (*(_Step(room, occupant) for occupant in room.moves.asked), *moved)


def moves_table(rooms: Sequence[PoolRoom], currency: str | None) -> Table | None:
    """Return every step of every way to make room; None without a way, or without a need."""
    ways = [each for pool in rooms for each in pool.sizes if each.moves is not None]
    if not ways:
        return None

    def lost_cost(step: _Step) -> Cell:
        cost = step.occupant.ran_cost
        return "" if step.target is None else None if cost is None else Amount(cost, currency)

    proven = all(each.moves.is_least for each in ways if each.moves is not None)
    return Table(
        name="moves",
        title=tr("How to make room"),
        question=tr("Which GPUs are reclaimed, which work moves, and what does that cost?"),
        headline=tr("Idle GPUs are reclaimed first. Then the work of the fewest GPUs moves."),
        columns=(
            replace(column_of("room", POOL), audience="programs"),
            replace(column_of("room", MODEL), audience="programs"),
            column("gpus", tr("GPUs"), "count", "room.gang.size"),
            column("step", tr("step"), "words", lambda step: tr("move") if step.target else tr("reclaim")),
            column("host", tr("from host"), "host", "occupant.host"),
            column("to_host", tr("to host"), "host", lambda step: step.target or ""),
            column("user", tr("user"), "user", "occupant.user"),
            column("job", tr("job"), "name", "occupant.job"),
            column("step_gpus", tr("GPUs of the step"), "count", "occupant.gpus"),
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
        rows=tuple(step for each in ways for step in _steps(each)),
        notes=(
            tr(
                "GPU-hours and cost: the most that a restart can lose, the whole run of the job. The real loss is the"
                " work since the last checkpoint, which fallow cannot see."
            ),
            *(() if proven else (tr("The search ended before it proved that no other way moves fewer GPUs."),)),
        ),
        wide=True,
    )


def fragmentation_table(rooms: Sequence[PoolRoom]) -> Table | None:
    """Return the share of each pool's free GPUs that submitted jobs could not use; None if no pool's share is known."""
    known = [pool for pool in rooms if pool.fragmentation.mean is not None]
    if not known:
        return None
    worst = max(known, key=lambda pool: pool.fragmentation.mean or 0.0)
    return Table(
        name="fragmentation",
        title=tr("Fragmentation of free GPUs"),
        question=tr("What share of the free GPUs could jobs not use?"),
        headline=tr(
            "On average over the window, jobs could not use {share} of the free GPUs of {pool}.",
            share=Share(worst.fragmentation.mean),
            pool=place_name(worst.pool),
        ),
        columns=(
            POOL,
            MODEL,
            column("free_gpus", tr("free now"), "count", "free"),
            column("fragmentation_now", tr("unusable now"), "share", lambda pool: Share(pool.fragmentation.now)),
            column(
                "fragmentation_mean",
                tr("unusable on average"),
                "share",
                lambda pool: Share(pool.fragmentation.mean),
            ),
            column("job_pieces", tr("job parts counted"), "count", "fragmentation.pieces"),
        ),
        rows=tuple(rooms),
        notes=(
            tr(
                "Measured as in Weng et al. (USENIX ATC 2023): the free GPUs of a host are unusable for every job that"
                " does not fit on it. Jobs count as often as they came; a job on several hosts counts once per host."
                " Without known jobs, the share is not known. CPU requirements are not considered."
            ),
        ),
    )


def room_checks(rooms: Sequence[PoolRoom]) -> Table:
    """Return for programs the GPUs of each pool, and the result of the submitted jobs."""
    counts = ("at_once_with_room", "waited_with_room", "at_once_without", "waited_without")
    columns = (
        POOL,
        MODEL,
        fact("gpus", "count"),
        fact("free_gpus", "count", "free"),
        fact("host_gpus_most", "count", "width"),
        *(fact(f"jobs_{count}", "count", f"check.{count}") for count in counts),
    )
    return for_programs("room_pools", columns, rooms)

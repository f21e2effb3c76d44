"""Room for multi-GPU jobs in each pool: whether a job could start, now or in the window, and moves that make room.

Fragmentation is the measure of FGD for whole GPUs (Weng et al., Beware of Fragmentation, USENIX ATC 2023, section 4):
the free GPUs of a host are a fragment for a job that does not fit on the host. A host's fragmentation is the mean over
the jobs, weighted by their share of all jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from itertools import islice
from typing import cast

import polars as pl

from analytics.capacity.demand import Gang, free_levels, gangs, starting
from analytics.intervals import clip
from analytics.scope import Scope
from analytics.solver import one_thread_solver
from analytics.states import ALLOCATED, IDLE_ALLOCATED
from fallow.clock import HOUR_MS, MINUTE_MS


@dataclass(frozen=True)
class Occupant:
    """The GPUs of a job, or of a user without a known job, on a host."""

    host: str
    user: str | None
    job: str | None
    gpus: int
    is_idle: bool
    """True if all the GPUs have been held or reserved without work for at least `idle_min_ms`."""
    is_movable: bool
    """True if the GPUs can be reclaimed or the job restarted elsewhere: the job or user is known, all of the job is on
    this host, and it uses no part of a card."""
    ran_ms: int
    """GPU time since the job began, within the window and the segment before it."""
    ran_cost: float | None = None
    """Cost of that time; None if a price is missing."""


@dataclass(frozen=True)
class OccupiedHost:
    """A host with its free GPUs and the other GPUs' occupants: none for GPUs not observed or out of order."""

    name: str
    width: int
    """All GPUs of the host."""
    free: int
    occupants: tuple[Occupant, ...]


_PIECE = ("host", "job", "user")


def occupied_hosts(placed: pl.DataFrame, until_ms: int, idle_min_ms: int) -> dict[tuple[str, str], list[OccupiedHost]]:
    """Return the hosts of each pool and model at the end of the window.

    `placed` are the ledger's rows of the window with `pool`, `model` and `rate` (price of a GPU-hour, null if unknown).
    A GPU can be reclaimed from its user after `idle_min_ms` without work.
    """
    now = placed.filter(pl.col("end") >= until_ms)
    is_part = (pl.col("gpu_share") < 1) | pl.col("instance")
    cards = now.group_by("pool", "model", "host").agg(
        width=pl.col("gpu").filter(~is_part).n_unique(),
        free=pl.col("gpu").filter((pl.col("state") == "free") & ~is_part).n_unique(),
    )
    pieces = _occupants(placed, now.with_columns(is_part=is_part), until_ms, idle_min_ms)
    hosts: dict[tuple[str, str], list[OccupiedHost]] = {}
    for row in cards.filter(pl.col("width") > 0).sort("pool", "model", "host").iter_rows(named=True):
        there = tuple(pieces.get((row["pool"], row["model"], row["host"]), ()))
        hosts.setdefault((row["pool"], row["model"]), []).append(
            OccupiedHost(row["host"], row["width"], row["free"], there)
        )
    return hosts


def _occupants(
    placed: pl.DataFrame, now: pl.DataFrame, until_ms: int, idle_min_ms: int
) -> dict[tuple[str, str, str], list[Occupant]]:
    taken, ran_ms = now.filter(pl.col("state").is_in(ALLOCATED)), until_ms - pl.col("began")
    began = placed.group_by("gpu", "job", "user").agg(began=pl.col("segment_start").min())
    spread = taken.filter(pl.col("job").is_not_null()).group_by("job").agg(job_hosts=pl.col("host").n_unique())
    found = (
        taken.join(began, on=("gpu", "job", "user"), how="left", nulls_equal=True)
        .join(spread, on="job", how="left")
        .group_by("pool", "model", *_PIECE)
        .agg(
            gpus=pl.col("gpu").n_unique(),
            is_idle=(pl.col("state").is_in(IDLE_ALLOCATED) & (until_ms - pl.col("segment_start") >= idle_min_ms)).all(),
            is_part=pl.col("is_part").any(),
            job_hosts=pl.col("job_hosts").max(),
            ran_ms=ran_ms.sum(),
            ran_cost=pl.when(pl.col("rate").is_not_null().all()).then((ran_ms / HOUR_MS * pl.col("rate")).sum()),
        )
        .sort("pool", "model", *_PIECE, nulls_last=True)
    )
    is_known = pl.any_horizontal(pl.col("job", "user").is_not_null())
    is_movable = is_known & (pl.col("job_hosts").fill_null(1) == 1) & ~pl.col("is_part")
    rows = found.select(
        "pool", "model", "host", "user", "job", "gpus", "is_idle", is_movable.alias("is_movable"), "ran_ms", "ran_cost"
    )
    pieces: dict[tuple[str, str, str], list[Occupant]] = {}
    for pool, model, host, *rest in rows.iter_rows():
        pieces.setdefault((pool, model, host), []).append(Occupant(host, *rest))
    return pieces


_NODES = 2_000
_MOVE, _RECLAIM, _LOST = 1e4, 1.0, 0.5
"""Order of goals: move the fewest working GPUs, then reclaim the fewest idle ones, then lose the least computation."""


@dataclass(frozen=True)
class Moves:
    """Moves and reclaims that make room on `hosts`."""

    hosts: tuple[str, ...]
    moved: tuple[tuple[Occupant, str], ...]
    asked: tuple[Occupant, ...]
    is_least: bool
    """True if it is proven that no plan uses fewer GPUs."""

    @property
    def moved_gpus(self) -> int:
        """Return the number of working GPUs whose work moves to another host."""
        return sum(each.gpus for each, _ in self.moved)

    @property
    def asked_gpus(self) -> int:
        """Return the number of idle GPUs to reclaim."""
        return sum(each.gpus for each in self.asked)

    @property
    def lost_ms(self) -> int:
        """Return the most GPU time that can be lost: the time since moved work began, unless it writes checkpoints."""
        return sum(each.ran_ms for each, _ in self.moved)


def moves_for(hosts: Sequence[OccupiedHost], size: int) -> Moves | None:
    """Return the smallest plan that makes room for a job of `size` GPUs in a pool of like hosts; None if no plan does.

    A job that fits on a host runs on one host; a larger job takes whole hosts. Moved work must fit on one other host,
    into GPUs that are free now.
    """
    width = max((host.width for host in hosts), default=0)
    if not size or not width:
        return None
    wanted = -(-size // width)
    return _solved(hosts, min(size, width), wanted)


def _solved(hosts: Sequence[OccupiedHost], on_each: int, wanted: int) -> Moves | None:
    import highspy

    solver = one_thread_solver(mip_max_nodes=_NODES)
    movable = [[each for each in host.occupants if each.is_movable] for host in hosts]
    sizes = sorted({each.gpus for units in movable for each in units if not each.is_idle})
    most = [1] * (len(hosts) + sum(map(len, movable))) + [host.free // size for host in hosts for size in sizes]
    # at once, since one by one takes long
    added = cast("Iterable[highspy.highs.highs_var]", solver.addIntegrals(len(most), lb=0, ub=most))
    variables = iter(added)
    chosen = list(islice(variables, len(hosts)))
    goes = [list(islice(variables, len(each))) for each in movable]
    comes = [list(islice(variables, len(sizes))) for _ in hosts]
    solver.addConstr(solver.qsum(chosen) == wanted)
    for host, is_chosen, units, leaving, coming in zip(hosts, chosen, movable, goes, comes, strict=True):
        gained = solver.qsum([each.gpus * out for each, out in zip(units, leaving, strict=True)])
        solver.addConstr(host.free * is_chosen + gained >= on_each * is_chosen)
        for out in leaving:
            solver.addConstr(out <= is_chosen)
        if sizes:
            taken = solver.qsum([size * count for size, count in zip(sizes, coming, strict=True)])
            solver.addConstr(taken <= host.free - host.free * is_chosen)
    pairs = [pair for units, leaving in zip(movable, goes, strict=True) for pair in zip(units, leaving, strict=True)]
    for place, size in enumerate(sizes):
        of_size = [out for each, out in pairs if each.gpus == size and not each.is_idle]
        solver.addConstr(solver.qsum(of_size) == solver.qsum([coming[place] for coming in comes]))
    whole_ms = sum(each.ran_ms for each, _ in pairs) or 1
    solver.minimize(solver.qsum([_cost(each, whole_ms) * out for each, out in pairs]))
    if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None
    values = solver.getSolution().col_value

    def of(variable: highspy.highs.highs_var) -> int:
        return round(values[variable.index])

    leaving_now = [each for each, out in pairs if of(out)]
    room = {
        host.name: {size: of(count) for size, count in zip(sizes, coming, strict=True)}
        for host, coming in zip(hosts, comes, strict=True)
    }
    return Moves(
        tuple(host.name for host, is_chosen in zip(hosts, chosen, strict=True) if of(is_chosen)),
        tuple((each, _target(room, each.gpus)) for each in leaving_now if not each.is_idle),
        tuple(each for each in leaving_now if each.is_idle),
        is_least=solver.getModelStatus() == highspy.HighsModelStatus.kOptimal,
    )


def _cost(each: Occupant, whole_ms: int) -> float:
    return each.gpus * _RECLAIM if each.is_idle else each.gpus * _MOVE + _LOST * each.ran_ms / whole_ms


def _target(room: dict[str, dict[int, int]], size: int) -> str:
    """Return the first host with room for another occupant of this size, and reserve the room."""
    name = next(name for name, counts in room.items() if counts.get(size))
    room[name][size] -= 1
    return name


ASKED_SIZES = (1, 2, 4, 8, 16, 32, 64)
AT_ONCE_MS = 5 * MINUTE_MS
"""A job that starts within this time did not wait: schedulers look at their queue every minute or less often."""


@dataclass(frozen=True)
class RoomFor:
    """Room for a job of `gang.size` GPUs of a model in a pool."""

    pool: str
    model: str
    gang: Gang
    moves: Moves | None
    """Moves that make room if there is none now; None if no move does."""
    missing_gpus: int
    """GPUs missing beyond the free GPUs and the idle GPUs of users."""


@dataclass(frozen=True)
class Fragmentation:
    """The share of free GPUs that jobs could not use, at the end of the window and on average.

    None if no GPU was free, or if no job shows which sizes jobs want.
    """

    now: float | None
    mean: float | None
    pieces: int
    """Number of job parts on a single host that show which sizes jobs want."""


@dataclass(frozen=True)
class RoomCheck:
    """Jobs submitted in the window, by whether the ledger shows room: how many started at once, and how many waited."""

    at_once_with_room: int = 0
    waited_with_room: int = 0
    at_once_without: int = 0
    waited_without: int = 0

    @property
    def jobs(self) -> int:
        return self.at_once_with_room + self.waited_with_room + self.at_once_without + self.waited_without

    def __add__(self, other: RoomCheck) -> RoomCheck:
        return RoomCheck(*(mine + more for mine, more in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class PoolRoom:
    """The observed GPUs of a model in a pool at the end of the window, on hosts of up to `width` GPUs."""

    pool: str
    model: str
    gpus: int
    free: int
    width: int
    sizes: tuple[RoomFor, ...]
    fragmentation: Fragmentation
    check: RoomCheck


def of_pools(rooms: Iterable[PoolRoom], scope: Scope) -> tuple[PoolRoom, ...]:
    return tuple(each for each in rooms if scope.has_place(each.pool, each.model))


def pool_rooms(
    placed: pl.DataFrame, jobs: pl.DataFrame, window: tuple[int, int], idle_min_ms: int, sizes: Sequence[int]
) -> tuple[PoolRoom, ...]:
    """Return the room in each pool and model with whole GPUs at the end of the window.

    `placed` and `idle_min_ms` are those of `occupied_hosts`; `jobs` has JOB_SCHEMA. `sizes` are GPUs per job; sizes
    larger than a pool are left out.
    """
    hosts = occupied_hosts(placed, window[1], idle_min_ms)
    free = free_levels(clip(placed.filter(pl.col("gpu_share") == 1), *window), ("free",))
    pieces, checks = _job_parts(jobs, placed, window), _checks(free, placed, jobs, window)
    return tuple(
        PoolRoom(
            *key,
            gpus=sum(host.width for host in there),
            free=sum(host.free for host in there),
            width=max(host.width for host in there),
            sizes=tuple(
                _room_for(key, gang, there) for gang in gangs(_rows_of(placed, key), *window, _fitting(sizes, there))
            ),
            fragmentation=_fragmentation(_rows_of(free, key), _rows_of(pieces, key), window[1]),
            check=checks.get(key, RoomCheck()),
        )
        for key, there in sorted(hosts.items())
    )


def _rows_of(rows: pl.DataFrame, key: tuple[object, ...]) -> pl.DataFrame:
    return rows.filter(pl.col("pool") == key[0], pl.col("model") == key[1])


def _fitting(sizes: Sequence[int], hosts: Sequence[OccupiedHost]) -> list[int]:
    gpus = sum(host.width for host in hosts)
    return [size for size in sizes if size <= gpus]


def _room_for(key: tuple[str, str], gang: Gang, hosts: Sequence[OccupiedHost]) -> RoomFor:
    at_hand = sum(host.free for host in hosts)
    at_hand += sum(each.gpus for host in hosts for each in host.occupants if each.is_idle and each.is_movable)
    width = max(host.width for host in hosts)
    taken = gang.size if gang.size <= width else -(-gang.size // width) * width  # whole hosts
    moves = None if gang.now or at_hand < taken else moves_for(hosts, gang.size)
    return RoomFor(*key, gang, moves, max(0, taken - at_hand))


def _job_parts(jobs: pl.DataFrame, placed: pl.DataFrame, window: tuple[int, int]) -> pl.DataFrame:
    """Return the number of jobs' parts on a single host in the window: pool, model, gpus, pieces.

    A job on several hosts has equal parts.
    """
    since_ms, until_ms = window
    ran = jobs.filter(
        pl.col("start") < until_ms, pl.col("end").is_null() | (pl.col("end") > since_ms), pl.col("gpus") > 0
    )
    on_each = (pl.col("gpus") + pl.col("hosts").list.len() - 1) // pl.col("hosts").list.len()
    spread = ran.filter(pl.col("hosts").list.len() > 0).select("hosts", gpus=on_each).explode("hosts")
    here = spread.join(_places(placed), left_on="hosts", right_on="host")
    return here.group_by("pool", "model", "gpus").len("pieces")


def fragments(free: int, shares: Iterable[tuple[int, float]]) -> float:
    """Return the mean number of a host's free GPUs that a job could not use; `shares` are of jobs, by GPUs per host."""
    return sum(share * free for gpus, share in shares if gpus > free)


def _fragmentation(free: pl.DataFrame, pieces: pl.DataFrame, until_ms: int) -> Fragmentation:
    count = int(pieces["pieces"].sum())
    if not count:
        return Fragmentation(None, None, 0)
    shares = [(gpus, each / count) for gpus, each in pieces.select("gpus", "pieces").sort("gpus").iter_rows()]
    widest = int(free["level"].max() or 0)  # type: ignore[arg-type]  # a count
    lost = [fragments(level, shares) for level in range(widest + 1)]
    lasting = pl.col("end").fill_null(until_ms) - pl.col("time")
    spans = free.sort("host", "time").with_columns(
        lasting=lasting, fragment=pl.col("level").replace_strict(range(widest + 1), lost, return_dtype=pl.Float64)
    )
    last = spans.filter(pl.col("time") + pl.col("lasting") >= until_ms)
    return Fragmentation(
        _share(last, pl.col("fragment"), pl.col("level")),
        _share(spans, pl.col("fragment") * pl.col("lasting"), pl.col("level") * pl.col("lasting")),
        count,
    )


def _share(spans: pl.DataFrame, part: pl.Expr, whole: pl.Expr) -> float | None:
    parts, wholes = spans.select(part.sum(), whole.sum().alias("whole")).row(0)
    return parts / wholes if wholes else None


def _checks(
    free: pl.DataFrame, placed: pl.DataFrame, jobs: pl.DataFrame, window: tuple[int, int]
) -> dict[tuple[object, ...], RoomCheck]:
    """Return whether jobs started at once if there was room, by pool and model.

    The jobs started in the window, on hosts of a single pool and model.
    """
    came = pl.coalesce("eligible", "submitted")
    asked = (
        jobs.filter(came >= window[0], pl.col("start") < window[1], pl.col("gpus") > 0)
        .select("gpus", "hosts", came=came, waited=(pl.col("start") - came) > AT_ONCE_MS)
        .with_row_index("job")
        .explode("hosts")
        .join(_places(placed), left_on="hosts", right_on="host")
        .group_by("job")
        .agg(pl.col("gpus", "came", "waited", "pool", "model").first(), places=pl.struct("pool", "model").n_unique())
        .filter(pl.col("places") == 1)
    )
    found: dict[tuple[object, ...], RoomCheck] = {}
    for (pool, model, size), mine in asked.group_by("pool", "model", "gpus"):
        key = (pool, model)
        found[key] = found.get(key, RoomCheck()) + _room_check(_rows_of(free, key), int(str(size)), mine)
    return found


def _room_check(free: pl.DataFrame, size: int, asked: pl.DataFrame) -> RoomCheck:
    """Return the check of jobs of one size in a pool: could the job have started just before its submission?"""
    could = starting(free, size)
    met = asked.sort("came").join_asof(could, left_on="came", right_on="time", allow_exact_matches=False)
    groups = met.group_by(has_room=pl.col("level").fill_null(0) >= 1, waited="waited").len()
    counts = {(has_room, waited): number for has_room, waited, number in groups.iter_rows()}
    return RoomCheck(*(counts.get(each, 0) for each in ((True, False), (True, True), (False, False), (False, True))))


def _places(placed: pl.DataFrame) -> pl.DataFrame:
    """Return the pool and model of each host that has only one."""
    hosts = placed.group_by("host").agg(pl.col("pool", "model").first(), kinds=pl.struct("pool", "model").n_unique())
    return hosts.filter(pl.col("kinds") == 1).drop("kinds")

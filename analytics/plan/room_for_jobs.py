"""Whether a job on several GPUs could start, in each pool: now, over the window, and what would make room for it.

Fragmentation is the measure of FGD for whole GPUs (Weng et al., Beware of Fragmentation, USENIX ATC 2023, section 4): the free GPUs of a
host are a fragment for a job that the host cannot take. A host's fragments are the mean over the jobs, each with its share of all that came.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

import polars as pl

from analytics.capacity.demand import SIZES_LEAST, Gang, free_levels, gangs, starting
from analytics.intervals import clip
from analytics.scope import Scope
from analytics.solver import one_thread_solver
from analytics.states import ALLOCATED, IDLE_ALLOCATED
from fallow.clock import HOUR_MS, MINUTE_MS


@dataclass(frozen=True)
class Occupant:
    """The GPUs that one job, or one holder without a known job, has on one host.

    `is_idle` is whether none of them has computed for long, `is_movable` whether it can be asked or started again elsewhere: it is known who
    it is, all of it is on this host and it is no part of a card. `ran_ms` is the GPU time since it began, as far as the window and
    the stretch before it show; `ran_cost` what that costs, None where a price is missing.
    """

    host: str
    holder: str | None
    job: str | None
    gpus: int
    is_idle: bool
    is_movable: bool
    ran_ms: int
    ran_cost: float | None = None


@dataclass(frozen=True)
class OccupiedHost:
    """A host: `width` GPUs in all, those that are free, and who has the others; what is not seen or not in order is nobody's."""

    name: str
    width: int
    free: int
    occupants: tuple[Occupant, ...]


_PIECE = ("host", "job", "holder")


def occupied_hosts(placed: pl.DataFrame, until_ms: int, idle_min_ms: int) -> dict[tuple[str, str], list[OccupiedHost]]:
    """The hosts of each pool and model at the end of the window.

    Args:
        placed: the ledger's rows of the window with `pool`, `model` and `rate` (a GPU-hour's price, null where it has none).
        until_ms: its end.
        idle_min_ms: how long a GPU has to be without work before its holder is asked for it.
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
    began = placed.group_by("gpu", "job", "holder").agg(began=pl.col("stretch_start").min())
    spread = taken.filter(pl.col("job").is_not_null()).group_by("job").agg(job_hosts=pl.col("host").n_unique())
    found = (
        taken.join(began, on=("gpu", "job", "holder"), how="left", nulls_equal=True)
        .join(spread, on="job", how="left")
        .group_by("pool", "model", *_PIECE)
        .agg(
            gpus=pl.col("gpu").n_unique(),
            is_idle=(pl.col("state").is_in(IDLE_ALLOCATED) & (until_ms - pl.col("stretch_start") >= idle_min_ms)).all(),
            is_part=pl.col("is_part").any(),
            job_hosts=pl.col("job_hosts").max(),
            ran_ms=ran_ms.sum(),
            ran_cost=pl.when(pl.col("rate").is_not_null().all()).then((ran_ms / HOUR_MS * pl.col("rate")).sum()),
        )
        .sort("pool", "model", *_PIECE, nulls_last=True)
    )
    is_known = pl.any_horizontal(pl.col("job", "holder").is_not_null())
    is_movable = is_known & (pl.col("job_hosts").fill_null(1) == 1) & ~pl.col("is_part")
    rows = found.select(
        "pool",
        "model",
        "host",
        "holder",
        "job",
        "gpus",
        "is_idle",
        is_movable.alias("is_movable"),
        "ran_ms",
        "ran_cost",
    )
    pieces: dict[tuple[str, str, str], list[Occupant]] = {}
    for pool, model, host, *rest in rows.iter_rows():
        pieces.setdefault((pool, model, host), []).append(Occupant(host, *rest))
    return pieces


_NODES = 2_000
_MOVE, _ASK, _LOST = 1e4, 1.0, 0.5
"""First as few working GPUs as can be are moved, then as few idle ones asked for, then as little computing lost."""


@dataclass(frozen=True)
class Moves:
    """How room is made on `hosts`: who goes where, and who is asked to let go. `is_least` is whether fewer GPUs cannot do."""

    hosts: tuple[str, ...]
    moved: tuple[tuple[Occupant, str], ...]
    asked: tuple[Occupant, ...]
    is_least: bool

    @property
    def moved_gpus(self) -> int:
        """Working GPUs whose work goes elsewhere."""
        return sum(each.gpus for each, _ in self.moved)

    @property
    def asked_gpus(self) -> int:
        """Idle GPUs that somebody is asked to let go."""
        return sum(each.gpus for each in self.asked)

    @property
    def lost_ms(self) -> int:
        """GPU time that is lost at most: what moved has run since it began, unless it writes checkpoints."""
        return sum(each.ran_ms for each, _ in self.moved)


def moves_for(hosts: Sequence[OccupiedHost], size: int) -> Moves | None:
    """The least that makes room for a job of `size` GPUs in a pool of like hosts; None where nothing does.

    A job of at most as many GPUs as a host has lies on one host; a larger one takes whole hosts. What moves has to fit on one
    other host, into GPUs that are free now.
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
    chosen = [solver.addBinary() for _ in hosts]
    goes = [[solver.addBinary() for _ in each] for each in movable]
    sizes = sorted({each.gpus for units in movable for each in units if not each.is_idle})
    comes = [[solver.addIntegral(lb=0, ub=host.free // size) for size in sizes] for host in hosts]
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
    return each.gpus * _ASK if each.is_idle else each.gpus * _MOVE + _LOST * each.ran_ms / whole_ms


def _target(room: dict[str, dict[int, int]], size: int) -> str:
    """The first host that takes another piece of this size, which it then has taken."""
    name = next(name for name, counts in room.items() if counts.get(size))
    room[name][size] -= 1
    return name


ASKED_SIZES = (1, 2, 4, 8, 16, 32, 64)
AT_ONCE_MS = 5 * MINUTE_MS
"""A job that begins within this time after it could have did not wait: schedulers look at their queue every minute or less often."""


@dataclass(frozen=True)
class RoomFor:
    """Room for one job of `gang.size` GPUs of a model in a pool; `moves` make some where there is none now, None where none do.

    `short` is how many GPUs are missing beside those that are free or idle in a user's hands.
    """

    pool: str
    model: str
    gang: Gang
    moves: Moves | None
    short: int


@dataclass(frozen=True)
class Fragmentation:
    """The share of free GPUs that jobs could not use, at the end of the window and in its mean; None where none was free.

    `pieces` is how many pieces of jobs on one host say what jobs want; where there are none, the sizes of SIZES_LEAST count alike.
    """

    now: float | None
    mean: float | None
    pieces: int


@dataclass(frozen=True)
class RoomCheck:
    """Jobs that came in the window, by whether the ledger says that there was room: how many began at once, and how many waited."""

    at_once_with_room: int = 0
    waited_with_room: int = 0
    at_once_without: int = 0
    waited_without: int = 0

    @property
    def jobs(self) -> int:
        """All of them."""
        return self.at_once_with_room + self.waited_with_room + self.at_once_without + self.waited_without

    def __add__(self, other: RoomCheck) -> RoomCheck:
        """Both together."""
        return RoomCheck(*(mine + more for mine, more in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class PoolRoom:
    """The GPUs of one model in one pool that are in sight at the end of the window, on hosts of up to `width`."""

    pool: str
    model: str
    gpus: int
    free: int
    width: int
    sizes: tuple[RoomFor, ...]
    fragmentation: Fragmentation
    check: RoomCheck


def of_pools(rooms: Iterable[PoolRoom], scope: Scope) -> tuple[PoolRoom, ...]:
    """Those of the pool and the model that are asked for."""
    return tuple(each for each in rooms if scope.pool in (None, each.pool) and scope.model in (None, each.model))


def pool_rooms(
    placed: pl.DataFrame,
    jobs: pl.DataFrame,
    window: tuple[int, int],
    idle_min_ms: int,
    sizes: Sequence[int] = ASKED_SIZES,
) -> tuple[PoolRoom, ...]:
    """The room in each pool and model that has whole GPUs at the end of the window.

    Args:
        placed: the ledger's rows of the window with `pool`, `model` and `rate` (a GPU-hour's price, null where it has none).
        jobs: those of the lake, with JOB_SCHEMA.
        window: its start and end.
        idle_min_ms: how long a GPU has to be without work before its holder is asked for it.
        sizes: GPUs per job; those larger than a pool are left out.
    """
    hosts = occupied_hosts(placed, window[1], idle_min_ms)
    free = free_levels(clip(placed.filter(pl.col("gpu_share") == 1), *window), ("free",))
    pieces, checks = _pieces(jobs, placed, window), _checks(free, placed, jobs, window)
    return tuple(
        PoolRoom(
            *key,
            gpus=sum(host.width for host in there),
            free=sum(host.free for host in there),
            width=max(host.width for host in there),
            sizes=_sizes(key, _of(placed, key), there, window, sizes),
            fragmentation=_fragmentation(_of(free, key), _of(pieces, key), window[1]),
            check=checks.get(key, RoomCheck()),
        )
        for key, there in sorted(hosts.items())
    )


def _of(rows: pl.DataFrame, key: tuple[object, ...]) -> pl.DataFrame:
    """The rows of one pool and model."""
    return rows.filter(pl.col("pool") == key[0], pl.col("model") == key[1])


def _sizes(
    key: tuple[str, str],
    rows: pl.DataFrame,
    hosts: Sequence[OccupiedHost],
    window: tuple[int, int],
    sizes: Sequence[int],
) -> tuple[RoomFor, ...]:
    gpus = sum(host.width for host in hosts)
    wanted = [size for size in sizes if size <= gpus]
    return tuple(_room_for(key, gang, hosts) for gang in gangs(rows, *window, wanted))


def _room_for(key: tuple[str, str], gang: Gang, hosts: Sequence[OccupiedHost]) -> RoomFor:
    at_hand = sum(host.free for host in hosts)
    at_hand += sum(each.gpus for host in hosts for each in host.occupants if each.is_idle and each.is_movable)
    width = max(host.width for host in hosts)
    taken = gang.size if gang.size <= width else -(-gang.size // width) * width  # whole hosts
    moves = None if gang.now or at_hand < taken else moves_for(hosts, gang.size)
    return RoomFor(*key, gang, moves, max(0, taken - at_hand))


def _pieces(jobs: pl.DataFrame, placed: pl.DataFrame, window: tuple[int, int]) -> pl.DataFrame:
    """Pieces of jobs in the window on one host each: pool, model, gpus and how many; a job over several hosts wants the same of each."""
    since_ms, until_ms = window
    ran = jobs.filter(
        pl.col("start") < until_ms, pl.col("end").is_null() | (pl.col("end") > since_ms), pl.col("gpus") > 0
    )
    on_each = (pl.col("gpus") + pl.col("hosts").list.len() - 1) // pl.col("hosts").list.len()
    spread = ran.filter(pl.col("hosts").list.len() > 0).select("hosts", gpus=on_each).explode("hosts")
    here = spread.join(_places(placed), left_on="hosts", right_on="host")
    return here.group_by("pool", "model", "gpus").len("pieces")


def fragments(free: int, shares: Iterable[tuple[int, float]]) -> float:
    """How many of a host's free GPUs a job could not use, in the mean; `shares` are of the jobs that want so many GPUs of one host."""
    return sum(share * free for gpus, share in shares if gpus > free)


def _fragmentation(free: pl.DataFrame, pieces: pl.DataFrame, until_ms: int) -> Fragmentation:
    count = int(pieces["pieces"].sum())
    known = [(gpus, each / count) for gpus, each in pieces.select("gpus", "pieces").sort("gpus").iter_rows()]
    shares = known or [(size, 1 / len(SIZES_LEAST)) for size in SIZES_LEAST]
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
    """Did jobs begin at once when the ledger says that there was room? Those that began in the window, on hosts of one pool and model."""
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
        found[key] = found.get(key, RoomCheck()) + _checked(_of(free, key), int(str(size)), mine)
    return found


def _checked(free: pl.DataFrame, size: int, asked: pl.DataFrame) -> RoomCheck:
    """Jobs of one size in one pool, by whether one could have started just before it came."""
    could = starting(free, size)
    met = asked.sort("came").join_asof(could, left_on="came", right_on="time", allow_exact_matches=False)
    groups = met.group_by(has_room=pl.col("level").fill_null(0) >= 1, waited="waited").len()
    counts = {(has_room, waited): number for has_room, waited, number in groups.iter_rows()}
    return RoomCheck(*(counts.get(each, 0) for each in ((True, False), (True, True), (False, False), (False, True))))


def _places(placed: pl.DataFrame) -> pl.DataFrame:
    """The pool and model of each host that has only one."""
    hosts = placed.group_by("host").agg(pl.col("pool", "model").first(), kinds=pl.struct("pool", "model").n_unique())
    return hosts.filter(pl.col("kinds") == 1).drop("kinds")

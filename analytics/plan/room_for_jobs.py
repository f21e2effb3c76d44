"""Whether a job on several GPUs could start, in each pool: now, over the window, and what would make room for it.

Fragmentation is the measure of FGD for whole GPUs (Weng et al., Beware of Fragmentation, USENIX ATC 2023, section 4): the free GPUs of a
host are a fragment for a job that the host cannot take. A host's fragments are the mean over the jobs, each with its share of all that came.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

import polars as pl

from analytics.capacity.gangs import SIZES_LEAST, Gang, free_levels, gangs, starting
from analytics.intervals import clip
from analytics.plan.moves import Moves, OccupiedHost, moves_for, occupied_hosts
from analytics.scope import Scope
from fallow.clock import MINUTE_MS

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

"""Who is on the GPUs of each host, and which running work would have to move so that a job on several GPUs fits.

The work of idle GPUs does not move: its holder is asked to let go, which loses nothing. The result is the same on every machine: one
thread, and the search ends after a number of nodes and not after a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from analytics.solver import one_thread_solver
from analytics.states import ALLOCATED, IDLE_ALLOCATED
from fallow.clock import HOUR_MS


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
    pieces = _pieces(placed, now.with_columns(is_part=is_part), until_ms, idle_min_ms)
    hosts: dict[tuple[str, str], list[OccupiedHost]] = {}
    for row in cards.filter(pl.col("width") > 0).sort("pool", "model", "host").iter_rows(named=True):
        there = tuple(pieces.get((row["pool"], row["model"], row["host"]), ()))
        hosts.setdefault((row["pool"], row["model"]), []).append(
            OccupiedHost(row["host"], row["width"], row["free"], there)
        )
    return hosts


def _pieces(
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

"""Which running work would have to move so that a job on several GPUs fits: the fewest, by HiGHS.

The work of idle GPUs does not move: its holder is asked to let go, which loses nothing. The result is the same on every machine: one
thread, and the search ends after a number of nodes and not after a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analytics.plan.occupants import Occupant, OccupiedHost
from analytics.solver import one_thread_solver

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

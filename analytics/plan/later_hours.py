"""When work had better run: each hour's work moved by at most so many hours, into GPUs that stood free, at the least carbon dioxide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from analytics.solver import one_thread_solver

if TYPE_CHECKING:
    from highspy import HighsLp

Floats = NDArray[np.float64]
_STAY = 1e-6
"""Of the mean cost, what an hour of delay costs: of two equal ways the one that moves less is taken."""


@dataclass(frozen=True)
class LaterWork:
    """Work by the hours in which it was (rows), and by how many hours later it runs (columns, from 0 on).

    `prices` are what a free GPU-hour more would be worth in each hour, in units of weight times rate: the duals of the program.
    """

    moved: Floats
    prices: Floats


def moved_work(work: Floats, weight: Floats, room: Floats, rate: Floats, most_hours: int) -> LaterWork:
    """How much of the work of each hour runs how much later, so that the rates paid are least.

    A transport problem, solved as a linear program by HiGHS: work may be parted at will and interrupted at every hour.

    Args:
        work: GPU-hours of each hour that may move.
        weight: what a GPU-hour of each hour counts.
        room: GPU-hours that are free in each hour, beside the work's own.
        rate: what a unit of weight costs in each hour; NaN is unknown: nothing leaves such an hour or comes into it.
        most_hours: how far it may move.
    """
    hours = len(work)
    start, delay = (each.ravel() for each in np.meshgrid(np.arange(hours), np.arange(most_hours + 1), indexing="ij"))
    known = np.isfinite(rate)
    inside = start + delay < hours
    target = np.where(inside, start + delay, 0)
    ways = np.flatnonzero(inside & (work[start] > 0) & known[start] & known[target])
    moved, prices = np.zeros((hours, most_hours + 1)), np.zeros(hours)
    moved[~known, 0] = work[~known]
    if len(ways):
        cost = weight[start[ways]] * rate[target[ways]]
        cost += _STAY * float(cost.mean()) * delay[ways]
        values, duals = _solved(_program(cost, start[ways], target[ways], work, work + room))
        moved[start[ways], delay[ways]], prices = values, np.maximum(-duals[hours:], 0.0)
    return LaterWork(moved, prices)


def least_rates(start: NDArray[np.int64], weight: Floats, rate: Floats, prices: Floats, most_hours: int) -> Floats:
    """The least that a GPU-hour of each piece of work pays in any hour within its reach: its weight at the rate, and the hour's price.

    Summed over all work, less what all room is worth at these prices, this is never more than what the best plan pays, whatever
    the prices (weak duality): work is priced piece by piece, where `moved_work` knows one weight for each hour.

    Args:
        start: the place of each piece's hour, whose rate is known.
        weight: of a GPU-hour of each piece.
        rate: as in `moved_work`.
        prices: of a GPU-hour in each hour, from 0 up.
        most_hours: how far it may move.
    """
    ahead = np.full(most_hours, np.nan)
    rates, priced = np.concatenate((rate, ahead)), np.concatenate((prices, ahead))
    least = np.full(len(start), np.inf)
    for delay in range(most_hours + 1):
        least = np.fmin(least, weight * rates[start + delay] + priced[start + delay])
    return least


def _program(cost: Floats, start: NDArray[np.intp], target: NDArray[np.intp], work: Floats, most: Floats) -> HighsLp:
    """A column for each way, a row for what leaves each hour, and one for what each hour takes."""
    import highspy

    hours, columns = len(work), len(cost)
    leaves = np.isin(np.arange(hours), start)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = columns, 2 * hours
    model.col_cost_, model.col_lower_, model.col_upper_ = cost, np.zeros(columns), np.full(columns, np.inf)
    model.row_lower_ = np.concatenate((np.where(leaves, work, 0.0), np.full(hours, -np.inf)))
    model.row_upper_ = np.concatenate((np.where(leaves, work, 0.0), most))
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.arange(0, 2 * columns + 1, 2, dtype=np.int32)
    model.a_matrix_.index_ = np.stack((start, target + hours), axis=1).ravel().astype(np.int32)
    model.a_matrix_.value_ = np.ones(2 * columns)
    return model


def _solved(model: HighsLp) -> tuple[Floats, Floats]:
    """The values of the columns, and the duals of the rows: leaving everything where it is, is always possible."""
    solver = one_thread_solver()
    solver.passModel(model)
    solver.run()
    found = solver.getSolution()
    return np.asarray(found.col_value, np.float64), np.asarray(found.row_dual, np.float64)

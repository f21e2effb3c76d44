"""When work had better run: each hour's work moved by at most so many hours, into GPUs that stood free, at the least carbon dioxide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from analytics.solver import one_thread_solver

if TYPE_CHECKING:
    from highspy import HighsLp

Floats = NDArray[np.float64]
_STAY = 1e-6
"""Of the mean cost, what an hour of delay costs: of two equal ways the one that moves less is taken."""


def moved_work(work: Floats, weight: Floats, room: Floats, rate: Floats, most_hours: int) -> Floats:
    """How much of the work of each hour (row) runs how many hours later (column, from 0 on), so that the rates paid are least.

    A transport problem, solved as a linear program by HiGHS: work may be parted at will and interrupted at every hour, which no real
    plan beats.

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
    moved = np.zeros((hours, most_hours + 1))
    moved[~known, 0] = work[~known]
    if len(ways):
        cost = weight[start[ways]] * rate[target[ways]]
        cost += _STAY * float(cost.mean()) * delay[ways]
        moved[start[ways], delay[ways]] = _solved(_program(cost, start[ways], target[ways], work, work + room))
    return moved


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


def _solved(model: HighsLp) -> Floats:
    """The values of the columns: leaving everything where it is, is always possible."""
    solver = one_thread_solver()
    solver.passModel(model)
    solver.run()
    return np.asarray(solver.getSolution().col_value, np.float64)

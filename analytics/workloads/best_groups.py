"""Which groups to choose so that as many members as can be are spared, and none is in two: set packing by HiGHS.

First-fit frees up to a sixth less (`python -m benchmarks packing`). HiGHS (highspy) is one wheel of 3 MB that needs numpy
alone; OR-tools brings 30 MB and pandas, SciPy 35 MB, and has the same HiGHS inside. The result is the same on every
machine: one thread, and the search ends after a number of nodes and not after a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from analytics.solver import one_thread_solver

if TYPE_CHECKING:
    from highspy import HighsLp

_NODES = 500
"""Nodes of the search; groups of a block of 40 members are mostly proven best at the first."""


@dataclass(frozen=True)
class Choice:
    """Places of the chosen groups in what was given, and the bound: no choice spares more than `at_most`."""

    chosen: tuple[int, ...]
    at_most: int


def best_groups(groups: Sequence[Sequence[int]], members: int) -> Choice:
    """The groups that spare the most members (all but one of each), so that none of 0..`members`-1 is in two of them."""
    if not groups:
        return Choice((), 0)
    solver = one_thread_solver(mip_max_nodes=_NODES)
    solver.passModel(_model(groups, members))
    solver.run()
    info = solver.getInfo()
    values = np.array(solver.getSolution().col_value)
    chosen = tuple(int(each) for each in np.flatnonzero(values > 0.5))
    # a sum of whole numbers is whole: a bound in between says no more than the number below it
    return Choice(chosen, int(np.floor(info.mip_dual_bound + 1e-6)))


def _model(groups: Sequence[Sequence[int]], members: int) -> HighsLp:
    """Maximise what the chosen groups spare, each member at most once; a column per group, a row per member."""
    import highspy

    sizes = np.array([len(each) for each in groups])
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(groups), members
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = (sizes - 1).astype(np.float64)
    model.col_lower_, model.col_upper_ = np.zeros(len(groups)), np.ones(len(groups))
    model.row_lower_, model.row_upper_ = np.full(members, -highspy.kHighsInf), np.ones(members)
    model.integrality_ = [highspy.HighsVarType.kInteger] * len(groups)
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    model.a_matrix_.index_ = np.concatenate([np.asarray(each) for each in groups]).astype(np.int32)
    model.a_matrix_.value_ = np.ones(int(sizes.sum()))
    return model

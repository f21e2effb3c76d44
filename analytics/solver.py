"""HiGHS (highspy) for all optimizations: one thread and one seed, so the same question has the same answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from highspy import Highs, HighsLp

Floats = NDArray[np.float64]


def one_thread_solver(**limits: float) -> Highs:
    """Return a solver that searches for the optimum; `limits` are options of HiGHS that end its search earlier."""
    import highspy

    solver = highspy.Highs()  # type: ignore[no-untyped-call]  # its constructor has no annotations
    solver.silent()
    for name, value in ({"threads": 1, "random_seed": 0, "mip_rel_gap": 0.0} | limits).items():
        solver.setOptionValue(name, value)
    return solver


def program_of_sums(
    costs: Floats, most: float, sums: tuple[Floats, Floats], starts: NDArray[np.int64], rows: NDArray[np.int64]
) -> HighsLp:
    """Return a program of columns from 0 to `most`, and of rows whose sums lie between these two.

    Each column counts in some rows: `rows` lists those of one column after the other, from its place in `starts` on.
    """
    import highspy

    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(costs), len(sums[0])
    model.col_cost_, model.col_lower_, model.col_upper_ = costs, np.zeros(len(costs)), np.full(len(costs), most)
    model.row_lower_, model.row_upper_ = sums
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_, model.a_matrix_.index_ = starts.astype(np.int32), rows.astype(np.int32)
    model.a_matrix_.value_ = np.ones(len(rows))
    return model

"""HiGHS (highspy) for all optimizations: one thread and one seed, so the same question has the same answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from highspy import Highs


def one_thread_solver(**limits: float) -> Highs:
    """Return a solver that searches for the optimum; `limits` are options of HiGHS that end its search earlier."""
    import highspy

    solver = highspy.Highs()  # type: ignore[no-untyped-call]  # its constructor has no annotations
    solver.silent()
    for name, value in ({"threads": 1, "random_seed": 0, "mip_rel_gap": 0.0} | limits).items():
        solver.setOptionValue(name, value)
    return solver

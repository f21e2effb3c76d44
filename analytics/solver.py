"""HiGHS (highspy), as all searches for a best choice use it: one thread and one seed, so that the same question has the same answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from highspy import Highs


def one_thread_solver(**limits: float) -> Highs:
    """A solver that looks for the best there is; `limits` are options of HiGHS that end its search before."""
    import highspy

    solver = highspy.Highs()  # type: ignore[no-untyped-call]  # its constructor has no annotations
    solver.silent()
    for name, value in ({"threads": 1, "random_seed": 0, "mip_rel_gap": 0.0} | limits).items():
        solver.setOptionValue(name, value)
    return solver

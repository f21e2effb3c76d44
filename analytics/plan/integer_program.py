"""A program of whole numbers with several objectives, the first of which counts most: one HiGHS search after the other.

With one thread the result is the same on every machine, where each search ends within its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from analytics.solver import one_thread_solver

if TYPE_CHECKING:
    from highspy import Highs, HighsLp

_SEARCH_S = 1.0

_TOLERANCE = 1e-6

Terms = Iterable[tuple[int, float]]
"""Columns with their coefficients; a column that comes twice counts twice."""


class IntegerProgram:
    """Columns of whole numbers from 0 up, and rows that hold; 0 everywhere has to be allowed.

    `is_proven` is whether every search ended with the best there is, `values` what was found by the last one.
    """

    def __init__(self) -> None:
        self._upper: list[float] = []
        self._rows: list[tuple[dict[int, float], float, float]] = []
        self._solver: Highs | None = None
        self.is_proven = True
        self.values: tuple[int, ...] = ()

    def column(self, most: float = 1) -> int:
        """A new column; its place."""
        self._upper.append(most)
        return len(self._upper) - 1

    def at_most(self, terms: Terms, high: float) -> None:
        """A row: the sum is at most `high`."""
        self._row(terms, -np.inf, high)

    def equal(self, terms: Terms) -> None:
        """A row: the sum is 0."""
        self._row(terms, 0.0, 0.0)

    def _row(self, terms: Terms, low: float, high: float) -> None:
        summed: dict[int, float] = {}
        for column, factor in terms:
            summed[column] = summed.get(column, 0.0) + factor
        self._rows.append((summed, low, high))

    def least(self, costs: Mapping[int, float], bound: float, within_s: float = _SEARCH_S) -> None:
        """Makes the sum of costs as small as can be found in that time, and keeps it there; it is known not to be below `bound`."""
        solver = self._opened()
        if self._sum(costs) > bound + _TOLERANCE:
            everywhere = np.zeros(len(self._upper))
            everywhere[list(costs)] = list(costs.values())
            solver.changeColsCost(len(everywhere), np.arange(len(everywhere), dtype=np.int32), everywhere)
            solver.setOptionValue("time_limit", within_s)
            self._search(solver)
        kept = self._sum(costs) + _TOLERANCE
        columns, factors = np.array(list(costs), dtype=np.int32), np.array(list(costs.values()), dtype=np.float64)
        solver.addRow(-np.inf, kept, len(columns), columns, factors)

    def _sum(self, costs: Mapping[int, float]) -> float:
        return sum(cost * self.values[column] for column, cost in costs.items())

    def _opened(self) -> Highs:
        if self._solver is not None:
            return self._solver
        solver = one_thread_solver()
        solver.passModel(self._model())
        self._solver, self.values = solver, (0,) * len(self._upper)
        return solver

    def _search(self, solver: Highs) -> None:
        """From what was found before, which stays where the search finds nothing."""
        import highspy

        start = highspy.HighsSolution()
        start.col_value = list(map(float, self.values))
        solver.setSolution(start)
        solver.run()
        self.is_proven &= solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        if solver.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
            self.values = tuple(map(round, solver.getSolution().col_value))

    def _model(self) -> HighsLp:
        import highspy

        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self._upper), len(self._rows)
        model.col_cost_, model.col_lower_ = np.zeros(len(self._upper)), np.zeros(len(self._upper))
        model.col_upper_ = np.array(self._upper, dtype=np.float64)
        model.row_lower_ = np.array([low for _, low, _ in self._rows])
        model.row_upper_ = np.array([high for _, _, high in self._rows])
        model.integrality_ = [highspy.HighsVarType.kInteger] * len(self._upper)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.cumsum([0, *(len(terms) for terms, _, _ in self._rows)]).astype(np.int32)
        model.a_matrix_.index_ = np.array([each for terms, _, _ in self._rows for each in terms], dtype=np.int32)
        model.a_matrix_.value_ = np.array([each for terms, _, _ in self._rows for each in terms.values()])
        return model

"""Where values stand in a frame: a rule takes the rows of few GPUs or runs many times, and never looks at all rows again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl
    from numpy.typing import NDArray


class Places:
    """The rows of a frame by the values of one column."""

    def __init__(self, frame: pl.DataFrame, column: str) -> None:
        """Sorts the column once."""
        self._frame = frame
        values = frame[column].unique(maintain_order=True)
        self._codes = {value: code for code, value in enumerate(values.to_list())}
        codes = frame[column].replace_strict(values, range(len(values))).to_numpy() if len(values) else np.zeros(0)
        self._order = np.argsort(codes, kind="stable")
        self._starts = np.searchsorted(codes[self._order], np.arange(len(values) + 1))

    def of(self, values: Iterable[object]) -> pl.DataFrame:
        """The rows with any of these values, in the frame's order."""
        return self._frame[self._rows({self._codes[value] for value in values if value in self._codes})]

    def _rows(self, codes: Iterable[int]) -> NDArray[np.intp]:
        parts = [self._order[self._starts[code] : self._starts[code + 1]] for code in codes]
        return np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.intp)

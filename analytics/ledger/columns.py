"""Columns of the lake as plain numpy arrays: strings as codes into a list of names, null as NaN or as a value that cannot be.

A host-day of eight GPUs is some seventy thousand rows: small enough for a processor's cache, large enough that numpy's
calls cost nothing. All times are integer milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fallow import parquet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from fallow import schema
    from fallow.lake import LakeFile

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Codes = NDArray[np.int32]
    Mask = NDArray[np.bool_]

NONE = -1
"""The code of a null string, and null in integers that cannot be negative."""


@dataclass(frozen=True)
class Strings:
    """A column of strings: `codes` into `names`, NONE for null."""

    codes: Codes
    names: tuple[str, ...]

    def take(self, rows: NDArray[np.intp] | Mask) -> Strings:
        """Some of the rows."""
        return Strings(self.codes[rows], self.names)

    def known(self) -> list[str | None]:
        """The values themselves."""
        table = [*self.names, None]
        return [table[code] for code in self.codes]

    def where_in(self, wanted: Iterable[str]) -> Mask:
        """Which rows hold one of these values."""
        chosen = [code for code, name in enumerate(self.names) if name in set(wanted)]
        return np.isin(self.codes, chosen) if chosen else np.zeros(len(self.codes), bool)


class Columns:
    """The named columns of some files, row by row in the files' order."""

    def __init__(self, files: Iterable[LakeFile], table: schema.Table, names: Sequence[str]) -> None:
        self._data = parquet.read_coded(files, table, names)

    def __len__(self) -> int:
        """Number of rows."""
        return int(self._data.num_rows)

    def floats(self, name: str) -> Floats:
        """Null as NaN, which a measurement may be as well; both are unknown."""
        return np.asarray(self._array(name).to_numpy(zero_copy_only=False), np.float64)

    def ints(self, name: str, null: int = NONE) -> Ints:
        """Integers and times, null as a number of the caller's choice."""
        values = self._array(name)
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.int64())
        if values.null_count:
            values = pc.fill_null(values, pa.scalar(null, values.type))
        return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)

    def strings(self, name: str) -> Strings:
        """Strings as codes."""
        values = self._array(name)
        codes = values.indices
        if codes.null_count:
            codes = pc.fill_null(codes, pa.scalar(NONE, codes.type))
        return Strings(
            np.asarray(codes.to_numpy(zero_copy_only=False), np.int32), tuple(values.dictionary.to_pylist())
        )

    def null_count(self, name: str) -> int:
        """How many rows do not state the column."""
        return int(self._array(name).null_count)

    def _array(self, name: str) -> pa.Array:
        chunks = self._data.column(name)
        if chunks.num_chunks == 1:
            return chunks.chunk(0)
        return pa.concat_arrays(chunks.chunks) if chunks.num_chunks else pa.array([], chunks.type)

    def null_rows(self, name: str) -> Ints:
        """The rows that do not state the column."""
        return np.flatnonzero(self._array(name).is_null().to_numpy(zero_copy_only=False))

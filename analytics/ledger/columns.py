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
    from collections.abc import Callable, Iterable, Iterator, Sequence

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

    def take(self, rows: Ints | NDArray[np.intp] | Mask | slice) -> Strings:
        """Some of the rows."""
        return Strings(self.codes[rows], self.names)

    def renamed(self, change: Callable[[str], str]) -> Strings:
        """The same with other names; those that read the same afterwards are one."""
        names: dict[str, int] = {}
        codes = [names.setdefault(change(name), len(names)) for name in self.names]
        if tuple(names) == self.names:
            return self
        return Strings(np.array([*codes, NONE], np.int32)[self.codes], tuple(names))

    def known(self) -> list[str | None]:
        """The values themselves."""
        table = [*self.names, None]
        return [table[code] for code in self.codes]

    def where_in(self, wanted: Iterable[str]) -> Mask:
        """Which rows hold one of these values."""
        chosen = [code for code, name in enumerate(self.names) if name in set(wanted)]
        return np.isin(self.codes, chosen) if chosen else np.zeros(len(self.codes), bool)


@dataclass(frozen=True)
class Units:
    """Which GPU of which host each row is about: `codes` into `names`, pairs of host and UUID in order; NONE for none."""

    codes: Codes
    names: tuple[tuple[str, str], ...]

    def among(self, known: Sequence[tuple[str, str]]) -> Codes:
        """The same as codes into other names; NONE where they do not hold it."""
        order = {name: code for code, name in enumerate(known)}
        return np.array([*(order.get(name, NONE) for name in self.names), NONE], np.int32)[self.codes]


class Columns:
    """The named columns of some files, row by row in the files' order; `host` says whose rows they are."""

    def __init__(self, files: Iterable[LakeFile], table: schema.Table, names: Sequence[str]) -> None:
        ordered = list(files)
        self._parts = parquet.read_coded(ordered, table, names)
        hosts = {host: code for code, host in enumerate(dict.fromkeys(file.host for file in ordered))}
        codes = np.array([hosts[file.host] for file in ordered], np.int32)
        counts = [part.num_rows for part in self._parts]
        self._size: int = sum(counts)
        self.host = Strings(np.repeat(codes, counts), tuple(hosts))

    def units(self) -> Units:
        """The GPUs of each host: the pairs of host and `gpu` that there are."""
        uuids = self.strings("gpu")
        width = len(uuids.names)
        packed = np.where(uuids.codes == NONE, NONE, self.host.codes.astype(np.int64) * width + uuids.codes)
        there = [int(pair) for pair in np.flatnonzero(np.bincount(packed[packed != NONE]))] if len(packed) else []
        names = {pair: (self.host.names[pair // width], uuids.names[pair % width]) for pair in there}
        order = {name: code for code, name in enumerate(sorted(names.values()))}
        table = np.full(len(self.host.names) * width + 1, NONE, np.int32)
        for pair, name in names.items():
            table[pair] = order[name]
        return Units(table[packed], tuple(order))

    def __len__(self) -> int:
        """Number of rows."""
        return self._size

    def floats(self, name: str) -> Floats:
        """Null as NaN, which a measurement may be as well; both are unknown."""
        whole = np.full(self._size, np.nan)
        for at, values in self._chunks(name):
            whole[at : at + len(values)] = values.to_numpy(zero_copy_only=False)
        return whole

    def ints(self, name: str, null: int = NONE) -> Ints:
        """Integers and times, null as a number of the caller's choice."""
        whole = np.full(self._size, null, np.int64)
        for at, values in self._chunks(name):
            known = values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values
            if known.null_count:
                known = pc.fill_null(known, pa.scalar(null, known.type))
            whole[at : at + len(values)] = known.to_numpy(zero_copy_only=False)
        return whole

    def strings(self, name: str) -> Strings:
        """Strings as codes."""
        whole = np.full(self._size, NONE, np.int32)
        names: dict[str, int] = {}
        for at, values in self._chunks(name):
            renumbered = np.array(
                [*(names.setdefault(each, len(names)) for each in values.dictionary.to_pylist()), NONE], np.int32
            )
            codes = values.indices
            if codes.null_count:
                codes = pc.fill_null(codes, pa.scalar(NONE, codes.type))
            whole[at : at + len(values)] = renumbered[codes.to_numpy(zero_copy_only=False)]
        return Strings(whole, tuple(names))

    def has(self, name: str) -> bool:
        """Whether any row states the column."""
        return any(True for _ in self._chunks(name))

    def null_count(self, name: str) -> int:
        """How many rows do not state the column."""
        return self._size - sum(int(len(values) - values.null_count) for _, values in self._chunks(name))

    def null_rows(self, name: str) -> Ints:
        """The rows that do not state the column."""
        stated = np.zeros(self._size, bool)
        for at, values in self._chunks(name):
            stated[at : at + len(values)] = values.is_valid().to_numpy(zero_copy_only=False)
        return np.flatnonzero(~stated)

    def _chunks(self, name: str) -> Iterator[tuple[int, pa.Array]]:
        """The column's arrays that hold any value, each with the number of its first row."""
        at = 0
        for part in self._parts:
            for chunk in part.column(name).chunks:
                if chunk.null_count < len(chunk):
                    yield at, chunk
                at += len(chunk)

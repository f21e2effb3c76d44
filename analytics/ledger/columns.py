"""Columns of the lake as plain numpy arrays: strings as codes into a list of names, null as NaN or as a value that cannot be.

A host-day of eight GPUs is some seventy thousand rows: small enough for a processor's cache, large enough that numpy's
calls cost nothing. All times are integer milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analytics.decode import by_host
from fallow import schema
from fallow.lake import LakeFile
from fallow.quarantine import OnUnusable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Mask = NDArray[np.bool_]
Places = NDArray[np.intp]
"""Numbers of rows, or of other things in an array."""

NONE = -1
"""The code of a null string, and null in integers that cannot be negative."""


def run_starts(*keys: NDArray[np.generic]) -> Places:
    """The first row of each run of rows that agree in all keys."""
    if not len(keys[0]):
        return np.zeros(0, np.intp)
    return np.flatnonzero(np.append(True, np.any([key[1:] != key[:-1] for key in keys], axis=0)))


@dataclass(frozen=True)
class Strings:
    """A column of strings: `codes` into `names`, NONE for null."""

    codes: Codes
    names: tuple[str, ...]

    def take(self, rows: Ints | Places | Mask | slice) -> Strings:
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
        among = set(wanted)
        chosen = np.array([*(name in among for name in self.names), False])
        return chosen[self.codes] if chosen.any() else np.zeros(len(self.codes), bool)


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
    """The named columns of some files (of one GPU), row by row and host by host in the files' order; `host` says whose they are."""

    def __init__(
        self,
        files: Iterable[LakeFile],
        table: schema.LakeTable,
        names: Sequence[str],
        gpu: str | None = None,
        on_unusable: OnUnusable | None = None,
    ) -> None:
        parts = by_host(files, table, names, gpu, on_unusable)
        counts = [len(part) for _, part in parts]
        self._parts = [part for _, part in parts]
        self._starts = [0, *accumulate(counts)]
        self.host = Strings(np.repeat(np.arange(len(parts), dtype=np.int32), counts), tuple(host for host, _ in parts))

    def units(self) -> Units:
        """The GPUs of each host: the pairs of host and `gpu` that there are."""
        runs = [_runs_of(part["gpu"]) for part in self._parts]
        pairs = [(host, uuid) for host, each in zip(self.host.names, runs, strict=True) for uuid in each.names]
        order = {name: code for code, name in enumerate(sorted(pairs))}
        codes = np.empty(len(self), np.int32)
        for at, host, each in zip(self._starts, self.host.names, runs, strict=False):
            renumbered = np.array([*(order[host, uuid] for uuid in each.names), NONE], np.int32)
            codes[at : at + each.row_count] = np.repeat(renumbered[each.codes], each.lengths)
        return Units(codes, tuple(order))

    def __len__(self) -> int:
        """Number of rows."""
        return self._starts[-1]

    def floats(self, name: str) -> Floats:
        """Null as NaN, which a measurement may be as well; both are unknown."""
        whole = np.empty(len(self))
        for at, values in self._chunks(name):
            whole[at : at + len(values)] = values.to_numpy()
        return whole

    def ints(self, name: str, null: int = NONE) -> Ints:
        """Integers and times, null as a number of the caller's choice."""
        whole = np.empty(len(self), np.int64)
        for at, values in self._chunks(name):
            known = values.to_physical()
            whole[at : at + len(values)] = (known.fill_null(null) if known.null_count() else known).to_numpy()
        return whole

    def strings(self, name: str) -> Strings:
        """Strings as codes."""
        whole = np.empty(len(self), np.int32)
        names: dict[str, int] = {}
        for at, values in self._chunks(name):
            runs = _runs_of(values)
            renumbered = np.array([*(names.setdefault(each, len(names)) for each in runs.names), NONE], np.int32)
            whole[at : at + len(values)] = np.repeat(renumbered[runs.codes], runs.lengths)
        return Strings(whole, tuple(names))

    def has(self, name: str) -> bool:
        """Whether any row states the column."""
        return self.null_count(name) < len(self)

    def null_count(self, name: str) -> int:
        """How many rows do not state the column."""
        return sum(values.null_count() for _, values in self._chunks(name))

    def null_rows(self, name: str) -> Ints:
        """The rows that do not state the column."""
        found = [at + np.flatnonzero(values.is_null().to_numpy()) for at, values in self._chunks(name)]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def _chunks(self, name: str) -> Iterator[tuple[int, pl.Series]]:
        """The column of each host, with the number of its first row."""
        for at, part in zip(self._starts, self._parts, strict=False):
            yield at, part[name]


@dataclass(frozen=True)
class _Runs:
    """Runs of equal strings: `codes` into `names`, NONE for null, and how many rows each run has."""

    codes: Codes
    lengths: Ints
    names: tuple[str, ...]
    row_count: int


def _runs_of(values: pl.Series) -> _Runs:
    """Rows of one GPU follow one another: there are far fewer runs than rows, and few names are made into Python's."""
    count = len(values)
    if values.null_count() == count:
        return _Runs(np.full(1, NONE, np.int32), np.full(1, count, np.int64), (), count)
    runs = values.rle()
    coded = runs.struct.field("value").to_arrow().dictionary_encode()
    codes = pc.fill_null(coded.indices, pa.scalar(NONE, coded.indices.type)).to_numpy(zero_copy_only=False)
    lengths = runs.struct.field("len").cast(pl.Int64).to_numpy()
    return _Runs(codes, lengths, tuple(coded.dictionary.to_pylist()), count)

"""Columns of the lake as plain numpy arrays: strings as codes into names, null as NaN or an impossible value.

A host-day of eight GPUs is some seventy thousand rows: small enough for a processor's cache, large enough that numpy's
calls cost nothing. All times are integer milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
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
"""Row numbers, or positions of other values in an array."""

NONE = -1
"""The code of a null string, and null in integers that cannot be negative."""


def run_starts(*keys: NDArray[np.generic]) -> Places:
    """Return the first row of each run of rows that agree in all keys."""
    if not len(keys[0]):
        return np.zeros(0, np.intp)
    return np.flatnonzero(np.append(True, np.any([key[1:] != key[:-1] for key in keys], axis=0)))


@dataclass(frozen=True)
class Strings:
    """A column of strings: `codes` into `names`, NONE for null."""

    codes: Codes
    names: tuple[str, ...]

    def take(self, rows: Ints | Places | Mask | slice) -> Strings:
        """Return some of the rows."""
        return Strings(self.codes[rows], self.names)

    def renamed(self, change: Callable[[str], str]) -> Strings:
        """Return the column with changed names; names that become equal are merged."""
        names: dict[str, int] = {}
        codes = [names.setdefault(change(name), len(names)) for name in self.names]
        if tuple(names) == self.names:
            return self
        return Strings(np.array([*codes, NONE], np.int32)[self.codes], tuple(names))

    def known(self) -> list[str | None]:
        """Return the values as strings."""
        table = [*self.names, None]
        return [table[code] for code in self.codes]

    def where_in(self, wanted: Iterable[str]) -> Mask:
        """Return which rows hold one of these values."""
        among = set(wanted)
        chosen = np.array([*(name in among for name in self.names), False])
        return chosen[self.codes] if chosen.any() else np.zeros(len(self.codes), bool)


@dataclass(frozen=True)
class Units:
    """The GPU and host of each row: `codes` into `names`, pairs of host and UUID in order; NONE for none."""

    codes: Codes
    names: tuple[tuple[str, str], ...]

    def among(self, known: Sequence[tuple[str, str]]) -> Codes:
        """Return the codes into other names; NONE for a name that they lack."""
        order = {name: code for code, name in enumerate(known)}
        return np.array([*(order.get(name, NONE) for name in self.names), NONE], np.int32)[self.codes]


class Columns:
    """The named columns of files (of one GPU), by host and in the files' order; `host` is each row's host."""

    def __init__(
        self,
        files: Iterable[LakeFile],
        table: schema.LakeTable,
        names: Sequence[str],
        gpu: str | None = None,
        on_unusable: OnUnusable | None = None,
    ) -> None:
        self._rows, counts = by_host(files, table, names, gpu, on_unusable)
        codes = np.repeat(np.arange(len(counts), dtype=np.int32), list(counts.values()))
        self.host = Strings(codes, tuple(counts))
        self._strings: dict[str, Strings] = {}

    def units(self) -> Units:
        """Return the GPUs of each host: the pairs of host and `gpu` that occur."""
        gpu = self.strings("gpu")
        packed = self.host.codes.astype(np.int64) * (len(gpu.names) + 1) + gpu.codes + 1
        starts = run_starts(packed)
        distinct, of_run = np.unique(packed[starts], return_inverse=True)
        hosts, uuids = np.divmod(distinct, len(gpu.names) + 1)
        pairs = {
            (self.host.names[host], gpu.names[uuid - 1]): at
            for at, (host, uuid) in enumerate(zip(hosts, uuids, strict=True))
            if uuid
        }
        names = tuple(sorted(pairs))
        codes = np.full(len(distinct), NONE, np.int32)
        codes[[pairs[name] for name in names]] = np.arange(len(names))
        return Units(np.repeat(codes[of_run], np.diff(starts, append=len(packed))), names)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    def floats(self, name: str) -> Floats:
        """Return a column as floats. Null is NaN, which a measurement may be as well; both are unknown."""
        values = self._rows[name].to_numpy()
        return values if values.dtype == np.float64 and values.flags.writeable else values.astype(np.float64)

    def ints(self, name: str, null: int = NONE) -> Ints:
        """Return integers and times to read only, with null as a number of the caller's choice."""
        values = self._rows[name]
        if values.null_count():
            values = values.to_physical().fill_null(null)
        numbers = values.to_numpy()
        return numbers.view(np.int64) if numbers.dtype.kind == "M" else np.asarray(numbers, np.int64)

    def strings(self, name: str) -> Strings:
        """Return strings as codes. A GPU's rows are adjacent, so runs are few, and few names become Python strings."""
        if name not in self._strings:
            self._strings[name] = _strings_of(self._rows[name])
        return self._strings[name]

    def has(self, name: str) -> bool:
        """Return whether any row states the column."""
        return self.null_count(name) < len(self)

    def null_count(self, name: str) -> int:
        """Return how many rows do not state the column."""
        return self._rows[name].null_count()

    def null_rows(self, name: str) -> Places:
        """Return the rows that do not state the column."""
        return np.flatnonzero(self._rows[name].is_null().to_numpy())


def _strings_of(values: pl.Series) -> Strings:
    if values.null_count() == len(values):
        return Strings(np.full(len(values), NONE, np.int32), ())
    runs = values.rle().to_arrow()
    coded = runs.field("value").dictionary_encode()
    codes = pl.Series(coded.indices)  # pyarrow's to_numpy would import pandas
    codes = codes.fill_null(NONE) if codes.null_count() else codes
    lengths = pl.Series(runs.field("len")).to_numpy()
    return Strings(np.repeat(codes.to_numpy(), lengths), tuple(coded.dictionary.to_pylist()))

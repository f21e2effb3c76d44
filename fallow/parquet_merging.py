"""Merge files of a table, date and host into one file, for agents, services and followers.

Files are merged GPU by GPU, so that only the rows of some GPUs and a batch of each file are in memory. The merged file
is sorted by (gpu, time), rows without a GPU last. It is read back and compared with its sources before it is returned.
Its range covers exactly the source files, so that readers always see either the merged file or its sources.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from arro3.core import Array, DataType, RecordBatch, RecordBatchReader
from arro3.core import Table as ArrowTable
from arro3.io import read_parquet

from fallow import schema
from fallow.errors import BrokenFileError
from fallow.host_identity import HOST_KEY
from fallow.lake import Lake, LakeFile
from fallow.parquet_writer import (
    CHECKSUM_KEY,
    MOST_ROWS,
    VERSION_KEY,
    array_of,
    arrow_schema,
    check_host,
    check_version,
    encode,
    has_checksum,
    is_whole,
    merged_facts,
)
from fallow.process_memory import trim_memory
from fallow.schema import LakeTable, Type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BATCH_ROWS = 1024
_LITTLE_BYTES, _MUCH_BYTES = 3_000_000, 256_000_000
"""Memory for the rows of some GPUs; more rows take several passes over the files."""


def covering(files: Sequence[LakeFile]) -> LakeFile:
    """Return the merged file's name and range, which covers exactly the ranges of these files."""
    first, last_seq = min(files, key=lambda each: each.first_seq), max(each.last_seq for each in files)
    return LakeFile(first.table, first.date, first.host, first.first_seq, last_seq)


def merged_files(lake: Lake, files: Sequence[LakeFile], *, in_little_memory: bool = False) -> bytes:
    """Return the content of the merged file, with the merged metadata.

    With `in_little_memory`, a few megabytes beside the files are in use, and the result is 4 % larger. Raises
    FileNotFoundError for a missing file, BrokenFileError for a file that cannot be merged, SchemaVersionError for
    another schema version, ForeignFileError for another host, and LakeError for a file that cannot be read.
    """
    table = schema.table(files[0].table)
    opened = [OpenedFile(lake.read(each), table, each.key) for each in files]
    for file, each in zip(files, opened, strict=True):
        check_host(file, each.facts.get(HOST_KEY))
    return _merged(table, opened, in_little_memory)


@dataclass
class _Content:
    """A fingerprint of rows in any order: their number, the sum of their keys' hashes, and the nulls of each column."""

    rows: int = 0
    keys: int = 0
    nulls: Counter[str] = field(default_factory=Counter)

    def add(self, batch: RecordBatch, table: LakeTable) -> None:
        self.rows += batch.num_rows
        keys = zip(*(_values(batch, name, table) for name in table.keys), strict=True)
        self.keys = (self.keys + sum(map(hash, keys))) & 0xFFFF_FFFF_FFFF_FFFF
        for name, column in zip(table.names, batch.columns, strict=True):
            self.nulls[name] += column.null_count


class _Gpu(NamedTuple):
    """The sort key of a GPU; rows without a GPU come last."""

    is_none: bool
    name: str


def _merged(table: LakeTable, files: Sequence[OpenedFile], in_little_memory: bool) -> bytes:  # noqa: FBT001
    before, after, gpus, decoded_bytes = _Content(), _Content(), Counter[_Gpu](), 0
    for file in files:
        for batch, spans in file.batches():
            before.add(batch, table)
            decoded_bytes += batch.nbytes
            for gpu, start, end in spans:
                gpus[gpu] += end - start
    if before.rows > MOST_ROWS:
        raise _unfit("the files", f"{before.rows} rows are more than a file may have")
    trim_memory()
    most_rows = (_LITTLE_BYTES if in_little_memory else _MUCH_BYTES) * before.rows // max(1, decoded_bytes)
    stream = RecordBatchReader.from_batches(arrow_schema(table), _sorted(files, _groups(gpus, most_rows), table))
    facts = merged_facts([file.facts for file in files])
    try:
        data = encode(table, stream, facts, in_little_memory=in_little_memory)
    except Exception as error:  # Arrow's interface converts exceptions of a generator
        raise _unfit(files[0].name, str(error)) from error
    for batch, _ in OpenedFile(data, table, files[0].name).batches():
        after.add(batch, table)
    if before != after:
        raise _unfit(
            files[0].name,
            f"the merged file does not have the {before.rows} rows of its sources but {after.rows} rows or other rows",
        )
    return data


def _groups(gpus: Counter[_Gpu], most_rows: int) -> list[list[_Gpu]]:
    """Yield groups of GPUs in order, each as large as memory allows."""
    groups: list[list[_Gpu]] = []
    room = 0
    for gpu in sorted(gpus):
        if not groups or gpus[gpu] > room:
            groups.append([])
            room = most_rows
        groups[-1].append(gpu)
        room -= gpus[gpu]
    return groups


def _sorted(files: Sequence[OpenedFile], groups: Sequence[Sequence[_Gpu]], table: LakeTable) -> Iterator[RecordBatch]:
    """Yield the rows by GPU and time, those of one time in the files' order; each group takes a pass over the files."""
    for group in groups:
        pieces: dict[_Gpu, list[RecordBatch]] = {gpu: [] for gpu in group}
        for file in files:
            for batch, spans in file.batches():
                places: dict[_Gpu, list[int]] = {}
                for gpu, start, end in spans:
                    if gpu in pieces:
                        places.setdefault(gpu, []).extend(range(start, end))
                for gpu, own in places.items():  # a copy, because a slice would keep the whole batch
                    pieces[gpu].append(batch.take(Array(own, type=DataType.int64())))
        for gpu in group:
            yield from _by_time(pieces.pop(gpu), table)


def _by_time(pieces: Sequence[RecordBatch], table: LakeTable) -> Iterator[RecordBatch]:
    times = [_times(piece, table) for piece in pieces]
    order = sorted(range(len(pieces)), key=lambda at: (times[at][0], times[at][-1]))
    together = [time for at in order for time in times[at]]
    if all(before <= after for before, after in itertools.pairwise(together)):
        yield from (pieces[at] for at in order)
        return
    # a clock was set back, rows came late, or another writer does not sort
    (batch,) = ArrowTable.from_batches(list(pieces)).combine_chunks().to_batches()
    times_of_all = _times(batch, table)
    yield batch.take(Array(sorted(range(len(times_of_all)), key=times_of_all.__getitem__), type=DataType.int64()))


class OpenedFile:
    """A complete file, whose batches are decoded at each use, because open readers take far more memory than the rows.

    `facts` is the file's metadata. Raises BrokenFileError and SchemaVersionError.
    """

    def __init__(self, content: bytes, table: LakeTable, name: str) -> None:
        self.name, self._content, self._table = name, content, table
        if not is_whole(content):
            raise _unfit(name, "it is not complete")
        self.facts = {key.decode(): value.decode() for key, value in self._opened().schema.metadata.items()}
        check_version(name, self.facts.get(VERSION_KEY))
        if not has_checksum(content, self.facts.get(CHECKSUM_KEY)):  # the reader crashes on random bytes
            raise _unfit(name, "its content does not match its checksum")

    def times(self) -> list[int]:
        """Return the times of the rows in ms."""
        return [time for batch, _ in self.batches() for time in _times(batch, self._table)]

    def batches(self) -> Iterator[tuple[RecordBatch, list[tuple[_Gpu, int, int]]]]:
        """Yield the batches of rows, each with the positions of the rows by GPU."""
        for batch in self._conformed():
            names = batch.column("gpu").to_pylist() if "gpu" in self._table.names else [""] * batch.num_rows
            spans, start = [], 0
            for name, own in itertools.groupby(names):
                end = start + len(list(own))
                spans.append((_Gpu(name is None, name or ""), start, end))
                start = end
            yield batch, spans

    def _conformed(self) -> Iterator[RecordBatch]:
        """Return the rows in the table's columns and types; missing columns are null."""
        columns, reader = arrow_schema(self._table), self._opened()
        there = set(reader.schema.names)
        if absent := [name for name in self._table.keys if name not in there]:
            raise _unfit(self.name, f"it lacks the column {', '.join(absent)}")
        is_ours = reader.schema.remove_metadata().equals(columns)
        with _named(self.name):
            for batch in reader:
                if is_ours:
                    yield batch
                    continue
                arrays = [
                    batch.column(column.name).cast(kind)
                    if column.name in there
                    else array_of([None] * batch.num_rows, column)
                    for column, kind in zip(self._table.columns, columns.types, strict=True)
                ]
                yield RecordBatch.from_arrays(arrays, schema=columns)

    def _opened(self) -> RecordBatchReader:
        with _named(self.name):
            return read_parquet(self._content, batch_size=_BATCH_ROWS)


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Convert errors of arro3 to BrokenFileError for the file `name`; arro3's PanicException is not an Exception."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise _unfit(name, (str(error).splitlines() or [type(error).__name__])[0]) from error
        raise


def _times(batch: RecordBatch, table: LakeTable) -> list[int]:
    return _values(batch, "time", table)


def _values(batch: RecordBatch, name: str, table: LakeTable) -> list[int]:
    """Return the values of a column, times as integers, because datetimes take ten times as long."""
    column = batch.column(name)
    return (  # type: ignore[return-value]  # the stub says array
        column.cast(DataType.int64()) if table.column(name).type is Type.TIMESTAMP else column
    ).to_pylist()


def _unfit(name: str, what: str) -> BrokenFileError:
    return BrokenFileError(f"{name} cannot be merged: {what}", "`fallow lake check` says more")

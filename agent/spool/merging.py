"""Spooled rows as an Arrow table of arro3, and files of one table, date and host as one file.

Files are merged GPU by GPU: what is in memory at a time is one GPU's rows and a batch of each file. A file is what
`fallow.parquet_writer` wrote: sorted by (gpu, time), those without a GPU last. The merged file is read back and compared with
what went into it before anybody gets it.
"""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from arro3.core import Array, DataType, Field, RecordBatch, RecordBatchReader, Schema, list_array
from arro3.core import Table as ArrowTable
from arro3.io import read_parquet

from agent.own_process import trim_memory
from fallow.errors import BrokenFileError, LakeError
from fallow.parquet_writer import CHECKSUM_KEY, LIST_ITEM, VERSION_KEY, check_version, encode, merged_facts
from fallow.schema import LakeColumn, LakeTable, Type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_PLAIN = {
    Type.INT16: DataType.int16(),
    Type.INT32: DataType.int32(),
    Type.INT64: DataType.int64(),
    Type.FLOAT: DataType.float32(),
    Type.DOUBLE: DataType.float64(),
    Type.BOOL: DataType.bool(),
    Type.STRING: DataType.string(),
}
_ITEMS = {
    Type.INT_LIST: DataType.int32(),
    Type.DOUBLE_LIST: DataType.float64(),
    Type.STRING_LIST: DataType.string(),
}
_TIMESTAMP = DataType.timestamp("ms", tz="UTC")
_WHOLE = (Type.TIMESTAMP, Type.INT16, Type.INT32, Type.INT64)
_UNFIT = (TypeError, ValueError, OverflowError)  # a text that is no UTF-8 is a ValueError


def arrow_rows(table: LakeTable, rows: Iterable[Mapping[str, object]]) -> tuple[ArrowTable, Counter[str]]:
    """The rows in the table's columns and types, sorted by its (gpu, time), and how many values per column had to become null.

    A key that a row lacks is null; LakeError for one that the table lacks. Timestamps are epoch milliseconds.
    """
    columns: dict[str, list[Any]] = {name: [] for name in table.names}
    for row in rows:
        if unknown := row.keys() - columns.keys():
            raise LakeError(f"the table '{table.name}' has no column {', '.join(sorted(unknown))}")
        for name, values in columns.items():
            values.append(row.get(name))
    order = _order(columns)
    misfits: Counter[str] = Counter()
    arrays = []
    for column in table.columns:
        values = columns.pop(column.name)
        arrays.append(_array([values[at] for at in order], column, misfits))
    return ArrowTable.from_arrays(arrays, schema=arrow_schema(table)), misfits


def arrow_schema(table: LakeTable) -> Schema:
    """The Arrow schema of a table."""
    return Schema([Field(column.name, arrow_type(column), nullable=True) for column in table.columns])


def _order(columns: Mapping[str, Sequence[Any]]) -> list[int]:
    """The rows' places by GPU and time, those without a GPU last; rows of one moment stay in their order."""
    times = columns["time"]
    if (gpus := columns.get("gpu")) is None:
        return sorted(range(len(times)), key=times.__getitem__)
    return sorted(range(len(times)), key=lambda at: (gpus[at] is None, gpus[at] or "", times[at]))


def arrow_type(column: LakeColumn) -> DataType:
    if column.type is Type.TIMESTAMP:
        return _TIMESTAMP
    if (item := _ITEMS.get(column.type)) is not None:
        return DataType.list(Field(LIST_ITEM, item, nullable=True))
    return _PLAIN[column.type]


def _array(values: Sequence[Any], column: LakeColumn, misfits: Counter[str]) -> Array:
    """The values in the column's type; one that does not fit becomes null, so that it never keeps the others back."""
    try:
        return _exact(values, column)
    except _UNFIT:
        fitting = [_fitting(value, column) for value in values]
        if lost := fitting.count(None) - values.count(None):
            misfits[column.name] += lost
        return _exact(fitting, column)


def _fitting(value: Any, column: LakeColumn) -> Any:
    if column.type in _WHOLE and isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        _exact([value], column)
    except _UNFIT:
        return None
    return value


def _exact(values: Sequence[Any], column: LakeColumn) -> Array:
    if column.type is Type.TIMESTAMP:
        return Array(values, type=_PLAIN[Type.INT64]).cast(_TIMESTAMP)
    if (item := _ITEMS.get(column.type)) is None:
        return Array(values, type=_PLAIN[column.type])
    if any(isinstance(value, str) for value in values):  # its characters would pass for a list
        raise TypeError
    offsets = accumulate((0 if value is None else len(value) for value in values), initial=0)
    flat = [each for value in values if value is not None for each in value]
    return list_array(
        Array(list(offsets), type=_PLAIN[Type.INT32]),
        Array(flat, type=item),
        type=arrow_type(column),
        mask=Array([value is None for value in values], type=_PLAIN[Type.BOOL]),
    )


_BATCH_ROWS = 1024
_AT_ONCE_BYTES = 3_000_000
"""What the rows of some GPUs may take: more of them are merged in several passes over the files."""
_MAGIC = b"PAR1"
_TAIL_BYTES = 8  # the length of the footer before it, and the magic bytes


class _Gpu(NamedTuple):
    """A GPU as it sorts."""

    is_none: bool = False
    name: str = ""


class UnfitForMergingError(BrokenFileError):
    """A file that is left as it is: it is damaged, not sorted, or not what it was when it was merged."""


@dataclass
class _Content:
    """What identifies rows in any order: their number, the sum of their keys' hashes, and the nulls of each column."""

    rows: int = 0
    keys: int = 0
    nulls: Counter[str] = field(default_factory=Counter)

    def add(self, batch: RecordBatch, table: LakeTable) -> None:
        self.rows += batch.num_rows
        keys = zip(*(_values(batch, name, table) for name in table.keys), strict=True)
        self.keys = (self.keys + sum(map(hash, keys))) & 0xFFFF_FFFF_FFFF_FFFF
        for name in table.names:
            self.nulls[name] += batch.column(name).null_count


def merged(table: LakeTable, contents: Sequence[bytes]) -> bytes:
    """One file of the rows of these whole files, with what all of them say in their metadata.

    Raises UnfitForMergingError for one that cannot be merged, SchemaVersionError for one of another schema version.
    """
    files = [_File(content, table) for content in contents]
    before, after, gpus, decoded_bytes = _Content(), _Content(), Counter[_Gpu](), 0
    for file in files:
        for batch, spans in file.batches():
            before.add(batch, table)
            decoded_bytes += batch.nbytes
            for gpu, start, end in spans:
                gpus[gpu] += end - start
    trim_memory()
    stream = RecordBatchReader.from_batches(arrow_schema(table), _sorted(files, _groups(gpus, decoded_bytes), table))
    try:
        data = encode(table, stream, merged_facts([file.facts for file in files]), in_little_memory=True)
    except Exception as error:  # what a generator raises comes back through Arrow's interface as something else
        raise _unfit(str(error)) from error
    for batch, _ in _File(data, table).batches():
        after.add(batch, table)
    if before != after:
        raise _unfit(f"{before.rows} rows went in, and {after.rows} or others came out")
    return data


def _groups(gpus: Counter[_Gpu], decoded_bytes: int) -> list[list[_Gpu]]:
    """The GPUs in order, as many at a time as their rows may take in memory."""
    most_rows = _AT_ONCE_BYTES * gpus.total() // max(1, decoded_bytes)
    groups: list[list[_Gpu]] = []
    room = 0
    for gpu in sorted(gpus):
        if not groups or gpus[gpu] > room:
            groups.append([])
            room = most_rows
        groups[-1].append(gpu)
        room -= gpus[gpu]
    return groups


def _sorted(files: Sequence[_File], groups: Sequence[Sequence[_Gpu]], table: LakeTable) -> Iterator[RecordBatch]:
    """All rows by GPU and time; those of one moment stay in the order of the files. Each group takes a pass over the files."""
    for group in groups:
        pieces: dict[_Gpu, list[RecordBatch]] = {gpu: [] for gpu in group}
        for file in files:
            for batch, spans in file.batches():
                for gpu, start, end in spans:
                    if gpu in pieces:  # copied, for a slice would keep the whole batch
                        pieces[gpu].append(batch.take(Array(range(start, end), type=DataType.int64())))
        for gpu in group:
            yield from _by_time(pieces.pop(gpu), table)


def _by_time(pieces: Sequence[RecordBatch], table: LakeTable) -> Iterator[RecordBatch]:
    spans = sorted(((times[0], times[-1], at) for at, piece in enumerate(pieces) if (times := _times(piece, table))))
    if all(before[1] <= after[0] for before, after in itertools.pairwise(spans)):
        yield from (pieces[at] for _, _, at in spans)
        return
    # a clock was set back, or rows came late
    (batch,) = ArrowTable.from_batches(list(pieces)).combine_chunks().to_batches()
    times = _times(batch, table)
    yield batch.take(Array(sorted(range(len(times)), key=times.__getitem__), type=DataType.int64()))


class _File:
    """A whole file, whose batches are decoded each time anew: open readers of many files take far more memory than their rows."""

    def __init__(self, content: bytes, table: LakeTable) -> None:
        self._content, self._table = content, table
        self.facts = _checked(content)

    def batches(self) -> Iterator[tuple[RecordBatch, list[tuple[_Gpu, int, int]]]]:
        """Its rows, and in each batch where those of which GPU are; UnfitForMergingError where they are not sorted."""
        last = (_Gpu(), 0)
        for batch in _conformed(_opened(self._content), self._table):
            gpus, times = _gpus(batch, self._table), _times(batch, self._table)
            spans, start = [], 0
            for gpu, own in itertools.groupby(gpus):
                end = start + sum(1 for _ in own)
                if (gpu, times[start]) < last or times[start:end] != sorted(times[start:end]):
                    raise _unfit("its rows are not sorted")
                last = (gpu, times[end - 1])
                spans.append((gpu, start, end))
                start = end
            yield batch, spans


def _checked(content: bytes) -> dict[str, str]:
    """What the file says of itself, once its bytes are those that its checksum says: the reader ends badly on noise."""
    footer_bytes = _TAIL_BYTES + int.from_bytes(content[-_TAIL_BYTES:-4], "little")
    if not (content.startswith(_MAGIC) and content.endswith(_MAGIC) and footer_bytes < len(content)):
        raise _unfit("it is not whole")
    facts = _facts(_opened(content))
    check_version("a file", facts.get(VERSION_KEY))
    stated = facts.get(CHECKSUM_KEY)
    if stated is not None and int(stated) != zlib.crc32(memoryview(content)[:-footer_bytes]):
        raise _unfit("its content does not match its checksum")
    return facts


def _opened(content: bytes) -> RecordBatchReader:
    try:
        return read_parquet(content, batch_size=_BATCH_ROWS)
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":  # which is no Exception
            raise _unfit(str(error)) from error
        raise


def facts_and_times(content: bytes, table: LakeTable) -> tuple[dict[str, str], list[int]]:
    """What a whole file says of itself, and the times of its rows in ms; UnfitForMergingError for one that is damaged."""
    file = _File(content, table)
    return file.facts, [time for batch, _ in file.batches() for time in _times(batch, table)]


def _facts(reader: RecordBatchReader) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in reader.schema.metadata.items()}


def _conformed(reader: RecordBatchReader, table: LakeTable) -> Iterator[RecordBatch]:
    """The file's rows in the table's columns and types; those that a file lacks are null."""
    columns = arrow_schema(table)
    there = set(reader.schema.names)
    if absent := [name for name in table.keys if name not in there]:
        raise _unfit(f"it lacks the column {', '.join(absent)}")
    for batch in reader:
        arrays = [
            batch.column(name).cast(kind)
            if name in there
            else Array([None] * batch.num_rows, type=DataType.null()).cast(kind)
            for name, kind in zip(columns.names, columns.types, strict=True)
        ]
        yield RecordBatch.from_arrays(arrays, schema=columns)


def _gpus(batch: RecordBatch, table: LakeTable) -> list[_Gpu]:
    """The GPU of each row, as it sorts: those without one last."""
    if "gpu" not in table.names:
        return [_Gpu()] * batch.num_rows
    return [_Gpu(name is None, name or "") for name in batch.column("gpu").to_pylist()]


def _times(batch: RecordBatch, table: LakeTable) -> list[int]:
    return _values(batch, "time", table)


def _values(batch: RecordBatch, name: str, table: LakeTable) -> list[int]:
    """A column's values, times as integers: moments of Python take ten times as long."""
    column = batch.column(name)
    return (column.cast(DataType.int64()) if table.column(name).type is Type.TIMESTAMP else column).to_pylist()  # type: ignore[return-value]  # the stub says array


def _unfit(what: str) -> UnfitForMergingError:
    return UnfitForMergingError(f"a file cannot be merged: {what}", "`fallow lake check` says more")

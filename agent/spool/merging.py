"""Files of one table, date and host as one file, GPU by GPU: what is in memory at a time is one GPU's rows and a batch of each file.

A file is what `fallow.parquet_writer` wrote: sorted by (gpu, time), those without a GPU last. The merged file is
read back and compared with what went into it before anybody gets it.
"""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from arro3.core import Array, DataType, RecordBatch, RecordBatchReader
from arro3.core import Table as ArrowTable
from arro3.io import read_parquet

from agent.own_memory import trim_memory
from agent.spool.arrow_rows import arrow_schema
from fallow.errors import BrokenFileError
from fallow.parquet_writer import CHECKSUM_KEY, VERSION_KEY, check_version, encode, merged_facts
from fallow.schema import LakeTable, Type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
            batch.column(name).cast(kind) if name in there else _nulls(kind, batch.num_rows)
            for name, kind in zip(columns.names, columns.types, strict=True)
        ]
        yield RecordBatch.from_arrays(arrays, schema=columns)


def _nulls(kind: DataType, rows: int) -> Array:
    return Array([None] * rows, type=DataType.null()).cast(kind)


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

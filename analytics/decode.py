"""Decodes files of the lake together: for files of five minutes, the cost per file is most of the reading cost.

Polars reads a hundred small files in the time in which pyarrow reads ten, but it neither converts other writers' types
nor names a broken file. Files that it refuses are therefore read through `fallow.parquet`, one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from polars.exceptions import PanicException, PolarsError

from analytics.frames import POLARS
from fallow import parquet, schema
from fallow.errors import LakeError
from fallow.lake import LakeFile
from fallow.quarantine import OnUnusable

_TYPES = POLARS | {schema.Type.TIMESTAMP: pl.Datetime("ms", "UTC")}

_REFUSED = (PolarsError, PanicException, ValueError, LakeError)
"""Errors for files of other types, without a key column, or damaged: read one by one, the faulty file is named."""

_MOST_ROWS = 2_000_000
"""Rows that are decoded together, some 500 MiB of memory; the files of a host with more are read one by one."""

_LARGE_BYTES = 128 << 10
"""Bytes of a file below which all rows are decoded as quickly as one GPU's."""


class HostRows(NamedTuple):
    """Rows of some hosts, one host after the other, and the number of rows of each."""

    rows: pl.DataFrame
    counts: dict[str, int]


class _File(NamedTuple):
    """A file with its content and the facts of its footer; without content where it must be read by itself."""

    file: LakeFile
    content: bytes = b""
    row_count: int = 0
    decoded_bytes: int = 0


def by_host(
    files: Iterable[LakeFile],
    table: schema.LakeTable,
    columns: Sequence[str],
    gpu: str | None = None,
    on_unusable: OnUnusable | None = None,
) -> HostRows:
    """Return each host's rows (of one GPU) in its files' order, with the named columns; null where a file lacks one.

    An unusable file is left out where `on_unusable` is given, which receives it. Raises as `parquet.read` does.
    """
    ordered = list(files)
    hosts: dict[str, list[_File]] = {}
    for file, content in zip(ordered, parquet.small_contents(ordered), strict=True):
        hosts.setdefault(file.host, []).append(_checked(file, content))
    kinds = {name: _TYPES[table.column(name).type] for name in columns}
    parts = _decoded(list(hosts.values()), table, kinds, gpu, on_unusable) if hosts else []
    counts = [count for _, own in parts for count in own]
    rows = parts[0][0] if len(parts) == 1 else pl.concat([pl.DataFrame(schema=kinds), *(part for part, _ in parts)])
    return HostRows(rows, dict(zip(hosts, counts, strict=True)))


def read_days(
    files: Iterable[LakeFile], table: schema.LakeTable, columns: Sequence[str], on_unusable: OnUnusable | None = None
) -> pl.DataFrame:
    """Return the named columns of files, every timestamp as integer milliseconds. Raises as `by_host` does.

    `host` is that of a file's folder where the table has no such column.
    """
    stored = [name for name in columns if name in table.names]
    rows, counts = by_host(files, table, stored, on_unusable=on_unusable)
    if len(stored) < len(columns):
        hosts = pl.Series("host", list(counts), dtype=pl.String)
        rows = rows.with_columns(hosts.gather(np.repeat(np.arange(len(hosts)), list(counts.values()))))
    stamps = [name for name, kind in rows.schema.items() if isinstance(kind, pl.Datetime)]
    return rows.select(columns).with_columns(pl.col(name).dt.epoch("ms") for name in stamps)


def _checked(file: LakeFile, content: bytes | None) -> _File:
    if content is None:
        return _File(file)
    try:
        footer = parquet.check(file, content)
    except _REFUSED:
        return _File(file)
    return _File(file, content, footer.num_rows, parquet.decoded_bytes(footer))


def _decoded(
    hosts: Sequence[Sequence[_File]],
    table: schema.LakeTable,
    kinds: dict[str, pl.DataType],
    gpu: str | None,
    on_unusable: OnUnusable | None,
) -> list[tuple[pl.DataFrame, list[int]]]:
    """Return the rows of some hosts in as few frames as possible, each with the number of rows of each of its hosts.

    Where one scan refuses the files, it tries those of half as many hosts, down to one, whose files are read singly.
    """
    is_countable = gpu is None or len(hosts) == 1
    rows = _rows_by_one_scan([file for own in hosts for file in own], table, kinds, gpu) if is_countable else None
    if rows is not None:
        counts = [sum(file.row_count for file in own) for own in hosts]
        return [(rows, counts if gpu is None else [len(rows)])]
    if len(hosts) > 1:
        middle = len(hosts) // 2
        halves = (hosts[:middle], hosts[middle:])
        return [part for half in halves for part in _decoded(half, table, kinds, gpu, on_unusable)]
    data = parquet.read([each.file for each in hosts[0]], table, list(kinds), on_unusable)
    one_by_one = pl.DataFrame(data.select(list(kinds)))
    rows = one_by_one if gpu is None else one_by_one.filter(pl.col("gpu") == gpu)
    return [(rows, [len(rows)])]


def _rows_by_one_scan(
    files: Sequence[_File], table: schema.LakeTable, kinds: dict[str, pl.DataType], gpu: str | None
) -> pl.DataFrame | None:
    """Return the files' rows by one scan; None where it refuses one, or where a file must be read by itself."""
    row_count = sum(file.row_count for file in files)
    if (
        not all(file.content for file in files)
        or row_count > _MOST_ROWS
        or sum(file.decoded_bytes for file in files) > parquet.MOST_DECODED_BYTES
    ):
        return None
    try:
        frame = _scanned([file.content for file in files], kinds, gpu)
    except _REFUSED:
        return None
    texts = frame.select(pl.col(pl.String).str.len_bytes().cast(pl.Int64).sum())
    if (texts.width and sum(texts.row(0)) > parquet.MOST_DECODED_BYTES) or (gpu is None and len(frame) != row_count):
        return None
    # a key without a value may be a column that a file lacks, and such a file must be named
    return None if any(frame[name].null_count() for name in kinds if name in table.keys) else frame


def _scanned(contents: list[bytes], kinds: dict[str, pl.DataType], gpu: str | None) -> pl.DataFrame:
    is_large = gpu is not None and max(map(len, contents), default=0) > _LARGE_BYTES
    rows = pl.scan_parquet(
        contents,
        schema=kinds,
        extra_columns="ignore",
        missing_columns="insert",
        use_statistics=False,
        parallel="prefiltered" if is_large else "none",
    )
    if gpu is not None:
        rows = rows.filter(pl.col("gpu") == gpu)
    return rows.collect()

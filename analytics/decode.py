"""Files of the lake decoded together: what a file costs is most of what reading files of five minutes costs.

Polars reads a hundred small files in the time in which pyarrow reads ten, but it neither converts what other writers wrote
nor says which file is broken. So whatever it does not take as it is goes through `fallow.parquet`, file by file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl
from polars.exceptions import PanicException, PolarsError

from analytics.frames import POLARS
from fallow import parquet, schema
from fallow.errors import LakeError
from fallow.lake import LakeFile
from fallow.quarantine import OnUnusable

File = tuple[LakeFile, bytes | None]
"""A file and, where it is small, its content."""

_TYPES = POLARS | {schema.Type.TIMESTAMP: pl.Datetime("ms", "UTC")}

_REFUSED = (PolarsError, PanicException, ValueError, LakeError)
"""What is raised for files of other types, without a key column, or damaged: read one by one, they say which it is."""

_MOST_ROWS = 2_000_000
"""Of a host's files that are decoded together, some 500 MiB of memory; where there are more, they are read one by one."""

_LARGE_BYTES = 128 << 10
"""Of a smaller file all rows are decoded as quickly as one GPU's."""


def by_host(
    files: Iterable[LakeFile],
    table: schema.LakeTable,
    columns: Sequence[str],
    gpu: str | None = None,
    on_unusable: OnUnusable | None = None,
) -> list[tuple[str, pl.DataFrame]]:
    """Each host's rows in the order of its files (of one GPU), with the named columns; one that a file lacks is null.

    A file that cannot be used is left out where `on_unusable` is told of it; raises as `parquet.read` does.
    """
    ordered = list(files)
    hosts: dict[str, list[File]] = {}
    for file, content in zip(ordered, parquet.small_contents(ordered), strict=True):
        hosts.setdefault(file.host, []).append((file, content))
    return [(host, _rows_of(mine, table, columns, gpu, on_unusable)) for host, mine in hosts.items()]


def read_days(
    files: Iterable[LakeFile], table: schema.LakeTable, columns: Sequence[str], on_unusable: OnUnusable | None = None
) -> pl.DataFrame:
    """The named columns of files, every timestamp as integer milliseconds; raises as `by_host` does.

    `host` is that of a file's folder where the table has no such column.
    """
    stored = [name for name in columns if name in table.names]
    found = by_host(files, table, stored, on_unusable=on_unusable)
    rows = pl.concat(
        [pl.DataFrame(schema={name: _TYPES[table.column(name).type] for name in stored}), *dict(found).values()]
    )
    if len(stored) < len(columns):
        rows = rows.with_columns(
            host=pl.Series([host for host, own in found for _ in range(len(own))], dtype=pl.String)
        )
    stamps = [name for name, kind in rows.schema.items() if isinstance(kind, pl.Datetime)]
    return rows.select(columns).with_columns(pl.col(name).dt.epoch("ms") for name in stamps)


def _rows_of(
    files: Sequence[File],
    table: schema.LakeTable,
    columns: Sequence[str],
    gpu: str | None,
    on_unusable: OnUnusable | None,
) -> pl.DataFrame:
    frame = _together(files, table, columns, gpu)
    if frame is not None:
        return frame
    rows = parquet.read([file for file, _ in files], table, columns, on_unusable)
    one_by_one = pl.from_arrow(rows.select(list(columns)))
    if not isinstance(one_by_one, pl.DataFrame):
        raise TypeError(type(one_by_one).__name__)
    return one_by_one if gpu is None else one_by_one.filter(pl.col("gpu") == gpu)


def _together(
    files: Sequence[File], table: schema.LakeTable, columns: Sequence[str], gpu: str | None
) -> pl.DataFrame | None:
    """The files' rows by one scan; None where it refuses one, or that one need be looked at by itself."""
    contents = [content for _, content in files if content is not None]
    if len(contents) < len(files):
        return None
    try:
        footers = [parquet.check(file, content) for (file, _), content in zip(files, contents, strict=True)]
        if (
            sum(each.num_rows for each in footers) > _MOST_ROWS
            or sum(map(parquet.decoded_bytes, footers)) > parquet.MOST_DECODED_BYTES
        ):
            return None
        frame = _decoded(contents, table, columns, gpu)
    except _REFUSED:
        return None
    if (
        sum(frame[name].str.len_bytes().sum() for name in columns if frame[name].dtype == pl.String)
        > parquet.MOST_DECODED_BYTES
    ):
        return None
    # a key without a value may be a column that a file lacks, and such a file has to be named
    return None if any(frame[name].null_count() for name in columns if name in table.keys) else frame


def _decoded(
    contents: Sequence[bytes], table: schema.LakeTable, columns: Sequence[str], gpu: str | None
) -> pl.DataFrame:
    kinds = {name: _TYPES[table.column(name).type] for name in columns}
    is_large = gpu is not None and max(map(len, contents), default=0) > _LARGE_BYTES
    rows = pl.scan_parquet(
        list(contents),
        schema=kinds,
        extra_columns="ignore",
        missing_columns="insert",
        use_statistics=False,
        parallel="prefiltered" if is_large else "none",
    )
    if gpu is not None:
        rows = rows.filter(pl.col("gpu") == gpu)
    return rows.collect().rechunk()

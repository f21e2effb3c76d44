"""The rows of files as hashes, to tell whether one file holds all that others hold, and as one file."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from analytics.frames import arrow, milliseconds
from fallow import parquet, schema
from fallow.errors import BrokenFileError, LakeError
from fallow.lake import Lake, LakeFile
from fallow.parquet_writer import merged_facts


def rows_of(files: Sequence[LakeFile]) -> pl.DataFrame:
    """The rows of files of one table, without the host. Raises UnusableFileError and its kinds, naming the file."""
    table = schema.table(files[0].table)
    return milliseconds(parquet.read(files, table)).select(table.names)


def counted(rows: pl.DataFrame) -> pl.DataFrame:
    """How often each row is there: `row` (a hash of all its columns) and `count`."""
    return pl.DataFrame({"row": _hashes(rows)}).group_by("row").agg(count=pl.len())


def _hashes(rows: pl.DataFrame) -> pl.Series:
    """Of each row one of all its columns; lists, which cannot be hashed, as their texts."""
    flat = rows.with_columns(
        pl.col(name).cast(pl.List(pl.String)).list.join("+", ignore_nulls=False)
        for name, kind in rows.schema.items()
        if isinstance(kind, pl.List)
    )
    return flat.hash_rows(seed=7)


def lacks(holder: pl.DataFrame, other: pl.DataFrame) -> int:
    """How many rows of the other are not in the holder; both as `counted` gives them."""
    both = other.join(holder, on="row", how="left", suffix="_there")
    missing = pl.col("count").cast(pl.Int64) - pl.col("count_there").fill_null(0).cast(pl.Int64)
    return int(both.select(pl.max_horizontal(missing, 0).sum()).item() or 0)


def doubled(files: Sequence[LakeFile]) -> int:
    """How many rows, the same in every column, are in more than one of the files."""
    every = pl.concat([counted(rows_of([file])) for file in files])
    return int(every.group_by("row").agg(pl.col("count").sum() - pl.col("count").max())["count"].sum())


def keyed(file: LakeFile) -> pl.DataFrame:
    """The keys of a file's rows, each once. Raises as `rows_of` does."""
    return rows_of([file]).select(schema.table(file.table).keys).unique()


def union(files: Sequence[LakeFile]) -> pl.DataFrame:
    """The rows of files of which some are in several: each as often as it is in the file that has it most often."""
    parts = []
    for file in files:
        rows = rows_of([file])
        numbered = rows.with_columns(_hashes(rows).alias("row"))
        parts.append(numbered.with_columns(time_of_row=pl.int_range(pl.len()).over("row")))
    return pl.concat(parts).unique(["row", "time_of_row"], keep="first", maintain_order=True).drop("row", "time_of_row")


def put_merged(lake: Lake, into: LakeFile, rows: pl.DataFrame, sources: Sequence[LakeFile]) -> LakeFile:
    """Stores rows as one file with what its sources say of their origin, and reads it back. LakeError where it is not the same."""
    table = schema.table(into.table)
    data = parquet.encode(table, arrow(rows, table), merged_facts([parquet.metadata(each) for each in sources]))
    written = lake.put(into, data)
    lake.confirm(into, data)
    if not counted(rows_of([written])).sort("row").equals(counted(rows).sort("row")):
        raise BrokenFileError(
            f"{written.url} does not hold the rows that were merged into it", "run `fallow lake repair`"
        )
    return written


def content_of(file: LakeFile) -> pl.DataFrame | None:
    """Its rows as `counted` gives them; None where it cannot be read."""
    try:
        return counted(rows_of([file]))
    except LakeError:
        return None

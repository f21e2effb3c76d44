"""Reads named columns of one CSV or Parquet file; an unknown column is an error that names the nearest one."""

from __future__ import annotations

import csv
from difflib import get_close_matches
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from analytics.importers.source import Source, open_source
from fallow.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SEPARATORS = (",", ";", "\t")


def read_columns(path: str, names: Sequence[str]) -> tuple[pl.DataFrame, Source]:
    """The file's columns of those names (CSV: as text), in file order. Raises InputError naming the file."""
    source = open_source(path)
    try:
        frame = _read_csv(source, names) if source.text is not None else _read_parquet(source, names)
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        pa.ArrowException,
        csv.Error,
        UnicodeDecodeError,
        OSError,
    ) as error:
        kind = "Parquet" if source.text is None else "CSV"
        reason = (str(error).splitlines() or ["damaged"])[0].rstrip(".")
        raise InputError(f"{path} is no {kind} file that can be read ({reason})", "check or fetch it again") from error
    return frame, source


def _read_csv(source: Source, names: Sequence[str]) -> pl.DataFrame:
    text = (source.text or b"").lstrip(b"\r\n\t ")
    head = text.split(b"\n", 1)[0].decode()
    separator = max(_SEPARATORS, key=lambda each: sum(name in _split(head, each) for name in names))
    known = _split(head, separator)
    check_columns(source.path, names, known)
    if source.cut_off:
        text = text[: text.rfind(b"\n") + 1]
    return (
        pl.read_csv(
            text,
            separator=separator,
            columns=[known.index(name) for name in dict.fromkeys(names)],
            infer_schema=False,
            truncate_ragged_lines=True,
        )
        .rename(str.strip)
        .filter(~pl.all_horizontal(pl.all().is_null()))
    )


def _split(head: str, separator: str) -> list[str]:
    return [name.strip() for name in next(csv.reader([head.strip()], delimiter=separator))]


def _read_parquet(source: Source, names: Sequence[str]) -> pl.DataFrame:
    if source.parquet is None:
        raise InputError(f"{source.path} is neither CSV nor Parquet", "give a CSV with a header line")
    # Arrow says in one line what is wrong with a damaged file, where Polars prints a stack trace of its own
    opened = pq.ParquetFile(source.parquet)
    check_columns(source.path, names, opened.schema_arrow.names)
    data = opened.read(columns=list(dict.fromkeys(names))).replace_schema_metadata()
    data.validate(full=True)
    return pl.DataFrame(pl.from_arrow(data))


def check_columns(path: str, names: Sequence[str], known: Sequence[str]) -> None:
    """InputError for the first name that the file lacks."""
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
            guess = f"did you mean '{near[0]}'? " if near else ""
            raise InputError(f"{path} has no column '{name}'", f"{guess}it has: {listed}")

"""`fallow import series`: long CSV or Parquet files, one value per GPU and time, joined on both."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import polars as pl

from analytics.importers.kinds import with_progress
from analytics.importers.model import KEYS, FileReport, Imported, Tally, check_host, daily_devices, unique_keys
from analytics.importers.source import read_columns
from analytics.importers.times import check_zone, given_interval_ms, in_range, on_grid, read_times
from analytics.importers.values import clean
from fallow.errors import InputError, UsageError
from fallow.schema import GPU
from fallow.units import parse_bytes

_SMALLEST_CARD_BYTES = 2**20
_SET_HERE = ("interval_ms", "offset_ms")  # they follow from --time and --interval
NAMEABLE = tuple(column.name for column in GPU.columns if not column.key and column.name not in _SET_HERE)
"""Columns of the `gpu` table that --column may name."""


@dataclass(frozen=True)
class Wanted:
    """One file and which of its columns become which columns of the `gpu` table."""

    path: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class SeriesPart:
    """One file as read: (gpu, true_ms, values...), one row per key, and its account."""

    frame: pl.DataFrame
    report: FileReport
    local: bool


class ImportedSeries:
    name = "series"
    summary = "long CSV or Parquet files with one row per GPU and time, joined on both"
    example = (
        "fallow import series --time ts --gpu uuid --interval 60s --column gpu_util_pct=util.csv.gz:value "
        "--column mem_used_bytes=memory.parquet:bytes --lake /srv/lake"
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--time", required=True, metavar="COLUMN", help="column that holds the time, in every file")
        parser.add_argument("--gpu", required=True, metavar="COLUMN", help="column that names the GPU, in every file")
        parser.add_argument("--column", required=True, action="append", metavar="NAME=FILE:COLUMN", dest="columns",
                            help="a column of the gpu table (`fallow schema gpu`) and where it lies; repeat it")  # fmt: skip
        parser.add_argument(
            "--interval", metavar="DURATION", help="time between samples, such as 60s (default: inferred)"
        )
        parser.add_argument("--host", default="import", help="host that the rows are filed under (default: import)")
        parser.add_argument("--tz", metavar="ZONE",
                            help="zone of times without an offset (default: UTC)")  # fmt: skip
        parser.add_argument("--model", help="product name of the GPUs")
        parser.add_argument("--mem-total", metavar="SIZE", help="device memory of each GPU, such as 48GiB")

    def read(self, args: argparse.Namespace) -> Imported:
        """Reads and joins the files; raises InputError or UsageError."""
        host, zone = check_host(args.host), check_zone(args.tz or "UTC")
        interval_ms = given_interval_ms(args.interval)
        mem_total = None if args.mem_total is None else parse_bytes(args.mem_total)
        if mem_total is not None and mem_total < _SMALLEST_CARD_BYTES:
            raise UsageError(f"--mem-total {args.mem_total} is {mem_total} bytes", "name the unit: 48GiB")
        wanted = parse_columns(args.columns)
        parts = [read_part(each, args.time, args.gpu, zone) for each in with_progress(wanted, "reading")]
        frame, notes = join(parts)
        frame, interval = on_grid(frame, interval_ms)
        device = daily_devices(frame).with_columns(
            model=pl.lit(args.model, pl.String), mem_total_bytes=pl.lit(mem_total, pl.Int64)
        )
        local = any(part.local for part in parts)
        origin = "assumed" if args.tz is None else "given"
        timezone = f"{zone} ({origin}) for times without an offset" if local else "UTC (the files' own)"
        return Imported(
            host, frame, device, tuple(part.report for part in parts), interval, timezone,
            (*notes, *_ratio_notes(frame)),
        )  # fmt: skip


def parse_columns(texts: Sequence[str]) -> list[Wanted]:
    """What the --column flags ask for, one entry per file; UsageError on a malformed flag or an unknown name."""
    by_file: dict[str, list[tuple[str, str]]] = {}
    for text in texts:
        name, equals, where = text.partition("=")
        path, colon, column = where.rpartition(":")
        if not (equals and colon and path and column):
            raise UsageError(f"--column '{text}' is not NAME=FILE:COLUMN", "such as gpu_util_pct=util.csv:value")
        if name not in NAMEABLE:
            raise _unknown(name)
        by_file.setdefault(path, []).append((name, column))
    return [Wanted(path, tuple(dict.fromkeys(columns))) for path, columns in by_file.items()]


def _unknown(name: str) -> UsageError:
    if name in (*_SET_HERE, *GPU.keys):
        return UsageError(f"--column cannot set {name}", "it follows from --time, --gpu and --interval")
    near = get_close_matches(name, NAMEABLE, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the columns are {', '.join(NAMEABLE)}"
    return UsageError(f"--column: the gpu table has no column '{name}'", hint)


def read_part(wanted: Wanted, time: str, gpu: str, zone: str) -> SeriesPart:
    """One file; InputError naming it where it cannot be used or has no usable row."""
    tally = Tally()
    raw, source = read_columns(wanted.path, [time, gpu, *(column for _, column in wanted.columns)])
    tally.notes.extend(source.notes)
    if source.text is not None and not source.last_line_whole and not source.cut_off:
        tally.notes.append("the last line has no line end: if the file was cut off, its last value may be too")
    times = read_times(raw[time], zone)
    tally.notes.extend(times.notes)
    values: dict[str, pl.Series] = {}
    for name, column in wanted.columns:
        try:
            cleaned = clean(raw[column], GPU.column(name), tally)
        except pl.exceptions.PolarsError as error:
            raise InputError(
                f"the column '{column}' of {wanted.path} holds {raw[column].dtype}, not numbers"
            ) from error
        values[name] = values[name].zip_with(values[name].is_not_null(), cleaned) if name in values else cleaned
    names = raw[gpu].cast(pl.String).str.strip_chars()
    frame = pl.DataFrame({"gpu": names.set(names == "", None), "true_ms": times.ms.cast(pl.Int64), **values})
    kept = _keep(frame, raw[time].is_null(), tally)
    if kept.is_empty():
        reasons = ", ".join(f"{reason}: {count}" for reason, count in tally.dropped.items())
        raise InputError(
            f"{wanted.path} has no usable row" + (f" ({reasons})" if reasons else ""),
            f"check that '{time}' holds times and '{gpu}' names GPUs",
        )
    return SeriesPart(kept, tally.report(wanted.path, raw.height, kept.height), times.local)


def _keep(frame: pl.DataFrame, no_time: pl.Series, tally: Tally) -> pl.DataFrame:
    """The rows that have a time and a GPU, one per key."""
    fits = in_range(frame)
    unreadable = frame["true_ms"].is_null()
    tally.drop("no time", int((no_time & unreadable).sum()))
    tally.drop("time unreadable or skipped by the zone", int((~no_time & unreadable).sum()))
    tally.drop("time before 1970 or in the future", int((~fits).sum()))
    good = fits.fill_null(value=False)
    tally.drop("no GPU", int((good & frame["gpu"].is_null()).sum()))
    kept = frame.filter(good & frame["gpu"].is_not_null())
    once = unique_keys(kept)
    tally.drop("same GPU and time again: first non-null value kept", kept.height - once.height)
    return once


def join(parts: Sequence[SeriesPart]) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """All rows of all files, side by side where GPU and time agree; and how many did."""
    joined = parts[0].frame.with_columns(pl.lit(1, pl.Int32).alias("_files"))
    for part in parts[1:]:
        both = joined.join(part.frame.with_columns(pl.lit(1, pl.Int32).alias("_files")), on=KEYS, how="full",
                           coalesce=True, suffix="_next", nulls_equal=False)  # fmt: skip
        twice = [name.removesuffix("_next") for name in both.columns if name.endswith("_next")]
        both = both.with_columns(pl.coalesce(name, f"{name}_next") for name in twice if name != "_files").with_columns(
            pl.sum_horizontal("_files", "_files_next").cast(pl.Int32).alias("_files")
        )
        joined = both.drop(f"{name}_next" for name in twice)
    notes: list[str] = []
    if len(parts) > 1:
        everywhere = joined.filter(pl.col("_files") == len(parts)).height
        notes.append(f"{everywhere} of {joined.height} rows have a partner in every file")
        for part in parts:
            alone = part.frame.join(joined.filter(pl.col("_files") == 1), on=KEYS, how="semi").height
            notes.append(f"{alone} rows are in {part.report.path} only")
    return joined.drop("_files"), tuple(notes)


def _ratio_notes(frame: pl.DataFrame) -> list[str]:
    """Warns of utilization that never exceeds 1 and is not whole: it is probably a ratio."""
    notes = []
    for name in frame.columns:
        if name.endswith("_pct"):
            top = frame[name].max()
            if isinstance(top, float) and 0 < top <= 1 and bool((frame[name] % 1 != 0).any()):
                notes.append(f"no value of {name} exceeds 1: if the file holds ratios, multiply them by 100 first")
    return notes

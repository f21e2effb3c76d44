"""`fallow import series`: long CSV or Parquet files, one value per GPU and time, joined on both."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial

import polars as pl

from analytics.importers.kinds import with_progress
from analytics.importers.model import KEYS, FileReport, Imported, Tally, check_host, daily_devices, scoped, unique_keys
from analytics.importers.plausibility import Claim, card_bytes, check_values
from analytics.importers.series_tables import TableShape, read_table
from analytics.importers.source import InputLimits
from analytics.importers.times import (
    check_zone,
    drop_impossible,
    given_interval_ms,
    import_zone,
    on_grid,
    read_times,
    steps_back,
)
from analytics.importers.values import ReadUnit, clean, in_lake_unit, named_otherwise, parse_units, unit_of, units_of
from fallow.errors import InputError, UsageError
from fallow.schema import GPU
from fallow.units import parse_bytes

_SMALLEST_CARD_BYTES = 2**20
_REPEATS = 0.1
_FEW_REPEATS = 10
"""Most rows (share, number) that may repeat a GPU and time with another value: more are two GPUs with one name."""

_SET_HERE = ("interval_ms", "offset_ms")  # --time and --interval determine these
NAMEABLE = tuple(column.name for column in GPU.columns if not column.key and column.name not in _SET_HERE)
"""Columns of the `gpu` table that --column may name."""


@dataclass(frozen=True)
class Wanted:
    """One file, and its columns for columns of the `gpu` table."""

    path: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class SeriesSettings:
    """The flags that concern the files."""

    shape: TableShape
    host: str
    zone: str
    units: Mapping[str, str]
    card: int | None
    limits: InputLimits


@dataclass(frozen=True)
class SeriesPart:
    """One file as read: (gpu, true_ms, values...), one row per key, and its report."""

    frame: pl.DataFrame
    report: FileReport
    local: bool


class ImportedSeries:
    name = "series"
    summary = "CSV or Parquet files with one row per GPU and time, or a column for each GPU"
    example = (
        "fallow import series --time ts --gpu uuid --interval 60s --column gpu_util_pct=util.csv.gz:value "
        "--column mem_used_bytes=memory.parquet:bytes --lake /srv/lake"
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--time", required=True, metavar="COLUMN", help="column that holds the time, in every file")
        parser.add_argument("--gpu", metavar="COLUMN", help="column that names the GPU, in every file")
        parser.add_argument("--host-column", metavar="COLUMN", help="column that names the host, in every file")
        parser.add_argument(
            "--metric-column",
            metavar="COLUMN",
            help="column that names the metric of each row: COLUMN of --column is one",
        )
        parser.add_argument("--value-column", metavar="COLUMN", help="column that holds the value of that metric")
        parser.add_argument(
            "--wide",
            metavar="PATTERN",
            help=(
                "names of columns that hold values of one GPU, such as '{host} - system.gpu.{gpu}.{metric}'; COLUMN of "
                "--column is a metric, or * without {metric}"
            ),
        )
        parser.add_argument(
            "--column",
            required=True,
            action="append",
            metavar="NAME=FILE:COLUMN",
            dest="columns",
            help="a column of the gpu table (`fallow schema gpu`) and its source; repeatable",
        )
        parser.add_argument(
            "--unit",
            action="append",
            default=[],
            metavar="[NAME=]UNIT",
            dest="units",
            help="unit of a column, or of all columns, such as mem_used_bytes=MiB "
            "(default: by the name of the file's column, else the lake's unit)",
        )
        parser.add_argument(
            "--interval", metavar="DURATION", help="time between samples, such as 60s (default: inferred)"
        )
        parser.add_argument(
            "--host", help="host of the GPUs; ids that are not UUIDs are stored as HOST/ID (default: import)"
        )
        parser.add_argument(
            "--tz", "--timezone", metavar="ZONE", dest="tz", help="time zone of times without an offset (default: UTC)"
        )
        parser.add_argument("--model", help="product name of the GPUs")
        parser.add_argument("--mem-total", metavar="SIZE", help="device memory of each GPU, such as 48GiB")

    def read(self, args: argparse.Namespace, limits: InputLimits) -> Imported:
        """Return the joined content of the files. Raises InputError or UsageError."""
        interval_ms = given_interval_ms(args.interval)
        mem_total = None if args.mem_total is None else parse_bytes(args.mem_total)
        if mem_total is not None and mem_total < _SMALLEST_CARD_BYTES:
            raise UsageError(f"--mem-total {args.mem_total} is {mem_total} bytes", "name the unit: 48GiB")
        wanted = parse_columns(args.columns)
        filled = [GPU.column(name) for name in dict.fromkeys(name for each in wanted for name, _ in each.columns)]
        settings = SeriesSettings(
            TableShape.of(args),
            check_host("import" if args.host is None else args.host),
            check_zone(args.tz or "UTC"),
            parse_units(args.units, filled),
            mem_total or card_bytes(args.model),
            limits,
        )
        parts = [read_part(each, settings) for each in with_progress(wanted, "reading")]
        frame, notes = join(parts)
        frame, interval = on_grid(frame, interval_ms)
        device = daily_devices(frame).with_columns(
            model=pl.lit(args.model, pl.String), mem_total_bytes=pl.lit(mem_total, pl.Int64)
        )
        frame, by_host = frame.drop("host"), frame.partition_by("host", as_dict=True, include_key=False)
        local = any(part.local for part in parts)
        names = frame["gpu"].unique()
        return Imported(
            settings.host,
            frame,
            device,
            tuple(part.report for part in parts),
            interval,
            import_zone(settings.zone, given=args.tz is not None, local=local),
            (*notes, *_name_notes(names, settings.host)),
            interval_ms,
            sum(part.frame.height for part in parts) - frame.height,
            tuple(_number_doubts(names) if args.host is None else ()),
            by_host=tuple(
                Imported(check_host(str(host)), own, device.join(own, on="gpu", how="semi"))
                for (host,), own in sorted(by_host.items())
            )
            if settings.shape.names_hosts
            else (),
        )


def _name_notes(names: pl.Series, host: str) -> list[str]:
    """Return a note on GPUs that are stored with their host's name."""
    count = int(names.str.starts_with(f"{host}/").sum())
    return (
        [f"{count:,} GPU ids are not UUIDs: stored as {host}/ID, separate from those of other hosts"] if count else []
    )


def _number_doubts(names: pl.Series) -> list[str]:
    if not names.str.contains(r"^import/\d{1,2}$").all():
        return []
    return ["GPUs are named by numbers and no host is given: the next host's GPU 0 would be the same GPU (--host)"]


def parse_columns(texts: Sequence[str]) -> list[Wanted]:
    """Return what the --column flags ask for, by file. Raises UsageError on a malformed flag or an unknown name."""
    by_file: dict[str, list[tuple[str, str]]] = {}
    for text in texts:
        name, equals, where = text.partition("=")
        path, colon, column = where.rpartition(":")
        if not (equals and colon and path and column):
            raise UsageError(f"--column '{text}' is not NAME=FILE:COLUMN", "such as gpu_util_pct=util.csv:value")
        if name not in NAMEABLE:
            raise _column_error(name)
        by_file.setdefault(path, []).append((name, column))
    return [Wanted(path, tuple(dict.fromkeys(columns))) for path, columns in by_file.items()]


def _column_error(name: str) -> UsageError:
    if name in (*_SET_HERE, *GPU.keys):
        return UsageError(f"--column cannot set {name}", "it follows from --time, --gpu and --interval")
    near = get_close_matches(name, NAMEABLE, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the columns are {', '.join(NAMEABLE)}"
    return UsageError(f"--column: the gpu table has no column '{name}'", hint)


def read_part(wanted: Wanted, settings: SeriesSettings) -> SeriesPart:
    """Return one file. Raises InputError where it is unusable, has no usable row or holds impossible values."""
    tally = Tally()
    shape = settings.shape
    keys = list(dict.fromkeys(column for _, column in wanted.columns))
    raw, source = read_table(wanted.path, keys, shape, settings.limits, tally)
    tally.notes.extend(source.notes)
    for reason, count in source.dropped:
        tally.drop(reason, count)
    left_out = sum(count for _, count in source.dropped)
    if source.doubtful is not None and source.doubtful in (shape.time, shape.gpu, shape.host, shape.metric):
        tally.drop("last line truncated", 1)
        raw, left_out = raw.head(-1), left_out + 1
    times = read_times(raw["time"], settings.zone)
    tally.notes.extend(times.notes)
    tally.odd.extend(times.odd)
    if times.skipped is not None:
        raise InputError(
            f"{wanted.path}: row {times.skipped + 1} has the time {raw['time'][times.skipped]}, which {settings.zone}"
            " skips",
            "give the zone that the times are in: --tz ZONE",
        )
    values, claims = _values(wanted, _doubt_last_value(wanted, raw, source.doubtful, tally), settings.units, tally)
    gpus, hosts = (raw[name].cast(pl.String).str.strip_chars() for name in ("gpu", "host"))
    hosts = hosts.set(hosts == "", None) if shape.names_hosts else hosts.fill_null(settings.host)
    names = scoped(gpus.set(gpus == "", None), hosts)
    frame = pl.DataFrame({"gpu": names, "true_ms": times.ms.cast(pl.Int64), "host": hosts, **values})
    if times.local and not times.notes and steps_back(times.ms, names):
        tally.odd.append(f"times of a GPU step back by an hour, which no clock of {settings.zone} does: is --tz right?")
    kept = _usable_rows(frame, raw["time"].is_null(), tally)
    if kept.is_empty():
        raise InputError(
            f"{wanted.path} has no usable row{tally.reasons}",
            f"check that '{shape.time}' holds times{f' and {shape.gpu!r} names GPUs' if shape.gpu else ''}",
        )
    tally.odd.extend(check_values(kept, claims, tally.nulled, settings.card))
    return SeriesPart(kept, tally.report(wanted.path, raw.height + left_out, kept.height), times.local)


def _doubt_last_value(wanted: Wanted, raw: pl.DataFrame, doubtful: str | None, tally: Tally) -> pl.DataFrame:
    """Return the rows without the value that may lack digits because its line has no end."""
    names = [name for name, column in wanted.columns if column == doubtful]
    column = f"={doubtful}"
    if not names or column not in raw.columns or raw[column][-1] is None:
        return raw
    for name in names:
        tally.null(name, "last line has no end: value may be truncated", 1)
    last = pl.int_range(pl.len()) == pl.len() - 1
    return raw.with_columns(pl.when(last).then(None).otherwise(column).alias(column))


def _values(
    wanted: Wanted, raw: pl.DataFrame, units: Mapping[str, str], tally: Tally
) -> tuple[dict[str, pl.Series], dict[str, Claim]]:
    """Return the file's columns in the lake's units and types, and the name and unit of each for checks."""
    values: dict[str, pl.Series] = {}
    claims: dict[str, Claim] = {}
    for name, column in wanted.columns:
        described = GPU.column(name)
        unit = unit_of(column, described, units.get(name))
        try:
            cleaned = clean(in_lake_unit(raw[f"={column}"], described, unit, tally), described, tally)
        except pl.exceptions.PolarsError as error:
            raise InputError(
                f"the column '{column}' of {wanted.path} holds {raw[f'={column}'].dtype}, not numbers"
            ) from error
        values[name] = values[name].zip_with(values[name].is_not_null(), cleaned) if name in values else cleaned
        if unit is not None:
            claims[name] = Claim(f"{name} ({wanted.path}:{column})", unit.declared, partial(_unit_remedy, name))
            _note_unit(name, column, unit, tally)
    return values, claims


def _unit_remedy(name: str, unit: str) -> str:
    """Return how to declare the unit of a column."""
    if unit:
        return f"if the file holds {unit}, add --unit {name}={unit}"
    units = ", ".join(units_of(GPU.column(name)))
    return f"declare the unit in the file: --unit {name}=UNIT ({units}); or leave the column out"


def _note_unit(name: str, column: str, unit: ReadUnit, tally: Tally) -> None:
    if unit.known_by == "named" and unit.factor != 1:
        decimal = (
            f" of 1000s (--unit {name}={unit.unit[0]}iB: of 1024s)" if unit.unit in ("KB", "MB", "GB", "TB") else ""
        )
        tally.notes.append(f"{name}: {column} names its unit, {unit.unit}{decimal}")
    other = named_otherwise(column, GPU.column(name), unit)
    if other is not None:
        tally.odd.append(f"--unit gives {unit.unit} for {name}, but the column's name {column} gives {other}")


def _usable_rows(frame: pl.DataFrame, no_time: pl.Series, tally: Tally) -> pl.DataFrame:
    """Return the rows that have a time and a GPU, one per key."""
    unreadable = frame["true_ms"].is_null()
    tally.drop("no time", int((no_time & unreadable).sum()))
    tally.drop("time unreadable", int((~no_time & unreadable).sum()))
    timed = drop_impossible(frame.filter(~unreadable), 0, tally)
    tally.drop("no GPU", timed["gpu"].null_count())
    tally.drop("no host", timed.filter(pl.col("gpu").is_not_null())["host"].null_count())
    kept = timed.drop_nulls(["gpu", "host"])
    once = unique_keys(kept)
    repeated = kept.height - once.height
    tally.drop("same GPU and time again: first non-null value kept", repeated)
    other = kept.n_unique() - once.height if repeated else 0
    if other > max(_FEW_REPEATS, _REPEATS * kept.height):
        tally.odd.append(
            f"{other:,} of {kept.height:,} rows repeat a GPU and time with another value: "
            "do several hosts number their GPUs alike? Import each host separately with its --host"
        )
    return once


def join(parts: Sequence[SeriesPart]) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Return all rows of all files, side by side where GPU and time agree, and notes on how many agree."""
    counted = [part.frame.with_columns(_files=pl.lit(1, pl.Int32)) for part in parts]
    joined = counted[0]
    for frame in counted[1:]:
        both = joined.join(frame, on=KEYS, how="full", coalesce=True, suffix="_next")
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

"""`fallow import nvidia-smi`: machine-readable output of `nvidia-smi`, and what its files share with gpustat's."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial

import polars as pl

from analytics.importers.kinds import add_recording_flags, with_progress
from analytics.importers.model import PROCESSES, FileReport, Imported, Tally, check_host, contradictions, daily_devices
from analytics.importers.nvidia_smi_forms import XML, is_xml, kind_of_table, table_as_csv, xml_samples
from analytics.importers.nvidia_smi_lines import QUANTITIES, RECORD, TOOL, check_fields, parse_lines
from analytics.importers.plausibility import check_recording
from analytics.importers.processes import beside_samples, counted
from analytics.importers.source import InputLimits, open_source
from analytics.importers.ticks import MOST_GPUS, place
from analytics.importers.times import (
    IN_THE_FUTURE,
    NVIDIA_SMI_BEGAN_MS,
    check_zone,
    drop_impossible,
    given_interval_ms,
    import_zone,
    moments,
    on_grid,
    steps_back,
)
from analytics.importers.tool_rows import NO_TIME, quantities_of, rows_of_documents
from analytics.mapping.model import Exporter, MappedMetric
from fallow.errors import InputError, UsageError


def name_gpus(rows: pl.DataFrame, host: str) -> pl.DataFrame:
    """Return the rows with `gpu`: the UUID where known, also from other lines of the same index.

    Else `<host>/<index>`, `<host>/<bus address>` or `<host>/<position>`; rows without any name are dropped before.
    """
    seen = rows.filter(pl.col("uuid").is_not_null() & pl.col("index").is_not_null()).select("index", "uuid").unique()
    # an index that two GPUs had (they change over reboots) identifies neither
    sure = seen.filter(pl.len().over("index") == 1).rename({"uuid": "uuid_of_index"})
    place = pl.coalesce("index", "pci_bus_id", pl.col("position").cast(pl.String))
    return (
        rows.join(sure, on="index", how="left", maintain_order="left")
        .with_columns(gpu=pl.coalesce("uuid", "uuid_of_index", pl.lit(f"{host}/") + place))
        .with_columns(gpu_index=pl.coalesce("index", pl.col("position").cast(pl.String)).cast(pl.Int16, strict=False))
        .drop("uuid_of_index")
    )


def check_count(rows: pl.DataFrame, host: str) -> None:
    """Raise InputError where the rows name more GPUs than one host can have."""
    count = rows["gpu"].n_unique()
    if count > MOST_GPUS:
        raise InputError(
            f"{count:,} GPUs on the one host {host}, and no host has more than {MOST_GPUS}",
            "import each host's files separately with its --host",
        )


@dataclass(frozen=True)
class NvidiaSmiSettings:
    """The flags that concern the files."""

    host: str
    zone: str
    interval_ms: int | None
    fields: tuple[str, ...] | None
    limits: InputLimits
    day: date | None = None
    """Day of the first line of a table of dmon or pmon that has times only."""


class NvidiaSmi:
    name = "nvidia-smi"
    summary = (
        "output of nvidia-smi on one host: CSV of --query-gpu and --query-compute-apps, tables of dmon and pmon -o DT, "
        "XML of -q -x"
    )
    example = f"{RECORD}\n         fallow import nvidia-smi gpu.csv --host gn001 --tz Europe/Paris --lake /srv/lake"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_recording_flags(parser, "nvidia-smi", "CSV, table of dmon or pmon, or XML")
        parser.add_argument("--date", metavar="DAY", help="date of the first line of a table without dates")
        parser.add_argument("--fields", metavar="NAME,...", help="columns of files without a header, in order")

    def read(self, args: argparse.Namespace, limits: InputLimits) -> Imported:
        """Return the content of the files. Raises InputError or UsageError."""
        fields = None if args.fields is None else check_fields(args.fields.split(","))
        settings = NvidiaSmiSettings(
            check_host(args.host),
            check_zone(args.tz or "UTC"),
            given_interval_ms(args.interval),
            fields,
            limits,
            _day(args.date),
        )
        read = [read_file(path, settings) for path in with_progress(args.files, "reading")]
        return together(read, settings, zone_given=args.tz is not None)


def _day(text: str | None) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--date {text} is not a day", "such as --date 2026-11-20") from error


def together(
    read: Sequence[tuple[pl.DataFrame, FileReport]], settings: NvidiaSmiSettings, *, zone_given: bool
) -> Imported:
    """Return all files of one host as one import."""
    local = any(frame["local"].is_not_null().any() for frame, _ in read)
    frame, notes, odd = _merged_rows([frame for frame, _ in read], settings.host)
    merged = sum(report.rows_kept for _, report in read) - frame.height
    frame, interval = on_grid(frame, settings.interval_ms)
    return Imported(
        settings.host,
        frame,
        daily_devices(frame),
        tuple(report for _, report in read),
        interval,
        import_zone(settings.zone, given=zone_given, local=local),
        notes,
        settings.interval_ms,
        merged,
        odd,
    )


def read_file(path: str, settings: NvidiaSmiSettings) -> tuple[pl.DataFrame, FileReport]:
    """Return one file's rows (true_ms, names of the GPU, values) and its report. Raises InputError, UsageError."""
    tally = Tally()
    source = open_source(path, settings.limits)
    if source.text is None:
        raise InputError(f"{path} is Parquet, not the CSV of nvidia-smi", "`fallow import series` reads Parquet")
    tally.notes.extend(source.notes)
    if is_xml(source.text):
        rows = rows_of_documents(xml_samples(path, source.text, settings.limits, tally), XML, tally)
        tally.notes.append("read as documents of nvidia-smi -q -x")
        return usable_rows(path, rows, settings, tally, XML)
    if (kind := kind_of_table(source.text)) is not None:
        tally.notes.append(f"read as a table of nvidia-smi {kind}")
        source = replace(source, text=table_as_csv(path, source.text, settings.day))
    rows = parse_lines(source, settings.fields, tally)
    if PROCESSES in rows.columns and rows["nameless"].any():
        raise InputError(f"{path} does not name the GPU of a process", "query gpu_uuid as well")
    return usable_rows(path, rows, settings, tally, cut_off=source.cut_off or not source.last_line_whole)


def usable_rows(
    path: str,
    rows: pl.DataFrame,
    settings: NvidiaSmiSettings,
    tally: Tally,
    tool: Exporter = TOOL,
    *,
    cut_off: bool = False,
) -> tuple[pl.DataFrame, FileReport]:
    """Return a tool's rows with UTC times and the names of their GPU, and the report. Raises InputError, UsageError."""
    lines = rows.height + tally.dropped.total() + tally.not_samples
    times = moments(rows["local"], rows["sure_ms"], settings.zone)
    if times.skipped is not None:
        raise InputError(
            f"{path}: line {rows['nr'][times.skipped] + 1} has the time {rows['local'][times.skipped]}, which "
            f"{settings.zone} skips",
            "give the zone that the host's clock showed: --tz ZONE",
        )
    tally.notes.extend(times.notes)
    tally.odd.extend([*times.odd, *_step_doubts(rows, settings.zone, noted=bool(times.notes))])
    rows = drop_impossible(rows.with_columns(true_ms=times.ms), NVIDIA_SMI_BEGAN_MS, tally)
    if rows.height:
        placed = place(path, rows, settings.interval_ms, cut_off=cut_off, tally=tally)
        rows = placed.filter(pl.any_horizontal(pl.col("uuid", "index", "pci_bus_id", "position").is_not_null()))
        tally.drop("no column names the GPU", placed.height - rows.height)
    if rows.is_empty():
        hints = {
            IN_THE_FUTURE: (
                "set the host's clock right, or name its zone with --tz: times more than a day in the future are never"
                " read"
            ),
            NO_TIME: (
                f"give times as {tool.title} writes them, with an offset (RFC 3339), or as seconds since the epoch"
            ),
        }
        only = next(iter(tally.dropped), "") if len(tally.dropped) == 1 else ""
        raise InputError(
            f"{path} has no usable row{tally.reasons}", hints.get(only, f"check that {tool.title} wrote it")
        )
    declare = {column: partial(_unit_remedy, tool, metrics[0]) for column, metrics in quantities_of(tool).items()}
    check_recording(path, rows, declare, _memory_remedy, tally)
    return rows, tally.report(path, lines, rows.height)


def _unit_remedy(tool: Exporter, metric: MappedMetric, unit: str) -> str:
    if unit == "ratio":
        return (
            f"{tool.title} writes percent: give the original file, or import it with `fallow import series --unit"
            " ratio`"
        )
    if tool is not TOOL:
        return (
            f"{f'it looks like {unit}, and ' if unit else ''}{tool.title} writes another unit: give the original file"
        )
    shown = unit or metric.unit.removeprefix("deg")
    other = ", or with [W] where the header says mW" if unit == "kW" else ""
    return (
        f"its header names the wrong unit, or none: name all columns with --fields, this one as '{metric.metric}"
        f" [{shown}]'{other}"
    )


def _memory_remedy(unit: str) -> str:
    return f"it is read as MiB{f', but looks like {unit}' if unit else ''}: give the original file"


def _step_doubts(rows: pl.DataFrame, zone: str, *, noted: bool) -> list[str]:
    """Return a doubt where a clock was set back by an hour in a zone that did not change then."""
    back = [] if noted else steps_back(rows["local"].dt.epoch("ms"))
    return [
        f"line {rows['nr'][row] + 1} is an hour before the line above it, which no clock of {zone} does: is --tz right?"
        for row in back[:1]
    ]


def _merged_rows(frames: Sequence[pl.DataFrame], host: str) -> tuple[pl.DataFrame, tuple[str, ...], tuple[str, ...]]:
    """Return all files' rows with their GPU, one row per (gpu, true_ms)."""
    rows = name_gpus(pl.concat(frames, how="diagonal"), host)
    once, again = beside_samples(rows, list(QUANTITIES))
    odd = contradictions(rows, [name for name in ("gpu_util_pct", "mem_used_bytes", "power_w") if name in rows.columns])
    check_count(once, host)
    once, notes = counted(once)
    repeated = (f"{again} rows repeat a GPU and time: first non-null values kept",) if again else ()
    return once, (*repeated, *notes), odd

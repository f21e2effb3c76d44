"""`fallow import nvidia-smi`: the CSV that `nvidia-smi --query-gpu=... --format=csv` writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from analytics.importers.devices import daily_devices
from analytics.importers.host import check_host
from analytics.importers.model import FileReport, Imported, Tally
from analytics.importers.nvidia_smi_fields import check_fields
from analytics.importers.nvidia_smi_gpus import by_position, name_gpus, named
from analytics.importers.nvidia_smi_lines import parse_lines
from analytics.importers.source import open_source
from analytics.importers.times import NVIDIA_SMI_BEGAN_MS, check_zone, given_interval_ms, in_range, localise, on_grid
from analytics.importers.unique import unique_keys
from fallow.errors import InputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from analytics.importers.model import Progress


@dataclass(frozen=True)
class Settings:
    """What the flags say about the files."""

    host: str
    zone: str
    interval_ms: int | None
    fields: tuple[str, ...] | None


class NvidiaSmi:
    """Files written by nvidia-smi on one host."""

    name = "nvidia-smi"
    summary = "CSV that nvidia-smi --query-gpu=... --format=csv wrote on one host"
    example = "fallow import nvidia-smi gpu.csv --host gn001 --tz Europe/Paris --lake /srv/lake"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Adds the importer's own flags."""
        parser.add_argument("files", nargs="+", metavar="FILE", help="CSV, plain or gzipped")
        parser.add_argument("--host", required=True, help="host on which nvidia-smi ran")
        parser.add_argument("--tz", metavar="ZONE",
                            help="the host's time zone: nvidia-smi writes local time (default: UTC)")  # fmt: skip
        parser.add_argument(
            "--interval", metavar="DURATION", help="time between samples, such as 10s (default: inferred)"
        )
        parser.add_argument("--fields", metavar="NAME,...", help="the columns of files without a header, in order")

    def read(self, args: argparse.Namespace, progress: Progress) -> Imported:
        """Reads the files; raises InputError or UsageError."""
        fields = None if args.fields is None else check_fields(args.fields.split(","))
        settings = Settings(
            check_host(args.host), check_zone(args.tz or "UTC"), given_interval_ms(args.interval), fields
        )
        read = [read_file(path, settings) for path in progress.each(args.files, "reading")]
        frame, notes = _merge([frame for frame, _ in read], settings.host)
        frame, interval = on_grid(frame, settings.interval_ms)
        return Imported(
            settings.host, frame, daily_devices(frame), tuple(report for _, report in read), interval,
            f"{settings.zone} ({'assumed' if args.tz is None else 'given'})", notes,
        )  # fmt: skip


def read_file(path: str, settings: Settings) -> tuple[pl.DataFrame, FileReport]:
    """One file's rows (true_ms, what names the GPU, values) and its account; raises InputError, UsageError."""
    tally = Tally()
    source = open_source(path)
    if source.text is None:
        raise InputError(f"{path} is Parquet, not the CSV of nvidia-smi", "`fallow import series` reads Parquet")
    tally.notes.extend(source.notes)
    rows, lines = parse_lines(source, settings.fields, tally)
    true_ms, notes = localise(rows["local"], settings.zone)
    tally.notes.extend(notes)
    rows = rows.with_columns(true_ms=true_ms)
    fits = in_range(rows, NVIDIA_SMI_BEGAN_MS)
    tally.drop(f"local time that {settings.zone} skips", true_ms.null_count())
    tally.drop("time before 2007 or in the future", int((~fits).sum()))
    rows = rows.filter(fits)
    if rows.height:
        rows = by_position(
            path, rows, settings.interval_ms, cut_off=source.cut_off or not source.last_line_whole, tally=tally
        )
        rows = named(rows, tally)
    if rows.is_empty():
        reasons = ", ".join(f"{reason}: {count}" for reason, count in tally.dropped.items())
        raise InputError(
            f"{path} has no usable row" + (f" ({reasons})" if reasons else ""), "check that nvidia-smi wrote it"
        )
    return rows, tally.report(path, lines, rows.height)


def _merge(frames: Sequence[pl.DataFrame], host: str) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """All files' rows with their GPU, one row per (gpu, true_ms)."""
    rows = name_gpus(pl.concat(frames, how="diagonal"), host)
    once = unique_keys(rows)
    again = rows.height - once.height
    notes = (f"{again} rows repeat a GPU and time: first non-null values kept",) if again else ()
    return once, notes

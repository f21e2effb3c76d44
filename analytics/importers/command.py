"""`fallow import KIND ...`: reads all files, merges them into the lake, and reports what became of every row."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence

from analytics.importers import IMPORTERS
from analytics.importers.kinds import add_kinds, open_lake
from analytics.importers.model import FileReport, Imported
from analytics.importers.publish import Published, publish
from fallow.clock import format_ms


def as_json(imported: Imported, published: Sequence[Published], lake: str) -> dict[str, object]:
    since, until = _window(imported)
    return {
        "lake": lake,
        "host": imported.host,
        "since": since,
        "until": until,
        "gpus": imported.gpu["gpu"].n_unique(),
        "interval": imported.interval,
        "timezone": imported.timezone,
        "notes": list(imported.notes),
        "files": [dataclasses.asdict(report) for report in imported.files],
        "tables": [dataclasses.asdict(each) for each in published],
    }


def as_text(imported: Imported, published: Sequence[Published], lake: str) -> str:
    since, until = _window(imported)
    lines = [line for report in imported.files for line in _file(report)]
    lines += [
        f"window    {since} to {until}",
        f"GPUs      {imported.gpu['gpu'].n_unique()} on host {imported.host}",
        f"interval  {imported.interval}",
        f"time zone {imported.timezone}",
        *(f"note      {note}" for note in imported.notes),
        f"lake      {lake}",
        *(_table(each) for each in published),
    ]
    return "\n".join(lines)


def _file(report: FileReport) -> list[str]:
    return [
        f"{report.path}: {report.lines_read:,} lines read, {report.rows_kept:,} rows kept",
        *(f"  {each.count:,} dropped: {each.reason}" for each in report.dropped),
        *(f"  {each.count:,} values of {each.column} unknown: {each.reason}" for each in report.nulled),
        *(f"  {note}" for note in report.notes),
    ]


def _table(published: Published) -> str:
    if not (published.new or published.replaced):
        return f"  {published.table}: already there: {published.already_there:,} rows"
    files = "file" if published.files_written == 1 else "files"
    return (
        f"  {published.table}: {published.new:,} rows new, {published.already_there:,} already there, "
        f"{published.replaced:,} replaced; {published.files_written:,} {files} written"
    )


def _window(imported: Imported) -> tuple[str, str]:
    """First sample's time and the end of the last interval."""
    moments = imported.gpu.select(
        first=imported.gpu["time"].dt.epoch("ms").min(),
        last=(imported.gpu["time"].dt.epoch("ms") + imported.gpu["interval_ms"]).max(),
    )
    return format_ms(moments["first"][0]), format_ms(moments["last"][0])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for importer, subcommand in add_kinds(parser, "kinds of history", IMPORTERS):
        subcommand.set_defaults(importer=importer)


def run(args: argparse.Namespace) -> int:
    _, lake = open_lake(args)
    imported = args.importer.read(args)
    published = publish(lake, imported)
    if args.json:
        print(json.dumps(as_json(imported, published, lake.root), indent=2))
    else:
        print(as_text(imported, published, lake.root))
    return 0

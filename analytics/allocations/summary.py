"""What an import of allocations read, left out and wrote, as text and as JSON."""

from __future__ import annotations

import dataclasses

from analytics.allocations.model import ReadAllocations
from analytics.importers.model import FileReport
from analytics.importers.publish import Published
from fallow.clock import format_ms


def as_json(read: ReadAllocations, published: Published, lake: str) -> dict[str, object]:
    return {
        "lake": lake,
        "claims": _allocation_count(read),
        "hosts": read.rows["host"].n_unique(),
        "running": _running(read),
        "as_of": None if read.as_of_ms is None else format_ms(read.as_of_ms),
        "timezone": read.time_zone,
        "notes": list(read.notes),
        "files": [dataclasses.asdict(report) for report in read.files],
        "tables": [dataclasses.asdict(published)],
    }


def as_text(read: ReadAllocations, published: Published, lake: str) -> str:
    as_of = "" if read.as_of_ms is None else f" as of {format_ms(read.as_of_ms)}"
    lines = [line for report in read.files for line in _file(report)]
    lines += [
        f"allocated {_allocation_count(read):,} on {read.rows['host'].n_unique():,} hosts, {_running(read):,} of them running{as_of}",
        f"time zone {read.time_zone}",
        *(f"note      {note}" for note in read.notes),
        f"lake      {lake}",
    ]
    if published.files_written:
        lines.append(
            f"  claim: {published.new:,} rows new, {published.already_there:,} already there, {published.replaced:,} "
            f"replaced; {published.files_written:,} {'file' if published.files_written == 1 else 'files'} written"
        )
    else:
        lines.append(f"  claim: already there: {published.already_there:,} rows")
    return "\n".join(lines)


def _file(report: FileReport) -> list[str]:
    return [
        f"{report.path}: {report.lines_read:,} lines read, {report.rows_kept:,} allocations kept",
        *(f"  {each.count:,} left out: {each.reason}" for each in report.dropped),
        *(f"  {note}" for note in report.notes),
    ]


def _allocation_count(read: ReadAllocations) -> int:
    return read.rows.select("claim_id", "time").unique().height


def _running(read: ReadAllocations) -> int:
    return read.rows.filter(read.rows["end"].is_null()).select("claim_id", "time").unique().height

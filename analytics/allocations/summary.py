"""The result of an import of allocations as text and as JSON: what was read, left out and written."""

from __future__ import annotations

import dataclasses
import shlex
from collections import Counter
from collections.abc import Sequence

import polars as pl

from analytics.allocations.model import ReadAllocations
from analytics.importers.command import next_line, published_line
from analytics.importers.model import FileReport
from analytics.importers.publish import Published
from fallow.clock import format_ms
from fallow.errors import InputError


def as_json(read: ReadAllocations, published: Sequence[Published] | None, lake: str) -> dict[str, object]:
    """Return the result; `published` is None where nothing was written."""
    return {
        "lake": lake,
        "allocations": _allocation_count(read),
        "named": _named_count(read),
        "hosts": read.rows["host"].n_unique(),
        "running": _running_count(read),
        "waiting": _waiting_count(read),
        "withdrawn": _withdrawn_count(read),
        "as_of": None if read.as_of_ms is None else format_ms(read.as_of_ms),
        "timezone": read.time_zone,
        "notes": list(read.notes),
        "files": [dataclasses.asdict(report) for report in read.files],
        "published": published is not None,
        "tables": [dataclasses.asdict(each) for each in published or ()],
        "next": _next_command(lake),
    }


def as_text(read: ReadAllocations, published: Sequence[Published] | None, lake: str) -> str:
    as_of = "" if read.as_of_ms is None else f" as of {format_ms(read.as_of_ms)}"
    lines = [line for report in read.files for line in _file_lines(report)]
    lines.append(
        f"allocated {_allocation_count(read):,} on {read.rows['host'].n_unique():,} hosts, {_running_count(read):,} of"
        f" them running{as_of}"
    )
    if read.rows.height:
        lines.append(f"GPUs      {_named_count(read):,} of these allocations name them, the others only count them")
    if read.requests.height:
        lines.append(
            f"requested {_waiting_count(read):,} waiting{as_of}, {_withdrawn_count(read):,} withdrawn without any GPU"
        )
    lines += [
        f"time zone {read.time_zone}",
        *(f"note      {note}" for note in read.notes),
        f"lake      {lake}",
        *(published_line(each) for each in published or () if each.files_written or each.already_there),
        "  nothing is published" if published is None else next_line(_next_command(lake)),
    ]
    return "\n".join(lines)


def _next_command(lake: str) -> str:
    """Return the command that shows the imported allocations."""
    return f"fallow allocations list --lake {shlex.quote(lake)}"


def nothing_error(read: ReadAllocations, remedies: Sequence[tuple[str, str]]) -> InputError:
    """Return the error for an import without any row; it names every reason."""
    reasons = Counter[str]()
    for report in read.files:
        reasons.update({each.reason: each.count for each in report.dropped})
    listed = "; ".join(f"{number:,} left out: {reason}" for reason, number in reasons.most_common())
    hint = next(remedy for part, remedy in remedies if part in listed)
    paths = ", ".join(report.path for report in read.files)
    return InputError(f"no GPU allocation or request to import from {paths} ({listed})", hint)


def _file_lines(report: FileReport) -> list[str]:
    return [
        f"{report.path}: {report.lines_read:,} read, {report.rows_kept:,} kept",
        *(f"  {each.count:,} left out: {each.reason}" for each in report.dropped),
        *(f"  {note}" for note in report.notes),
    ]


def _allocation_count(read: ReadAllocations) -> int:
    return read.rows.select("allocation_id", "time").unique().height


def _named_count(read: ReadAllocations) -> int:
    """Return the allocations with the UUIDs of their GPUs."""
    return read.rows.drop_nulls("gpu").select("allocation_id", "time").unique().height


def _running_count(read: ReadAllocations) -> int:
    return read.rows.filter(read.rows["end"].is_null()).select("allocation_id", "time").unique().height


def _waiting_count(read: ReadAllocations) -> int:
    """Return the waiting requests; each task of an array counts."""
    waits = pl.col("withdrawn").is_null() & pl.col("granted").is_null()
    return int(read.requests.filter(waits)["task_count"].fill_null(1).sum())


def _withdrawn_count(read: ReadAllocations) -> int:
    return int(read.requests.drop_nulls("withdrawn")["task_count"].fill_null(1).sum())

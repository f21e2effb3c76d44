"""Reads what `sacct --parsable2` prints: a header line that names the columns, and one line per job."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from fallow.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMNS = (
    "JobIDRaw", "JobID", "JobName", "User", "Account", "Partition", "QOS", "State", "Submit", "Eligible", "Start", "End",
    "ElapsedRaw", "TimelimitRaw", "Timelimit", "NodeList", "NNodes", "AllocTRES", "ReqTRES",
)  # fmt: skip
"""Columns that are made use of; others are passed over."""

EXPORT = (
    "sacct --allusers --allocations --duplicates --parsable2 --format=JobIDRaw,JobID,User,Account,Partition,QOS,State,"
    "Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,NodeList,NNodes,AllocTRES,JobName"
)
"""The command that prints all of it, without its times; the name stands last, for it may hold anything."""

_JOB_ID = re.compile(r"[\d_+.\[\]-]+")


def read_jobs(path: str, text: str) -> tuple[pl.DataFrame, int]:
    """The lines as text columns of those names (absent ones are null) with `line`, and how many lines there were.

    Raises InputError naming the line.
    """
    lines = text.split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    head = lines[first].rstrip("\r")
    closing = "|" if head.endswith("|") else ""  # --parsable ends each line with a separator
    names = _header(path, head.removesuffix(closing))
    numbers: list[int] = []
    records: list[Sequence[str]] = []
    for number, written in enumerate(lines[first + 1 :], first + 2):
        line = written.rstrip("\r")
        if not line.strip() or line == head:
            continue
        if records and names[-1] == "JobName" and _goes_on(line, cut_off=number == len(lines)):
            continue
        fields = _fields(line.removesuffix(closing), names)
        if len(fields) != len(names):
            raise InputError(
                f"{path}, line {number}: {len(fields)} fields where the header names {len(names)}",
                f"export it again with: {EXPORT}",
            )
        numbers.append(number)
        records.append(fields)
    frame = pl.DataFrame(records, schema=dict.fromkeys(names, pl.String), orient="row")
    absent = [pl.lit(None, pl.String).alias(name) for name in COLUMNS if name not in names]
    kept = frame.select([name for name in COLUMNS if name in names]).with_columns(*absent)
    return kept.with_columns(pl.Series("line", numbers, dtype=pl.Int64)), len(records)


def _header(path: str, line: str) -> list[str]:
    known = {name.lower(): name for name in COLUMNS}
    written = [name.strip() for name in line.split("|")]
    names = [known.get(name.lower(), name) for name in written]
    if "|" not in line or not {"JobIDRaw", "JobID"} & set(names):
        raise InputError(
            f"{path} does not begin with the header line of sacct --parsable2", f"export it with: {EXPORT}"
        )
    missing = [name for name in ("Start", "End", "NodeList") if name not in names]
    if not {"AllocTRES", "ReqTRES"} & set(names):
        missing.append("AllocTRES")
    if missing:
        raise InputError(f"{path} lacks the column {', '.join(missing)}", f"export it with: {EXPORT}")
    if len(set(names)) != len(names):
        raise InputError(f"{path} names a column twice in its header line", f"export it with: {EXPORT}")
    return names


def _goes_on(line: str, *, cut_off: bool) -> bool:
    """Whether a line is the rest of the job's name before it, which may hold line ends where it stands last.

    The last line of a file that was cut off may be the beginning of a job instead.
    """
    return "|" not in line and not (cut_off and _JOB_ID.fullmatch(line))


def _fields(line: str, names: Sequence[str]) -> list[str]:
    """The line's fields; what a job's name holds of the separator stays in the name."""
    fields = line.split("|")
    surplus = len(fields) - len(names)
    if surplus > 0 and "JobName" in names:
        at = names.index("JobName")
        return [*fields[:at], "|".join(fields[at : at + surplus + 1]), *fields[at + surplus + 1 :]]
    return fields

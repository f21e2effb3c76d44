"""Reads what sacct prints, with `--parsable2` (a header line, then one line per job) or with `--json` (Slurm 21.08 and newer).

Both give the same text columns. JSON has times as epoch seconds, so no time zone is needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import polars as pl

from fallow.errors import InputError

COLUMNS = (
    "JobIDRaw", "JobID", "JobName", "User", "Account", "Partition", "QOS", "State", "Submit", "Start", "End", "ElapsedRaw",
    "TimelimitRaw", "Timelimit", "NodeList", "AllocTRES", "ReqTRES",
)  # fmt: skip
"""The columns that are used; others are ignored."""

EXPORT = (
    "sacct --allusers --allocations --duplicates --parsable2 --format=JobIDRaw,JobID,User,Account,Partition,QOS,State,"
    "Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,NodeList,NNodes,AllocTRES,JobName"
)
"""The command that prints all of it, without its times; the name stands last, for it may hold anything."""

_JOB_ID = re.compile(r"[\d_+.\[\]-]+")


def read_jobs(path: str, text: str) -> tuple[pl.DataFrame, int]:
    """The jobs as text columns COLUMNS (null where absent) with `line` (`line 3`, `job 812`), and how many jobs there were.

    Raises InputError that names the line.
    """
    return _read_json(path, text) if text.lstrip().startswith("{") else _read_lines(path, text)


def _read_json(path: str, text: str) -> tuple[pl.DataFrame, int]:
    try:
        content = json.loads(text)
        jobs = [_json_job(job) for job in content["jobs"]]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not the JSON of sacct ({error})", "export it again with: sacct --json") from error
    if not jobs and content.get("errors"):
        raise InputError(f"{path}: sacct reported an error: {str(content['errors'][0])[:200]}", "export it again")
    return pl.DataFrame(jobs, schema=dict.fromkeys((*COLUMNS, "line"), pl.String)), len(jobs)


def _json_job(job: dict[str, Any]) -> dict[str, str | None]:
    times = job["time"]
    state = job["state"]["current"]
    return {
        "JobIDRaw": str(job["job_id"]),
        "JobName": job.get("name"),
        "User": job.get("user"),
        "Account": job.get("account"),
        "Partition": job.get("partition"),
        "QOS": job.get("qos"),
        "State": state if isinstance(state, str) else next(iter(state), None),
        "Submit": _json_number(times.get("submission")),
        "Start": _json_number(times["start"]),
        "End": _json_number(times["end"]),
        "ElapsedRaw": _json_number(times.get("elapsed")),
        "TimelimitRaw": _json_number(times.get("limit")),
        "NodeList": job["nodes"],
        "AllocTRES": _json_tres(job["tres"].get("allocated")),
        "ReqTRES": _json_tres(job["tres"].get("requested")),
        "line": f"job {job['job_id']}",
    }


def _json_number(value: int | dict[str, Any] | None) -> str | None:
    """A number, or since Slurm 22.05 `{"set": true, "infinite": false, "number": 60}`; 0 stands for unknown."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return str(value) if value else None


def _json_tres(entries: list[dict[str, Any]] | None) -> str:
    """`gres/gpu=8,node=1`, as the text form has it."""
    return ",".join(
        f"{entry['type']}{f'/{name}' if (name := entry.get('name')) else ''}={entry['count']}"
        for entry in entries or ()
    )


def _read_lines(path: str, text: str) -> tuple[pl.DataFrame, int]:
    lines = text.split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    head = lines[first].rstrip("\r")
    closing = "|" if head.endswith("|") else ""  # --parsable ends each line with a separator
    names = _header(path, head.removesuffix(closing))
    labels: list[str] = []
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
        labels.append(f"line {number}")
        records.append(fields)
    frame = pl.DataFrame(records, schema=dict.fromkeys(names, pl.String), orient="row")
    absent = [pl.lit(None, pl.String).alias(name) for name in COLUMNS if name not in names]
    kept = frame.select([name for name in COLUMNS if name in names]).with_columns(*absent)
    return kept.with_columns(pl.Series("line", labels, dtype=pl.String)), len(records)


def _header(path: str, line: str) -> list[str]:
    known = {name.lower(): name for name in COLUMNS}
    written = [name.strip() for name in line.split("|")]
    names = [known.get(name.lower(), name) for name in written]
    if "|" not in line or not {"JobIDRaw", "JobID"} & set(names):
        raise InputError(
            f"{path} begins neither with the header line of sacct --parsable2 nor as JSON", f"export it with: {EXPORT}"
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

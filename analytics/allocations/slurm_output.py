"""Reads Slurm's output: host lists, TRES strings, durations, `scontrol show job --details`, and sacct's jobs.

sacct prints them with `--parsable2` (a header line, then one line per job) or with `--json` (Slurm 21.08 and newer).
Both give the same text columns. JSON has times as epoch seconds, so no time zone is needed.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, TypeVar

import polars as pl

from analytics.importers.records import fault_of, frame_of, listed_items
from analytics.importers.source import InputLimits
from fallow.errors import InputError

_MOST_HOSTS = 65_536
_MOST_BRACKETS = 8
_LONGEST_NUMBER = 20
_PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_RANGES = re.compile(r"\[([^\[\]]*)\]")


@lru_cache(maxsize=4096)
def expand(text: str) -> tuple[str, ...]:
    """Return the hosts that a list names, in order. Raises ValueError for text that is not a list."""
    parts = _PART.findall(text)
    if ",".join(parts) != text or not text:
        raise ValueError(f"'{text[:40]}' is not a list of hosts")
    hosts = tuple(host for part in parts for host in _expand_part(part))
    if len(hosts) > _MOST_HOSTS:
        raise ValueError(f"'{text[:40]}...' names more than {_MOST_HOSTS} hosts")
    return tuple(dict.fromkeys(hosts))


def _expand_part(part: str) -> list[str]:
    """Return every combination of one part, which may hold several brackets (`rack[1-2]n[01-16]`)."""
    if part.count("[") > _MOST_BRACKETS:
        raise ValueError(f"'{part[:40]}...' has more than {_MOST_BRACKETS} brackets")
    found = _RANGES.search(part)
    if found is None:
        return [part]
    ends = _expand_part(part[found.end() :])
    middles = [middle for item in found[1].split(",") for middle in _numbers(item)]
    if len(middles) * len(ends) > _MOST_HOSTS:
        raise ValueError(f"'{part[:40]}' names more than {_MOST_HOSTS} hosts")
    return [part[: found.start()] + middle + end for middle in middles for end in ends]


def _numbers(item: str) -> list[str]:
    """Return the numbers of `001-003` with leading zeros. Raises ValueError for text that is not a range."""
    first, dash, last = item.partition("-")
    last = last if dash else first
    if len(first) > _LONGEST_NUMBER or len(last) > _LONGEST_NUMBER:
        raise ValueError(f"'{item[:40]}...' is not a range of numbers")
    if not (first.isdecimal() and last.isdecimal()) or not 0 <= int(last) - int(first) < _MOST_HOSTS:
        raise ValueError(f"'{item}' is not a range of numbers")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


_DURATION = re.compile(r"(?:(\d{1,9})-)?(?:(\d{1,9}):)?(?:(\d{1,9}):)?(\d{1,9})(?:\.\d+)?")
_MIG = re.compile(r"\d+g\.\d+gb", re.IGNORECASE)
_COUNT = re.compile(r"[0-9]+")
_MOST = 10**7
_TASK = r"(\d{1,7})(?:-(\d{1,7})(?::([1-9]\d{0,6}))?)?"
_TASK_RANGE = re.compile(_TASK)
_TASKS = re.compile(rf"\d+_\[({_TASK}(?:,{_TASK})*)(?:%\d+)?\]")
_SHARE = re.compile(r"(?:^|,)gres/((?:shard|mps)(?::[^=,]+)?=[^,]+)")


@lru_cache(maxsize=65_536)
def gpu_count(tres: str) -> int | None:
    """Return the GPUs in a TRES string such as `cpu=64,gres/gpu:h100=8,gres/gpu=8,node=2`; None for a job without any.

    `gres/gpu` is the sum of its types where both are present; types alone are added up. A MIG instance counts
    as one, as it does for Slurm.

    Raises:
        ValueError: a count is not a number, or exceeds any cluster's GPUs.
    """
    whole: int | None = None
    typed = 0
    for entry in tres.split(","):
        name, _, value = entry.strip().partition("=")
        if name == "gres/gpu":
            whole = _number(value, entry)
        elif name.startswith("gres/gpu:"):
            typed += _number(value, entry)
    return (typed if whole is None else whole) or None


@lru_cache(maxsize=65_536)
def gpu_model(tres: str) -> str | None:
    """Return the one GPU type that a TRES string names; None where it names none, or several."""
    models = {
        entry.strip().removeprefix("gres/gpu:").partition("=")[0] for entry in tres.split(",") if "gres/gpu:" in entry
    }
    return models.pop() if len(models) == 1 else None


def task_count(job_id: str) -> int | None:
    """Return how many tasks of an array wait together (`4_[1-5,7%2]`), 1 for others; None for a cut list (`...`)."""
    found = _TASKS.fullmatch(job_id)
    if found is None:
        return None if job_id.partition("_")[2].startswith("[") else 1
    ranges = (_TASK_RANGE.fullmatch(each) for each in found[1].split(","))
    return sum(
        len(range(int(each[1]), int(each[2] or each[1]) + 1, int(each[3] or 1))) for each in ranges if each is not None
    )


def gpu_shares(tres: str) -> str | None:
    """Return a TRES string's shares, by which jobs share a GPU (`shard=2`, `mps:a100=50`); None without any."""
    return ",".join(each for each in _SHARE.findall(tres) if not each.endswith("=0")) or None


def is_mig(gres_type: str) -> bool:
    """Return whether a GRES type names a MIG profile, such as `a100_1g.10gb`."""
    return _MIG.search(gres_type) is not None


def _number(value: str, entry: str) -> int:
    if not _COUNT.fullmatch(value):
        raise ValueError(f"'{entry}' is not a count")
    if len(value) > len(str(_MOST)) or int(value) > _MOST:
        raise ValueError(f"'{entry}' counts more GPUs than any cluster has")
    return int(value)


def duration_ms(text: str) -> int | None:
    """Return the duration of `[DAYS-][HOURS:]MINUTES:SECONDS`; None for UNLIMITED, Partition_Limit and the like."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or text.strip().isdecimal():
        return None
    days, first, second, seconds = found.groups()
    hours, minutes = (first, second) if second is not None else (None, first)
    return 1000 * (((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60 + int(seconds))


# only at the start of a line: a job's name comes later and may hold any text
_JOB = re.compile(r"^JobId=(\d+) ", re.MULTILINE)
_START = re.compile(r"^ +StartTime=(\S+) ", re.MULTILINE)
_NODES = re.compile(r"^ +Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S+)", re.MULTILINE)
_GPUS = re.compile(r"gpu(?::([^:(),]+))??:(\d+)\(IDX:([\d,-]+)\)")


@dataclass(frozen=True)
class JobGpus:
    """One job on one node, and the positions of its GPUs among those that Slurm knows of the node.

    `start` is the start as text; empty where the output has none.
    """

    job_id: str
    node: str
    positions: tuple[int, ...]
    start: str = ""


def job_gpus(text: str) -> Iterator[JobGpus]:
    """Return the jobs whose GPUs are named. Raises ValueError for a malformed list.

    MIG instances are left out: their positions are not those of GPUs.
    """
    for job in re.split(r"\n(?=JobId=)", text):
        found = _JOB.match(job)
        if found is None:
            continue
        start = _START.search(job)
        for nodes, gres in _NODES.findall(job):
            for node in expand(nodes) if (positions := gres_positions(gres)) else ():
                yield JobGpus(found[1], node, positions, start[1] if start else "")


def gres_positions(gres: str) -> tuple[int, ...]:
    """Return the positions in `gpu:h100:2(IDX:0,2)`; none where there is no GPU, or a MIG instance."""
    entries = _GPUS.findall(gres)
    if any(is_mig(kind) for kind, _, _ in entries):
        return ()
    return tuple(position for _, _, listed in entries for position in _positions(listed))


def _positions(text: str) -> list[int]:
    """Return the positions in `0-1,3`. Raises ValueError for text that is not such a list."""
    return [int(number) for item in text.strip(",").split(",") for number in _numbers(item)]


COLUMNS = (
    "Cluster",
    "JobIDRaw",
    "JobID",
    "JobName",
    "User",
    "Account",
    "WCKey",
    "Partition",
    "QOS",
    "Priority",
    "State",
    "Reason",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "ElapsedRaw",
    "TimelimitRaw",
    "Timelimit",
    "NodeList",
    "NNodes",
    "NTasks",
    "AllocTRES",
    "ReqTRES",
    "AllocGRES",
    "ReqGRES",
    "TRESUsageInAve",
    "TRESUsageInMax",
    "TRESUsageInTot",
)
"""The columns that are used; others are ignored."""

EXPORT = (
    "sacct --allusers --duplicates --parsable2"
    " --format=Cluster,JobIDRaw,JobID,User,Account,WCKey,Partition,QOS,Priority,"
    "State,Reason,Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,NodeList,NNodes,NTasks,AllocTRES,ReqTRES,"
    "TRESUsageInAve,TRESUsageInMax,TRESUsageInTot,JobName"
)
"""The command that prints these columns, without its times; the name comes last, because it may hold any text.

Without `--allocations` it prints the steps too, which have the use of the GPUs.
"""

_Job = dict[str, str | None]
_Read = TypeVar("_Read")
_JOB_ID = re.compile(r"[\d_+.\[\]-]+")


def read_jobs(path: str, text: bytes, limits: InputLimits) -> pl.DataFrame:
    """Return the jobs as text columns COLUMNS (null where absent) with `line` (`line 3`, `job 812`).

    Raises InputError that names the line.
    """
    if text.lstrip().startswith(b"{"):
        nested = json_jobs(
            path, text, limits, ("sacct", "sacct --json"), lambda job: [_json_job(job), *_json_steps(job)]
        )
        jobs: Iterator[_Job] = chain.from_iterable(nested)
    else:
        jobs = _line_jobs(path, text)
    return frame_of(jobs, dict.fromkeys((*COLUMNS, "line"), pl.String()))


def json_jobs(
    path: str, text: bytes, limits: InputLimits, program: tuple[str, str], job_of: Callable[[dict[str, Any]], _Read]
) -> Iterator[_Read]:
    """Yield the jobs in the text of `program` (name, command). Raises InputError where a part is incomplete.

    `job_of` reads one job; it may raise ValueError, LookupError, TypeError and AttributeError.
    """
    name, command = program
    try:
        around, is_empty = yield from listed_items(path, text, ("jobs", "job"), limits, job_of)
        errors = around["errors"] if is_empty and not around["jobs"] and around.get("errors") else ()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path} is not the JSON of {name}: {fault_of(error)}", f"export it again with: {command}"
        ) from error
    for each in errors:
        raise InputError(f"{path}: {name} reported an error: {str(each)[:200]}", "export it again")


def _json_job(job: dict[str, Any]) -> _Job:
    if "job_state" in job:
        raise ValueError("it is that of squeue or scontrol, which --scontrol reads beside an export of sacct")
    times = job["time"]
    state = job["state"]["current"]
    return {
        "Cluster": job.get("cluster"),
        "JobIDRaw": str(job["job_id"]),
        "JobID": _json_array(job["job_id"], job.get("array")),
        "JobName": job.get("name"),
        "User": job.get("user"),
        "Account": job.get("account"),
        "WCKey": (job.get("wckey") or {}).get("wckey"),
        "Partition": job.get("partition"),
        "QOS": job.get("qos"),
        "Priority": json_number(job.get("priority"), is_zero_known=True),
        "State": state if isinstance(state, str) else next(iter(state), None),
        "Reason": job["state"].get("reason"),
        "Submit": json_number(times.get("submission")),
        "Eligible": json_number(times.get("eligible")),
        "Start": json_number(times["start"]),
        "End": json_number(times["end"]),
        "ElapsedRaw": json_number(times.get("elapsed")),
        "TimelimitRaw": json_number(times.get("limit")),
        "NodeList": job["nodes"],
        "AllocTRES": _json_tres(job["tres"].get("allocated")),
        "ReqTRES": _json_tres(job["tres"].get("requested")),
        "line": f"job {job['job_id']}",
    }


def _json_steps(job: dict[str, Any]) -> Iterator[_Job]:
    """Yield a job's steps with GPU figures; Slurm's JSON calls what went in `requested`, what went out `consumed`."""
    for step in job.get("steps") or ():
        tres = step.get("tres") or {}
        used = {each: _json_tres(entries) for each, entries in (tres.get("requested") or {}).items()}
        if not any("gres/gpu" in each for each in used.values()):
            continue
        name = step["step"]["id"]
        yield {
            "JobIDRaw": f"{job['job_id']}.{name['step_id'] if isinstance(name, dict) else name.partition('.')[2]}",
            "ElapsedRaw": json_number((step.get("time") or {}).get("elapsed")),
            "NTasks": json_number((step.get("tasks") or {}).get("count")),
            "AllocTRES": _json_tres(tres.get("allocated")),
            "TRESUsageInAve": used.get("average"),
            "TRESUsageInMax": used.get("max"),
            "TRESUsageInTot": used.get("total"),
            "line": f"job {job['job_id']}",
        }


def json_number(value: int | dict[str, Any] | None, *, is_zero_known: bool = False) -> str | None:
    """Return a number as text; 0 is unknown (None) unless `is_zero_known`.

    Since Slurm 22.05 it comes as `{"set": true, "infinite": false, "number": 60}`.
    """
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return None if value is None or (value == 0 and not is_zero_known) else str(value)


def _json_array(job_id: int, array: dict[str, Any] | None) -> str:
    """Return `4_[1-5%2]` for an array whose tasks wait, which Slurm 22.05 gives as a bit mask; else the plain id."""
    tasks = (array or {}).get("task")
    if not tasks:
        return str(job_id)
    if tasks.startswith("0x"):
        tasks = ",".join(str(task) for task, bit in enumerate(f"{int(tasks, 16):b}"[::-1]) if bit == "1")
    return f"{job_id}_[{tasks}]"


def _json_tres(entries: list[dict[str, Any]] | None) -> str:
    """Return `gres/gpu=8,node=1`, as the text form has it."""
    return ",".join(
        f"{entry['type']}{f'/{name}' if (name := entry.get('name')) else ''}={entry['count']}"
        for entry in entries or ()
    )


def _line_jobs(path: str, text: bytes) -> Iterator[_Job]:
    lines = ((number, raw.decode(errors="replace")) for number, raw in enumerate(io.BytesIO(text), 1))
    head = next((written.rstrip("\r\n") for _, written in lines if written.strip()), "")
    separator = max("|;\t", key=head.count)  # of --delimiter, or of a spreadsheet
    closing = separator if head.endswith(separator) else ""  # --parsable ends each line with a separator
    names = _header(path, head.removesuffix(closing), separator)
    places = {name: names.index(name) for name in COLUMNS if name in names}
    any_job = False
    for number, written in lines:
        line = written.rstrip("\r\n")
        if not line.strip() or line == head:
            continue
        if any_job and names[-1] == "JobName" and _continues_name(line, separator, cut_off=not written.endswith("\n")):
            continue
        fields = _fields(line.removesuffix(closing), names, separator)
        if len(fields) != len(names):
            raise InputError(
                f"{path}, line {number}: {len(fields)} fields where the header names {len(names)}",
                f"export it again with: {EXPORT}",
            )
        any_job = True
        job: _Job = {name: fields[place].strip() or None for name, place in places.items()}
        yield job | {"line": f"line {number}"}


def _header(path: str, line: str, separator: str) -> list[str]:
    known = {name.lower(): name for name in COLUMNS}
    written = [name.strip() for name in line.split(separator)]
    names = [known.get(name.lower(), name) for name in written]
    if separator not in line or not {"JobIDRaw", "JobID"} & set(names):
        by_commas = "jobid" in line.lower() and "," in line
        why = (
            "its fields are separated by commas, which fields of sacct contain"
            if by_commas
            else f"it begins with '{line.strip()[:60]}'"
        )
        raise InputError(
            f"{path} begins neither with the header line of sacct --parsable2 nor as JSON: {why}",
            f"export it with: {EXPORT}",
        )
    missing = [name for name in ("Start", "End", "NodeList") if name not in names]
    if not {"AllocTRES", "ReqTRES"} & set(names):
        missing.append("AllocTRES")
    if missing:
        raise InputError(f"{path} lacks the column {', '.join(missing)}", f"export it with: {EXPORT}")
    if len(set(names)) != len(names):
        raise InputError(f"{path} names a column twice in its header line", f"export it with: {EXPORT}")
    return names


def _continues_name(line: str, separator: str, *, cut_off: bool) -> bool:
    """Return whether a line continues the job name before it, which may hold line ends where it comes last.

    The last line of a truncated file may be the start of a job instead.
    """
    return separator not in line and not (cut_off and _JOB_ID.fullmatch(line))


def _fields(line: str, names: Sequence[str], separator: str) -> list[str]:
    """Return the line's fields; separators inside a job's name stay in the name."""
    fields = line.split(separator)
    surplus = len(fields) - len(names)
    if surplus > 0 and "JobName" in names:
        at = names.index("JobName")
        return [*fields[:at], separator.join(fields[at : at + surplus + 1]), *fields[at + surplus + 1 :]]
    return fields

"""Slurm's notations: host lists, TRES strings, durations, and the GPUs of running jobs in `scontrol show job --details`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

_MOST_HOSTS = 65_536
_MOST_BRACKETS = 8
_LONGEST_NUMBER = 20
_PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_RANGES = re.compile(r"\[([^\[\]]*)\]")


@lru_cache(maxsize=4096)
def expand(text: str) -> tuple[str, ...]:
    """The hosts that a list names, in order; ValueError for what is no list."""
    parts = _PART.findall(text)
    if ",".join(parts) != text or not text:
        raise ValueError(f"'{text[:40]}' is not a list of hosts")
    hosts = tuple(host for part in parts for host in _expand_part(part))
    if len(hosts) > _MOST_HOSTS:
        raise ValueError(f"'{text[:40]}...' names more than {_MOST_HOSTS} hosts")
    return tuple(dict.fromkeys(hosts))


def _expand_part(part: str) -> list[str]:
    """One part, which may hold several brackets (`rack[1-2]n[01-16]`): every combination."""
    if part.count("[") > _MOST_BRACKETS:
        raise ValueError(f"'{part[:40]}...' has more than {_MOST_BRACKETS} brackets")
    found = _RANGES.search(part)
    if found is None:
        return [part]
    rest = _expand_part(part[found.end() :])
    middles = [middle for item in found[1].split(",") for middle in _numbers(item)]
    if len(middles) * len(rest) > _MOST_HOSTS:
        raise ValueError(f"'{part[:40]}' names more than {_MOST_HOSTS} hosts")
    return [part[: found.start()] + middle + end for middle in middles for end in rest]


def _numbers(item: str) -> list[str]:
    """`001-003` with its leading zeros; ValueError for what is no range."""
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
_SHARE = re.compile(r"(?:^|,)gres/(?:shard|mps)[:=]")


@lru_cache(maxsize=65_536)
def gpu_count(tres: str) -> int | None:
    """The GPUs in a TRES string such as `cpu=64,gres/gpu:h100=8,gres/gpu=8,node=2`; None for a job without any.

    `gres/gpu` is the sum of its types where both are there; where only types are, they are added up. A MIG instance counts
    as one, as it does for Slurm.

    Raises:
        ValueError: a count is no number, or more than any cluster has.
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
    """The one type of GPU that a TRES string names; None where it names none, or several."""
    models = {
        entry.strip().removeprefix("gres/gpu:").partition("=")[0] for entry in tres.split(",") if "gres/gpu:" in entry
    }
    return models.pop() if len(models) == 1 else None


def task_count(job_id: str) -> int | None:
    """The tasks of an array that wait together (`4_[1-5,7%2]`), 1 for any other job; None where the list is cut short (`...`)."""
    found = _TASKS.fullmatch(job_id)
    if found is None:
        return None if job_id.partition("_")[2].startswith("[") else 1
    ranges = (_TASK_RANGE.fullmatch(each) for each in found[1].split(","))
    return sum(
        len(range(int(each[1]), int(each[2] or each[1]) + 1, int(each[3] or 1))) for each in ranges if each is not None
    )


def has_share(tres: str) -> bool:
    """Whether a TRES string has shares of GPUs (`gres/shard`, `gres/mps`), which several jobs have of one GPU."""
    return _SHARE.search(tres) is not None


def is_mig(gres_type: str) -> bool:
    """Whether a GRES type names a MIG profile, such as `a100_1g.10gb`."""
    return _MIG.search(gres_type) is not None


def _number(value: str, entry: str) -> int:
    if not _COUNT.fullmatch(value):
        raise ValueError(f"'{entry}' is not a count")
    if len(value) > len(str(_MOST)) or int(value) > _MOST:
        raise ValueError(f"'{entry}' counts more GPUs than any cluster has")
    return int(value)


def duration_ms(text: str) -> int | None:
    """Slurm's `[DAYS-][HOURS:]MINUTES:SECONDS`; None for UNLIMITED, Partition_Limit and the like."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or text.strip().isdecimal():
        return None
    days, first, second, seconds = found.groups()
    hours, minutes = (first, second) if second is not None else (None, first)
    return 1000 * (((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60 + int(seconds))


# at the start of a line each: a job's name stands further behind and may hold anything
_JOB = re.compile(r"^JobId=(\d+) ", re.MULTILINE)
_START = re.compile(r"^ +StartTime=(\S+) ", re.MULTILINE)
_NODES = re.compile(r"^ +Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S+)", re.MULTILINE)
_GPUS = re.compile(r"gpu(?::([^:(),]+))??:(\d+)\(IDX:([\d,-]+)\)")


@dataclass(frozen=True)
class JobGpus:
    """One job on one node, and the positions of its GPUs among those that Slurm knows of the node.

    `start` is when it began, as it is written; empty where that is not there.
    """

    job_id: str
    node: str
    positions: tuple[int, ...]
    start: str = ""


def job_gpus(text: str) -> Iterator[JobGpus]:
    """Jobs whose GPUs are named; ValueError for a list that is none.

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
    """Those in `gpu:h100:2(IDX:0,2)`; none where there is no GPU, or a MIG instance."""
    entries = _GPUS.findall(gres)
    if any(is_mig(kind) for kind, _, _ in entries):
        return ()
    return tuple(position for _, _, listed in entries for position in _positions(listed))


def _positions(text: str) -> list[int]:
    """`0-1,3`; ValueError for what is no list of them."""
    return [int(number) for item in text.strip(",").split(",") for number in _numbers(item)]

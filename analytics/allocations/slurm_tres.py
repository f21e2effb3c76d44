"""What Slurm counts of a job: GPUs in TRES strings, time limits, and positions of GPUs on a node."""

from __future__ import annotations

import re
from functools import lru_cache

_DURATION = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(?:(\d+):)?(\d+)(?:\.\d+)?")
_MIG = re.compile(r"\d+g\.\d+gb", re.IGNORECASE)
_COUNT = re.compile(r"[0-9]+")
_MOST = 10**7
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


def has_share(tres: str) -> bool:
    """Whether a TRES string has shares of GPUs (`gres/shard`, `gres/mps`), which several jobs have of one GPU."""
    return _SHARE.search(tres) is not None


def is_mig(gres_type: str) -> bool:
    """Whether a GRES type names a MIG profile, such as `a100_1g.10gb`."""
    return _MIG.search(gres_type) is not None


def _number(value: str, entry: str) -> int:
    if not _COUNT.fullmatch(value):
        raise ValueError(f"'{entry}' counts nothing")
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

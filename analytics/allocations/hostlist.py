"""Slurm's host lists: `gn[001-003,007],login1`."""

from __future__ import annotations

import re
from functools import lru_cache

_MOST_HOSTS = 65_536
_PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_RANGES = re.compile(r"\[([^\[\]]*)\]")


@lru_cache(maxsize=65_536)
def expand(text: str) -> tuple[str, ...]:
    """The hosts that a list names, in order; ValueError for what is no list."""
    parts = _PART.findall(text)
    if ",".join(parts) != text or not text:
        raise ValueError(f"'{text}' is no list of hosts")
    hosts = tuple(host for part in parts for host in _expand_part(part))
    if len(hosts) > _MOST_HOSTS:
        raise ValueError(f"'{text[:40]}...' names more than {_MOST_HOSTS} hosts")
    return tuple(dict.fromkeys(hosts))


def _expand_part(part: str) -> list[str]:
    """One part, which may hold several brackets (`rack[1-2]n[01-16]`): every combination."""
    found = _RANGES.search(part)
    if found is None:
        return [part]
    rest = _expand_part(part[found.end() :])
    middles = [middle for item in found[1].split(",") for middle in _numbers(item)]
    if len(middles) * len(rest) > _MOST_HOSTS:
        raise ValueError(f"'{part}' names more than {_MOST_HOSTS} hosts")
    return [part[: found.start()] + middle + end for middle in middles for end in rest]


def _numbers(item: str) -> list[str]:
    """`001-003` with its leading zeros; ValueError for what is no range."""
    first, dash, last = item.partition("-")
    last = last if dash else first
    if not (first.isdecimal() and last.isdecimal()) or not 0 <= int(last) - int(first) < _MOST_HOSTS:
        raise ValueError(f"'{item}' is no range of numbers")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]

"""A window of a server cut into pieces of work of bounded size: some hosts for a stretch of the window."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from analytics.scraped.discovery import FoundHost
from fallow.clock import DAY_MS, SECOND_MS, floor_ms

MOST_SAMPLES = 500_000
"""Of one chunk: 10 MB as a frame, and many times that while rows are made of it and the next one is read."""

_USUAL_STEP_MS = 15 * SECOND_MS
"""Between two samples of a series, until some were read."""


@dataclass(frozen=True)
class Chunk:
    """What is read, made into rows and published at a time."""

    since_ms: int
    until_ms: int
    hosts: tuple[str, ...]
    instances: frozenset[str]
    share: float
    """Of the whole window's work, 0 to 1."""


class Chunker:
    """Cuts windows; learns from what was read how dense samples are."""

    def __init__(self, most_samples: int = MOST_SAMPLES) -> None:
        self._most = most_samples
        self._per_series_ms = 1 / _USUAL_STEP_MS

    def learn(self, samples: int, series: int, length_ms: int) -> None:
        """How many samples a chunk had; a chunk without any says nothing."""
        if samples and series:
            self._per_series_ms = samples / (series * length_ms)

    def chunks(self, hosts: Iterable[FoundHost], since_ms: int, until_ms: int) -> list[Chunk]:
        """All of a window, each host and moment once; hosts that share a target are in one chunk, which may be cut in time instead."""
        groups = list(_groups(hosts))
        total = sum(group.series for group in groups) or 1
        room = self._most / (self._per_series_ms * (until_ms - since_ms))
        found: list[Chunk] = []
        for own in _packed(groups, room):
            series = sum(group.series for group in own)
            parts = max(1, math.ceil(series / room))
            names = tuple(name for group in own for name in group.names)
            instances = frozenset(instance for group in own for instance in group.instances)
            found += [
                Chunk(start, end, names, instances, series / total * (end - start) / (until_ms - since_ms))
                for start, end in _stretches(since_ms, until_ms, parts)
            ]
        return found


def days(since_ms: int, until_ms: int, step_ms: int = DAY_MS) -> Iterator[tuple[int, int]]:
    """The window in UTC days, or shorter steps of one grid."""
    start_ms = since_ms
    while start_ms < until_ms:
        end_ms = min(until_ms, floor_ms(start_ms, step_ms) + step_ms)
        yield start_ms, end_ms
        start_ms = end_ms


@dataclass
class _Group:
    """Hosts that share targets."""

    names: list[str]
    instances: set[str]
    series: int


def _groups(hosts: Iterable[FoundHost]) -> Iterator[_Group]:
    by_instance: dict[str, _Group] = {}
    groups: dict[int, _Group] = {}
    for host in hosts:
        group = _Group([host.name], set(host.instances), host.series)
        for other in {
            id(by_instance[each]): by_instance[each] for each in host.instances if each in by_instance
        }.values():
            group = _Group([*other.names, *group.names], other.instances | group.instances, other.series + group.series)
            del groups[id(other)]
        groups[id(group)] = group
        by_instance |= dict.fromkeys(group.instances, group)
    yield from groups.values()


def _packed(groups: Iterable[_Group], room: float) -> Iterator[list[_Group]]:
    """The groups in order, as many at a time as there is room for, and at least one."""
    own: list[_Group] = []
    for group in groups:
        if own and sum(each.series for each in own) + group.series > room:
            yield own
            own = []
        own.append(group)
    if own:
        yield own


def _stretches(since_ms: int, until_ms: int, parts: int) -> Iterator[tuple[int, int]]:
    length = -(-(until_ms - since_ms) // parts)
    return ((start, min(start + length, until_ms)) for start in range(since_ms, until_ms, length))

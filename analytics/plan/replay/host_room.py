"""Free GPUs on hosts, now and at each moment to come, and where a job finds room: on the fullest hosts that have it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import and_
from typing import TypeAlias

Hold: TypeAlias = tuple[tuple[int, int], ...]
"""How many GPUs of which hosts."""


class HostRoom:
    """How many GPUs of each host are free.

    Hosts with equally many are the bits of one number each, so that a search looks at eight numbers and not at every
    host. `widest` is how many GPUs a host has at most.
    """

    def __init__(self, free: Sequence[int], widest: int) -> None:
        self.free, self.widest = list(free), widest
        self._by_free = [0] * (widest + 1)
        for host, gpus in enumerate(free):
            self._by_free[gpus] |= 1 << host

    def set(self, host: int, gpus: int) -> None:
        """Set the number of a host's free GPUs."""
        bit = 1 << host
        self._by_free[self.free[host]] ^= bit
        self._by_free[gpus] |= bit
        self.free[host] = gpus

    def take(self, hold: Hold) -> None:
        for host, gpus in hold:
            self.set(host, self.free[host] - gpus)

    def give_back(self, hold: Hold) -> None:
        for host, gpus in hold:
            self.set(host, self.free[host] + gpus)

    def fit(self, gpus: int, hosts: int = 1) -> Hold | None:
        """Return room for this number of GPUs, spread evenly over this number of hosts; None where there is none."""
        return fit_by_free(self._by_free, gpus, hosts)


def fit_by_free(by_free: Sequence[int], gpus: int, hosts: int) -> Hold | None:
    """Return the same; `by_free` has, by number of free GPUs, the hosts with exactly that many as bits."""
    if hosts == 1:
        for mask in by_free[gpus:]:
            if mask:
                return (((mask & -mask).bit_length() - 1, gpus),)
        return None
    least, larger = divmod(gpus, hosts)
    used, found = 0, list[tuple[int, int]]()
    for share, count in ((least + 1, larger), (least, hosts - larger)):
        own = _fullest(by_free[share:], count, used)
        if own is None:
            return None
        found += [(host, share) for host in own]
        used |= sum(1 << host for host in own)
    return tuple(found)


def _fullest(by_free: Sequence[int], count: int, used: int) -> list[int] | None:
    """Return `count` hosts, those with the fewest free GPUs first, without those in `used`; None if there are fewer."""
    found: list[int] = []
    for mask in by_free:
        rest = mask & ~used
        while rest and len(found) < count:
            lowest = rest & -rest
            found.append(lowest.bit_length() - 1)
            rest ^= lowest
    return found if len(found) == count else None


class RoomAhead:
    """Steps from now on: at each, bit by bit the hosts that have at least 0, 1, 2 ... free GPUs.

    `free` has the GPUs of each host that are free now, `widest` is how many a host has at most, and `ends` says when
    which come free, the earliest first; those that are late come free at once after now.
    """

    def __init__(self, now: int, free: Sequence[int], widest: int, ends: Iterable[tuple[int, Hold]]) -> None:
        levels = [sum(1 << host for host, gpus in enumerate(free) if gpus >= level) for level in range(widest + 1)]
        self._moments, self._steps = [now], [levels]
        self._reserved: dict[tuple[int, int], tuple[int, int]] = {}
        for end, hold in ends:
            moment = max(end, now + 1)
            if moment > self._moments[-1]:
                self._moments.append(moment)
                self._steps.append(list(self._steps[-1]))
            for share, hosts in _by_share(hold):
                step = self._steps[-1]
                step[1:] = [
                    mine | (fewer & hosts) for mine, fewer in zip(step[1:], [-1] * (share - 1) + step, strict=False)
                ]

    def reserve(self, gpus: int, hosts: int, lasting_ms: int) -> tuple[int, Hold]:
        """Return the first moment from which a job has room for this long, and where. Take the room."""
        least, larger = divmod(gpus, hosts)
        for first in range(self._first_to_try(gpus, hosts, lasting_ms), len(self._moments)):
            moment = self._moments[first]
            after = bisect_left(self._moments, moment + lasting_ms, lo=first + 1)
            if self._has_room(first, after, least, hosts) and (
                not larger or self._has_room(first, after, least + 1, larger)
            ):
                hold = self._fit(first, after, gpus, hosts)
                self._take(first, after, moment + lasting_ms, hold)
                self._reserved[gpus, hosts] = lasting_ms, moment
                return moment, hold
        raise AssertionError  # at the end all is free, and jobs that fit nowhere do not wait

    def _first_to_try(self, gpus: int, hosts: int, lasting_ms: int) -> int:
        """Return the step of the last reservation of this shape for no longer: before it, no room was left."""
        lasted_ms, moment = self._reserved.get((gpus, hosts), (0, self._moments[0]))
        return bisect_left(self._moments, moment) if lasted_ms <= lasting_ms else 0

    def _has_room(self, first: int, after: int, gpus: int, hosts: int) -> bool:
        """Return whether enough hosts have this number of GPUs all the time."""
        there = -1
        for step in self._steps[first:after]:
            there &= step[gpus]
            if there.bit_count() < hosts:
                return False
        return True

    def _fit(self, first: int, after: int, gpus: int, hosts: int) -> Hold:
        """Return the room on the hosts that have the least to spare over that time."""
        at_least = [reduce(and_, levels) for levels in zip(*self._steps[first:after], strict=True)]
        exactly = [mine & ~more for mine, more in zip(at_least, [*at_least[1:], 0], strict=True)]
        return fit_by_free(exactly, gpus, hosts) or ()

    def _take(self, first: int, after: int, end: int, hold: Hold) -> None:
        if after == len(self._moments) or self._moments[after] != end:
            self._moments.insert(after, end)
            self._steps.insert(after, list(self._steps[after - 1]))
        for share, hosts in _by_share(hold):
            for step in self._steps[first:after]:
                step[1:] = [
                    (mine & ~hosts) | (more & hosts)
                    for mine, more in zip(step[1:], step[1 + share :] + [0] * share, strict=True)
                ]


def _by_share(hold: Hold) -> Iterator[tuple[int, int]]:
    """Yield each number of GPUs that the hold has of a host, with the bits of these hosts."""
    for share in {gpus for _, gpus in hold}:
        yield share, sum(1 << host for host, gpus in hold if gpus == share)

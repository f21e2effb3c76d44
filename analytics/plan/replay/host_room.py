"""Free GPUs on hosts, and where a job finds room: on the fullest hosts that have it, so that whole hosts stay whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Hold: TypeAlias = tuple[tuple[int, int], ...]
"""How many GPUs of which hosts."""


class HostRoom:
    """How many GPUs of each host are free.

    Hosts with equally many are the bits of one number each, so that a search looks at eight numbers and not at every host. `widest` is how
    many GPUs a host has at most.
    """

    def __init__(self, free: Sequence[int], widest: int) -> None:
        self.free = list(free)
        self._by_free = [0] * (widest + 1)
        for host, gpus in enumerate(free):
            self._by_free[gpus] |= 1 << host

    def set(self, host: int, gpus: int) -> None:
        """From now on the host has so many free GPUs."""
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
        """Room for so many GPUs, spread as evenly as can be over so many hosts; None where there is none."""
        return fit_by_free(self._by_free, gpus, hosts)


def fit_by_free(by_free: Sequence[int], gpus: int, hosts: int) -> Hold | None:
    """The same, where hosts with exactly so many free GPUs are the bits of each number."""
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
    """So many hosts, those with the fewest free GPUs first, without those in `used`."""
    found: list[int] = []
    for mask in by_free:
        rest = mask & ~used
        while rest and len(found) < count:
            lowest = rest & -rest
            found.append(lowest.bit_length() - 1)
            rest ^= lowest
    return found if len(found) == count else None

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
        if hosts == 1:
            for mask in self._by_free[gpus:]:
                if mask:
                    return (((mask & -mask).bit_length() - 1, gpus),)
            return None
        return self._spread(gpus, hosts)

    def _spread(self, gpus: int, hosts: int) -> Hold | None:
        least, larger = divmod(gpus, hosts)
        used, found = 0, []
        for share, count in ((least + 1, larger), (least, hosts - larger)):
            own = self._fullest(share, count, used)
            if own is None:
                return None
            found += [(host, share) for host in own]
            used |= sum(1 << host for host in own)
        return tuple(found)

    def _fullest(self, gpus: int, count: int, used: int) -> list[int] | None:
        """So many hosts with as few free GPUs as will do, without those in `used`."""
        found: list[int] = []
        for mask in self._by_free[gpus:]:
            rest = mask & ~used
            while rest and len(found) < count:
                lowest = rest & -rest
                found.append(lowest.bit_length() - 1)
                rest ^= lowest
        return found if len(found) == count else None

"""The idle GPUs of one pool over time, host by host, as a schedule would find them: looked up, taken and given back."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

Counts: TypeAlias = NDArray[np.int16]
WHOLE_POOL = 0
"""The area that is all hosts of a pool."""


@dataclass(frozen=True, slots=True)
class Want:
    """GPUs that are wanted at once: in groups of `per_host` that lie on one host each, or wherever they are where that is 0."""

    gpus: int
    per_host: int = 0

    def anywhere(self) -> Want:
        """The same number of GPUs, however they lie."""
        return Want(self.gpus, 1 if self.gpus == 1 else 0)


@dataclass(frozen=True, slots=True)
class Place:
    """GPUs of some hosts (`rows` of the pool, `counts` of each) in the steps [first, last)."""

    pool: IdlePool
    rows: Sequence[int]
    counts: Sequence[int]
    first: int
    last: int


@dataclass(eq=False)
class IdlePool:
    """How many GPUs of each host are idle in each step; taking more than are idle makes it negative.

    `moments` are when anything changes, the first and last being those of the window, `free` has a row for each of `hosts`
    and a column for each step between two moments. An area is a set of hosts; `memory_gib` is None where it is not known.

    `excess` is by how many the claims of those that are still where they really ran exceed the GPUs that they may have beside the
    idle ones that are counted in `free`: so many are none of theirs to give back; `excess_at_first` is the same before anybody left. `unused_of` has the GPUs among the idle ones
    that a job had and did not use, by its name in the ledger.
    """

    hosts: Sequence[str]
    width: int
    memory_gib: int | None
    moments: list[int]
    free: Counts
    excess: Counts
    unused_of: dict[str, list[Place]] = field(default_factory=dict)
    _areas: list[frozenset[int]] = field(default_factory=list)
    _rows: list[list[int]] = field(default_factory=list)
    _totals: list[NDArray[np.int32]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Area 0 is the whole pool."""
        self._grid = np.asarray(self.moments)
        self.excess_at_first = self.excess.copy()
        self._given_back = np.zeros(len(self.moments), bool)
        self.row_of = {host: row for row, host in enumerate(self.hosts)}
        self.area(self.hosts)

    def area(self, hosts: Iterable[str]) -> int:
        """The number of the area that some of the hosts are."""
        rows = frozenset(self.row_of[host] for host in hosts if host in self.row_of)
        if rows not in self._areas:
            self._areas.append(rows)
            self._rows.append(sorted(rows))
            self._totals.append(self.free[sorted(rows)].sum(axis=0, dtype=np.int32))
        return self._areas.index(rows)

    def add(self, more: Counts) -> None:
        """So many more GPUs are idle in each step of each host."""
        self.free += more
        self._totals = [self.free[rows].sum(axis=0, dtype=np.int32) for rows in self._rows]

    def change(self, place: Place, sign: int) -> None:
        """Gives the GPUs of a place back (1) or takes them (-1)."""
        first, last = place.first, place.last
        for row, count in zip(place.rows, place.counts, strict=True):
            self.free[row, first:last] += sign * count
        for rows, total in zip(self._areas, self._totals, strict=True):
            gpus = sum(count for row, count in zip(place.rows, place.counts, strict=True) if row in rows)
            total[first:last] += sign * gpus
        if sign > 0:
            self._given_back[first:last] = True

    def given_back(self, place: Place, job: str) -> list[Place]:
        """What becomes idle when a job leaves where it really ran: its GPUs, less those that count as idle already."""
        found = [place]
        for row, count in zip(place.rows, place.counts, strict=True):
            beyond = self.excess[row, place.first : place.last]
            if beyond.size and beyond.max() > 0:
                idle = beyond.clip(0, count)
                cuts = [0, *(np.flatnonzero(np.diff(idle)) + 1).tolist(), len(idle)]
                found += [
                    Place(self, (row,), (-int(idle[cut]),), place.first + cut, place.first + until)
                    for cut, until in pairwise(cuts)
                    if idle[cut]
                ]
        unused = [each for each in self.unused_of.get(job, ()) if each.first < place.last and place.first < each.last]
        return found + unused

    def leave(self, place: Place, job: str) -> None:
        """A job is no longer where it really ran."""
        for row, count in zip(place.rows, place.counts, strict=True):
            self.excess[row, place.first : place.last] -= count
        self.unused_of.pop(job, None)

    def forget_changes(self) -> None:
        """Only what is given back from now on counts for `has_changed`."""
        self._given_back[:] = False

    def has_changed(self, since_ms: int, before_ms: int) -> bool:
        """Whether GPUs of any moment of [since, before) were given back."""
        return bool(self._given_back[self._step(since_ms) : bisect_left(self.moments, before_ms)].any())

    def has(self, area: int, gpus: int, since_ms: int, before_ms: int) -> bool:
        """Whether so many GPUs of an area are idle at any moment of [since, before)."""
        part = self._totals[area][self._step(since_ms) : bisect_left(self.moments, before_ms)]
        return part.size > 0 and int(part.max()) >= gpus

    def earliest(self, area: int, want: Want, since_ms: int, before_ms: int, run_ms: int) -> int | None:
        """The first moment in [since, before) from which on what is wanted stays idle for `run_ms`; None where there is none.

        The same GPUs stay idle: whoever really ran keeps those that it had.
        """
        first, last = self._step(since_ms), bisect_left(self.moments, before_ms)
        if first >= last:
            return None
        if want.gpus == want.per_host:
            return self._earliest_on_one(area, want.gpus, (first, last), since_ms, run_ms)
        starts = np.maximum(self._grid[first:last], since_ms)
        ends = np.minimum(np.searchsorted(self._grid, starts + run_ms), len(self._grid) - 1)
        steps = np.arange(first, last)
        enough = _lasting(self._totals[area][None, first : ends[-1]] >= want.gpus, steps - first, ends - first)[0]
        steps, ends, starts = steps[enough], ends[enough], starts[enough]
        if not len(steps):
            return None
        free = self._idle(area, steps[0], ends[-1])
        at, until, idle = steps - steps[0], ends - steps[0], np.zeros(len(steps), np.int64)
        for least in [want.per_host] if want.per_host else range(1, min(want.gpus, self.width) + 1):
            idle += _lasting(free >= least, at, until).sum(axis=0)
        fits = np.flatnonzero(idle * (want.per_host or 1) >= want.gpus)
        return int(starts[fits[0]]) if len(fits) else None

    def _earliest_on_one(self, area: int, gpus: int, steps: tuple[int, int], since_ms: int, run_ms: int) -> int | None:
        """The same on one host, which has enough from the first step on or from one on before which it lacks, up to the next that lacks."""
        first, last = steps
        stop = self._end(max(self.moments[last - 1], since_ms) + run_ms)
        width = 1 + stop - first
        enough = np.zeros(
            len(self._rows[area]) * width + 1, bool
        )  # before the first step of each host there is nothing
        np.greater_equal(self._idle(area, first, stop), gpus, out=enough[:-1].reshape(-1, width)[:, 1:])
        edges = np.flatnonzero(enough[1:] != enough[:-1])
        if not len(edges):
            return None
        begin = edges[::2] % width
        until = begin + edges[1::2] - edges[::2]
        starts = np.maximum(self._grid[first + begin], since_ms)
        lasts = (until == stop - first) | (self._grid[first + until] >= starts + run_ms)
        fits = starts[lasts & (begin < last - first)]
        return int(fits.min()) if len(fits) else None

    def _idle(self, area: int, first: int, last: int) -> Counts:
        """The hosts of an area in some steps; those of the whole pool without a copy."""
        return self.free[:, first:last] if area == WHOLE_POOL else self.free[self._rows[area], first:last]

    def place(self, area: int, want: Want, start_ms: int, run_ms: int) -> Place:
        """Where it would run: on the fullest hosts that have pool, as a scheduler packs."""
        first, last = self._step(start_ms), self._end(start_ms + run_ms)
        rows = self._rows[area]
        idle = self._idle(area, first, last).min(axis=1).tolist()
        fullest = sorted((count, row) for count, row in zip(idle, rows, strict=True) if count >= max(want.per_host, 1))
        taken, counts, left = [], [], want.gpus
        for count, row in fullest:
            taken.append(row)
            counts.append(min(left, want.per_host or count))
            left -= counts[-1]
            if not left:
                break
        return Place(self, taken, counts, first, last)

    def given(self, hosts: Sequence[str], counts: Sequence[int], start_ms: int, end_ms: int) -> Place:
        """Where somebody really ran, on those of the hosts that are here."""
        here = [(self.row_of[host], count) for host, count in zip(hosts, counts, strict=True) if host in self.row_of]
        return Place(
            self, [row for row, _ in here], [count for _, count in here], self._step(start_ms), self._end(end_ms)
        )

    def _step(self, moment_ms: int) -> int:
        """The step that a moment lies in."""
        return max(bisect_right(self.moments, moment_ms) - 1, 0)

    def _end(self, moment_ms: int) -> int:
        """The first step that begins at a moment or after it."""
        return min(bisect_left(self.moments, moment_ms), len(self.moments) - 1)


def _lasting(enough: NDArray[np.bool_], firsts: NDArray[np.int64], lasts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each row of steps whether there is enough in all of [first, last)."""
    lacking = np.zeros((enough.shape[0], enough.shape[1] + 1), np.int32)
    np.cumsum(~enough, axis=1, out=lacking[:, 1:])
    found: NDArray[np.bool_] = lacking[:, lasts] == lacking[:, firsts]
    return found


def counts_of(spans: pl.DataFrame, hosts: Sequence[str], moments: Sequence[int]) -> Counts:
    """How many GPUs of each host the spans have in each step.

    Args:
        spans: rows with `host`, `time`, `end` and `gpus`, none before the first moment or after the last.
        hosts: the hosts, a row each.
        moments: between which the steps lie; spans begin and end at some of them, or count from the step that they begin in.
    """
    steps = len(moments)
    changes = np.zeros((len(hosts), steps), np.int16)
    number = {host: row for row, host in enumerate(hosts)}
    own = spans.filter(pl.col("host").is_in(number))
    rows = own["host"].replace_strict(number, return_dtype=pl.Int64).to_numpy() if own.height else np.empty(0, np.int64)
    grid, gpus = np.asarray(moments), own["gpus"].cast(pl.Int16).to_numpy()
    for name, sign in (("time", 1), ("end", -1)):
        np.add.at(changes, (rows, np.searchsorted(grid, own[name].to_numpy())), np.int16(sign) * gpus)
    return np.cumsum(changes, axis=1, dtype=np.int16)[:, :-1]

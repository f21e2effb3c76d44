"""The idle GPUs of each pool over time, host by host, as a schedule would find them: looked up, taken and given back."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.intervals import clip
from analytics.plan.jobs import PoolModel, hosts_of_pools
from analytics.states import IDLE_ALLOCATED, PERHAPS_FREE
from fallow.clock import MINUTE_MS

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


@dataclass(frozen=True)
class IdlePools:
    """By pool and model, with the GPUs that nobody had: free by the ledger, and not more than jobs left of the host.

    `spans` are the rows of `idle_spans`, `split` the jobs that the ledger saw on GPU instances: they have no whole GPUs.
    """

    pools: Mapping[PoolModel, IdlePool]
    spans: pl.DataFrame
    split: frozenset[str]

    def add_unused(self, moved: Collection[str], staying: Collection[str]) -> bool:
        """Adds the GPUs that somebody had and did not use, also where nobody knows which of a host's they were; whether there are any.

        Args:
            moved: jobs that have given back theirs already, as the ledger calls them.
            staying: those that may do so from now on.
        """
        unused = self.spans.filter(pl.col("kind") == "unused", ~pl.col("job").is_in(moved).fill_null(value=False))
        is_named = pl.col("job").is_in(staying).fill_null(value=False)
        found = False
        for pool in self.pools.values():
            free = _counts(self.spans.filter(pl.col("kind") == "free"), pool)
            nameless = _counts(unused.filter("is_nameless"), pool)
            idle = free + nameless
            # claims are first for what is busy, then for what somebody holds, then for free GPUs; who left has given back
            left = _hidden(nameless, pool.excess_at_first + idle) - _hidden(nameless, pool.excess + idle)
            more = _counts(unused, pool) - left + _hidden(free, pool.excess + free)
            pool.add(more)
            pool.excess += idle
            for job, host, since_ms, until_ms in (
                unused.filter(is_named, ~pl.col("is_nameless"), pl.col("host").is_in(pool.hosts))
                .select("job", "host", "time", "end")
                .iter_rows()
            ):
                pool.unused_of.setdefault(job, []).append(pool.given([host], [-1], since_ms, until_ms))
            found |= bool(more.any())
        return found

    def add_unknown(self) -> bool:
        """Adds the GPUs that nobody observed; whether there are any."""
        spans = self.spans.filter(pl.col("kind") == "unknown")
        for pool in self.pools.values():
            more = _counts(spans, pool)
            pool.add(more)
            pool.excess += more
        return spans.height > 0


def idle_pools(
    placed: pl.DataFrame,
    claimed: pl.DataFrame,
    memory_gib: Mapping[str, int | None],
    window: tuple[int, int],
    held_min_ms: int,
) -> IdlePools:
    """The idle GPUs of a window.

    Args:
        placed: the ledger's rows with `pool` and `model`.
        claimed: what jobs had, see `claimed_spans`.
        memory_gib: of the cards of each model.
        window: its start and end, in ms.
        held_min_ms: see `idle_spans`.
    """
    is_whole = pl.col("gpu_share") == 1
    split = frozenset(placed.filter(~is_whole)["job"].drop_nulls().str.split("+").explode())
    taken = clip(claimed.filter(~pl.col("job").is_in(split)), *window, sums=())
    rows = _claimable(placed, taken)
    spans = idle_spans(rows.filter(is_whole), window, held_min_ms)
    theirs = clip(rows.filter("is_claimable").select("host", "time", "end", gpus=pl.lit(1)), *window, sums=())
    widths = dict(rows.filter(is_whole).group_by("host").agg(pl.col("gpu").n_unique()).iter_rows())
    pools = {}
    for place, hosts in sorted(hosts_of_pools(placed.filter(is_whole)).items()):
        moments = _moments([each.filter(pl.col("host").is_in(hosts)) for each in (spans, taken)], window)
        free = counts_of(spans.filter(pl.col("kind") == "free"), hosts, moments)
        excess = counts_of(taken, hosts, moments) - counts_of(theirs, hosts, moments)
        pools[place] = IdlePool(
            hosts,
            max(widths[host] for host in hosts),
            memory_gib.get(place[1]),
            moments,
            free - _hidden(free, excess + free),
            excess,
        )
    return IdlePools(pools, spans, split)


def _claimable(placed: pl.DataFrame, claimed: pl.DataFrame) -> pl.DataFrame:
    """With `is_claimable`, whether a claim of which only a number is known may be for it, and `is_nameless`, whether it may be and is held.

    It may be for all whole GPUs but those of somebody who has no claim on the host, and for instances of which no job is known.
    """
    people = claimed.select("host", holder="user").drop_nulls().unique().with_columns(has_claim=pl.lit(value=True))
    found = placed.join(people, on=("host", "holder"), how="left", maintain_order="left")
    is_others = pl.col("job").is_null() & pl.col("holder").is_not_null() & pl.col("has_claim").is_null()
    is_known = pl.col("job").is_in(claimed["job"].unique().implode()).fill_null(value=False)
    return found.with_columns(
        is_claimable=pl.when(pl.col("gpu_share") == 1).then(~is_others).otherwise(pl.col("job").is_null()),
        is_nameless=~is_others & ~is_known,
    )


def idle_spans(placed: pl.DataFrame, window: tuple[int, int], held_min_ms: int) -> pl.DataFrame:
    """The time of GPUs that did nothing or were not observed: `pool`, `model`, `host`, `time`, `end`, `job`, `gpus` (1), `kind` and `is_nameless`.

    `kind` is `free`, `unknown`, or `unused`: reserved or held for at least `held_min_ms`, for less is a pause.
    """
    is_long = pl.col("stretch_end") - pl.col("stretch_start") >= held_min_ms
    kind = (
        pl.when(pl.col("state").is_in(PERHAPS_FREE))
        .then("state")
        .when(pl.col("state").is_in(IDLE_ALLOCATED) & is_long)
        .then(pl.lit("unused"))
    )
    rows = placed.with_columns(kind=kind, gpus=pl.lit(1)).drop_nulls("kind")
    return clip(
        rows.select("pool", "model", "host", "time", "end", "job", "gpus", "kind", "is_nameless"), *window, sums=()
    )


def _moments(spans: Sequence[pl.DataFrame], window: tuple[int, int]) -> list[int]:
    """Whenever anything changes, and every full minute: a job that is moved ends at the next moment after its real length."""
    changes = [each[name] for each in spans for name in ("time", "end")]
    minutes = pl.int_range(*window, MINUTE_MS, dtype=pl.Int64, eager=True)
    return pl.concat([pl.Series(window, dtype=pl.Int64), minutes, *changes]).unique().sort().to_list()


def _counts(spans: pl.DataFrame, pool: IdlePool) -> Counts:
    return counts_of(spans, pool.hosts, pool.moments)


def _hidden(free: Counts, beyond: Counts) -> Counts:
    """Free GPUs that a job counts all the same: as many as claims are beyond the others of the host; nobody sees which they are."""
    found: Counts = np.minimum(free, beyond.clip(min=0))
    return found

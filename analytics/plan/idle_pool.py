"""Idle GPUs of each pool over time, by host: queries, allocation and release, as a scheduler would do them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.allocations.spans import FOREVER_MS
from analytics.capacity.jobs import PoolModel, hosts_of_pools
from analytics.intervals import clip, merge
from analytics.states import IDLE_ALLOCATED, PERHAPS_FREE
from fallow.clock import MINUTE_MS

Counts: TypeAlias = NDArray[np.int16]
WHOLE_POOL = 0
"""The area with all hosts of a pool."""

WITHHELD = ("reservation", "drained")
"""Causes for which free GPUs are shown apart. A GPU with both causes has the last."""


@dataclass(frozen=True, slots=True)
class Want:
    """GPUs that a job wants at once, in groups of `per_host`, each on a single host; anywhere if `per_host` is 0."""

    gpus: int
    per_host: int = 0

    def anywhere(self) -> Want:
        """Return the same number of GPUs on any hosts."""
        return Want(self.gpus, 1 if self.gpus == 1 else 0)


@dataclass(frozen=True, slots=True)
class Place:
    """GPUs on some hosts (`rows` of the pool, `counts` of each) in the steps [first, last)."""

    pool: IdlePool
    rows: Sequence[int]
    counts: Sequence[int]
    first: int
    last: int


@dataclass(eq=False)
class IdlePool:
    """Idle GPUs per host and time step. Negative where more GPUs are taken than are idle. An area is a set of hosts."""

    hosts: Sequence[str]
    width: int
    memory_gib: int | None
    """Memory of a card; None if unknown."""
    moments: list[int]
    """Times of all changes; the first and the last are the window's start and end."""
    free: Counts
    """A row per host and a column per step between two moments.

    Withheld GPUs are subtracted, so busy withheld GPUs make it negative.
    """
    excess: Counts
    """Allocated GPUs of jobs that have not moved, beyond the GPUs left for them beside the idle ones.

    Moving a job does not free these.
    """
    withheld: Counts
    """GPUs of each host that may not be allocated."""
    unused_of: dict[str, list[Place]] = field(default_factory=dict)
    """Idle GPUs that a job had allocated and did not use, by the job's name in the ledger."""
    _areas: list[frozenset[int]] = field(default_factory=list)
    _rows: list[list[int]] = field(default_factory=list)
    _totals: list[NDArray[np.int32]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Keep `excess` as it is before any job moves (`excess_at_first`), and make the whole pool area 0."""
        self._grid = np.asarray(self.moments)
        self.excess_at_first = self.excess.copy()
        self._given_back = np.zeros(len(self.moments), bool)
        self.row_of = {host: row for row, host in enumerate(self.hosts)}
        self.area(self.hosts)

    def area(self, hosts: Iterable[str]) -> int:
        rows = frozenset(self.row_of[host] for host in hosts if host in self.row_of)
        if rows not in self._areas:
            self._areas.append(rows)
            self._rows.append(sorted(rows))
            self._totals.append(self._total(sorted(rows)))
        return self._areas.index(rows)

    def _total(self, rows: Sequence[int]) -> NDArray[np.int32]:
        """Return the most idle GPUs of some hosts in each step: a busy withheld GPU takes nothing from other hosts."""
        found: NDArray[np.int32] = (self.free[rows] + self.withheld[rows]).sum(axis=0, dtype=np.int32)
        return found

    def add(self, more: Counts) -> None:
        """Add idle GPUs to each host and step."""
        self.free += more
        self._totals = [self._total(rows) for rows in self._rows]

    def give_out(self, some: Counts) -> None:
        """End the withholding of GPUs of each host and step."""
        self.free += some
        self.withheld -= some

    def change(self, place: Place, sign: int) -> None:
        """Return the GPUs of a place to the pool (1) or take them (-1)."""
        first, last = place.first, place.last
        for row, count in zip(place.rows, place.counts, strict=True):
            self.free[row, first:last] += sign * count
        for rows, total in zip(self._areas, self._totals, strict=True):
            gpus = sum(count for row, count in zip(place.rows, place.counts, strict=True) if row in rows)
            total[first:last] += sign * gpus
        if sign > 0:
            self._given_back[first:last] = True

    def given_back(self, place: Place, job: str) -> list[Place]:
        """Return the GPUs that become idle if a job leaves its real place, without those that count as idle already."""
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
        """Record that a job has left its real place."""
        for row, count in zip(place.rows, place.counts, strict=True):
            self.excess[row, place.first : place.last] -= count
        self.unused_of.pop(job, None)

    def forget_changes(self) -> None:
        """Start a new record of returned GPUs for `has_changed`."""
        self._given_back[:] = False

    def has_changed(self, since_ms: int, before_ms: int) -> bool:
        """Return whether GPUs of any moment of [since, before) were returned."""
        return bool(self._given_back[self._step(since_ms) : bisect_left(self.moments, before_ms)].any())

    def has(self, area: int, gpus: int, since_ms: int, before_ms: int) -> bool:
        """Return whether an area has this many idle GPUs at any moment of [since, before)."""
        part = self._totals[area][self._step(since_ms) : bisect_left(self.moments, before_ms)]
        return part.size > 0 and int(part.max()) >= gpus

    def earliest(self, area: int, want: Want, since_ms: int, before_ms: int, run_ms: int) -> int | None:
        """Return the first moment in [since, before) from which the GPUs stay idle for `run_ms`; None without one.

        The same GPUs stay idle: a job keeps the GPUs on which it really ran.
        """
        first, last = self._step(since_ms), bisect_left(self.moments, before_ms)
        if first >= last:
            return None
        if want.gpus == want.per_host:
            return self._earliest_on_host(area, want.gpus, (first, last), since_ms, run_ms)
        starts = np.maximum(self._grid[first:last], since_ms)
        ends = np.minimum(np.searchsorted(self._grid, starts + run_ms), len(self._grid) - 1)
        steps = np.arange(first, last)
        enough = _lasting(self._totals[area][None, first : ends[-1]] >= want.gpus, steps - first, ends - first)[0]
        steps, ends, starts = steps[enough], ends[enough], starts[enough]
        if not len(steps):
            return None
        free = self._idle_rows(area, steps[0], ends[-1])
        at, until, idle = steps - steps[0], ends - steps[0], np.zeros(len(steps), np.int64)
        for least in [want.per_host] if want.per_host else range(1, min(want.gpus, self.width) + 1):
            idle += _lasting(free >= least, at, until).sum(axis=0)
        fits = np.flatnonzero(idle * (want.per_host or 1) >= want.gpus)
        return int(starts[fits[0]]) if len(fits) else None

    def _earliest_on_host(self, area: int, gpus: int, steps: tuple[int, int], since_ms: int, run_ms: int) -> int | None:
        """Return the same for a single host: the first step with enough GPUs that stay idle long enough."""
        first, last = steps
        stop = self._end(max(self.moments[last - 1], since_ms) + run_ms)
        width = 1 + stop - first
        # before the first step of each host there is nothing
        enough = np.zeros(len(self._rows[area]) * width + 1, bool)
        np.greater_equal(self._idle_rows(area, first, stop), gpus, out=enough[:-1].reshape(-1, width)[:, 1:])
        edges = np.flatnonzero(enough[1:] != enough[:-1])
        if not len(edges):
            return None
        begin = edges[::2] % width
        until = begin + edges[1::2] - edges[::2]
        starts = np.maximum(self._grid[first + begin], since_ms)
        lasts = (until == stop - first) | (self._grid[first + until] >= starts + run_ms)
        fits = starts[lasts & (begin < last - first)]
        return int(fits.min()) if len(fits) else None

    def _idle_rows(self, area: int, first: int, last: int) -> Counts:
        """Return the rows of an area in some steps; for the whole pool, without a copy."""
        return self.free[:, first:last] if area == WHOLE_POOL else self.free[self._rows[area], first:last]

    def place(self, area: int, want: Want, start_ms: int, run_ms: int) -> Place:
        """Return where a job would run: on the fullest hosts that have room, as a scheduler packs jobs."""
        first, last = self._step(start_ms), self._end(start_ms + run_ms)
        rows = self._rows[area]
        idle = self._idle_rows(area, first, last).min(axis=1).tolist()
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
        """Return where a job really ran, on the hosts that belong to this pool."""
        here = [(self.row_of[host], count) for host, count in zip(hosts, counts, strict=True) if host in self.row_of]
        return Place(
            self, [row for row, _ in here], [count for _, count in here], self._step(start_ms), self._end(end_ms)
        )

    def _step(self, moment_ms: int) -> int:
        return max(bisect_right(self.moments, moment_ms) - 1, 0)

    def _end(self, moment_ms: int) -> int:
        """Return the first step that begins at or after a moment."""
        return min(bisect_left(self.moments, moment_ms), len(self.moments) - 1)


def _lasting(enough: NDArray[np.bool_], firsts: NDArray[np.int64], lasts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return for each row of steps whether there is enough in all of [first, last)."""
    lacking = np.zeros((enough.shape[0], enough.shape[1] + 1), np.int32)
    np.cumsum(~enough, axis=1, out=lacking[:, 1:])
    found: NDArray[np.bool_] = lacking[:, lasts] == lacking[:, firsts]
    return found


def counts_of(spans: pl.DataFrame, hosts: Sequence[str], moments: Sequence[int]) -> Counts:
    """Return the GPUs of the spans per host and step.

    Spans lie within the first and the last of `moments`, the borders of the steps. They begin and end at moments, or
    count from the step in which they begin.
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
    """Idle pools by pool and model, with unallocated GPUs: free in the ledger, at most those that jobs leave."""

    pools: Mapping[PoolModel, IdlePool]
    spans: pl.DataFrame
    withheld: pl.DataFrame
    """Rows with WITHHELD_SCHEMA in the window, with the GPUs of each host."""
    split: frozenset[str]
    """Jobs that the ledger observed on GPU instances: they have no whole GPUs."""

    def give_out(self, cause: str) -> bool:
        """Add the GPUs that are withheld for a cause; return whether there are any."""
        spans = self.withheld.filter(pl.col("cause") == cause)
        for pool in self.pools.values():
            pool.give_out(_counts(spans, pool))
        return spans.height > 0

    def add_unused(self, moved: Collection[str], staying: Collection[str]) -> bool:
        """Add allocated but unused GPUs, also if it is unknown which ones of a host. Return whether there are any.

        Jobs in `moved` have returned their unused GPUs already, and those in `staying` may still; by their names in the
        ledger.
        """
        unused = self.spans.filter(pl.col("kind") == "unused", ~pl.col("job").is_in(moved).fill_null(value=False))
        is_named = pl.col("job").is_in(staying).fill_null(value=False)
        found = False
        for pool in self.pools.values():
            free = _counts(self.spans.filter(_IS_FREE), pool)
            nameless = _counts(unused.filter("is_nameless"), pool)
            idle = free + nameless
            # allocations cover busy GPUs first, then held ones, then free ones; a job that left has returned its GPUs
            left = _allocated_free(nameless, pool.excess_at_first + idle) - _allocated_free(
                nameless, pool.excess + idle
            )
            more = _counts(unused, pool) - left + _allocated_free(free, pool.excess + free)
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
        """Add the GPUs that were not observed; return whether there are any."""
        spans = self.spans.filter(pl.col("kind") == "unknown")
        for pool in self.pools.values():
            more = _counts(spans, pool)
            pool.add(more)
            pool.excess += more
        return spans.height > 0


def idle_pools(
    placed: pl.DataFrame,
    allocated: pl.DataFrame,
    memory_gib: Mapping[str, int | None],
    window: tuple[int, int],
    held_min_ms: int,
    *,
    withheld: pl.DataFrame,
) -> IdlePools:
    """Return the idle GPUs of a window.

    `allocated` is that of `allocated_spans`, and `held_min_ms` as in `idle_spans`. `withheld` has WITHHELD_SCHEMA; a
    withholding of only some GPUs of a host does not count, because it is unknown which GPUs they are.
    """
    is_whole = pl.col("gpu_share") == 1
    split = frozenset(placed.filter(~is_whole)["job"].drop_nulls().str.split("+").explode())
    taken = clip(allocated.filter(~pl.col("job").is_in(split)), *window, sums=())
    rows = _with_allocatable(placed, taken)
    widths = rows.filter(is_whole).group_by("host").agg(width=pl.col("gpu").n_unique().cast(pl.Int64))
    apart = clip(_whole_hosts(withheld, widths), *window, sums=())
    spans = idle_spans(rows.filter(is_whole), window, held_min_ms, apart)
    theirs = clip(rows.filter("is_allocatable").select("host", "time", "end", gpus=pl.lit(1)), *window, sums=())
    width_of, pools = dict(widths.iter_rows()), {}
    for place, hosts in sorted(hosts_of_pools(placed.filter(is_whole)).items()):
        moments = _moments([each.filter(pl.col("host").is_in(hosts)) for each in (spans, taken, apart)], window)
        free = counts_of(spans.filter(_IS_FREE), hosts, moments)
        excess = counts_of(taken, hosts, moments) - counts_of(theirs, hosts, moments)
        kept = counts_of(apart, hosts, moments)
        pools[place] = IdlePool(
            hosts,
            max(width_of[host] for host in hosts),
            memory_gib.get(place[1]),
            moments,
            free - _allocated_free(free, excess + free) - kept,
            excess,
            kept,
        )
    return IdlePools(pools, spans, apart, split)


_IS_FREE = pl.col("kind").is_in(("free", *WITHHELD))


def _whole_hosts(withheld: pl.DataFrame, widths: pl.DataFrame) -> pl.DataFrame:
    """Return the times in which all GPUs of a host are withheld for a cause, without overlaps, with their number."""
    whole = withheld.join(widths, on="host").filter(pl.col("gpus").is_null() | (pl.col("gpus") >= pl.col("width")))
    spans = merge(whole.with_columns(pl.col("end").fill_null(FOREVER_MS)), ("host", "cause"))
    return spans.join(widths.rename({"width": "gpus"}), on="host", maintain_order="left")


def _with_allocatable(placed: pl.DataFrame, allocated: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with `is_allocatable`: an allocation known only by its number of GPUs may be on this GPU.

    All whole GPUs qualify, except those of a user without an allocation on the host, and instances without a known job.
    `is_nameless`: the GPU qualifies and is held.
    """
    people = allocated.select("host", "user").drop_nulls().unique().with_columns(has_allocation=pl.lit(value=True))
    found = placed.join(people, on=("host", "user"), how="left", maintain_order="left")
    is_others = pl.col("job").is_null() & pl.col("user").is_not_null() & pl.col("has_allocation").is_null()
    is_known = pl.col("job").is_in(allocated["job"].unique().implode()).fill_null(value=False)
    return found.with_columns(
        is_allocatable=pl.when(pl.col("gpu_share") == 1).then(~is_others).otherwise(pl.col("job").is_null()),
        is_nameless=~is_others & ~is_known,
    )


def idle_spans(placed: pl.DataFrame, window: tuple[int, int], held_min_ms: int, withheld: pl.DataFrame) -> pl.DataFrame:
    """Return idle or unobserved GPU time.

    Columns: `pool`, `model`, `host`, `time`, `end`, `job`, `gpus` (1), `kind`, `is_nameless`. `kind` is `free`, a cause
    of WITHHELD for a free GPU that may not be allocated, `unknown`, or `unused`: reserved, held or stalled for at least
    `held_min_ms`. A shorter time is a pause and is left out.
    """
    is_long = pl.col("segment_end") - pl.col("segment_start") >= held_min_ms
    kind = (
        pl.when(pl.col("state").is_in(PERHAPS_FREE))
        .then("state")
        .when(pl.col("state").is_in(IDLE_ALLOCATED) & is_long)
        .then(pl.lit("unused"))
    )
    rows = placed.with_columns(kind=kind, gpus=pl.lit(1)).drop_nulls("kind")
    spans = clip(
        rows.select("pool", "model", "host", "time", "end", "job", "gpus", "kind", "is_nameless"), *window, sums=()
    )
    for cause in WITHHELD:
        spans = _withheld_spans(spans, withheld.filter(pl.col("cause") == cause), cause)
    return spans


def _withheld_spans(spans: pl.DataFrame, withheld: pl.DataFrame, cause: str) -> pl.DataFrame:
    """Return the spans, cut where their host's GPUs begin or end to be withheld. Free GPUs get this kind inside."""
    is_mine = _IS_FREE & pl.col("host").is_in(withheld["host"].unique().implode())
    own, others = spans.filter(is_mine).with_row_index("row"), spans.filter(~is_mine)
    if own.is_empty():
        return spans
    moments = withheld.select("host", at=pl.concat_list("time", "end")).explode("at")
    inside = own.join(moments, on="host").filter(pl.col("at") > pl.col("time"), pl.col("at") < pl.col("end"))
    begins = (
        pl.concat([own.select("row", begin="time"), inside.select("row", begin="at")]).unique().sort("row", "begin")
    )
    pieces = begins.with_columns(stop=pl.col("begin").shift(-1).over("row")).join(own, on="row", maintain_order="left")
    pieces = pieces.with_columns(time="begin", end=pl.coalesce("stop", "end"))
    spans_of_host = withheld.select("host", time="time", withheld_until="end").sort("time")
    met = pieces.sort("time").join_asof(spans_of_host, on="time", by="host", check_sortedness=False)
    is_apart = (pl.col("time") < pl.col("withheld_until")).fill_null(value=False)
    found = met.with_columns(kind=pl.when(is_apart).then(pl.lit(cause)).otherwise("kind"))
    return pl.concat([others, found.select(spans.columns)])


def _moments(spans: Sequence[pl.DataFrame], window: tuple[int, int]) -> list[int]:
    """Return the times of all changes, and full minutes: a moved job ends at the next moment after its length."""
    changes = [each[name] for each in spans for name in ("time", "end")]
    minutes = pl.int_range(*window, MINUTE_MS, dtype=pl.Int64, eager=True)
    return pl.concat([pl.Series(window, dtype=pl.Int64), minutes, *changes]).unique().sort().to_list()


def _counts(spans: pl.DataFrame, pool: IdlePool) -> Counts:
    return counts_of(spans, pool.hosts, pool.moments)


def _allocated_free(free: Counts, beyond: Counts) -> Counts:
    """Return the free GPUs that belong to an allocation: the allocations that exceed the other GPUs of the host.

    Which GPUs is unknown.
    """
    found: Counts = np.minimum(free, beyond.clip(min=0))
    return found

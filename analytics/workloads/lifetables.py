"""Durations of idle intervals: life tables of the fleet, its pools, users and GPUs, and results of earlier promises.

A life table has the share of intervals at an age that lasted for the horizon more. The table of a kind of holding
corrects that of the fleet, the table of a pool corrects its kind's, then the user's and the GPU's own: each in
proportion to its data. The result never falls with age. The same tables' promises in earlier weeks, and their results,
recalibrate it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, WEEK_MS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

AGES_MS: Floats = np.geomspace(5 * MINUTE_MS, 1500 * DAY_MS, 72)
_SPANS: Floats = np.diff(AGES_MS, append=AGES_MS[-1] ** 2 / AGES_MS[-2])
LEVELS = (("kind",), ("kind", "pool"), ("kind", "pool", "user"), ("kind", "pool", "user", "gpu"))
WEIGHTS = (8.0, 8.0, 8.0, 2.0)
"""Number of a level's own intervals that weigh as much as the level above."""
PRIOR_RATE = 0.4
"""Ends per e-fold of age before any observation (simulated and measured fleets have 0.2 to 0.9)."""
WEIGHT_OF_HOUR = 4.0
"""Intervals from the same hour of earlier weeks that weigh as much as the life table, for horizons below a week."""
OLD_ENOUGH = 0.25
"""Idle intervals of earlier weeks count from this share of the present age."""
CALIBRATED_WEEKS = 26
"""Weeks back for which promises are made again and compared with their results."""


@dataclass(frozen=True)
class Calibration:
    """The log-odds that a GPU stays unused.

    `base + slope * (those of the life tables) + age * log(age in days) + held + never`.
    """

    base: float
    slope: float
    age: float
    held: float
    """Added for GPUs that a process holds."""
    never: float
    """Added for GPUs that were not used in all known time, a week or more."""


SHIPPED: Mapping[int, Calibration] = {
    DAY_MS: Calibration(-0.3, 0.85, 0.0, 0.15, 0.0),
    WEEK_MS: Calibration(-0.1, 0.75, 0.0, 0.15, 0.65),
}
"""Calibration of a new fleet, by horizon."""


@dataclass(frozen=True)
class Questions:
    """GPUs that are idle at a moment: the index of each interval, its groups of LEVELS, and its age."""

    at_ms: int
    places: Ints
    groups: tuple[Ints, ...]
    age_ms: Floats


class Lifetables:
    """The idle intervals of a fleet (columns of `idle_intervals`, and `pool`), and their promises at any moment."""

    def __init__(self, intervals: pl.DataFrame) -> None:
        self._began, self._time, self._end, self._stop, self._weight = (
            intervals[name].to_numpy().astype(np.float64) for name in ("began", "time", "end", "stop", "weight")
        )
        self._ended, self._is_first = intervals["ended"].to_numpy(), intervals["is_first"].to_numpy().astype(np.float64)
        self._is_last = intervals["is_last"].to_numpy()
        self._is_held = (intervals["kind"] == "held").to_numpy().astype(np.float64)
        self._gpu = intervals["gpu"].rank("dense").to_numpy().astype(np.int64)
        self._groups: list[Ints] = []
        for keys in LEVELS:
            named = intervals.select(keys).unique(maintain_order=True).with_row_index("group")
            found = intervals.select(keys).join(named, on=keys, how="left", maintain_order="left")
            self._groups.append(found["group"].to_numpy().astype(np.int64))

    def under_way(self, at_ms: int) -> Questions:
        """Return the GPUs that are idle at a moment, as of that moment."""
        places = np.flatnonzero((self._time < at_ms) & (self._end >= at_ms))
        return Questions(at_ms, places, tuple(codes[places] for codes in self._groups), at_ms - self._began[places])

    def newest(self, at_ms: int) -> Questions:
        """Return the GPUs without a later row in use, as last observed."""
        places = np.flatnonzero(self._is_last)
        age_ms = self._end[places] - self._began[places]
        return Questions(at_ms, places, tuple(codes[places] for codes in self._groups), age_ms)

    def promised(self, asked: Questions, horizon_ms: int) -> Floats:
        """Return the probability that each stays unused for the horizon, by the data known at that moment."""
        weeks = [each for each in range(CALIBRATED_WEEKS, 0, -1) if each * WEEK_MS >= horizon_ms]
        moments = [asked.at_ms - each * WEEK_MS for each in weeks]
        earlier = [each for each in map(self.under_way, moments) if len(each.places)]
        shares = self.shares([*earlier, asked], horizon_ms)
        *learnt, rows = (self._covariates(each, share) for each, share in zip([*earlier, asked], shares, strict=True))
        kept = [self._kept(each, horizon_ms) for each in earlier]
        shipped = SHIPPED[min(SHIPPED, key=lambda each: abs(np.log(each / horizon_ms)))]  # that of the nearest horizon
        return _sigmoid(rows @ _fitted(shipped, learnt, kept))

    def shares(self, asked: Sequence[Questions], horizon_ms: int) -> list[Floats]:
        """Return the result of the life tables alone at several moments, in the order of time."""
        counts = [_Counts(int(codes.max(initial=-1)) + 1) for codes in self._groups]
        order, done, tables = self._by_stop, 0, []
        stops = self._stop[order]
        nests = [_Nest.of(each.groups) for each in asked]
        for each, nest in zip(asked, nests, strict=True):
            over = int(np.searchsorted(stops, each.at_ms, "right"))
            self._count(counts, order[done:over], np.inf, horizon_ms)
            done = over
            rest = order[over:]
            now = [own.copy() for own in counts]
            self._count(now, rest[self._time[rest] < each.at_ms], each.at_ms, horizon_ms)
            tables.append([now[0].of_all(), *(own.of(groups) for own, groups in zip(now, nest.groups, strict=True))])
        shares = _pooled(tables, nests, asked, horizon_ms)
        if horizon_ms >= WEEK_MS:
            return shares
        return [self._at_this_hour(each, share, horizon_ms) for each, share in zip(asked, shares, strict=True)]

    def _count(self, counts: Sequence[_Counts], places: Ints, at_ms: float, horizon_ms: int) -> None:
        """Add intervals as known at a moment: the ages at which each was of its kind, and how much longer it lasted."""
        began, known = self._began[places], np.minimum(self._stop[places], at_ms)
        first = np.searchsorted(AGES_MS, self._time[places] - began, "left")
        last = np.searchsorted(AGES_MS, np.minimum(self._end[places], at_ms) - began, "right")
        last = np.maximum(last, first)
        lasted = np.clip(np.searchsorted(AGES_MS, known - began - horizon_ms, "right"), first, last)
        # an interval lost from sight before the horizon gives no answer
        judged = np.where(self._ended[places] & (self._stop[places] <= at_ms), last, lasted)
        for level, (own, codes) in enumerate(zip(counts, self._groups, strict=True)):
            weight = self._weight[places] if level < len(LEVELS) - 1 else np.ones(len(places))
            own.add(codes[places], first, lasted, judged, weight)

    def _at_this_hour(self, asked: Questions, share: Floats, horizon_ms: int) -> Floats:
        """Return the shares, corrected by the GPU's idle intervals from the same hour of the four weeks before."""
        if not len(share):
            return share
        order, apart, began = self._by_gpu
        gpu = self._gpu[asked.places]
        lasted = judged = np.zeros(len(share))
        for weeks in range(1, 5):
            then = asked.at_ms - weeks * WEEK_MS
            at = np.maximum(np.searchsorted(began, gpu * apart + then, "right") - 1, 0)
            there = order[at]
            runs = (self._gpu[there] == gpu) & (self._stop[there] > then)
            counts = runs & (then - self._began[there] >= OLD_ENOUGH * asked.age_ms)
            on = self._stop[there] >= then + horizon_ms
            lasted = lasted + (counts & on)
            judged = judged + (counts & (on | self._ended[there]))
        found: Floats = (lasted + WEIGHT_OF_HOUR * share) / (judged + WEIGHT_OF_HOUR)
        return found

    @cached_property
    def _by_stop(self) -> Ints:
        return np.argsort(self._stop, kind="stable")

    @cached_property
    def _by_gpu(self) -> tuple[Ints, float, Floats]:
        """Return the order of intervals by GPU and start, a time `apart`, and in that order GPU * `apart` + start."""
        order = np.lexsort((self._began, self._gpu))
        # times of different GPUs never meet: one number is in the order of both
        apart = float(self._stop.max()) + WEEK_MS * 8
        return order, apart, self._gpu[order] * apart + self._began[order]

    def _kept(self, asked: Questions, horizon_ms: int) -> tuple[Floats, Floats]:
        """Return for past questions 1 if the GPU stayed unused, and the weight: 0 if that was not observed."""
        there = asked.places
        kept = self._stop[there] >= asked.at_ms + horizon_ms
        return kept.astype(np.float64), np.where(kept | self._ended[there], self._weight[there], 0.0)

    def _covariates(self, asked: Questions, share: Floats) -> Floats:
        days = np.log(np.maximum(asked.age_ms, HOUR_MS) / DAY_MS)
        held, never = self._is_held[asked.places], self._is_first[asked.places] * np.minimum(asked.age_ms / WEEK_MS, 1)
        inside = np.clip(share, _LEAST, 1 - _LEAST)
        return np.column_stack([np.ones(len(share)), np.log(inside / (1 - inside)), days, held, never])


class _Counts:
    """Numbers of intervals that lasted for the horizon more, and of all, by group and age: as differences over age."""

    def __init__(self, groups: int) -> None:
        self.steps = np.zeros((2, groups, len(AGES_MS) + 1))

    def copy(self) -> _Counts:
        other = _Counts(0)
        other.steps = self.steps.copy()
        return other

    def add(self, groups: Ints, first: Ints, lasted: Ints, judged: Ints, weight: Floats) -> None:
        begin = groups * self.steps.shape[2]
        for row, last in enumerate((lasted, judged)):
            flat = self.steps[row].reshape(-1)  # a view: numpy adds faster by one index than by two
            np.add.at(flat, begin + first, weight)
            np.add.at(flat, begin + last, -weight)

    def of(self, groups: Ints) -> tuple[Floats, Floats]:
        lasted, judged = np.cumsum(self.steps[:, groups, :-1], axis=2)
        return lasted, judged

    def of_all(self) -> tuple[Floats, Floats]:
        """Return both for all groups together, in one row."""
        lasted, judged = (each.sum(axis=0, keepdims=True) for each in self.of(np.arange(self.steps.shape[1])))
        return lasted, judged


@dataclass(frozen=True)
class _Nest:
    """The groups of some idle GPUs at each of LEVELS, each group with its place in the level above."""

    groups: tuple[Ints, ...]
    parents: tuple[Ints, ...]
    place: Ints
    """By GPU, the place of its group in the lowest level."""

    @classmethod
    def of(cls, codes: Sequence[Ints]) -> _Nest:
        """Return the nest of GPUs whose group at each level is given."""
        groups, parents, place = [], [], np.zeros(len(codes[0]), np.int64)
        for own in codes:
            keys, at = np.unique(np.stack([own, place]), axis=1, return_inverse=True)
            groups.append(keys[0])
            parents.append(keys[1])
            place = at.astype(np.int64).reshape(-1)
        return cls(tuple(groups), tuple(parents), place)


def _pooled(
    tables: Sequence[Sequence[tuple[Floats, Floats]]],
    nests: Sequence[_Nest],
    asked: Sequence[Questions],
    horizon_ms: int,
) -> list[Floats]:
    """Return the shares at several moments: every level corrects the one above, and no share falls with age.

    All moments go through a level together, because the cost is in the calls and not in the numbers.

    `tables` has by moment the counts of the fleet, and those of the groups of each level; `nests` has the groups of its
    idle GPUs.
    """
    share = ((AGES_MS / (AGES_MS + horizon_ms)) ** PRIOR_RATE)[None]
    first = np.zeros(len(asked), np.int64)
    for level, weight in enumerate((WEIGHTS[0], *WEIGHTS)):
        lasted, judged = (np.concatenate([each[level][row] for each in tables]) for row in range(2))
        above = np.zeros(len(asked), np.int64) if level == 0 else _places(nests, level, first)
        share = _rising((lasted + weight * share[above]) * _SPANS, (judged + weight) * _SPANS)
        sizes = [len(each[level][0]) for each in tables]
        first = np.cumsum([0, *sizes[:-1]])
    return [_at_ages(share, start + nest.place, each) for start, nest, each in zip(first, nests, asked, strict=True)]


def _places(nests: Sequence[_Nest], level: int, first: Ints) -> Ints:
    """Return, for each group of a level, its place in the level above, whose groups of a moment begin at `first`."""
    return np.concatenate([start + nest.parents[level - 1] for start, nest in zip(first, nests, strict=True)])


def _at_ages(share: Floats, place: Ints, asked: Questions) -> Floats:
    """Return the share of each GPU at its age, between the two nearest ages."""
    position = np.interp(np.log(np.maximum(asked.age_ms, 1.0)), np.log(AGES_MS), np.arange(len(AGES_MS)))
    below = np.minimum(position.astype(np.int64), len(AGES_MS) - 2)
    part = position - below
    found: Floats = (1 - part) * share[place, below] + part * share[place, below + 1]
    return found


def _rising(parts: Floats, wholes: Floats) -> Floats:
    """Return in each row the shares that rise with age and are nearest to `parts / wholes`: isotonic regression.

    Pools adjacent violators (Barlow et al. 1972), in all rows that still have some at once.
    """
    share, ages = parts / wholes, parts.shape[1]
    block = np.tile(np.arange(ages), (len(share), 1))
    rows = np.arange(len(share))
    while True:
        falls = np.diff(share[rows], axis=1) < -_SAME
        open_ = falls.any(axis=1)
        rows, falls = rows[open_], falls[open_]
        if not len(rows):
            return share
        # neighbours that fall are pooled; ages that were pooled before stay together
        begins = ~falls & (np.diff(block[rows], axis=1) != 0)
        block[rows, 1:] = np.cumsum(begins, axis=1)
        block[rows, 0] = 0
        flat = (block[rows] + np.arange(len(rows))[:, None] * ages).reshape(-1)
        part, whole = (np.bincount(flat, each[rows].reshape(-1), len(rows) * ages) for each in (parts, wholes))
        share[rows] = (part[flat] / whole[flat]).reshape(len(rows), ages)


_SAME = 1e-12
"""Shares that differ by less are equal: the rounding error of float sums."""


def _fitted(start: Calibration, learnt: Sequence[Floats], kept: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Return the calibration by earlier promises: penalised logistic regression by Newton's method."""
    first = np.array([start.base, start.slope, start.age, start.held, start.never])
    if not learnt:
        return first
    rows, outcome, weight = np.concatenate(learnt), *(np.concatenate(each) for each in zip(*kept, strict=True))
    found = first.copy()
    for _ in range(_STEPS):
        share = _sigmoid(rows @ found)
        slope = rows.T @ (weight * (outcome - share)) - _FIRMNESS * (found - first)
        bend = (rows * (weight * share * (1 - share))[:, None]).T @ rows + np.diag(_FIRMNESS)
        found = found + np.linalg.solve(bend, slope)
        found = np.where(_NEVER_FALLS, np.maximum(found, 0.0), found)
    return found


_STEPS = 12
_FIRMNESS: Floats = np.array([30.0, 300.0, 300.0, 300.0, 300.0])
"""Weight of each initial parameter, in idle GPUs."""
_NEVER_FALLS: Mask = np.array([False, True, True, False, True])
"""Parameters that are never below 0, so that no promise falls with age."""
_LEAST = 1e-4


def _sigmoid(odds: Floats) -> Floats:
    found: Floats = 1 / (1 + np.exp(-odds))
    return found

"""From a host-day's rows to segments of the ledger: runs of rows that are alike, then segments with one label each.

A segment inside the day is final except for the choice between `low` and `active`, which depends on the whole segment
over midnight. An idle interval at the day's edge may continue in the next day: until the days are joined, a short one
is labelled `zero`. A short time in which kernels only wait is labelled `stalling`, and time that stalls if the day
before ends so `resumed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.ledger.columns import Codes, Floats, Ints, Mask, Places, run_starts
from analytics.ledger.day_owners import UNSEEN, USE, Held, Shares
from analytics.ledger.day_processes import Lists, RowOwner
from analytics.ledger.day_rows import DayRows
from analytics.ledger.day_stalls import CONTESTED, DOUBTFUL, KEPT_ALIVE, RESUMING, WAITING
from analytics.ledger.settings import (
    DRAW_SLACK,
    QUIET_SLACK,
    LedgerSettings,
)
from analytics.mig import MIG_PREFIX
from fallow import schema

HELD, BUSY, ZERO, UNKNOWN = range(4, 8)
STALLED, STALLING, RESUMED = 9, 10, 11
LABELS = (
    *("unavailable", "free", "reserved", "use", "held", "busy", "zero", "unknown", "unseen"),
    *("stalled", "stalling", "resumed"),
)
_SOURCES = {"sm": "sm_active_pct", "power": "power_w", "watched": "gpu_util_coverage_ratio"}
"""The readings whose sums over time are kept, besides that of utilization, by the sums' name."""
_COUNTS = (
    "zero_ms",
    "energy_ms",
    "counter_ms",
    "sample_count",
    "sampled_ms",
    "perhaps_idle_ms",
    "perhaps_stalled_ms",
    "no_process_ms",
    "quiet_ms",
)
_TOTALS = tuple(f"{name}_sum" for name in ("util", *_SOURCES))
_SUMS = (*_TOTALS, *(f"{name}_ms" for name in ("util", *_SOURCES)), *_COUNTS, "energy_mj")
_LARGEST = ("gpu_util_max_pct", "mem_used_max_bytes", "quiet_draw_max_w")
_RESTING_QUANTILE = 0.25
"""Percentile of the draws in one run: a card that works now and then is at rest for more of the time than this."""
_WHOLLY = ("idle_draw_max_w", "idle_power_max_w")
"""Largest values that are unknown where any of their values is unknown."""
_INTEGERS = {*_SUMS, "mem_used_max_bytes"} - {*_TOTALS, "energy_mj"}


@dataclass(frozen=True)
class Runs:
    """Runs of rows, each with the index of its first row, its bounds and its sums (NaN where a maximum is unknown)."""

    first: Places
    gpu: Codes
    start: Ints
    end: Ints
    values: dict[str, Floats]


def find_segments(
    rows: DayRows, held: Held, shares: Shares, lists: Lists, settings: LedgerSettings, *, signs: Codes
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the segments of one date's host-days (`ledger_part`) and their idle intervals (`idle_interval_part`).

    `signs` are those of `stall_signs`.
    """
    use = np.flatnonzero(rows.usable & ~shares.left_out)
    alike = _Alike.of(held, signs, shares, use)
    runs = _runs(rows, use, alike, settings)
    of_runs = alike.take(runs.first)
    idle_intervals = np.flatnonzero(_begins(runs, of_runs.zero))
    groups = _RunGroups.of(runs, of_runs, of_runs.zero)
    stalls = _Stalls.of(runs, of_runs, settings)
    label = _labels(groups, stalls, of_runs, settings)
    view = _view(use, len(rows))
    weight = rows.weight[view]
    # the wider bound has it already
    runs.values["perhaps_idle_ms"][stalls.doubtful & (of_runs.sign == CONTESTED)] = 0.0
    runs.values["perhaps_idle_ms"] += _time_beside_idle(groups, runs, of_runs, weight, settings)
    runs.values["perhaps_stalled_ms"] = np.where(stalls.doubtful, runs.end - runs.start, 0).astype(np.float64)
    segments = np.flatnonzero(_begins(runs, label, of_runs.owner))
    first_row = use[runs.first[segments]]
    table = _table(runs, segments, label[segments], held.owner[first_row], held.owners)
    tails = _tails(rows, use, held)
    frame = table.with_columns(gpu_share=shares.share[first_row]).join(
        tails, on=("unit", "end"), how="left", maintain_order="left"
    )
    bounds = np.append(runs.first[segments], len(use))
    frame = frame.with_columns(_user_shares(frame["user"], bounds, weight, held.list_of_row[view], lists))
    at_zero = of_runs.zero[idle_intervals]
    ends = _ends(runs, idle_intervals)[at_zero]
    idle = {"time": runs.start[idle_intervals][at_zero], "unit": runs.gpu[idle_intervals][at_zero], "end": ends}
    pieces_and_edges = pl.concat([frame, _edges(rows, shares, frame)], how="diagonal_relaxed")
    in_order = pieces_and_edges.sort("unit", "time", maintain_order=True)
    return named(in_order, rows), named(pl.DataFrame(idle), rows)


@dataclass(frozen=True)
class _Alike:
    """The values on which the states depend, row by row or run by run; `owner` distinguishes shares of a GPU, too."""

    kind: Codes
    owner: Places
    zero: Mask
    measured: Mask
    sign: Codes

    @classmethod
    def of(cls, held: Held, signs: Codes, shares: Shares, use: Places) -> _Alike:
        rows = _view(use, len(held.kind))
        owner = held.owner[rows]
        if (shares.share != 1).any():
            kinds, codes = np.unique(shares.share[rows], return_inverse=True)
            owner = owner * len(kinds) + codes
        return cls(held.kind[rows], owner, held.zero[rows], held.measured[rows], signs[rows])

    def take(self, at: Places) -> _Alike:
        return _Alike(self.kind[at], self.owner[at], self.zero[at], self.measured[at], self.sign[at])


def _view(use: Places, count: int) -> Places | slice:
    """Return these rows of `count` rows, without a copy where they are all rows."""
    return slice(None) if len(use) == count else use


def named(frame: pl.DataFrame, rows: DayRows) -> pl.DataFrame:
    """Return the frame with `host` and `gpu` in place of `unit`, a code into the rows' names."""
    units = pl.DataFrame(rows.names, schema={"host": pl.String, "gpu": pl.String}, orient="row")
    return frame.drop("unit").hstack(units[frame["unit"]])


def _runs(rows: DayRows, use: Places, alike: _Alike, settings: LedgerSettings) -> Runs:
    """Return runs of adjacent rows of one GPU that agree in all values on which the states depend."""
    view = _view(use, len(rows))
    gpu, start = rows.gpu[view], rows.start[view]
    end = start + rows.weight[view]
    if not len(use):
        return Runs(use, gpu, start, end, dict.fromkeys((*_SUMS, *_LARGEST, *_WHOLLY), np.zeros(0)))
    packed = (((gpu.astype(np.int64) * 16 + alike.kind) * 8 + alike.sign) * 2 + alike.zero) * 2 + alike.measured
    differs = (packed[1:] != packed[:-1]) | (alike.owner[1:] != alike.owner[:-1]) | (end[:-1] != start[1:])
    first = np.flatnonzero(np.concatenate(([True], differs)))
    last = np.append(first[1:], len(use)) - 1
    return Runs(first, gpu[first], start[first], end[last], _sums(rows, use, first, alike, settings))


def _sums(rows: DayRows, use: Places, first: Places, alike: _Alike, settings: LedgerSettings) -> dict[str, Floats]:
    """Return the sums of each run: every sum is value times milliseconds, over the rows that state the value."""
    view = _view(use, len(rows))
    weight = rows.weight[view].astype(np.float64)
    count = len(weight)
    found: dict[str, Floats] = {}
    whole_ms = np.add.reduceat(weight, first)

    util, util_max = rows.floats["gpu_util_pct"][view], rows.floats["gpu_util_max_pct"][view]
    readings = {name: rows.floats[source][view] for name, source in _SOURCES.items()}
    for name, values in {"util": np.where(alike.measured, util, np.nan), **readings}.items():
        weighted = values * weight
        total, known_ms = np.add.reduceat(weighted, first), whole_ms
        if np.isnan(total).any():
            unknown = np.isnan(weighted)
            weighted[unknown] = 0.0
            total, known_ms = np.add.reduceat(weighted, first), whole_ms - np.add.reduceat(weight * unknown, first)
        found[f"{name}_sum"], found[f"{name}_ms"] = total, known_ms
    energy = rows.energy_mj(rows.weight.astype(np.float64))[view]
    known = ~np.isnan(energy)
    found["energy_mj"] = np.add.reduceat(np.where(known, energy, 0.0), first)
    found["energy_ms"] = np.add.reduceat(np.where(known, weight, 0.0), first)
    found["counter_ms"] = np.add.reduceat(np.where(known & rows.counted[view], weight, 0.0), first)
    found |= _sampled_sums(rows, view, first, alike, settings)
    found["zero_ms"] = np.add.reduceat(np.where(alike.zero, weight, 0.0), first)
    unowned = (rows.process_count[view] == 0) & (alike.kind == USE)
    no_time = np.zeros(len(first))
    found["no_process_ms"] = np.add.reduceat(np.where(unowned, weight, 0.0), first) if unowned.any() else no_time
    found["sample_count"] = np.diff(np.append(first, count)).astype(np.float64)
    found["gpu_util_max_pct"] = np.fmax.reduceat(np.fmax(util, util_max), first)
    found["mem_used_max_bytes"] = np.fmax.reduceat(rows.floats["mem_used_bytes"][view], first)
    return found


def _sampled_sums(
    rows: DayRows,
    view: Places | slice,
    first: Places,
    alike: _Alike,
    settings: LedgerSettings,
) -> dict[str, Floats]:
    """Return the sampled time of each run, and the evidence for or against work between two samples at 0."""
    gpu, start, weight, zero = rows.gpu[view], rows.start[view], rows.weight[view], alike.zero
    sampled = alike.measured & rows.sampled[view]
    if not sampled.any():
        no_time = {name: np.zeros(len(first)) for name in ("sampled_ms", "perhaps_idle_ms", "quiet_ms")}
        return no_time | {name: np.full(len(first), np.nan) for name in (*_WHOLLY, "quiet_draw_max_w")}
    # a row's counter has risen since the row before, so the time between two rows at 0 belongs to the second row
    goes_on = zero[1:] & zero[:-1] & (gpu[1:] == gpu[:-1]) & (start[1:] == start[:-1] + weight[:-1])
    between = np.concatenate((np.zeros(min(len(zero), 1), bool), goes_on))
    drawn = np.where(between, rows.rates["energy_mj"][view], -np.inf)
    readings = rows.floats["power_w"][view]
    power = np.where(zero, readings, -np.inf)
    quiet = sampled & _quiet_rows(drawn, readings, weight, first, settings)
    # between two samples as far apart as an idle interval is long, there may have been an idle interval
    sparse = sampled & ~zero & (weight >= settings.idle_after_ms)
    return {
        "sampled_ms": np.add.reduceat(np.where(sampled, weight, 0.0), first),
        "perhaps_idle_ms": np.add.reduceat(np.where(sparse, weight, 0.0), first),
        "idle_draw_max_w": np.maximum.reduceat(drawn, first),
        "idle_power_max_w": np.maximum.reduceat(power, first),
        "quiet_ms": np.add.reduceat(np.where(quiet, weight, 0.0), first),
        "quiet_draw_max_w": np.fmax.reduceat(np.where(quiet, np.append(drawn[1:], np.nan), np.nan), first),
    }


def _quiet_rows(drawn: Floats, power: Floats, weight: Ints, first: Places, settings: LedgerSettings) -> Mask:
    """Return the rows after which, up to the next row, two witnesses show the card at rest, in runs of `idle_after`.

    `drawn` is the mean draw since the row before where both are at 0. Work between the readings raises it above the
    readings, and above the card's own draw in the quieter part of the same run, which begins at `first`.
    """
    least = np.minimum(power[:-1], power[1:])
    alike = (drawn[1:] <= least * (1 + DRAW_SLACK)) & (drawn[1:] * (1 + DRAW_SLACK) >= least)
    agrees = np.concatenate(([False], alike))[: len(weight)]
    lengths = np.diff(np.append(first, len(weight)))
    resting = np.zeros(len(first))
    for number in np.flatnonzero(np.add.reduceat(agrees * weight, first) >= settings.idle_after_ms):
        run = slice(first[number], first[number] + lengths[number])
        resting[number] = np.quantile(drawn[run][agrees[run]], _RESTING_QUANTILE)
    agrees &= drawn <= np.repeat(resting, lengths) * (1 + QUIET_SLACK)
    quiet = np.append(agrees[1:], False)[: len(weight)]
    begins = np.flatnonzero(np.concatenate(([True], quiet[1:] != quiet[:-1])))
    long = np.add.reduceat(weight, begins) >= settings.idle_after_ms
    return quiet & np.repeat(long, np.diff(np.append(begins, len(quiet))))


def _begins(runs: Runs, *keys: NDArray[np.generic]) -> Mask:
    """Return whether a run differs from the one before it in GPU or any key, or starts after a gap."""
    if not len(runs.first):
        return np.zeros(0, bool)
    same = (runs.gpu[1:] == runs.gpu[:-1]) & (runs.end[:-1] == runs.start[1:])
    for key in keys:
        same &= key[1:] == key[:-1]
    return np.concatenate(([True], ~same))


def _ends(runs: Runs, groups: Places) -> Ints:
    """Return the end of the last run of each group."""
    return runs.end[np.append(groups[1:], len(runs.first)) - 1] if len(groups) else runs.end[:0]


@dataclass(frozen=True)
class _RunGroups:
    """Groups of adjacent runs of one GPU, kind, owner and mark: `first` run, `number` of each run's group.

    `follows` marks groups that continue the group before without a gap.
    """

    first: Places
    number: Places
    length: Ints
    new_gpu: Mask
    follows: Mask

    @classmethod
    def of(cls, runs: Runs, alike: _Alike, marked: NDArray[Any]) -> _RunGroups:
        begins = _begins(runs, alike.kind, alike.owner, marked)
        first = np.flatnonzero(begins)
        ends, gpu = _ends(runs, first), runs.gpu[first]
        new_gpu = np.append(True, gpu[1:] != gpu[:-1])[: len(first)]
        follows = ~new_gpu & (runs.start[first] == np.append(0, ends[:-1])[: len(first)])
        return cls(first, np.cumsum(begins) - 1, ends - runs.start[first], new_gpu, follows)

    @property
    def at_edge(self) -> Mask:
        """Return the first and the last group of each GPU's day."""
        last: Mask = np.append(self.new_gpu[1:], True)[: len(self.first)]
        return self.new_gpu | last


def _time_beside_idle(idle: _RunGroups, runs: Runs, alike: _Alike, weight: Ints, settings: LedgerSettings) -> Floats:
    """Return, per run, the time beside its idle interval that may belong to it, if both together are long enough.

    The row before one at 0 may have worked at its start only; the row after, where it is a mean, at its end only.
    """
    found = np.zeros(len(runs.first))
    groups = idle.first
    if not len(groups):
        return found
    row = runs.first[groups]
    at_zero = alike.zero[groups]
    at_work = (alike.kind[groups] == USE) & ~at_zero
    # the time before midnight is in another day; it is taken to be as long as the first row
    before = np.where(idle.new_gpu, weight[row], 0)
    before[1:][idle.follows[1:] & at_work[:-1]] = weight[row[1:] - 1][idle.follows[1:] & at_work[:-1]]
    after = np.zeros(len(groups), np.int64)
    mean = at_work & (runs.values["sampled_ms"][groups] == 0)
    after[:-1][idle.follows[1:] & mean[1:]] = weight[row[1:]][idle.follows[1:] & mean[1:]]
    both = before + after
    short = (idle.length < settings.idle_after_ms) & ~idle.at_edge
    enough = idle.length + both >= settings.idle_after_ms
    beside = np.where(short, np.where(enough, idle.length + both, 0), both)
    found[groups] = np.where(at_zero & (alike.kind[groups] == USE), beside, 0)
    return found


@dataclass(frozen=True)
class _Stalls:
    """Which runs do no work, from the groups in which witnesses speak against work without a break.

    A group whose rows mostly have two or more witnesses stalls as a whole, as a reading near its limit wavers. Any
    other is in doubt.
    """

    long: Mask
    at_edge: Mask
    """Shorter ones at the edge of a GPU's day."""
    doubtful: Mask
    resuming: Mask
    """Doubtful ones at the start of a GPU's day that stall if the day before ends with a stall."""

    @classmethod
    def of(cls, runs: Runs, alike: _Alike, settings: LedgerSettings) -> _Stalls:
        contested = alike.sign == CONTESTED
        resuming = alike.sign == RESUMING
        speaks = (alike.sign == WAITING) | (alike.sign == DOUBTFUL) | contested | resuming
        groups = _RunGroups.of(runs, alike, speaks.astype(np.int8) + contested + 2 * resuming)
        waiting_ms = np.bincount(
            groups.number, np.where(alike.sign == WAITING, runs.end - runs.start, 0), len(groups.first)
        )
        agreed, edge = (2 * waiting_ms >= groups.length)[groups.number], groups.at_edge[groups.number]
        long = (groups.length >= settings.stalled_after_ms)[groups.number]
        return cls(
            speaks & agreed & long,
            speaks & agreed & ~long & edge,
            speaks & ~agreed & (long | edge),
            resuming & groups.new_gpu[groups.number],
        )


def _labels(idle: _RunGroups, stalls: _Stalls, alike: _Alike, settings: LedgerSettings) -> Codes:
    """Return the labels: the kind, with use split by the day's evidence.

    Use is held, stalled or busy, and zero, stalling or resumed where only the adjacent day can decide.
    """
    label = alike.kind.copy()
    if not len(label):
        return label
    at_edge = idle.at_edge[idle.number]
    long = (idle.length >= settings.idle_after_ms)[idle.number]
    in_use = alike.kind == USE
    label[in_use] = BUSY
    label[in_use & alike.zero & long] = HELD
    label[in_use & alike.zero & ~long & at_edge] = ZERO
    # bursts come in every few minutes: the pauses between them are no idle intervals
    label[((label == BUSY) | (label == ZERO)) & (alike.sign == KEPT_ALIVE)] = STALLED
    label[stalls.long] = STALLED
    label[stalls.at_edge] = STALLING
    label[stalls.resuming] = RESUMED
    return label


def _table(
    runs: Runs, segments: Places, label: Codes, owner: Places, owners: Sequence[tuple[RowOwner, str | None]]
) -> pl.DataFrame:
    """Return the columns of the segments; `owner` are codes into `owners`."""
    known = [(source, whose.user, whose.account, whose.job) for whose, source in owners]
    text = pl.DataFrame(known, dict.fromkeys(("user_source", "user", "account", "job"), pl.String), orient="row")
    table: dict[str, object] = {
        "time": runs.start[segments],
        "unit": runs.gpu[segments],
        "end": _ends(runs, segments),
        "label": pl.Series(LABELS, dtype=pl.String).gather(label),
    }
    gathers = dict.fromkeys(_SUMS, np.add) | dict.fromkeys(_LARGEST, np.fmax) | dict.fromkeys(_WHOLLY, np.maximum)
    for name, gather in gathers.items():
        values: Floats = gather.reduceat(runs.values[name], segments) if len(segments) else runs.values[name]
        table[name] = np.where(np.isneginf(values), np.nan, values)
    columns = [pl.col(name).fill_nan(None).cast(pl.Int64 if name in _INTEGERS else pl.Float64) for name in gathers]
    return pl.DataFrame(table).hstack(text[owner]).with_columns(columns)


def _tails(rows: DayRows, use: Places, held: Held) -> pl.DataFrame:
    """Return the last row of each GPU, which the next day's first row may lengthen or shorten."""
    gpu = rows.gpu[_view(use, len(rows))]
    last = use[np.append(run_starts(gpu)[1:], len(use)) - 1] if len(use) else use
    power = rows.floats["power_w"][last]
    instances = np.array([uuid.startswith(MIG_PREFIX) for _, uuid in rows.names], bool)
    floats = {
        "last_util_pct": np.where(held.measured[last], rows.floats["gpu_util_pct"][last], np.nan),
        "last_sm_pct": rows.floats["sm_active_pct"][last],
        "last_power_w": power,
        "last_energy_w": np.where(rows.counted[last], np.nan, power),
        "last_watched_ratio": rows.floats["gpu_util_coverage_ratio"][last],
    }
    tails: dict[str, object] = {
        "unit": rows.gpu[last],
        "end": rows.start[last] + rows.weight[last],
        # by what its GPU's rows show, an instance ends with its last row
        "open_ms": np.where(
            instances[rows.gpu[last]],
            rows.interval[last] // 2,
            schema.GAP_INTERVALS * rows.interval[last] - rows.weight[last],
        ),
        "last_zero": held.zero[last],
        "last_counted": ~np.isnan(rows.risen_mj[last]),
    }
    return pl.DataFrame(tails | floats).with_columns(pl.col(list(floats)).fill_nan(None))


def _edges(rows: DayRows, shares: Shares, segments: pl.DataFrame) -> pl.DataFrame:
    """Return the time between the first and last row of a GPU, whatever the rows state, and what is known of it."""
    kept = _view(np.flatnonzero(~shares.left_out), len(rows))
    gpu = rows.gpu[kept]
    if not len(gpu):
        return segments.clear()
    first = run_starts(gpu)
    last = np.append(first[1:], len(gpu)) - 1
    seen = pl.DataFrame(
        {
            "unit": gpu[first],
            "first_seen": rows.start[kept][first],
            "last_seen": np.maximum.reduceat((rows.start + rows.interval)[kept], first),
            "gpu_share": shares.share[kept][first],
            "last_share": shares.share[kept][last],
        }
    )
    known = segments.group_by("unit").agg(pl.col("time").min(), pl.col("end").max())
    both = seen.join(known, on="unit", how="left")
    head = both.select("unit", "gpu_share", time="first_seen", end=pl.coalesce("time", "last_seen"))
    tail = both.filter(pl.col("end").is_not_null()).select("unit", gpu_share="last_share", time="end", end="last_seen")
    unknown = pl.concat([head, tail]).filter(pl.col("time") < pl.col("end"))
    return pl.concat([unknown.with_columns(label=pl.lit(LABELS[UNKNOWN])), _releases(rows, shares)])


def _releases(rows: DayRows, shares: Shares) -> pl.DataFrame:
    """Return the releases of GPUs as segments without length: the last row of the day before ends there, too."""
    released = rows.released & ~shares.left_out
    again = np.append(False, released[:-1] & (rows.gpu[1:] == rows.gpu[:-1]))[: len(released)]
    at = np.flatnonzero(released & ~again)
    moments = {"unit": rows.gpu[at], "gpu_share": shares.share[at], "time": rows.start[at], "end": rows.start[at]}
    return pl.DataFrame(moments).with_columns(label=pl.lit(LABELS[UNSEEN]))


def _user_shares(users: pl.Series, bounds: Places, weight: Ints, list_of_row: Places, lists: Lists) -> pl.Series:
    """Return `user_shares`: for each of several users, its processes' time over that of all of them."""
    found: list[list[float] | None] = [None] * len(users)
    for at, user in enumerate(users if lists.users else ()):
        if user is not None and "+" in user:
            mine = slice(bounds[at], bounds[at + 1])
            found[at] = _list_shares(user.split("+"), list_of_row[mine], weight[mine], lists)
    return pl.Series("user_shares", found, dtype=pl.List(pl.Float64))


def _list_shares(names: list[str], list_of_row: Places, weight: Ints, lists: Lists) -> list[float] | None:
    """Return shares in the order of the names; None where the user is not from process lists."""
    time = dict.fromkeys(names, 0.0)
    used, inverse = np.unique(list_of_row, return_inverse=True)
    for at, milliseconds in zip(used, np.bincount(inverse, weights=weight), strict=True):
        for name, count in lists.users.get(int(at), {}).items():
            time[name] = time.get(name, 0.0) + count * milliseconds
    total = sum(time[name] for name in names)
    return [time[name] / total for name in names] if total else None

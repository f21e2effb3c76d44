"""From a host-day's rows to pieces of the ledger: first runs of rows that are alike, then pieces with one label each.

A piece inside the day is final but for the choice between `low` and `active`, which the whole stretch decides. At the
day's edges a spell without a kernel may go on in the next day: a short one is labelled `zero` until the days are joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.ledger.columns import Codes, Floats, Ints, Mask, Places, run_starts
from analytics.ledger.day_owners import UNSEEN, USE, Held, Shares
from analytics.ledger.day_processes import Lists, RowOwner
from analytics.ledger.day_rows import DayRows
from analytics.ledger.settings import DRIVER_WINDOW_MS, GAP_INTERVALS, SAMPLED_BELOW, LedgerSettings
from analytics.mig import MIG_PREFIX

HELD, BUSY, ZERO, UNKNOWN = range(4, 8)
LABELS = ("unavailable", "free", "reserved", "use", "held", "busy", "zero", "unknown", "unseen")
_SOURCES = {"sm": "sm_active_pct", "power": "power_w", "watched": "gpu_util_coverage_ratio"}
"""The readings whose sums over time are kept, beside that of utilization, by the sums' name."""
_COUNTS = ("zero_ms", "energy_ms", "counter_ms", "sample_count", "sampled_ms", "perhaps_idle_ms")
_TOTALS = tuple(f"{name}_sum" for name in ("util", *_SOURCES))
_SUMS = (*_TOTALS, *(f"{name}_ms" for name in ("util", *_SOURCES)), *_COUNTS, "energy_mj")
_LARGEST = ("gpu_util_max_pct", "mem_used_max_bytes")
_WHOLLY = ("idle_draw_max_w", "idle_power_max_w")
"""Largest values that are unknown where any of theirs is."""
_INTEGERS = {*_SUMS, "mem_used_max_bytes"} - {*_TOTALS, "energy_mj"}


@dataclass(frozen=True)
class Runs:
    """Runs of rows, each with the index of its first row, its bounds and its sums (NaN where a maximum is unknown)."""

    first: Places
    gpu: Codes
    start: Ints
    end: Ints
    values: dict[str, Floats]


def find_pieces(
    rows: DayRows, held: Held, shares: Shares, lists: Lists, settings: LedgerSettings
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The pieces of one date's host-days, with the columns of `ledger_part`, and spells with those of `spell_part`."""
    use = np.flatnonzero(rows.usable & ~shares.left_out)
    alike = _Alike.of(held, shares, use)
    runs = _runs(rows, use, alike, settings)
    of_runs = alike.take(runs.first)
    spells = np.flatnonzero(_begins(runs, of_runs.zero))
    groups = _IdleGroups.of(runs, of_runs)
    label = _labels(groups, of_runs, settings)
    runs.values["perhaps_idle_ms"] += _beside_idle(groups, runs, of_runs, rows.weight[_view(use, len(rows))], settings)
    pieces = np.flatnonzero(_begins(runs, label, of_runs.owner))
    first_row = use[runs.first[pieces]]
    table = _table(runs, pieces, label[pieces], [held.owners[code] for code in held.owner[first_row]])
    tails = pl.DataFrame(_tails(rows, use, held))
    frame = pl.DataFrame(table | {"gpu_share": shares.share[first_row]}).join(tails, on=("unit", "end"), how="left")
    bounds = np.append(runs.first[pieces], len(use))
    frame = frame.with_columns(_holder_shares(frame["holder"], np.split(use, bounds[1:-1]), rows.weight, held, lists))
    at_zero = of_runs.zero[spells]
    ends = _ends(runs, spells)[at_zero]
    idle = {"time": runs.start[spells][at_zero], "unit": runs.gpu[spells][at_zero], "end": ends}
    pieces_and_edges = pl.concat([frame, _edges(rows, shares, frame)], how="diagonal_relaxed")
    return named(pieces_and_edges, rows), named(pl.DataFrame(idle), rows)


@dataclass(frozen=True)
class _Alike:
    """What the states depend on, row by row or run by run; `owner` tells shares of a GPU apart, too."""

    kind: Codes
    owner: Places
    zero: Mask
    measured: Mask

    @classmethod
    def of(cls, held: Held, shares: Shares, use: Places) -> _Alike:
        rows = _view(use, len(held.kind))
        owner = held.owner[rows]
        if (shares.share != 1).any():
            kinds, codes = np.unique(shares.share[rows], return_inverse=True)
            owner = owner * len(kinds) + codes
        return cls(held.kind[rows], owner, held.zero[rows], held.measured[rows])

    def take(self, at: Places) -> _Alike:
        return _Alike(self.kind[at], self.owner[at], self.zero[at], self.measured[at])


def _view(use: Places, count: int) -> Places | slice:
    """The same rows of so many, without a copy where they are all of them."""
    return slice(None) if len(use) == count else use


def named(frame: pl.DataFrame, rows: DayRows) -> pl.DataFrame:
    """The frame with `host` and `gpu` in place of `unit`, a code into the rows' names."""
    units = pl.DataFrame(
        [(code, *name) for code, name in enumerate(rows.names)],
        schema={"unit": pl.Int32, "host": pl.String, "gpu": pl.String},
        orient="row",
    )
    return (
        frame.with_columns(pl.col("unit").cast(pl.Int32))
        .join(units, on="unit", how="left", maintain_order="left")
        .drop("unit")
    )


def _runs(rows: DayRows, use: Places, alike: _Alike, settings: LedgerSettings) -> Runs:
    """Rows of one GPU that follow one another and are alike in all that the states depend on."""
    view = _view(use, len(rows))
    gpu, start = rows.gpu[view], rows.start[view]
    end = start + rows.weight[view]
    if not len(use):
        return Runs(use, gpu, start, end, dict.fromkeys((*_SUMS, *_LARGEST, *_WHOLLY), np.zeros(0)))
    packed = ((gpu.astype(np.int64) * 16 + alike.kind) * 2 + alike.zero) * 2 + alike.measured
    differs = (packed[1:] != packed[:-1]) | (alike.owner[1:] != alike.owner[:-1]) | (end[:-1] != start[1:])
    first = np.flatnonzero(np.concatenate(([True], differs)))
    last = np.append(first[1:], len(use)) - 1
    return Runs(first, gpu[first], start[first], end[last], _sums(rows, use, first, alike, settings))


def _sums(rows: DayRows, use: Places, first: Places, alike: _Alike, settings: LedgerSettings) -> dict[str, Floats]:
    """What a run carries: every sum is value times milliseconds, over the rows that state the value."""
    view = _view(use, len(rows))
    weight = rows.weight[view].astype(np.float64)
    count = len(weight)
    found: dict[str, Floats] = {}
    whole_ms = np.add.reduceat(weight, first)

    util, util_max = rows.floats["gpu_util_pct"][view], rows.floats["gpu_util_max_pct"][view]
    readings = {name: rows.floats[source][view] for name, source in _SOURCES.items()}
    for name, values in {"util": np.where(alike.measured, util, np.nan), **readings}.items():
        weighted = values * weight
        unknown = np.isnan(weighted)
        found[f"{name}_ms"] = whole_ms
        if unknown.any():
            weighted[unknown] = 0.0
            found[f"{name}_ms"] = whole_ms - np.add.reduceat(weight * unknown, first)
        found[f"{name}_sum"] = np.add.reduceat(weighted, first)
    energy = rows.energy_mj(rows.weight.astype(np.float64))[view]
    known = ~np.isnan(energy)
    found["energy_mj"] = np.add.reduceat(np.where(known, energy, 0.0), first)
    found["energy_ms"] = np.add.reduceat(np.where(known, weight, 0.0), first)
    found["counter_ms"] = np.add.reduceat(np.where(known & rows.counted[view], weight, 0.0), first)
    found |= _sampled(rows, view, first, alike, settings)
    found["zero_ms"] = np.add.reduceat(np.where(alike.zero, weight, 0.0), first)
    found["sample_count"] = np.diff(np.append(first, count)).astype(np.float64)
    found["gpu_util_max_pct"] = np.fmax.reduceat(np.fmax(util, util_max), first)
    found["mem_used_max_bytes"] = np.fmax.reduceat(rows.floats["mem_used_bytes"][view], first)
    return found


def _sampled(
    rows: DayRows,
    view: Places | slice,
    first: Places,
    alike: _Alike,
    settings: LedgerSettings,
) -> dict[str, Floats]:
    """Of point samples their time, and what speaks for or against work between those at 0."""
    gpu, start, weight, zero = rows.gpu[view], rows.start[view], rows.weight[view], alike.zero
    stated = rows.floats["gpu_util_coverage_ratio"][view]
    silent = np.isnan(stated) & (weight * SAMPLED_BELOW > DRIVER_WINDOW_MS)
    sampled = alike.measured & (silent | (stated < SAMPLED_BELOW))
    if not sampled.any():
        nothing = {name: np.full(len(first), np.nan) for name in _WHOLLY}
        return {"sampled_ms": np.zeros(len(first)), "perhaps_idle_ms": np.zeros(len(first)), **nothing}
    # a row's counter has risen since the row before: what lies between two rows at 0 is with the second of them
    goes_on = zero[1:] & zero[:-1] & (gpu[1:] == gpu[:-1]) & (start[1:] == start[:-1] + weight[:-1])
    between = np.concatenate((np.zeros(min(len(zero), 1), bool), goes_on))
    drawn = np.where(between, rows.rates["energy_mj"][view], -np.inf)
    power = np.where(zero, rows.floats["power_w"][view], -np.inf)
    # between two samples as far apart as an idle interval is long, there may have been one
    sparse = sampled & ~zero & (weight >= settings.idle_after_ms)
    return {
        "sampled_ms": np.add.reduceat(np.where(sampled, weight, 0.0), first),
        "perhaps_idle_ms": np.add.reduceat(np.where(sparse, weight, 0.0), first),
        "idle_draw_max_w": np.maximum.reduceat(drawn, first),
        "idle_power_max_w": np.maximum.reduceat(power, first),
    }


def _begins(runs: Runs, *keys: NDArray[np.generic]) -> Mask:
    """Whether a run differs from the one before it in GPU or any key, or does not follow on from it."""
    if not len(runs.first):
        return np.zeros(0, bool)
    same = (runs.gpu[1:] == runs.gpu[:-1]) & (runs.end[:-1] == runs.start[1:])
    for key in keys:
        same &= key[1:] == key[:-1]
    return np.concatenate(([True], ~same))


def _ends(runs: Runs, groups: Places) -> Ints:
    """The end of the last run of each group."""
    return runs.end[np.append(groups[1:], len(runs.first)) - 1] if len(groups) else runs.end[:0]


@dataclass(frozen=True)
class _IdleGroups:
    """Runs of one GPU, kind and owner that follow one another, all of them at 0 or none: `first` run, `number` of each run's group.

    `follows` says which go on from the group before without a gap.
    """

    first: Places
    number: Places
    length: Ints
    new_gpu: Mask
    follows: Mask

    @classmethod
    def of(cls, runs: Runs, alike: _Alike) -> _IdleGroups:
        begins = _begins(runs, alike.kind, alike.owner, alike.zero)
        first = np.flatnonzero(begins)
        ends, gpu = _ends(runs, first), runs.gpu[first]
        new_gpu = np.append(True, gpu[1:] != gpu[:-1])[: len(first)]
        follows = ~new_gpu & (runs.start[first] == np.append(0, ends[:-1])[: len(first)])
        return cls(first, np.cumsum(begins) - 1, ends - runs.start[first], new_gpu, follows)

    @property
    def at_edge(self) -> Mask:
        """The first and the last of each GPU's day."""
        last: Mask = np.append(self.new_gpu[1:], True)[: len(self.first)]
        return self.new_gpu | last


def _beside_idle(idle: _IdleGroups, runs: Runs, alike: _Alike, weight: Ints, settings: LedgerSettings) -> Floats:
    """Per run the time beside its idle interval that may have belonged to it, where both make one that counts.

    The row before one at 0 may have worked at its start only; the row after, where it is a mean, at its end only.
    """
    found = np.zeros(len(runs.first))
    groups = idle.first
    if not len(groups):
        return found
    row = runs.first[groups]
    at_zero = alike.zero[groups]
    works = (alike.kind[groups] == USE) & ~at_zero
    # what went before midnight lies in another day: as long as the first row is taken for it
    before = np.where(idle.new_gpu, weight[row], 0)
    before[1:][idle.follows[1:] & works[:-1]] = weight[row[1:] - 1][idle.follows[1:] & works[:-1]]
    after = np.zeros(len(groups), np.int64)
    mean = works & (runs.values["sampled_ms"][groups] == 0)
    after[:-1][idle.follows[1:] & mean[1:]] = weight[row[1:]][idle.follows[1:] & mean[1:]]
    both = before + after
    short = (idle.length < settings.idle_after_ms) & ~idle.at_edge
    enough = idle.length + both >= settings.idle_after_ms
    beside = np.where(short, np.where(enough, idle.length + both, 0), both)
    found[groups] = np.where(at_zero & (alike.kind[groups] == USE), beside, 0)
    return found


def _labels(idle: _IdleGroups, alike: _Alike, settings: LedgerSettings) -> Codes:
    """The kind, with use split into held, busy, and zero where only the next day can tell."""
    label = alike.kind.copy()
    if not len(label):
        return label
    at_edge = idle.at_edge[idle.number]
    long = (idle.length >= settings.idle_after_ms)[idle.number]
    in_use = alike.kind == USE
    label[in_use] = BUSY
    label[in_use & alike.zero & long] = HELD
    label[in_use & alike.zero & ~long & at_edge] = ZERO
    return label


def _table(
    runs: Runs, pieces: Places, label: Codes, owners: Sequence[tuple[RowOwner, str | None]]
) -> dict[str, object]:
    """The pieces' columns."""
    text: dict[str, list[str | None]] = {
        "label": [LABELS[code] for code in label],
        "holder_source": [source for _, source in owners],
        **{name: [getattr(owner, name) for owner, _ in owners] for name in ("holder", "account", "job")},
    }
    table: dict[str, object] = {
        "time": runs.start[pieces],
        "unit": runs.gpu[pieces],
        "end": _ends(runs, pieces),
        **{name: pl.Series(values, dtype=pl.String) for name, values in text.items()},
    }
    gathers = dict.fromkeys(_SUMS, np.add) | dict.fromkeys(_LARGEST, np.fmax) | dict.fromkeys(_WHOLLY, np.maximum)
    for name, gather in gathers.items():
        values: Floats = gather.reduceat(runs.values[name], pieces) if len(pieces) else runs.values[name]
        column = pl.Series(values=np.where(np.isneginf(values), np.nan, values)).fill_nan(None)
        table[name] = column.cast(pl.Int64) if name in _INTEGERS else column
    return table


def _tails(rows: DayRows, use: Places, held: Held) -> dict[str, object]:
    """Per GPU its last row: what the next day's first row may lengthen or shorten."""
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
    return {
        "unit": rows.gpu[last],
        "end": rows.start[last] + rows.weight[last],
        # an instance ends with its last row, as far as its GPU's rows can tell
        "open_ms": np.where(
            instances[rows.gpu[last]], rows.interval[last] // 2, (GAP_INTERVALS - 1) * rows.interval[last]
        ),
        "last_zero": held.zero[last],
        "last_counted": ~np.isnan(rows.risen_mj[last]),
        **{name: pl.Series(values).fill_nan(None) for name, values in floats.items()},
    }


def _edges(rows: DayRows, shares: Shares, pieces: pl.DataFrame) -> pl.DataFrame:
    """What lies between the first and last row of a GPU, of whatever content, and what is known of it."""
    kept = _view(np.flatnonzero(~shares.left_out), len(rows))
    gpu = rows.gpu[kept]
    if not len(gpu):
        return pieces.clear()
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
    known = pieces.group_by("unit").agg(pl.col("time").min(), pl.col("end").max())
    both = seen.join(known, on="unit", how="left")
    head = both.select("unit", "gpu_share", time="first_seen", end=pl.coalesce("time", "last_seen"))
    tail = both.filter(pl.col("end").is_not_null()).select("unit", gpu_share="last_share", time="end", end="last_seen")
    unknown = pl.concat([head, tail]).filter(pl.col("time") < pl.col("end"))
    return pl.concat([unknown.with_columns(label=pl.lit(LABELS[UNKNOWN])), _releases(rows, shares)])


def _releases(rows: DayRows, shares: Shares) -> pl.DataFrame:
    """Where GPUs were released, as pieces without length: what the last row of the day before stood for ends there, too."""
    released = rows.released & ~shares.left_out
    again = np.append(False, released[:-1] & (rows.gpu[1:] == rows.gpu[:-1]))[: len(released)]
    at = np.flatnonzero(released & ~again)
    moments = {"unit": rows.gpu[at], "gpu_share": shares.share[at], "time": rows.start[at], "end": rows.start[at]}
    return pl.DataFrame(moments).with_columns(label=pl.lit(LABELS[UNSEEN]))


def _holder_shares(holders: pl.Series, rows_of: Sequence[Places], weight: Ints, held: Held, lists: Lists) -> pl.Series:
    """`holder_shares`: of each of several users, its processes' time over that of all of them."""
    found: list[list[float] | None] = [None] * len(holders)
    for at, holder in enumerate(holders if lists.users else ()):
        if holder is not None and "+" in holder:
            mine = rows_of[at]
            found[at] = _split(holder.split("+"), held.list_of_row[mine], weight[mine], lists)
    return pl.Series("holder_shares", found, dtype=pl.List(pl.Float64))


def _split(names: list[str], list_of_row: Places, weight: Ints, lists: Lists) -> list[float] | None:
    """Shares in the order of the names; None where the holder is not from process lists."""
    time = dict.fromkeys(names, 0.0)
    used, inverse = np.unique(list_of_row, return_inverse=True)
    for at, milliseconds in zip(used, np.bincount(inverse, weights=weight), strict=True):
        for name, count in lists.users.get(int(at), {}).items():
            time[name] = time.get(name, 0.0) + count * milliseconds
    total = sum(time[name] for name in names)
    return [time[name] / total for name in names] if total else None

"""From a host-day's rows to pieces of the ledger: first runs of rows that are alike, then pieces with one label each.

A piece inside the day is final but for the choice between `low` and `active`, which the whole stretch decides. At the
day's edges a spell without a kernel may go on in the next day: a short one is labelled `zero` until the days are joined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from analytics.ledger.day_owners import USE
from analytics.ledger.settings import GAP_INTERVALS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from analytics.ledger.columns import Codes, Floats, Ints, Mask
    from analytics.ledger.day_lists import Lists
    from analytics.ledger.day_mig import Shares
    from analytics.ledger.day_owners import Held
    from analytics.ledger.day_rows import DayRows
    from analytics.ledger.settings import LedgerSettings

HELD, BUSY, ZERO, UNKNOWN = range(4, 8)
LABELS = ("unavailable", "free", "reserved", "use", "held", "busy", "zero", "unknown")
_SUMS = ("util_sum", "util_ms", "sm_sum", "sm_ms", "zero_ms", "power_sum", "power_ms", "energy_mj", "energy_ms", "watched_sum",
         "watched_ms", "sample_count")  # fmt: skip
_LARGEST = ("gpu_util_max_pct", "mem_used_max_bytes")


@dataclass(frozen=True)
class Runs:
    """Runs of rows, each with the index of its first row, its bounds and its sums (NaN where a maximum is unknown)."""

    first: NDArray[np.intp]
    gpu: Codes
    start: Ints
    end: Ints
    values: dict[str, Floats]


@dataclass(frozen=True)
class DayPieces:
    """Pieces with the columns of `ledger_part`, spells with those of `spell_part`."""

    pieces: pl.DataFrame
    spells: pl.DataFrame


def find_pieces(rows: DayRows, held: Held, shares: Shares, lists: Lists, settings: LedgerSettings) -> DayPieces:
    """The pieces and spells of one host-day."""
    use = np.flatnonzero(rows.usable & ~shares.left_out)
    kind, zero, measured = held.kind[use], held.zero[use], held.measured[use]
    share_codes = np.unique(shares.share[use], return_inverse=True)[1] if (shares.share != 1).any() else 0
    owner = held.owner[use] * (len(use) + 1) + share_codes
    runs = _runs(rows, use, kind, owner, zero, measured)
    run_kind, run_owner, run_zero = kind[runs.first], owner[runs.first], zero[runs.first]
    spells = _joined(runs, _begins(runs, run_zero.astype(np.int64)))
    zeros = run_zero[spells]
    label = _labels(runs, run_kind, run_owner, run_zero, settings)
    piece = _joined(runs, _begins(runs, label.astype(np.int64), run_owner))
    first_row = use[runs.first[piece]]
    table = _table(rows, runs, piece, label[piece], held, shares.share[first_row], first_row)
    tails = _tails(rows, use, held)
    frame = pl.DataFrame(table).join(pl.DataFrame(tails), on=("unit", "end"), how="left")
    frame = _with_shares(frame, rows, use, runs, piece, held, lists)
    edges = _edges(rows, shares, frame)
    spell_ends = _ends(runs, spells)
    found = pl.DataFrame({"time": runs.start[spells[zeros]], "unit": runs.gpu[spells[zeros]], "end": spell_ends[zeros]})
    return DayPieces(*(named(each, rows) for each in (pl.concat([frame, edges], how="diagonal_relaxed"), found)))


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


def _runs(rows: DayRows, use: NDArray[np.intp], kind: Codes, owner: Ints, zero: Mask, measured: Mask) -> Runs:
    """Rows of one GPU that follow one another and are alike in all that the states depend on."""
    gpu, start, weight = rows.gpu[use], rows.start[use], rows.weight[use]
    end = start + weight
    if not len(use):
        empty = np.zeros(0)
        names = (*_SUMS, *_LARGEST)
        return Runs(use, gpu, start, end, dict.fromkeys(names, empty))
    packed = ((gpu.astype(np.int64) * 4 + kind) * 2 + zero) * 2 + measured
    begins = np.concatenate(([True], (packed[1:] != packed[:-1]) | (owner[1:] != owner[:-1]) | (end[:-1] != start[1:])))
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(use)) - 1
    return Runs(first, gpu[first], start[first], end[last], _sums(rows, use, first, zero, measured))


def _sums(
    rows: DayRows, use: NDArray[np.intp], first: NDArray[np.intp], zero: Mask, measured: Mask
) -> dict[str, Floats]:
    """What a run carries: every sum is value times milliseconds, over the rows that state the value."""
    weight = rows.weight[use].astype(np.float64)
    found: dict[str, Floats] = {}

    def add(values: Floats, total: str, known_ms: str) -> None:
        known = ~np.isnan(values)
        found[total] = np.add.reduceat(np.where(known, values, 0.0) * weight, first)
        found[known_ms] = np.add.reduceat(np.where(known, weight, 0.0), first)

    util, util_max = rows.floats["gpu_util_pct"][use], rows.floats["gpu_util_max_pct"][use]
    add(np.where(measured, util, np.nan), "util_sum", "util_ms")
    add(rows.floats["sm_active_pct"][use], "sm_sum", "sm_ms")
    power = rows.floats["power_w"][use]
    add(power, "power_sum", "power_ms")
    risen = rows.rates["energy_mj"][use]
    add(np.where(np.isnan(risen), power, risen), "energy_mj", "energy_ms")
    add(rows.floats["gpu_util_coverage_ratio"][use], "watched_sum", "watched_ms")
    found["zero_ms"] = np.add.reduceat(np.where(zero, weight, 0.0), first)
    found["sample_count"] = np.diff(np.append(first, len(use))).astype(np.float64)
    found["gpu_util_max_pct"] = np.fmax.reduceat(np.fmax(util, util_max), first)
    found["mem_used_max_bytes"] = np.fmax.reduceat(rows.floats["mem_used_bytes"][use], first)
    return found


def _begins(runs: Runs, *keys: Ints) -> Mask:
    """Whether a run differs from the one before it in GPU or any key, or does not follow on from it."""
    if not len(runs.first):
        return np.zeros(0, bool)
    same = (runs.gpu[1:] == runs.gpu[:-1]) & (runs.end[:-1] == runs.start[1:])
    for key in keys:
        same &= key[1:] == key[:-1]
    return np.concatenate(([True], ~same))


def _joined(runs: Runs, begins: Mask) -> NDArray[np.intp]:
    """Indices of the runs with which the groups begin."""
    return np.flatnonzero(begins)


def _ends(runs: Runs, groups: NDArray[np.intp]) -> Ints:
    """The end of the last run of each group."""
    return runs.end[np.append(groups[1:], len(runs.first)) - 1] if len(groups) else runs.end[:0]


def _labels(runs: Runs, kind: Codes, owner: Ints, zero: Mask, settings: LedgerSettings) -> NDArray[np.int8]:
    """The kind, with use split into held, busy, and zero where only the next day can tell."""
    label = kind.copy()
    if not len(label):
        return label
    begins = _begins(runs, kind.astype(np.int64), owner, zero.astype(np.int64))
    groups = np.flatnonzero(begins)
    number = np.cumsum(begins) - 1
    length = _ends(runs, groups) - runs.start[groups]
    group_gpu = runs.gpu[groups]
    new_gpu = np.concatenate(([True], group_gpu[1:] != group_gpu[:-1]))
    at_edge = new_gpu | np.append(new_gpu[1:], True)
    long = (length >= settings.idle_after_ms)[number]
    in_use = kind == USE
    label[in_use] = BUSY
    label[in_use & zero & long] = HELD
    label[in_use & zero & ~long & at_edge[number]] = ZERO
    return label


def _table(
    rows: DayRows, runs: Runs, piece: NDArray[np.intp], label: Codes, held: Held, share: Floats, first_row: NDArray[np.intp]
) -> dict[str, object]:  # fmt: skip
    """The pieces' columns."""
    owners = [held.owners[code] for code in held.owner[first_row]]
    table: dict[str, object] = {
        "time": runs.start[piece],
        "unit": runs.gpu[piece],
        "end": _ends(runs, piece),
        "label": pl.Series([LABELS[code] for code in label], dtype=pl.String),
        "gpu_share": share,
        "holder": pl.Series([owner.holder for owner, _ in owners], dtype=pl.String),
        "holder_source": pl.Series([source for _, source in owners], dtype=pl.String),
        "account": pl.Series([owner.account for owner, _ in owners], dtype=pl.String),
        "job": pl.Series([owner.job for owner, _ in owners], dtype=pl.String),
    }
    integers = {
        "util_ms",
        "sm_ms",
        "zero_ms",
        "power_ms",
        "energy_ms",
        "watched_ms",
        "sample_count",
        "mem_used_max_bytes",
    }
    for name in (*_SUMS, *_LARGEST):
        gather = np.fmax if name in _LARGEST else np.add
        values = gather.reduceat(runs.values[name], piece) if len(piece) else runs.values[name]
        column = pl.Series(values).fill_nan(None)
        table[name] = column.cast(pl.Int64) if name in integers else column
    return table


def _tails(rows: DayRows, use: NDArray[np.intp], held: Held) -> dict[str, object]:
    """Per GPU its last row: what the next day's first row may lengthen or shorten."""
    gpu = rows.gpu[use]
    last = use[np.flatnonzero(np.append(gpu[1:] != gpu[:-1], True))] if len(use) else use
    power, risen = rows.floats["power_w"][last], rows.rates["energy_mj"][last]
    floats = {
        "last_util_pct": np.where(held.measured[last], rows.floats["gpu_util_pct"][last], np.nan),
        "last_sm_pct": rows.floats["sm_active_pct"][last],
        "last_power_w": power,
        "last_energy_w": np.where(np.isnan(risen), power, risen),
        "last_watched_ratio": rows.floats["gpu_util_coverage_ratio"][last],
    }
    return {
        "unit": rows.gpu[last],
        "end": rows.start[last] + rows.weight[last],
        "open_ms": (GAP_INTERVALS - 1) * rows.interval[last],
        "last_zero": held.zero[last],
        **{name: pl.Series(values).fill_nan(None) for name, values in floats.items()},
    }


def _edges(rows: DayRows, shares: Shares, pieces: pl.DataFrame) -> pl.DataFrame:
    """What lies between the first and last row of a GPU, of whatever content, and what is known of it."""
    kept = np.flatnonzero(~shares.left_out)
    gpu = rows.gpu[kept]
    if not len(kept):
        return pieces.clear()
    first = np.flatnonzero(np.append(True, gpu[1:] != gpu[:-1]))
    seen = pl.DataFrame(
        {
            "unit": gpu[first],
            "first_seen": rows.start[kept][first],
            "last_seen": np.maximum.reduceat((rows.start + rows.interval)[kept], first),
            "gpu_share": shares.share[kept][first],
        }
    )
    known = pieces.group_by("unit").agg(pl.col("time").min(), pl.col("end").max())
    both = seen.join(known, on="unit", how="left")
    head = both.select("unit", "gpu_share", time="first_seen", end=pl.coalesce("time", "last_seen"))
    tail = both.filter(pl.col("end").is_not_null()).select("unit", "gpu_share", time="end", end="last_seen")
    unknown = pl.concat([head, tail]).filter(pl.col("time") < pl.col("end"))
    return unknown.with_columns(label=pl.lit(LABELS[UNKNOWN]))


def _with_shares(
    frame: pl.DataFrame, rows: DayRows, use: NDArray[np.intp], runs: Runs, piece: NDArray[np.intp], held: Held, lists: Lists
) -> pl.DataFrame:  # fmt: skip
    """Adds `holder_shares`: of each of several users, its processes' time over that of all of them."""
    found: list[list[float] | None] = [None] * len(piece)
    if lists.users:
        bounds = np.append(runs.first[piece], len(use))
        for at, holder in enumerate(frame["holder"]):
            if holder is not None and "+" in holder:
                inside = use[bounds[at] : bounds[at + 1]]
                found[at] = _split(holder.split("+"), held.list_of_row[inside], rows.weight[inside], lists)
    return frame.with_columns(holder_shares=pl.Series(found, dtype=pl.List(pl.Float64)))


def _split(names: list[str], list_of_row: NDArray[np.intp], weight: Ints, lists: Lists) -> list[float] | None:
    """Shares in the order of the names; None where the holder is not from process lists."""
    time = dict.fromkeys(names, 0.0)
    used, inverse = np.unique(list_of_row, return_inverse=True)
    for at, milliseconds in zip(used, np.bincount(inverse, weights=weight), strict=True):
        for name, count in lists.users.get(int(at), {}).items():
            time[name] = time.get(name, 0.0) + count * milliseconds
    total = sum(time[name] for name in names)
    return [time[name] / total for name in names] if total else None

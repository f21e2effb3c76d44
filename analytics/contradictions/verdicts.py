"""Readings that cannot be true together, whatever wrote them: a function from rows to verdicts, for ledger and imports.

Two kinds of verdict. Where nothing shows what a GPU did, its rows are refuted and their time is not observed: a page
whose readings repeat (an exporter or its driver hangs), or kernels on a card without a context. Where one witness alone
is wrong, its values are unknown and the time stays observed: a counter that stands still beside readings that move,
energy that does not fit the power, power or activity that repeats beside a card at work.

One witness never convicts. Repeated readings are a fault only if several repeat for ten minutes, and one of them cannot
repeat. An idle card's readings may all repeat, unless its energy counter stands still too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fallow import schema
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS
from fallow.stall_evidence import NO_CONTEXT_BYTES

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Mask = NDArray[np.bool_]
Places = NDArray[np.intp]

READINGS_REPEAT = "readings_repeat"
UTIL_WITHOUT_CONTEXT = "util_without_context"
UNOBSERVED = (READINGS_REPEAT, UTIL_WITHOUT_CONTEXT)
"""Contradictions after which nothing shows what the GPU did."""

COUNTER_STANDS_STILL = "counter_stands_still"
ENERGY_AGAINST_POWER = "energy_against_power"
POWER_AGAINST_ENERGY = "power_against_energy"
POWER_REPEATS = "power_repeats"
ACTIVITY_REPEATS = "activity_repeats"
MEMORY_WITHOUT_CONTEXT = "memory_without_context"

_LEAST_MS = 10 * MINUTE_MS
"""Shorter repetition happens by itself, and a verdict within ten minutes is soon enough."""

_LEAST_ROWS, _LEAST_ROWS_OF_NOISE = 5, 10
"""Repeated rows that count beside a counter, and beside noise: it is coarser, and two readings may agree by chance."""

_LEAST_VALUES = 3
"""The driver's utilization and memory repeat by themselves; a third value must agree."""

_LIVELY = 10
"""Different values in a day that show the noise of a source."""

_ROUNDING = 0.005
_EDGE_PCT = 0.5
"""A mean this near to 0 or 100 % may stay equal."""

_BUSY_PCT, _AT_WORK_PCT = 10.0, 50.0

_LEAST_W = 5.0
"""Less than any card draws that answers for ten minutes: its counter rises at least as fast."""

_LEAST_MJ = _LEAST_W * _LEAST_MS
_CARD_MOST_W = 3_000.0
"""Twice the largest board limit of 2026."""

_REST_W, _WORK_W = 150.0, 300.0
"""The largest card of 2026 rests at 140 W without a context; none draws 300 W without a kernel."""

_FREE_W = 60.0
"""Less than the smallest cards draw that compute without a break (a T4 or L4: 70 W)."""

_SWING = 1.5
"""Largest power over smallest of a card that works now and then."""

_FACTOR = 1.75
"""The counter of some servers covers more than the board; two cards that are counted as one rise twice as fast."""

_REPEATING_FACTOR = 2.5
"""The same for readings that repeat: a card may be at its power limit at every reading and rest between them."""

_AGREEING = 0.8
"""Share of steps that must be off to the same side: the mean of two readings is off by chance to either side."""

_SETTLED_MS, _SETTLED_STEPS = 45 * MINUTE_MS, 12
_COMPARED_MS = MINUTE_MS
"""Distance of the steps that are compared; more of them cost time and add no certainty."""

_OF_UTIL = ("gpu_util_pct", "gpu_util_max_pct", "gpu_util_p98_pct")
_OF_ACTIVITY = ("sm_active_pct", "dram_active_pct")
COLUMNS = (
    *("power_w", *_OF_UTIL, *_OF_ACTIVITY, "mem_used_bytes", "temperature_c", "sm_clock_mhz"),
    *("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s", "nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"),
)
"""The readings that are compared, beside the energy counter and the process list."""


@dataclass(frozen=True)
class GpuReadings:
    """Rows by GPU and start, as arrays of one length; unknown floats are NaN."""

    gpu: Codes
    hosts: Sequence[str]
    """The host of each code in `gpu`."""
    source: Codes
    """What wrote each row: equal codes for one kind of writer."""
    start: Ints
    interval: Ints
    span: Ints
    """The milliseconds that each row covers."""
    columns: Mapping[str, Floats]
    """Those of COLUMNS that any row states."""
    counter_mj: Floats | None
    """The energy counter; None where no row states it."""
    drawn_w: Floats | None
    """Its rise over time since the row before; NaN where that is unknown."""
    process_count: Ints
    """-1 where it is unknown."""
    out_of_order: Mask | None = None
    """Rows of GPUs that could not have been used, whatever else they state: they are not judged."""
    throttled: Sequence[Floats] = ()
    """Rises of counters of throttled time."""

    @cached_property
    def nothing(self) -> Floats:
        return np.full(len(self.gpu), np.nan)

    @cached_property
    def page(self) -> Ints:
        """Return equal numbers for rows of one host and source: one page shows all its GPUs."""
        host = np.unique(np.array(self.hosts), return_inverse=True)[1].astype(np.int64)
        return (host[self.gpu] << 32) + self.source

    @cached_property
    def stride(self) -> int:
        """Return the distance of rows of which every long enough run holds three: few rows show where to look."""
        longest_ms = int(self.interval[::64].max())
        return (max(_LEAST_ROWS, _LEAST_MS // max(1, longest_ms)) + 1) // 3

    @cached_property
    def first_rows(self) -> Ints:
        """Return the first row of each GPU, and the number of all rows."""
        return np.searchsorted(self.gpu, np.arange(len(self.hosts) + 1, dtype=self.gpu.dtype))

    def of(self, name: str) -> Floats:
        """Return a column; NaN throughout where no row states it."""
        return self.columns.get(name, self.nothing)

    def __len__(self) -> int:
        return len(self.gpu)


@dataclass(frozen=True)
class Contradiction:
    """Rows of one GPU whose values cannot be true together."""

    kind: str
    rows: Places
    example: str


class Contradictions:
    """The verdicts over some rows: which of them are refuted, which values are unknown, and why."""

    def __init__(self, rows: GpuReadings) -> None:
        self._rows = rows
        self.refuted = np.zeros(len(rows), bool)
        """Rows that show nothing of what the GPU did."""
        self.unknown: dict[str, Mask] = {}
        """Rows without a usable value, by column of the table `gpu`."""
        self._parts: dict[tuple[int, str], list[tuple[Places, str]]] = {}

    def add(self, kind: str, at: slice | Mask, columns: Sequence[str], example: str) -> None:
        """Make columns of some rows of one GPU unknown, unless the rows are refuted already."""
        places = np.arange(len(self._rows))[at]
        places = places[~self.refuted[places]]
        if self._rows.out_of_order is not None:
            places = places[~self._rows.out_of_order[places]]
        if not len(places):
            return
        for name in columns:
            self.unknown.setdefault(name, np.zeros(len(self._rows), bool))[places] = True
        if kind in UNOBSERVED:
            self.refuted[places] = True
        self._parts.setdefault((int(self._rows.gpu[places[0]]), kind), []).append((places, example))

    def found(self) -> Iterator[Contradiction]:
        """Yield one contradiction for each GPU and kind, with the longest example."""
        for (_, kind), parts in self._parts.items():
            longest = max(parts, key=lambda part: len(part[0]))
            yield Contradiction(kind, np.unique(np.concatenate([places for places, _ in parts])), longest[1])


def contradictions(rows: GpuReadings) -> Contradictions:
    """Return the verdicts over a day's rows, or a part of a day's."""
    found = Contradictions(rows)
    if len(rows):
        steady = _unchanged(rows, _base(rows))
        still = _runs(rows, _still_rows(rows, _runs(rows, steady, _LEAST_ROWS)), _LEAST_ROWS)
        broken = _judge_counters(rows, still, found)
        _judge_pages(rows, still, broken, found)
        _judge_power(rows, steady, found)
        _judge_activity(rows, found)
        _judge_context(rows, found)
        _judge_energy(rows, found)
    return found


@dataclass(frozen=True)
class _Runs:
    """Runs of adjacent rows of one GPU, each by its first and its last row."""

    first: Places
    last: Places

    def __iter__(self) -> Iterator[slice]:
        return (slice(int(first), int(last) + 1) for first, last in zip(self.first, self.last, strict=True))

    def where(self, chosen: Mask) -> _Runs:
        return _Runs(self.first[chosen], self.last[chosen])

    def rows(self) -> Places:
        """Return the rows of all runs."""
        lengths = self.last - self.first + 1
        ends = np.cumsum(lengths)
        places: Places = np.arange(int(lengths.sum())) + np.repeat(self.first - ends + lengths, lengths)
        return places


def _runs(rows: GpuReadings, at: Places, least_rows: int) -> _Runs:
    """Return the runs among these rows that are long enough, in number and in the time that they cover."""
    if not len(at):
        return _Runs(at, at)
    breaks = np.flatnonzero((np.diff(at) != 1) | (rows.gpu[at[1:]] != rows.gpu[at[:-1]]))
    first, last = at[np.append(0, breaks + 1)], at[np.append(breaks, len(at) - 1)]
    count = last - first + 1
    enough = count >= least_rows
    first, last, count = first[enough], last[enough], count[enough]
    covered_ms = np.minimum(
        rows.start[last] + rows.span[last] - rows.start[first], count * schema.GAP_INTERVALS * rows.interval[first]
    )
    return _Runs(first, last).where(covered_ms >= _LEAST_MS)


def _base(rows: GpuReadings) -> Floats:
    """Return the reading that repeats least by itself, of those that any row states."""
    names = [name for name in ("power_w", *_OF_ACTIVITY, "gpu_util_pct") if name in rows.columns]
    return rows.of(names[0]) if names else rows.nothing


def _unchanged(rows: GpuReadings, values: Floats, above: float | None = None) -> Places:
    """Return the rows that repeat their GPU's previous value, in runs that may be long enough; unknowns are equal.

    Only values above a bound, where it is given.
    """
    bits, stride = _bits(values), rows.stride
    looked_at = bits[::stride]
    equal = looked_at[1:] == looked_at[:-1]
    if above is not None:
        equal &= values[::stride][1:] > above
    seen = np.flatnonzero(equal[1:] & equal[:-1])
    if not len(seen):
        return seen
    breaks = np.flatnonzero(np.diff(seen) > 4)  # the rows around two places overlap up to there
    first, last = seen[np.append(0, breaks + 1)], seen[np.append(breaks, len(seen) - 1)]
    around = _Runs(np.maximum((first - 1) * stride + 1, 1), np.minimum((last + 3) * stride, len(bits)) - 1)
    at = _equal_before(bits, around.rows())
    return _chosen(at, rows.gpu[at] == rows.gpu[at - 1])


def _bits(values: Floats) -> Ints:
    return np.ascontiguousarray(values, np.float64).view(np.int64)


def _equal_before(bits: Ints, at: Places) -> Places:
    return _chosen(at, bits[at] == bits[at - 1])


def _chosen(at: Places, which: Mask) -> Places:
    chosen: Places = at[which]
    return chosen


def _still_rows(rows: GpuReadings, steady: _Runs) -> Places:
    """Return the rows of these runs all of whose readings are those of the row before."""
    at = steady.rows()
    for values in _measured(rows):
        at = _equal_before(_bits(values), at)
    for rises in rows.throttled:
        at = _chosen(at, ~(rises[at] > 0))
    return _chosen(at, rows.process_count[at] == rows.process_count[at - 1])


def _measured(rows: GpuReadings) -> list[Floats]:
    counter = [] if rows.counter_mj is None else [rows.counter_mj]
    return [*(values for name, values in rows.columns.items() if name not in _OF_UTIL[1:]), *counter]


def _alike(rows: GpuReadings, still: _Runs) -> Mask:
    alike = np.zeros(len(rows), bool)
    alike[still.rows()] = True
    return alike


def _judge_counters(rows: GpuReadings, still: _Runs, found: Contradictions) -> set[int]:
    """Drop energy counters that stand still beside moving readings. Return their GPUs: no witnesses against a page."""
    if rows.counter_mj is None or rows.drawn_w is None:
        return set()
    at = _unchanged(rows, rows.counter_mj)
    standing = _runs(rows, _chosen(at, (rows.drawn_w[at] == 0) & (rows.counter_mj[at] > 0)), _LEAST_ROWS)
    stuck = [run for run in standing if _must_have_risen(rows, run)]
    if not stuck:
        return set()
    alike, broken = _alike(rows, still), set()
    for run in stuck:
        # the newest page may have come with an old counter
        moving = np.arange(run.start + 1, run.stop)[~alike[run.start + 1 : run.stop]]
        if len(moving) >= _LEAST_ROWS and (rows.start[moving] - rows.start[moving - 1]).sum() >= _LEAST_MS:
            broken.add(int(rows.gpu[run.start]))
    for run in stuck:
        if int(rows.gpu[run.start]) in broken:
            watts = rows.of("power_w")[run]
            beside = "" if np.isnan(watts).all() else f" beside {np.nanmean(watts):.4g} W"
            found.add(
                COUNTER_STANDS_STILL, run, ("energy_mj",), f"energy_mj stays {rows.counter_mj[run.start]:.0f}{beside}"
            )
    return broken


def _gpu_rows(rows: GpuReadings, run: slice) -> slice:
    """Return all rows of the GPU of a run."""
    return _rows_of(rows, int(rows.gpu[run.start]))


def _rows_of(rows: GpuReadings, gpu: int) -> slice:
    return slice(int(rows.first_rows[gpu]), int(rows.first_rows[gpu + 1]))


def _must_have_risen(rows: GpuReadings, run: slice) -> bool:
    """Return whether, by the power, the counter must have risen here by `_LEAST_MJ` and by twice its finest step."""
    watts = np.nan_to_num(rows.of("power_w")[run], nan=_LEAST_W)
    steps_ms = rows.start[run] - rows.start[run.start - 1 : run.stop - 1]
    rises = np.zeros(0) if rows.counter_mj is None else np.diff(rows.counter_mj[_gpu_rows(rows, run)])
    finest = rises[rises > 0]
    return float((watts * steps_ms).sum()) >= max(_LEAST_MJ, 2 * float(finest.min()) if len(finest) else 0.0)


def _judge_pages(rows: GpuReadings, still: _Runs, broken: set[int], found: Contradictions) -> None:
    """Refute rows that repeat all readings of the row before, where one of them cannot."""
    convicted = still.where(_cannot_repeat(rows, still, broken)) if len(still.first) else still
    if not len(convicted.first):
        return
    alike, of_page = _alike(rows, still), (*rows.columns, *(() if rows.counter_mj is None else ("energy_mj",)))
    for run in convicted:
        first = run.start - 1
        is_days_first = first == 0 or rows.gpu[first - 1] != rows.gpu[first]
        has_old_counter = rows.drawn_w is not None and rows.drawn_w[first] == 0
        # the first of equal readings is a new one if something shows that it is
        seen = slice(first, run.stop) if is_days_first or has_old_counter else run
        found.add(READINGS_REPEAT, seen, of_page, _page_example(rows, run))
    for run in convicted:
        # a page shows all GPUs of its host: those at rest have no reading that cannot repeat
        begins, ends = rows.start[run.start], rows.start[run.stop - 1]
        inside = (rows.page == rows.page[run.start]) & (rows.start >= begins) & (rows.start <= ends)
        if (alike | found.refuted)[inside & (rows.start > begins)].all():
            for gpu in np.unique(rows.gpu[inside & ~found.refuted]):
                own = inside & alike & (rows.gpu == gpu)
                found.add(READINGS_REPEAT, own, of_page, "as the other GPUs of its page")


def _cannot_repeat(rows: GpuReadings, still: _Runs, broken: set[int]) -> Mask:
    """Return which runs of equal rows hold a value that cannot repeat: a counter, or the noise of a card at work."""
    at = still.first
    stated = sum((~np.isnan(values[at])).astype(int) for values in _measured(rows))
    busy = (rows.of("gpu_util_pct")[at] >= _BUSY_PCT) & (still.last - at + 1 >= _LEAST_ROWS_OF_NOISE)
    counted = np.zeros(len(at), bool) if rows.counter_mj is None else rows.counter_mj[at] > 0
    cannot = [
        (has_counter and int(rows.gpu[run.start]) not in broken and _must_have_risen(rows, run))
        or (works and any(_is_noise(rows, name, run) for name in ("power_w", "gpu_util_pct", *_OF_ACTIVITY)))
        for has_counter, works, run in zip(counted, busy, still, strict=True)
    ]
    return np.asarray((stated >= _LEAST_VALUES) & np.array(cannot, bool), bool)


def _is_noise(rows: GpuReadings, name: str, run: slice) -> bool:
    """Return whether a card at work does not keep the value that a run repeats: power, or a mean of activity.

    Rounded values may stay equal, and so may those of a source that never showed any noise of this card.
    """
    values, value = rows.of(name), float(rows.of(name)[run.start])
    if np.isnan(value) or (name != "power_w" and not _EDGE_PCT < value < 100 - _EDGE_PCT):
        return False
    if _is_finer_than_the_lake(name, value):
        return True
    is_rounded = abs(value - round(value)) <= _ROUNDING
    return not is_rounded and len(np.unique(values[_gpu_rows(rows, run)])) >= _LIVELY


def _is_finer_than_the_lake(name: str, value: float) -> bool:
    """Return whether a value has more digits than the agent keeps of its readings."""
    digits = 10 if name == "power_w" else 100
    return abs(value * digits - round(value * digits)) > _ROUNDING


def _page_example(rows: GpuReadings, run: slice) -> str:
    """Return some of the values that repeat."""
    values = {"energy_mj": rows.nothing if rows.counter_mj is None else rows.counter_mj} | dict(rows.columns)
    shown = {name: float(each[run.start]) for name, each in values.items() if name not in _OF_UTIL[1:]}
    known = [(name, value) for name, value in shown.items() if not np.isnan(value)]
    return ", ".join(f"{name} {round(value) if value.is_integer() else f'{value:.6g}'}" for name, value in known[:4])


def _judge_power(rows: GpuReadings, at: Places, found: Contradictions) -> None:
    """Drop power that repeats beside a card at work, and utilization that repeats with it, unless the counter agrees.

    `at` are the rows with the power of the row before.
    """
    if "power_w" not in rows.columns or "gpu_util_pct" not in rows.columns:
        return
    power, util = rows.of("power_w"), rows.of("gpu_util_pct")
    for run in _runs(rows, at[(util[at] >= _BUSY_PCT) & (power[at] > 0)], _LEAST_ROWS_OF_NOISE):
        drawn = rows.nothing[run] if rows.drawn_w is None else rows.drawn_w[run]
        watts, drawn_w = float(power[run.start]), float(drawn[drawn > 0].mean()) if (drawn > 0).any() else None
        borne_out = drawn_w is not None and 1 / _REPEATING_FACTOR <= drawn_w / watts <= _REPEATING_FACTOR
        if borne_out or found.refuted[run].all() or not _is_noise(rows, "power_w", run):
            continue
        example = f"power_w stays {watts:.6g}" + ("" if drawn_w is None else f" beside {drawn_w:.4g} W by energy_mj")
        if drawn_w is not None and drawn_w <= _CARD_MOST_W and (util[run] == util[run.start]).all():
            found.add(READINGS_REPEAT, run, ("power_w", *_OF_UTIL, *_OF_ACTIVITY), example)
        else:
            found.add(POWER_REPEATS, run, ("power_w",), example)


def _is_alone(rows: GpuReadings, run: slice) -> bool:
    """Return whether neither power nor activity repeats in these rows beside utilization: then it may well be right."""
    others = (rows.of(name)[run] for name in ("power_w", *_OF_ACTIVITY))
    return not any((values == values[0]).all() for values in others)


def _judge_activity(rows: GpuReadings, found: Contradictions) -> None:
    """Drop means of activity that repeat to the last digit on a card at work.

    Light work may repeat them: a call each minute is as many samples in each row. The agent's rounded means may, too.
    """
    for name in ("sm_active_pct", "gpu_util_pct"):
        if name not in rows.columns:
            continue
        values, util = rows.of(name), rows.of("gpu_util_pct")
        at = _unchanged(rows, values, _EDGE_PCT)
        for run in _runs(rows, at[~(util[at] < _BUSY_PCT)], _LEAST_ROWS_OF_NOISE):
            if found.refuted[run].all() or not _is_noise(rows, name, run):
                continue
            example = f"{name} stays {values[run.start]:.6g}"
            if (util[run] == util[run.start]).all() and _is_noise(rows, "gpu_util_pct", run):
                if _is_alone(rows, run):
                    continue
                found.add(READINGS_REPEAT, run, (*_OF_UTIL, *_OF_ACTIVITY), example)
            elif _is_finer_than_the_lake(name, float(values[run.start])):
                found.add(ACTIVITY_REPEATS, run, _OF_ACTIVITY, example)


def _judge_context(rows: GpuReadings, found: Contradictions) -> None:
    """Judge kernels beside memory in which no context fits: utilization or memory is wrong.

    A second witness decides. Processes, activity and power of work are against memory. An empty process list, no
    activity, and the power of a free card beside a utilization that never moves are against utilization. Where they
    disagree, both stay.
    """
    if "gpu_util_pct" not in rows.columns or "mem_used_bytes" not in rows.columns:
        return
    util, memory = rows.of("gpu_util_pct"), rows.of("mem_used_bytes")
    seen = slice(None, None, rows.stride)
    if not ((memory[seen] < NO_CONTEXT_BYTES) & (util[seen] >= _BUSY_PCT)).any():
        return
    at = np.flatnonzero((memory < NO_CONTEXT_BYTES) & (util >= _BUSY_PCT))
    for run in _runs(rows, at[~found.refuted[at]], _LEAST_ROWS):
        lists, power = rows.process_count[run], rows.of("power_w")[run]
        low_w, high_w = (np.nan, np.nan) if np.isnan(power).all() else (np.nanmin(power), np.nanmax(power))
        active = np.fmax(rows.of("sm_active_pct")[run], rows.of("dram_active_pct")[run])
        moves = bool((np.diff(util[run]) != 0).any())
        works = (lists > 0).any() or (active >= 1).any() or high_w > _WORK_W or (moves and high_w > _REST_W)
        works = works or high_w >= _SWING * low_w
        rests = (lists == 0).all() or (active < 1).all() or (not moves and high_w <= _FREE_W)
        example = f"gpu_util_pct {util[run].mean():.4g}, mem_used_bytes {memory[run].max():.0f}"
        example += "" if np.isnan(high_w) else f", power_w {high_w:.4g}"
        if works and not rests:
            found.add(MEMORY_WITHOUT_CONTEXT, run, ("mem_used_bytes",), example)
        elif rests and not works:
            found.add(UTIL_WITHOUT_CONTEXT, run, _OF_UTIL, example)


def _judge_energy(rows: GpuReadings, found: Contradictions) -> None:
    """Drop energy that rises much faster or slower than power, where a step's ends are alike: at work, or no context.

    Between two readings of a card that only holds a context, work may hide that nothing but the counter shows.
    """
    if rows.drawn_w is None or "power_w" not in rows.columns:
        return
    power = rows.of("power_w")
    usual_ms = int(np.median(rows.interval[:: len(rows) // 1000 + 1]))
    every = max(1, _COMPARED_MS // max(1, usual_ms))
    drawn, mean_w = rows.drawn_w[1::every], (power[1::every] + power[:-1:every]) / 2
    off = np.flatnonzero((drawn > _FACTOR * mean_w) | ((drawn * _FACTOR < mean_w) & (drawn > 0)))
    at = off * every + 1
    at = _chosen(at, _is_settled(rows, at))
    # a fault of some hours shows in each of them, one in rows that are far apart in the whole day
    for block_ms in (HOUR_MS, DAY_MS):
        block = (rows.gpu[at].astype(np.int64) << 32) + rows.start[at] // block_ms
        for key in _frequent(block):
            own = _block_rows(rows, int(key), block_ms, every)
            known = own[(rows.drawn_w[own] > 0) & ~found.refuted[own] & _is_settled(rows, own)]
            watts = (power[known] + power[known - 1]) / 2
            ratio = rows.drawn_w[known][watts > 0] / watts[watts > 0]
            if rows.span[known].sum() * every < _SETTLED_MS or len(ratio) < _SETTLED_STEPS:
                continue
            if max(np.mean(ratio > _FACTOR), np.mean(ratio * _FACTOR < 1)) >= _AGREEING:
                _drop_energy(rows, known, float(np.median(ratio)), block_ms, found)


def _frequent(block: Ints) -> Ints:
    """Return the numbers that occur often enough to be most of some settled steps."""
    keys, count = np.unique(block, return_counts=True)
    return keys[count >= _AGREEING * _SETTLED_STEPS]


def _block_rows(rows: GpuReadings, key: int, block_ms: int, every: int) -> Places:
    """Return the rows of a GPU and a time that are compared with the row before."""
    of_gpu = _rows_of(rows, key >> 32)
    own: Places = np.arange(of_gpu.start + (1 - of_gpu.start) % every, of_gpu.stop, every)
    return _chosen(own, rows.start[own] // block_ms == key & 0xFFFFFFFF)


def _is_settled(rows: GpuReadings, at: Places) -> Mask:
    util, memory, lists = rows.of("gpu_util_pct"), rows.of("mem_used_bytes"), rows.process_count
    works = (util[at] >= _AT_WORK_PCT) & (util[at - 1] >= _AT_WORK_PCT)
    empty, was_empty = ((lists[each] == 0) | (memory[each] < NO_CONTEXT_BYTES) for each in (at, at - 1))
    return np.asarray(works | (empty & was_empty), bool)


def _drop_energy(rows: GpuReadings, at: Places, ratio: float, block_ms: int, found: Contradictions) -> None:
    """Drop the energy of a GPU's block; its power instead, where no card draws that much."""
    watts = float(np.nanmedian(rows.of("power_w")[at]))
    own = (rows.gpu == rows.gpu[at[0]]) & (rows.start // block_ms == rows.start[at[0]] // block_ms)
    example = f"energy_mj rises as at {ratio * watts:.4g} W beside power_w {watts:.4g}"
    if watts > _CARD_MOST_W >= ratio * watts:
        found.add(POWER_AGAINST_ENERGY, own, ("power_w",), example)
    else:
        found.add(ENERGY_AGAINST_POWER, own, ("energy_mj",), example)

"""The `gpu` rows of some hosts' same UTC day, in order, cleaned, and each with the time that it stands for.

Whatever cannot be a measurement (300 %, a negative byte count, NaN) becomes unknown here, once, and is counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from analytics.ledger.columns import NONE, Codes, Columns, Floats, Ints, Mask, Strings, Units, run_starts
from analytics.ledger.settings import GAP_INTERVALS
from fallow import schema
from fallow.clock import DAY_MS, format_ms
from fallow.lake import LakeFile
from fallow.quarantine import OnUnusable
from fallow.schema import UNAVAILABLE_HEALTH

ASLEEP = "asleep"
"""The health of a GPU that the kernel has powered down: nobody can be on it."""

RELEASED = "released"
"""The health of a GPU that nobody reads from then on."""

UNKNOWN = "unknown"
"""The health of a GPU of which nothing was observed in the interval."""

_PERCENTS = (
    "gpu_util_pct",
    "gpu_util_max_pct",
    "gpu_util_p98_pct",
    "sm_active_pct",
    "dram_active_pct",
)
_RATES = ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s", "nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s")
THROTTLED = {
    "power": ("throttled_power_cap_ms", "throttled_power_brake_ms"),
    "thermal": ("throttled_sw_thermal_ms", "throttled_hw_thermal_ms"),
    "sync": ("throttled_sync_boost_ms",),
}
_COUNTERS = ("energy_mj", *(name for names in THROTTLED.values() for name in names))
COLUMNS = (
    *("gpu", "time", "offset_ms", "interval_ms", "health", "util_source", *_PERCENTS, "gpu_util_coverage_ratio"),
    *("mem_used_bytes", "power_w", *_RATES, "counters_since", *_COUNTERS),
    *("temperature_c", "sm_clock_mhz", "process_count"),
)

_USE = ("gpu_util_pct", "gpu_util_max_pct", "sm_active_pct", "process_count", "mem_used_bytes")
"""Of two rows for one moment of a GPU the one with more of these counts: work that one of two saw was there."""

_PERCENT_MAX = 100.5
"""An average that the GPU keeps itself may lie a hair above 100."""
_RATIO_MAX = 1.01
_MOST = 1e15
"""No card has a petabyte, draws so many watts or moves so many bytes a second."""
_COUNTER_MOST = 9e18
_TIME_BITS = 42
"""Milliseconds of 139 years: a GPU's code and a moment in one number."""


@dataclass(frozen=True)
class Defect:
    """Rows of one GPU, or files of one host, with something wrong in them."""

    host: str
    gpu: str | None
    kind: str
    count: int
    example: str


@dataclass(frozen=True)
class DayRows:
    """Rows sorted by GPU and start, each moment of a GPU once; `gpu` are codes into `names`, pairs of host and UUID.

    `usable` says which rows tell anything about the state. `weight` is the time that a usable row stands for (0 for the
    others): up to the next usable one or to where the GPU was released, three intervals at most, one for the GPU's last. `span`
    is the same over all rows.
    Floats are NaN where unknown; a column that no row states is the array `nothing` itself, for which nothing need be computed; integers are -1. `rates` are counters as rises per millisecond over the time since the row before. `risen_mj` is the energy
    counter's rise in that time, NaN where `counted` rows, which state the counter, follow none.
    """

    names: tuple[tuple[str, str], ...]
    gpu: Codes
    time: Ints
    start: Ints
    interval: Ints
    health: Strings
    floats: dict[str, Floats]
    rates: dict[str, Floats]
    risen_mj: Floats
    counted: Mask
    nothing: Floats
    process_count: Ints
    usable: Mask
    weight: Ints
    span: Ints
    defects: tuple[Defect, ...]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.start)

    def also_usable(self, more: Mask) -> DayRows:
        """The same, with some rows more that say what the GPU is for."""
        usable = self.usable | more
        if (usable == self.usable).all():
            return self
        return replace(
            self, usable=usable, weight=_usable_weights(self.gpu, self.start, self.interval, usable, self.health)
        )

    @property
    def released(self) -> Mask:
        """Rows that say nothing but that nobody reads the GPU any more."""
        return self.health.where_in((RELEASED,)) & ~self.usable

    def energy_mj(self, lasting_ms: Floats) -> Floats:
        """The energy of each row: by the counter where it is read, never more than it rose, else power times a time."""
        return np.where(self.counted, self.risen_mj, self.floats["power_w"] * lasting_ms)

    @property
    def out_of_order(self) -> Mask:
        """Rows of GPUs that nobody could have used."""
        return self.health.where_in(UNAVAILABLE_HEALTH)


def read_day_rows(
    files: Iterable[LakeFile], day_ms: int, gpu: str | None = None, on_unusable: OnUnusable | None = None
) -> DayRows:
    """The rows of these `gpu` files of a day, of all GPUs or of one; raises as `parquet.read` does."""
    return day_rows(Columns(files, schema.GPU, COLUMNS, gpu, on_unusable), day_ms)


def in_day(time: Ints, day_ms: int) -> Mask:
    """Times inside the day: a file holds its own day's rows, a broken clock's lie anywhere."""
    return np.asarray((time >= day_ms) & (time < day_ms + DAY_MS), bool)


def day_rows(columns: Columns, day_ms: int) -> DayRows:
    """The rows of some columns named COLUMNS."""
    units = columns.units()
    names, codes = units.names, units.codes
    time = columns.ints("time")
    # a day's rows begin in the day, so that days never overlap but for the last row's reach
    start = np.maximum(time + columns.ints("offset_ms", 0), day_ms)
    interval = columns.ints("interval_ms")
    timed = (interval > 0) & (interval <= DAY_MS)
    dated = in_day(time, day_ms) & in_day(start, day_ms)
    whole = timed & dated & (codes != NONE)
    whole &= ~_agents_saw(codes, start, interval, whole, columns.strings("util_source"))
    kept, doubled = _in_order(codes, start, whole, columns)
    tally = _Tally(names, codes[kept], columns, kept)
    gpu, start, interval = codes[kept], start[kept], interval[kept]
    nothing = np.full(len(gpu), np.nan)
    floats = _floats(columns, kept, tally, nothing)
    health = columns.strings("health").take(kept)
    process_count = columns.ints("process_count")[kept]
    usable = health.where_in((*UNAVAILABLE_HEALTH, ASLEEP)) | ~np.isnan(floats["gpu_util_pct"]) | (process_count == 0)
    span = _weights(gpu, start, interval)
    weight = span
    if not usable.all():
        weight = _usable_weights(gpu, start, interval, usable, health)
    rates, counted = _rates(columns, kept, (gpu, start, interval), tally, nothing)
    since_ms = np.diff(start, prepend=0).astype(np.float64)
    tally.overlaps(gpu, start, interval)
    lost = _lost(units, ~timed, "no_interval", columns.ints("interval_ms"))
    lost += _lost(units, timed & ~dated, "wrong_day", columns.ints("time"))
    return DayRows(
        names=names,
        gpu=gpu,
        time=columns.ints("time")[kept],
        start=start,
        interval=interval,
        health=health,
        floats=floats,
        rates=rates,
        risen_mj=rates["energy_mj"] * since_ms,
        counted=counted,
        nothing=nothing,
        process_count=process_count,
        usable=usable,
        weight=weight,
        span=span,
        defects=(*tally.found, *lost, *_doubles(names, codes, doubled)),
    )


def _agents_saw(codes: Codes, start: Ints, interval: Ints, whole: Mask, source: Strings) -> Mask:
    """Scraped rows of moments that a row of an agent covers, which may have come to the lake after them: the agent saw more."""
    scraped = whole & source.where_in(("scraped",))
    agents = whole & ~source.where_in(("scraped", "import"))
    if not scraped.any() or not agents.any():
        return np.zeros(len(codes), bool)
    order = np.lexsort((scraped, start, codes))
    moment = (codes.astype(np.int64) << _TIME_BITS) + start
    seen_until = np.maximum.accumulate(np.where(agents, moment + interval, 0)[order])
    covered = np.zeros(len(codes), bool)
    covered[order] = scraped[order] & (seen_until > moment[order])
    return covered


def _in_order(codes: Codes, start: Ints, whole: Mask, columns: Columns) -> tuple[Ints | slice, Ints]:
    """The rows to keep, by GPU and start, each moment once; and those that repeat a moment with other content or not.

    Which of several rows of one moment stays does not depend on their order: the one with the most use.
    """
    rows = np.flatnonzero(whole)
    gpu, moment = codes[rows], start[rows]
    rising = (gpu[1:] > gpu[:-1]) | ((gpu[1:] == gpu[:-1]) & (moment[1:] > moment[:-1]))
    if rising.all():  # as the lake's files are written: nothing need be copied
        return slice(None) if len(rows) == len(codes) else rows, rows[:0]
    rows = rows[np.lexsort((moment, gpu))]
    same = (np.diff(codes[rows]) == 0) & (np.diff(start[rows]) == 0)
    if not same.any():
        return rows, rows[:0]
    ties: list[Floats] = [*_tie_breakers(columns, rows), start[rows].astype(float), codes[rows].astype(float)]
    rows = rows[np.lexsort(ties)]
    first = run_starts(codes[rows], start[rows])
    return rows[first], np.delete(rows, first)


def _tie_breakers(columns: Columns, rows: Ints) -> list[Floats]:
    """Keys for lexsort, the last one first: the most use, then the smallest by the other columns, null first."""
    keys = []
    for name in reversed([name for name in COLUMNS[1:] if name not in _USE]):
        if schema.GPU.column(name).type is schema.Type.STRING:
            text = columns.strings(name)
            ranks = np.array([*np.argsort(np.argsort(np.array(text.names, object))), NONE], np.float64)
            keys.append(ranks[text.codes][rows])
        else:
            keys.append(np.nan_to_num(columns.floats(name)[rows], nan=-np.inf))
    return keys + [_most_first(columns, name, rows) for name in reversed(_USE)]


def _most_first(columns: Columns, name: str, rows: Ints) -> Floats:
    """A key that sorts the largest value first; what is unknown, or cannot be a measurement, comes last."""
    values = columns.floats(name)[rows]
    most = _PERCENT_MAX if name in _PERCENTS else _MOST
    return np.where((values >= 0) & (values <= most), -values, np.inf)


def _floats(columns: Columns, kept: Ints | slice, tally: _Tally, nothing: Floats) -> dict[str, Floats]:
    most = dict.fromkeys(_PERCENTS, _PERCENT_MAX) | {"gpu_util_coverage_ratio": _RATIO_MAX}
    most |= dict.fromkeys(("mem_used_bytes", "power_w", *_RATES, "sm_clock_mhz"), _MOST)
    found = {
        name: tally.within(name, columns.floats(name)[kept], limit) if columns.has(name) else nothing
        for name, limit in most.items()
    }
    if found["gpu_util_pct"] is not nothing:
        np.minimum(found["gpu_util_pct"], 100.0, out=found["gpu_util_pct"])
    found["temperature_c"] = columns.floats("temperature_c")[kept] if columns.has("temperature_c") else nothing
    return found


def _weights(gpu: Codes, start: Ints, interval: Ints) -> Ints:
    """min(next - this, 3 intervals); one interval for the last of a GPU."""
    weight = interval.copy()
    if len(start) > 1:
        follows = gpu[1:] == gpu[:-1]
        reach = np.minimum(start[1:] - start[:-1], GAP_INTERVALS * interval[:-1])
        np.copyto(weight[:-1], reach, where=follows)
    return weight


def _usable_weights(gpu: Codes, start: Ints, interval: Ints, usable: Mask, health: Strings) -> Ints:
    """The same of usable rows, up to where the GPU was released at most; 0 for the others."""
    told = usable | health.where_in((RELEASED,))
    weight = np.zeros(len(gpu), np.int64)
    weight[told] = _weights(gpu[told], start[told], interval[told])
    return np.where(usable, weight, 0)


def _rates(
    columns: Columns, kept: Ints | slice, axis: tuple[Codes, Ints, Ints], tally: _Tally, nothing: Floats
) -> tuple[dict[str, Floats], Mask]:
    """Each counter's rise per millisecond since the row before, in the same epoch and without a gap, NaN elsewhere.

    And which rows state the energy counter.
    """
    found, counted = dict.fromkeys(_COUNTERS, nothing), np.zeros(len(nothing), bool)
    there = [name for name in _COUNTERS if columns.has(name)]
    if not there or not len(nothing):
        return found, counted
    gpu, start, interval = axis
    epoch = columns.ints("counters_since")[kept]
    step = np.diff(start)
    goes_on = (epoch[1:] == epoch[:-1]) | _unbroken(epoch, start, columns.strings("util_source").take(kept))
    follows = (gpu[1:] == gpu[:-1]) & goes_on & (step <= GAP_INTERVALS * interval[:-1])
    followed_ms = np.where(follows, step, np.nan)
    for name in there:
        values = tally.within(name, columns.floats(name)[kept], _COUNTER_MOST)
        if name == "energy_mj":
            counted = ~np.isnan(values)
        rate = np.empty(len(nothing))
        rate[0] = np.nan
        np.divide(np.diff(values), followed_ms, out=rate[1:])
        fell = rate < 0
        tally.add("counter_fell", fell, name, values)
        rate[fell] = np.nan
        found[name] = rate
    return found, counted


def _unbroken(epoch: Ints, start: Ints, source: Strings) -> Mask:
    """Of scraped rows and those before: only one names an epoch, and it began before both.

    Who reads samples sees a new beginning in them, and names it no longer where its window was cut.
    """
    scraped = source.where_in(("scraped",))
    last, this = epoch[:-1], epoch[1:]
    began_before = (this == NONE) | ((last == NONE) & (this <= start[:-1]))
    return np.asarray(scraped[1:] & scraped[:-1] & began_before, bool)


class _Tally:
    """Counts what is wrong, per GPU and kind, and keeps the first as an example."""

    def __init__(self, names: tuple[tuple[str, str], ...], gpu: Codes, columns: Columns, kept: Ints | slice) -> None:
        self._names, self._gpu, self._columns, self._kept = names, gpu, columns, kept
        self._counts: dict[tuple[tuple[str, str], str], tuple[int, str]] = {}

    @property
    def found(self) -> tuple[Defect, ...]:
        """What was counted so far."""
        return tuple(Defect(*unit, kind, count, example) for (unit, kind), (count, example) in self._counts.items())

    def within(self, name: str, values: Floats, most: float) -> Floats:
        """The values, NaN where they are no number, below 0 or above `most`; may change them in place."""
        unknown = int(np.count_nonzero(np.isnan(values)))
        if unknown > self._columns.null_count(name):
            stated = np.ones(len(self._columns), bool)
            stated[self._columns.null_rows(name)] = False
            self.add("not_a_number", np.isnan(values) & stated[self._kept], name, values)
        if unknown == len(values) or (np.nanmin(values) >= 0 and np.nanmax(values) <= most):
            return values
        self.add("not_a_number", np.isinf(values), name, values)
        values[np.isinf(values)] = np.nan
        below, above = values < 0, values > most
        self.add("util_out_of_range" if most <= _PERCENT_MAX else "negative_value", below, name, values)
        self.add("util_out_of_range" if most <= _PERCENT_MAX else "too_large", above, name, values)
        values[below | above] = np.nan
        return values

    def add(self, kind: str, wrong: Mask, name: str, values: Floats) -> None:
        """Counts some rows."""
        if not wrong.any():
            return
        counts = np.bincount(self._gpu[wrong], minlength=len(self._names))
        for code in np.flatnonzero(counts):
            first = np.flatnonzero(wrong & (self._gpu == code))[0]
            key = (self._names[code], kind)
            shown = format_ms(int(values[first])) if name == "time" else f"{values[first]:g}"
            count, example = self._counts.get(key, (0, f"{name} {shown}"))
            self._counts[key] = (count + int(counts[code]), example)

    def overlaps(self, gpu: Codes, start: Ints, interval: Ints) -> None:
        """Rows that begin well inside the one before: the clock went back, or two writers share a name."""
        early = (gpu[1:] == gpu[:-1]) & (np.diff(start) < interval[:-1] // 2)
        self.add("overlapping_rows", np.concatenate(([False], early)), "time", start.astype(np.float64))


def _lost(units: Units, wrong: Mask, kind: str, values: Ints) -> list[Defect]:
    """Rows that stand for no time, or for one that their file cannot hold."""
    bad = wrong & (units.codes != NONE)
    if not bad.any():
        return []
    counts = np.bincount(units.codes[bad], minlength=len(units.names))
    return [
        Defect(*units.names[code], kind, int(counts[code]), f"{values[bad].min()} ms")
        for code in np.flatnonzero(counts)
    ]


def _doubles(names: tuple[tuple[str, str], ...], codes: Codes, doubled: Ints) -> list[Defect]:
    """Rows of a moment that another row describes."""
    if not len(doubled):
        return []
    counts = np.bincount(codes[doubled], minlength=len(names))
    return [
        Defect(*names[code], "duplicate_rows", int(counts[code]), "the same GPU and moment twice")
        for code in np.flatnonzero(counts)
    ]

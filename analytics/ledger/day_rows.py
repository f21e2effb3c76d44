"""The `gpu` rows of some hosts' same UTC day, in order, cleaned, with the time that each row covers.

Values that cannot be a measurement (300 %, a negative byte count, NaN) become unknown here, once, and are counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analytics.ledger.card_use import LIMITS, SM_ACTIVITY
from analytics.ledger.columns import NONE, Codes, Columns, Floats, Ints, Mask, Strings, Units, run_starts
from analytics.ledger.settings import DRIVER_WINDOW_MS, SAMPLED_BELOW
from fallow import schema
from fallow.clock import DAY_MS, format_ms
from fallow.lake import LakeFile
from fallow.quarantine import OnUnusable
from fallow.schema import UNAVAILABLE_HEALTH

ASLEEP = "asleep"
"""The health of a GPU that the kernel has powered down: no process can be on it."""

RELEASED = "released"
"""The health of a GPU that no reader reads from then on."""

UNKNOWN = "unknown"
"""The health of a GPU of which nothing was observed in the interval."""

REFUTED = "refuted"
"""The health of a GPU whose values in the interval contradict each other, so that they show nothing of its use."""

_PERCENTS = (
    "gpu_util_pct",
    "gpu_util_max_pct",
    "gpu_util_p98_pct",
    SM_ACTIVITY,
    *LIMITS.values(),
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
"""Of two rows for one moment of a GPU, the row with more of these is kept: work that either row shows did happen."""

_PERCENT_MAX = 100.5
"""An average that the GPU keeps itself may lie a hair above 100."""
_RATIO_MAX = 1.01
_MOST = 1e15
"""No card has a petabyte of memory, draws this many watts or moves this many bytes a second."""
_COUNTER_MOST = 9e18
_TIME_BITS = 42
"""Milliseconds of 139 years: a GPU's code and a moment in one number."""


@dataclass(frozen=True)
class Defect:
    """Rows of one GPU, or files of one host, with a fault."""

    host: str
    gpu: str | None
    kind: str
    count: int
    example: str
    source: str | None = None
    """What wrote values that contradict each other; None for other faults."""
    affected_ms: int | None = None
    """The time of these values; None for other faults."""


@dataclass(frozen=True)
class DayRows:
    """Rows sorted by GPU and start, each moment of a GPU once. Unknown floats are NaN, unknown integers are -1."""

    names: tuple[tuple[str, str], ...]
    """Pairs of host and UUID."""
    gpu: Codes
    """The GPU of each row, a code into `names`."""
    time: Ints
    start: Ints
    interval: Ints
    health: Strings
    source: Strings
    floats: dict[str, Floats]
    """Columns by name; a column that no row states is the array `nothing` itself, which needs no computation."""
    rates: dict[str, Floats]
    """Counters as rises per millisecond since the row before."""
    risen_mj: Floats
    """Rise of the energy counter since the row before; NaN where it is unknown, as in a `counted` row after a gap."""
    counted: Mask
    """Rows that state the energy counter."""
    counter_mj: Floats
    """The counter itself, `nothing` where no row states it."""
    nothing: Floats
    process_count: Ints
    usable: Mask
    """Rows that show anything about the state."""
    weight: Ints
    """The time that a usable row covers, 0 for other rows. It ends at the next usable row or where the GPU was
    released, after three intervals at most, or one for the GPU's last row."""
    span: Ints
    """The same over all rows."""
    defects: tuple[Defect, ...]
    places: Ints | slice
    """The places of the rows among the `file_rows` rows of their files."""
    file_rows: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.start)

    @cached_property
    def sampled(self) -> Mask:
        """Return the rows that watched less than half of their time."""
        stated = self.floats["gpu_util_coverage_ratio"]
        silent = np.isnan(stated) & (self.weight * SAMPLED_BELOW > DRIVER_WINDOW_MS)
        found: Mask = silent | (stated < SAMPLED_BELOW)
        return found

    def also_usable(self, more: Mask) -> DayRows:
        """Return the rows with some more rows marked as usable."""
        usable = self.usable | more
        if (usable == self.usable).all():
            return self
        return replace(
            self, usable=usable, weight=usable_weights(self.gpu, self.start, self.interval, usable, self.health)
        )

    @property
    def released(self) -> Mask:
        """Return the rows that state only that the GPU is no longer read."""
        return self.health.where_in((RELEASED,)) & ~self.usable

    def energy_mj(self, lasting_ms: Floats) -> Floats:
        """Return the energy of each row: the rise of its counter where that is read, else power times a time."""
        return np.where(self.counted, self.risen_mj, self.floats["power_w"] * lasting_ms)

    @property
    def out_of_order(self) -> Mask:
        """Return the rows of GPUs that could not have been used."""
        return self.health.where_in(UNAVAILABLE_HEALTH)


def read_day_rows(
    files: Iterable[LakeFile], day_ms: int, gpu: str | None = None, on_unusable: OnUnusable | None = None
) -> DayRows:
    """Return the rows of these `gpu` files of a day, of all GPUs or of one. Raises as `parquet.read` does."""
    return day_rows(Columns(files, schema.GPU, COLUMNS, gpu, on_unusable), day_ms)


def in_day(time: Ints, day_ms: int) -> Mask:
    """Return which times are inside the day. A file holds its own day's rows, except those of a broken clock."""
    return np.asarray((time >= day_ms) & (time < day_ms + DAY_MS), bool)


def day_rows(columns: Columns, day_ms: int) -> DayRows:
    """Return the rows of some columns named COLUMNS."""
    units = columns.units()
    names, codes = units.names, units.codes
    time = columns.ints("time")
    # a day's rows begin in the day, so days overlap only by the reach of the last row
    start = np.maximum(time + columns.ints("offset_ms", 0), day_ms)
    stated = columns.ints("interval_ms")
    timed = (stated > 0) & (stated <= DAY_MS)
    dated = in_day(time, day_ms) & in_day(start, day_ms)
    whole = timed & dated & (codes != NONE)
    whole &= ~_covered_by_agents(codes, start, stated, whole, columns.strings("util_source"))
    kept, doubled = _ordered_rows(codes, start, whole, columns)
    tally = _Tally(names, codes[kept], columns, kept)
    gpu, start, interval = codes[kept], start[kept], stated[kept]
    nothing = np.full(len(gpu), np.nan)
    floats = _floats(columns, kept, tally, nothing)
    health = columns.strings("health").take(kept)
    process_count = columns.ints("process_count")[kept]
    usable = health.where_in((*UNAVAILABLE_HEALTH, ASLEEP)) | ~np.isnan(floats["gpu_util_pct"]) | (process_count == 0)
    span = _weights(gpu, start, interval)
    weight = span
    if not usable.all():
        weight = usable_weights(gpu, start, interval, usable, health)
    rates, counter_mj = _rates(columns, kept, (gpu, start, interval), tally, nothing)
    since_ms = np.diff(start, prepend=0).astype(np.float64)
    tally.overlaps(gpu, start, interval)
    lost = _timeless_rows(units, ~timed, "no_interval", stated)
    lost += _timeless_rows(units, timed & ~dated, "wrong_day", time)
    return DayRows(
        names=names,
        gpu=gpu,
        time=time[kept],
        start=start,
        interval=interval,
        health=health,
        source=columns.strings("util_source").take(kept),
        floats=floats,
        rates=rates,
        risen_mj=rates["energy_mj"] * since_ms,
        counted=~np.isnan(counter_mj),
        counter_mj=counter_mj,
        nothing=nothing,
        process_count=process_count,
        usable=usable,
        weight=weight,
        span=span,
        defects=(*tally.found, *lost, *_repeated_rows(names, codes, doubled)),
        places=kept,
        file_rows=len(columns),
    )


def _covered_by_agents(codes: Codes, start: Ints, interval: Ints, whole: Mask, source: Strings) -> Mask:
    """Return the scraped rows of moments that an agent's row covers, even if scraped later: it observed more."""
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


def _ordered_rows(codes: Codes, start: Ints, whole: Mask, columns: Columns) -> tuple[Ints | slice, Ints]:
    """Return the rows to keep, by GPU and start, each moment once; and the rows that repeat a moment.

    Of the rows of one moment, the one with the most use stays, whatever their order and content.
    """
    rows = np.flatnonzero(whole)
    gpu, moment = codes[rows], start[rows]
    rising = (gpu[1:] > gpu[:-1]) | ((gpu[1:] == gpu[:-1]) & (moment[1:] > moment[:-1]))
    if rising.all():  # the order in which the lake's files are written, so no copy is needed
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
    """Return keys for lexsort, the last one first: the most use, then the smallest by the other columns, null first."""
    keys = []
    for name in reversed([name for name in COLUMNS[1:] if name not in _USE]):
        if schema.GPU.column(name).type is schema.Type.STRING:
            text = columns.strings(name)
            ranks = np.array([*np.argsort(np.argsort(np.array(text.names, object))), NONE], np.float64)
            keys.append(ranks[text.codes][rows])
        else:
            keys.append(np.nan_to_num(columns.floats(name)[rows], nan=-np.inf))
    return keys + [_largest_first_key(columns, name, rows) for name in reversed(_USE)]


def _largest_first_key(columns: Columns, name: str, rows: Ints) -> Floats:
    """Return a key that sorts the largest value first; unknown and impossible values come last."""
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
    """Return min(next - this, 3 intervals); one interval for the last row of a GPU."""
    weight = interval.copy()
    if len(start) > 1:
        follows = gpu[1:] == gpu[:-1]
        reach = np.minimum(start[1:] - start[:-1], schema.GAP_INTERVALS * interval[:-1])
        np.copyto(weight[:-1], reach, where=follows)
    return weight


def usable_weights(gpu: Codes, start: Ints, interval: Ints, usable: Mask, health: Strings) -> Ints:
    """Return the same for usable rows, up to where the GPU was released or refuted at most; 0 for the others."""
    bounds = usable | health.where_in((RELEASED, REFUTED))
    weight = np.zeros(len(gpu), np.int64)
    weight[bounds] = _weights(gpu[bounds], start[bounds], interval[bounds])
    return np.where(usable, weight, 0)


def _rates(
    columns: Columns, kept: Ints | slice, axis: tuple[Codes, Ints, Ints], tally: _Tally, nothing: Floats
) -> tuple[dict[str, Floats], Floats]:
    """Return each counter's rise per millisecond since the row before, NaN after a gap or in another epoch.

    Return also the energy counter itself.
    """
    found, counter_mj = dict.fromkeys(_COUNTERS, nothing), nothing
    there = [name for name in _COUNTERS if columns.has(name)]
    if not there or not len(nothing):
        return found, counter_mj
    gpu, start, interval = axis
    epoch = columns.ints("counters_since")[kept]
    step = np.diff(start)
    goes_on = (epoch[1:] == epoch[:-1]) | _in_one_epoch(epoch, start, columns.strings("util_source").take(kept))
    follows = (gpu[1:] == gpu[:-1]) & goes_on & (step <= schema.GAP_INTERVALS * interval[:-1])
    followed_ms = np.where(follows, step, np.nan)
    steady = np.append(np.nan, 0 / followed_ms)
    for name in there:
        values = tally.within(name, columns.floats(name)[kept], _COUNTER_MOST)
        if name == "energy_mj":
            counter_mj = values
        if values[0] == values[-1] and (values == values[0]).all():  # most cards are never slowed down
            found[name] = steady
            continue
        rate = np.empty(len(nothing))
        rate[0] = np.nan
        np.divide(np.diff(values), followed_ms, out=rate[1:])
        fell = rate < 0
        tally.add("counter_fell", fell, name, values)
        rate[fell] = np.nan
        found[name] = rate
    return found, counter_mj


def _in_one_epoch(epoch: Ints, start: Ints, source: Strings) -> Mask:
    """Return which adjacent scraped rows share an epoch that began before both and that at most one of them names.

    A reader of samples recognizes a new epoch in them, and no longer names it where the window was cut.
    """
    scraped = source.where_in(("scraped",))
    last, this = epoch[:-1], epoch[1:]
    began_before = (this == NONE) | ((last == NONE) & (this <= start[:-1]))
    return np.asarray(scraped[1:] & scraped[:-1] & began_before, bool)


class _Tally:
    """Counts faulty values, per GPU and kind, and keeps the first as an example."""

    def __init__(self, names: tuple[tuple[str, str], ...], gpu: Codes, columns: Columns, kept: Ints | slice) -> None:
        self._names, self._gpu, self._columns, self._kept = names, gpu, columns, kept
        self._counts: dict[tuple[tuple[str, str], str], tuple[int, str]] = {}

    @property
    def found(self) -> tuple[Defect, ...]:
        """Return the defects counted so far."""
        return tuple(Defect(*unit, kind, count, example) for (unit, kind), (count, example) in self._counts.items())

    def within(self, name: str, values: Floats, most: float) -> Floats:
        """Return the values, NaN where they are no number, below 0 or above `most`; may change them in place."""
        if len(values) and values.min() >= 0 and values.max() <= most:  # False where one is NaN
            return values
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
        """Count some rows."""
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
        """Count rows that begin well inside the one before: the clock went back, or two writers share a name."""
        early = (gpu[1:] == gpu[:-1]) & (np.diff(start) < interval[:-1] // 2)
        self.add("overlapping_rows", np.concatenate(([False], early)), "time", start.astype(np.float64))


def _timeless_rows(units: Units, wrong: Mask, kind: str, values: Ints) -> list[Defect]:
    """Return the rows that cover no time, or a time that their file cannot hold."""
    bad = wrong & (units.codes != NONE)
    if not bad.any():
        return []
    counts = np.bincount(units.codes[bad], minlength=len(units.names))
    return [
        Defect(*units.names[code], kind, int(counts[code]), f"{values[bad].min()} ms")
        for code in np.flatnonzero(counts)
    ]


def _repeated_rows(names: tuple[tuple[str, str], ...], codes: Codes, doubled: Ints) -> list[Defect]:
    """Return the rows of a moment that another row describes."""
    if not len(doubled):
        return []
    counts = np.bincount(codes[doubled], minlength=len(names))
    return [
        Defect(*names[code], "duplicate_rows", int(counts[code]), "the same GPU and moment twice")
        for code in np.flatnonzero(counts)
    ]

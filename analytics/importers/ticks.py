"""Finds the GPU of nvidia-smi lines that name none, from the number and order of lines in a tick.

nvidia-smi asks one GPU after another and then sleeps, so the gaps between lines are of two kinds. The number of GPUs
and the length of a tick follow from the file itself; an interval that a user gives can only confirm them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from analytics.importers.model import Tally
from fallow.clock import format_duration
from fallow.errors import InputError

MOST_GPUS = 32
"""No host has more GPUs: the largest that NVIDIA names, NVLink switch systems aside, have 16."""

INTERVAL_TOLERANCE = (0.5, 1.5)
"""An interval between these multiples of the cadence matches it: loops drift, and outages lengthen the mean."""

_LONGEST_ANSWER_MS = 500
"""nvidia-smi reads the GPUs of one tick within milliseconds: lines further apart may as well be ticks of one GPU."""
_SURE_ANSWER_MS = 50
_LEAST_STEP_MS = 20
"""nvidia-smi takes longer than this from one tick to the next."""
_LEAST_SHARE = 0.6
"""Share of the lines that must be in ticks of one size. Random gaps put a quarter of the lines in ticks of two."""
_LEAST_RATIO = 2.0
"""Least ratio of the usual gap between ticks to the usual gap within one."""
_REGULAR = 0.25
_OUT_OF_ORDER = 0.02
"""Share of the steps that may lead back in time: clocks are set, but a file in another order names no GPU."""

_LOOKED_AT = 100_000
_GUESS_HINT = "query index or uuid as well, or give --interval, if it fits the file"

Numbers = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Group = tuple[int, int]
"""The first and the last of adjacent line groups."""


@dataclass(frozen=True)
class TickShape:
    """The number of lines in a tick, the distance between ticks, and the gap that ends one."""

    gpus: int
    cadence_ms: float | None
    gap_ms: float


@dataclass(frozen=True)
class _Candidate:
    shape: TickShape
    share: float
    unevenness: float
    answer_ms: float
    """The usual gap within a tick."""

    contrast: float
    """Factor by which the usual gap between ticks is longer."""


def place(path: str, rows: pl.DataFrame, interval_ms: int | None, *, cut_off: bool, tally: Tally) -> pl.DataFrame:
    """Return the rows (nr, block, true_ms, nameless, count, ...) with `position` in the tick, null for named rows.

    Lines of ticks that straggle or follow one another too closely are placed by count and order; lines without a place
    are dropped and counted. Raises InputError where ticks cannot be distinguished or contradict the interval.
    """
    if not rows["nameless"].any():
        return rows.with_columns(position=pl.lit(None, pl.UInt32))
    mine = rows.filter("nameless")
    times = mine["true_ms"].to_numpy().astype(np.int64)
    blocks = mine["block"].to_numpy().astype(np.int64)
    shape = tick_shape(path, times, blocks, _stated_count(mine), interval_ms)
    position = _positions(shape, times, blocks, cut_off=cut_off)
    known = pl.Series("position", np.where(position < 0, 0, position).astype(np.uint32))
    placed = mine.with_columns(known).filter(pl.Series(position >= 0))
    tally.drop(f"tick without {shape.gpus} rows and no column that names its GPUs", mine.height - placed.height)
    others = rows.filter(~pl.col("nameless"))
    return pl.concat([others, placed], how="diagonal").sort("nr")


def _stated_count(mine: pl.DataFrame) -> int | None:
    """Return how many GPUs the field `count` states."""
    stated_gpus = mine["count"].cast(pl.Int64, strict=False).drop_nulls().unique()
    return int(stated_gpus[0]) if len(stated_gpus) == 1 else None


def tick_shape(path: str, times: Whole, blocks: Whole, stated_gpus: int | None, interval_ms: int | None) -> TickShape:
    """Return the shape of a file's ticks. Raises InputError where times leave it open or contradict the interval."""
    times, blocks = times[:_LOOKED_AT], blocks[:_LOOKED_AT]
    if stated_gpus is not None and not 1 <= stated_gpus <= MOST_GPUS:
        raise InputError(
            f"{path}: its field count states {stated_gpus} GPUs, more than a host can have", "query index or uuid"
        )
    if int(((np.diff(times) < 0) & (np.diff(blocks) == 0)).sum()) > max(3, _OUT_OF_ORDER * len(times)):
        raise InputError(
            f"{path} does not name the GPU of a line, and its lines are not in the order of their times",
            "give the file as nvidia-smi wrote it, or query index or uuid as well",
        )
    sizes = range(1, MOST_GPUS + 1) if stated_gpus is None else [stated_gpus]
    tried = [each for size in sizes for each in _candidates(times, blocks, size)]
    fits = [each for each in tried if _is_proven(each, interval_ms, stated_gpus)]
    rivals = [each for each in tried if each.shape.gpus > 1 and each not in fits and _has_order(each)]
    if rivals and all(each.shape.gpus == 1 for each in fits):
        fits = []
    if not fits:
        one = _one_tick(times, blocks, stated_gpus)
        if one is not None:
            return one
        _raise_open(path, times, tried, interval_ms)
    # a tick of eight in two halves looks like ticks of four that come unevenly: the even explanation is the right one
    best = min(fits, key=lambda each: (round(each.unevenness, 1), -each.share, -each.shape.gpus)).shape
    _check_interval(path, best, interval_ms)
    return best


def _has_order(each: _Candidate) -> bool:
    return each.share >= _LEAST_SHARE and each.contrast >= _LEAST_RATIO


def _is_proven(each: _Candidate, interval_ms: int | None, stated_gpus: int | None) -> bool:
    """Return whether the times alone prove this shape, or the interval confirms it."""
    confirmed = interval_ms is not None and interval_fits(interval_ms, each.shape.cadence_ms)
    if each.shape.gpus == 1:
        cadence = each.shape.cadence_ms or 0
        if cadence < _LEAST_STEP_MS and stated_gpus != 1:
            return False
        even = each.unevenness < _REGULAR and (cadence >= _LONGEST_ANSWER_MS or confirmed)
        return even or each.contrast >= _LONGEST_ANSWER_MS or stated_gpus == 1
    return _has_order(each) and (each.answer_ms < _LONGEST_ANSWER_MS or confirmed)


def _candidates(times: Whole, blocks: Whole, size: int) -> list[_Candidate]:
    """Return how well ticks of `size` lines explain the times, for one or two gaps that may end a tick."""
    gaps = np.abs(np.diff(times)).astype(np.float64)
    free = np.sort(gaps[np.diff(blocks) == 0])[::-1]
    if size == 1:
        return _single_candidates(times, gaps)
    between = round(len(times) / size) - 1 - (len(gaps) - len(free))
    if between < 0 or len(times) < 2 * size or between >= len(free):
        return []
    wide, narrow = free[:between], np.maximum(free[between:], 0.5)
    answer_ms = float(np.median(narrow))
    if len(wide) == 0:  # only header lines separate the ticks
        return [_judged_candidate(times, blocks, TickShape(size, None, float("inf")), answer_ms, _LEAST_RATIO)]
    middle, low, high = float(np.median(wide)), float(np.quantile(wide, 0.1)), float(np.quantile(narrow, 0.9))
    limits = {float(np.sqrt(middle * answer_ms)), float(np.sqrt(low * high))}
    return [
        _judged_candidate(times, blocks, TickShape(size, None, each), answer_ms, middle / answer_ms) for each in limits
    ]


def _single_candidates(times: Whole, gaps: Numbers) -> list[_Candidate]:
    """Return the candidate of one GPU: every line is a tick. `contrast` is then the gap that nearly all gaps exceed."""
    # one GPU is never asked twice at one moment
    if len(gaps) == 0 or (gaps == 0).mean() > _OUT_OF_ORDER:
        return []
    cadence, unevenness = _rhythm(times)
    return [_Candidate(TickShape(1, cadence, -1.0), 1.0, unevenness, 0.0, float(np.quantile(gaps, 0.02)))]


def _judged_candidate(times: Whole, blocks: Whole, shape: TickShape, answer_ms: float, contrast: float) -> _Candidate:
    starts, sizes = _line_groups(shape, times, blocks)
    good = sizes == shape.gpus
    cadence, unevenness = _rhythm(times[starts[good]])
    share = float(sizes[good].sum() / len(times)) if good.sum() > 1 else 0.0
    return _Candidate(TickShape(shape.gpus, cadence, shape.gap_ms), share, unevenness, answer_ms, contrast)


def _rhythm(starts: Whole) -> tuple[float | None, float]:
    """Return the usual step between ticks, and the average distance of steps from it (0: none, 1: all)."""
    steps = np.abs(np.diff(starts)).astype(np.float64)
    steps = steps[steps > 0]
    if len(steps) == 0:
        return None, 1.0
    middle = float(np.median(steps))
    return middle, float(np.minimum(np.abs(steps - middle) / middle, 1).mean())


def _line_groups(shape: TickShape, times: Whole, blocks: Whole) -> tuple[Whole, Whole]:
    """Return the starts of the line groups without a wide gap or header line inside, and their numbers of lines."""
    parts = (np.abs(np.diff(times)) > shape.gap_ms) | (np.diff(blocks) != 0)
    starts = np.concatenate([[0], np.flatnonzero(parts) + 1]).astype(np.int64)
    return starts, np.diff(np.append(starts, len(times))).astype(np.int64)


def _one_tick(times: Whole, blocks: Whole, stated_gpus: int | None) -> TickShape | None:
    """Return the shape of a file that is certainly one tick; its length is unknown."""
    most = int(np.abs(np.diff(times)).max()) if len(times) > 1 else 0
    if blocks[0] != blocks[-1] or most >= _SURE_ANSWER_MS or len(times) > (stated_gpus or MOST_GPUS // 2):
        return None
    return TickShape(stated_gpus or len(times), None, float("inf"))


def _raise_open(path: str, times: Whole, tried: list[_Candidate], interval_ms: int | None) -> None:
    """Raise the InputError that states what is open, with the interval that would settle it where there is one."""
    what = f"{path} does not name the GPU of a line, and its ticks cannot be distinguished with certainty"
    if len(times) > 1 and interval_ms is None:
        likely = [
            each
            for each in tried
            if (each.shape.cadence_ms or 0) >= _LEAST_STEP_MS and (each.shape.gpus == 1 or _has_order(each))
        ]
        named = [
            f"--interval {interval_text(each.shape.cadence_ms or 1)} if a tick has "
            f"{each.shape.gpus} line{'s' if each.shape.gpus > 1 else ''}"
            for each in sorted(likely, key=lambda each: each.unevenness)[:2]
        ]
        raise InputError(
            what, "; ".join([*named, "or query index or uuid as well" if named else "query index or uuid too"])
        )
    raise InputError(what, _GUESS_HINT)


def _check_interval(path: str, shape: TickShape, interval_ms: int | None) -> None:
    if interval_ms is None or shape.cadence_ms is None or interval_fits(interval_ms, shape.cadence_ms):
        return
    found = interval_text(shape.cadence_ms)
    raise InputError(
        f"{path}: --interval {format_duration(interval_ms)} contradicts the file, whose ticks of {shape.gpus} "
        f"line{'s' if shape.gpus > 1 else ''} are {found} apart",
        f"leave --interval out, or give --interval {found.replace(' ', '')}",
    )


def interval_fits(interval_ms: float, cadence_ms: float | None) -> bool:
    """Return whether the interval can mean samples this far apart."""
    low, high = INTERVAL_TOLERANCE
    return cadence_ms is not None and low * cadence_ms <= interval_ms <= high * cadence_ms


def interval_text(cadence_ms: float) -> str:
    """Return the cadence as a person would type it: whole seconds where it is within 5 % of some."""
    seconds = max(round(cadence_ms / 1000), 1) * 1000
    return format_duration(seconds if abs(cadence_ms - seconds) <= 0.05 * seconds else max(round(cadence_ms), 1))


def _positions(shape: TickShape, times: Whole, blocks: Whole, *, cut_off: bool) -> Whole:
    """Return the place of every line in its tick; -1 where it stays unknown."""
    starts, sizes = _line_groups(shape, times, blocks)
    within = np.arange(len(times)) - np.repeat(starts, sizes)
    good = sizes == shape.gpus
    if cut_off and len(sizes) and sizes[-1] < shape.gpus:
        good[-1] = True  # the leading lines of a truncated tick are in their places
    known = np.where(np.repeat(good, sizes), within, -1)
    if shape.gpus == 1:
        return known
    groups = _doubtful_groups(good, blocks[starts])
    whole = [group for group in groups if _lines(sizes, group) % shape.gpus == 0]
    # where lines are missing, a group may be whole by chance at one number in `gpus`: if most are, the ticks are slow
    complete = len(groups) >= 8 and len(whole) >= (1 - 0.3 * (1 - 1 / shape.gpus)) * len(groups)
    for group in [*whole, *_bridged_groups(groups, sizes, blocks[starts], shape.gpus)]:
        if complete or _fits_in_time(shape, times, starts, sizes, group):
            begin, count = int(starts[group[0]]), _lines(sizes, group)
            known[begin : begin + count] = np.arange(count) % shape.gpus
    return _ordered_places(known, times)


def _ordered_places(known: Whole, times: Whole) -> Whole:
    """Return the places without those of ticks in which time goes back: nvidia-smi asks one GPU after another."""
    tick = np.cumsum(known == 0)
    back = np.flatnonzero((np.diff(times) < 0) & (tick[1:] == tick[:-1]) & (known[1:] > 0)) + 1
    return np.where(np.isin(tick, tick[back]), -1, known)


def _lines(sizes: Whole, group: Group) -> int:
    return int(sizes[group[0] : group[1] + 1].sum())


def _doubtful_groups(good: npt.NDArray[np.bool_], blocks: Whole) -> list[Group]:
    """Return adjacent line groups of the wrong size."""
    groups: list[Group] = []
    for each in np.flatnonzero(~good):
        at = int(each)
        if groups and at == groups[-1][1] + 1 and blocks[at] == blocks[at - 1]:
            groups[-1] = (groups[-1][0], at)
        else:
            groups.append((at, at))
    return groups


def _bridged_groups(groups: list[Group], sizes: Whole, blocks: Whole, gpus: int) -> list[Group]:
    """Return adjacent groups joined with the right-sized group between them, where only together they are whole.

    The end of a slow tick and the start of the next slow one can have as many lines as a tick.
    """
    found: list[Group] = []
    for (first, before), (after, last) in pairwise(groups):
        near = after == before + 2 and blocks[first] == blocks[last]
        apart = _lines(sizes, (first, before)) % gpus and _lines(sizes, (after, last)) % gpus
        if near and apart and _lines(sizes, (first, last)) % gpus == 0 and not (found and found[-1][1] >= first):
            found.append((first, last))
    return found


def _fits_in_time(shape: TickShape, times: Whole, starts: Whole, sizes: Whole, group: Group) -> bool:
    """Return whether these lines' ticks fit between the neighbours: two halves of two ticks take the time of two."""
    if shape.cadence_ms is None:
        return False
    first, last = group
    ticks = _lines(sizes, group) // shape.gpus
    if last + 1 < len(starts):
        begin = times[starts[first - 1]] if first else times[starts[0]]
        elapsed, steps = times[starts[last + 1]] - begin, ticks + (1 if first else 0)
    else:
        begin = times[starts[first - 1]] if first else times[0]
        elapsed, steps = times[-1] - begin, ticks if first else ticks - 1
        steps = max(steps, 1)
    return bool(0 <= elapsed <= (steps + 0.75) * shape.cadence_ms)

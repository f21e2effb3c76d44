"""Reads times from files: epoch numbers, ISO text, local times of a zone; and puts samples on a grid."""

from __future__ import annotations

import zoneinfo
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache

import polars as pl

from analytics.importers.model import Tally
from fallow.clock import DAY_MS, MINUTE_MS, SECOND_MS, SystemClock, format_duration, from_ms, parse_duration_ms
from fallow.errors import InputError, UsageError
from fallow.lake import AGENT_FIRST_SEQ

LATEST_MS = AGENT_FIRST_SEQ
"""Imports end below this (the year 5138), so that their sequence numbers never meet an agent's."""

UTC_OF_FILES = "UTC (the files' own)"
"""The time zone of an import whose times all state their offset."""


def import_zone(zone: str, *, given: bool, local: bool) -> str:
    """Return the time zone of an import: that of its local times, or UTC where every time states its offset."""
    return f"{zone} ({'given' if given else 'assumed'}) for times without an offset" if local else UTC_OF_FILES


_WITH_OFFSET = r"(\d:\d{2}(?:\.\d+)?)\s*(Z|z|UTC|[+-]\d{2}:?\d{2})$"
_EPOCH = r"^\d{9,13}(?:\.\d+)?$"
_FORMATS = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d %I:%M:%S %p", "%Y-%m-%d %I:%M %p", "%Y-%m-%d")
_NAIVE = pl.Datetime("ms")
_HOUR_BACK_MS = (50 * MINUTE_MS, 60 * MINUTE_MS)
"""A clock that is set back by an hour steps back by an hour, less the time to the next sample."""


@cache
def _zone_names() -> frozenset[str]:
    """Return all zone names; Python reads a folder of files for them."""
    return frozenset(zoneinfo.available_timezones())


def check_zone(name: str, flag: str = "--tz") -> str:
    """Return the zone's name. Raises UsageError with the flag and the nearest name where there is no such zone."""
    known = _zone_names()
    if name in known:
        return name
    near = get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "write a zone such as UTC or Europe/Paris"
    raise UsageError(f"{flag}: there is no time zone '{name}'", hint)


def given_interval_ms(text: str | None) -> int | None:
    """Return the interval of a flag. Raises UsageError where it is no duration or longer than a day."""
    if text is None:
        return None
    interval_ms = parse_duration_ms(text)
    if interval_ms > DAY_MS:
        raise UsageError(f"--interval {text} is longer than a day", "give the time between two samples, such as 10s")
    return interval_ms


@dataclass(frozen=True)
class Times:
    """Milliseconds since the epoch, UTC, null where a value is no time; whether some were local; and the decisions.

    `odd` holds the questions that the file leaves open.
    """

    ms: pl.Series
    local: bool = False
    notes: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()
    skipped: int | None = None
    """The first row whose local time the zone skips."""


def read_times(values: pl.Series, zone: str) -> Times:
    """Return the moments in a column.

    Numbers are seconds, milli-, micro- or nanoseconds by the magnitude of their median (below 1e11, 1e14, 1e17);
    text is a number or ISO 8601; a time without an offset is the zone's local time.
    """
    if isinstance(values.dtype, pl.Datetime):
        if values.dtype.time_zone is None:
            return localise(values.cast(_NAIVE), zone)
        return Times(values.dt.convert_time_zone("UTC").dt.epoch("ms"))
    if values.dtype == pl.Date:
        return localise(values.cast(_NAIVE), zone)
    if values.dtype.is_numeric():
        return Times(_from_numbers(values))
    text = values.cast(pl.String).str.strip_chars()
    numbers = text.cast(pl.Float64, strict=False)
    if numbers.is_finite().any():
        whole = text.cast(pl.Int64, strict=False)
        exact = whole.null_count() == numbers.null_count()
        return Times(_from_numbers(whole if exact else numbers))
    return moments(*split_times(text), zone)


def _from_numbers(values: pl.Series) -> pl.Series:
    numbers = values.cast(pl.Float64, strict=False)
    numbers = numbers.zip_with(numbers.is_finite(), pl.Series([None], dtype=pl.Float64))
    middle = numbers.abs().median()
    if not isinstance(middle, int | float):
        return pl.Series(values.name, [None] * len(values), dtype=pl.Int64)
    per_ms = next((unit for limit, unit in ((1e11, 1e-3), (1e14, 1.0), (1e17, 1e3)) if middle < limit), 1e6)
    if values.dtype.is_integer() and per_ms >= 1:
        return values.cast(pl.Int64, strict=False) // int(per_ms)
    scaled = (numbers / per_ms).round(0)
    return scaled.zip_with(scaled.abs() < 2.0**62, pl.Series([None], dtype=pl.Float64)).cast(pl.Int64)


def moments(local: pl.Series, sure_ms: pl.Series, zone: str) -> Times:
    """Return the moments of the result of `split_times`."""
    if local.null_count() == len(local):
        return Times(sure_ms)
    localised = localise(local, zone)
    return replace(localised, ms=localised.ms.zip_with(local.is_not_null(), sure_ms))


def split_times(text: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return texts as naive local times, and as moments in milliseconds: one of the two is null, both without a time.

    A moment is a time with an offset (`2026-11-20T10:00:00Z`), epoch seconds, or milliseconds from 13 digits on.
    """
    text = text.str.strip_chars()
    number = text.set(~text.str.contains(_EPOCH), None).cast(pl.Float64)
    epoch = number.zip_with(number >= 10**12, number * SECOND_MS).round().cast(pl.Int64)
    offset = text.str.extract(_WITH_OFFSET, 2)
    local = _parse_local(text.set(number.is_not_null(), None).str.replace(_WITH_OFFSET, "$1"))
    signed = offset.str.replace(":", "").str.strip_prefix("+").cast(pl.Int64, strict=False).fill_null(0)  # 530
    minutes = (signed.abs() // 100 * 60 + signed.abs() % 100) * signed.sign()
    with_offset = (local.dt.epoch("ms") - minutes * MINUTE_MS).set(offset.is_null(), None)
    return local.set(offset.is_not_null(), None), epoch.zip_with(number.is_not_null(), with_offset)


_YEAR_LAST = r"^(\d{1,2})([./-])(\d{1,2})[./-](\d{4})\b(?:,? (.*))?$"


def _year_first(text: pl.Series) -> pl.Series:
    """Return the dates with the year first, in the order of day and month that all of them have."""
    parts = text.str.extract_groups(_YEAR_LAST).struct.unnest()
    parts.columns = ["first", "mark", "second", "year", "clock"]
    parts = parts.with_columns(pl.col("first", "second").str.zfill(2))
    if parts["year"].null_count() == len(text):
        return text
    first, second = (str(parts[name].max()) > "12" for name in ("first", "second"))
    if first == second and (first or not (parts["mark"].drop_nulls() == ".").all()):
        shown = text.filter(parts["year"].is_not_null())[0]
        order = (
            "some dates begin with the day and others with the month"
            if first
            else "it may begin with the day or the month"
        )
        raise InputError(f"the date {shown} is not clear: {order}", "save the file with dates such as 2026-11-20")
    day, month = ("second", "first") if second else ("first", "second")
    found = pl.format("{}-{}-{} {}", "year", month, day, pl.col("clock").fill_null("00:00"))
    return parts.select(pl.when(pl.col("year").is_not_null()).then(found).otherwise(text)).to_series().alias(text.name)


def _parse_local(text: pl.Series) -> pl.Series:
    """Return times without a zone such as `2026/11/20 10:00:00.123`, as naive milliseconds; null where unreadable.

    Dates such as 20.11.2026 and 11/20/2026 are read where the column shows the order of day and month. Raises
    InputError where it may be either.
    """
    tidy = _year_first(text.str.strip_chars()).str.replace_all("/", "-", literal=True)
    tidy = tidy.str.replace(r"(\d)T(\d)", "$1 $2")
    local = tidy.str.to_datetime(_FORMATS[0], time_unit="ms", strict=False)
    for form in _FORMATS[1:]:
        if local.null_count() == tidy.null_count():
            break
        date_only = form == _FORMATS[-1]
        other = (
            tidy.str.to_date(form, strict=False).cast(_NAIVE)
            if date_only
            else tidy.str.to_datetime(form, time_unit="ms", strict=False)
        )
        local = local.zip_with(local.is_not_null(), other)
    return local


def both_passes(local: pl.Series, zone: str) -> tuple[pl.Series, pl.Series]:
    """Return local times in milliseconds, as first and second pass of a repeated hour; null if the zone skips them."""
    first = local.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    second = local.dt.replace_time_zone(zone, ambiguous="latest", non_existent="null")
    return first.dt.epoch("ms"), second.dt.epoch("ms")


def localise(local: pl.Series, zone: str) -> Times:
    """Return the zone's local times, in file order; null, and the first one named, where the zone skips that time.

    In the hour that a zone repeats when summer time ends, the order of the lines decides: lines before a step
    back are the first pass, lines after it the second. Without a step the nearer neighbour outside the hour decides
    (before it: first pass; after it: second). Without a neighbour the first pass counts, and that is a doubt.
    """
    first, second = both_passes(local, zone)
    gone = (first.is_null() & local.is_not_null()).arg_true()
    skipped = None if gone.is_empty() else int(gone[0])
    where = (first != second).fill_null(value=False)
    if not where.any():
        return Times(first, local=True, skipped=skipped)
    late, sure = _second_pass(local.dt.epoch("ms"), second - first, where)
    notes, odd = [], []
    days = local.filter(where).dt.strftime("%Y-%m-%d")
    for day in days.unique().sort():
        here = where & (local.dt.strftime("%Y-%m-%d") == day).fill_null(value=False)
        hours = local.filter(here).dt.strftime("%H:%M").sort()
        after = int((late & here).sum())
        note = (
            f"{int(here.sum())} rows of {day} {hours[0]}-{hours[-1]} lie in the hour that {zone} repeats: "
            f"{int(here.sum()) - after} read as its first pass, {after} as its second"
        )
        notes.append(note)
        if not (sure | ~here).all():
            odd.append(f"{note}, but no step back in time proves it")
    return Times(second.zip_with(late, first), local=True, notes=tuple(notes), odd=tuple(odd), skipped=skipped)


def _second_pass(local_ms: pl.Series, shift_ms: pl.Series, where: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return which rows belong to the second pass through a repeated hour, and which ones a step back proves."""
    rows = pl.DataFrame({"ms": local_ms, "shift": shift_ms, "where": where}).with_row_index("row").drop_nulls("ms")
    rows = rows.with_columns(
        run=pl.col("where").rle_id(), before=pl.col("ms").diff(), after=pl.col("ms").shift(-1) - pl.col("ms")
    )
    late: list[int] = []
    sure: list[int] = []
    for _, run in rows.filter("where").group_by("run", maintain_order=True):
        step = run["ms"].diff() < -(run["shift"] // 2)
        if step.any():
            late.extend(run["row"][int(step.arg_true()[0]) :])
            sure.extend(run["row"])
            continue
        before, after = run["before"][0], run["after"][-1]
        if after is not None and after >= 0 and (before is None or before < 0 or after < before):
            late.extend(run["row"])
    numbers = pl.Series(range(len(local_ms)), dtype=pl.UInt32)
    return tuple(  # type: ignore[return-value]  # two of two
        numbers.is_in(pl.Series(each, dtype=pl.UInt32).implode()) for each in (late, sure)
    )


def steps_back(times_ms: pl.Series, group: pl.Series | None = None) -> list[int]:
    """Return the rows at which times step back an hour, as clocks do when summer time ends; empty for unordered files.

    `group` separates rows that may each be in order by themselves.
    """
    rows = pl.DataFrame({"ms": times_ms, "group": times_ms * 0 if group is None else group})
    step = pl.col("ms").diff().over("group")
    steps = rows.with_row_index("row").drop_nulls("ms").with_columns(step=step).drop_nulls("step")
    back = steps.filter(pl.col("step") < -SECOND_MS)
    hours = back.filter(pl.col("step").is_between(-_HOUR_BACK_MS[1], -_HOUR_BACK_MS[0]))
    return [] if back.height > 0.05 * steps.height + 2 else hours["row"].to_list()


def on_grid(frame: pl.DataFrame, interval_ms: int | None) -> tuple[pl.DataFrame, str]:
    """Return the frame (gpu, true_ms, ...) with `time`, `offset_ms` and `interval_ms`, and how the interval was found.

    `time` is the true time floored to the interval's grid. Raises InputError where no GPU has two samples from which to
    infer the interval.
    """
    if interval_ms is not None:
        frame = frame.with_columns(interval_ms=pl.lit(interval_ms, pl.Int32))
        how = f"{format_duration(interval_ms)} (given)"
    else:
        frame, how = _inferred_grid(frame)
    floored = pl.col("true_ms") - pl.col("true_ms") % pl.col("interval_ms")
    return frame.with_columns(
        time=floored.cast(pl.Datetime("ms", "UTC")), offset_ms=(pl.col("true_ms") - floored).cast(pl.Int32)
    ), how


def _inferred_grid(frame: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    distance = pl.col("true_ms").sort().diff()
    medians = frame.group_by("gpu").agg(median=distance.filter(distance > 0).median()).drop_nulls()
    if medians.is_empty():
        raise InputError(
            "the interval cannot be inferred: no GPU has two samples at different times",
            "give the time between two samples, such as --interval 10s",
        )
    # a loop of 10 s drifts to 10.007 s: the whole second is meant where it is within 5 %
    seconds = pl.max_horizontal((pl.col("median") / SECOND_MS).round(0), 1) * SECOND_MS
    near = (pl.col("median") - seconds).abs() <= 0.05 * seconds
    rounded = pl.when(near).then(seconds).otherwise(pl.col("median").round(0)).clip(1, DAY_MS)
    found = medians.select("gpu", rounded.cast(pl.Int32).alias("interval_ms"))
    middle = found["interval_ms"].sort()[len(found) // 2]
    joined = frame.join(found, on="gpu", how="left").with_columns(pl.col("interval_ms").fill_null(middle))
    distinct = sorted(set(found["interval_ms"]))
    names = ", ".join(format_duration(each) for each in distinct[:4]) + (", ..." if len(distinct) > 4 else "")
    return joined, f"{names} (inferred: median distance between samples of a GPU)"


IN_THE_FUTURE = "time in the future"
NVIDIA_SMI_BEGAN_MS = 1_167_609_600_000
"""The year 2007: a host's clock with an earlier time has lost its battery."""


def latest_possible_ms() -> int:
    """Return the latest time that a wrong zone may explain: a day from now."""
    return min(SystemClock().now_ms() + DAY_MS, LATEST_MS)


def drop_impossible(frame: pl.DataFrame, earliest_ms: int, tally: Tally) -> pl.DataFrame:
    """Drop and count rows of impossible times: before `earliest_ms`, or in the future (a day of slack for zones).

    A single impossible row would turn the time before or after it into a segment of decades.
    """
    early, late = frame["true_ms"] < earliest_ms, frame["true_ms"] >= latest_possible_ms()
    tally.drop(f"time before {from_ms(earliest_ms).year}", int(early.sum() or 0))
    tally.drop(IN_THE_FUTURE, int(late.sum() or 0))
    return frame.filter(~(early | late).fill_null(value=False))

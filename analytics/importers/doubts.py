"""Overview of an import in figures that reveal a wrong unit, zone or interval at a glance, and the doubts about it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from analytics.importers.model import PROCESSES, TRUE_MS, Imported
from analytics.importers.processes import flat
from analytics.importers.ticks import MOST_GPUS, interval_fits, interval_text
from fallow.clock import HOUR_MS, MINUTE_MS, format_duration, format_ms
from fallow.errors import InputError
from fallow.output import say_lines, show
from fallow.stall_evidence import NO_CONTEXT_BYTES
from fallow.units import format_bytes


@dataclass(frozen=True)
class ImportOverview:
    """Means are over the rows that have the value; None where no row has it."""

    gpus: int
    hosts: tuple[str, ...]
    rows: int
    gpu_hours: float
    """Rows times their interval."""

    span_hours: float
    mean_util_pct: float | None
    zero_ratio: float | None
    """Share of utilization values that are 0."""

    mean_mem_used_bytes: float | None
    mem_total_bytes: float | None
    """Mean over the GPUs whose model is known."""

    mean_power_w: float | None
    power_limit_w: float | None
    cadence_ms: float | None
    """Median step between samples of a GPU."""

    longest_gap_ms: int | None
    processes: int | None
    """Number of process ids; None where no file lists processes."""

    users: int | None
    """Number of users of the processes; 0 where the files name none."""


def overview_of(imported: Imported) -> ImportOverview:
    """Return the figures of all data that was read, before any of it is published."""
    frame = imported.gpu.with_columns(TRUE_MS)
    util = _values(frame, "gpu_util_pct")
    steps = frame.select(pl.col("true_ms").sort().diff().over("gpu", mapping_strategy="explode")).to_series()
    steps = steps.filter(steps > 0)
    first, end = frame["true_ms"].min(), (frame["true_ms"] + frame["interval_ms"]).max()
    gap = steps.max()
    return ImportOverview(
        gpus=frame["gpu"].n_unique(),
        hosts=tuple(each.host for each in imported.by_host or (imported,)),
        rows=frame.height,
        gpu_hours=float(frame["interval_ms"].cast(pl.Int64).sum()) / HOUR_MS,
        span_hours=(_number(end) - _number(first)) / HOUR_MS,
        mean_util_pct=_mean(util),
        zero_ratio=_mean((util == 0).cast(pl.Float64)),
        mean_mem_used_bytes=_mean(_values(frame, "mem_used_bytes")),
        mem_total_bytes=_mean(_values(imported.device, "mem_total_bytes")),
        mean_power_w=_mean(_values(frame, "power_w")),
        power_limit_w=_mean(_values(imported.device, "power_limit_w")),
        cadence_ms=None if steps.is_empty() else _number(steps.median()),
        longest_gap_ms=None if gap is None else int(_number(gap)),
        **_listed_counts(frame),
    )


def _listed_counts(frame: pl.DataFrame) -> dict[str, int | None]:
    if PROCESSES not in frame.columns or frame[PROCESSES].null_count() == frame.height:
        return {"processes": None, "users": None}
    every = flat(frame, ())
    return {name: every[column].drop_nulls().n_unique() for name, column in (("processes", "pid"), ("users", "user"))}


def _values(frame: pl.DataFrame, name: str) -> pl.Series:
    return frame[name].drop_nulls() if name in frame.columns else pl.Series(name, [], dtype=pl.Float64)


def _mean(values: pl.Series) -> float | None:
    return None if values.is_empty() else _number(values.mean())


def _number(value: object) -> float:
    if not isinstance(value, int | float):
        raise TypeError(value)
    return float(value)


def overview_lines(overview: ImportOverview) -> Iterator[str]:
    """Return the figures for people, without those that the files do not hold."""
    yield f"GPU-hours {overview.gpu_hours:,.2f} within {overview.span_hours:,.2f} h"
    if overview.mean_util_pct is not None and overview.zero_ratio is not None:
        yield f"busy      {overview.mean_util_pct:.1f} % on average, {overview.zero_ratio:.1%} of the samples at 0"
    if overview.mean_mem_used_bytes is not None:
        of = "" if overview.mem_total_bytes is None else f" of the card's {format_bytes(overview.mem_total_bytes)}"
        yield f"memory    {format_bytes(overview.mean_mem_used_bytes)} used on average{of}"
    if overview.mean_power_w is not None:
        of = "" if overview.power_limit_w is None else f" of the limit of {overview.power_limit_w:,.0f} W"
        yield f"power     {overview.mean_power_w:,.0f} W on average{of}"
    if overview.cadence_ms is not None and overview.longest_gap_ms is not None:
        step, gap = format_duration(round(overview.cadence_ms)), format_duration(overview.longest_gap_ms)
        yield f"cadence   {step} between samples of a GPU (median), {gap} at the most"
    if overview.processes is not None:
        users = f"of {overview.users:,} users" if overview.users else "of users that no file names"
        yield f"processes {overview.processes:,} {users if overview.processes else 'listed'}"


_LEAST_MEMORY = 0.001
"""Share of the card's memory: a CUDA context alone takes hundreds of MiB."""

_MOST_HOURS, _MOST_HOURS_OF_FEW, _LEAST_HOURS = 1.1, 2.0, 0.02
"""Least share of the GPU time from the first to the last sample; with few samples the first and the last weigh more."""
_CARD_MOST_W = 1_500
_MOST_DROPPED = 0.1
_ENOUGH = 20
_ENOUGH_ALIKE = 60
"""Ten minutes at 10 s: a GPU at 100 % for a minute is busy."""

_ENOUGH_STEPS = 5
_MOST_POWER = 1.1
_POOL = "import"
"""The host of series whose hosts are unnamed: not one host."""

_UNREADABLE = ("not a number", "unknown unit")


def doubts(imported: Imported, overview: ImportOverview, now_ms: int) -> tuple[str, ...]:
    """Return what looks wrong, the importer's own doubts first; `now_ms` decides which times are in the future."""
    found = [f"{file.path}: {odd}" for file in imported.files for odd in file.odd]
    found += imported.odd
    for look in (_count, _times, _hours, _utilization, _memory, _power, _lists_only):
        found += look(imported, overview)
    found += _future_rows(imported, now_ms)
    found += _losses(imported)
    return tuple(found)


def _count(imported: Imported, _: ImportOverview) -> Iterator[str]:
    for each in imported.by_host or (imported,):
        if (gpus := each.gpu["gpu"].n_unique()) > MOST_GPUS and each.host != _POOL:
            yield f"{gpus:,} GPUs on the one host {each.host}, where {MOST_GPUS} is the maximum"


def _times(imported: Imported, overview: ImportOverview) -> Iterator[str]:
    given, cadence = imported.given_interval_ms, overview.cadence_ms
    if overview.rows < overview.gpus + _ENOUGH_STEPS:
        return
    if given is not None and cadence is not None and not interval_fits(given, cadence):
        yield (
            f"samples of a GPU are {interval_text(cadence)} apart (median), but --interval is {format_duration(given)}"
        )


def _hours(imported: Imported, overview: ImportOverview) -> Iterator[str]:
    possible = overview.gpus * overview.span_hours
    # between two recordings no samples were taken
    recorded = possible - overview.gpus * (overview.longest_gap_ms or 0) / HOUR_MS
    most = _MOST_HOURS if overview.rows >= _ENOUGH_ALIKE * overview.gpus else _MOST_HOURS_OF_FEW
    if overview.rows > overview.gpus and overview.gpu_hours > most * possible:
        yield (
            f"{overview.gpu_hours:,.2f} GPU-hours, where {overview.gpus:,} GPUs have {possible:,.2f} "
            f"in that time (interval {imported.interval})"
        )
    if overview.rows >= _ENOUGH_ALIKE * overview.gpus and overview.gpu_hours < _LEAST_HOURS * recorded:
        yield (
            f"the samples cover {overview.gpu_hours:,.2f} GPU-hours of the {possible:,.2f} from the first to the last"
            f" (interval {imported.interval}): do they name every GPU, and is --interval right?"
        )


def _utilization(imported: Imported, _: ImportOverview) -> Iterator[str]:
    if "gpu_util_pct" not in imported.gpu.columns:
        return
    values = imported.gpu["gpu_util_pct"].drop_nulls()
    if len(values) >= _ENOUGH_ALIKE and values.n_unique() == 1 and values[0] != 0:
        yield f"utilization is {values[0]:g} % in all of {len(values):,} samples"
    if len(values) >= _ENOUGH_ALIKE and set(values.unique().head(3)) == {0, 1}:
        yield f"utilization is 0 or 1 % in all of {len(values):,} samples: is it a rounded share?"


def _memory(imported: Imported, overview: ImportOverview) -> Iterator[str]:
    """Return doubts about the unit of memory. Idle cards may use no memory; a card that computes holds a context."""
    frame, card = imported.gpu, overview.mem_total_bytes
    if "mem_used_bytes" not in frame.columns:
        return
    busy = frame.filter(pl.col("gpu_util_pct") > 0) if "gpu_util_pct" in frame.columns else frame.clear()
    used = (busy if busy.height >= _ENOUGH else frame)["mem_used_bytes"].drop_nulls()
    mean = used.mean()
    if not isinstance(mean, int | float) or (mean == 0 and busy.height < _ENOUGH):
        return
    if card is not None and mean < _LEAST_MEMORY * card:
        yield f"memory used is {mean / card:.3%} of the card on average: is its unit right?"
    elif card is None and "gpu_util_pct" not in frame.columns and 2**20 < int(str(used.max())) < 2 * NO_CONTEXT_BYTES:
        yield f"no GPU holds more than {format_bytes(int(str(used.max())))}: is the unit of its memory right?"
    elif busy.height >= _ENOUGH and mean < NO_CONTEXT_BYTES:
        yield f"memory used is {format_bytes(mean)} on average where GPUs compute: is its unit right?"


def _power(imported: Imported, overview: ImportOverview) -> Iterator[str]:
    mean, limit = overview.mean_power_w, overview.power_limit_w
    if mean is not None and limit is not None and mean > _MOST_POWER * limit:
        yield f"power is {mean:,.0f} W on average, above the limit of {limit:,.0f} W"
    elif mean is not None and mean > _CARD_MOST_W:
        yield f"power is {mean:,.0f} W on average, more than cards draw: is its unit right?"
    frame = imported.gpu
    if "energy_mj" in frame.columns:
        yield from _energy(frame.drop_nulls("energy_mj"))


def _lists_only(imported: Imported, _: ImportOverview) -> Iterator[str]:
    """Yield a doubt about process lists without samples: beside an earlier import they become separate rows or GPUs."""
    frame = imported.gpu
    if PROCESSES not in frame.columns:
        return
    measured = [
        pl.col(name).count() > 0 for name in ("gpu_util_pct", "mem_used_bytes", "power_w") if name in frame.columns
    ]
    seen = frame.group_by("gpu").agg(
        listed=pl.col(PROCESSES).count() > 0, measured=pl.any_horizontal(pl.lit(value=False), *measured)
    )
    count = seen.filter(pl.col("listed") & ~pl.col("measured")).height
    if count:
        yield (
            f"processes are listed, but no file has the GPUs' own samples ({count:,} of {seen.height:,}): import them"
            " in one command with a log of utilization that names index and uuid"
        )


def _energy(frame: pl.DataFrame) -> Iterator[str]:
    """Return a doubt about the power that the energy counter implies; counters that were reset are left out."""
    steps = frame.sort("gpu", TRUE_MS).select(
        energy=pl.col("energy_mj").diff().over("gpu"), passed=TRUE_MS.diff().over("gpu")
    )
    steps = steps.filter((pl.col("energy") >= 0) & (pl.col("passed") > 0))
    if steps.height < _ENOUGH:
        return
    watts = float(steps["energy"].sum()) / float(steps["passed"].sum())
    if not 1 <= watts <= 3_000:
        yield f"the energy counter climbs as if a GPU drew {watts:,.3g} W: is its unit mJ?"


def _future_rows(imported: Imported, now_ms: int) -> Iterator[str]:
    moments = imported.gpu["time"].dt.epoch("ms")
    late = moments.filter(moments > now_ms + 5 * MINUTE_MS)
    last = late.max()
    if isinstance(last, int):
        yield (
            f"{len(late):,} rows lie in the future, the last at {format_ms(last)}: is --tz right ({imported.timezone})?"
        )


def _losses(imported: Imported) -> Iterator[str]:
    for file in imported.files:
        dropped = sum(each.count for each in file.dropped)
        if dropped >= _ENOUGH and dropped > _MOST_DROPPED * (dropped + file.rows_kept):
            worst = max(file.dropped, key=lambda each: each.count)
            yield (
                f"{file.path}: {dropped:,} of {dropped + file.rows_kept:,} rows are dropped, most because:"
                f" {worst.reason}"
            )
        for name in {each.column for each in file.nulled if each.reason in _UNREADABLE}:
            count = sum(each.count for each in file.nulled if each.column == name and each.reason in _UNREADABLE)
            if count >= _ENOUGH and count > _MOST_DROPPED * file.rows_kept:
                yield f"{file.path}: {count:,} values of {name} cannot be read"


def ask(odd: Sequence[str], text: str, summary: str) -> None:
    """Return if a person at a terminal reads `text` and answers yes; else raise InputError.

    Without a terminal the summary goes to standard output.
    """
    if sys.stdin.isatty() and sys.stderr.isatty():
        say_lines(text)
        say_lines("This looks wrong. Publish it anyway? [y/N] ", end="")
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return
        raise InputError("nothing was published", "correct what looks wrong, or answer y")
    show(summary)
    raise InputError(
        f"nothing was published, because this looks wrong: {'; '.join(odd)}", "add --yes to publish anyway"
    )

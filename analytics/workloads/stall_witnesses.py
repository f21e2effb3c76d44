"""The witnesses of a stalled finding, a row each: what it measured, the most without work, and what it shows.

Power, energy counter, SM activity, memory and process list are those of the stalled rows. Other activity and host
traffic are kept by the hour, so they are known where an hour is stalled throughout. The rows explain the ledger's
decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan

import polars as pl

from analytics.intervals import SPAN_MS, by_hour
from analytics.ledger.day_stalls import BUSY_CPU_PCT, FEW_SMS_PCT, MOVED, MOVED_BYTES_PER_S, QUIET_CPU_PCT, TINY_BYTES
from analytics.ledger.resting_draws import resting_draws
from analytics.states import IN_USE
from analytics.workloads.ledger_rows import highest, mean_of
from analytics.workloads.model import Context, Says, Witness, once_per_context
from fallow.clock import HOUR_MS
from fallow.stall_evidence import ACTIVITY_MOST, HELD_DOWN_MOST, RestingDraw

_EMPTY_MIN_PCT = 90.0
_PERCENT, _RATE = "%", "bytes/s"
_OF_HOURS = {
    "tensor_activity": ("tensor_active_mean_pct", _PERCENT, ACTIVITY_MOST["tensor_active_pct"]),
    "dram_activity": ("dram_active_mean_pct", _PERCENT, ACTIVITY_MOST["dram_active_pct"]),
    # of both ways
    "pcie_traffic": ("pcie_mean_bytes_per_s", _RATE, 2 * ACTIVITY_MOST["pcie_rx_bytes_per_s"]),
    "nvlink_traffic": ("nvlink_mean_bytes_per_s", _RATE, 2 * ACTIVITY_MOST["nvlink_rx_bytes_per_s"]),
}
"""Column of `hourly`, unit and the most without work, by witness."""
_THROTTLED = ("throttled_power_ms", "throttled_thermal_ms", "throttled_known_ms")


def stall_witnesses(
    context: Context, rows: pl.DataFrame, *, is_kept: bool, siblings: int | None, working: int
) -> tuple[Witness, ...]:
    """Return a row for each witness of some stalled ledger rows.

    Args:
        context: what is known.
        rows: rows of the ledger.
        is_kept: True for keep-alives, whose bursts keep units busy: tiny memory and quiet processes speak against work.
        siblings: how many other GPUs of the job stall, too; None where no job is known.
        working: how many GPUs of the job work meanwhile.
    """
    hours = _whole_hours(context, rows)
    return (
        *_of_cards(context, rows, hours, is_kept=is_kept),
        *_of_host(context, rows, hours, is_kept=is_kept),
        _unlimited("other_stalled_gpus", siblings, "GPUs", "work" if working else "stalled" if siblings else "nothing"),
    )


def _of_cards(context: Context, rows: pl.DataFrame, hours: pl.DataFrame, *, is_kept: bool) -> Iterator[Witness]:
    draws = {_draws(context).get(host, {}).get(gpu) for host, gpu in rows.select("host", "gpu").unique().iter_rows()}
    draw = draws.pop() if len(draws) == 1 else None
    most_w = None if draw is None or isnan(draw.spinning_w) else draw.spinning_w
    counted = rows.filter(pl.col("counter_ms") > 0)
    yield _limited("power", mean_over_time(rows, "power_mean_w"), "W", most_w, most_w)
    mean_w = _value(counted, pl.col("energy_mj").sum() / pl.col("energy_ms").sum())
    yield _limited("energy_counter", mean_w, "W", most_w, most_w)
    units = {"sm_activity": (mean_over_time(rows, "sm_active_mean_pct"), _PERCENT, ACTIVITY_MOST["sm_active_pct"])}
    units |= {name: (mean_of(hours, column), unit, most) for name, (column, unit, most) in _OF_HOURS.items()}
    still = {"sm_activity": FEW_SMS_PCT, "nvlink_traffic": None}
    for name, (value, unit, most) in units.items():
        yield _limited(name, value, unit, still.get(name, most), None if is_kept else most)
    known = hours.filter(pl.col("throttled_known_ms") > 0)
    slowed = pl.sum_horizontal(*(pl.col(name).sum() for name in _THROTTLED[:2])) / pl.col(_THROTTLED[2]).sum()
    yield _limited("clocks_held_down", _value(known, 100 * slowed), _PERCENT, None, 100 * HELD_DOWN_MOST)


def _of_host(context: Context, rows: pl.DataFrame, hours: pl.DataFrame, *, is_kept: bool) -> Iterator[Witness]:
    spans = rows.select("host", "gpu", since="time", until="end")
    met = context.rollups.processes(context.since_ms).join(spans, on=("host", "gpu"))
    met = met.filter((pl.col("time") < pl.col("until")) & (pl.col("end") > pl.col("since")))
    empty_pct = _value(rows, 100 * pl.col("no_process_ms").sum() / SPAN_MS.sum())
    says: Says = "stalled" if empty_pct is not None and empty_pct >= _EMPTY_MIN_PCT else "nothing"
    yield _unlimited("time_without_process", empty_pct if empty_pct or len(met) else None, _PERCENT, says)
    # of a day's process its mean and highest use are known: the mean shows work, and the highest use none
    cpu_pct = _value(met, pl.col("cpu_util_max_pct").max())
    is_quiet = is_kept and cpu_pct is not None and cpu_pct <= QUIET_CPU_PCT
    is_busy = (_value(met, pl.col("cpu_util_mean_pct").max()) or 0.0) >= BUSY_CPU_PCT
    yield _unlimited("process_cpu_max", cpu_pct, _PERCENT, "work" if is_busy else "stalled" if is_quiet else "nothing")
    most = None if _beside_work(context, rows) else MOVED_BYTES_PER_S
    yield _limited("host_traffic", mean_of(hours, "moved"), _RATE, None, most)
    used: int | None = highest(rows, "mem_used_max_bytes")
    tiny = TINY_BYTES if is_kept else None
    yield _limited("memory_max", used, "bytes", tiny, tiny)


def _beside_work(context: Context, rows: pl.DataFrame) -> bool:
    """Return whether other GPUs of the hosts work meanwhile: then the host's traffic is theirs."""
    beside = pl.col("host").is_in(rows["host"].implode()) & ~pl.col("gpu").is_in(rows["gpu"].implode())
    met = (pl.col("time") < rows["end"].max()) & (pl.col("end") > rows["time"].min())
    return not context.inside.segments.filter(beside & met & pl.col("state").is_in(IN_USE)).is_empty()


@once_per_context
def _draws(context: Context) -> dict[str, dict[str, RestingDraw]]:
    return resting_draws(context.inventory)


def _whole_hours(context: Context, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the hours that are stalled throughout, with columns of `hourly` and `moved`, the host's largest rate."""
    whole = by_hour(rows).group_by("host", "gpu", time="hour").agg(both_ms=SPAN_MS.sum())
    columns = (*(column for column, _, _ in _OF_HOURS.values()), *_THROTTLED)
    kept = context.rollups.hourly(*columns, since_ms=context.since_ms)
    rates = pl.max_horizontal(name.replace("_bytes", "_mean_bytes") for name in MOVED)
    hosts = context.rollups.hosts().select("host", "time", moved=rates)
    found = whole.filter(pl.col("both_ms") >= HOUR_MS).join(kept, on=("host", "gpu", "time"))
    return found.join(hosts, on=("host", "time"), how="left")


def _value(rows: pl.DataFrame, value: pl.Expr) -> float | None:
    """Return a figure of some rows; None without rows or where it is unknown."""
    found = None if rows.is_empty() else rows.select(value).item()
    return None if found is None else float(found)


def mean_over_time(rows: pl.DataFrame, name: str) -> float | None:
    """Return the mean of a column over the time in which it is known; None without any."""
    return _value(rows.filter(pl.col(name).is_not_null()), (SPAN_MS * pl.col(name)).sum() / SPAN_MS.sum())


def _limited(name: str, value: float | None, unit: str, still: float | None, most: float | None) -> Witness:
    """Return a witness that speaks for a stall up to `still`, and for work above `most`."""
    says: Says = "nothing"
    if value is not None and most is not None:
        says = "work" if value > most else "stalled" if still is not None and value <= still else "nothing"
    return Witness(name, value, unit, most, None if value is None else says)


def _unlimited(name: str, value: float | None, unit: str, says: Says) -> Witness:
    return Witness(name, value, unit, None, None if value is None else says)

"""What looks wrong with an import, in sentences that are asked about before anything is published."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.importers.model import PROCESSES, Imported
from analytics.importers.overview import ImportOverview
from analytics.importers.ticks import MOST_GPUS, interval_fits, interval_text
from fallow.clock import HOUR_MS, MINUTE_MS, format_duration, format_ms
from fallow.units import format_bytes

_LEAST_MEMORY = 0.001
"""Of the card: a CUDA context alone takes hundreds of MiB."""

_LEAST_CONTEXT_BYTES = 64 * 2**20
"""Half of what the smallest CUDA context takes on cards since 2016."""

_MOST_HOURS, _MOST_HOURS_OF_FEW, _LEAST_HOURS = 1.1, 2.0, 0.02
"""Of what the GPUs have in the time from the first to the last sample; of few samples the first and the last weigh more."""
_CARD_MOST_W = 1_500
_MOST_DROPPED = 0.1
_ENOUGH = 20
_ENOUGH_ALIKE = 60
"""Ten minutes at 10 s: a GPU at 100 % for a minute is a busy one."""

_ENOUGH_STEPS = 5
_MOST_POWER = 1.1
_POOL = "import"
"""The host of series whose hosts nobody named: not one host."""

_UNREADABLE = ("not a number", "unknown unit")


def doubts(imported: Imported, overview: ImportOverview, now_ms: int) -> tuple[str, ...]:
    """Everything that looks wrong, the importer's own findings first; `now_ms` tells what lies in the future."""
    found = [f"{file.path}: {odd}" for file in imported.files for odd in file.odd]
    found += imported.odd
    for look in (_count, _times, _hours, _utilization, _memory, _power, _lists_only):
        found += look(imported, overview)
    found += _future(imported, now_ms)
    found += _losses(imported)
    return tuple(found)


def _count(_: Imported, overview: ImportOverview) -> Iterator[str]:
    if overview.gpus > MOST_GPUS and overview.hosts != (_POOL,):
        yield f"{overview.gpus:,} GPUs on the one host {overview.hosts[0]}, where {MOST_GPUS} are the most"


def _times(imported: Imported, overview: ImportOverview) -> Iterator[str]:
    given, cadence = imported.given_interval_ms, overview.cadence_ms
    if overview.rows < overview.gpus + _ENOUGH_STEPS:
        return
    if given is not None and cadence is not None and not interval_fits(given, cadence):
        yield (
            f"samples of a GPU are {interval_text(cadence)} apart (median), and --interval says {format_duration(given)}"
        )


def _hours(imported: Imported, overview: ImportOverview) -> Iterator[str]:
    possible = overview.gpus * overview.span_hours
    # of two recordings nobody sampled the time between
    recorded = possible - overview.gpus * (overview.longest_gap_ms or 0) / HOUR_MS
    most = _MOST_HOURS if overview.rows >= _ENOUGH_ALIKE * overview.gpus else _MOST_HOURS_OF_FEW
    if overview.rows > overview.gpus and overview.gpu_hours > most * possible:
        yield (
            f"{overview.gpu_hours:,.2f} GPU-hours, where {overview.gpus:,} GPUs have {possible:,.2f} "
            f"in that time (interval {imported.interval})"
        )
    if overview.rows >= _ENOUGH_ALIKE * overview.gpus and overview.gpu_hours < _LEAST_HOURS * recorded:
        yield (
            f"the samples stand for {overview.gpu_hours:,.2f} GPU-hours of the {possible:,.2f} from the first to the last (interval "
            f"{imported.interval}): do they name every GPU, and is --interval right?"
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
    """Idle cards may hold nothing; a card that computes holds a context."""
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
    elif (
        card is None and "gpu_util_pct" not in frame.columns and 2**20 < int(str(used.max())) < 2 * _LEAST_CONTEXT_BYTES
    ):
        yield f"no GPU holds more than {format_bytes(int(str(used.max())))}: is the unit of its memory right?"
    elif busy.height >= _ENOUGH and mean < _LEAST_CONTEXT_BYTES:
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
    """Beside an earlier import of the same GPUs these would be rows, or by another name GPUs, of their own."""
    frame = imported.gpu
    if PROCESSES not in frame.columns:
        return
    told = [pl.col(name).count() > 0 for name in ("gpu_util_pct", "mem_used_bytes", "power_w") if name in frame.columns]
    seen = frame.group_by("gpu").agg(
        listed=pl.col(PROCESSES).count() > 0, told=pl.any_horizontal(pl.lit(value=False), *told)
    )
    count = seen.filter(pl.col("listed") & ~pl.col("told")).height
    if count:
        yield (
            f"processes are listed, and no file says what the GPUs did ({count:,} of {seen.height:,}): import them in one command with a "
            "log of utilization that names index and uuid"
        )


def _energy(frame: pl.DataFrame) -> Iterator[str]:
    """The power that the energy counter implies; counters that were reset are left out."""
    moment = pl.col("time").dt.epoch("ms") + pl.col("offset_ms").fill_null(0)
    steps = frame.sort("gpu", moment).select(
        energy=pl.col("energy_mj").diff().over("gpu"), passed=moment.diff().over("gpu")
    )
    steps = steps.filter((pl.col("energy") >= 0) & (pl.col("passed") > 0))
    if steps.height < _ENOUGH:
        return
    watts = float(steps["energy"].sum()) / float(steps["passed"].sum())
    if not 1 <= watts <= 3_000:
        yield f"the energy counter climbs as if a GPU drew {watts:,.3g} W: is its unit mJ?"


def _future(imported: Imported, now_ms: int) -> Iterator[str]:
    moments = imported.gpu["time"].dt.epoch("ms")
    late = moments.filter(moments > now_ms + 5 * MINUTE_MS)
    last = late.max()
    if isinstance(last, int):
        yield f"{len(late):,} rows lie in the future, the last at {format_ms(last)}: is --tz right ({imported.timezone})?"


def _losses(imported: Imported) -> Iterator[str]:
    for file in imported.files:
        dropped = sum(each.count for each in file.dropped)
        if dropped >= _ENOUGH and dropped > _MOST_DROPPED * (dropped + file.rows_kept):
            worst = max(file.dropped, key=lambda each: each.count)
            yield f"{file.path}: {dropped:,} of {dropped + file.rows_kept:,} rows are dropped, most as: {worst.reason}"
        for name in {each.column for each in file.nulled if each.reason in _UNREADABLE}:
            count = sum(each.count for each in file.nulled if each.column == name and each.reason in _UNREADABLE)
            if count >= _ENOUGH and count > _MOST_DROPPED * file.rows_kept:
                yield f"{file.path}: {count:,} values of {name} cannot be read"

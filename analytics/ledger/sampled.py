"""What point samples leave open: which zeros something else confirms, and between which bounds the idle time lies.

A point sample at 0 says that no kernel ran at that moment. A kernel may have run before the next one. What is held by such
samples alone is therefore held for between none and all of that time, until something rules work out:

- the energy counter, which sees everything between two samples: the draw between any two was that of an idle card;
- or, where no counter was read, power readings, each of which sees a second: all of them were those of an idle card, and there are
  so many that a card which worked once in each `ledger.idle_after` would have shown it with 95 % (rule of three). That holds
  unless work keeps step with the readings: it is said beside the figure, and no finding is of high confidence by it.

What an idle card draws is learnt from the fleet itself. Utilization alone confirms nothing, however many samples there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from analytics.inventory import UNKNOWN_MODEL, Inventory
from analytics.ledger.day_owners import NOBODY_LOOKED
from analytics.ledger.settings import DRIVER_WINDOW_MS
from analytics.proportions import Z_95, wilson
from analytics.states import UNOCCUPIED
from fallow.clock import HOUR_MS, SECOND_MS

FLOOR_QUANTILE = 0.1
"""A low one: a card that is warm, or that somebody used for a moment, draws more than an idle one, and none draws less."""
FLOOR_SLACK = 0.05
"""Cards of one model, and one card on a warm and on a cold day, differ by some percent."""
FLOOR_MIN_HOURS = 8.0
"""Of fewer GPU-hours nobody knows whether they are those of one odd card."""
_READING_MS = SECOND_MS
"""A power reading is the mean of a second on Ampere and later (NVML); on other cards it is not longer."""
_RULE_OF_THREE = 3
"""n readings without an event bound its share at 3/n with 95 % (Hanley and Lippman-Hand, JAMA 1983, 249:1743)."""
_WATCHED_FROM = 0.9


@dataclass(frozen=True)
class IdleFloor:
    """What an idle card of a model draws, and on how many GPU-hours of watched or free time that rests."""

    watts: float
    gpu_hours: float


@dataclass(frozen=True)
class IdleFloors:
    """By model what cards draw that a process holds and nothing runs on, and cards that nobody is on; a process costs watts."""

    held: Mapping[str, IdleFloor]
    free: Mapping[str, IdleFloor]
    idle_after_ms: int

    def of(self, model: str) -> IdleFloor | None:
        """What confirms that a card idles; None where too little is known of its model."""
        return self.held.get(model) or self.free.get(model)


def idle_floors(stretches: pl.DataFrame, inventory: Inventory, idle_after_ms: int) -> IdleFloors:
    """The floors that some rows of the ledger tell of: whole cards at 0 throughout, whose power is known.

    Held ones count where they were watched, not sampled; free ones where a process list or their memory says so.
    """
    idle = stretches.filter(
        (pl.col("zero_ms") > 0)
        & (pl.col("zero_ms") == pl.col("util_ms"))
        & (pl.col("gpu_share") == 1)
        & pl.col("power_mean_w").is_not_null()
    )
    held = (pl.col("state") == "held") & (pl.col("sampled_ms") == 0) & (pl.col("coverage_ratio") >= _WATCHED_FROM)
    free = pl.col("state").is_in(UNOCCUPIED) & ~_nobody_looked()
    return IdleFloors(_floors(idle.filter(held), inventory), _floors(idle.filter(free), inventory), idle_after_ms)


def _floors(idle: pl.DataFrame, inventory: Inventory) -> dict[str, IdleFloor]:
    models = {gpu: inventory.model(gpu) for gpu in idle["gpu"].unique()}
    rows = idle.select(
        "power_mean_w", "zero_ms", model=pl.col("gpu").replace_strict(models, return_dtype=pl.String, default=None)
    ).sort("model", "power_mean_w")
    found = {}
    for (model,), own in rows.partition_by("model", as_dict=True, maintain_order=True).items():
        passed = np.cumsum(own["zero_ms"].to_numpy())
        hours = float(passed[-1]) / HOUR_MS
        if model != UNKNOWN_MODEL and hours >= FLOOR_MIN_HOURS:
            at = int(np.searchsorted(passed, FLOOR_QUANTILE * passed[-1]))
            found[str(model)] = IdleFloor(float(own["power_mean_w"][at]), hours)
    return found


def _nobody_looked() -> pl.Expr:
    return pl.col("holder_source").is_in(NOBODY_LOOKED).fill_null(value=False)


def with_unconfirmed(stretches: pl.DataFrame, floors: IdleFloors | None, inventory: Inventory) -> pl.DataFrame:
    """The rows with `unconfirmed_ms`: time whose state rests on point samples at 0 that nothing else confirms.

    That is held time, and free or reserved time of GPUs on which somebody may be. Where something confirms it, what lies after
    the last sample of a row stays open: nobody knows when work began again. Without `floors` nothing was sampled.
    """
    by_zero = (pl.col("state") == "held") | (pl.col("state").is_in(UNOCCUPIED) & _nobody_looked())
    open_rows = stretches.with_row_index("_row").filter(by_zero & (pl.col("sampled_ms") > 0))
    if floors is None or open_rows.is_empty():
        return stretches.with_columns(unconfirmed_ms=pl.lit(0, pl.Int64))
    limits = {
        gpu: floor.watts * (1 + FLOOR_SLACK)
        for gpu in open_rows["gpu"].unique()
        if (floor := floors.of(inventory.model(gpu)))
    }
    limit = pl.col("gpu").replace_strict(limits, default=None, return_dtype=pl.Float64)
    samples = _samples()
    # the readings of a whole interval count together, also over midnight
    whole = ("gpu", "host", "stretch_start")
    enough = samples.sum().over(whole) * _READING_MS >= _RULE_OF_THREE * floors.idle_after_ms
    readings = (pl.col("idle_power_max_w") <= limit).all(ignore_nulls=False).over(whole)
    # a counter that saw more than an idle card draws is not outvoted by readings
    counter = pl.col("idle_draw_max_w")
    confirmed = pl.when(counter.is_not_null()).then(counter <= limit).otherwise(readings & enough)
    last_ms = (pl.col("sampled_ms") / samples).ceil().cast(pl.Int64)
    left = open_rows.select(
        "_row",
        unconfirmed_ms=pl.when(confirmed.fill_null(value=False))
        .then(pl.min_horizontal(last_ms, "sampled_ms"))
        .otherwise("sampled_ms"),
    )
    return (
        stretches.with_row_index("_row")
        .join(left, on="_row", how="left", maintain_order="left")
        .with_columns(pl.col("unconfirmed_ms").fill_null(0))
        .drop("_row")
    )


def _samples() -> pl.Expr:
    """How many point samples a row rests on; one at least, for a row may begin after its only one."""
    share = (pl.col("sampled_ms") / pl.col("util_ms")).fill_nan(0)
    return pl.max_horizontal(pl.col("sample_count") * share, 1.0)


@dataclass(frozen=True)
class Bound:
    """Milliseconds between which a time lies."""

    low_ms: float
    high_ms: float


@dataclass(frozen=True)
class PointSamples:
    """Time that was watched at moments only: how long, by how many samples, and between which bounds the time at 0 lies.

    `idle` is over all of the time, the watched part included: without a kernel for however short a time. `by_power_ms` is
    confirmed by readings of power alone.
    """

    time_ms: int
    count: int
    idle: Bound
    by_power_ms: int = 0

    @property
    def every_ms(self) -> float | None:
        """How far apart they are on average; None without any."""
        return self.time_ms / self.count if self.count else None

    @property
    def hidden_ratio(self) -> float | None:
        """How much of the time lies between the samples, where work leaves no trace in utilization, at most; None without any.

        A reading sees a sixth of a second for certain, whatever its product's own window is.
        """
        return None if self.every_ms is None else max(0.0, 1 - DRIVER_WINDOW_MS / self.every_ms)


def samples_of(stretches: pl.DataFrame) -> PointSamples:
    """The point samples among some rows of the ledger.

    A watched row at 0 was idle throughout, and one that is not was idle for no more than the rest of its mean. Of samples the
    shares at 0 and not at work have Wilson's interval, as of moments that do not keep step with the work.
    """
    if stretches.is_empty():
        return PointSamples(0, 0, Bound(0.0, 0.0))
    share = (pl.col("sampled_ms") / pl.col("util_ms")).fill_nan(0).fill_null(0)
    rest_ms = pl.col("util_ms") * (1 - pl.col("gpu_util_mean_pct").fill_null(0) / 100)
    point = pl.col("sampled_ms") > 0
    row = stretches.select(
        time_ms=pl.col("sampled_ms").sum(),
        count=(pl.col("sample_count") * share).filter(point).sum(),
        by_power_ms=_by_power_ms(stretches),
        zero=(pl.col("zero_ms") * share).sum(),
        rest=(rest_ms * share).sum(),
        watched_zero=(pl.col("zero_ms") * (1 - share)).sum(),
        watched_rest=(rest_ms * (1 - share)).sum(),
    ).row(0, named=True)
    time_ms, count = row["time_ms"], row["count"]
    low = wilson(row["zero"] / time_ms, count, Z_95)[0] if time_ms else 0.0
    high = wilson(row["rest"] / time_ms, count, Z_95)[1] if time_ms else 0.0
    return PointSamples(
        time_ms,
        round(count),
        Bound(row["watched_zero"] + low * time_ms, max(row["watched_rest"], row["watched_zero"]) + high * time_ms),
        round(row["by_power_ms"]),
    )


def confirmed_by_counter() -> pl.Expr:
    """Whether the energy counter shows that the sampled time of a row of `with_unconfirmed` was idle, but for its last sample."""
    return _confirmed() & pl.col("idle_draw_max_w").is_not_null()


def _confirmed() -> pl.Expr:
    return (pl.col("unconfirmed_ms") > 0) & (pl.col("unconfirmed_ms") < pl.col("sampled_ms"))


def _by_power_ms(stretches: pl.DataFrame) -> pl.Expr:
    if "unconfirmed_ms" not in stretches.columns:
        return pl.lit(0)
    by_power = _confirmed() & pl.col("idle_draw_max_w").is_null()
    return (pl.col("sampled_ms") - pl.col("unconfirmed_ms")).filter(by_power).sum()

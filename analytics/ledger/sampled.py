"""Bounds of idle time from point samples: which zeros other evidence supports, and within which limits it lies.

A point sample at 0 shows that no kernel ran at that moment. One may have run before the next sample. Time that such
samples alone call held is therefore held for between none and all of it, unless other evidence excludes work:

- *confirmed*: the energy counter, which covers all time between two samples, rose between any two as that of an idle
  card does;
- *very likely*: no counter was read, and the power readings, each of one second, are flat. They are so numerous that a
  card that worked once in each `ledger.idle_after` would have shown it with 95 % (rule of three). The evidence fails
  where work keeps step with the readings: figures state this time separately, and no finding that rests on it is of
  high confidence.

The draw of an idle card is learnt from the fleet itself. Utilization alone supports nothing, however many its samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import polars as pl

from analytics.inventory import UNKNOWN_MODEL, Inventory
from analytics.ledger.day_owners import UNWATCHED_SOURCES
from analytics.ledger.settings import DRAW_SLACK, DRIVER_WINDOW_MS
from analytics.proportions import Z_95, wilson
from analytics.states import UNOCCUPIED
from fallow.clock import HOUR_MS, SECOND_MS

FLOOR_QUANTILE = 0.1
"""A low percentile: a card that is warm, or was used for a moment, draws more than an idle one, and none draws less."""
FLOOR_MIN_HOURS = 8.0
"""Fewer GPU-hours may all come from one odd card."""
FLOOR_MIN_GPUS = 3
"""A draw of sampled cards at rest counts where this many of a model share it: one card may always do a little."""
CONTEXT_MOST_W = 50.0
"""An open CUDA context adds 26 to 50 W to what an idle A100 or H100 draws (arXiv 2605.23918)."""
LIMIT_SHARE_MOST = 0.45
"""Largest draw of a card at rest over its power limit: a T4 with a context takes 26 of 70 W, an H100 117 of 700 W."""
_READING_MS = SECOND_MS
"""A power reading is the mean of a second on Ampere and later (NVML); on other cards it is not longer."""
_RULE_OF_THREE = 3
"""n readings without an event bound its share at 3/n with 95 % (Hanley and Lippman-Hand, JAMA 1983, 249:1743)."""
_WATCHED_FROM = 0.9


@dataclass(frozen=True)
class IdleFloor:
    """The draw of an idle card of a model, and the GPU-hours that it is based on."""

    watts: float
    gpu_hours: float


@dataclass(frozen=True)
class IdleFloors:
    """What idle cards draw, by model."""

    held: Mapping[str, IdleFloor]
    """Cards that a process holds without running anything: its context costs watts."""
    free: Mapping[str, IdleFloor]
    """Cards without a user."""
    idle_after_ms: int
    limit_w: Mapping[str, float] = field(default_factory=dict)
    """The smallest power limit of the model's cards, where one is known."""

    def of(self, model: str) -> IdleFloor | None:
        """Return the draw that confirms an idle card; None where too little is known of its model."""
        return self.held.get(model) or self.free.get(model)

    def plausible_w(self, model: str) -> float:
        """Return the most that an idle card with a context may draw; infinite where nothing is known of the model."""
        free, limit_w = self.free.get(model), self.limit_w.get(model)
        by_free = math.inf if free is None else free.watts + CONTEXT_MOST_W
        return min(by_free, math.inf if limit_w is None else LIMIT_SHARE_MOST * limit_w)


def idle_floors(segments: pl.DataFrame, inventory: Inventory, idle_after_ms: int) -> IdleFloors:
    """Return the draw of idle cards in rows of the ledger: whole cards at 0 throughout, whose power is known.

    Free cards count where a process list or their memory shows that they are free. Held cards count where they were
    watched. A model without watched cards uses the quiet time of sampled cards, in which two witnesses agree: the
    counter between the samples, which work would raise, and the power readings at the samples. A draw counts only if
    several cards share it, and if it is plausible beside the model's free cards and its power limit.
    """
    held = pl.col("state") == "held"
    watched = held & (pl.col("sampled_ms") == 0) & (pl.col("coverage_ratio") >= _WATCHED_FROM)
    free = pl.col("state").is_in(UNOCCUPIED) & ~_is_unwatched()
    at_zero = (pl.col("zero_ms") > 0) & (pl.col("zero_ms") == pl.col("util_ms")) & pl.col("power_mean_w").is_not_null()
    whole = segments.filter(pl.col("gpu_share") == 1)
    floors = IdleFloors(
        _floors(whole.filter(at_zero & watched), "power_mean_w", "zero_ms", inventory),
        _floors(whole.filter(at_zero & free), "power_mean_w", "zero_ms", inventory),
        idle_after_ms,
        _power_limits(inventory),
    )
    quiet = whole.filter(held & (pl.col("quiet_ms") > 0))
    counted = _floors(quiet, "quiet_draw_max_w", "quiet_ms", inventory, FLOOR_MIN_GPUS)
    learnt = {model: floor for model, floor in counted.items() if floor.watts <= floors.plausible_w(model)}
    return IdleFloors({**learnt, **floors.held}, floors.free, idle_after_ms, floors.limit_w)


def _floors(
    idle: pl.DataFrame, watts: str, spent_ms: str, inventory: Inventory, least_gpus: int = 1
) -> dict[str, IdleFloor]:
    """Return, by model, the low decile of a column over time, where enough GPUs draw at most that plus slack."""
    models = {gpu: inventory.model(gpu) for gpu in idle["gpu"].unique()}
    rows = idle.select(
        "gpu",
        watts=watts,
        spent_ms=spent_ms,
        model=pl.col("gpu").replace_strict(models, return_dtype=pl.String, default=None),
    ).sort("model", "watts", "gpu")
    found = {}
    for (model,), own in rows.partition_by("model", as_dict=True, maintain_order=True).items():
        passed = np.cumsum(own["spent_ms"].to_numpy())
        hours = float(passed[-1]) / HOUR_MS
        lowest = float(own["watts"][int(np.searchsorted(passed, FLOOR_QUANTILE * passed[-1]))])
        alike = own.filter(pl.col("watts") <= lowest * (1 + DRAW_SLACK))["gpu"].n_unique()
        if model != UNKNOWN_MODEL and hours >= FLOOR_MIN_HOURS and alike >= least_gpus:
            found[str(model)] = IdleFloor(lowest, hours)
    return found


def _power_limits(inventory: Inventory) -> dict[str, float]:
    limits: dict[str, float] = {}
    for device in inventory.devices.values():
        if device.model is not None and device.parent_gpu is None and device.power_limit_w:
            limits[device.model] = min(device.power_limit_w, limits.get(device.model, math.inf))
    return limits


def _is_unwatched() -> pl.Expr:
    return pl.col("user_source").is_in(UNWATCHED_SOURCES).fill_null(value=False)


def with_unconfirmed(segments: pl.DataFrame, floors: IdleFloors | None, inventory: Inventory) -> pl.DataFrame:
    """Return the rows with the evidence for the idle time in which point samples read 0.

    The energy counter proves `confirmed_ms` idle, flat power readings make `likely_ms` very likely. `unconfirmed_ms` is
    the remaining held time, and the remaining free or reserved time of GPUs that may be in use. The time after the last
    sample of a row stays open, because the next start of work is unknown. Without `floors` nothing was sampled.
    """
    idle = (pl.col("state") == "held") | pl.col("state").is_in(UNOCCUPIED)
    rows = segments.with_row_index("_row").filter(idle & (pl.col("sampled_ms") > 0))
    if floors is None or rows.is_empty():
        return segments.with_columns(pl.lit(0, pl.Int64).alias(name) for name in _SUPPORTED)
    models = {gpu: inventory.model(gpu) for gpu in rows["gpu"].unique()}
    by_zero = (pl.col("state") == "held") | _is_unwatched()
    samples, draw = _samples(), pl.col("idle_draw_max_w")
    last_ms = pl.min_horizontal((pl.col("sampled_ms") / samples).ceil().cast(pl.Int64), "sampled_ms")
    throughout, in_part = _counter_evidence(floors, models, by_zero)
    confirmed_ms = pl.when(throughout).then(pl.col("sampled_ms") - last_ms).when(in_part).then("quiet_ms").otherwise(0)
    # the readings of a whole interval count together, also over midnight
    whole = ("gpu", "host", "segment_start")
    enough = samples.sum().over(whole) * _READING_MS >= _RULE_OF_THREE * floors.idle_after_ms
    power, plausible = pl.col("power_mean_w"), {gpu: floors.plausible_w(model) for gpu, model in models.items()}
    flat = (pl.col("idle_power_max_w") <= power * (1 + DRAW_SLACK)) & (power <= _by_gpu(plausible))
    # readings do not overrule a counter that shows more than an idle card draws
    likely = by_zero & draw.is_null() & flat.all(ignore_nulls=False).over(whole) & enough
    found = rows.select(
        "_row",
        confirmed_ms=pl.min_horizontal(confirmed_ms, "sampled_ms"),
        likely_ms=pl.when(likely).then(pl.col("sampled_ms") - last_ms).otherwise(0),
        open_ms=pl.when(by_zero).then("sampled_ms").otherwise(0),
    ).with_columns(
        unconfirmed_ms=pl.max_horizontal(pl.col("open_ms") - pl.col("confirmed_ms") - pl.col("likely_ms"), 0)
    )
    return (
        segments.with_row_index("_row")
        .join(found.select("_row", *_SUPPORTED), on="_row", how="left", maintain_order="left")
        .with_columns(pl.col(_SUPPORTED).fill_null(0))
        .drop("_row")
    )


_SUPPORTED = ("unconfirmed_ms", "likely_ms", "confirmed_ms")


def _counter_evidence(floors: IdleFloors, models: Mapping[str, str], by_zero: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Return whether the energy counter shows an idle card throughout a row, and in the row's quiet time."""
    held = {gpu: floor.watts * (1 + DRAW_SLACK) for gpu, model in models.items() if (floor := floors.of(model))}
    free = {gpu: floors.free[model].watts * (1 + DRAW_SLACK) for gpu, model in models.items() if model in floors.free}
    # a card whose memory is empty has no context
    limit = pl.when(by_zero).then(_by_gpu(held)).otherwise(_by_gpu(free))
    draw, quiet, reading = (pl.col(name) for name in ("idle_draw_max_w", "quiet_draw_max_w", "idle_power_max_w"))
    # a card that has drawn less at rest is working where it draws as much as others of its model at rest
    own = pl.min_horizontal(draw, quiet).min().over("gpu", "state") * (1 + DRAW_SLACK)
    throughout, in_part = (((each <= limit) & (each <= own)).fill_null(value=False) for each in (draw, quiet))
    # without quiet time the largest draw decides alone, unless readings at 0 are above what an idle card draws
    return throughout & quiet.is_null() & (reading <= limit).fill_null(value=True), in_part


def _by_gpu(watts: Mapping[str, float]) -> pl.Expr:
    return pl.col("gpu").replace_strict(watts, default=None, return_dtype=pl.Float64)


def _samples() -> pl.Expr:
    """Return the number of point samples of a row; at least one, because a row may begin after its only sample."""
    share = (pl.col("sampled_ms") / pl.col("util_ms")).fill_nan(0)
    return pl.max_horizontal(pl.col("sample_count") * share, 1.0)


UNCONFIRMED_MAX = 0.10
"""Where more than this share of some time rests on point samples alone, all of that time is called sampled."""


class Basis(StrEnum):
    """The basis of idle time: the mark that every row, file and page gives it."""

    CONFIRMED = "confirmed"
    """Watched, or the energy counter between the samples is that of an idle card."""
    LIKELY = "very likely"
    """Samples at 0, and flat power readings."""
    SAMPLED = "sampled"
    """Observed at moments."""

    @classmethod
    def of(cls, unconfirmed: float, likely: float = 0.0) -> Basis:
        """Return the basis of some time, from its shares without support and with that of power readings alone."""
        if unconfirmed > UNCONFIRMED_MAX:
            return cls.SAMPLED
        return cls.LIKELY if unconfirmed + likely > UNCONFIRMED_MAX else cls.CONFIRMED

    @classmethod
    def in_frame(cls, unconfirmed: pl.Expr, likely: pl.Expr) -> pl.Expr:
        """Return the basis of the rows of a frame."""
        return (
            pl.when(unconfirmed > UNCONFIRMED_MAX)
            .then(pl.lit(cls.SAMPLED.value))
            .when(unconfirmed + likely > UNCONFIRMED_MAX)
            .then(pl.lit(cls.LIKELY.value))
            .otherwise(pl.lit(cls.CONFIRMED.value))
        )


@dataclass(frozen=True)
class Bound:
    """Milliseconds between which a time lies."""

    low_ms: float
    high_ms: float


@dataclass(frozen=True)
class LikelyIdle:
    """Idle time that power readings alone support: its length, its samples at 0, and the range of the readings."""

    time_ms: int
    count: int
    low_w: float
    high_w: float

    @classmethod
    def among(cls, segments: pl.DataFrame) -> LikelyIdle | None:
        """Return the likely idle time of some rows of `with_unconfirmed`; None without any."""
        return cls.among_each(segments.with_columns(part=0), "part").get(0)

    @classmethod
    def among_each(cls, segments: pl.DataFrame, part: str) -> dict[int, LikelyIdle]:
        """Return the same by a column of numbers; parts without such time are left out."""
        if "likely_ms" not in segments.columns:
            return {}
        power = pl.col("power_mean_w")
        rows = segments.filter(pl.col("likely_ms") > 0).sort(part, maintain_order=True)
        sums = rows.group_by(part).agg(
            pl.col("likely_ms").sum(), _samples().sum().alias("count"), low=power.min(), high=power.max()
        )
        return {
            each: cls(round(time_ms), round(count), low_w, high_w)
            for each, time_ms, count, low_w, high_w in sums.iter_rows()
        }


@dataclass(frozen=True)
class PointSamples:
    """Time that was observed at moments only."""

    time_ms: int
    """Its length."""
    count: int
    """Its number of samples."""
    idle: Bound
    """Bounds of the time at 0, without even a short kernel. They cover all time, including watched time."""
    likely: LikelyIdle | None = None

    @property
    def every_ms(self) -> float | None:
        """Return the mean distance between samples; None without any."""
        return self.time_ms / self.count if self.count else None

    @property
    def hidden_ratio(self) -> float | None:
        """Return the largest share of the time in which work leaves no trace in utilization; None without samples.

        A reading covers a sixth of a second for certain, whatever the window of its product.
        """
        return None if self.every_ms is None else max(0.0, 1 - DRIVER_WINDOW_MS / self.every_ms)


def samples_of(segments: pl.DataFrame) -> PointSamples:
    """Return the point samples among some rows of the ledger.

    A watched row at 0 was idle throughout, any other row for no more than the complement of its mean. For samples, the
    shares at 0 and not at work have Wilson's interval, which assumes moments that do not keep step with the work.
    """
    if segments.is_empty():
        return PointSamples(0, 0, Bound(0.0, 0.0))
    share = (pl.col("sampled_ms") / pl.col("util_ms")).fill_nan(0).fill_null(0)
    rest_ms = pl.col("util_ms") * (1 - pl.col("gpu_util_mean_pct").fill_null(0) / 100)
    point = pl.col("sampled_ms") > 0
    row = segments.select(
        time_ms=pl.col("sampled_ms").sum(),
        count=(pl.col("sample_count") * share).filter(point).sum(),
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
        LikelyIdle.among(segments),
    )


def confirmed_by_counter() -> pl.Expr:
    """Return the share of a row's sampled time (`with_unconfirmed`) in which the energy counter shows an idle card."""
    return (pl.col("confirmed_ms") / pl.col("sampled_ms")).fill_nan(0)

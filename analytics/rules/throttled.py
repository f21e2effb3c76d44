"""GPUs whose clocks are reduced by heat, power or another GPU while they work.

Look-alikes that it leaves alone: a power cap at full load, idle clocks, one hot hour, a burn-in, counters that
restarted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from analytics.language.sentences import Share, tr
from analytics.workloads import waste
from analytics.workloads.commands import throttle_command
from analytics.workloads.confidence import measured_enough
from analytics.workloads.finding_parts import label, words_for
from analytics.workloads.ledger_rows import (
    first_ms,
    highest,
    joined,
    mean_of,
    newest_source,
    sum_of,
    whole_hours,
    within_hours,
)
from analytics.workloads.model import Context, of_gpus
from analytics.workloads.row_sums import of_candidates, parts_of
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from fallow.clock import HOUR_MS

ACTIVE_FROM_PCT = 10.0
ACTIVE_HOURS_MIN = 6
SHARE_MIN = 0.10
CAP_SHARE_MIN = 0.50
CAP_CLOCK_LOST_MIN = 0.25
CAP_POWER_FROM = 0.85


@dataclass(frozen=True)
class Cause:
    name: str
    words: str
    column: str
    share_min: float
    remedy: str
    doubt: str = ""
    """Why the finding about this cause is not certain; empty if it is."""


CAUSES = (
    Cause(
        "heat", "heat", "throttled_thermal_ms", SHARE_MIN, tr("check the host's fans, air flow and inlet temperature")
    ),
    Cause(
        "brake",
        "power below the GPU's own limit",
        "throttled_power_ms",
        SHARE_MIN,
        tr("a cause outside the GPU limits its power: a power brake, a weak supply or a rack limit"),
        tr("power cap and power brake share one counter; only the low power suggests a brake"),
    ),
    Cause(
        "cap",
        "the power cap",
        "throttled_power_ms",
        CAP_SHARE_MIN,
        tr("a power cap at full load is normal; this one costs more than a quarter of the clock"),
        tr("a power cap at full load is normal on many cards, and the site may have set it"),
    ),
    Cause(
        "sync",
        "another GPU of the boost group",
        "throttled_sync_ms",
        SHARE_MIN,
        tr("the slowest GPU of the group sets the clock of all"),
    ),
)


_CAUSES = {each.words: each.words for each in CAUSES}


def throttled_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per host and cause, for busy time with reduced clocks."""
    active = whole_hours(context).filter(pl.col("gpu_util_mean_pct") >= ACTIVE_FROM_PCT)
    hours = active.filter(pl.col("throttled_known_ms") > 0)
    per_gpu = _throttled_per_gpu(context, hours)
    counted = active.select(
        *("host", "gpu", "time", "energy_mj", "energy_ms", "observed_ms", "throttled_known_ms"),
        *{each.column for each in CAUSES},
    )
    for cause in CAUSES:
        fired = per_gpu.filter(pl.col(cause.name) > cause.share_min)
        at_work = counted.join(fired.select("host", "gpu"), on=("host", "gpu"), how="semi", maintain_order="left")
        busy = of_candidates(at_work, fired, ("host",))
        hosts = fired["host"].unique(maintain_order=True)
        slow = parts_of(busy.filter(pl.col(cause.column) > 0), len(hosts))
        per_host = fired.partition_by("host", maintain_order=True)
        everything = zip(hosts, per_host, parts_of(busy, len(hosts)), slow, within_hours(context, slow), strict=True)
        for host, gpus, own, slowed, segments in everything:
            active_ms = float(gpus["active_ms"].sum())
            share, active_h = (
                min(float((gpus[cause.name] * gpus["active_ms"]).sum()) / active_ms, 1.0),
                active_ms / HOUR_MS,
            )
            yield Candidate(
                segments,
                subject=cause.name,
                numbers={
                    "user_source": newest_source(segments),
                    "cause": cause.words,
                    "throttled_share_of_active_time": share,
                    "throttled_gpu_hours": share * active_h,
                    "active_gpu_hours": active_h,
                    "temperature_max_c": highest(gpus, "temperature_max_c"),
                    "power_mean_w": mean_of(gpus, "power_mean_w"),
                    "power_limit_w": mean_of(gpus, "limit_w"),
                    "sm_clock_mean_mhz": mean_of(gpus, "clock_mhz"),
                    "sm_clock_fastest_mhz": highest(gpus, "fastest_mhz"),
                },
                failed=[_counted(own), [cause.doubt] if cause.doubt else []],
                next_command=throttle_command(
                    host, str(gpus.sort(cause.name, "gpu", descending=(True, False))["gpu"][0])
                ),
                user=joined(segments, "user"),
                since_ms=first_ms(slowed),
                notes=[cause.remedy],
            )


THROTTLED = Rule(
    name="throttled",
    category="efficiency",
    sentence=of_gpus("throttled while busy"),
    kinds=(waste.INEFFICIENT,),
    precedence=10,
    of_machine=True,
    advice=tr("Find the cause of the throttling: cooling, power supply or a configured limit."),
    per_host=True,
    history=HistoryNeed(ACTIVE_HOURS_MIN * HOUR_MS),
    thresholds={
        "heat": f"more than {SHARE_MIN:.0%} of the active time (heat is a fault at any load)",
        "brake": (
            f"more than {SHARE_MIN:.0%} of the active time by power while the mean draw is below {CAP_POWER_FROM:.0%}"
            " of the limit"
        ),
        "cap": (
            f"more than {CAP_SHARE_MIN:.0%} of the active time at the limit, and clocks {CAP_CLOCK_LOST_MIN:.0%} below"
            " those of the model's fastest GPU (a cap at full load is normal on many cards)"
        ),
        "sync": f"more than {SHARE_MIN:.0%} of the active time by another GPU of the boost group",
        "active": (
            f"hours of at least {ACTIVE_FROM_PCT:g} % utilization, {ACTIVE_HOURS_MIN} of them on a GPU (no verdict from"
            " a short test)"
        ),
    },
    labels=(
        label("cause", "slowed down by {value}", words_for(_CAUSES)),
        label("throttled_share_of_active_time", "for {value} of the active time", Share),
        label("throttled_gpu_hours", "{value} GPU-hours slowed down"),
        label("active_gpu_hours", "{value} GPU-hours active"),
        label("temperature_max_c", "temperature up to {value} °C"),
        label("sm_clock_mean_mhz", "mean SM clock {value} MHz"),
        label("sm_clock_fastest_mhz", "highest of the model {value} MHz"),
    ),
    find=throttled_findings,
)


def _throttled_per_gpu(context: Context, hours: pl.DataFrame) -> pl.DataFrame:
    """Return per host and GPU: the share of busy time of each cause, mean power over its limit, and lost clock."""
    devices = pl.DataFrame(
        [(gpu, device.model, device.power_limit_w) for gpu, device in context.inventory.devices.items()],
        schema={"gpu": pl.String, "model": pl.String, "limit_w": pl.Float64},
        orient="row",
    )
    busy_share = 1 - pl.col("zero_ms") / pl.col("observed_ms")
    active_ms = (pl.col("throttled_known_ms") * busy_share).sum()
    power_slowed = pl.col("throttled_power_ms") > 0
    slowed = power_slowed | (pl.col("throttled_thermal_ms") > 0) | (pl.col("throttled_sync_ms") > 0)
    clock = pl.col("sm_clock_mean_mhz").cast(pl.Float64)
    joined_hours = hours.join(devices, on="gpu", how="left").with_columns(fastest_mhz=clock.max().over("model"))
    return (
        joined_hours.group_by("host", "gpu")
        .agg(
            active_ms=active_ms,
            heat=pl.col("throttled_thermal_ms").sum() / active_ms,
            power=pl.col("throttled_power_ms").sum() / active_ms,
            sync=pl.col("throttled_sync_ms").sum() / active_ms,
            power_mean_w=pl.col("power_mean_w").cast(pl.Float64).filter(power_slowed).mean(),
            limit_w=pl.col("limit_w").last(),
            temperature_max_c=pl.col("temperature_max_c").max(),
            clock_mhz=clock.filter(slowed).mean(),
            fastest_mhz=pl.col("fastest_mhz").first(),
        )
        .filter(pl.col("active_ms") >= ACTIVE_HOURS_MIN * HOUR_MS)
        .with_columns(
            # NVML counts cap and brake separately, but the hour keeps their sum: the power draw distinguishes them
            at_limit=pl.col("power_mean_w") >= CAP_POWER_FROM * pl.col("limit_w"),
            clock_lost=1 - pl.col("clock_mhz") / pl.col("fastest_mhz"),
        )
        .with_columns(
            brake=pl.when(~pl.col("at_limit")).then("power"),
            cap=pl.when(pl.col("at_limit") & (pl.col("clock_lost") > CAP_CLOCK_LOST_MIN)).then("power"),
        )
        .sort("host", "gpu")
    )


def _counted(active: pl.DataFrame) -> list[str]:
    """Return a failed condition if the counters were read in too few of the busy hours."""
    known_ms, observed_ms = sum_of(active, "throttled_known_ms"), sum_of(active, "observed_ms")
    return measured_enough(known_ms, observed_ms, tr("the cause of the throttling"))

"""GPUs that are busy by utilization and do little by SM activity or power.

Look-alikes that it leaves alone: work bound by memory bandwidth (decoding, solvers), cards throttled by heat or a cap
(`throttled`), an afternoon of profiling.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.language.sentences import Number, Sentence, Share, tr
from analytics.ranks import rank
from analytics.workloads import waste
from analytics.workloads.commands import monitor_command
from analytics.workloads.finding_parts import label, rank_label
from analytics.workloads.ledger_rows import (
    first_ms,
    gpu_ms_of,
    gpus_on,
    joined,
    mean_of,
    newest_source,
    whole_hours,
    within_hours,
)
from analytics.workloads.model import Context, gpus_of, of_gpus
from analytics.workloads.processes import serving_gpus
from analytics.workloads.row_sums import of_candidates, parts_of
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from fallow.clock import HOUR_MS

BUSY_FROM_PCT = 80.0
SM_BELOW_PCT = 40.0
POWER_BELOW = 0.5
DRAM_FROM_PCT = 50.0
GPU_HOURS_MIN = 24

_MEANS = ("gpu_util_mean_pct", "sm_active_mean_pct", "dram_active_mean_pct", "power_mean_w")


def inefficient_findings(context: Context) -> Iterator[Candidate]:
    """Yield findings about hours of high utilization with little SM activity or power.

    One finding per user, or per GPU without a known user.
    """
    busy = _busy_hours(context)
    poor = busy.filter("poor")
    weighed = poor.join(_shares(context, poor), on=("host", "gpu", "time"), how="left")
    ranked = (
        weighed.group_by("whom")
        .agg(gpu_hours=pl.col("gpu_share").fill_null(1.0).sum())
        .sort("gpu_hours", "whom", descending=(True, False))
        .with_columns(rank=rank(pl.col("gpu_hours")))
    )
    users = busy["whom"].n_unique()
    found = ranked.filter(pl.col("gpu_hours") > GPU_HOURS_MIN)
    every = of_candidates(busy, found, ("whom",))
    busy_hours, weak_hours = (parts_of(rows, found.height) for rows in (every, every.filter("poor")))
    frames = zip(found["rank"], busy_hours, weak_hours, within_hours(context, weak_hours), strict=True)
    for place, own, weak, segments in frames:
        user, host = weak["user"][0], weak["host"].mode().sort()[0]
        yield Candidate(
            segments,
            subject=weak["whom"][0],
            source=newest_source(segments),
            numbers={
                **{name: mean_of(weak, name) for name in _MEANS},
                "gpus_with_sm_activity": _gpus_with(weak, "sm_active_mean_pct"),
                "power_limit_w": mean_of(weak, "limit_w"),
                "share_of_busy_hours": weak.height / own.height,
                "rank_among_users": f"{place} of {users}",
                "inefficient_gpu_hours": gpu_ms_of(segments) / HOUR_MS,
                "jobs": joined(segments, "job"),
            },
            failed=[_unmeasured(weak)],
            next_command=monitor_command(host, gpus_on(weak, host)),
            user=user,
            since_ms=first_ms(weak),
            notes=[
                tr(
                    "small kernels, busy waiting and data loading on the GPU all look like this; profile one step to"
                    " find the cause"
                )
            ],
        )


INEFFICIENT = Rule(
    name="inefficient",
    category="efficiency",
    sentence=of_gpus("busy, but with few SMs active or at low power"),
    kinds=(waste.INEFFICIENT,),
    precedence=50,
    advice=tr(
        "Give the GPU more work at once, such as larger batches or lower precision. If that is not possible, reply with"
        " the reason."
    ),
    history=HistoryNeed(HOUR_MS, gpu_hours=GPU_HOURS_MIN),
    thresholds={
        "busy": f"hourly utilization of at least {BUSY_FROM_PCT:g} % (one kernel at a time is enough for 100 %)",
        "sm_active": (
            f"hourly SM activity below {SM_BELOW_PCT:g} % (Acme Kalos: median 33 % at a median utilization of 97 %)"
        ),
        "power": f"or hourly power below {POWER_BELOW:.0%} of the limit, where SM activity is not measured or high",
        "dram_active": (
            f"memory bandwidth below {DRAM_FROM_PCT:g} % (decoding that is bound by memory is efficient as it is)"
        ),
        "hours": f"more than {GPU_HOURS_MIN} GPU-hours (Job Defense Shield mails from there on)",
    },
    labels=(
        rank_label("rank {rank} of {users} users of busy GPUs by inefficient GPU-hours"),
        label("dram_active_mean_pct", "mean memory bandwidth {value} %"),
        label("share_of_busy_hours", "{value} of the busy hours", Share),
        label("inefficient_gpu_hours", "{value} GPU-hours in this condition"),
    ),
    find=inefficient_findings,
)


def _busy_hours(context: Context) -> pl.DataFrame:
    """Return whole hours of high utilization with `whom` and whether SM activity or power was low (`poor`)."""
    busy = whole_hours(context).filter(pl.col("gpu_util_mean_pct") >= BUSY_FROM_PCT)
    limits = pl.DataFrame(
        [(gpu, device.power_limit_w) for gpu, device in context.inventory.devices.items()],
        schema={"gpu": pl.String, "limit_w": pl.Float64},
        orient="row",
    )
    few = (pl.col("sm_active_mean_pct") < SM_BELOW_PCT).fill_null(value=False)
    weak = (pl.col("power_mean_w") < POWER_BELOW * pl.col("limit_w")).fill_null(value=False)
    dram = pl.col("dram_active_mean_pct")
    # unmeasured bandwidth may be the limit, and for a server that decodes it usually is
    serving = pl.col("gpu").is_in(list(serving_gpus(context)))
    by_memory = pl.when(dram.is_null()).then(serving).otherwise(dram >= DRAM_FROM_PCT)
    return busy.join(limits, on="gpu", how="left").select(
        *("host", "gpu", "time", "energy_mj", "energy_ms", "user", "limit_w", *_MEANS),
        poor=(few | weak) & ~by_memory,
        whom=pl.coalesce("user", "gpu"),
    )


def _shares(context: Context, hours: pl.DataFrame) -> pl.DataFrame:
    """Return the share of a GPU that each row's MIG instance had at the start of the hour; null if it is not split."""
    rows = context.inside.segments.select("host", "gpu", "time", "gpu_share")
    split = rows.filter(pl.col("gpu_share") != 1).select("host", "gpu").unique()
    rows = rows.join(split, on=("host", "gpu"), how="semi").sort("host", "gpu", "time")
    wanted = hours.select("host", "gpu", "time").sort("host", "gpu", "time")
    return wanted.join_asof(rows, on="time", by=("host", "gpu"), strategy="backward", check_sortedness=False)


def _unmeasured(hours: pl.DataFrame) -> list[str]:
    """Yield failed conditions for counters that were not measured on all cards."""
    failed: list[str] = []
    if hours["sm_active_mean_pct"].null_count():
        failed.append(
            tr(
                "SM activity is {not_measured}: only the low power suggests little work",
                not_measured=_measured_on(hours, "sm_active_mean_pct"),
            )
        )
    if hours["dram_active_mean_pct"].null_count():
        on = _measured_on(hours, "dram_active_mean_pct")
        failed.append(tr("memory bandwidth is {not_measured}: memory-bound work looks the same", not_measured=on))
    return failed


def _measured_on(hours: pl.DataFrame, column: str) -> Sentence:
    measured, every = _gpus_with(hours, column), hours["gpu"].n_unique()
    if not measured:
        return tr("not measured on this card") if every == 1 else tr("not measured on these cards")
    return tr(
        "not measured in every hour (in some hours only on {measured} of {gpus})",
        measured=Number(measured),
        gpus=gpus_of(every),
    )


def _gpus_with(hours: pl.DataFrame, column: str) -> int:
    return hours["gpu"].filter(hours[column].is_not_null()).n_unique()

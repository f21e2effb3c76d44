"""More GPUs in a pool than were ever needed at once: the conservative reserve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.language.quantities import Number
from analytics.language.sentences import say, say_many
from analytics.ledger.day_owners import NOBODY_LOOKED
from analytics.states import IN_USE, UNUSED
from analytics.workloads.finding_parts import SPAN, finding_of, whole_number
from analytics.workloads.live_processes import last_rows
from analytics.workloads.phrases import of_gpus
from analytics.workloads.process_holders import watch_command
from analytics.workloads.surplus import (
    HISTORY_MAX_DAYS,
    HISTORY_MIN_DAYS,
    MARGIN,
    QUANTILES,
    QUANTILES_PROD,
    RECENT_MS,
    UNKNOWN_MAX,
    backtest,
    demand,
    estimate,
)
from analytics.workloads.unseen_work import claimed_by_count, counted_gpus
from fallow.clock import DAY_MS, MINUTE_MS, WEEK_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from analytics.language.sentences import Sentence
    from analytics.workloads.model import Context, Finding
    from analytics.workloads.model import Number as Value
    from analytics.workloads.surplus import Backtest, Surplus

POOL_MIN_GPUS = 8
BLOCKS = (8, 4, 2, 1)


class StandingSurplus:
    """GPUs of one model in one pool beyond what was needed at once; one finding per pool and model."""

    name = "standing_surplus"
    category = "reclaim"
    sentence = of_gpus("beyond what the pool needed at once")
    per_host = False
    thresholds: Mapping[str, str] = {
        "reserve": f"N - ceil(Q(D) * {1 + MARGIN:g} * (1 + 1/days)); D: GPUs active in the last {RECENT_MS // MINUTE_MS} min, highest "
        f"in each hour of up to {HISTORY_MAX_DAYS} days and, if that is more, of the last 7 (facts of the field; the last week is ours)",
        "quantile": f"{QUANTILES['point']:g}, {QUANTILES_PROD['point']:g} for pools with `prod` in their name; the interval is that of "
        f"{QUANTILES['low']:g} with unknown time counted as need, and {QUANTILES['high']:g}",
        "history": f"at least {HISTORY_MIN_DAYS} days of hours in which at most {UNKNOWN_MAX:.0%} of the pool was unknown (a whole week)",
        "back-test": "the estimate of one week earlier against each hour since: it held where more was needed at once no more often than "
        "its quantile allows (facts of the field); it takes a week of hours before as well",
        "pool": f"at least {POOL_MIN_GPUS} GPUs (one whole host; of fewer, rules on single GPUs say it all; ours)",
    }

    def find(self, context: Context) -> Iterator[Finding]:
        """The findings, in no order."""
        now = _in_order(context)
        large = now.filter(pl.col("gpu_share").sum().over("pool", "model") >= POOL_MIN_GPUS)
        if large.is_empty():
            return
        history_ms = whole_number(context.whole.stretches, pl.col("time").min())
        since_ms = max(history_ms, context.until_ms - HISTORY_MAX_DAYS * DAY_MS)
        needed = demand(context, large)
        for (pool, model), gpus in large.group_by("pool", "model", maintain_order=True):
            hours = needed.filter((pl.col("pool") == pool) & (pl.col("model") == model))
            surplus = estimate(str(pool), float(gpus["gpu_share"].sum()), hours, context.until_ms)
            if surplus is not None and surplus.left("point") >= 1:
                tested = backtest(str(pool), _there_a_week_ago(context, gpus), hours, context.until_ms)
                yield from self._finding(context, (str(pool), str(model)), gpus, (surplus, tested), since_ms)

    def _finding(
        self,
        context: Context,
        of: tuple[str, str],
        gpus: pl.DataFrame,
        found: tuple[Surplus, Backtest | None],
        since_ms: int,
    ) -> Iterator[Finding]:
        surplus, tested = found
        low, point, high = (surplus.left(bound) for bound in ("low", "point", "high"))
        named = _least_used(context, gpus, since_ms).head(point)
        rows = context.inside.stretches.filter(
            pl.col("state").is_in(UNUSED) & pl.col("gpu").is_in(named["gpu"].implode())
        )
        if rows.is_empty():
            return
        watched = ~pl.col("holder_source").is_in(NOBODY_LOOKED).fill_null(value=False)
        # which of a host's free GPUs a claim counts nobody can say
        counted = pl.col("host").is_in(list(counted_gpus(context)))
        free = named.filter((pl.col("state") == "free") & watched & ~counted)
        doubtful = named.filter((pl.col("state") == "free") & counted)["host"].unique()
        per_host = named.group_by("host").len("gpus").sort("gpus", "host", descending=[True, False])
        hosts = dict(per_host.iter_rows())
        whole = [host for host, number in hosts.items() if number == gpus.filter(pl.col("host") == host).height]
        numbers: dict[str, Value] = {
            "pool": of[0],
            "model": of[1],
            "pool_gpus": surplus.gpus,
            "needed_at_once_gpus": surplus.need["point"],
            "needed_at_once_max_gpus": surplus.largest,
            "needed_quantile": surplus.quantile,
            "needed_with_reserve_gpus": surplus.wanted("point"),
            "surplus_low_gpus": low,
            "surplus_gpus": point,
            "surplus_high_gpus": high,
            "surplus_free_now_gpus": free.height,
            "history_days": surplus.days,
            **(tested.numbers if tested else {"backtest_hours": None}),
        }
        numbers |= {
            f"surplus_gpus_in_blocks_of_{size}": sum(n // size * size for n in hosts.values()) for size in BLOCKS
        }
        yield finding_of(
            context,
            self,
            rows,
            subject=": ".join(of),
            numbers=numbers | {"surplus_blocks": "; ".join(f"{host} {_blocks(n)}" for host, n in hosts.items())},
            failed=[
                [
                    say(
                        "counting what was not seen as needed, only {low} of {point} remain",
                        low=Number(low),
                        point=Number(point),
                    )
                ]
                if low < (point + 1) // 2
                else [],
                tested.failed if tested else [],
                claimed_by_count(context, doubtful),
            ],
            next_command=watch_command(next(iter(hosts))),
            reclaimable_gpus=free["gpu"].sort().to_list(),
            since_ms=since_ms,
            gpus=named["gpu"].sort().to_list(),
            host="",
            notes=[_whole_hosts(whole)] if whole else [],
        )


def _whole_hosts(hosts: Sequence[str]) -> Sentence:
    return say_many(
        "{number} host could go as a whole: {hosts}",
        "{number} hosts could go as a whole: {hosts}",
        len(hosts),
        hosts=", ".join(hosts),
    )


def _in_order(context: Context) -> pl.DataFrame:
    """The GPUs of the fleet that can do work at the end of the window: gpu, host, gpu_share, state, pool and model."""
    last = last_rows(context).filter((pl.col("state") != "unavailable") & (pl.col("gpu_share") > 0))
    gpus = last["gpu"].to_list()
    return last.select("gpu", "host", "gpu_share", "state", "holder_source").with_columns(
        pool=pl.Series([_pool(context, gpu) for gpu in gpus], dtype=pl.String),
        model=pl.Series([_model(context, gpu) for gpu in gpus], dtype=pl.String),
    )


def _whole_card(context: Context, gpu: str) -> str:
    """The GPU that a MIG instance is a part of; the GPU itself where it is none."""
    device = context.inventory.devices.get(gpu)
    return gpu if device is None or device.parent_gpu is None else device.parent_gpu


def _pool(context: Context, gpu: str) -> str:
    return context.inventory.pool(_whole_card(context, gpu))


def _model(context: Context, gpu: str) -> str:
    return context.inventory.model(_whole_card(context, gpu))


def _there_a_week_ago(context: Context, gpus: pl.DataFrame) -> float:
    """How many of the GPUs had been seen by then."""
    before = context.whole.stretches.filter(pl.col("time") < context.until_ms - WEEK_MS)["gpu"].unique()
    return float(gpus.filter(pl.col("gpu").is_in(before.implode()))["gpu_share"].sum())


def _least_used(context: Context, gpus: pl.DataFrame, since_ms: int) -> pl.DataFrame:
    """Whole GPUs that are not split, those with the least active time first."""
    active = context.whole.stretches.filter((pl.col("end") > since_ms) & pl.col("state").is_in(IN_USE))
    used = active.group_by("gpu").agg(used_ms=SPAN.sum())
    return (
        gpus.filter(pl.col("gpu_share") == 1)
        .join(used, on="gpu", how="left")
        .sort(pl.col("used_ms").fill_null(0), "host", "gpu")
    )


def _blocks(number: int) -> str:
    """`8+2+1`: what a number of GPUs of one host is good for."""
    parts = []
    for size in BLOCKS:
        parts += [str(size)] * (number // size)
        number %= size
    return "+".join(parts)

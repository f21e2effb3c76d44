"""More GPUs in a pool than were ever needed at once: the conservative reserve."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from analytics.findings.alive import last_rows
from analytics.findings.at_once import hourly_most, lasting_on
from analytics.findings.base import SPAN, finding_of, whole_number
from analytics.findings.holders import watch_command
from analytics.ledger.day_owners import NOBODY_LOOKED
from analytics.ledger.text import count
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from analytics.findings.model import Context, Finding, Number

QUANTILES = {"low": 0.99, "point": 0.95, "high": 0.90}
QUANTILES_PROD = {"low": 1.0, "point": 0.99, "high": 0.95}
MARGIN = 0.15
RECENT_MS = 30 * MINUTE_MS
HISTORY_MAX_DAYS = 28
HISTORY_MIN_DAYS = 7
POOL_MIN_GPUS = 8
UNKNOWN_MAX = 0.1
BLOCKS = (8, 4, 2, 1)

_WORKING = ("low", "active")
_IDLE = ("free", "reserved", "held")


@dataclass(frozen=True)
class Surplus:
    """What was needed at once of a pool's GPUs, and what that leaves."""

    gpus: float
    days: float
    need: Mapping[str, float]
    quantile: float
    largest: float

    def wanted(self, bound: str) -> int:
        """What was needed, with the reserve: ceil(Q(D) * 1.15 * (1 + 1/days))."""
        return math.ceil(round(self.need[bound] * (1 + MARGIN) * (1 + 1 / self.days), 6))

    def left(self, bound: str) -> int:
        """R = N - ceil(Q(D) * 1.15 * (1 + 1/days)), never below 0."""
        return max(0, math.floor(round(self.gpus - self.wanted(bound), 6)))


class StandingSurplus:
    """GPUs of one model in one pool beyond what was needed at once; one finding per pool and model."""

    name = "standing_surplus"
    category = "reclaim"
    sentence = "beyond what the pool needed at once"
    per_host = False
    thresholds: Mapping[str, str] = {
        "reserve": f"N - ceil(Q(D) * {1 + MARGIN:g} * (1 + 1/days)); D: GPUs active in the last {RECENT_MS // MINUTE_MS} min, highest "
        f"in each hour of up to {HISTORY_MAX_DAYS} days and, if that is more, of the last 7 (facts of the field; the last week is ours)",
        "quantile": f"{QUANTILES['point']:g}, {QUANTILES_PROD['point']:g} for pools with `prod` in their name; the interval is that of "
        f"{QUANTILES['low']:g} with unknown time counted as need, and {QUANTILES['high']:g}",
        "history": f"at least {HISTORY_MIN_DAYS} days of hours in which at most {UNKNOWN_MAX:.0%} of the pool was unknown (a whole week)",
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
        demand = _demand(context, large, since_ms)
        for (pool, model), gpus in large.group_by("pool", "model", maintain_order=True):
            hours = demand.filter((pl.col("pool") == pool) & (pl.col("model") == model))
            surplus = _surplus(context, str(pool), float(gpus["gpu_share"].sum()), hours)
            if surplus is not None and surplus.left("point") >= 1:
                yield from self._finding(context, (str(pool), str(model)), gpus, surplus, since_ms)

    def _finding(
        self, context: Context, of: tuple[str, str], gpus: pl.DataFrame, surplus: Surplus, since_ms: int
    ) -> Iterator[Finding]:
        low, point, high = (surplus.left(bound) for bound in ("low", "point", "high"))
        named = _least_used(context, gpus, since_ms).head(point)
        rows = context.inside.stretches.filter(
            pl.col("state").is_in(_IDLE) & pl.col("gpu").is_in(named["gpu"].implode())
        )
        if rows.is_empty():
            return
        watched = ~pl.col("holder_source").is_in(NOBODY_LOOKED).fill_null(value=False)
        free = named.filter((pl.col("state") == "free") & watched)
        per_host = named.group_by("host").len("gpus").sort("gpus", "host", descending=[True, False])
        hosts = dict(per_host.iter_rows())
        whole = [host for host, number in hosts.items() if number == gpus.filter(pl.col("host") == host).height]
        numbers: dict[str, Number] = {
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
                [f"counting what was not seen as needed, only {low} of {point} remain"]
                if low < (point + 1) // 2
                else [],
            ],
            next_command=watch_command(next(iter(hosts))),
            reclaimable_gpus=free["gpu"].sort().to_list(),
            since_ms=since_ms,
            gpus=named["gpu"].sort().to_list(),
            host="",
            notes=[f"{count(len(whole), 'host')} could go as a whole: {', '.join(whole)}"] if whole else [],
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


def _demand(context: Context, gpus: pl.DataFrame, since_ms: int) -> pl.DataFrame:
    """Per pool, model and hour: `needed`, `unknown` and `needed_or_unknown`, each the most GPUs at once."""
    key = ("pool", "model")
    rows = context.whole.stretches.filter(pl.col("end") > since_ms).join(gpus.select("gpu", *key), on="gpu")
    active = rows.filter(pl.col("state").is_in(_WORKING))
    unknown = rows.filter(pl.col("state") == "unknown")
    own = gpus.select("gpu", *key)
    working = lasting_on(active, RECENT_MS).join(own, on="gpu")
    either = lasting_on(
        pl.concat(
            [working.select("gpu", "time", "end", "gpu_share"), unknown.select("gpu", "time", "end", "gpu_share")]
        ),
        0,
    ).join(own, on="gpu")
    hours = pl.select(
        time=pl.int_range(
            -(-since_ms // HOUR_MS) * HOUR_MS, context.until_ms // HOUR_MS * HOUR_MS, HOUR_MS, dtype=pl.Int64
        )
    )
    found = gpus.select(key).unique().join(hours, how="cross")
    for name, spans in (("needed", working), ("unknown", unknown), ("needed_or_unknown", either)):
        most = hourly_most(spans, key, since_ms, context.until_ms).rename({"most": name})
        found = found.join(most, on=(*key, "time"), how="left").with_columns(pl.col(name).fill_null(0.0))
    return found.sort("time")


def _surplus(context: Context, pool: str, gpus: float, hours: pl.DataFrame) -> Surplus | None:
    """None where too little of the pool's time is known."""
    known = hours.filter(pl.col("unknown") <= UNKNOWN_MAX * gpus)
    days = known.height / 24
    if days < HISTORY_MIN_DAYS:
        return None
    quantiles = QUANTILES_PROD if "prod" in pool.lower() else QUANTILES
    # demand that grew within the month is that of its last week
    lately = known.filter(pl.col("time") >= context.until_ms - 7 * DAY_MS)
    need = {
        bound: max(
            _quantile(frame, "needed_or_unknown" if bound == "low" else "needed", share)
            for frame in (known, lately)
            if not frame.is_empty()
        )
        for bound, share in quantiles.items()
    }
    return Surplus(gpus, days, need, quantiles["point"], _quantile(known, "needed", 1.0))


def _quantile(hours: pl.DataFrame, column: str, share: float) -> float:
    """The least value that at least this share of the hours does not exceed."""
    return float(hours[column].sort()[max(0, math.ceil(round(share * hours.height, 6)) - 1)])


def _least_used(context: Context, gpus: pl.DataFrame, since_ms: int) -> pl.DataFrame:
    """Whole GPUs that are not split, those with the least active time first."""
    active = context.whole.stretches.filter((pl.col("end") > since_ms) & pl.col("state").is_in(_WORKING))
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

"""More GPUs in a pool than its demand and its reserve need.

Look-alikes that it leaves alone: nightly and weekly peaks, demand that has just grown or is about to, GPUs that are
held without a finding against them, queued jobs, pools of a few cards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import polars as pl

from analytics.capacity.peak_demand import (
    HISTORY_MIN_DAYS,
    MARGIN,
    PEAK_DAYS,
    QUANTILE,
    QUANTILE_PROD,
    TESTED_WEEKS,
    UNKNOWN_MAX,
)
from analytics.language.sentences import Number, Sentence, plain, tr, tr_many
from analytics.states import UNUSED
from analytics.workloads import waste
from analytics.workloads.commands import watch_command
from analytics.workloads.fleet_demand import RECENT_MS, history_start_ms
from analytics.workloads.model import Context, EvidenceValue, Finding, Label, Value, of_gpus, whole_gpus
from analytics.workloads.pool_demand import POOL_MIN_GPUS, FleetDemand, PoolDemand, Release
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from fallow.clock import DAY_MS, MINUTE_MS

_KEYS = (
    "pool",
    "model",
    "pool_gpus",
    "peak_demand_gpus",
    "peak_demand_quantile",
    "highest_demand_gpus",
    "kept_gpus",
    "releasable_gpus",
    "release_now_gpus",
    "backtest_hours",
    "backtest_shortfall_hours",
    "backtest_shortfall_gpus",
    "release_now_by_host",
)


def _release_words(known: Mapping[str, Value], _: Finding) -> Iterator[str]:
    """Yield the GPUs of the pool, its peak demand, the releasable GPUs, and the back-test."""
    peak, highest = (float(known[key]) for key in ("peak_demand_gpus", "highest_demand_gpus"))
    demand = tr("peak demand of {number}", number=whole_gpus(peak))
    if peak != highest:
        demand = tr("{demand} (at most {number})", demand=demand, number=whole_gpus(highest))
    yield tr(
        "pool {pool}, {model}: {there} GPUs, {demand}, {kept} with the reserve: {releasable} releasable",
        pool=plain(str(known["pool"])),
        model=plain(str(known["model"])),
        there=whole_gpus(float(known["pool_gpus"])),
        demand=demand,
        kept=Number(float(known["kept_gpus"])),
        releasable=Number(float(known["releasable_gpus"])),
    )
    if "backtest_hours" not in known:
        yield tr("no back-test: it needs 14 days in which the pool was observed")
    elif not known["backtest_shortfall_hours"]:
        yield tr("back-test: no shortfall in {hours} hours", hours=Number(float(known["backtest_hours"])))
    else:
        yield tr(
            "back-test: earlier estimates fell short in {short} of {hours} hours, by at most {gpus} GPUs",
            short=Number(float(known["backtest_shortfall_hours"])),
            hours=Number(float(known["backtest_hours"])),
            gpus=Number(float(known["backtest_shortfall_gpus"])),
        )
    yield tr("by host: {hosts}", hosts=plain(str(known["release_now_by_host"]), 400))


def releasable_pool_findings(context: Context, fleet: FleetDemand) -> Iterator[Candidate]:
    """Yield a finding per pool and model that can release unallocated GPUs."""
    for pool in fleet.pools:
        release = pool.release
        if release is None or not release.now or pool.gpus < POOL_MIN_GPUS:
            continue
        named = pl.Series(release.now).implode()
        rows = context.inside.segments.filter(pl.col("state").is_in(UNUSED) & pl.col("gpu").is_in(named))
        if rows.is_empty():
            continue
        yield Candidate(
            rows,
            subject=f"{pool.pool}: {pool.model}",
            numbers=_numbers(pool, release),
            next_command=watch_command(next(iter(release.by_host))),
            reclaimable_gpus=sorted(release.now),
            since_ms=history_start_ms(context),
            gpus=sorted(release.now),
            host="",
            is_promised=False,  # work may move to the GPUs that stay: the back-test says how sure the number is
            notes=[_whole_hosts(release)] if release.whole_hosts else [],
            revised=partial(replace, pool=pool.key, confidence=pool.confidence),
        )


RELEASABLE_POOL = Rule(
    name="releasable_pool",
    category="reclaim",
    sentence=of_gpus("beyond the demand of the pool"),
    kinds=(waste.SURPLUS,),
    precedence=10,
    history=HistoryNeed(HISTORY_MIN_DAYS * DAY_MS),
    thresholds={
        "demand": (
            f"GPUs that worked within the last {RECENT_MS // MINUTE_MS} min, that users keep, or that queued jobs could"
            " have used: the most at once in an hour (ours)"
        ),
        "reserve": (
            f"N - ceil(Q(demand) * {1 + MARGIN:g} * (1 + 1/days)) over up to {PEAK_DAYS} days and, if that is more, of"
            " the last 7 (facts of the field; the last week is ours); no fewer stay than the forecast of the next"
            " quarter needs"
        ),
        "quantile": (
            f"{QUANTILE:g}, {QUANTILE_PROD:g} for pools with `prod` in their name, 1 where an earlier estimate fell"
            " short by more than its reserve (ours)"
        ),
        "history": (
            f"at least {HISTORY_MIN_DAYS} days of hours in which at most {UNKNOWN_MAX:.0%} of the pool was unknown (a"
            " whole week)"
        ),
        "back-test": (
            f"over the last {TESTED_WEEKS} weeks, high confidence needs no shortfall, medium one within the reserve"
            " (facts of the field)"
        ),
        "pool": f"at least {POOL_MIN_GPUS} GPUs (one whole host; of fewer, rules on single GPUs say it all; ours)",
    },
    labels=(Label(_KEYS, _release_words),),
    find_in_pools=releasable_pool_findings,
)


def _numbers(pool: PoolDemand, release: Release) -> dict[str, EvidenceValue]:
    peak, tested = pool.peak, pool.backtest
    return {
        "pool": pool.pool,
        "model": pool.model,
        "pool_gpus": pool.capacity,
        **(
            {}
            if peak is None
            else {
                "peak_demand_gpus": peak.peak,
                "peak_demand_quantile": peak.quantile,
                "highest_demand_gpus": peak.highest,
                "kept_gpus": peak.kept(),
            }
        ),
        "releasable_gpus": release.gpus,
        "release_now_gpus": len(release.now),
        "history_days": pool.history_days,
        **(
            {"backtest_hours": None}
            if tested is None
            else {
                "backtest_hours": tested.hours,
                "backtest_shortfall_hours": tested.shortfall_hours,
                "backtest_shortfall_gpus": tested.shortfall_gpus,
            }
        ),
        "release_now_by_host": "; ".join(f"{host} {len(gpus)}" for host, gpus in release.by_host.items()),
    }


def _whole_hosts(release: Release) -> Sentence:
    hosts = release.whole_hosts
    return tr_many("{number} whole {host|hosts} can be released: {hosts}", len(hosts), hosts=", ".join(hosts))

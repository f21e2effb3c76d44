"""The demand of a pool by hand, for tests of what is made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from analytics.capacity.forecast import DemandSeries, outlook
from analytics.workloads.model import Confidence
from analytics.workloads.pool_demand import PoolDemand, Release

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DAY_MS = 86_400_000


def release(
    now: Mapping[str, Sequence[str]], later: Mapping[str, Sequence[str]] | None = None, whole: Sequence[str] = ()
) -> Release:
    """A release of GPUs by host, and by user those that go later; each stays unused with 90 %."""
    host_of = {gpu: host for host, gpus in now.items() for gpu in gpus}
    reclaim = {user: tuple(gpus) for user, gpus in (later or {}).items()}
    return Release(tuple(host_of), reclaim, tuple(whole), host_of, dict.fromkeys(host_of, 0.9), 7 * DAY_MS)


def pool_of(series: DemandSeries, horizon_days: int = 91, lead_days: int = 84, **values: Any) -> PoolDemand:
    """The demand of a pool with a series and its forecast; nothing is free, nothing can be released."""
    given = {
        "names": frozenset(),
        "gpus": round(series.capacity),
        "free_now": 0,
        "reclaimable": {},
        "uncertain": 0,
        "missing": 0,
        "hours": pl.DataFrame(),
        "history_days": 28.0,
        "known_from_ms": None,
        "peak": None,
        "backtest": None,
        "next_week": None,
        "reserve": 0,
        "growth": 0,
        "kept_for_hosts": 0,
        "snoozed": 0,
        "release": release({}),
        "confidence": Confidence(()),
        "reserves": (),
    }
    return PoolDemand(
        series.pool,
        series.model,
        series.capacity,
        outlook=(ahead := outlook(series, horizon_days, lead_days)),
        policy=ahead,
        **(given | values),
    )

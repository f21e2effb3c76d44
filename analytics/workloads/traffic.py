"""Which inference servers had no request lately, by their own metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fallow.clock import DAY_MS, HOUR_MS

if TYPE_CHECKING:
    from analytics.workloads.model import Context

QUIET_MS = DAY_MS
ANSWERED_MIN = 0.9
SERVER = (
    r"(?i)vllm|sglang|tritonserver|text-generation|lmdeploy|trtllm-serve|tensorrt_llm|llama-server|llama\.cpp|\bollama|mii-server|"
    r"torchserve|lorax|aphrodite"
)
"""How commands and arguments of inference servers read."""

_COUNTED = ("requests_mean_per_s", "generated_tokens_mean_per_s")
"""From counters: a request between two scrapes is in them. What runs at a scrape shows some requests only."""
_SEEN = ("running_requests_max", "waiting_requests_max")


def traffic(context: Context) -> pl.DataFrame:
    """Per GPU whose server answered lately: host, gpu, models, endpoints, quiet_since, answered (share of hours) and `quiet`.

    `quiet_since` is the end of the last hour with a request, or the first hour that was asked about.
    """
    hours = context.rollups.serving().filter(pl.col("gpu").is_not_null())
    busy = pl.any_horizontal((pl.col(name) > 0).fill_null(value=False) for name in (*_COUNTED, *_SEEN))
    known = pl.any_horizontal(pl.col(name).is_not_null() for name in _COUNTED) & (pl.col("scrape_count") > 0)
    per_hour = hours.group_by("host", "gpu", "time").agg(
        busy=busy.any(),
        known=known.all(),
        models=pl.col("model").drop_nulls().unique().sort().str.join("+"),
        endpoints=pl.col("endpoint").unique().sort().str.join("+"),
    )
    key = ("host", "gpu")
    end = pl.col("time") + HOUR_MS
    last_busy = end.filter("busy").max().over(key)
    asked = per_hour.filter((pl.col("known") | pl.col("busy")).any().over(key)).sort("time")
    quiet_hour = pl.col("known") & (pl.col("time") >= pl.col("quiet_since"))
    found = (
        asked.with_columns(quiet_since=pl.coalesce(last_busy, pl.col("time").min().over(key)))
        .group_by(key, maintain_order=True)
        .agg(
            pl.col("models", "endpoints").last(),
            pl.col("quiet_since").first(),
            last=end.max(),
            known_ms=HOUR_MS * quiet_hour.sum().cast(pl.Int64),
        )
        .filter(pl.col("last") > context.until_ms - DAY_MS)
    )
    quiet_ms = context.until_ms - pl.col("quiet_since")
    return (
        found.with_columns(answered=(pl.col("known_ms") / quiet_ms).clip(0, 1))
        .with_columns(quiet=(quiet_ms >= QUIET_MS) & (pl.col("answered") >= ANSWERED_MIN))
        .drop("last", "known_ms")
        .sort(key)
    )

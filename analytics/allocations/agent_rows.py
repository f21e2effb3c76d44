"""Imported pods on the GPUs and from the moment that agents saw: one allocation of a pod, whoever tells of it.

An agent sees a pod some seconds after it was bound to its node, and knows its GPUs by their UUIDs; the cluster knows the moment and the
number. Both in the lake would be two allocations.
"""

from __future__ import annotations

import polars as pl

from analytics.allocations.model import ROW_SCHEMA
from analytics.frames import read_frame
from fallow.clock import DAY_MS, MINUTE_MS, utc_day
from fallow.lake import Lake
from fallow.schema import CLAIM

_CLOCKS_MS = MINUTE_MS
"""So far the clocks of a node and of its cluster may be apart."""


def on_seen_gpus(lake: Lake, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows, pods that are only counted as agents saw them where they did; and the runs (scheduler, claim_id, host, time) that those stand for.

    Of several moments that agents told of one pod (they were restarted, say), its end belongs to the last one.
    """
    pods = rows.filter(pl.col("scheduler") == "kubernetes", pl.col("gpu").is_null())
    seen = _seen(lake, pods)
    key = ["scheduler", "claim_id", "host"]
    met = pods.join(seen, on=key).filter(
        pl.col("seen") >= pl.col("time") - _CLOCKS_MS, (pl.col("seen") < pl.col("end")).fill_null(value=True)
    )
    run = [*key, "time"]
    last = pl.col("seen").max().over(run)
    stood_for = met.select(run).unique()
    on_gpus = met.with_columns(
        time="seen",
        gpu="seen_gpu",
        host_gpu_count=pl.lit(None, pl.Int32),
        end=pl.when(pl.col("seen") == last).then("end"),
    )
    rest = rows.join(stood_for, on=run, how="anti")
    moved = met.filter(pl.col("seen") != pl.col("time")).select(run).unique()
    return pl.concat([rest, on_gpus.select(*ROW_SCHEMA)]), moved


def _seen(lake: Lake, pods: pl.DataFrame) -> pl.DataFrame:
    """What the lake says of GPUs of these pods: scheduler, claim_id, host, seen, seen_gpu."""
    files = lake.files(CLAIM.name, hosts=set(pods["host"])) if pods.height else []
    if files:
        first_day = utc_day(int(str(pods["time"].min())) - DAY_MS)
        files = [file for file in files if file.date >= first_day]
    columns = ["scheduler", "claim_id", "time", "gpu"]
    known = read_frame(files, CLAIM, columns, lake.left_out.leave_out).drop_nulls("gpu")
    return known.select("scheduler", "claim_id", "host", seen="time", seen_gpu="gpu").unique()

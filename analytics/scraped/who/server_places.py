"""The host and GPUs of scraped inference servers: those that the lake's allocations name for the server's pod."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from analytics.allocations.model import KnownHosts
from analytics.frames import read_frame
from analytics.importers.values import conform
from analytics.scraped.serving_rows import ServedModels
from analytics.scraped.who.label_runs import NEAR_MS
from fallow.lake import Lake
from fallow.schema import ALLOCATION, SERVING

_ROW = ("server", "model", "time")


def pod_allocations(lake: Lake, pods: Collection[str]) -> pl.DataFrame:
    """Return the allocations of pods (`namespace/pod`): allocation_id, gpu_host, gpu, start, end.

    `gpu` is null where only a count is known. Raises LakeError.
    """
    files = lake.files(ALLOCATION.name) if pods and lake.store.exists() else []
    columns = ("time", "gpu", "end", "allocation_id", "scheduler")
    rows = read_frame(files, ALLOCATION, columns, lake.left_out.leave_out)
    own = rows.filter(pl.col("scheduler") == "kubernetes", pl.col("allocation_id").is_in(list(pods)))
    # a source reports an allocation again when it ends
    key = ("allocation_id", "host", "gpu", "time")
    return own.group_by(key).agg(pl.col("end").max()).rename({"time": "start", "host": "gpu_host"})


def placed_rows(found: ServedModels, allocations: pl.DataFrame, hosts: KnownHosts) -> pl.DataFrame:
    """Return rows of `serving` with `host`, one per GPU of the server's pod; if unknown, one on its node or address."""
    servers = pl.DataFrame(
        [
            (
                number,
                each.endpoint,
                each.namespace or None,
                each.pod or None,
                each.engine,
                each.allocation_id,
                each.place,
            )
            for number, each in enumerate(found.servers)
        ],
        {"server": pl.UInt32, **dict.fromkeys(_SERVER_COLUMNS, pl.String)},
        orient="row",
    )
    named = {place: hosts.named(place) for place in servers["place"].unique()}
    rows = found.rows.join(servers.with_columns(pl.col("place").replace(named)), on="server", how="left")
    met = rows.join(allocations, on="allocation_id").filter(
        pl.col("start") - NEAR_MS <= pl.col("time") + pl.col("interval_ms"),
        (pl.col("end") + NEAR_MS >= pl.col("time")).fill_null(value=True),
    )
    on_gpus = met.filter(pl.col("gpu").is_not_null()).unique([*_ROW, "gpu"])
    others = rows.join(on_gpus, on=_ROW, how="anti", nulls_equal=True)
    nodes = met.select(*_ROW, "gpu_host").unique(_ROW)
    others = others.join(nodes, on=_ROW, how="left", nulls_equal=True)
    placed = pl.concat([on_gpus, others], how="diagonal_relaxed").with_columns(
        host=pl.coalesce("gpu_host", "place"), health=pl.lit("ok")
    )
    return pl.concat([conform(placed, SERVING), placed.select("host")], how="horizontal").filter(pl.col("host") != "")


_SERVER_COLUMNS = ("endpoint", "namespace", "pod", "engine", "allocation_id", "place")

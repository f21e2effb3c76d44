"""Rows of pods that kube-state-metrics tells of: what it adds to a pod that labels name, pods that no label names, and pods that wait."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from analytics.allocations.model import ROW_SCHEMA, KnownHosts, conform
from analytics.frames import POLARS, typed
from analytics.scraped.who.label_runs import NEAR_MS
from fallow.clock import HOUR_MS, SECOND_MS
from fallow.schema import REQUEST

POD_SCHEMA = ROW_SCHEMA | {"seen_ms": pl.Int64()}
"""Allocations of pods that no label names, and when they were last told of."""

WAITING_SCHEMA = {**{column.name: POLARS[column.type] for column in REQUEST.columns}, "told_ms": pl.Int64()}
"""Requests, and up to when the lake knows of them."""

_AGAIN_MS = HOUR_MS
"""How often a pod that waits is told of again: each time is a row."""


def with_pods(rows: pl.DataFrame, pods: pl.DataFrame) -> pl.DataFrame:
    """Rows of kubernetes' runs (`claim_id`, `host`, `gpu`, `time`, `first_ms`, `end`, `is_new`, `is_begun`, `told`) with what is known of their pods.

    A run that is new begins when its pod was placed, and none lasts longer than its pod's containers ran: labels may name a pod that
    is over until its GPU is given away again. Pods of one name, one after another, are runs of their own.
    """
    placed = pods.drop_nulls("placed")
    facts = _facts(placed).with_columns(gone=placed["gone_ms"].set(~placed["is_gone"], None))
    facts = facts.drop("host_gpu_count").sort("placed")
    facts = facts.with_columns(next=pl.col("placed").shift(-1).over("claim_id"))
    numbered = rows.with_row_index("_run")
    of_pods = numbered.join(facts, on="claim_id").filter(
        (pl.col("placed") <= pl.col("end")).fill_null(value=True),
        (pl.col("next") > pl.col("first_ms")).fill_null(value=True),
        (pl.col("gone") > pl.col("first_ms")).fill_null(value=True),
        ~pl.col("is_begun") | (pl.col("pod_end") + NEAR_MS > pl.col("first_ms")).fill_null(value=True),
    )
    unknown = numbered.join(of_pods, on="_run", how="anti")
    follows = (pl.col("placed") > pl.col("time") + NEAR_MS) | (pl.col("placed") > pl.col("placed").min().over("_run"))
    began = pl.when("is_new").then("first_ms").otherwise("time")
    known = of_pods.with_columns(
        time=pl.when(pl.col("is_new") | ~pl.col("told") | follows).then("placed").otherwise("time"),
        end=pl.min_horizontal("end", "pod_end", "next"),
        is_new=pl.col("is_new") | follows,
        told=pl.col("told") & ~follows,
        planned_end=pl.col("placed") + pl.col("time_limit_s") * SECOND_MS,
        _lingers=(pl.col("pod_end") <= began).fill_null(value=False),
    ).filter(~pl.col("_lingers"))
    return pl.concat([known, unknown], how="diagonal_relaxed").filter(
        (pl.col("end") > pl.col("time")).fill_null(value=True)
    )


def _facts(pods: pl.DataFrame) -> pl.DataFrame:
    """Columns of allocations and requests that a pod fills."""
    return pods.select(
        "placed", "submitted", "project", "partition", "qos", "state", "gpu_model", "time_limit_s",
        claim_id=pl.col("namespace") + "/" + pl.col("pod"), name=pl.coalesce("owner", "pod"), eligible="created",
        gpu_count="gpus", host_gpu_count="gpus", host_count=pl.lit(1), pod_end="ended",
    )  # fmt: skip


@dataclass(frozen=True)
class PodRows:
    """`rows` are news for the lake; `known` is what the next window has to know of these pods."""

    rows: pl.DataFrame
    known: pl.DataFrame


def unnamed_pods(
    pods: pl.DataFrame, named: pl.DataFrame, before: pl.DataFrame, hosts: KnownHosts, step_ms: int
) -> PodRows:
    """Pods that have GPUs and that no label names, by their number; `named` are the runs (claim_id, time, end) of the others."""
    placed = pods.filter(pl.col("placed").is_not_null() & pl.col("node").is_not_null())
    facts = _facts(placed).with_columns(
        host=placed["node"],
        end=pl.coalesce("pod_end", placed["gone_ms"].set(~placed["is_gone"], None)),
        time="placed",
        planned_end=pl.col("placed") + pl.col("time_limit_s") * SECOND_MS,
        seen_ms=placed["last_ms"],
    )
    nodes = {node: hosts.named(node) for node in facts["host"].unique()}
    own = _unnamed(facts, named).filter((pl.col("end") > pl.col("time")).fill_null(value=True))
    now = _pod_rows(own.with_columns(pl.col("host").replace(nodes)))
    lost = before.filter(pl.col("end").is_null()).join(now, on=["claim_id", "time"], how="anti")
    lost = _unnamed(lost.with_columns(end=pl.col("seen_ms") + step_ms), named)
    news = now.join(before, on=["claim_id", "time", "end"], how="anti", nulls_equal=True)
    return PodRows(conform(pl.concat([news, lost])), now)


def _unnamed(pods: pl.DataFrame, named: pl.DataFrame) -> pl.DataFrame:
    """The pods (claim_id, time, end) but those in whose time labels name one: others of its name came before or after."""
    numbered = pods.with_row_index("_pod")
    runs = named.select("claim_id", named_from="time", named_until="end")
    met = numbered.join(runs, on="claim_id").filter(
        (pl.col("named_from") < pl.col("end")).fill_null(value=True),
        (pl.col("named_until") > pl.col("time")).fill_null(value=True),
    )
    return numbered.join(met, on="_pod", how="anti").drop("_pod")


def _pod_rows(facts: pl.DataFrame) -> pl.DataFrame:
    rows = facts.with_columns(scheduler=pl.lit("kubernetes"), account=pl.col("claim_id").str.split("/").list.first())
    return pl.concat([conform(rows), rows.select("seen_ms")], how="horizontal")


def waiting_pods(pods: pl.DataFrame, before: pl.DataFrame, step_ms: int) -> PodRows:
    """Requests of pods that were not placed; those that are told of no more were withdrawn, unless they were placed since."""
    waits = pods.filter(pl.col("placed").is_null() & (pl.col("state") != "Running") & ~pl.col("is_over"))
    reason = pl.when(waits["is_unschedulable"].fill_null(value=False)).then(pl.lit("Unschedulable"))
    facts = (
        _facts(waits)
        .with_columns(
            scheduler=pl.lit("kubernetes"),
            account=waits["namespace"],
            time="submitted",
            as_of=waits["last_ms"],
            task_count=1,
            withdrawn=waits["gone_ms"].set(~waits["is_gone"], None),
            reason=reason,
        )
        .drop_nulls("time")
    )
    now = typed(facts, REQUEST).join(before.select("claim_id", "time", "told_ms"), on=["claim_id", "time"], how="left")
    is_due = pl.col("told_ms").is_null() | (pl.col("as_of") >= pl.col("told_ms") + _AGAIN_MS)
    now = now.with_columns(_due=is_due | pl.col("withdrawn").is_not_null())
    there = pods.select(claim_id=pl.col("namespace") + "/" + pl.col("pod")).unique()
    lost = before.join(there, on="claim_id", how="anti").with_columns(withdrawn=pl.col("as_of") + step_ms)
    rows = pl.concat([now.filter("_due").select(REQUEST.names), lost.select(REQUEST.names)])
    open_ones = now.filter(pl.col("withdrawn").is_null())
    known = open_ones.with_columns(told_ms=pl.when("_due").then("as_of").otherwise("told_ms"))
    return PodRows(rows, known.select(list(WAITING_SCHEMA)))

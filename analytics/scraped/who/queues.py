"""What Kueue and quotas say of a window in numbers, as sentences: they count jobs and name none, so they are no rows."""

from __future__ import annotations

import polars as pl

from analytics.scraped.who.kube_metrics import KubeTables

_MOST = 20
"""Queues and namespaces that are named, those with most GPUs first."""


def queue_notes(kube: KubeTables) -> tuple[str, ...]:
    """One sentence for each queue of Kueue and for each namespace with a quota of GPUs."""
    return (*_queues(kube), *_quotas(kube))


def _queues(kube: KubeTables) -> list[str]:
    queue = "cluster_queue"
    pending = kube.table("kueue_pending_workloads", queue, "status").group_by(queue).agg(pending=pl.col("value").sum())
    waited = (
        kube.table("kueue_admission_wait_time_seconds_sum", queue).group_by(queue).agg(seconds=pl.col("growth").sum())
    )
    admitted = (
        kube.table("kueue_admission_wait_time_seconds_count", queue)
        .group_by(queue)
        .agg(admitted=pl.col("growth").sum())
    )
    quota, used = (
        kube.table(f"kueue_cluster_queue_{what}", queue, "flavor", "resource")
        .group_by(queue)
        .agg(pl.col("value").sum().alias(name))
        for what, name in (("nominal_quota", "quota"), ("resource_usage", "used"))
    )
    found = pending
    for table in (waited, admitted, quota, used):
        found = found.join(table, on=queue, how="full", coalesce=True)
    rows = found.drop_nulls(queue).sort("quota", queue, descending=[True, False], nulls_last=True).head(_MOST)
    return [_queue_note(row) for row in rows.iter_rows(named=True)]


def _queue_note(row: dict[str, float | None]) -> str:
    parts = []
    if row["quota"] is not None:
        used = "" if row["used"] is None else f", {row['used']:,.0f} of them in use"
        parts.append(f"has a quota of {row['quota']:,.0f} GPUs{used}")
    if row["pending"] is not None:
        parts.append(f"has {row['pending']:,.0f} Workloads that wait")
    if row["admitted"] and row["seconds"] is not None and row["seconds"] >= 0:
        parts.append(
            f"admitted {row['admitted']:,.0f}, which had waited {row['seconds'] / row['admitted'] / 60:,.1f} min on average"
        )
    return f"queue {row['cluster_queue']} of Kueue {'; it '.join(parts) or 'tells nothing'}"


def _quotas(kube: KubeTables) -> list[str]:
    rows = kube.table("kube_resourcequota", "namespace", "resource", "type")
    hard = rows.filter(pl.col("type") == "hard").group_by("namespace", "resource").agg(pl.col("value").min())
    each = (
        hard.group_by("namespace")
        .agg(pl.col("value").max())
        .drop_nulls()
        .sort("value", "namespace", descending=[True, False])
    )
    return [
        f"namespace {namespace} has a quota of {value:,.0f} GPUs: `quota_gpus` of the owners table (money.owners) is where fallow reads it"
        for namespace, value in each.head(_MOST).iter_rows()
    ]

"""What Kueue and quotas say of a window in numbers, as sentences: they count jobs and name none, so they are no rows."""

from __future__ import annotations

import polars as pl

from analytics.scraped.who.kube_metrics import KubeTables

_QUEUE = "cluster_queue"
_MOST = 20
"""Queues and namespaces that are named, those with most GPUs first."""


def queue_notes(kube: KubeTables) -> tuple[str, ...]:
    """One sentence for each queue of Kueue and for each namespace with a quota of GPUs."""
    return (*_queues(kube), *_quotas(kube))


def _queues(kube: KubeTables) -> list[str]:
    waited = "kueue_admission_wait_time_seconds"
    found = _sums(kube, "kueue_pending_workloads", ("status",), pending="value")
    for table in (
        _sums(kube, f"{waited}_sum", ("priority_class",), seconds="growth"),
        _sums(kube, f"{waited}_count", ("priority_class",), admitted="growth"),
        _sums(kube, "kueue_cluster_queue_nominal_quota", ("flavor", "resource"), quota="value"),
        _sums(kube, "kueue_cluster_queue_resource_usage", ("flavor", "resource"), used="value"),
    ):
        found = found.join(table, on=_QUEUE, how="full", coalesce=True)
    rows = found.drop_nulls(_QUEUE).sort("quota", _QUEUE, descending=[True, False], nulls_last=True).head(_MOST)
    return [_queue_note(row) for row in rows.iter_rows(named=True)]


def _sums(kube: KubeTables, name: str, labels: tuple[str, ...], **column: str) -> pl.DataFrame:
    """By queue; replicas of the controller tell of the same, and count once."""
    each = kube.table(name, _QUEUE, *labels).group_by(_QUEUE, *labels).agg(pl.col(*column.values()).max())
    return each.group_by(_QUEUE).agg(**{new: pl.col(old).sum() for new, old in column.items()})


def _queue_note(row: dict[str, float | None]) -> str:
    parts = []
    if row["quota"] is not None:
        used = "" if row["used"] is None else f", {row['used']:,.0f} of them in use"
        parts.append(f"has a quota of {row['quota']:,.0f} GPUs{used}")
    if row["pending"] is not None:
        parts.append(f"has {row['pending']:,.0f} Workloads that wait")
    if (admitted := row["admitted"] or 0) > 0 and row["seconds"] is not None and row["seconds"] >= 0:
        parts.append(f"admitted {admitted:,.0f}, which had waited {row['seconds'] / admitted / 60:,.1f} min on average")
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

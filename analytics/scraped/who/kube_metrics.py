"""The series of kube-state-metrics and of Kueue about pods with GPUs, as tables, and the figures of queues and quotas.

Names and labels are those of kube-state-metrics v2 (docs/metrics of github.com/kubernetes/kube-state-metrics) and of
Kueue's docs (kueue.sigs.k8s.io/docs/reference/metrics).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from analytics.scraped.samples import Labels, Samples

SHARES = ("nvidia_com_gpucores", "nvidia_com_gpumem", "nvidia_com_gpumem_percentage")
"""Resources by which HAMi limits a container to a part of its GPUs."""
OTHERS = "amd_com_gpu|gpu_intel_com_(i915|xe)|habana_ai_gaudi"
"""Resources of other vendors' GPUs, which no allocation counts."""
_GPUS = f'resource=~"nvidia_com_(gpu|gpu_shared|gpucores|gpumem|gpumem_percentage|mig_.+)|{OTHERS}"'
KUBE_METRICS: Mapping[str, str] = {
    "kube_pod_container_resource_limits": _GPUS,
    "kube_pod_container_resource_requests": _GPUS,
    "kube_pod_init_container_resource_limits": _GPUS,
    "kube_pod_init_container_resource_requests": _GPUS,
    **dict.fromkeys(
        (
            "kube_pod_info",
            "kube_pod_owner",
            "kube_replicaset_owner",
            "kube_job_owner",
            "kube_pod_labels",
            "kube_pod_created",
            "kube_pod_status_scheduled_time",
            "kube_pod_start_time",
            "kube_pod_completion_time",
            "kube_pod_status_phase",
            "kube_pod_status_reason",
            "kube_pod_status_unschedulable",
            "kube_job_created",
            "kube_job_spec_active_deadline_seconds",
        ),
        "",
    ),
    "kube_resourcequota": 'resource=~"(requests|limits).nvidia.com/(gpu|mig-.+)",type=~"hard|used"',
    "kueue_pending_workloads": "",
    "kueue_admission_wait_time_seconds_sum": "",
    "kueue_admission_wait_time_seconds_count": "",
    "kueue_cluster_queue_nominal_quota": 'resource=~"nvidia.com/(gpu|mig-.+)"',
    "kueue_cluster_queue_resource_usage": 'resource=~"nvidia.com/(gpu|mig-.+)"',
}
"""The series to request from a metrics server: names, and matchers that leave out series without GPUs."""

_EXPORTED = "exported_"
"""The prefix with which a server keeps a label of the target's own (`namespace`, say) and renames the exporter's."""


def kube_selectors(matchers: str = "") -> tuple[str, ...]:
    """Return selectors for all of KUBE_METRICS, as few as possible; `matchers` (`cluster="a"`) are added to each."""
    names: dict[str, list[str]] = {}
    for name, own in KUBE_METRICS.items():
        names.setdefault(own, []).append(name)
    return tuple(
        "{" + ",".join(filter(None, (f'__name__=~"{"|".join(own_names)}"', own, matchers))) + "}"
        for own, own_names in names.items()
    )


@dataclass(frozen=True)
class KubeTables:
    """A window's series by name, a row each with the wanted labels (null where absent) and figures of its samples.

    Every table has `first_ms` and `last_ms`, the series' first and last sample, `value`, the last one, and
    `one_first_ms` and `one_last_ms`, when it was 1.
    """

    series: Mapping[str, Sequence[int]]
    samples: Samples
    figures: pl.DataFrame

    @classmethod
    def of(cls, samples: Samples) -> KubeTables:
        names: dict[str, list[int]] = {}
        for number, labels in enumerate(samples.labels):
            names.setdefault(labels.get("__name__", ""), []).append(number)
        known = samples.frame.filter(pl.col("value").is_not_null() & pl.col("value").is_not_nan())
        is_one = pl.col("time_ms").filter(pl.col("value") == 1)
        figures = known.group_by("series").agg(
            first_ms=pl.col("time_ms").min(),
            last_ms=pl.col("time_ms").max(),
            value=pl.col("value").last(),
            growth=pl.col("value").last() - pl.col("value").first(),
            one_first_ms=is_one.min(),
            one_last_ms=is_one.max(),
        )
        return cls(names, samples, figures)

    @property
    def has_pods(self) -> bool:
        """Return whether kube-state-metrics reported any pod; without a report, it is unknown which pods are gone."""
        return not self.table("kube_pod_info").is_empty()

    @cached_property
    def step_ms(self) -> int:
        """Return the distance between samples; 0 where no series has two."""
        series = pl.col("series")
        step = self.samples.frame.filter(series == series.mode().first())["time_ms"].sort().diff().median()
        return 0 if step is None else int(float(str(step)))

    def table(self, name: str, *wanted: str) -> pl.DataFrame:
        numbers = self.series.get(name, ())
        labels = self.samples.labels
        columns = {label: [_label(labels[number], label) for number in numbers] for label in wanted}
        rows = pl.DataFrame(
            {"series": list(numbers)} | columns, schema={"series": pl.UInt32} | dict.fromkeys(wanted, pl.String)
        )
        return rows.join(self.figures, on="series").drop("series")


def _label(labels: Labels, name: str) -> str | None:
    return labels.get(_EXPORTED + name) or labels.get(name) or None


_QUEUE = "cluster_queue"
_MOST = 20
"""Number of queues and namespaces that are named, those with most GPUs first."""


def queue_notes(kube: KubeTables) -> tuple[str, ...]:
    """Return one sentence for each queue of Kueue and for each namespace with a quota of GPUs."""
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
    """Return the sums by queue; replicas of the controller report the same, and count once."""
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
    return f"queue {row['cluster_queue']} of Kueue {'; it '.join(parts) or 'reports nothing'}"


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
        f"namespace {namespace} has a quota of {value:,.0f} GPUs: fallow reads quotas from `quota_gpus` of the owners"
        " table (money.owners)"
        for namespace, value in each.head(_MOST).iter_rows()
    ]

"""A mapping as data: one exporter or tool, its labels, and the column that each of its metrics fills."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

KINDS = ("reading", "average", "counter", "info", "count")
"""reading: true of a moment, or of less than the exporter's interval. average: a mean over what `covers_s` says.
counter: only climbs, until it starts anew. info: what the thing is, which seldom changes; with no column its labels alone
count. count: how many values the label `per` has.
"""

HOLDERS = ("namespace", "pod", "container", "slurm_job", "user")
"""Who holds a GPU: columns of `Imported.given`."""

GIVEN = "given"
"""Stands as a table for metrics whose value, not label, says who holds the GPU."""


@dataclass(frozen=True)
class MappedMetric:
    """One metric and the column that it fills; its value times `factor` is in the column's unit."""

    metric: str
    table: str
    """`gpu`, `device`, `host`, `event`, of tools `process`, `given` (HOLDERS), or empty: it is known, and only its labels or sums use it."""

    column: str
    kind: str
    factor: float = 1
    covers_s: float | None = None
    """How much time before the scrape a value surely describes; None: nothing but its moment."""

    only: tuple[tuple[str, str], ...] = ()
    """Labels that a series must have: a regular expression that matches the whole value; a label that is not there is empty."""

    sum_over: tuple[str, ...] = ()
    """Labels that tell parts of one value apart: the column is their sum."""

    per: str = ""
    """The sum is divided by how many values this label has; of a `count` the label that is counted."""

    unit: str = ""
    """In the exporter's own words."""

    @cached_property
    def _patterns(self) -> tuple[tuple[str, re.Pattern[str]], ...]:
        return tuple((label, re.compile(pattern)) for label, pattern in self.only)

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Whether a series of this metric counts."""
        return all(pattern.fullmatch(labels.get(label, "")) for label, pattern in self._patterns)


@dataclass(frozen=True)
class CombinedColumn:
    """A column that no metric has, as the sum of some less others of one scrape; null where one of them is missing."""

    table: str
    column: str
    add: tuple[str, ...]
    subtract: tuple[str, ...]
    factor: float


@dataclass(frozen=True)
class Exporter:
    """One exporter, or one tool that writes files. Of several names of a label the first that a series has, and that is not empty, counts.

    Where two metrics fill one column, the first in `metrics` counts wherever it has a value.
    """

    name: str
    title: str
    source_url: str
    """Where metrics, units and labels were looked up."""

    readings: str
    """One sentence: what a value of utilization describes, and how `covers_s` is known."""

    signed_by: tuple[str, ...]
    """Metrics of which a target has at least one; empty: a target that no other exporter signs. For names that several use."""

    gpu: tuple[str, ...]
    gpu_prefix: str
    """What the label leaves out of a UUID, such as `GPU-`."""

    index: tuple[str, ...]
    host: tuple[str, ...]
    """Else `instance` without its port."""

    mig_uuid: tuple[str, ...]
    mig_instance: tuple[str, ...]
    """A series with one of these is of a MIG instance, and `gpu` names its parent unless `mig_uuid` is there."""

    device: tuple[tuple[str, tuple[str, ...]], ...]
    """Columns of `device` that labels tell: column, labels."""

    holder: tuple[tuple[str, tuple[str, ...]], ...]
    """Who holds the GPU: one of HOLDERS, labels."""

    own_pods: str
    """Regular expression of pods that are the exporter's own: a server may put them where the holder would stand."""

    unknown: tuple[tuple[float, float], ...]
    """Values, both ends included, that stand for "not known"."""

    ignored: str
    """Regular expression of metrics of the exporter that nothing of fallow's is made of."""

    metrics: tuple[MappedMetric, ...]
    combined: tuple[CombinedColumn, ...]
    process: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Of a tool: columns of `process` and the tool's names for them."""

    @cached_property
    def by_metric(self) -> dict[str, tuple[MappedMetric, ...]]:
        found: dict[str, tuple[MappedMetric, ...]] = {}
        for mapped in self.metrics:
            found[mapped.metric] = (*found.get(mapped.metric, ()), mapped)
        return found

    @property
    def of_gpus(self) -> bool:
        return bool(self.gpu or self.index)

    def ignores(self, metric: str) -> bool:
        return re.fullmatch(self.ignored, metric) is not None

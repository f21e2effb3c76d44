"""A mapping as data: one exporter or tool, its labels, and the column that each of its metrics fills."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property

KINDS = ("reading", "average", "counter", "info", "count")
"""reading: true of a moment, or of less than the exporter's interval. average: a mean over the time in `covers_s`.
counter: only rises, until it restarts. info: describes the device and seldom changes; with no column only its labels
count. count: how many values the label `per` has.
"""

USERS = ("namespace", "pod", "container", "slurm_job", "user")
"""The user of a GPU: columns of `Imported.given`."""

GIVEN = "given"
"""Table name for metrics whose value, not label, names the user of the GPU."""


_Only = tuple[tuple[str, str], ...]
"""Labels that a series must have: a regular expression that matches the whole value; a missing label is empty."""


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _have(labels: Mapping[str, str], only: _Only) -> bool:
    return all(_compiled(pattern).fullmatch(labels.get(label, "")) for label, pattern in only)


@dataclass(frozen=True)
class MappedMetric:
    """One metric and the column that it fills; its value times `factor` is in the column's unit."""

    metric: str
    table: str
    """`gpu`, `device`, `host`, `event`, for tools `process`, `given` (USERS); empty: used only in labels or sums."""

    column: str
    kind: str
    factor: float = 1
    covers_s: float | None = None
    """The time before the scrape that a value certainly describes; None: only its moment."""

    only: _Only = ()

    sum_over: tuple[str, ...] = ()
    """Labels that distinguish the parts of a value: the column is their sum."""

    per: str = ""
    """The sum is divided by the number of values of this label; for a `count`, the label that is counted."""

    unit: str = ""
    """In the exporter's own words."""

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Return whether a series of this metric counts."""
        return _have(labels, self.only)


@dataclass(frozen=True)
class CombinedColumn:
    """A column without its own metric: the sum of some metrics less others of one scrape; null where one is missing."""

    table: str
    column: str
    add: tuple[str, ...]
    subtract: tuple[str, ...]
    factor: float


@dataclass(frozen=True)
class Exporter:
    """One exporter, or one tool that writes files.

    Of several names of a label, the first that a series has and that is not empty counts. Where two metrics fill one
    column, the first in `metrics` counts wherever it has a value.
    """

    name: str
    title: str
    source_url: str
    """The source in which metrics, units and labels were looked up."""

    readings: str
    """One sentence: what a value of utilization describes, and how `covers_s` is known."""

    signed_by: tuple[str, ...]
    """Metrics of which a target has at least one; empty: any target. For exporters that share their other names."""

    metrics: tuple[MappedMetric, ...]
    gpu: tuple[str, ...] = ()
    gpu_prefix: str = ""
    """The prefix that the label omits from a UUID, such as `GPU-`."""

    index: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    """Labels of the host; without them `instance` without its port."""

    mig_uuid: tuple[str, ...] = ()
    mig_instance: tuple[str, ...] = ()
    """A series with one of these labels is a MIG instance's; `gpu` names its parent unless `mig_uuid` is present."""

    device: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Columns of `device` in labels: column, labels."""

    user: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The user of the GPU: one of USERS, labels."""

    own_pods: str = ""
    """Regular expression of the exporter's own pods: a server may put them in the place of the user."""

    unknown: tuple[tuple[float, float], ...] = ()
    """Values, both ends included, that mean "not known"."""

    ignored: str = ""
    """Regular expression of metrics of the exporter that fallow does not use."""

    combined: tuple[CombinedColumn, ...] = ()
    process: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """For a tool: columns of `process` and the tool's names for them."""

    only: _Only = ()
    """What all series of the exporter have, such as the vendor of the card."""

    refused: str = ""
    """Why no metric of the exporter can be read, as a sentence that continues its title; empty for all others."""

    cluster: str = ""
    """The label that distinguishes hosts of one name; empty: names of hosts are unique."""

    of_site: bool = False
    """Whether a site's own file describes it."""

    @cached_property
    def by_metric(self) -> dict[str, tuple[MappedMetric, ...]]:
        found: dict[str, tuple[MappedMetric, ...]] = {}
        for mapped in self.metrics:
            found[mapped.metric] = (*found.get(mapped.metric, ()), mapped)
        return found

    @property
    def of_gpus(self) -> bool:
        return bool(self.gpu or self.index)

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Return whether the exporter may have written the series."""
        return _have(labels, self.only)

    def ignores(self, metric: str) -> bool:
        return re.fullmatch(self.ignored, metric) is not None

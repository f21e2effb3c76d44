"""Totals that an import or a follower has read so far, as sums over hosts and windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import polars as pl

from analytics.importers.doubts import ImportOverview
from analytics.importers.model import Imported
from analytics.importers.publish import Published
from analytics.scraped.rows.scraped_rows import ENDED
from fallow.clock import HOUR_MS

_MEANS = ("gpu_util_pct", "mem_used_bytes", "power_w")
_MOST_NOTES = 20


@dataclass
class ReadTotals:
    """`of_agents` are rows that agents already have; `cadences` counts GPUs and days by their interval."""

    samples: int = 0
    gpus: set[str] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    rows: int = 0
    interval_ms: int = 0
    seen_ms: float = 0.0
    first_ms: int | None = None
    end_ms: int | None = None
    sums: dict[str, tuple[float, int]] = field(default_factory=dict)
    zeros: int = 0
    of_agents: int = 0
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    allocation_notes: tuple[str, ...] = ()
    """Queues and quotas in the newest window."""

    cadences: Counter[int] = field(default_factory=Counter)
    cards: dict[str, float] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    published: dict[str, Published] = field(default_factory=dict)
    users: set[tuple[str, str]] = field(default_factory=set)
    servers: dict[str, bool] = field(default_factory=dict)
    """Inference servers by their address, with whether a GPU of theirs is known."""

    engines: set[str] = field(default_factory=set)
    _noted: dict[str, set[str]] = field(default_factory=dict)

    def add_rows(self, host: str, gpu: pl.DataFrame, device: pl.DataFrame) -> None:
        """Add rows of one host that go to the lake; rows that only mark the end of a series cover no time."""
        gpu = gpu.filter(pl.col("health").ne_missing(ENDED))
        if gpu.is_empty():
            return
        self.hosts.add(host)
        self.gpus |= set(gpu["gpu"].unique())
        self.rows += gpu.height
        self.interval_ms += int(gpu["interval_ms"].cast(pl.Int64).sum())
        if "gpu_util_coverage_ratio" in gpu.columns:
            covered = pl.col("interval_ms") * pl.col("gpu_util_coverage_ratio").fill_null(0)
            self.seen_ms += float(gpu.select(covered.sum()).item() or 0)
        start = gpu["time"].cast(pl.Int64)
        self.first_ms = min(filter(None, (self.first_ms, int(str(start.min())))))
        self.end_ms = max(filter(None, (self.end_ms, int(str((start + gpu["interval_ms"]).max())))))
        for name in _MEANS:
            if name in gpu.columns and (count := gpu[name].count()):
                total, before = self.sums.get(name, (0.0, 0))
                self.sums[name] = (total + float(gpu[name].cast(pl.Float64).sum()), before + count)
        if "gpu_util_pct" in gpu.columns:
            self.zeros += int((gpu["gpu_util_pct"] == 0).sum())
        for interval, count in gpu.group_by("interval_ms").agg(pl.col("gpu").n_unique()).iter_rows():
            self.cadences[int(interval)] += int(count)
        for name, known in (("mem_total_bytes", self.cards), ("power_limit_w", self.limits)):
            if name in device.columns:
                known.update(device.select("gpu", name).drop_nulls().iter_rows())

    def add_servers(self, serving: pl.DataFrame) -> None:
        """Add rows of `serving` that go to the lake."""
        placed = serving.group_by("endpoint").agg(pl.col("gpu").is_not_null().any())
        for endpoint, has_gpu in placed.iter_rows():
            self.servers[endpoint] = has_gpu or self.servers.get(endpoint, False)
        self.engines |= set(serving["engine"].drop_nulls().unique())

    def add_account(self, rows: Imported) -> None:
        """Add the samples of a host that became no row, and notes for the reader."""
        for file in rows.files:
            for each in (*file.dropped, *file.nulled):
                self.dropped[each.reason, each.column] += each.count
        for note in rows.notes:
            self._noted.setdefault(note, set()).add(rows.host)

    def notes(self) -> tuple[str, ...]:
        """Return sentences, those about most hosts first, each with their number."""
        notes = sorted(self._noted.items(), key=lambda each: -len(each[1]))[:_MOST_NOTES]
        hosts = len(self.hosts)
        return (
            *(note if len(of) in {0, hosts} else f"{note} (of {len(of)} of {hosts} hosts)" for note, of in notes),
            *self.allocation_notes,
        )

    def add_published(self, published: Iterable[Published]) -> None:
        for each in published:
            before = self.published.get(each.table)
            self.published[each.table] = each if before is None else before.plus(each)

    @property
    def span_ms(self) -> int:
        return 0 if self.first_ms is None or self.end_ms is None else self.end_ms - self.first_ms

    def overview(self) -> ImportOverview:
        """Return the figures of all rows, as for other imports; the longest gap is not known."""
        mean = {name: total / count for name, (total, count) in self.sums.items()}
        util = self.sums.get("gpu_util_pct")
        return ImportOverview(
            gpus=len(self.gpus),
            hosts=tuple(sorted(self.hosts)),
            rows=self.rows,
            gpu_hours=self.interval_ms / HOUR_MS,
            span_hours=self.span_ms / HOUR_MS,
            mean_util_pct=mean.get("gpu_util_pct"),
            zero_ratio=None if util is None else self.zeros / util[1],
            mean_mem_used_bytes=mean.get("mem_used_bytes"),
            mem_total_bytes=_mean(self.cards),
            mean_power_w=mean.get("power_w"),
            power_limit_w=_mean(self.limits),
            cadence_ms=float(self.cadences.most_common(1)[0][0]) if self.cadences else None,
            longest_gap_ms=None,
            processes=None,
            users=None,
        )


def _mean(known: dict[str, float]) -> float | None:
    return sum(known.values()) / len(known) if known else None

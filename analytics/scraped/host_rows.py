"""What the samples of one host in one window amount to, in rows of the lake's tables, and what became of the rest."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from analytics.importers.model import Count


@dataclass(frozen=True)
class HostRows:
    """`gpu`, `device`, `hosts` and `events` hold columns of the lake's tables `gpu`, `device`, `host` and `event`; what is not there is null.

    `given` has one row per GPU, holder and unbroken stretch: gpu, start_ms, end_ms (the last sample that named it),
    namespace, pod, container, slurm_job, user (any of the last five null), for `analytics.scraped.who`.
    """

    host: str
    gpu: pl.DataFrame
    device: pl.DataFrame
    hosts: pl.DataFrame
    given: pl.DataFrame
    events: pl.DataFrame = field(default_factory=pl.DataFrame)
    """XIDs that the metrics showed; no rows and no columns where nobody looked."""

    dropped: tuple[Count, ...] = ()
    """Samples that make no value, and why."""

    notes: tuple[str, ...] = ()
    """What the reader of an import should know, in sentences."""

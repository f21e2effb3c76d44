"""What rows of scraped series depend on beside the samples, and the rows of one host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from analytics.importers.model import Count

Source = tuple[str, ...]
"""One page as one server scraped it: the exporter's name, cluster, job, instance, host, and what tells replicas of a server apart."""

INSTANCE = 3
"""Where the instance stands in a source."""


@dataclass(frozen=True)
class Pace:
    """How far apart the scrapes of a source are, and the exporter's reads of the driver.

    `collect_ms` is None where nobody says how often the exporter reads and the values do not show it. `fresh`: the values
    show that every scrape had a new reading.
    """

    scrape_ms: int
    collect_ms: int | None = None
    fresh: bool = False


@dataclass(frozen=True)
class RowSettings:
    """Rows are given of moments from `since_ms` up to `until_ms`, exclusive; samples around them say what came before.

    `collect_ms` is how often the exporters read the driver, where somebody knows. `paces` of sources that were looked at before
    go before what the samples show: a few samples show nothing.
    """

    since_ms: int
    until_ms: int
    collect_ms: int | None = None
    paces: Mapping[Source, Pace] = field(default_factory=dict)


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

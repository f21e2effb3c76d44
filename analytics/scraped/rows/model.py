"""What rows of scraped series depend on beside the samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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

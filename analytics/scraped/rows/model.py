"""Types for rows of scraped series, besides the samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Source = tuple[str, ...]
"""One page as one server scraped it: exporter, cluster, job, instance, host, and the labels of a server's replicas."""

INSTANCE = 3
"""The position of the instance in a source."""


@dataclass(frozen=True)
class Pace:
    """The distance between scrapes of a source, and between the exporter's reads of the driver.

    `collect_ms` is None where no setting states how often the exporter reads and the values do not show it. `fresh`:
    the values show that every scrape had a new reading.
    """

    scrape_ms: int
    collect_ms: int | None = None
    fresh: bool = False


@dataclass(frozen=True)
class RowSettings:
    """Rows are returned for moments from `since_ms` up to `until_ms`, exclusive; samples around them give the context.

    `collect_ms` is how often the exporters read the driver, where a setting states it. `paces` of sources that were
    examined before override what the samples show: a few samples show nothing.
    """

    since_ms: int
    until_ms: int
    collect_ms: int | None = None
    paces: Mapping[Source, Pace] = field(default_factory=dict)

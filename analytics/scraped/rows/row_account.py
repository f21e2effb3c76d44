"""What became of samples that make no value, by host, and what a reader of the rows should know."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import polars as pl

from analytics.importers.model import Count, Tally
from analytics.importers.values import clean
from analytics.scraped.rows.exporter_rows import ExporterRows, UnitCodes
from analytics.scraped.rows.metric_frame import RefusedSamples
from fallow.clock import format_duration
from fallow.schema import LakeTable

_FULL_PCT, _HAIR_PCT = 100.0, 100.5
"""A mean that a GPU keeps itself may lie a hair above 100 (the ledger's rule)."""


class RowAccount:
    """Counts by host, reason and column, and sentences by host; hosts by their code."""

    def __init__(self, codes: UnitCodes) -> None:
        self._codes = codes
        self._counts: dict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
        self._notes: dict[int, dict[str, None]] = defaultdict(dict)

    def refused(self, refused: RefusedSamples) -> None:
        """Counts samples by their unit."""
        hosts = np.bincount(self._codes.host[refused.unit])
        for host in np.flatnonzero(hosts):
            self._counts[int(host)][refused.reason, refused.column] += int(hosts[host])

    def rows(self, reason: str, by_host: pl.DataFrame, column: str = "") -> None:
        """Counts rows, given as host and len."""
        for host, number in by_host.select("host", "len").iter_rows():
            self._counts[host][reason, column] += number

    def note(self, host: int, sentence: str) -> None:
        self._notes[host][sentence] = None

    def paced(self, rows: ExporterRows) -> None:
        """Notes on how often the sources were scraped and read the driver."""
        title = rows.exporter.title
        has_average = "gpu_util_coverage_ratio" in rows.gpus.columns
        unseen = (pl.col("gpu_util_pct").is_not_null() & pl.col("gpu_util_coverage_ratio").is_null()).any()
        told = rows.gpus.filter(~pl.col("ended")).group_by("source", "host")
        for source, host, blind in (
            told.agg(unseen if has_average else pl.lit(value=False)).sort("source", "host").iter_rows()
        ):
            pace, reading_ms = rows.paces.by_source[source], rows.paces.reading_ms(source)
            if reading_ms > pace.scrape_ms:
                known = "reads" if pace.collect_ms else "is taken to read"
                self.note(
                    host,
                    f"{title} {known} the driver every {format_duration(reading_ms)} and is scraped every "
                    f"{format_duration(pace.scrape_ms)}: a reading that is shown again counts once",
                )
            if rows.paces.is_refuted(source):
                self.note(
                    host,
                    f"{title} reads the driver more often than --collect-interval says: its averages count as readings at a moment",
                )
            if blind and rows.paces.assumed_ms is not None and pace.collect_ms is None:
                self.note(
                    host,
                    f"how often {title} reads the driver is not known: its averages count as readings at a moment "
                    "(--collect-interval says it)",
                )

    def cleaned(self, frame: pl.DataFrame, table: LakeTable) -> pl.DataFrame:
        """The frame (host, columns of the table) in the lake's types; values that cannot be are null and counted."""
        for column in table.columns:
            if column.name in frame.columns and frame[column.name].dtype == pl.Float64:
                tally = Tally()
                raw = frame[column.name]
                if column.name.endswith("_pct"):
                    raw = raw.set(raw.is_between(_FULL_PCT, _HAIR_PCT), _FULL_PCT)
                frame = frame.with_columns(clean(raw, column, tally))
                if tally.nulled:
                    lost = frame.filter(raw.is_not_null() & frame[column.name].is_null())
                    reasons = " or ".join(reason for _, reason in tally.nulled)
                    self.rows(reasons, lost.group_by("host").len(), column.name)
        return frame

    def dropped(self, host: int) -> tuple[Count, ...]:
        return tuple(Count(reason, count, column) for (reason, column), count in self._counts[host].most_common())

    def notes(self, host: int) -> tuple[str, ...]:
        return tuple(self._notes[host])

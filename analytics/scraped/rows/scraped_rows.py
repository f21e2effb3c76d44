"""`host_rows`: from raw samples to the lake's rows, for any number of hosts, with an account of all other samples."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from analytics.importers.model import Count, FileReport, Imported, Tally
from analytics.importers.times import IN_THE_FUTURE, latest_possible_ms
from analytics.importers.values import clean, polars_schema
from analytics.mapping.model import USERS, Exporter
from analytics.scraped.rows.exporter_rows import ExporterRows, UnitCodes, exporter_rows
from analytics.scraped.rows.lake_tables import (
    device_facts,
    device_rows,
    users_by_label,
    users_by_value,
    with_epochs,
    xid_events,
)
from analytics.scraped.rows.metric_frame import (
    Ints,
    RefusedSamples,
    SampleArrays,
    ScrapedUnits,
    metric_frame,
    scraped_units,
)
from analytics.scraped.rows.model import Pace, RowSettings, Source
from analytics.scraped.rows.pace import DEFAULT_SCRAPE_MS
from analytics.scraped.rows.positions import checked_positions
from analytics.scraped.rows.source_choice import ChosenRows, chosen_rows
from analytics.scraped.samples import Samples
from fallow.clock import format_duration
from fallow.schema import GPU, HOST, LakeTable

_FULL_PCT, _HAIR_PCT = 100.0, 100.5
"""A mean that a GPU keeps itself may lie a hair above 100 (the ledger's rule)."""


class RowAccount:
    """Counts by host, reason and column, and sentences by host; hosts by their code."""

    def __init__(self, codes: UnitCodes) -> None:
        self._codes = codes
        self._counts: dict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
        self._notes: dict[int, dict[str, None]] = defaultdict(dict)

    def refused(self, refused: RefusedSamples) -> None:
        """Count samples by their unit."""
        hosts = np.bincount(self._codes.host[refused.unit])
        for host in np.flatnonzero(hosts):
            self._counts[int(host)][refused.reason, refused.column] += int(hosts[host])

    def rows(self, reason: str, by_host: pl.DataFrame, column: str = "") -> None:
        """Count rows, given as host and len."""
        for host, number in by_host.select("host", "len").iter_rows():
            self._counts[host][reason, column] += number

    def note(self, host: int, sentence: str) -> None:
        self._notes[host][sentence] = None

    def paced(self, rows: ExporterRows) -> None:
        """Add notes on how often the sources were scraped and read the driver."""
        title = rows.exporter.title
        has_average = "gpu_util_coverage_ratio" in rows.gpus.columns
        unseen = (pl.col("gpu_util_pct").is_not_null() & pl.col("gpu_util_coverage_ratio").is_null()).any()
        live_rows = rows.gpus.filter(~pl.col("ended")).group_by("source", "host")
        for source, host, blind in (
            live_rows.agg(unseen if has_average else pl.lit(value=False)).sort("source", "host").iter_rows()
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
                    f"{title} reads the driver more often than --collect-interval states: its averages count as"
                    " readings at a moment",
                )
            if blind and rows.paces.assumed_ms is not None and pace.collect_ms is None:
                self.note(
                    host,
                    f"how often {title} reads the driver is not known: its averages count as readings at a moment "
                    "(--collect-interval sets it)",
                )

    def cleaned(self, frame: pl.DataFrame, table: LakeTable) -> pl.DataFrame:
        """Return the frame (host, columns of the table) in the lake's types; impossible values are null and counted."""
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

    def report(self, host: int, rows: int) -> FileReport:
        """Return the report on samples and values that make no row."""
        lost = [Count(reason, count, column) for (reason, column), count in self._counts[host].most_common()]
        dropped, nulled = (tuple(each for each in lost if bool(each.column) is named) for named in (False, True))
        return FileReport(f"host {self._codes.hosts[host]}", rows, rows, dropped, nulled)

    def notes(self, host: int) -> tuple[str, ...]:
        return tuple(self._notes[host])


ENDED = "released"
"""The health of a GPU after its series ended: it is no longer read."""


def host_rows(samples: Samples, exporters: Sequence[Exporter], settings: RowSettings) -> list[Imported]:
    """Return the rows of each host that the samples name. Raises InputError if one name is of hosts of two clusters.

    What rows claim, and what becomes of samples without a row: docs/prometheus.md, "What a scraped series can say".
    """
    found = scraped_units(samples.labels, exporters)
    arrays = SampleArrays.of(samples.frame, len(samples.labels))
    shared = checked_positions(samples.labels, found, arrays)
    codes = UnitCodes.of(found, exporters)
    account = RowAccount(codes)
    read = _rows_by_exporter(found, arrays, codes, settings, account)
    if not read:
        return []
    for (title, what), number in found.nameless.items():
        account.note(0, f"{number:,} series of {title} name no {what}: they are left out")
    chosen = _chosen_rows(_with_split_cards([each.gpus for each in read], codes), codes, account)
    gpus = with_epochs(_past_rows(chosen.frame, account))
    hosts = pl.concat([each.hosts for each in read], how="diagonal_relaxed").with_columns(gpu="host")
    hosts = _past_rows(_chosen_rows(hosts.filter(~pl.col("ended")), codes, account).frame.drop("gpu"), account)
    live_rows = _named_rows(gpus.filter(~pl.col("ended")), codes)
    given = [users_by_label(found, codes, arrays, _intervals(read, codes)), users_by_value(gpus, codes)]
    tables = {
        "gpu": _finished_rows(_rows_within(gpus, settings), GPU, codes, account),
        "hosts": _finished_rows(_rows_within(hosts, settings), HOST, codes, account),
        "device": device_rows(_rows_within(live_rows, settings), device_facts(samples.labels, found, arrays)),
        "events": xid_events(live_rows, settings),
        "given": _open_segments(_given_segments(given, chosen, codes), live_rows, settings),
    }
    return _imports_by_host(tables, codes, account, shared)


def find_source_paces(
    samples: Samples, exporters: Sequence[Exporter], collect_ms: int | None = None
) -> dict[Source, Pace]:
    """Return the pace of each source for `RowSettings.paces`, by hundreds of samples, so that later a few suffice."""
    found = scraped_units(samples.labels, exporters)
    codes = UnitCodes.of(found, exporters)
    settings = RowSettings(0, 0, collect_ms)
    read = _rows_by_exporter(
        found, SampleArrays.of(samples.frame, len(samples.labels)), codes, settings, RowAccount(codes)
    )
    return {codes.sources[code]: pace for each in read for code, pace in each.paces.by_source.items()}


def _rows_by_exporter(
    found: ScrapedUnits, arrays: SampleArrays, codes: UnitCodes, settings: RowSettings, account: RowAccount
) -> list[ExporterRows]:
    read = []
    for name, exporter in found.exporters.items():
        metrics = metric_frame(arrays, exporter, found.parts[name])
        for refused in metrics.refused:
            account.refused(refused)
        rows = exporter_rows(metrics, codes, settings.paces, settings.collect_ms)
        account.rows("a reading that the scrape before had shown", rows.repeated)
        account.paced(rows)
        read.append(rows)
    return read


def _with_split_cards(frames: list[pl.DataFrame], codes: UnitCodes) -> pl.DataFrame:
    """Return the rows of all exporters, and one of each GPU that MIG splits wherever an instance of it has one.

    The ledger takes the part that no instance has from the rows of the GPU itself.
    """
    gpus = pl.concat(frames, how="diagonal_relaxed")
    parent = codes.parent[gpus["unit"].to_numpy()]
    if (parent < 0).all():
        return gpus
    keys = ("gpu", "source", "time_ms")
    split = gpus.with_columns(gpu=pl.Series(parent)).filter(pl.col("gpu") >= 0)
    cards = split.group_by(keys).agg(pl.col("host", "unit", "interval_ms").first(), pl.col("ended").all())
    return pl.concat([gpus, cards.join(gpus, on=keys, how="anti")], how="diagonal_relaxed")


def _chosen_rows(frame: pl.DataFrame, codes: UnitCodes, account: RowAccount) -> ChosenRows:
    """Return the rows with one source at a time."""
    chosen = chosen_rows(frame)
    account.rows("another source has the GPU at that time", chosen.left_out)
    for host, kept in chosen.renamed.iter_rows():
        account.note(
            kept, f"{codes.hosts[host]} is {codes.hosts[kept]} by another name: they have the same GPUs at once"
        )
    for before, host, number in chosen.moved.iter_rows():
        account.note(
            host,
            f"GPUs that {codes.hosts[before]} had before ({number:,}): they were moved, or the host has another"
            " name now",
        )
    return chosen


def _given_segments(segments: list[pl.DataFrame], chosen: ChosenRows, codes: UnitCodes) -> pl.DataFrame:
    """Return all segments, under the names that hosts keep."""
    kept = {codes.hosts[host]: codes.hosts[name] for host, name in chosen.renamed.iter_rows()}
    return pl.concat(segments).with_columns(pl.col("host").replace(kept)).sort("host", "gpu", "start_ms", *USERS)


def _open_segments(given: pl.DataFrame, live_rows: pl.DataFrame, settings: RowSettings) -> pl.DataFrame:
    """Return the segments, except those that ended before the GPU's last sample before the window.

    These belong to the window before.
    """
    before = (
        live_rows.filter(pl.col("time_ms") < settings.since_ms).group_by("host", "gpu").agg(last_ms=pl.max("time_ms"))
    )
    known = given.join(before, on=["host", "gpu"], how="left", maintain_order="left")
    return known.filter((pl.col("end_ms") >= pl.col("last_ms")).fill_null(value=True)).drop("last_ms")


def _intervals(read: list[ExporterRows], codes: UnitCodes) -> Ints:
    """Return the distance between readings of each unit."""
    by_source = {code: each.paces.reading_ms(code) for each in read for code in each.paces.by_source}
    return np.array([by_source.get(int(code), DEFAULT_SCRAPE_MS) for code in codes.source], np.int64)


def _rows_within(frame: pl.DataFrame, settings: RowSettings) -> pl.DataFrame:
    return frame.filter(pl.col("time_ms").is_between(settings.since_ms, settings.until_ms, closed="left"))


def _past_rows(frame: pl.DataFrame, account: RowAccount) -> pl.DataFrame:
    """Return the rows that are not in the future; the others are counted."""
    late = pl.col("time_ms") >= latest_possible_ms()
    account.rows(IN_THE_FUTURE, frame.filter(late).group_by("host").len())
    return frame.filter(~late)


def _finished_rows(frame: pl.DataFrame, table: LakeTable, codes: UnitCodes, account: RowAccount) -> pl.DataFrame:
    """Return the rows with `host` and columns of the table, in its types."""
    types = polars_schema(table)
    start = pl.col("time_ms") - pl.col("time_ms") % pl.col("interval_ms")
    placed = account.cleaned(frame, table).with_columns(
        time=start.cast(types["time"]),
        offset_ms=pl.col("time_ms") - start,
        health=pl.when("ended").then(pl.lit(ENDED)),
        util_source=pl.lit("scraped"),
    )
    if "offset_ms" not in types:
        # two scrapes of one slot are one row, like two windows with a cut between them
        placed = placed.group_by("host", "time", maintain_order=True).agg(pl.all().drop_nulls().last())
    return _named_rows(placed, codes).select(
        "host", *(pl.col(name).cast(kind) for name, kind in types.items() if name in placed.columns)
    )


def _named_rows(frame: pl.DataFrame, codes: UnitCodes) -> pl.DataFrame:
    names = {"host": codes.hosts, "gpu": codes.gpus}
    return frame.with_columns(
        pl.Series(name, known, dtype=pl.String).gather(frame[name])
        for name, known in names.items()
        if name in frame.columns
    )


def _imports_by_host(
    tables: dict[str, pl.DataFrame], codes: UnitCodes, account: RowAccount, odd: Mapping[str, str]
) -> list[Imported]:
    parts = {name: frame.partition_by("host", as_dict=True, include_key=False) for name, frame in tables.items()}
    found = []
    for code, host in sorted(enumerate(codes.hosts), key=lambda each: each[1]):
        gpu, device, hosts, events, given = (
            parts[name].get((host,), tables[name].clear().drop("host"))
            for name in ("gpu", "device", "hosts", "events", "given")
        )
        files, notes = (account.report(code, gpu.height),), account.notes(code)
        doubts = (odd[host],) if host in odd else ()
        found.append(
            Imported(host, gpu, device, files, notes=notes, odd=doubts, hosts=hosts, events=events, given=given)
        )
    return found

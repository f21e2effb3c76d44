"""`fallow import prometheus`: a metrics server's GPU samples into the lake by window, checked before publication."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice
from typing import Self

import polars as pl
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from analytics.contradictions.recorded import ContradictoryTimes
from analytics.importers.doubts import ask, doubts, overview_of
from analytics.importers.kinds import pseudonyms_of
from analytics.importers.model import Imported
from analytics.importers.plausibility import Claim, check_values
from analytics.importers.ticks import MOST_GPUS
from analytics.language.languages import site_zone
from analytics.language.sentences import page_columns
from analytics.mig import MIG_PREFIX
from analytics.scraped.import_summary import ImportWish, ScrapedImport, as_shown
from analytics.scraped.lake_writer import LakeWriter, WriterSettings
from analytics.scraped.reading import ReadChunk, SiteReader, days
from analytics.scraped.recognition import ReadValues, check_json, check_text, recognised
from analytics.scraped.serving_rows import server_exporters
from analytics.scraped.source import ReadSpan, ScrapedSource, add_server_flags, server_settings
from analytics.scraped.totals import ReadTotals
from analytics.scraped.windows import WindowWork
from fallow.clock import HOUR_MS, SECOND_MS, Clock, SystemClock, format_duration, format_ms, parse_window
from fallow.errors import InputError, UsageError
from fallow.lake import Lake
from fallow.output import say, show
from fallow.schema import DEVICE, GPU

_MOST = 10
_MOMENTS = ("time", "gpu", "interval_ms", "offset_ms")
_ALL_HOSTS = "import"
"""The marker by which the doubts know that this is not one host."""


def judged(hosts: Sequence[Imported], now_ms: int, *, own_mapping: bool) -> tuple[str, ...]:
    """Return sentences on doubtful values, the first few; `now_ms` is the server's time.

    Values of all hosts are judged together, and only where a site's own mapping declares their units, because resting
    cards look odd. Raises InputError for impossible values, with their probable unit.
    """
    # a host may have 56 MIG instances, and their values are not a card's
    cards = [each.gpu.filter(~pl.col("gpu").str.starts_with(MIG_PREFIX)) for each in hosts]
    found = [
        f"{gpus} GPUs on the one host {each.host}, where {MOST_GPUS} is the maximum"
        for each, own in zip(hosts, cards, strict=True)
        if (gpus := own["gpu"].n_unique()) > MOST_GPUS
    ]
    found += [odd for each in hosts for odd in each.odd]
    gpu = pl.concat(cards, how="diagonal") if cards else pl.DataFrame()
    if gpu.height:
        device = pl.concat([each.device for each in hosts], how="diagonal")
        files = tuple(file for each in hosts for file in each.files)
        found += _doubts_of_all(
            Imported(_ALL_HOSTS, gpu, device, files, "as scraped", "UTC"), now_ms, own_mapping=own_mapping
        )
    more = [f"and {len(found) - _MOST:,} more of this kind"] if len(found) > _MOST else []
    return tuple(found[:_MOST] + more)


def _doubts_of_all(imported: Imported, now_ms: int, *, own_mapping: bool) -> Iterator[str]:
    nulled = Counter[tuple[str, str]]()
    for each in (each for file in imported.files for each in file.nulled):
        nulled[each.column, each.reason] += each.count
    for table, frame in ((GPU, imported.gpu), (DEVICE, imported.device)) if own_mapping else ():
        claims = {
            name: Claim(name, declared=True, declare=_mapping_remedy(name))
            for name in table.names
            if name in frame.columns
        }
        yield from check_values(frame, claims, nulled, _card_bytes(imported))
    judged_rows = imported if own_mapping else replace(imported, gpu=imported.gpu.select(_MOMENTS))
    yield from doubts(judged_rows, overview_of(judged_rows), now_ms)


def _mapping_remedy(name: str) -> Callable[[str], str]:
    return lambda unit: f"check the unit of {name} in the mapping" + (f": is it {unit}?" if unit else "")


def _card_bytes(imported: Imported) -> int | None:
    if "mem_total_bytes" not in imported.device.columns:
        return None
    largest = imported.device["mem_total_bytes"].max()
    return int(str(largest)) if largest else None


_LINE_EVERY_S = 60.0


class ProgressLine:
    """The progress of one window; `advance` receives completed work."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("left, {task.fields[read]}"),
        )
        self._bar = Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
        self._task = self._bar.add_task("reading", total=1.0, read="nothing read yet")
        self._began_s = self._reported_s = clock.monotonic_s()
        self._done, self._samples = 0.0, 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the terminal to a question."""
        self._bar.stop()
        yield
        self._bar.start()

    @property
    def passed_s(self) -> float:
        return self._clock.monotonic_s() - self._began_s

    def advance(self, share: float, samples: int) -> None:
        """Add a completed `share` of the whole, with its number of samples."""
        self._done, self._samples = self._done + share, self._samples + samples
        passed_s = max(self.passed_s, 0.001)
        read = f"{self._samples:,} samples, {self._samples / passed_s:,.0f}/s"
        self._bar.update(self._task, completed=self._done, read=read)
        if not self._console.is_terminal and self._clock.monotonic_s() - self._reported_s >= _LINE_EVERY_S:
            self._reported_s = self._clock.monotonic_s()
            left_s = round(passed_s * (1 - self._done) / max(self._done, 1e-6))
            say(f"{self._done:.0%} read, {read}, about {format_duration(max(left_s, 1) * SECOND_MS)} left")


class ServerImport:
    """One import; runs once."""

    def __init__(self, wish: ImportWish) -> None:
        """Raise LakeError where the lake cannot be read."""
        self._wish = wish
        self._totals = ReadTotals()
        settings = WriterSettings(pseudonyms=wish.pseudonyms, until_ms=wish.until_ms)
        self._writer = LakeWriter(wish.lake, settings, self._totals)
        self._began_ms, self._from_ms = self._read_window()
        self._progress = ProgressLine(SystemClock())
        self._window_ms = 0
        self._odd: dict[str, None] = {}
        self._contradictory = ContradictoryTimes()
        self._is_judged = wish.yes
        self._pending_line = ""

    def run(self) -> ScrapedImport:
        """Return the result. After InputError or LakeError the lake is whole, and the same import continues there."""
        wish = self._wish
        self._pending_line = self._discovery_line()
        work = WindowWork(wish.source, wish.server, wish.reader, self._writer, self._ask_about_doubts, self._add_chunk)
        with self._progress:
            for start_ms, end_ms in days(self._from_ms, wish.until_ms):
                self._window_ms = end_ms - start_ms
                work.run(start_ms, end_ms)
                self._note(end_ms)
        if not (self._totals.rows or self._totals.of_agents or self._totals.servers) and self._from_ms == wish.since_ms:
            reasons = "; ".join(f"{count:,} {reason}" for (reason, _), count in self._totals.dropped.most_common(3))
            raise InputError(
                f"the series that were found make no rows{f': {reasons}' if reasons else ''}",
                "`--check` shows what is found and how it is read",
            )
        return self._outcome(is_published=True)

    def _note(self, end_ms: int) -> None:
        """Note the read interval: late data does not count as read, and nothing does before any row is in the lake."""
        if self._totals.published:
            done_ms = max(self._began_ms, min(end_ms, self._wish.now_ms - self._wish.late_ms))
            self._wish.source.journal(self._wish.lake).add(ReadSpan(self._began_ms, done_ms))

    def _read_window(self) -> tuple[int, int]:
        """Return the start of the interval that will be complete in the lake, and the start of this run."""
        wish = self._wish
        journal = wish.source.journal(wish.lake)
        if wish.restart and journal.read():
            journal.forget()
        for before in journal.read():
            if before.since_ms <= wish.since_ms <= before.until_ms:
                return before.since_ms, min(before.until_ms, wish.until_ms)
        return wish.since_ms, wish.since_ms

    def _discovery_line(self) -> str:
        """Return a line on the discovered metrics. Raises InputError if the server has no metric that fallow knows."""
        wish, server = self._wish, self._wish.server
        place = f"{server.name} at {wish.source.address.url}"
        names = wish.reader.names(wish.since_ms, wish.until_ms)
        if names.telling or names.of_servers:
            return f"{place} has metrics of {', '.join(names.titles)}; reading by {server.way}"
        if names.refused:
            raise InputError(f"{server.name} has no series that can be read: {'; '.join(names.refused)}", _OWN_READER)
        matching = f" where {wish.source.match}" if wish.source.match else ""
        raise InputError(
            f"{place} has no series of a known GPU exporter or inference server between "
            f"{format_ms(wish.since_ms)} and {format_ms(wish.until_ms)}{matching}",
            "`--check` lists its metrics; --mapping FILE names your own series",
        )

    def _ask_about_doubts(self, hosts: Sequence[Imported]) -> None:
        """Show the discovery; ask about doubts before the first rows are published; report later doubts at the end."""
        if self._pending_line:
            say(self._pending_line)
            self._pending_line = ""
        odd = judged(hosts, self._wish.now_ms, own_mapping=bool(self._wish.source.mapping))
        self._odd |= dict.fromkeys(odd)
        for each in hosts:
            self._contradictory.add(each.gpu)
        if odd and not self._is_judged:
            with self._progress.paused():
                shown = self._outcome(is_published=False)
                ask(odd, as_shown(shown, machines=False), as_shown(shown, machines=self._wish.machines))
        self._is_judged = True

    def _add_chunk(self, chunk: ReadChunk) -> None:
        share = chunk.chunk.share * self._window_ms / max(1, self._wish.until_ms - self._from_ms)
        self._progress.advance(share, chunk.samples)

    def _outcome(self, *, is_published: bool) -> ScrapedImport:
        seconds = self._progress.passed_s
        return ScrapedImport(
            self._wish, self._from_ms, self._totals, seconds, self._odd, self._contradictory, is_published
        )


_OWN_READER = "run fallow's agent on the hosts, or a GPU exporter that docs/prometheus.md lists"


class ImportPrometheus:
    name = "prometheus"
    summary = "metrics of GPUs and inference servers of a Prometheus, Thanos, Mimir or VictoriaMetrics server"
    example = "fallow import prometheus --url http://prometheus:9090 --since 30d --lake /srv/lake"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_server_flags(parser)
        parser.add_argument("--since", default="30d", metavar="WHEN", help="start (default: 30d)")
        parser.add_argument("--until", metavar="WHEN", help="end (default: now)")
        parser.add_argument(
            "--check", action="store_true", help="only print which series exist, how they are read and what is missing"
        )
        parser.add_argument("--restart", action="store_true", help="read the data of earlier runs again")


def run(args: argparse.Namespace) -> int:
    """Import a window. Raises UsageError. After InputError or LakeError the lake is whole; the same import goes on."""
    settings = server_settings(args)
    source, pseudonyms = ScrapedSource.of(settings), pseudonyms_of(args, settings)
    with source.connect() as server, SiteReader(server, source) as reader:
        now_ms = SystemClock().now_ms() + (server.clock_offset_ms() or 0)
        asked = parse_window(args.since, args.until, zone=site_zone(settings))
        since_ms, until_ms = asked.since_ms or 0, min(asked.until_ms or now_ms, now_ms)
        if since_ms >= until_ms:
            raise UsageError(f"--since {args.since} is not before now, by the server's clock", "widen the window")
        window = since_ms, until_ms
        if args.check:
            _check(args, source, reader, window)
            return 0
        lake = Lake.at(settings.require("lake.path", "--lake"))
        late_ms = settings.integer("prometheus.late")
        wish = ImportWish(
            source, server, reader, lake, pseudonyms, *window, now_ms, late_ms, args.restart, args.yes, args.json
        )
        done = ServerImport(wish).run()
        show(as_shown(done, machines=args.json))
    return 0


def _check(args: argparse.Namespace, source: ScrapedSource, reader: SiteReader, window: tuple[int, int]) -> None:
    """Show the recognition for the last hour of the window, or the newest day that has any series."""
    since_ms, until_ms = window
    looks = [(max(since_ms, until_ms - HOUR_MS), until_ms), *reversed(list(days(since_ms, until_ms)))]
    for start_ms, end_ms in looks:
        found = recognised(reader.labels(start_ms, end_ms), (*source.exporters, *server_exporters()))
        if found.gpus or found.has_servers or start_ms == since_ms:
            values = _read_values(reader, start_ms, end_ms) if found.gpus else None
            show(check_json(found, values) if args.json else check_text(found, page_columns(), values))
            return


def _read_values(reader: SiteReader, since_ms: int, until_ms: int) -> ReadValues | None:
    """Return the verdicts over the first chunk of samples, enough for a large site; None if the server refuses them."""
    gpus, contradictory = 0, ContradictoryTimes()
    try:
        with closing(reader.read(reader.look(since_ms, until_ms))) as chunks:
            for host in (host for chunk in islice(chunks, 1) for host in chunk.hosts):
                gpus += host.gpu["gpu"].n_unique()
                contradictory.add(host.gpu)
    except InputError as error:
        say(f"the samples cannot be checked: {error}")
        return None
    return ReadValues(gpus, contradictory)

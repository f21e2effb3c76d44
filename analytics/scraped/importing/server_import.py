"""One import of a metrics server's history: window after window, noted in the journal, judged before anything is published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analytics.importers.asking import ask
from analytics.importers.model import Imported
from analytics.scraped.chunks import days
from analytics.scraped.importing.progress_line import ProgressLine
from analytics.scraped.importing.summary import ScrapedImport, as_shown
from analytics.scraped.journal import ReadSpan
from analytics.scraped.judging import judged
from analytics.scraped.lake_writer import LakeWriter, WriterSettings
from analytics.scraped.reading import ReadChunk, SiteReader
from analytics.scraped.server.metrics_server import MetricsServer
from analytics.scraped.source import ScrapedSource
from analytics.scraped.totals import ReadTotals
from analytics.scraped.windows import WindowWork
from fallow.clock import SystemClock, format_ms
from fallow.errors import InputError
from fallow.lake import Lake
from fallow.output import say
from fallow.pseudonyms import Pseudonyms


@dataclass(frozen=True)
class ImportParts:
    """Where from and where to."""

    source: ScrapedSource
    server: MetricsServer
    reader: SiteReader
    lake: Lake


@dataclass(frozen=True)
class ImportWish:
    """What was asked for; `now_ms` is the server's time, and the last `late_ms` before it may not be whole yet."""

    since_ms: int
    until_ms: int
    now_ms: int
    late_ms: int
    restart: bool = False
    yes: bool = False
    machines: bool = False


class ServerImport:
    """Runs once."""

    def __init__(self, parts: ImportParts, wish: ImportWish, pseudonyms: Pseudonyms | None) -> None:
        """Raises LakeError where the lake cannot be read."""
        self._parts, self._wish = parts, wish
        self._totals = ReadTotals()
        settings = WriterSettings(pseudonyms=pseudonyms, until_ms=wish.until_ms)
        self._writer = LakeWriter(parts.lake, settings, self._totals)
        self._began_ms, self._from_ms = self._resumed()
        self._progress = ProgressLine(SystemClock())
        self._window_ms = 0
        self._odd: dict[str, None] = {}
        self._is_judged = wish.yes
        self._unsaid = ""

    def run(self) -> ScrapedImport:
        """Raises InputError and LakeError; what is in the lake then is whole, and the same import goes on from there."""
        parts, wish = self._parts, self._wish
        self._unsaid = self._found()
        work = WindowWork(parts.server, parts.reader, self._writer, parts.source.match, self._judge, self._told)
        with self._progress:
            for start_ms, end_ms in days(self._from_ms, wish.until_ms):
                self._window_ms = end_ms - start_ms
                work.run(start_ms, end_ms)
                self._note(end_ms)
        if not (self._totals.rows or self._totals.of_agents) and self._from_ms == wish.since_ms:
            reasons = "; ".join(f"{count:,} {reason}" for (reason, _), count in self._totals.dropped.most_common(3))
            raise InputError(
                f"the series that were found make no rows{f': {reasons}' if reasons else ''}",
                "`--check` says what is found and how it is read",
            )
        return self._outcome(is_published=True)

    def _note(self, end_ms: int) -> None:
        """What may still come late is not taken as read, and nothing is before anything is in the lake."""
        if self._totals.published:
            done_ms = max(self._began_ms, min(end_ms, self._wish.now_ms - self._wish.late_ms))
            self._parts.source.journal(self._parts.lake).add(ReadSpan(self._began_ms, done_ms))

    def _resumed(self) -> tuple[int, int]:
        """Since when all is in the lake in the end, and where this run begins."""
        wish = self._wish
        journal = self._parts.source.journal(self._parts.lake)
        if wish.restart and journal.read():
            journal.forget()
        for before in journal.read():
            if before.since_ms <= wish.since_ms <= before.until_ms:
                return before.since_ms, min(before.until_ms, wish.until_ms)
        return wish.since_ms, wish.since_ms

    def _found(self) -> str:
        """What there is, in a line; raises InputError where the server has nothing that fallow knows."""
        parts, wish = self._parts, self._wish
        names = parts.reader.names(wish.since_ms, wish.until_ms)
        if not names.telling:
            raise InputError(
                f"{parts.server.name} at {parts.source.address.url} has no series of a known GPU exporter between "
                f"{format_ms(wish.since_ms)} and {format_ms(wish.until_ms)}{_narrowed(parts.source.match)}",
                "`--check` says what it has; --mapping FILE names series of your own",
            )
        return f"{parts.server.name} at {parts.source.address.url} has metrics as of {', '.join(names.titles)}; reading by {parts.server.way}"

    def _judge(self, hosts: Sequence[Imported]) -> None:
        """Before the first rows are published, what was found is said, and what is odd is asked about; later that is told at the end."""
        if self._unsaid:
            say(self._unsaid)
            self._unsaid = ""
        odd = judged(hosts, self._wish.now_ms, own_mapping=bool(self._parts.source.mapping))
        self._odd |= dict.fromkeys(odd)
        if odd and not self._is_judged:
            with self._progress.paused():
                shown = self._outcome(is_published=False)
                ask(odd, as_shown(shown, machines=False), as_shown(shown, machines=self._wish.machines))
        self._is_judged = True

    def _told(self, chunk: ReadChunk) -> None:
        share = chunk.chunk.share * self._window_ms / max(1, self._wish.until_ms - self._from_ms)
        self._progress.advance(share, chunk.samples)

    def _outcome(self, *, is_published: bool) -> ScrapedImport:
        parts, wish = self._parts, self._wish
        return ScrapedImport(
            server=parts.server.name,
            url=parts.source.address.url,
            way=parts.server.way,
            clock_offset_ms=parts.server.clock_offset_ms(),
            since_ms=wish.since_ms,
            until_ms=wish.until_ms,
            read_from_ms=self._from_ms,
            totals=self._totals,
            seconds=self._progress.passed_s,
            odd=tuple(self._odd),
            warnings=parts.server.warnings,
            lake=parts.lake.root,
            journal=parts.source.journal(parts.lake).path,
            is_published=is_published,
        )


def _narrowed(match: str) -> str:
    return f" where {match}" if match else ""

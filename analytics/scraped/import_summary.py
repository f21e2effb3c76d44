"""The result of an import from a metrics server, for people and for machines."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from analytics.contradictions.recorded import ContradictoryTimes
from analytics.importers.command import next_command, next_line, published_line
from analytics.importers.doubts import overview_lines
from analytics.language.sentences import count
from analytics.scraped.reading import SiteReader
from analytics.scraped.server.metrics_server import MetricsServer
from analytics.scraped.source import ScrapedSource
from analytics.scraped.totals import ReadTotals
from fallow.clock import SECOND_MS, format_duration, format_ms
from fallow.lake import Lake
from fallow.pseudonyms import Pseudonyms


@dataclass(frozen=True)
class ImportWish:
    """The source, the lake and the requested window.

    `now_ms` is the server's time; the last `late_ms` may not be complete yet.
    """

    source: ScrapedSource
    server: MetricsServer
    reader: SiteReader
    lake: Lake
    pseudonyms: Pseudonyms | None
    since_ms: int
    until_ms: int
    now_ms: int
    late_ms: int
    restart: bool = False
    yes: bool = False
    machines: bool = False


@dataclass(frozen=True)
class ScrapedImport:
    """The requested import and its result."""

    wish: ImportWish
    read_from_ms: int
    """Start of this run; an earlier run has read the time before."""

    totals: ReadTotals
    seconds: float
    odd: Collection[str]
    contradictory: ContradictoryTimes
    is_published: bool

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.totals.notes(), *self.wish.server.warnings)

    @property
    def journal(self) -> Path:
        return self.wish.source.journal(self.wish.lake).path


def as_shown(done: ScrapedImport, *, machines: bool) -> str:
    """Return the result as JSON for machines, else as text."""
    return json.dumps(as_json(done), indent=2) if machines else as_text(done)


def as_text(done: ScrapedImport) -> str:
    wish, server, totals = done.wish, done.wish.server, done.totals
    rate = totals.samples / max(done.seconds, 0.001)
    return "\n".join(
        [
            f"server    {server.name} at {wish.source.address.url}, by {server.way}{_clock(server.clock_offset_ms())}",
            f"window    {format_ms(wish.since_ms)} to {format_ms(wish.until_ms)}",
            *_resumed_lines(done),
            f"read      {totals.samples:,} samples in {_seconds(done.seconds)} ({rate:,.0f}/s)",
            *_gpu_lines(totals),
            *(overview_lines(totals.overview()) if totals.rows else ()),
            *_coverage(totals),
            *_left_out(totals),
            *_user_lines(totals),
            *_server_lines(totals),
            *(f"note      {note}" for note in (*done.contradictory, *done.notes)),
            *(f"odd       {odd}" for odd in done.odd),
            f"lake      {wish.lake.root}",
            *(published_line(each) for each in totals.published.values()),
            *(
                [
                    f"journal   {done.journal} (safe to delete)",
                    next_line(next_command(wish.lake.root, format_ms(wish.since_ms))),
                ]
                if done.is_published
                else ["  nothing is published"]
            ),
        ]
    )


def as_json(done: ScrapedImport) -> dict[str, object]:
    wish, server, totals = done.wish, done.wish.server, done.totals
    return {
        "lake": wish.lake.root,
        "server": {
            "name": server.name,
            "url": wish.source.address.url,
            "way": server.way,
            "clock_offset_ms": server.clock_offset_ms(),
        },
        "since": format_ms(wish.since_ms),
        "until": format_ms(wish.until_ms),
        "read_from": format_ms(done.read_from_ms),
        "samples": totals.samples,
        "seconds": round(done.seconds, 3),
        "overview": dataclasses.asdict(totals.overview()),
        "sampled_ratio": _sampled_ratio(totals),
        "seen_ratio": totals.seen_ms / totals.interval_ms if totals.interval_ms else None,
        "rows": {"kept": totals.rows, "of_agents": totals.of_agents},
        "dropped": [
            {"reason": reason, "column": column, "count": count}
            for (reason, column), count in totals.dropped.most_common()
        ],
        "users": len(totals.users),
        "servers": {
            "count": len(totals.servers),
            "without_gpu": _servers_without_gpu(totals),
            "engines": sorted(totals.engines),
        },
        "notes": list(done.notes),
        "odd": list(done.odd),
        "contradictions": done.contradictory.as_json(),
        "published": done.is_published,
        "tables": [dataclasses.asdict(each) for each in totals.published.values()],
        "journal": str(done.journal),
        "next": next_command(wish.lake.root, format_ms(wish.since_ms)),
    }


def _clock(offset_ms: int | None) -> str:
    if offset_ms is None or abs(offset_ms) < 2 * SECOND_MS:
        return ""
    return f", whose clock is {format_duration(abs(offset_ms))} {'ahead of' if offset_ms > 0 else 'behind'} this host's"


def _resumed_lines(done: ScrapedImport) -> Iterator[str]:
    if done.read_from_ms > done.wish.since_ms:
        yield (
            f"resumed   at {format_ms(done.read_from_ms)}: an earlier run has read the time before (--restart reads it"
            " again)"
        )


def _gpu_lines(totals: ReadTotals) -> Iterator[str]:
    if totals.samples:
        yield f"GPUs      {len(totals.gpus):,} on {count(len(totals.hosts), 'host')}"
    else:
        yield "GPUs      no new rows"


def _user_lines(totals: ReadTotals) -> Iterator[str]:
    if totals.users:
        yield f"users     {len(totals.users):,} jobs and pods"
    elif totals.samples:
        yield "users     the series name none"


def _server_lines(totals: ReadTotals) -> Iterator[str]:
    if totals.servers:
        yield f"servers   {count(len(totals.servers), 'inference server')} ({', '.join(sorted(totals.engines))})"
    if without := _servers_without_gpu(totals):
        yield (
            f"          {without:,} without a known GPU: no allocation names the GPUs of the pod (label `pod` of the"
            " GPU exporter)"
        )


def _servers_without_gpu(totals: ReadTotals) -> int:
    return sum(not has_gpu for has_gpu in totals.servers.values())


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else format_duration(round(seconds) * SECOND_MS)


def _coverage(totals: ReadTotals) -> Iterator[str]:
    sampled = _sampled_ratio(totals)
    if sampled is not None:
        yield (
            f"coverage  samples cover {sampled:.1%} of the GPUs' time; utilization was certainly measured in "
            f"{totals.seen_ms / totals.interval_ms:.1%} of that"
        )


def _sampled_ratio(totals: ReadTotals) -> float | None:
    """Return the share of the time from the first to the last row of all GPUs that samples cover; None without rows."""
    return totals.interval_ms / (totals.span_ms * len(totals.gpus)) if totals.span_ms and totals.gpus else None


def _left_out(totals: ReadTotals) -> Iterator[str]:
    if totals.of_agents:
        yield f"  {totals.of_agents:,} rows left out: agents have these GPUs and times, and their rows count"
    for (reason, column), number in totals.dropped.most_common():
        what = f"values of {column} unknown" if column else "dropped"
        yield f"  {number:,} {what}: {reason}"

"""The result of an import from a metrics server, for people and for machines."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from analytics.contradictions.recorded import ContradictoryTimes
from analytics.importers.command import published_line
from analytics.importers.doubts import overview_lines
from analytics.language.sentences import count
from analytics.scraped.totals import ReadTotals
from fallow.clock import SECOND_MS, format_duration, format_ms


@dataclass(frozen=True)
class ScrapedImport:
    """The requested import, the server, and the result."""

    server: str
    url: str
    way: str
    clock_offset_ms: int | None
    since_ms: int
    until_ms: int
    read_from_ms: int
    """Start of this run; an earlier run has read the time before."""

    totals: ReadTotals
    seconds: float
    odd: tuple[str, ...]
    contradictory: ContradictoryTimes
    warnings: tuple[str, ...]
    lake: str
    journal: Path
    is_published: bool

    @property
    def rate(self) -> float:
        return self.totals.samples / max(self.seconds, 0.001)

    @property
    def next_command(self) -> str:
        return f"fallow recommendations --lake {shlex.quote(self.lake)} --since {format_ms(self.since_ms)}"


def as_shown(done: ScrapedImport, *, machines: bool) -> str:
    """Return the result as JSON for machines, else as text."""
    return json.dumps(as_json(done), indent=2) if machines else as_text(done)


def as_text(done: ScrapedImport) -> str:
    totals, overview = done.totals, done.totals.overview()
    return "\n".join(
        [
            f"server    {done.server} at {done.url}, by {done.way}{_clock(done.clock_offset_ms)}",
            f"window    {format_ms(done.since_ms)} to {format_ms(done.until_ms)}",
            *_resumed_lines(done),
            f"read      {totals.samples:,} samples in {_seconds(done.seconds)} ({done.rate:,.0f}/s)",
            *_gpu_lines(totals),
            *(overview_lines(overview) if totals.rows else ()),
            *_coverage(totals),
            *_left_out(totals),
            *_user_lines(totals),
            *_server_lines(totals),
            *(f"note      {note}" for note in (*done.contradictory, *totals.notes(), *done.warnings)),
            *(f"odd       {odd}" for odd in done.odd),
            f"lake      {done.lake}",
            *(published_line(each) for each in totals.published.values()),
            *(
                [f"journal   {done.journal} (safe to delete)", f"next      {done.next_command}"]
                if done.is_published
                else ["  nothing is published"]
            ),
        ]
    )


def as_json(done: ScrapedImport) -> dict[str, object]:
    totals = done.totals
    return {
        "lake": done.lake,
        "server": {"name": done.server, "url": done.url, "way": done.way, "clock_offset_ms": done.clock_offset_ms},
        "since": format_ms(done.since_ms),
        "until": format_ms(done.until_ms),
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
        "notes": [*totals.notes(), *done.warnings],
        "odd": list(done.odd),
        "contradictions": done.contradictory.as_json(),
        "published": done.is_published,
        "tables": [dataclasses.asdict(each) for each in totals.published.values()],
        "journal": str(done.journal),
        "next": done.next_command,
    }


def _clock(offset_ms: int | None) -> str:
    if offset_ms is None or abs(offset_ms) < 2 * SECOND_MS:
        return ""
    return f", whose clock is {format_duration(abs(offset_ms))} {'ahead of' if offset_ms > 0 else 'behind'} this host's"


def _resumed_lines(done: ScrapedImport) -> Iterator[str]:
    if done.read_from_ms > done.since_ms:
        yield f"resumed   at {format_ms(done.read_from_ms)}: an earlier run has read the time before (--restart reads it again)"


def _gpu_lines(totals: ReadTotals) -> Iterator[str]:
    overview = totals.overview()
    if totals.samples:
        yield f"GPUs      {overview.gpus:,} on {len(overview.hosts):,} host{'' if len(overview.hosts) == 1 else 's'}"
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
        yield f"          {without:,} without a known GPU: no allocation names the GPUs of the pod (label `pod` of the GPU exporter)"


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
    span_ms = 0 if totals.first_ms is None or totals.end_ms is None else totals.end_ms - totals.first_ms
    return totals.interval_ms / (span_ms * len(totals.gpus)) if span_ms and totals.gpus else None


def _left_out(totals: ReadTotals) -> Iterator[str]:
    if totals.of_agents:
        yield f"  {totals.of_agents:,} rows left out: agents have these GPUs and times, and their rows count"
    for (reason, column), number in totals.dropped.most_common():
        what = f"values of {column} unknown" if column else "dropped"
        yield f"  {number:,} {what}: {reason}"

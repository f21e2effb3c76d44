"""`fallow import KIND FILE ...`: reads files, asks about odd data, fills the lake, and accounts for every row."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
from collections.abc import Iterable

from analytics.contradictions.recorded import ContradictoryTimes
from analytics.importers.doubts import ImportOverview, ask, doubts, overview_lines, overview_of
from analytics.importers.kinds import open_lake, pseudonymised, pseudonyms_of, with_progress
from analytics.importers.model import FileReport, Imported
from analytics.importers.publish import Published, publish
from analytics.importers.source import InputLimits
from analytics.language.sentences import count
from fallow.clock import SystemClock, format_ms
from fallow.output import show


@dataclasses.dataclass(frozen=True)
class ImportOutcome:
    """The result of an import: the data, its figures, the doubts, and what was published."""

    imported: Imported
    overview: ImportOverview
    odd: tuple[str, ...]
    contradictory: ContradictoryTimes
    published: tuple[Published, ...] | None
    """None where nothing was published."""

    lake: str


def as_shown(outcome: ImportOutcome, *, machines: bool) -> str:
    return json.dumps(as_json(outcome), indent=2) if machines else as_text(outcome)


def as_json(outcome: ImportOutcome) -> dict[str, object]:
    imported = outcome.imported
    since, until = _window(imported)
    dropped = sum(each.count for report in imported.files for each in report.dropped)
    kept = sum(report.rows_kept for report in imported.files)
    return {
        "lake": outcome.lake,
        "host": imported.host,
        "since": since,
        "until": until,
        "gpus": outcome.overview.gpus,
        "interval": imported.interval,
        "timezone": imported.timezone,
        "notes": list(imported.notes),
        "overview": dataclasses.asdict(outcome.overview),
        "rows": {"read": kept + dropped, "dropped": dropped, "merged": imported.merged, "kept": outcome.overview.rows},
        "odd": list(outcome.odd),
        "contradictions": outcome.contradictory.as_json(),
        "published": outcome.published is not None,
        "files": [dataclasses.asdict(report) for report in imported.files],
        "tables": [dataclasses.asdict(each) for each in outcome.published or ()],
        "next": next_command(outcome.lake, since),
    }


def as_text(outcome: ImportOutcome) -> str:
    imported = outcome.imported
    since, until = _window(imported)
    lines = [line for report in imported.files for line in _file_lines(report)]
    names = outcome.overview.hosts
    hosts = count(len(names), "host") if imported.by_host else f"host {imported.host}"
    lines += [
        f"window    {since} to {until}",
        f"GPUs      {outcome.overview.gpus:,} on {hosts}",
        *overview_lines(outcome.overview),
        f"interval  {imported.interval}",
        f"time zone {imported.timezone}",
        *(f"note      {note}" for note in imported.notes),
        *(f"note      {each}" for each in outcome.contradictory),
        *(f"odd       {odd}" for odd in outcome.odd),
        f"lake      {outcome.lake}",
        *(published_line(each) for each in outcome.published or ()),
        "  nothing is published" if outcome.published is None else next_line(next_command(outcome.lake, since)),
    ]
    return "\n".join(lines)


def next_command(lake: str, since: str) -> str:
    """Return the command that shows what the imported data are good for."""
    return f"fallow recommendations --lake {shlex.quote(lake)} --since {since}"


def next_line(command: str) -> str:
    return f"next      {command}"


def _file_lines(report: FileReport) -> list[str]:
    return [
        f"{report.path}: {report.lines_read:,} lines read, {report.rows_kept:,} rows kept",
        *(f"  {each.count:,} dropped: {each.reason}" for each in report.dropped),
        *(f"  {each.count:,} values of {each.column} unknown: {each.reason}" for each in report.nulled),
        *(f"  {note}" for note in report.notes),
    ]


def published_line(published: Published) -> str:
    if not (published.new or published.replaced):
        return f"  {published.table}: already there: {published.already_there:,} rows"
    files = "file" if published.files_written == 1 else "files"
    return (
        f"  {published.table}: {published.new:,} rows new, {published.already_there:,} already there, "
        f"{published.replaced:,} replaced; {published.files_written:,} {files} written"
    )


def _sums(published: Iterable[Published]) -> tuple[Published, ...]:
    """Return one result per table."""
    found: dict[str, Published] = {}
    for each in published:
        found[each.table] = found[each.table].plus(each) if each.table in found else each
    return tuple(found.values())


def _window(imported: Imported) -> tuple[str, str]:
    """Return the first sample's time and the end of the last interval."""
    moments = imported.gpu.select(
        first=imported.gpu["time"].dt.epoch("ms").min(),
        last=(imported.gpu["time"].dt.epoch("ms") + imported.gpu["interval_ms"]).max(),
    )
    return format_ms(moments["first"][0]), format_ms(moments["last"][0])


def run(args: argparse.Namespace) -> int:
    settings, lake = open_lake(args)
    pseudonyms = pseudonyms_of(args, settings)
    imported = pseudonymised(args.importer.read(args, InputLimits.of(settings)), pseudonyms)
    overview = overview_of(imported)
    odd = doubts(imported, overview, SystemClock().now_ms())
    contradictory = ContradictoryTimes()
    contradictory.add(imported.gpu)
    outcome = ImportOutcome(imported, overview, odd, contradictory, None, lake.root)
    if args.check:
        show(as_shown(outcome, machines=args.json))
        return 0
    if odd and not args.yes:
        ask(odd, as_text(outcome), as_shown(outcome, machines=args.json))
    parts = with_progress(imported.by_host or (imported,), "publishing")
    outcome = dataclasses.replace(outcome, published=_sums(each for part in parts for each in publish(lake, part)))
    show(as_shown(outcome, machines=args.json))
    return 0

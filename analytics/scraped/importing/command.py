"""`fallow import prometheus`: what a metrics server has of GPUs, into the lake, day by day and host by host."""

from __future__ import annotations

import argparse

from analytics.importers.pseudonymised import pseudonyms_of
from analytics.language.plain_text import page_columns
from analytics.scraped.chunks import days
from analytics.scraped.importing.server_import import ImportParts, ImportWish, ServerImport
from analytics.scraped.importing.summary import as_shown
from analytics.scraped.mapping.check import check_json, check_text
from analytics.scraped.mapping.recognition import recognised
from analytics.scraped.reading import SiteReader
from analytics.scraped.server_flags import add_server_flags, server_settings
from analytics.scraped.source import ScrapedSource
from fallow.clock import HOUR_MS, SystemClock, Window, parse_window
from fallow.errors import UsageError
from fallow.lake import Lake
from fallow.output import show


class ImportPrometheus:
    """The kind of history that a metrics server has."""

    name = "prometheus"
    summary = "what a Prometheus, Thanos, Mimir or VictoriaMetrics has scraped of GPUs"
    example = "fallow import prometheus --url http://prometheus:9090 --since 30d --lake /srv/lake"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_server_flags(parser)
        parser.add_argument("--since", default="30d", metavar="WHEN", help="from when on (default: 30d)")
        parser.add_argument("--until", metavar="WHEN", help="until when (default: now)")
        parser.add_argument(
            "--check", action="store_true", help="only say what is found, how it is read and what is missing"
        )
        parser.add_argument("--restart", action="store_true", help="read again what an earlier run has read")


def run(args: argparse.Namespace) -> int:
    """Raises InputError, UsageError and LakeError; what is in the lake then is whole, and the same import goes on from there."""
    settings = server_settings(args)
    source, pseudonyms = ScrapedSource.of(settings), pseudonyms_of(args, settings)
    with source.connect() as server, SiteReader(server, source) as reader:
        now_ms = SystemClock().now_ms() + (server.clock_offset_ms() or 0)
        window = _window(args, now_ms)
        if args.check:
            _check(args, source, reader, window)
            return 0
        done = ServerImport(
            ImportParts(source, server, reader, Lake.at(settings.require("lake.path", "--lake"))),
            ImportWish(*window, now_ms, settings.integer("prometheus.late"), args.restart, args.yes, args.json),
            pseudonyms,
        ).run()
        show(as_shown(done, machines=args.json))
    return 0


def _window(args: argparse.Namespace, now_ms: int) -> tuple[int, int]:
    asked: Window = parse_window(args.since, args.until)
    since_ms, until_ms = asked.since_ms or 0, min(asked.until_ms or now_ms, now_ms)
    if since_ms >= until_ms:
        raise UsageError(f"--since {args.since} is not before now, by the server's clock", "widen the window")
    return since_ms, until_ms


def _check(args: argparse.Namespace, source: ScrapedSource, reader: SiteReader, window: tuple[int, int]) -> None:
    """Of the last hour of the window, or the newest day that has anything."""
    since_ms, until_ms = window
    looks = [(max(since_ms, until_ms - HOUR_MS), until_ms), *reversed(list(days(since_ms, until_ms)))]
    for start_ms, end_ms in looks:
        found = recognised(reader.labels(start_ms, end_ms), source.exporters)
        if found.gpus or start_ms == since_ms:
            show(check_json(found) if args.json else check_text(found, page_columns()))
            return

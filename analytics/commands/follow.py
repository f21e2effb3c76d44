"""`fallow follow SOURCE`: the table of live sources. A source is one entry in SOURCES and one module, with a command's two functions."""

from __future__ import annotations

import argparse

from fallow.cli import Command, load

SOURCES: tuple[Command, ...] = (
    Command("prometheus", "keep up with a metrics server that scrapes GPU exporters",
            "fallow follow prometheus --url http://prometheus:9090 --lake /srv/lake",
            "analytics.scraped.follower", "analytics"),
    Command("otlp", "take OpenTelemetry metrics that collectors push over OTLP/HTTP",
            "fallow follow otlp --listen 127.0.0.1:4318 --spool /var/lib/fallow-otlp --lake /srv/lake",
            "analytics.scraped.otlp.command", "analytics"),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds every source with its own flags."""
    sources = parser.add_subparsers(metavar="SOURCE", required=True, title="live sources")
    for source in SOURCES:
        module = load(source)
        source_parser = sources.add_parser(
            source.name,
            help=source.summary,
            description=f"{source.summary[0].upper()}{source.summary[1:]}.",
            epilog=f"example: {source.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(source_parser)
        source_parser.set_defaults(run_source=module.run)


def run(args: argparse.Namespace) -> int:
    """Follows the source until it is told to stop."""
    code: int = args.run_source(args)
    return code

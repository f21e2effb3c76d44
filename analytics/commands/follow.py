"""`fallow follow SOURCE`: the table of live sources. A source is one entry in SOURCES and one module, with a command's two functions."""

from __future__ import annotations

import argparse

from fallow.cli import Command, add_verbs

SOURCES: tuple[Command, ...] = (
    Command(
        "prometheus",
        "keep up with a metrics server that scrapes GPU exporters",
        "fallow follow prometheus --url http://prometheus:9090 --lake /srv/lake",
        "analytics.scraped.follower",
        "analytics",
    ),
    Command(
        "otlp",
        "take OpenTelemetry metrics that collectors push over OTLP/HTTP",
        "fallow follow otlp --listen 127.0.0.1:4318 --spool /var/lib/fallow-otlp --lake /srv/lake",
        "analytics.scraped.otlp.command",
        "analytics",
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds every source with its own flags."""
    add_verbs(parser, SOURCES, "SOURCE")


def run(args: argparse.Namespace) -> int:
    """Follows the source until it is told to stop."""
    code: int = args.run_verb(args)
    return code

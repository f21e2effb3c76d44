"""`fallow import prometheus`: what a metrics server has of GPUs, into the lake."""

from __future__ import annotations

import argparse

from analytics.scraped.server_flags import add_server_flags
from fallow.errors import UsageError


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
    raise UsageError(f"import {args.import_kind} is not ready")

"""`fallow follow prometheus`: keeps the lake up with a metrics server until it is told to stop."""

from __future__ import annotations

import argparse

from analytics.importers.pseudonymised import add_key_argument
from analytics.scraped.server_flags import add_server_flags
from fallow.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_server_flags(parser)
    parser.add_argument("--every", metavar="DURATION", help="how often to read (default: prometheus.every)")
    parser.add_argument("--late", metavar="DURATION", help="how far back to read again (default: prometheus.late)")
    parser.add_argument("--listen", metavar="ADDRESS", help="where /metrics and /healthz are (default: follow.listen)")
    parser.add_argument("--lake", help="folder of the lake (default: lake.path of the config)")
    parser.add_argument("--config", metavar="FILE", help="config file to read instead of the usual one")
    add_key_argument(parser)


def run(args: argparse.Namespace) -> int:
    raise UsageError(f"follow {args.lake} is not ready")

"""`fallow import KIND`: history from files, and from a metrics server."""

from __future__ import annotations

import argparse

from analytics.importers import IMPORTERS
from analytics.importers import command as files
from analytics.importers.kinds import add_kinds
from analytics.importers.model import Kind
from analytics.scraped import server_import as prometheus


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds: tuple[Kind, ...] = (*IMPORTERS, prometheus.ImportPrometheus())
    for kind, subcommand in add_kinds(parser, "kinds of history", kinds):
        subcommand.add_argument(
            "--yes",
            action="store_true",
            help="publish data that looks wrong too (default: ask on a terminal, else refuse)",
        )
        if isinstance(kind, prometheus.ImportPrometheus):
            subcommand.set_defaults(import_kind=prometheus.run)
        else:
            subcommand.add_argument("--check", action="store_true", help="only print what the files would give")
            subcommand.set_defaults(import_kind=files.run, importer=kind)


def run(args: argparse.Namespace) -> int:
    code: int = args.import_kind(args)
    return code

"""`fallow claims import slurm`: jobs of Slurm's accounting, from files that sacct wrote or from sacct itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.allocations.model import ReadClaims
from analytics.allocations.slurm_jobs import claim_rows
from analytics.allocations.slurm_live import Live
from analytics.importers.source import open_source
from analytics.importers.times import check_zone
from fallow.errors import InputError, UsageError

if TYPE_CHECKING:
    import argparse

    from analytics.allocations.model import Surroundings


class Slurm:
    """Jobs of one cluster."""

    name = "slurm"
    summary = "jobs that Slurm's accounting knows: text of sacct --parsable2, or --live from sacct itself"
    example = "fallow claims import slurm jobs.txt --time-zone Europe/Paris --lake /srv/lake"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Adds the source's own flags."""
        parser.add_argument("files", nargs="*", metavar="FILE", help="what sacct --parsable2 printed, plain or gzipped")
        parser.add_argument(
            "--live", action="store_true", help="run sacct here, and scontrol for which GPUs running jobs have"
        )
        parser.add_argument("--since", metavar="TIME", help="with --live: jobs that ran since then (default: 7d)")
        parser.add_argument("--sacct", metavar="COMMAND",
                            help="with --live: the command (default: beside slurm.scontrol of the config, else from PATH)")  # fmt: skip
        parser.add_argument("--time-zone", "--tz", dest="zone", metavar="ZONE",
                            help="the cluster's time zone: sacct writes local time (default: UTC)")  # fmt: skip
        parser.add_argument("--host-suffix", default="", metavar="TEXT",
                            help="what the lake's host names have behind the node's, such as .cluster.example")  # fmt: skip

    def read(self, args: argparse.Namespace, around: Surroundings) -> ReadClaims:
        """Reads files or runs the commands; raises InputError or UsageError."""
        if args.live == bool(args.files):
            raise UsageError(
                "claims import slurm: " + ("give either files or --live" if args.live else "there is nothing to read"),
                "name files that sacct wrote, or add --live where Slurm's commands are",
            )
        if args.live:
            if args.zone:
                raise UsageError("--time-zone has no meaning with --live", "leave it out: sacct is asked for UTC")
            return Live(args, around).read()
        if args.since or args.sacct:
            raise UsageError("--since and --sacct are for --live", "leave them out, or give --live and no files")
        return self._files(args, around)

    def _files(self, args: argparse.Namespace, around: Surroundings) -> ReadClaims:
        zone = check_zone(args.zone or "UTC", "--time-zone")
        read = []
        for path in around.progress.each(args.files, "reading"):
            source = open_source(path)
            if source.text is None:
                raise InputError(f"{path} is Parquet, not the text of sacct", "export the jobs with sacct --parsable2")
            if source.cut_off:
                raise InputError(f"{path} is cut off: its end is missing", "fetch it again")
            read.append(
                claim_rows(path, source.text.decode(), zone, lambda node: around.hosts.named(node, args.host_suffix))
            )
        frames = [jobs.rows for jobs in read]
        known = [jobs.as_of_ms for jobs in read if jobs.as_of_ms is not None]
        assumed = "" if args.zone else " (assumed)"
        return ReadClaims(
            pl.concat(frames), tuple(jobs.report for jobs in read), zone + assumed, max(known, default=None)
        )

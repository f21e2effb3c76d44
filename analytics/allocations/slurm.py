"""`fallow allocations import slurm`: jobs from files that sacct wrote, or from sacct and scontrol themselves.

Accounting only counts GPUs, so a snapshot of scontrol that was saved beside an export is all that names them afterwards: positions on a
node, and the UUIDs that the lake's inventory has there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from analytics.allocations.model import ROW_SCHEMA, KnownHosts, ReadAllocations, Surroundings
from analytics.allocations.slurm_jobs import allocation_rows
from analytics.allocations.slurm_output import EXPORT, JobGpus, expand, gres_positions, job_gpus, json_jobs, json_number
from analytics.allocations.times import read_moments
from analytics.importers.kinds import with_progress
from analytics.importers.source import InputLimits, open_source
from analytics.importers.times import check_zone
from fallow.clock import SystemClock, from_ms, parse_window
from fallow.errors import InputError, UsageError

SNAPSHOT = "scontrol show job --details"
_SHOWN = pl.Schema({"claim_id": pl.String(), "host": pl.String(), "_gpus": pl.List(pl.String), "start": pl.String()})


def read_snapshot(path: str, limits: InputLimits) -> list[JobGpus]:
    """What one file shows, text or JSON, plain or gzipped; raises InputError."""
    source = open_source(path, limits)
    if source.text is None or source.cut_off:
        raise InputError(f"{path} is {'cut off' if source.cut_off else 'no text'}", f"save it again with: {SNAPSHOT}")
    if source.text.lstrip().startswith(b"{"):
        program = ("scontrol", "scontrol show job --json")
        return [each for job in json_jobs(path, source.text, limits, program, _json_gpus) for each in job]
    if not source.text.lstrip().startswith((b"JobId=", b"No jobs")):
        raise InputError(f"{path} is not what scontrol shows of jobs", f"save it while they run, with: {SNAPSHOT}")
    try:
        return list(job_gpus(source.text.decode(errors="replace")))
    except ValueError as error:
        raise InputError(
            f"{path} is not what scontrol shows of jobs: {error}", f"save it again with: {SNAPSHOT}"
        ) from error


def _json_gpus(job: dict[str, Any]) -> list[JobGpus]:
    """One per node, in the order of its list."""
    details = job.get("gres_detail") or []
    nodes = expand(job["nodes"]) if details and job.get("nodes") else ()
    start = json_number(job.get("start_time")) or ""
    return [
        JobGpus(str(job["job_id"]), node, positions, start)
        for node, gres in zip(nodes, details, strict=True)
        if (positions := gres_positions(gres))
    ]


def on_shown_gpus(
    rows: pl.DataFrame,
    shown: Iterable[JobGpus],
    hosts: KnownHosts,
    host_of: Callable[[str], str],
    zone: str | None = None,
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The rows, with one row per GPU where what is shown and the inventory name all of them; and notes.

    Args:
        rows: allocations of Slurm, with ROW_SCHEMA.
        shown: jobs on their nodes.
        hosts: the inventory.
        host_of: the lake's name for a node.
        zone: of a saved snapshot the time zone of its text: it is of the runs that began then, over or not. None: of running jobs, now.
    """
    found, unknown = _on_uuids(shown, hosts, host_of)
    notes = (
        [
            f"the inventory of {len(unknown)} hosts is not in the lake, so which GPUs jobs have there is not known: "
            + ", ".join(sorted(unknown)[:3])
        ]
        if unknown
        else []
    )
    on = ["claim_id", "host"]
    if zone is not None:
        if not found.height and not unknown:
            notes.append(f"what scontrol shows names no GPU of any job: save it while they run, with: {SNAPSHOT}")
        found = found.with_columns(time=read_moments(found["start"], zone).first).drop_nulls("time")
        on.append("time")
    known = rows.join(found.drop("start").unique(on, keep="last"), on=on, how="left", maintain_order="left")
    # a job that was resized meanwhile is not on what is shown
    fits = pl.col("_gpus").list.len() == pl.col("host_gpu_count").fill_null(pl.col("_gpus").list.len())
    if zone is None:  # nor is one that is over by now
        fits &= pl.col("end").is_null()
    fits = fits.fill_null(value=False)
    placed = known.filter(fits).drop("gpu").explode("_gpus").rename({"_gpus": "gpu"})
    placed = placed.with_columns(host_gpu_count=pl.lit(None, pl.Int32)).select(*ROW_SCHEMA)
    return pl.concat([known.filter(~fits).select(*ROW_SCHEMA), placed]), tuple(notes)


def _on_uuids(
    shown: Iterable[JobGpus], hosts: KnownHosts, host_of: Callable[[str], str]
) -> tuple[pl.DataFrame, set[str]]:
    """The jobs with the UUIDs of their GPUs, and the hosts where these are not known."""
    found, unknown = [], set()
    for each in shown:
        host = host_of(each.node)
        gpus = hosts.at(host, each.positions)
        if gpus is None:
            unknown.add(host)
        else:
            found.append((each.job_id, host, gpus, each.start))
    return pl.DataFrame(found, schema=_SHOWN, orient="row"), unknown


_TIMEOUT_S = 600
_SINCE = "7d"


class CommandError(Exception):
    """A command of Slurm failed; the message says why."""


class Live:
    def __init__(self, args: argparse.Namespace, around: Surroundings) -> None:
        self._around = around
        self._suffix: str = args.host_suffix
        self._since_ms = parse_window(args.since or _SINCE, None).since_ms or 0
        self._scontrol = around.settings.text("slurm.scontrol")
        self._sacct: str = args.sacct or _beside(self._scontrol, "sacct")

    def read(self) -> ReadAllocations:
        """The jobs since then; raises InputError where sacct cannot be asked."""
        since = from_ms(self._since_ms).strftime("%Y-%m-%dT%H:%M:%S")
        as_of_ms = SystemClock().now_ms()
        try:
            text = _output([self._sacct, *EXPORT.split()[1:], f"--starttime={since}"])
        except CommandError as error:
            raise InputError(
                f"cannot run sacct: {error}",
                "run this where Slurm's commands are or name it with --sacct; or export there and import the file",
            ) from error
        jobs = allocation_rows(self._sacct, text, "UTC", self._host, InputLimits.of(self._around.settings))
        rows, notes = self._on_gpus(jobs.rows)
        requests = jobs.requests.with_columns(as_of=pl.lit(as_of_ms))
        return ReadAllocations(rows, requests, (jobs.report,), "UTC (asked for)", as_of_ms, notes)

    def _host(self, node: str) -> str:
        return self._around.hosts.named(node, self._suffix)

    def _on_gpus(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
        """The rows, with one row per GPU for running jobs where scontrol and the inventory name the GPUs; and notes."""
        if not self._scontrol or not rows["end"].null_count():
            return rows, ()
        try:
            text = _output([self._scontrol, "show", "job", "--details"])
        except CommandError as error:
            return rows, (f"cannot run scontrol, so the GPUs of running jobs are not known: {error}",)
        return on_shown_gpus(rows, job_gpus(text.decode(errors="replace")), self._around.hosts, self._host)


def _beside(scontrol: str, name: str) -> str:
    """The command in the folder of scontrol where that is given with one, else from PATH."""
    return str(Path(scontrol).with_name(name)) if "/" in scontrol else name


def _output(command: Sequence[str]) -> bytes:
    """What the command prints, with every time as epoch seconds; raises CommandError."""
    environment = os.environ | {"TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
            env=environment,
        )
    except FileNotFoundError:
        raise CommandError(f"there is no command {command[0]} here") from None
    except OSError as error:
        raise CommandError(f"{command[0]} could not be started: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise CommandError(f"{command[0]} did not answer within {_TIMEOUT_S} s") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise CommandError(
            f"{command[0]} said: {said[-1][:200]}" if said else f"{command[0]} ended with code {done.returncode}"
        )
    return done.stdout


class Slurm:
    name = "slurm"
    summary = "jobs of Slurm accounting: output of sacct --parsable2 or --json, or --live from sacct itself"
    example = "fallow allocations import slurm jobs.txt --time-zone Europe/Paris --lake /srv/lake"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "files", nargs="*", metavar="FILE", help="output of sacct --parsable2 or sacct --json, plain or gzipped"
        )
        parser.add_argument(
            "--live", action="store_true", help="run sacct here, and scontrol for which GPUs running jobs have"
        )
        parser.add_argument("--since", metavar="TIME", help="with --live: jobs that ran since then (default: 7d)")
        parser.add_argument(
            "--sacct",
            metavar="COMMAND",
            help="with --live: the command (default: beside slurm.scontrol of the config, else from PATH)",
        )
        parser.add_argument(
            "--scontrol",
            nargs="+",
            default=[],
            metavar="FILE",
            help=f"with files: output of {SNAPSHOT} (or with --json) from while the jobs ran, for which GPUs they had",
        )
        parser.add_argument(
            "--time-zone",
            "--tz",
            dest="zone",
            metavar="ZONE",
            help="the cluster's time zone: sacct writes local time (default: UTC)",
        )
        parser.add_argument(
            "--host-suffix",
            default="",
            metavar="TEXT",
            help="what the lake's host names have behind the node's, such as .cluster.example",
        )

    def read(self, args: argparse.Namespace, around: Surroundings) -> ReadAllocations:
        """Reads files or runs the commands; raises InputError or UsageError."""
        if args.live == bool(args.files):
            raise UsageError(
                "allocations import slurm: "
                + ("give either files or --live" if args.live else "there is nothing to read"),
                "name files that sacct wrote, or add --live where Slurm's commands are",
            )
        if args.live:
            if args.zone:
                raise UsageError("--time-zone has no meaning with --live", "leave it out: sacct is asked for UTC")
            if args.scontrol:
                raise UsageError("--scontrol is for files", "leave it out: with --live scontrol itself is asked")
            return Live(args, around).read()
        if args.since or args.sacct:
            raise UsageError("--since and --sacct are for --live", "leave them out, or give --live and no files")
        return self._files(args, around)

    def _files(self, args: argparse.Namespace, around: Surroundings) -> ReadAllocations:
        zone = check_zone(args.zone or "UTC", "--time-zone")
        limits, read = InputLimits.of(around.settings), []

        def host_of(node: str) -> str:
            return around.hosts.named(node, args.host_suffix)

        for path in with_progress(args.files, "reading"):
            source = open_source(path, limits)
            if source.text is None:
                raise InputError(f"{path} is Parquet, not the text of sacct", "export the jobs with sacct --parsable2")
            if source.cut_off:
                raise InputError(f"{path} is cut off: its end is missing", "fetch it again")
            read.append(allocation_rows(path, source.text, zone, host_of, limits))
        known = [jobs.as_of_ms for jobs in read if jobs.as_of_ms is not None]
        assumed = "" if args.zone else " (assumed)"
        rows = pl.concat([jobs.rows for jobs in read])
        notes: tuple[str, ...] = ()
        if args.scontrol:
            shown = [each for path in args.scontrol for each in read_snapshot(path, limits)]
            rows, notes = on_shown_gpus(rows, shown, around.hosts, host_of, zone)
        return ReadAllocations(
            rows,
            pl.concat([jobs.requests for jobs in read]),
            tuple(jobs.report for jobs in read),
            zone + assumed,
            max(known, default=None),
            notes,
        )

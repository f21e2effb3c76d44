"""`fallow allocations import slurm`: jobs from files that sacct wrote, or from sacct and scontrol themselves.

Accounting only counts GPUs. A snapshot of scontrol that was saved beside an export is therefore the only later source
of their names: positions on a node, and the UUIDs that the lake's inventory has at these positions.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from analytics.allocations.model import ROW_SCHEMA, KnownHosts, ReadAllocations, Surroundings
from analytics.allocations.slurm_jobs import Clusters, allocation_rows
from analytics.allocations.slurm_limits import ASSOCIATIONS, QOS, GpuLimits
from analytics.allocations.slurm_output import EXPORT, JobGpus, read_jobs
from analytics.allocations.slurm_state import (
    SINFO,
    SNAPSHOT,
    SlurmState,
    read_snapshot,
    state_of,
    with_reasons,
    withheld_rows,
)
from analytics.allocations.times import read_moments
from analytics.importers.kinds import with_progress
from analytics.importers.source import InputLimits, open_source
from analytics.importers.times import check_zone, import_zone
from analytics.language.languages import site_zone
from fallow.clock import SystemClock, from_ms, parse_window
from fallow.errors import InputError, UsageError

_SHOWN = pl.Schema(
    {"allocation_id": pl.String(), "host": pl.String(), "_gpus": pl.List(pl.String), "start": pl.String()}
)


def on_shown_gpus(
    rows: pl.DataFrame,
    shown: Iterable[JobGpus],
    hosts: KnownHosts,
    host_of: Callable[[str], str],
    zone: str | None = None,
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Return the rows (ROW_SCHEMA), with one row per GPU where snapshot and inventory name all of them, and notes.

    `zone` is that of a saved snapshot, which covers runs that started then, ended or not. None: running jobs, now.
    """
    found, unknown = _rows_on_uuids(shown, hosts, host_of)
    notes = (
        [
            f"the inventory of {len(unknown)} hosts is not in the lake, so the GPUs of jobs there are not known: "
            + ", ".join(sorted(unknown)[:3])
        ]
        if unknown
        else []
    )
    on = ["allocation_id", "host"]
    if zone is not None:
        if not found.height and not unknown:
            notes.append(f"scontrol's output names no GPU of any job: save it while jobs run, with: {SNAPSHOT}")
        found = found.with_columns(time=read_moments(found["start"], zone).first).drop_nulls("time")
        on.append("time")
    known = rows.join(found.drop("start").unique(on, keep="last"), on=on, how="left", maintain_order="left")
    # a job that was resized since is not in the snapshot
    fits = pl.col("_gpus").list.len() == pl.col("host_gpu_count").fill_null(pl.col("_gpus").list.len())
    if zone is None:  # nor is a job that has ended by now
        fits &= pl.col("end").is_null()
    fits = fits.fill_null(value=False)
    placed = known.filter(fits).drop("gpu").explode("_gpus").rename({"_gpus": "gpu"})
    placed = placed.with_columns(host_gpu_count=pl.lit(None, pl.Int32)).select(*ROW_SCHEMA)
    return pl.concat([known.filter(~fits).select(*ROW_SCHEMA), placed]), tuple(notes)


def _rows_on_uuids(
    shown: Iterable[JobGpus], hosts: KnownHosts, host_of: Callable[[str], str]
) -> tuple[pl.DataFrame, set[str]]:
    """Return the jobs with the UUIDs of their GPUs, and the hosts where these are not known."""
    found, unknown = [], set()
    for each in shown:
        host = host_of(each.node)
        gpus = hosts.at(host, each.positions)
        if gpus is None:
            unknown.add(host)
        else:
            found.append((each.job_id, host, gpus, each.start))
    return pl.DataFrame(found, schema=_SHOWN, orient="row"), unknown


_ASKED = (
    (
        "scontrol",
        (("show", "job", "--details"), ("show", "reservation")),
        "the GPUs of running jobs, why others wait, and which hosts are reserved",
    ),
    ("sinfo", (SINFO[1:],), "the hosts on which no job starts"),
)
"""Commands of Slurm, their arguments, and what is not known without them."""
_WAITS = pl.col("withdrawn").is_null()
_NO_REASON = pl.col("reason").is_null()
_TIMEOUT_S = 600
_SINCE = "7d"


class CommandError(Exception):
    """A command of Slurm failed; the message says why."""


class Live:
    def __init__(self, args: argparse.Namespace, around: Surroundings) -> None:
        self._around = around
        self._suffix: str = args.host_suffix
        self._since_ms = parse_window(args.since or _SINCE, None, zone=site_zone(around.settings)).since_ms or 0
        self._scontrol = around.settings.text("slurm.scontrol")
        self._sacct: str = args.sacct or _sibling_command(self._scontrol, "sacct")
        self._sacctmgr = _sibling_command(self._sacct, "sacctmgr")

    def read(self) -> ReadAllocations:
        """Return the jobs since then. Raises InputError where sacct does not answer."""
        since = from_ms(self._since_ms).strftime("%Y-%m-%dT%H:%M:%S")
        as_of_ms = SystemClock().now_ms()
        try:
            text = _output([self._sacct, *EXPORT.split()[1:], f"--starttime={since}"])
        except CommandError as error:
            raise InputError(
                f"cannot run sacct: {error}",
                "run this where Slurm's commands are, or name sacct with --sacct; or export there and import the file",
            ) from error
        lines = {self._sacct: read_jobs(self._sacct, text, InputLimits.of(self._around.settings))}
        shown, failed = self._snapshot()
        limits, also_failed = self._gpu_limits()
        failed += also_failed
        read = _allocations(self._around, self._suffix, lines, "UTC", shown, failed=failed, asked_ms=as_of_ms)
        requests = limits.with_limits(read.requests).with_columns(as_of=pl.lit(as_of_ms))
        return replace(read, requests=requests, time_zone="UTC (asked for)")

    def _gpu_limits(self) -> tuple[GpuLimits, tuple[str, ...]]:
        """Return Slurm's limits, and a note if sacctmgr fails; none without scontrol, which names why a job waits."""
        if not self._scontrol:
            return GpuLimits(), ()
        try:
            texts = [_output([self._sacctmgr, *asked]).decode(errors="replace") for asked in (ASSOCIATIONS, QOS)]
        except CommandError as error:
            return GpuLimits(), (f"cannot run sacctmgr, so which jobs can never start is not known: {error}",)
        return GpuLimits.of(*texts), ()

    def _snapshot(self) -> tuple[list[SlurmState], tuple[str, ...]]:
        """Return the states of scontrol and sinfo, and a note where one does not answer; none without scontrol."""
        shown, notes = list[SlurmState](), list[str]()
        for program, asked, unknown in _ASKED if self._scontrol else ():
            command = self._scontrol if program == "scontrol" else _sibling_command(self._scontrol, program)
            try:
                texts = [_output([command, *what]).decode(errors="replace") for what in asked]
                shown.append(state_of("\n".join(texts)))
            except (CommandError, ValueError) as error:
                notes.append(f"cannot run {program}, so {unknown} are not known: {error}")
        return shown, tuple(notes)


def _allocations(
    around: Surroundings,
    host_suffix: str,
    lines: Mapping[str, pl.DataFrame],
    zone: str,
    snapshots: Iterable[SlurmState],
    *,
    failed: tuple[str, ...] = (),
    asked_ms: int | None = None,
    zone_given: bool = False,
) -> ReadAllocations:
    """Return the jobs in sacct's lines by origin, with the snapshots' facts; `asked_ms`: when Slurm was asked."""
    hosts, limits = around.hosts, InputLimits.of(around.settings)
    clusters = Clusters.of(around.settings.text("slurm.cluster"), lines.values(), hosts.names)

    def host_of(node: str, cluster: str | None = None, scope: str | None = None) -> str:
        return hosts.named(node, host_suffix, cluster, scope)

    def shown_host(node: str) -> str:
        return host_of(node, clusters.here)

    read = [allocation_rows(origin, each, zone, host_of, limits, clusters=clusters) for origin, each in lines.items()]
    rows, notes = pl.concat([jobs.rows for jobs in read]), tuple[str, ...]()
    known = [jobs.as_of_ms for jobs in read if jobs.as_of_ms is not None]
    as_of_ms = max(known, default=None) if asked_ms is None else asked_ms
    if asked_ms is not None:
        rows = rows.with_columns(as_of=pl.lit(asked_ms))
    shown = [each.with_ids(clusters.job_here) for each in snapshots]
    shown_times = pl.Series([text for state in shown for text in state.times], dtype=pl.String)
    local = any(jobs.local for jobs in read) or read_moments(shown_times, zone).local
    if shown:
        gpus = [each for state in shown for each in state.gpus]
        rows, notes = on_shown_gpus(rows, gpus, hosts, shown_host, zone if asked_ms is None else None)
    return ReadAllocations(
        with_reasons(rows, shown, is_open=_NO_REASON),
        with_reasons(pl.concat([jobs.requests for jobs in read]), shown, is_open=_WAITS),
        tuple(jobs.report for jobs in read),
        import_zone(zone, given=zone_given, local=local),
        as_of_ms,
        (*clusters.notes, *failed, *notes),
        withheld=withheld_rows(shown, shown_host, zone, as_of_ms),
    )


def _sibling_command(command: str, name: str) -> str:
    """Return another command from the folder of the first, where the first has a folder, else from PATH."""
    return str(Path(command).with_name(name)) if "/" in command else name


def _output(command: Sequence[str]) -> bytes:
    """Return what the command prints, with every time as epoch seconds. Raises CommandError."""
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
        errors = done.stderr.decode(errors="replace").strip().splitlines()
        raise CommandError(
            f"{command[0]} failed: {errors[-1][:200]}" if errors else f"{command[0]} ended with code {done.returncode}"
        )
    return done.stdout


class Slurm:
    name = "slurm"
    summary = "jobs of Slurm accounting: output of sacct --parsable2 or --json, or --live from sacct itself"
    example = "fallow allocations import slurm jobs.txt --time-zone Europe/Paris --lake /srv/lake"
    remedies = (
        ("no GPU", "AccountingStorageTRES of slurm.conf must name gres/gpu, and the export AllocTRES and ReqTRES"),
        ("", f"export the jobs of the days that you want, with --starttime: {EXPORT}"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "files", nargs="*", metavar="FILE", help="output of sacct --parsable2 or sacct --json, plain or gzipped"
        )
        parser.add_argument(
            "--live",
            action="store_true",
            help=(
                "run sacct on this host, scontrol for GPUs of running jobs, reasons of waiting jobs and reserved hosts,"
                " and sinfo for drained hosts"
            ),
        )
        parser.add_argument("--since", metavar="TIME", help="with --live: jobs that ran since this time (default: 7d)")
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
            help=(
                f"with files: output of {SNAPSHOT} (or with --json) from the time of the jobs, for their GPUs and the"
                " reasons of waiting jobs; also of scontrol show node, scontrol show reservation and sinfo, for hosts"
                " whose GPUs Slurm does not allocate"
            ),
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
            help="suffix of host names in the lake after the node's name, such as .cluster.example",
        )

    def read(self, args: argparse.Namespace, around: Surroundings) -> ReadAllocations:
        """Return the allocations of the files, or of the commands. Raises InputError or UsageError."""
        if args.live == bool(args.files):
            raise UsageError(
                "allocations import slurm: "
                + ("give either files or --live" if args.live else "there is nothing to read"),
                "name files that sacct wrote, or add --live where Slurm's commands are",
            )
        if args.live:
            if args.zone:
                raise UsageError("--time-zone has no effect with --live", "leave it out: sacct is asked for UTC")
            if args.scontrol:
                raise UsageError("--scontrol is for files", "leave it out: with --live scontrol itself is asked")
            return Live(args, around).read()
        if args.since or args.sacct:
            raise UsageError("--since and --sacct are for --live", "leave them out, or give --live and no files")
        return self._read_files(args, around)

    def _read_files(self, args: argparse.Namespace, around: Surroundings) -> ReadAllocations:
        zone = check_zone(args.zone or "UTC", "--time-zone")
        limits, lines = InputLimits.of(around.settings), {}
        for path in with_progress(args.files, "reading"):
            source = open_source(path, limits)
            if source.text is None:
                raise InputError(f"{path} is Parquet, not the text of sacct", "export the jobs with sacct --parsable2")
            if source.cut_off:
                raise InputError(f"{path} is cut off: its end is missing", "fetch it again")
            lines[path] = read_jobs(path, source.text, limits)
        snapshots = (read_snapshot(path, limits) for path in args.scontrol)
        return _allocations(around, args.host_suffix, lines, zone, snapshots, zone_given=args.zone is not None)

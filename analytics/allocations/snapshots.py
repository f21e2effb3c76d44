"""Which GPUs Slurm's jobs have by what scontrol shows while they run: positions on a node, and the UUIDs that the lake's inventory has there.

Accounting only counts GPUs, so a snapshot that was saved beside an export is all that names them afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import polars as pl

from analytics.allocations.model import ROW_SCHEMA, KnownHosts
from analytics.allocations.sacct import json_jobs, json_number
from analytics.allocations.slurm_text import JobGpus, expand, gres_positions, job_gpus
from analytics.allocations.times import read_moments
from analytics.importers.limits import InputLimits
from analytics.importers.source import open_source
from fallow.errors import InputError

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

"""Evidence about the processes on held GPUs beside their idleness: ended work, and servers without requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from analytics.language.sentences import tr
from analytics.ledger.day_processes import SERVER
from analytics.workloads.commands import listed_now
from analytics.workloads.model import Context, EvidenceValue, once_per_context
from analytics.workloads.process_lists import COMMAND_LINE, IS_NOTEBOOK, is_service
from analytics.workloads.processes import alive
from analytics.workloads.window_end import allocations
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS

ENDED, PARENT_GONE, NOTEBOOK = "job ended", "parent gone", "notebook"
REASONS = {
    ENDED: "left over from a job that has ended",
    PARENT_GONE: "without its parent process",
    NOTEBOOK: "of a notebook",
}
"""Words for the processes on a GPU."""

GRACE_MS = 15 * MINUTE_MS
ANSWERED_MIN = 0.9

_STANDBY = r"(?i)stand-?by|fail-?over|backup|canary|\bdr\b|\bwarm\b"
_COUNTED = ("requests", "generated_tokens")
"""Columns of counters, which contain requests between two scrapes.

Running requests at a scrape show only some of them.
"""
_SEEN = ("running_requests_max", "waiting_requests_max")


@dataclass(frozen=True)
class HeldEvidence:
    """Evidence about the processes on some GPUs. `job_has_ended` is True if an ended job left all of them over."""

    numbers: Mapping[str, EvidenceValue]
    failed: Sequence[str]
    notes: Sequence[str]
    job_has_ended: bool


def held_evidence(context: Context, gpus: Sequence[str]) -> HeldEvidence:
    """Return evidence about the processes on GPUs held at the end of the window. A number concerns all of the GPUs."""
    kinds, servers = process_kinds(context), quiet_servers(context)
    found = {kinds.get(gpu) for gpu in gpus}
    quiet = [servers[gpu] for gpu in gpus if gpu in servers]
    numbers: dict[str, EvidenceValue] = {}
    if found and None not in found:
        numbers["processes"] = "+".join(sorted(map(str, found)))
    if quiet and len(quiet) == len(gpus):
        numbers["quiet_h"] = min((context.until_ms - each.since_ms) / HOUR_MS for each in quiet)
    failed = []
    if any(each.is_replica for each in quiet):
        failed.append(tr("the same model serves traffic elsewhere, so this may be a spare replica"))
    if not standbys(context).isdisjoint(gpus):
        failed.append(tr("its name marks it as a spare (standby, failover, backup or canary)"))
    notes = (
        [tr("a notebook loses its unsaved results with its kernel: ask the user first")] if NOTEBOOK in found else []
    )
    return HeldEvidence(numbers, failed, notes, found == {ENDED})


@once_per_context
def process_kinds(context: Context) -> Mapping[str, str]:
    """Return ENDED, PARENT_GONE or NOTEBOOK by GPU held at the end of the window.

    The kind applies to all processes of the GPU. If several kinds apply, the last one is returned.
    """
    listed = pl.col("gpu").is_in(list(listed_now(context)))  # an old list does not say which processes are still there
    there = alive(context).filter(~is_service(), pl.col("state") == "held", listed)
    if there.is_empty():
        return {}
    contained = pl.col("container_id").is_not_null() | pl.col("job").str.starts_with("pod:")
    # systemd's services and daemons have parent 1 from the start, as what a closed session left behind has later on
    orphan = (pl.col("parent_pid") == 1) & (pl.col("first_parent_pid") > 1)
    orphan &= ~(contained | COMMAND_LINE.str.contains(SERVER)).fill_null(value=False)
    # a process that began later, or at an unknown time, may be of a run whose allocation is not known yet
    ended = (pl.col("job_end") <= context.until_ms - GRACE_MS) & (pl.col("started") < pl.col("job_end"))
    kind = pl.when(ended.fill_null(value=False)).then(0).when(orphan).then(1).when(IS_NOTEBOOK).then(2)
    known = there.join(_job_ends(context), on="job", how="left").with_columns(kind=kind)
    by_gpu = known.group_by("gpu").agg(pl.col("kind").max(), alike=pl.col("kind").is_not_null().all())
    names = (ENDED, PARENT_GONE, NOTEBOOK)
    return {gpu: names[kind] for gpu, kind in by_gpu.filter("alike").select("gpu", "kind").iter_rows()}


def _job_ends(context: Context) -> pl.DataFrame:
    """Return per job the stated end of its last allocation: `job`, `job_end`.

    A time limit is no end, because it may be raised, nor is the start of a next run. A running allocation has no end.
    """
    ends = allocations(context).group_by("job").agg(pl.col("end").max(), job_end=pl.col("stated").max())
    return ends.filter(pl.col("end") == pl.col("job_end")).drop("end")


@dataclass(frozen=True)
class QuietServer:
    """A server without a request since `since_ms`, by its own metrics.

    `is_replica` if others serve the same model and get requests.
    """

    since_ms: int
    is_replica: bool


@once_per_context
def quiet_servers(context: Context) -> Mapping[str, QuietServer]:
    """Return by GPU the server that counts its requests, has data of the last day, and got no request since some hour.

    This is the end of the last hour with a request, or the first hour with metrics. Servers are left out if their
    metrics cover less than ANSWERED_MIN of the time since then.
    """
    hours = context.rollups.serving().filter(pl.col("gpu").is_not_null())
    busy = pl.any_horizontal(pl.col(name) > 0 for name in (*_COUNTED, *_SEEN))
    known = pl.any_horizontal(pl.col(name).is_not_null() for name in _COUNTED) & (pl.col("scrape_count") > 0)
    per_hour = hours.group_by("gpu", "time").agg(busy=busy.any(), known=known.all())
    latest = hours.filter(pl.col("time") == pl.col("time").max().over("gpu"))
    models = latest.group_by("gpu").agg(model=pl.col("model").drop_nulls().unique().sort().str.join("+"))
    end = pl.col("time") + HOUR_MS
    since = pl.coalesce(end.filter("busy").max().over("gpu"), pl.col("time").min().over("gpu"))
    answered = pl.col("known") & (pl.col("time") >= pl.col("since"))
    servers = (
        per_hour.sort("gpu", "time")
        .with_columns(since=since)
        .group_by("gpu", maintain_order=True)
        .agg(
            pl.col("since").first(),
            last=end.max(),
            known_ms=HOUR_MS * answered.sum().cast(pl.Int64),
            used=pl.col("busy").any() & (end.filter("busy").max() > context.until_ms - DAY_MS),
        )
        .filter(pl.col("last") > context.until_ms - DAY_MS)
        .join(models, on="gpu", maintain_order="left")
    )
    in_use = set(servers.filter("used")["model"]) - {""}
    quiet = servers.filter(
        pl.col("since") < context.until_ms, pl.col("known_ms") >= ANSWERED_MIN * (context.until_ms - pl.col("since"))
    )
    return {
        gpu: QuietServer(since_ms, model in in_use and not used)
        for gpu, since_ms, model, used in quiet.select("gpu", "since", "model", "used").iter_rows()
    }


@once_per_context
def standbys(context: Context) -> frozenset[str]:
    """Return the GPUs with a server that is meant to wait, by its command, arguments, pod or labels."""
    names = pl.concat_str(pl.col("command", "arguments", "job", "pod_labels").fill_null(""), separator=" ")
    there = alive(context).filter(names.str.contains(SERVER), names.str.contains(_STANDBY))
    return frozenset(there["gpu"])

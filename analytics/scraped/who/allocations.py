"""Allocations and requests of one window of scraped history: from labels of samples, and from kube-state-metrics where a site has it.

Windows of a host come in the order of time, each with what the one before left open, so that a run is one allocation over all of them,
and only what is new of it goes to the lake.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from analytics.allocations.model import KnownHosts, ReadAllocations, conform
from analytics.frames import read_frame, typed
from analytics.importers.times import LATEST_MS
from analytics.names import single_names
from analytics.scraped.samples import Samples
from analytics.scraped.who.given import Given
from analytics.scraped.who.kube_metrics import KubeTables
from analytics.scraped.who.label_runs import RUN_KEY, RUN_SCHEMA, label_runs, without_id
from analytics.scraped.who.pod_rows import POD_SCHEMA, WAITING_SCHEMA, unnamed_pods, waiting_pods, with_pods
from analytics.scraped.who.pods import pods_of
from analytics.scraped.who.queues import queue_notes
from fallow.lake import Lake
from fallow.schema import CLAIM, REQUEST


@dataclass(frozen=True)
class OpenAllocations:
    """What a window leaves open: `runs` that labels name (RUN_SCHEMA), `pods` (POD_SCHEMA), and `waiting` ones (WAITING_SCHEMA)."""

    runs: pl.DataFrame
    pods: pl.DataFrame
    waiting: pl.DataFrame

    @classmethod
    def none(cls) -> OpenAllocations:
        return cls(*(pl.DataFrame(schema=names) for names in (RUN_SCHEMA, POD_SCHEMA, WAITING_SCHEMA)))

    @classmethod
    def of(cls, lake: Lake) -> OpenAllocations:
        """What an earlier process left in the lake; agents end their own. Raises LakeError and its kinds."""
        files = [file for file in lake.files(CLAIM.name) if file.first_seq < LATEST_MS] if lake.store.exists() else []
        columns = ["time", "gpu", "end", "claim_id", "scheduler", "submitted"]
        rows = read_frame(files, CLAIM, columns, lake.left_out.leave_out)
        # accounting ends what it told of
        is_ours = (pl.col("scheduler") == "kubernetes") | (
            (pl.col("scheduler") == "slurm") & pl.col("submitted").is_null()
        )
        is_open = pl.col("end").is_null() & pl.col("gpu").is_not_null()
        runs = rows.filter(is_open & is_ours).sort("time").unique(RUN_KEY, keep="last", maintain_order=True)
        told = runs.with_columns(told=pl.col("submitted").is_not_null(), until_ms=pl.lit(None, pl.Int64))
        return replace(cls.none(), runs=told.select(list(RUN_SCHEMA)))


@dataclass(frozen=True)
class WindowAllocations:
    """`read` goes to `publish_allocations`, and then `open` to the next window."""

    read: ReadAllocations
    open: OpenAllocations


def allocations_of(
    given: Given, kube: Samples | None, before: OpenAllocations, *, as_of_ms: int, hosts: KnownHosts
) -> WindowAllocations:
    """What one window adds to what is known.

    Args:
        given: what labels say; of all hosts of the window, or of some.
        kube: samples of KUBE_METRICS in the window, None where they were not asked for. One every few minutes is enough.
        before: what the windows before left open.
        as_of_ms: the end of the window.
        hosts: what the lake knows, for the names of nodes.
    """
    runs = label_runs(given, before.runs, as_of_ms)
    tables = None if kube is None else KubeTables.of(kube)
    pods = pods_of(tables) if tables is not None and tables.tells_of_pods else None
    rows = _run_rows(runs.rows, pods)
    news = rows.filter(
        pl.col("is_new") | pl.col("end").is_not_null() | (pl.col("submitted").is_not_null() & ~pl.col("told"))
    )
    still = rows.filter(pl.col("end").is_null()).with_columns(told=pl.col("told") | pl.col("submitted").is_not_null())
    left = OpenAllocations(pl.concat([still.select(list(RUN_SCHEMA)), runs.waiting]), before.pods, before.waiting)
    claims, requests = conform(news), typed(before.waiting.clear(), REQUEST)
    if tables is not None and pods is not None:
        waits = runs.waiting.select("claim_id", "time", end=pl.lit(None, pl.Int64))
        named = pl.concat([rows.select("claim_id", "time", "end"), waits])
        here = replace(hosts, names=hosts.names | set(given.looked["host"]))
        counted = unnamed_pods(pods, named, before.pods, here, tables.step_ms)
        waiting = waiting_pods(pods, before.waiting, tables.step_ms)
        claims, requests = pl.concat([claims, counted.rows]), waiting.rows
        left = replace(left, pods=counted.known, waiting=waiting.known)
    notes = (*_no_id(given), *(() if tables is None else queue_notes(tables)))
    names = single_names("account", "user")
    read = ReadAllocations(
        claims.with_columns(names), requests.with_columns(names), (), "UTC (as scraped)", as_of_ms, notes
    )
    return WindowAllocations(read, left)


def _no_id(given: Given) -> tuple[str, ...]:
    found = without_id(given.stretches)
    said = (
        "labels name a pod without its namespace, or a user without pod or job: that is no allocation, and is not kept"
    )
    return (f"of {found:,} GPUs {said}",) if found else ()


def _run_rows(runs: pl.DataFrame, pods: pl.DataFrame | None) -> pl.DataFrame:
    """Runs as allocations, with `told`, `is_new` and `until_ms`."""
    of_pod = pl.col("scheduler") == "kubernetes"
    namespace, pod = (pl.col("claim_id").str.splitn("/", 2).struct.field(f"field_{part}") for part in (0, 1))
    rows = runs.with_columns(
        account=pl.when(of_pod).then(namespace),
        name=pl.when(of_pod).then(pod),
        # how many GPUs one of Slurm's jobs has on other hosts is not in this window's labels for certain
        gpu_count=pl.when(of_pod).then(pl.col("gpu").n_unique().over("scheduler", "claim_id", "host", "time")),
    )
    flags = rows.select("told", "is_new", "until_ms").schema
    every = pl.concat([rows.filter(~of_pod), _pods_known(rows.filter(of_pod), pods)], how="diagonal_relaxed")
    return pl.concat([conform(every), every.select(list(flags))], how="horizontal")


def _pods_known(rows: pl.DataFrame, pods: pl.DataFrame | None) -> pl.DataFrame:
    if pods is None:
        return rows
    known = with_pods(rows.drop("name").rename({"gpu_count": "_seen"}), pods)
    pod = pl.col("claim_id").str.splitn("/", 2).struct.field("field_1")
    return known.with_columns(gpu_count=pl.coalesce("gpu_count", "_seen"), name=pl.coalesce("name", pod))

"""Allocations and requests of one window of scraped history: from sample labels, and kube-state-metrics if present.

Windows of a host come in the order of time, each with the open runs of the one before. A run is therefore one
allocation over all windows, and only its new part goes to the lake.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from analytics.allocations.model import KnownHosts, ReadAllocations, conform
from analytics.frames import read_frame, typed
from analytics.importers.times import LATEST_MS
from analytics.names import single_names
from analytics.scraped.rows.scraped_rows import ENDED
from analytics.scraped.samples import Samples
from analytics.scraped.who.kube_metrics import KubeTables, queue_notes
from analytics.scraped.who.label_runs import (
    LOOKED_SCHEMA,
    RUN_KEY,
    RUN_SCHEMA,
    SEGMENT_SCHEMA,
    Given,
    label_runs,
    without_id,
)
from analytics.scraped.who.pods import (
    POD_SCHEMA,
    WAITING_SCHEMA,
    left_out_notes,
    pods_of,
    unnamed_pods,
    waiting_pods,
    with_pods,
)
from fallow.clock import DAY_MS, utc_day
from fallow.lake import Lake, LakeFile
from fallow.schema import ALLOCATION, GPU, REQUEST


@dataclass(frozen=True)
class OpenAllocations:
    """Open runs after a window: named by labels (RUN_SCHEMA), `pods` (POD_SCHEMA), `waiting` (WAITING_SCHEMA)."""

    runs: pl.DataFrame
    pods: pl.DataFrame
    waiting: pl.DataFrame

    @classmethod
    def none(cls) -> OpenAllocations:
        return cls(*(pl.DataFrame(schema=names) for names in (RUN_SCHEMA, POD_SCHEMA, WAITING_SCHEMA)))

    @classmethod
    def of(cls, lake: Lake) -> OpenAllocations:
        """Return the open runs of an earlier process in the lake; agents end their own. Raises LakeError."""
        rows = _scraped_allocations(lake)
        # accounting ends the runs that it reported
        is_ours = (pl.col("scheduler") == "kubernetes") | (
            (pl.col("scheduler") == "slurm") & pl.col("submitted").is_null()
        )
        is_open = pl.col("end").is_null() & pl.col("gpu").is_not_null()
        runs = rows.filter(is_open & is_ours).sort("time").unique(RUN_KEY, keep="last", maintain_order=True)
        reported = runs.with_columns(reported=pl.col("submitted").is_not_null(), until_ms=pl.lit(None, pl.Int64))
        return replace(cls.none(), runs=reported.select(list(RUN_SCHEMA)))


@dataclass(frozen=True)
class WindowAllocations:
    """`read` goes to `publish_allocations`, and `open` to the next window."""

    read: ReadAllocations
    open: OpenAllocations


def allocations_of(
    given: Given, kube: Samples | None, before: OpenAllocations, *, as_of_ms: int, hosts: KnownHosts
) -> WindowAllocations:
    """Return what a window, which ends at `as_of_ms`, adds to the known allocations.

    `given` are the users on all hosts or on some. `kube` are samples of KUBE_METRICS, None where they were not
    requested: one every few minutes is enough. `before` are the open runs of the earlier windows.
    """
    runs = label_runs(given, before.runs, as_of_ms)
    tables = None if kube is None else KubeTables.of(kube)
    pods = pods_of(tables) if tables is not None and tables.has_pods else None
    rows = _run_rows(runs.rows, pods)
    news = rows.filter(
        pl.col("is_new") | pl.col("end").is_not_null() | (pl.col("submitted").is_not_null() & ~pl.col("reported"))
    )
    still = rows.filter(pl.col("end").is_null()).with_columns(
        reported=pl.col("reported") | pl.col("submitted").is_not_null()
    )
    left = OpenAllocations(pl.concat([still.select(list(RUN_SCHEMA)), runs.waiting]), before.pods, before.waiting)
    allocations, requests = conform(news), typed(before.waiting.clear(), REQUEST)
    if tables is not None and pods is not None:
        waits = runs.waiting.select("allocation_id", "time", end=pl.lit(None, pl.Int64))
        named = pl.concat([rows.select("allocation_id", "time", "end"), waits])
        here = replace(hosts, names=hosts.names | set(given.looked["host"]))
        counted = unnamed_pods(pods, named, before.pods, here, tables.step_ms)
        waiting = waiting_pods(pods, before.waiting, tables.step_ms)
        allocations, requests = pl.concat([allocations, counted.rows]), waiting.rows
        left = replace(left, pods=counted.known, waiting=waiting.known)
    notes = (*_id_notes(given), *(() if tables is None else (*left_out_notes(tables), *queue_notes(tables))))
    names = single_names("account", "user")
    allocations = allocations.with_columns(as_of=pl.lit(as_of_ms))
    read = ReadAllocations(
        allocations.with_columns(names), requests.with_columns(names), (), "UTC (as scraped)", as_of_ms, notes
    )
    return WindowAllocations(read, left)


def _id_notes(given: Given) -> tuple[str, ...]:
    found = without_id(given.segments)
    reason = (
        "labels name a pod without its namespace, or a user without pod or job: that is no allocation, and is not kept"
    )
    return (f"of {found:,} GPUs {reason}",) if found else ()


def _run_rows(runs: pl.DataFrame, pods: pl.DataFrame | None) -> pl.DataFrame:
    """Return runs as allocations, with `reported`, `is_new` and `until_ms`."""
    of_pod = pl.col("scheduler") == "kubernetes"
    namespace, pod = (pl.col("allocation_id").str.splitn("/", 2).struct.field(f"field_{part}") for part in (0, 1))
    rows = runs.with_columns(
        account=pl.when(of_pod).then(namespace),
        name=pl.when(of_pod).then(pod),
        # the number of GPUs that a Slurm job has on other hosts is not certain from this window's labels
        gpu_count=pl.when(of_pod).then(pl.col("gpu").n_unique().over("scheduler", "allocation_id", "host", "time")),
    )
    every = pl.concat([rows.filter(~of_pod), _known_pods(rows.filter(of_pod), pods)], how="diagonal_relaxed")
    return pl.concat([conform(every), every.select("reported", "is_new", "until_ms")], how="horizontal")


def _known_pods(rows: pl.DataFrame, pods: pl.DataFrame | None) -> pl.DataFrame:
    if pods is None:
        return rows
    known = with_pods(rows.rename({"gpu_count": "_seen", "name": "_pod"}), pods)
    return known.with_columns(gpu_count=pl.coalesce("gpu_count", "_seen"), name=pl.coalesce("name", "_pod"))


@dataclass(frozen=True)
class LaterSamples:
    """The lake's runs that continue after `since_ms`, as they are before the import that ends there.

    `runs` has RUN_KEY, `began` and `end_there`.
    """

    lake: Lake
    since_ms: int
    runs: pl.DataFrame

    @classmethod
    def of(cls, lake: Lake, since_ms: int) -> LaterSamples:
        """Return the runs. Raises LakeError."""
        known = _scraped_allocations(lake)
        runs = known.filter(pl.col("gpu").is_not_null(), (pl.col("end") > since_ms).fill_null(value=True))
        return cls(lake, since_ms, runs.select(*RUN_KEY, began="time", end_there="end"))

    def ends(self, runs: pl.DataFrame) -> tuple[Given, pl.DataFrame]:
        """Return the import's open runs (RUN_SCHEMA) of which the lake has a later sample, and the data that ends them.

        Users that the next sample of a GPU names belong to the run that the lake has then; the others had left by then.
        Raises LakeError.
        """
        before = runs.filter(pl.col("time") < self.since_ms)
        met = before.join(self._next_looks(set(before["host"])), on=["host", "gpu"])
        there = (
            met.select(*RUN_KEY, "time", "next_ms")
            .join(self.runs, on=RUN_KEY)
            .filter(
                pl.col("began") <= pl.col("next_ms"), (pl.col("end_there") > pl.col("next_ms")).fill_null(value=True)
            )
        )
        now = LaterSamples.of(self.lake, self.since_ms).runs.select(*RUN_KEY, "began", is_apart=pl.lit(value=True))
        there = there.join(now, on=[*RUN_KEY, "began"], how="left")
        # it is already a run of the lake, and runs
        is_one = (pl.col("began") == pl.col("time")) | pl.col("is_apart").is_null()
        goes_on = there.group_by(RUN_KEY).agg(
            on_ms=pl.max_horizontal("next_ms", "end_there").max(),
            is_known=(is_one & pl.col("end_there").is_null()).any(),
        )
        end = pl.coalesce("on_ms", pl.min_horizontal("until_ms", "next_ms"))
        ended = met.join(goes_on, on=RUN_KEY, how="left").filter(~pl.col("is_known").fill_null(value=False))
        ended = ended.with_columns(until_ms=end)
        looked = ended.group_by("host", "gpu").agg(first_ms=pl.col("until_ms").max())
        given = Given(pl.DataFrame(schema=SEGMENT_SCHEMA), looked.select(*LOOKED_SCHEMA))
        return given, ended.select(runs.columns)

    def _next_looks(self, hosts: set[str]) -> pl.DataFrame:
        """Return the first scraped sample of each GPU of the hosts in the day after the import: host, gpu, next_ms."""
        dates = {utc_day(self.since_ms), utc_day(self.since_ms + DAY_MS)}
        files = _scraped_files(self.lake.files(GPU.name, hosts=hosts, dates=dates)) if hosts else []
        at = pl.col("time") + pl.col("offset_ms").fill_null(0)
        found = [pl.DataFrame(schema={"host": pl.String, "gpu": pl.String, "next_ms": pl.Int64})]
        later_files = [file for file in files if file.last_seq >= self.since_ms]
        for host in sorted({file.host for file in later_files}):
            own = [file for file in later_files if file.host == host]
            samples = read_frame(own, GPU, ["time", "offset_ms", "gpu", "health"], self.lake.left_out.leave_out)
            later = samples.filter(at >= self.since_ms, pl.col("health").ne_missing(ENDED))
            found.append(later.group_by("host", "gpu").agg(next_ms=at.min()))
        return pl.concat(found, how="vertical_relaxed")


def with_ends(rows: pl.DataFrame, ended: pl.DataFrame) -> pl.DataFrame:
    """Return the allocations (ROW_SCHEMA) of a window and those that ended since, each once."""
    key = [*RUN_KEY, "time"]
    met = rows.join(ended.select(*key, end_since="end"), on=key, how="left", nulls_equal=True, maintain_order="left")
    reported = met.with_columns(end=pl.coalesce("end", "end_since")).drop("end_since")
    return pl.concat([reported, ended.join(rows, on=key, how="anti")])


def _scraped_allocations(lake: Lake) -> pl.DataFrame:
    files = _scraped_files(lake.files(ALLOCATION.name)) if lake.store.exists() else []
    columns = ["time", "gpu", "end", "allocation_id", "scheduler", "submitted"]
    return read_frame(files, ALLOCATION, columns, lake.left_out.leave_out)


def _scraped_files(files: list[LakeFile]) -> list[LakeFile]:
    return [file for file in files if file.first_seq < LATEST_MS]

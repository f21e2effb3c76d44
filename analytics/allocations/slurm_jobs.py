"""Turns sacct's jobs into allocations, one row per job and node, and into requests: jobs that wait or never started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import polars as pl

from analytics.allocations.model import conform
from analytics.allocations.slurm_output import duration_ms, expand, gpu_count, gpu_model, gpu_shares, task_count
from analytics.allocations.slurm_usage import ACCOUNTED, is_step, with_gpu_use
from analytics.allocations.times import read_moments, start_and_end
from analytics.frames import typed, with_mapped
from analytics.importers.model import FileReport, Tally
from analytics.importers.source import InputLimits
from analytics.importers.times import LATEST_MS
from analytics.names import single_names
from fallow.clock import MINUTE_MS, SECOND_MS
from fallow.errors import InputError
from fallow.schema import REQUEST

_SHOWN = 3
_OTHER_FORM = "export with SLURM_TIME_FORMAT=%s, or name the cluster's zone with --time-zone"
_LEAVE_OUT = "the accounting has a wrong time there: delete the line"
_NO_NODES = ("None assigned", "None", "Unknown", "(null)")
_OVER = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
)
"""States of jobs that have ended."""
_NO_VALUE = ("", "Unknown", "None", "N/A", "(null)")


def _text(name: str) -> pl.Expr:
    plain = pl.col(name).str.strip_chars()
    return pl.when(~plain.is_in(_NO_VALUE)).then(plain)


_STATE = _text("State").str.extract(r"^([A-Z_]+)", 1)
"""Matches `CANCELLED` in `CANCELLED by 1000`."""

_SHARED = (
    pl.lit("slurm").alias("scheduler"),
    _text("User").alias("user"),
    _text("Account").alias("account"),
    _text("JobName").alias("name"),
    _text("Partition").alias("partition"),
    _text("QOS").alias("qos"),
    _STATE.alias("state"),
    _text("WCKey").str.strip_prefix("*").replace("", None).alias("project"),  # the star marks a default
    pl.col("Priority").cast(pl.Int64, strict=False).alias("priority"),
    pl.coalesce(
        pl.col("NNodes").cast(pl.Int32, strict=False),
        pl.col("ReqTRES").str.extract(r"(?:^|,)node=(\d{1,6})(?:,|$)", 1).cast(pl.Int32),
    ).alias("host_count"),
    pl.col("ReqTRES").map_elements(gpu_model, return_dtype=pl.String).alias("gpu_model"),
    _text("Reason").alias("reason"),
    pl.col("eligible", "time_limit_s", "gpu_shares"),
)
"""Columns that both tables have of a job."""


@dataclass(frozen=True)
class Jobs:
    """The allocations and requests of one export, its report, and the latest moment in it."""

    rows: pl.DataFrame
    requests: pl.DataFrame
    report: FileReport
    as_of_ms: int | None
    local: bool
    """Whether some of its times state no offset."""


@dataclass(frozen=True)
class Clusters:
    """The clusters of an import. Their jobs and nodes may have the same names, so the cluster is part of both.

    Jobs of the cluster `own`, and of an import of one cluster, keep the plain ids that agents write; not where the
    lake's hosts are HOST@CLUSTER, whose exporters name jobs by CLUSTER/ID too.
    """

    own: str
    nodes: Mapping[str, frozenset[str]]
    """The node lists of each cluster, as text."""
    of_hosts: frozenset[str] = frozenset()
    """The clusters in names of the lake's hosts."""

    @classmethod
    def of(cls, own: str, lines: Iterable[pl.DataFrame], hosts: Iterable[str] = ()) -> Clusters:
        """Return the clusters that these lines of sacct name; `hosts` are those of the lake."""
        named = pl.concat([each.select(_text("Cluster").alias("Cluster"), "NodeList") for each in lines]).unique()
        by_name = named.drop_nulls("Cluster").group_by("Cluster").agg("NodeList")
        nodes = {name: frozenset(filter(None, listed)) for name, listed in by_name.iter_rows()}
        return cls(own, nodes, frozenset(cluster for host in hosts if (cluster := host.rpartition("@")[2]) != host))

    def job_id(self, job_id: pl.Expr) -> pl.Expr:
        """Return `CLUSTER/ID` for jobs whose id needs the cluster, else the id."""
        name = pl.coalesce(_text("Cluster"), pl.lit(self.here, pl.String))
        scopes = [each for each in {*self.nodes, self.own} if self.is_scope(each)]
        return pl.when(name.is_in(scopes)).then(name + "/" + job_id).otherwise(job_id)

    def is_scope(self, cluster: str) -> bool:
        """Return whether the ids of the cluster's jobs name it."""
        other = cluster != self.own if self.own else len(self.nodes) > 1
        return bool(cluster) and (other or cluster in self.of_hosts)

    def job_here(self, job_id: str) -> str:
        """Return the id of a job that is shown without its cluster."""
        return f"{self.here}/{job_id}" if self.here is not None and self.is_scope(self.here) else job_id

    @cached_property
    def shared_nodes(self) -> frozenset[str]:
        """Return the nodes whose name several clusters have."""
        there = [{node for text in texts for node in _nodes(text)} for texts in self.nodes.values()]
        return frozenset(node for node, count in Counter(chain.from_iterable(there)).items() if count > 1)

    def scope(self, cluster: str | None, node: str) -> str | None:
        """Return the cluster where the node's name needs it."""
        return cluster if cluster != self.own and node in self.shared_nodes else None

    @property
    def here(self) -> str | None:
        """Return the cluster of jobs and nodes that name none: the own one, else the only one of the import."""
        return self.own or (next(iter(self.nodes)) if len(self.nodes) == 1 else None)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what to set where the lake has no host of a cluster, or no cluster of several is the agents' own."""
        lacking = sorted(self.nodes.keys() - self.of_hosts)
        if self.of_hosts and lacking:
            there = ", ".join(sorted(self.of_hosts))
            remedy = "jobs join GPUs only where the label of --cluster-label has Slurm's ClusterName"
            return (f"the lake has no host of the cluster {', '.join(lacking)}, only of {there}: {remedy}",)
        if self.own or len(self.nodes) <= 1 or self.of_hosts:
            return ()
        names = ", ".join(sorted(self.nodes))
        remedy = "to keep the plain ids of the one whose agents write to this lake, name it in slurm.cluster"
        return (f"jobs of several clusters ({names}) have the id CLUSTER/ID; {remedy}",)


def _nodes(text: str) -> tuple[str, ...]:
    """Return the nodes of a list; none for text that is not a list, which the reader of its line reports."""
    try:
        return () if text.strip() in (*_NO_NODES, "") else expand(text)
    except ValueError:
        return ()


def allocation_rows(
    path: str, lines: pl.DataFrame, zone: str, host_of: Callable[..., str], limits: InputLimits, *, clusters: Clusters
) -> Jobs:
    """Return the jobs in sacct's output (`read_jobs`) of these clusters. Raises InputError that names file and lines.

    `host_of` returns the lake's name for a node, and the cluster that its name needs.
    """
    tally = Tally()
    job_id = pl.coalesce("JobIDRaw", "JobID").str.strip_chars()
    begin, end = (read_moments(lines[name], zone).first for name in ("Start", "End"))
    lines = lines.with_row_index("run").with_columns(
        run=pl.when(~is_step()).then("run").forward_fill(),
        lasted_ms=_elapsed_ms(lines).zip_with(lines["ElapsedRaw"].is_not_null(), end - begin),
    )
    jobs = lines.filter(~is_step()).with_columns(allocation_id=clusters.job_id(job_id))
    jobs, local = _with_times(path, jobs, zone, tally)
    no_node = pl.col("NodeList").str.strip_chars().is_in(_NO_NODES).fill_null(value=False)
    # where a job waits for its nodes, its start is only Slurm's estimate
    has_begun = pl.col("start").is_not_null() & ~no_node & (_STATE != "PENDING").fill_null(value=True)
    begun = pl.col("start").filter(has_begun).max()
    as_of = jobs.select(pl.max_horizontal(begun, pl.col("end", "submitted").max())).item()
    jobs = with_gpu_use(_with_gpus(path, jobs, tally), lines, tally)
    requests = _requests(jobs.filter(~has_begun), as_of, tally)
    jobs = jobs.filter(has_begun)
    jobs = _without(jobs, pl.col("end") == pl.col("start"), "ended when it started", tally)
    backwards = jobs.filter(pl.col("end") < pl.col("start"))["line"].to_list()
    jobs = _without(jobs, pl.col("end") < pl.col("start"), f"ends before it starts ({_line_list(backwards)})", tally)
    rows = _node_rows(path, jobs, host_of, limits, clusters)
    if lines["JobIDRaw"].null_count() and rows["allocation_id"].str.contains(r"[_+]").any():
        tally.notes.append(
            "there is no column JobIDRaw, so tasks of arrays cannot be matched with their processes; "
            "import an export with that column to match them"
        )
    named = single_names("user", "account")
    report = tally.report(path, lines.height, jobs.height + requests.height)
    allocations = conform(rows.with_columns(named, as_of=pl.lit(as_of, pl.Int64)))
    return Jobs(allocations, typed(requests.with_columns(named), REQUEST), report, as_of, local)


def _requests(jobs: pl.DataFrame, as_of_ms: int | None, tally: Tally) -> pl.DataFrame:
    """Return one row per job that waits, or ended before it started."""
    asked = _without(jobs, pl.col("submitted").is_null(), "did not start, and the export lacks its Submit", tally)
    lost = pl.col("end").is_null() & _STATE.is_in(_OVER)
    asked = _without(asked, lost, "ended before it started, at an unknown time", tally)
    asked = _without(asked, pl.col("end") < pl.col("submitted"), "ended before it was submitted", tally)
    tasks = asked["JobID"].fill_null("").map_elements(task_count, return_dtype=pl.Int64)
    if cut := tasks.null_count():
        tally.notes.append(f"the tasks of {cut} waiting arrays are not all listed: export with SLURM_BITSTR_LEN=0")
    return asked.select(
        *_SHARED,
        "allocation_id",
        "gpu_count",
        time="submitted",
        as_of=pl.lit(as_of_ms, pl.Int64),
        withdrawn="end",
        task_count=tasks,
    )


def _line_list(lines: Sequence[str]) -> str:
    """Return a list such as `line 2, line 5, line 9 and 7 more`."""
    return ", ".join(lines[:_SHOWN]) + (f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else "")


def _without(jobs: pl.DataFrame, where: pl.Expr, reason: str, tally: Tally) -> pl.DataFrame:
    kept = jobs.filter(~where.fill_null(value=False))
    tally.drop(reason, jobs.height - kept.height)
    return kept


def _with_times(path: str, jobs: pl.DataFrame, zone: str, tally: Tally) -> tuple[pl.DataFrame, bool]:
    """Return the jobs with start, end, submitted, eligible and planned_end in milliseconds, and time_limit_s.

    The second value is whether some of the times state no offset.
    """
    moments = {name: read_moments(jobs[name], zone) for name in ("Start", "End", "Submit", "Eligible")}
    for name, found in moments.items():
        _raise_for_lines(
            path, jobs, found.wrong, (f"{name} is not a time, or one that {zone} skips", _OTHER_FORM), name
        )
        _raise_for_lines(path, jobs, found.outside, (f"{name} is not in the years 2000 to 9999", _LEAVE_OUT), name)
    _raise_for_lines(
        path, jobs, moments["Start"].first >= LATEST_MS, ("Start is after the year 5137", _LEAVE_OUT), "Start"
    )
    start, end = start_and_end(moments["Start"], moments["End"], _elapsed_ms(jobs))
    end = _ends_of_ended_jobs(jobs, start, end, tally)
    ambiguous = int((moments["Start"].ambiguous | moments["End"].ambiguous).sum())
    if ambiguous:
        tally.notes.append(
            f"{ambiguous} jobs start or end in the hour that {zone} repeats: ElapsedRaw decides where it can, else the"
            " first pass is assumed; SLURM_TIME_FORMAT=%s avoids the question"
        )
    limit = jobs["TimelimitRaw"].cast(pl.Int64, strict=False) * MINUTE_MS
    written = jobs["Timelimit"].map_elements(duration_ms, return_dtype=pl.Int64)
    limit = limit.zip_with(limit.is_not_null(), written)
    timed = jobs.with_columns(
        start=start,
        end=end,
        submitted=moments["Submit"].first,
        eligible=moments["Eligible"].first,
        planned_end=start + limit,
        time_limit_s=limit // SECOND_MS,
    )
    return timed, any(found.local for found in moments.values())


def _ends_of_ended_jobs(jobs: pl.DataFrame, start: pl.Series, end: pl.Series, tally: Tally) -> pl.Series:
    """Return the ends; for ended jobs without one (the accounting lost a message), start plus elapsed time."""
    over = jobs.select(_STATE.is_in(_OVER).fill_null(value=False)).to_series()
    lacking = over & end.is_null() & start.is_not_null()
    if lacking.any():
        elapsed = _elapsed_ms(jobs)
        endless = int((lacking & elapsed.is_null()).sum())
        tally.notes.append(
            f"{int(lacking.sum())} ended jobs have no End: ElapsedRaw gives their end"
            + (f"; {endless} of them have no ElapsedRaw and count as running" if endless else "")
        )
        end = (start + elapsed).zip_with(lacking, end)
    return end


def _elapsed_ms(jobs: pl.DataFrame) -> pl.Series:
    return jobs["ElapsedRaw"].cast(pl.Int64, strict=False) * SECOND_MS


def _with_gpus(path: str, jobs: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return the jobs with gpu_count; jobs without GPUs are left out and counted."""
    counts: list[int | None] = []
    shares: list[str | None] = []
    for line, allocated, asked in jobs.select("line", "AllocTRES", "ReqTRES").iter_rows():
        tres = allocated or asked or ""
        shares.append(gpu_shares(tres))
        try:
            counts.append(gpu_count(tres))
        except ValueError as error:
            raise InputError(f"{path}, {line}: {error}", "export it again") from error
    counted = jobs.with_columns(
        pl.Series("gpu_count", counts, dtype=pl.Int64), pl.Series("gpu_shares", shares, dtype=pl.String)
    )
    has_whole = pl.col("gpu_count").is_not_null()
    counted = counted.with_columns(gpu_shares=pl.when(~has_whole).then("gpu_shares"))
    of_gres = pl.any_horizontal(pl.col("AllocGRES", "ReqGRES").str.contains(r"\bgpu\b"))
    is_gres = ~has_whole & pl.col("gpu_shares").is_null() & of_gres
    counted = _without(counted, is_gres, "GPUs in AllocGRES or ReqGRES alone, which this import does not count", tally)
    kept = _without(counted, ~has_whole & pl.col("gpu_shares").is_null(), "no GPU", tally)
    if shared := kept["gpu_shares"].count():
        tally.notes.append(f"{shared} jobs have shares of GPUs (gres/shard, gres/mps): no whole GPU counts as theirs")
    if jobs.height and not kept.height:
        tally.notes.append("no job has gres/gpu among its TRES: AccountingStorageTRES of slurm.conf must name gres/gpu")
    return kept


def _node_rows(
    path: str, jobs: pl.DataFrame, host_of: Callable[..., str], limits: InputLimits, clusters: Clusters
) -> pl.DataFrame:
    """Return one row per job and node, with `host` and, where the GPUs divide evenly, the GPUs on the node."""
    nodes: list[tuple[str, ...]] = []
    count_so_far = 0
    for line, listed in jobs.select("line", "NodeList").iter_rows():
        try:
            nodes.append(expand(listed) if (listed or "").strip() else ())
        except ValueError as error:
            raise InputError(f"{path}, {line}: {error}", "export NodeList with sacct --parsable2") from error
        count_so_far += len(nodes[-1])
        limits.check_rows(path, count_so_far)  # a line of 20 characters may name thousands of hosts
    listed = jobs.with_columns(host=pl.Series(nodes, dtype=pl.List(pl.String)))
    unplaced = listed.filter(pl.col("host").list.len() == 0)
    if unplaced.height:
        raise InputError(
            f"{path}, {unplaced['line'][0]}: the job has GPUs and no node in NodeList",
            "export NodeList with sacct --parsable2, which does not cut it off",
        )
    count = pl.col("host").list.len().cast(pl.Int64)
    even = pl.when(pl.col("gpu_count") % count == 0).then(pl.col("gpu_count") // count)
    each = listed.with_columns(host_gpu_count=even).explode("host")

    def named(node: str, cluster: str | None) -> tuple[str]:
        return (host_of(node, cluster, clusters.scope(cluster, node)),)

    each = each.with_columns(Cluster=pl.coalesce(_text("Cluster"), pl.lit(clusters.here, pl.String)), node="host").drop(
        "host"
    )
    return with_mapped(each, ("node", "Cluster"), {"host": pl.String()}, named).select(
        *_SHARED,
        *ACCOUNTED,
        "host",
        "allocation_id",
        "end",
        "gpu_count",
        "host_gpu_count",
        "submitted",
        "planned_end",
        time="start",
    )


def _raise_for_lines(path: str, jobs: pl.DataFrame, wrong: pl.Series, reason: tuple[str, str], column: str) -> None:
    """Return an InputError that names the first wrong lines."""
    message, hint = reason
    bad = jobs.filter(wrong.fill_null(value=False)).head(_SHOWN).select("line", column).rows()
    if bad:
        named = ", ".join(f"{line} ('{value}')" for line, value in bad)
        raise InputError(f"{path}: {message}: {named}", hint)

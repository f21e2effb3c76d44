"""Turns jobs of sacct into allocations: one row per job and node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from analytics.allocations.model import conform
from analytics.allocations.sacct import read_jobs
from analytics.allocations.slurm_text import duration_ms, expand, gpu_count, has_share
from analytics.allocations.times import read_moments, start_and_end
from analytics.importers.limits import InputLimits
from analytics.importers.model import FileReport, Tally
from analytics.importers.times import LATEST_MS
from analytics.names import single_names
from fallow.clock import MINUTE_MS, SECOND_MS
from fallow.errors import InputError

_SHOWN = 3
_OTHER_FORM = "export with SLURM_TIME_FORMAT=%s, or name the cluster's zone with --time-zone"
_LEAVE_OUT = "the accounting has a wrong time there: leave the line out"
_NO_NODES = ("None assigned", "None", "Unknown", "(null)")
_OVER = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
)  # fmt: skip
"""States of jobs that have ended."""
_NO_VALUE = ("", "Unknown", "None", "N/A", "(null)")


@dataclass(frozen=True)
class Jobs:
    """The allocations of one export, its report, and the latest moment in it."""

    rows: pl.DataFrame
    report: FileReport
    as_of_ms: int | None


def allocation_rows(path: str, text: bytes, zone: str, host_of: Callable[[str], str], limits: InputLimits) -> Jobs:
    """The allocations in what sacct printed; raises InputError naming file and lines.

    Args:
        path: what to call it in messages.
        text: with the header line.
        zone: time zone of times without an offset.
        host_of: the lake's name for a node.
        limits: how many rows there may be.
    """
    lines, count = read_jobs(path, text, limits)
    tally = Tally()
    job_id = pl.coalesce("JobIDRaw", "JobID").str.strip_chars()
    jobs = lines.with_columns(claim_id=job_id)
    jobs = _drop(jobs, job_id.str.contains(".", literal=True), "step of a job", tally)
    jobs = _with_times(path, jobs, zone, tally)
    no_node = pl.col("NodeList").str.strip_chars().is_in(_NO_NODES)
    # where a job waits for its nodes, its start is only what Slurm expects
    begun = pl.col("start").filter(~no_node.fill_null(value=False)).max()
    as_of = jobs.select(pl.max_horizontal(begun, pl.col("end", "submitted").max())).item()
    jobs = _drop(jobs, pl.col("start").is_null(), "never started", tally)
    jobs = _with_gpus(path, jobs, tally)
    jobs = _drop(jobs, no_node, "never had a node", tally)
    jobs = _drop(jobs, pl.col("end") == pl.col("start"), "over as it began", tally)
    backwards = jobs.filter(pl.col("end") < pl.col("start"))["line"].to_list()
    jobs = _drop(jobs, pl.col("end") < pl.col("start"), f"ends before it starts ({_listed(backwards)})", tally)
    rows = _by_node(path, jobs, host_of, limits)
    if lines["JobIDRaw"].null_count() and rows["claim_id"].str.contains(r"[_+]").any():
        tally.notes.append(
            "there is no column JobIDRaw: tasks of arrays cannot be matched with their processes, "
            "and an export with that column brings them in again"
        )
    return Jobs(
        conform(rows.with_columns(single_names("user", "account"))), tally.report(path, count, jobs.height), as_of
    )


def _listed(lines: Sequence[str]) -> str:
    """`line 2, line 5, line 9 and 7 more`."""
    return ", ".join(lines[:_SHOWN]) + (f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else "")


def _drop(jobs: pl.DataFrame, where: pl.Expr, reason: str, tally: Tally) -> pl.DataFrame:
    kept = jobs.filter(~where.fill_null(value=False))
    tally.drop(reason, jobs.height - kept.height)
    return kept


def _with_times(path: str, jobs: pl.DataFrame, zone: str, tally: Tally) -> pl.DataFrame:
    """Adds start, end, submitted and planned_end in milliseconds."""
    moments = {name: read_moments(jobs[name], zone) for name in ("Start", "End", "Submit")}
    for name, found in moments.items():
        _refuse(path, jobs, found.wrong, (f"{name} is not a time, or one that {zone} skips", _OTHER_FORM), name)
        _refuse(path, jobs, found.outside, (f"{name} is not in the years 2000 to 9999", _LEAVE_OUT), name)
    _refuse(path, jobs, moments["Start"].first >= LATEST_MS, ("Start is after the year 5137", _LEAVE_OUT), "Start")
    start, end = start_and_end(moments["Start"], moments["End"], _elapsed_ms(jobs))
    end = _with_ends_of_what_is_over(jobs, start, end, tally)
    ambiguous = int((moments["Start"].ambiguous | moments["End"].ambiguous).sum())
    if ambiguous:
        tally.notes.append(
            f"{ambiguous} jobs begin or end in the hour that {zone} repeats: ElapsedRaw decides where it can, else it is "
            "the first pass; SLURM_TIME_FORMAT=%s leaves nothing open"
        )
    limit = jobs["TimelimitRaw"].cast(pl.Int64, strict=False) * MINUTE_MS
    written = jobs["Timelimit"].map_elements(duration_ms, return_dtype=pl.Int64)
    planned = start + limit.zip_with(limit.is_not_null(), written)
    return jobs.with_columns(start=start, end=end, submitted=moments["Submit"].first, planned_end=planned)


def _with_ends_of_what_is_over(jobs: pl.DataFrame, start: pl.Series, end: pl.Series, tally: Tally) -> pl.Series:
    """The ends; for ended jobs without one (the accounting lost a message), start plus elapsed time."""
    over = jobs["State"].str.extract(r"^\s*([A-Z_]+)", 1).is_in(_OVER).fill_null(value=False)
    lacking = over & end.is_null() & start.is_not_null()
    if lacking.any():
        elapsed = _elapsed_ms(jobs)
        rest = int((lacking & elapsed.is_null()).sum())
        tally.notes.append(
            f"{int(lacking.sum())} jobs are over by their State and have no End: they end after their ElapsedRaw"
            + (f"; {rest} of them have none, and are taken to run on" if rest else "")
        )
        end = (start + elapsed).zip_with(lacking, end)
    return end


def _elapsed_ms(jobs: pl.DataFrame) -> pl.Series:
    return jobs["ElapsedRaw"].cast(pl.Int64, strict=False) * SECOND_MS


def _with_gpus(path: str, jobs: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Adds gpu_count; jobs without GPUs are left out and counted."""
    counts: list[int | None] = []
    shares: list[bool] = []
    for line, allocated, asked in jobs.select("line", "AllocTRES", "ReqTRES").iter_rows():
        tres = allocated or asked or ""
        shares.append(has_share(tres))
        try:
            counts.append(gpu_count(tres))
        except ValueError as error:
            raise InputError(f"{path}, {line}: {error}", "export it again") from error
    counted = jobs.with_columns(pl.Series("gpu_count", counts, dtype=pl.Int64))
    shared = pl.col("gpu_count").is_null() & pl.Series(shares, dtype=pl.Boolean)
    counted = _drop(counted, shared, "shares of a GPU (gres/shard, gres/mps) and no whole one", tally)
    kept = _drop(counted, pl.col("gpu_count").is_null(), "no GPU", tally)
    if jobs.height and not kept.height and not any(shares):
        tally.notes.append(
            "no job has gres/gpu among its TRES: AccountingStorageTRES of slurm.conf has to name gres/gpu for that"
        )
    return kept


def _by_node(path: str, jobs: pl.DataFrame, host_of: Callable[[str], str], limits: InputLimits) -> pl.DataFrame:
    """One row per job and node, with `host` and, where the GPUs divide evenly, how many of them are there."""
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
    names = {node: host_of(node) for node in each["host"].unique()}
    return each.with_columns(pl.col("host").replace(names)).select(
        "host", "claim_id", "end", "gpu_count", "host_gpu_count", "submitted", "planned_end",
        time="start", scheduler=pl.lit("slurm"), user=_text("User"), account=_text("Account"), name=_text("JobName"),
        partition=_text("Partition"), qos=_text("QOS"),
        state=_text("State").str.extract(r"^([A-Z_]+)", 1),
    )  # fmt: skip


def _text(name: str) -> pl.Expr:
    plain = pl.col(name).str.strip_chars()
    return pl.when(~plain.is_in(_NO_VALUE)).then(plain)


def _refuse(path: str, jobs: pl.DataFrame, wrong: pl.Series, reason: tuple[str, str], column: str) -> None:
    """InputError that names the first lines that are wrong."""
    said, hint = reason
    bad = jobs.filter(wrong.fill_null(value=False)).head(_SHOWN).select("line", column).rows()
    if bad:
        named = ", ".join(f"{line} ('{value}')" for line, value in bad)
        raise InputError(
            f"{path}: {said}: {named}",
            hint,
        )

"""Allocations and GPU requests of a window, and differences between allocations and measurements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import polars as pl

from analytics.allocations.check import Checked
from analytics.allocations.listing import ListedAllocation, ListedRequest, sums_by
from analytics.glossary import state_label
from analytics.language.sentences import GpuHours, Moment, Number, SentenceList, Share, plain, tr, tr_many
from analytics.ledger.summary import ratio
from analytics.states import OCCUPIED
from analytics.tables.accounts import GROUP_TITLES
from analytics.tables.table import Cell, Column, Kind, Table, column, fact, for_programs, rows_column, single
from analytics.workloads.model import gpus_of
from fallow.clock import Window

_DISAGREEING = 5


def _user(each: ListedAllocation | ListedRequest) -> str | None:
    return plain(each.user or each.account or "") or None


_ABOUT: dict[str, Kind] = {
    "scheduler": "words",
    "standing": "words",
    "user": "words",
    "account": "words",
    "project": "words",
    "name": "words",
    "partition": "words",
    "qos": "words",
    "priority": "count",
    "eligible": "moment",
    "time_limit_s": "count",
    "host_count": "count",
    "gpu_model": "words",
}
"""Columns for programs that allocations and requests share."""


def allocation_list(found: Sequence[ListedAllocation], window: Window, measured_ms: int) -> Table | None:
    """Return a row per allocation over all its hosts, by start; None if there is no allocation."""
    if not found:
        return None
    spent = GpuHours(sum(each.gpu_ms or 0.0 for each in found))
    unknown = sum(each.gpu_ms is None for each in found)
    size = tr_many("{number} {allocation|allocations}, {hours} GPU-hours", len(found), hours=spent)
    return Table(
        name="allocations",
        title=tr("Allocations"),
        question=tr("Which GPUs were allocated to which user, and when?"),
        headline=tr("{size} and {unknown} of unknown size", size=size, unknown=unknown) if unknown else size,
        columns=(
            column("allocation_id", tr("allocation"), "words", lambda each: plain(each.allocation_id), "allocation_id"),
            column("by", tr("user"), "words", _user, audience="people"),
            column("start", tr("start"), "moment"),
            column("end", tr("end"), "moment", missing=tr("running")),
            column("gpus", tr("GPUs"), "count", lambda each: each.gpu_shares or each.gpus, "gpus"),
            column("gpu_hours", tr("GPU-hours"), "gpu_hours", "gpu_ms"),
            column("state", tr("state"), "words", lambda each: plain(each.state or each.standing), "state"),
            column("hosts", tr("hosts"), "words", _places, "hosts", json_type="array"),
            *(fact(key, kind) for key, kind in _ABOUT.items()),
            fact("submitted", "moment"),
            fact("planned_end", "moment"),
            fact("gpu_share_ratio", "number"),
            fact("unplaced_gpus", "count"),
            fact("reason", "words"),
            fact("gpu_shares", "words", about="Shares of GPUs, in the scheduler's words; null for whole GPUs."),
            rows_column("placed", _PLACED, "named", "The GPUs with a name."),
            *_ACCOUNTED,
        ),
        rows=tuple(found),
        notes=tuple(_counted_notes(found, window, measured_ms)),
    )


def _counted_notes(found: Sequence[ListedAllocation], window: Window, measured_ms: int) -> Iterator[str]:
    until = Moment(measured_ms if window.until_ms is None else min(window.until_ms, measured_ms))
    if running := sum(each.end is None for each in found):
        yield tr_many(
            "{number} {allocation is|allocations are} still running: {its|their} GPU-hours count up to {until}.",
            running,
            until=until,
        )
    if to_come := sum(each.end is not None and each.end > measured_ms for each in found):
        yield tr_many(
            "{number} {allocation ends|allocations end} after the newest sample: {its|their} GPU-hours count up to"
            " {until}.",
            to_come,
            until=until,
        )
    if shares := sum(each.gpu_share_ratio is not None for each in found):
        yield tr_many(
            "{number} {allocation has|allocations have} a share of {its|their} GPUs: {its|their} GPU-hours count that"
            " share.",
            shares,
        )


def _places(each: ListedAllocation) -> str:
    """Return the hosts with the indices of the GPUs where all of them are known, such as `gn1:0-3+gn2:1`."""
    indices = {host: [gpu.index for gpu in each.named if gpu.host == host] for host in each.hosts}
    if each.unplaced_gpus or any(index is None for on_host in indices.values() for index in on_host):
        indices = {}
    return "+".join(
        plain(host)
        + (f":{_ranges(on)}" if (on := [each for each in indices.get(host, ()) if each is not None]) else "")
        for host in each.hosts
    )


def _ranges(numbers: Sequence[int]) -> str:
    """Return rising numbers as `0-3,5`."""
    firsts = [each for each in numbers if each - 1 not in numbers]
    lasts = [each for each in numbers if each + 1 not in numbers]
    pairs = zip(firsts, lasts, strict=True)
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in pairs)


_PLACED = (
    fact("host", "host", nullable=False),
    fact("index", "count", about="Index of the GPU on its host; null where the inventory has no such GPU."),
    fact("gpu", "gpu", about="UUID.", nullable=False),
)
_ACCOUNTED = (
    fact("accounted_ratio", "share", about="Share of the GPU time with GPU figures of the scheduler's accounting."),
    fact("accounted_util_pct", "number", about="GPU utilization there, by the last reading of each task."),
    fact("accounted_peak_pct", "number", about="The same by the highest readings: it was at most this."),
    fact("accounted_mem_bytes", "number", about="Memory of each GPU there, by the last readings."),
)
"""Columns of what accounting reports of the use of GPUs. They bound it, and are no part of the ledger."""


def allocation_sums(found: Sequence[ListedAllocation], group: str) -> Table | None:
    """Return the GPU time by account and user, partition, ..., and its use by accounting; None without allocations."""
    if not found:
        return None
    title, kind = GROUP_TITLES[group]
    rows = sums_by(found, group)
    total_ms, accounted_ms = (sum(getattr(each, name) for each in rows) for name in ("gpu_ms", "accounted_ms"))
    size = tr("{hours} allocated GPU-hours.", hours=GpuHours(total_ms))
    known = tr(
        "{hours} allocated GPU-hours; the scheduler's accounting has the GPU utilization of {share} of them.",
        hours=GpuHours(total_ms),
        share=Share(ratio(accounted_ms, total_ms)),
    )
    utilization = tr(
        "Utilization is the last reading of each task, and at most the highest one: not an average over time. No such"
        " figure is in the ledger."
    )
    unknown = sum(each.gpu_ms is None for each in found)
    of_unknown_size = tr_many("{number} {allocation|allocations} of unknown size {is|are} not in the sums.", unknown)
    people: Literal["all", "programs"] = "all" if accounted_ms else "programs"
    return Table(
        name=f"allocations_{group}",
        title=tr("Allocated GPU time by {group}", group=title),
        question=tr("Who was allocated how much, and what does the scheduler know of its use?"),
        headline=known if accounted_ms else size,
        columns=(
            column(group, title, kind, lambda row: plain(row.name or "", 60) or None, "name"),
            *((column("user", tr("user"), "user"),) if group in ("account", "job") else ()),
            column("gpu_hours", tr("GPU-hours"), "gpu_hours", "gpu_ms"),
            column(
                "accounted_share",
                tr("utilization known"),
                "share",
                lambda row: Share(ratio(row.accounted_ms, row.gpu_ms)),
                audience=people,
            ),
            column("util_pct", tr("utilization, %"), "number", audience=people, digits=1),
            column("peak_pct", tr("at most, %"), "number", audience=people, digits=1),
            fact("allocations", "count"),
            fact("mem_bytes", "number", about="Memory of each GPU in use, by the last readings."),
        ),
        rows=tuple(rows),
        notes=(*((utilization,) if accounted_ms else ()), *((of_unknown_size,) if unknown else ())),
    )


def request_list(found: Sequence[ListedRequest]) -> Table | None:
    """Return a row per job that waits for GPUs; array tasks with the same wait share a row. None if no job waits."""
    if not found:
        return None
    waiting = [each for each in found if each.withdrawn is None]
    jobs = sum(each.tasks for each in waiting)
    gpus = gpus_of(sum(each.gpus * each.tasks for each in waiting if each.gpus is not None))
    unknown = sum(each.tasks for each in waiting if each.gpus is None)
    withdrawn = sum(each.tasks for each in found) - jobs
    parts = [tr_many("{number} {job waits|jobs wait} for {gpus}", jobs, gpus=gpus)]
    if unknown:
        parts.append(tr_many("{number} of unknown size", unknown))
    if waiting:
        parts.append(tr("as of {moment} at the latest", moment=Moment(max(each.as_of for each in waiting))))
    if withdrawn:
        parts.append(tr_many("{number} {was|were} withdrawn without any GPU", withdrawn))
    return Table(
        name="requests",
        title=tr("Requests without GPUs"),
        question=tr("What waits for GPUs, and for how long?"),
        headline=SentenceList(parts, ", "),
        columns=(
            column("allocation_id", tr("request"), "words", lambda each: plain(each.allocation_id), "allocation_id"),
            column("by", tr("user"), "words", _user, audience="people"),
            column("submitted", tr("submitted"), "moment"),
            column("waited_s", tr("waited"), "duration", "waited_ms"),
            column("wanted", tr("GPUs"), "count", _wanted, audience="people"),
            fact("gpus", "count"),
            fact("tasks", "count"),
            column("state", tr("state"), "words", lambda each: plain(each.state or each.standing), "state"),
            column("reason", tr("reason"), "words", lambda each: plain(each.reason or "") or None, "reason"),
            column("queue", tr("queue"), "words", lambda each: plain(each.partition or "") or None, audience="people"),
            *(fact(key, kind) for key, kind in _ABOUT.items()),
            fact("withdrawn", "moment"),
            fact("as_of", "moment"),
        ),
        rows=tuple(found),
    )


def _wanted(each: ListedRequest) -> Cell:
    if each.gpus is None or each.tasks == 1:
        return None if each.gpus is None else Number(each.gpus)
    return tr("{tasks} x {gpus}", tasks=each.tasks, gpus=each.gpus)


def check_tables(checked: Checked) -> Iterator[Table]:
    """Return a table per kind of difference between allocations and measurements, and a table for programs."""
    yield _without_telemetry(checked)
    yield _without_allocation(checked)
    yield _oversized(checked)
    yield _overlapping(checked)
    yield single(
        "allocation_check",
        (
            fact("unplaced_gpu_hours", "gpu_hours", "unplaced_gpu_ms"),
            fact("running_allocations", "count", "running"),
            fact("as_of", "moment", "as_of_ms"),
        ),
        checked,
    )
    yield for_programs(
        "unmeasured",
        tuple(fact(name, _UNSEEN_KINDS.get(name, "words")) for name in checked.unseen.columns),
        checked.unseen.iter_rows(named=True),
    )


_UNSEEN_KINDS: dict[str, Kind] = {"time": "moment", "end": "moment", "gpu_count": "count", "gpu_ms": "count"}


def _words(key: str, title: str) -> Column:
    return column(key, title, "words", lambda row: plain(row[key] or "", 60) or None, key)


def _found(name: str, title: str, headline: str, columns: Sequence[Column], rows: Sequence[Any]) -> Table:
    rest = tr("and {number} more", number=len(rows) - _DISAGREEING)
    return Table(name, title, "", headline, tuple(columns), tuple(rows), shown=_DISAGREEING, rest=rest)


_NEVER = {
    "the host never reported": tr("the host never reported"),
    "the GPU never reported": tr("the GPU never reported"),
}


def _without_telemetry(checked: Checked) -> Table:
    """Return allocations without measurements, the largest first, each with a similar host name where one exists."""
    unseen = checked.unseen
    by_allocation = unseen.group_by("allocation_id", "host", "user", "account", "why").agg(
        pl.when(pl.col("gpu_ms").is_not_null().any()).then(pl.col("gpu_ms").sum())
    )
    rows = by_allocation.sort(
        "gpu_ms", "allocation_id", "host", descending=[True, False, False], nulls_last=True
    ).to_dicts()
    headline = tr_many(
        "{hours} GPU-hours in {number} {allocation|allocations}.",
        unseen.select("scheduler", "allocation_id").unique().height,
        hours=GpuHours(int(unseen["gpu_ms"].sum())),
    )
    columns = (
        column("gpu_hours", tr("GPU-hours"), "gpu_hours", "gpu_ms"),
        _words("allocation_id", tr("allocation")),
        _words("user", tr("user")),
        _words("account", tr("account")),
        _words("host", tr("host")),
        column("why", tr("why"), "words", lambda row: _NEVER.get(row["why"], row["why"]), "why"),
        column("meant", tr("similar host name"), "words", lambda row: plain(checked.resembling.get(row["host"], ""))),
    )
    return _found("without_telemetry", tr("Allocated but never measured"), headline, columns, rows)


def _without_allocation(checked: Checked) -> Table:
    """Return GPU time without an allocation, by host, user and state, on hosts that have allocations."""
    grouped = checked.unallocated.group_by("host", "user").agg(
        pl.col("unallocated_ms").sum(),
        *(pl.col("unallocated_ms").filter(pl.col("state") == state).sum().alias(state) for state in OCCUPIED),
    )
    ordered = grouped.sort("unallocated_ms", "host", "user", descending=[True, False, False], nulls_last=True)
    headline = tr(
        "{hours} GPU-hours on hosts that have allocations.", hours=GpuHours(int(grouped["unallocated_ms"].sum()))
    )
    columns = (
        _words("host", tr("host")),
        _words("user", tr("user")),
        column("gpu_hours", tr("GPU-hours"), "gpu_hours", "unallocated_ms"),
        *(column(f"{state}_gpu_hours", state_label(state), "gpu_hours", state) for state in OCCUPIED),
    )
    return _found("without_allocation", tr("Used without an allocation"), headline, columns, ordered.to_dicts())


def _oversized(checked: Checked) -> Table:
    """Return allocations larger than their host.

    Notes count allocations by number only, and those that may have ended.
    """
    rows = checked.oversized.to_dicts()
    columns = (
        _words("allocation_id", tr("allocation")),
        _words("user", tr("user")),
        _words("account", tr("account")),
        _words("host", tr("host")),
        column("allocated", tr("allocated GPUs"), "count"),
        column("present", tr("GPUs present"), "count"),
    )
    headline = tr_many("{number} {allocation|allocations} of more GPUs than {its|their} host has.", len(rows))
    table = _found("oversized", tr("Allocations larger than their host"), headline, columns, rows)
    return replace(table, notes=tuple(_check_notes(checked)))


def _check_notes(checked: Checked) -> Iterator[str]:
    yield tr(
        "{hours} GPU-hours are allocated by number only: the GPUs are not known.",
        hours=GpuHours(checked.unplaced_gpu_ms),
    )
    if checked.running and checked.as_of_ms is not None and checked.as_of_ms < checked.until_ms:
        yield tr_many(
            "{number} imported {allocation was|allocations were} running at the last import ({moment}) and"
            " {counts|count} as still running: import again.",
            checked.running,
            moment=Moment(checked.as_of_ms),
        )


def _overlapping(checked: Checked) -> Table:
    headline = tr_many(
        "{number} {GPU has|GPUs have} several allocations at once: {it is|they are} shared, or a record is wrong.",
        checked.overlapping["gpu"].n_unique(),
    )
    columns = (
        column("time", tr("from"), "moment"),
        column("end", tr("until"), "moment"),
        _words("allocations", tr("allocations")),
        _words("gpu", tr("GPU")),
        _words("host", tr("host")),
    )
    rows = checked.overlapping.to_dicts()
    return _found("overlapping", tr("Several allocations at once"), headline, columns, rows)

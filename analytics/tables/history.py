"""History of a GPU or a host: users, processes, findings and events that the reader may see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any

import polars as pl

from analytics.contradictions.sentences import SENTENCES as CONTRADICTIONS
from analytics.frames import read_frame
from analytics.glossary import state_label
from analytics.language.sentences import Bytes, Day, GpuHours, Number, Share, plain, tr, tr_many
from analytics.ledger.summary import totals_of
from analytics.ledger.usage import stays
from analytics.quality.checks.files import FILE_SENTENCES
from analytics.quality.checks.values import SENTENCES
from analytics.readings import only_during
from analytics.report.part_tables import listed_processes, wrong_rows
from analytics.report.report import Report
from analytics.states import ALLOCATED_USED_FIRST, IDLE_ALLOCATED
from analytics.tables.basis import marked
from analytics.tables.findings import findings_about
from analytics.tables.point_samples import is_sampled
from analytics.tables.table import Column, Kind, LinkedCell, Table, column
from fallow import schema
from fallow.clock import DAY_MS, floor_ms, utc_day

_MOST = 100
_GPU_LETTERS = 14
_PROCESS = ("host", "gpu", "pid", "started")
"""Columns that identify a process on a GPU for all time."""
_REMARKS = SENTENCES | CONTRADICTIONS | FILE_SENTENCES


@dataclass(frozen=True, eq=False)
class Subject:
    """A GPU or a host by its name, with its ledger rows in the scope (at least one)."""

    name: str
    is_host: bool
    spans: pl.DataFrame

    @cached_property
    def gpus(self) -> list[str]:
        return self.spans["gpu"].unique().sort().to_list()

    @cached_property
    def hosts(self) -> list[str]:
        """Return the hosts of the subject, in order of time."""
        return self.spans.sort("time")["host"].unique(maintain_order=True).to_list()

    @cached_property
    def last_seen_ms(self) -> int:
        """Return the end of the newest row in the window."""
        return int(self.spans["end"].max())  # type: ignore[arg-type]  # not empty


def where_it_went(spans: pl.DataFrame) -> str:
    """Return how the time of the given ledger rows was used, and its observed share."""
    totals = totals_of(spans)
    sentence = tr(
        "{unused} of {observed} observed GPU-hours were not used: {free} unallocated, {reserved} allocated but unused,"
        " {held} held idle, {stalled} stalled; {active} were busy, {low} at low use, {unavailable} down. {coverage} of"
        " the time was observed.",
        unused=GpuHours(totals.unused_ms),
        observed=GpuHours(totals.observed_ms),
        **{state: GpuHours(spent_ms) for state, spent_ms in totals.state_ms.items()},
        coverage=Share(totals.coverage),
    )
    if not is_sampled(totals):
        return sentence
    bound = totals.unused_bound
    return tr(
        "{sentence} {share} of this time was only sampled: between {low} and {high} GPU-hours were not used.",
        sentence=sentence,
        share=Share(totals.sampled),
        low=GpuHours(bound.low_ms),
        high=GpuHours(bound.high_ms),
    )


def who_had_it(_: Report, subject: Subject) -> Table:
    """Return the users of the subject, the newest first."""
    found = stays(subject.spans)
    return Table(
        name="stays",
        title=tr("Users"),
        question=tr("Who used it or had it allocated in the window? GPU-hours by state."),
        headline=_counted(found, "{number} {period|periods} of use") or tr("No user had it in this window."),
        columns=(
            *_gpu_of_host(subject),
            _column("user", tr("user"), "user", lambda user: user or tr("(no user)")),
            _JOB,
            column("from", tr("from"), "moment", "time"),
            column("until", tr("until"), "moment", "end"),
            *map(_spent, ALLOCATED_USED_FIRST),
        ),
        rows=_newest(found),
        wide=True,
    )


def _spent(state: str) -> Column:
    figure = column(state, state_label(state), "gpu_hours")
    return marked(figure, itemgetter(f"{state}_unconfirmed")) if state in IDLE_ALLOCATED else figure


def processes_of(report: Report, subject: Subject) -> pl.DataFrame:
    """Return the processes on the subject in the window, the last observed first.

    A part of the fleet sees only its own processes. Columns: `host`, `gpu`, `pid`, `started`, `user`, `command`, `job`,
    `time` and `end` (of the first and the last list with the process) and `mem_used_max_bytes`. Null is unknown.
    """
    since_ms, until_ms = report.part.summary.since_ms, report.part.summary.until_ms
    rows = listed_processes(report.whole, report.scope, subject.spans).filter(
        pl.col("gpu").is_in(subject.gpus) & pl.col("host").is_in(subject.hosts),
        (pl.col("end") > since_ms) & (pl.col("time") < until_ms),
    )
    return (
        rows.sort("time")
        .group_by(*_PROCESS, maintain_order=True)
        .agg(
            *(pl.col(name).drop_nulls().last() for name in ("user", "command", "job")),
            pl.col("time").min(),
            pl.col("end").max(),
            pl.col("mem_used_max_bytes").max(),
        )
        .sort("end", "time", "gpu", "pid", descending=(True, True, False, False))
    )


def processes(report: Report, subject: Subject) -> Table:
    found = processes_of(report, subject)
    return Table(
        name="processes",
        title=tr("Processes"),
        question=tr("What ran on it, and how much of its memory did it take?"),
        headline=_counted(found, "{number} {process|processes}") or tr("No process was observed in this window."),
        columns=(
            *_gpu_of_host(subject),
            column("command", tr("command"), "words", lambda row: f"{plain(row['command'] or '?', 40)} ({row['pid']})"),
            _column("user", tr("user"), "words", lambda user: None if user is None else plain(user)),
            replace(_JOB, kind="words"),
            column("first_seen", tr("first observed"), "moment", "time"),
            column("last_seen", tr("last observed"), "moment", "end"),
            _column(
                "memory_bytes",
                tr("most memory"),
                "number",
                lambda size: None if size is None else Bytes(size),
                "mem_used_max_bytes",
            ),
        ),
        rows=_newest(found),
        wide=True,
    )


def findings_naming(report: Report, subject: Subject) -> Table:
    return findings_about(
        report.review,
        lambda each: not set(subject.gpus).isdisjoint(each.gpus),
        name="findings",
        title=tr("Findings"),
        question=tr("Which findings name it?"),
    )


def events_of(report: Report, subject: Subject) -> pl.DataFrame:
    """Return events of the host or GPU in the window, the newest first.

    A part of the fleet sees only events during its time. Columns: `time`, `gpu`, `kind`, `code` and `detail`.
    """
    since_ms, until_ms = report.part.summary.since_ms, report.part.summary.until_ms
    dates = [utc_day(day_ms) for day_ms in range(floor_ms(since_ms, DAY_MS), until_ms, DAY_MS)]
    lake = report.whole.inputs.lake
    files = lake.files("event", hosts=subject.hosts, dates=dates)
    rows = read_frame(files, schema.EVENT, ("time", "gpu", "kind", "code", "detail"), lake.left_out.leave_out)
    rows = rows.filter(pl.col("time") >= since_ms, pl.col("time") < until_ms)
    if not subject.is_host:
        rows = rows.filter(pl.col("gpu") == subject.name)
    if not report.scope.is_all:
        rows = only_during(rows.with_columns(interval_ms=pl.lit(1)), subject.spans)
    return rows.sort("time", descending=True)


def events(report: Report, subject: Subject) -> Table | None:
    """Return the events; None for a host in an edition for people, whose team has only some of its GPUs."""
    if subject.is_host and report.scope.is_personal:
        return None
    found = events_of(report, subject)
    return Table(
        name="events",
        title=tr("Events"),
        question=tr("What did the driver or the agent report?"),
        headline=_counted(found, "{number} {event|events}") or tr("No event in this window."),
        columns=(
            column("time", tr("moment"), "moment"),
            *_gpu_of_host(subject),
            _column("kind", tr("event"), "words", plain),
            _column("code", tr("code"), "words", lambda code: "" if code is None else str(code)),
            _column("detail", tr("detail"), "sentence", lambda detail: plain(detail or "")),
        ),
        rows=_newest(found),
        wide=True,
    )


def host_remarks(report: Report, subject: Subject) -> Table | None:
    """Return the problems of the host's rows; None in an edition for people."""
    found = wrong_rows(report.whole, report.scope, subject.name)
    if found is None:
        return None
    counted = Number(int(found["count"].sum()))
    return Table(
        name="quality",
        title=tr("Data quality"),
        question=tr("Are the rows of this host reliable?"),
        headline=tr("{rows} rows had an invalid value; no figure uses these values.", rows=counted)
        if found.height
        else tr("No problem was found."),
        columns=(
            _column("day", tr("day"), "moment", Day, "time"),
            _column("gpu", tr("GPU"), "words", lambda gpu: plain(gpu or subject.name, _GPU_LETTERS)),
            _column("remark", tr("problem"), "sentence", lambda kind: _REMARKS.get(kind, plain(kind)), "kind"),
            column("rows", tr("rows"), "count", "count"),
            column("example", tr("example"), "words", _example),
        ),
        rows=_newest(found.sort("time", descending=True)),
        wide=True,
    )


def _example(row: Mapping[str, Any]) -> str:
    """Return the name of a file without the folders of the lake."""
    example = str(row["example"] or "")
    return plain(example.rpartition("/")[2] if row["kind"] in FILE_SENTENCES else example)


def _newest(found: pl.DataFrame) -> tuple[dict[str, Any], ...]:
    return tuple(found.head(_MOST).iter_rows(named=True))


def _column(key: str, title: str, kind: Kind, written: Callable[[Any], object], field: str | None = None) -> Column:
    """Return a column of a frame that shows `written(value)`, from the frame's column `key` or `field`."""
    return column(key, title, kind, lambda row: written(row[field or key]))


_JOB = _column("job", tr("job"), "name", lambda job: plain(job or "-"))
_GPU = _column("gpu", tr("GPU"), "gpu", lambda gpu: LinkedCell(plain(gpu, _GPU_LETTERS), "gpu", gpu) if gpu else "")


def _gpu_of_host(subject: Subject) -> tuple[Column, ...]:
    """Return a column with the GPU of a row, for tables of a host only."""
    return (_GPU,) if subject.is_host else ()


def _counted(found: pl.DataFrame, rows: str) -> str:
    """Return the number of rows and, if not all are listed, the number of listed rows; empty without rows."""
    many = tr_many(rows, found.height)
    if found.height <= _MOST:
        return tr("{many} in this window.", many=many) if found.height else ""
    return tr("{many} in this window; the newest {shown} are listed.", many=many, shown=_MOST)

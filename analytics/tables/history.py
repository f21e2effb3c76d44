"""What happened to a GPU or a host: who had it, its processes, its findings and its events, as far as they are the reader's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import polars as pl

from analytics.frames import read_frame
from analytics.language.plain_text import plain
from analytics.language.quantities import Bytes, Day, GpuHours, Moment, Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.ledger.occupancy import stays
from analytics.ledger.summary import totals_by
from analytics.quality.checks.files import FILE_SENTENCES
from analytics.quality.checks.values import SENTENCES
from analytics.readings import only_during
from analytics.report.part_tables import listed_processes, wrong_rows
from analytics.tables.basis import PageBasis
from analytics.tables.findings_about import findings_about
from analytics.tables.palette import GIVEN
from analytics.tables.point_samples import is_sampled
from analytics.tables.table import Cell, Column, LinkedCell, Table
from fallow import schema
from fallow.clock import DAY_MS, floor_ms, utc_day

_T = TypeVar("_T")
_MOST = 100
_GPU_LETTERS = 14
_PROCESS = ("host", "gpu", "pid", "started")
"""What names one process on one GPU for ever."""
_GPU = Column("gpu", tr("GPU"), "gpu")


@dataclass(frozen=True, eq=False)
class Subject:
    """A GPU or a host by its name, with the ledger's rows of it in the scope; there are some."""

    name: str
    is_host: bool
    spans: pl.DataFrame

    @cached_property
    def gpus(self) -> list[str]:
        return self.spans["gpu"].unique().sort().to_list()

    @cached_property
    def hosts(self) -> list[str]:
        """Where it was, in the order of time."""
        return self.spans.sort("time")["host"].unique(maintain_order=True).to_list()

    @cached_property
    def last_seen_ms(self) -> int:
        """The end of its newest row in the window."""
        return int(self.spans["end"].max())  # type: ignore[arg-type]  # not empty


def where_it_went(spans: pl.DataFrame) -> str:
    """Where the time of some rows of the ledger went, and how much of it was observed."""
    totals = totals_by(spans, "'all'")["all"]
    spent = {state: GpuHours(milliseconds) for state, milliseconds in totals.state_ms.items()}
    said = tr(
        "{unused} of {observed} observed GPU-hours went unused: {free} free, {reserved} reserved, {held} held; "
        "{active} were active, {low} at low use, {unavailable} unavailable. {coverage} of the time was observed.",
        unused=GpuHours(totals.unused_ms), observed=GpuHours(totals.observed_ms), free=spent["free"], reserved=spent["reserved"],
        held=spent["held"], active=spent["active"], low=spent["low"], unavailable=spent["unavailable"], coverage=Share(totals.coverage),
    )  # fmt: skip
    if not is_sampled(totals):
        return said
    bound = totals.unused_bound
    return tr(
        "{said} {share} of that was seen by point samples: between {low} and {high} GPU-hours went unused.",
        said=said, share=Share(totals.sampled), low=GpuHours(bound.low_ms), high=GpuHours(bound.high_ms),
    )  # fmt: skip


def who_had_it(_: PageBasis, subject: Subject) -> Table:
    """The newest first."""
    found = stays(subject.spans)
    return Table(
        name="stays",
        title=tr("Who had it"),
        question=tr("Who used it or had it allocated in the window, and what was made of it? GPU-hours by state."),
        headline=_counted(tr_many("{number} period of use", "{number} periods of use", found.height), found.height)
        if found.height
        else tr("Nobody had it in this window."),
        columns=(
            *_of_host(subject, _GPU),
            Column("holder", tr("user"), "holder"),
            Column("job", tr("job"), "name"),
            Column("from", tr("from"), "moment"),
            Column("until", tr("until"), "moment"),
            *(Column(state, tr(state), "gpu_hours") for state in GIVEN),
        ),
        rows=tuple(
            (
                *_of_host(subject, _gpu(row["gpu"])),
                row["holder"] or tr("(nobody)"),
                plain(row["job"] or "-"),
                Moment(row["time"]),
                Moment(row["end"]),
                *(GpuHours(row[state]) for state in GIVEN),
            )
            for row in found.head(_MOST).iter_rows(named=True)
        ),
        wide=True,
    )


def processes_of(basis: PageBasis, subject: Subject) -> pl.DataFrame:
    """The processes that were on it in the window, the last seen first: of a part of people only theirs.

    `host`, `gpu`, `pid`, `started`, `user`, `command`, `job`, `time` and `end` (of the first and the last list that names it) and
    `mem_used_max_bytes`; null is unknown.
    """
    since_ms, until_ms = basis.report.summary.since_ms, basis.report.summary.until_ms
    rows = listed_processes(basis.whole, basis.report.scope, subject.spans).filter(
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


def processes(basis: PageBasis, subject: Subject) -> Table:
    found = processes_of(basis, subject)
    return Table(
        name="processes",
        title=tr("Processes"),
        question=tr("What ran on it, and how much of its memory did it take?"),
        headline=_counted(tr_many("{number} process", "{number} processes", found.height), found.height)
        if found.height
        else tr("No process was seen in this window."),
        columns=(
            *_of_host(subject, _GPU),
            Column("command", tr("command"), "words"),
            Column("user", tr("user"), "words"),
            Column("job", tr("job"), "words"),
            Column("first_seen", tr("first seen"), "moment"),
            Column("last_seen", tr("last seen"), "moment"),
            Column("memory", tr("most memory"), "number"),
        ),
        rows=tuple(
            (
                *_of_host(subject, _gpu(row["gpu"])),
                f"{plain(row['command'] or '?', 40)} ({row['pid']})",
                None if row["user"] is None else plain(row["user"]),
                plain(row["job"] or "-"),
                Moment(row["time"]),
                Moment(row["end"]),
                None if row["mem_used_max_bytes"] is None else Bytes(row["mem_used_max_bytes"]),
            )
            for row in found.head(_MOST).iter_rows(named=True)
        ),
        wide=True,
    )


def findings_naming(basis: PageBasis, subject: Subject) -> Table:
    """The findings that name any of its GPUs."""
    found = [each for each in basis.report.findings if set(subject.gpus).intersection(each.gpus)]
    question = tr("What should somebody do about it?")
    return findings_about(found, basis.report.money.currency, name="findings", title=tr("Findings"), question=question)


def events_of(basis: PageBasis, subject: Subject) -> pl.DataFrame:
    """Events of the window, of the host or of the GPU, the newest first; of a part of the fleet only those in its time.

    `time`, `gpu`, `kind`, `code` and `detail`.
    """
    since_ms, until_ms = basis.report.summary.since_ms, basis.report.summary.until_ms
    dates = [utc_day(day_ms) for day_ms in range(floor_ms(since_ms, DAY_MS), until_ms, DAY_MS)]
    lake = basis.whole.inputs.lake
    files = lake.files("event", hosts=subject.hosts, dates=dates)
    rows = read_frame(files, schema.EVENT, ("time", "gpu", "kind", "code", "detail"), lake.left_out.leave_out)
    rows = rows.filter(pl.col("time") >= since_ms, pl.col("time") < until_ms)
    if not subject.is_host:
        rows = rows.filter(pl.col("gpu") == subject.name)
    if not basis.report.scope.is_all:
        rows = only_during(rows.with_columns(interval_ms=pl.lit(1)), subject.spans)
    return rows.sort("time", descending=True)


def events(basis: PageBasis, subject: Subject) -> Table | None:
    """None for a host in an edition for people: what befell it and its other GPUs is nothing of a team's."""
    if subject.is_host and basis.report.scope.is_personal:
        return None
    found = events_of(basis, subject)
    return Table(
        name="events",
        title=tr("Events"),
        question=tr("What did the driver or the agent report?"),
        headline=_counted(tr_many("{number} event", "{number} events", found.height), found.height)
        if found.height
        else tr("No event in this window."),
        columns=(
            Column("time", tr("moment"), "moment"),
            *_of_host(subject, _GPU),
            Column("kind", tr("event"), "words"),
            Column("code", tr("code"), "words"),
            Column("detail", tr("detail"), "sentence"),
        ),
        rows=tuple(
            (
                Moment(row["time"]),
                *_of_host(subject, _gpu(row["gpu"]) if row["gpu"] else ""),
                plain(row["kind"]),
                "" if row["code"] is None else str(row["code"]),
                plain(row["detail"] or ""),
            )
            for row in found.head(_MOST).iter_rows(named=True)
        ),
        wide=True,
    )


def host_remarks(basis: PageBasis, subject: Subject) -> Table | None:
    """What was wrong with the host's rows; None in an edition for people."""
    found = wrong_rows(basis.whole, basis.report.scope, subject.name)
    if found is None:
        return None
    counted = Number(int(found["count"].sum()))
    return Table(
        name="quality",
        title=tr("Data quality"),
        question=tr("Can the rows of this host be believed?"),
        headline=tr("{rows} rows had something wrong in them; none is used as a number.", rows=counted)
        if found.height
        else tr("Nothing to remark."),
        columns=(
            Column("day", tr("day"), "moment"),
            Column("gpu", tr("GPU"), "words"),
            Column("remark", tr("remark"), "sentence"),
            Column("rows", tr("rows"), "count"),
            Column("example", tr("example"), "words"),
        ),
        rows=tuple(
            (
                Day(row["time"]),
                plain(row["gpu"] or subject.name, _GPU_LETTERS),
                (SENTENCES | FILE_SENTENCES).get(row["kind"], plain(row["kind"])),
                Number(row["count"]),
                plain(_example(row)),
            )
            for row in found.sort("time", descending=True).head(_MOST).iter_rows(named=True)
        ),
        wide=True,
    )


def _example(row: dict[str, Any]) -> str:
    """Of a file its name without the folders of the lake."""
    example = str(row["example"] or "")
    return example.rpartition("/")[2] if row["kind"] in FILE_SENTENCES else example


def _of_host(subject: Subject, cell: _T) -> tuple[_T, ...]:
    """A cell that only the tables of a host have."""
    return (cell,) if subject.is_host else ()


def _gpu(gpu: str) -> Cell:
    return LinkedCell(plain(gpu, _GPU_LETTERS), "gpu", gpu)


def _counted(many: str, number: int) -> str:
    """How many there are, and of too many how many are listed."""
    if number <= _MOST:
        return tr("{many} in this window.", many=many)
    return tr("{many} in this window; the newest {shown} are listed.", many=many, shown=Number(_MOST))

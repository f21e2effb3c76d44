"""What happened to a GPU or a host: who had it, its processes, its findings and its events, as far as they are the reader's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from dash import dcc, html

from analytics.frames import read_frame
from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Moment, Number
from analytics.language.sentences import say, say_many
from analytics.ledger.occupancy import stays
from analytics.names import JOINER, single_names
from analytics.readings import only_during
from analytics.states import ALLOCATED_USED_FIRST
from dashboard.charts.bars import finding_link
from dashboard.charts.panel import panel
from dashboard.charts.tables import gpu_link, holder_links, table
from fallow import schema
from fallow.clock import DAY_MS, floor_ms, utc_day

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.detail import Subject
    from dashboard.view import View

_FIRST, _MOST = 10, 100
"""Rows in sight, and with those that are folded away."""
_PROCESS = ("host", "gpu", "pid", "started")
"""What names one process on one GPU for ever."""


def stays_panel(view: View, subject: Subject, *, with_gpu: bool) -> html.Section:
    """Who had it, for what, from when to when, and what was made of it."""
    found = stays(subject.spans)
    header = [*(["GPU"] if with_gpu else []), "holder", "job", "from", "until", *ALLOCATED_USED_FIRST]
    rows = [
        [
            *_gpu(view, row, with_gpu=with_gpu),
            holder_links(view, row["holder"]),
            plain(row["job"] or "-"),
            view.language.moment(row["time"]),
            view.language.moment(row["end"]),
            *(view.language.hours(row[state]) for state in ALLOCATED_USED_FIRST),
        ]
        for row in found.head(_MOST).iter_rows(named=True)
    ]
    return panel(
        name="stays",
        title=view.say(say("Who had it")),
        question=view.say(say("Who held or claimed it in the window, and what was made of it? GPU-hours by state.")),
        finding=_counted(view, say_many("{number} stay", "{number} stays", found.height), found.height)
        if rows
        else view.say(say("Nobody had it in this window.")),
        body=_folded(view, header, rows, len(ALLOCATED_USED_FIRST)),
        wide=True,
    )


def processes(view: View, subject: Subject) -> pl.DataFrame:
    """The processes that were on it in the window, the last seen first: of a part of people only theirs.

    `host`, `gpu`, `pid`, `started`, `user`, `command`, `job`, `time` and `end` (of the first and the last list that names it) and
    `mem_used_max_bytes`; null is unknown.
    """
    since_ms, until_ms = view.report.summary.since_ms, view.report.summary.until_ms
    rows = view.whole.ledger.inside.rollups.processes().with_columns(single_names("user"))
    rows = rows.filter(
        pl.col("gpu").is_in(subject.gpus) & pl.col("host").is_in(subject.hosts),
        (pl.col("end") > since_ms) & (pl.col("time") < until_ms),
    )
    if not view.report.scope.is_all:
        rows = rows.join(_during(rows, subject.spans), on=("host", "gpu", "pid", "time"), how="semi")
    if view.report.scope.is_personal:
        names = {name for holder in subject.spans["holder"].drop_nulls() for name in holder.split(JOINER)}
        rows = rows.filter(pl.col("user").is_in(list(names)))
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


def _during(rows: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """The rows of `process_day` that were listed in some of the spans of their GPU."""
    own = spans.select("host", "gpu", from_ms="time", to_ms="end")
    met = rows.select("host", "gpu", "pid", "time", "end").join(own, on=("host", "gpu"))
    return met.filter((pl.col("from_ms") < pl.col("end")) & (pl.col("to_ms") > pl.col("time")))


def processes_panel(view: View, subject: Subject, *, with_gpu: bool) -> html.Section:
    """What ran on it."""
    found = processes(view, subject)
    header = [*(["GPU"] if with_gpu else []), "command", "user", "job", "first seen", "last seen", "most memory"]
    rows = [
        [
            *_gpu(view, row, with_gpu=with_gpu),
            f"{plain(row['command'] or '?', 40)} ({row['pid']})",
            plain(row["user"] or view.say(say("unknown"))),
            plain(row["job"] or "-"),
            view.language.moment(row["time"]),
            view.language.moment(row["end"]),
            view.say(say("unknown"))
            if row["mem_used_max_bytes"] is None
            else view.language.size(row["mem_used_max_bytes"]),
        ]
        for row in found.head(_MOST).iter_rows(named=True)
    ]
    return panel(
        name="processes",
        title=view.say(say("Processes")),
        question=view.say(say("What ran on it, and how much of its memory did it take?")),
        finding=_counted(view, say_many("{number} process", "{number} processes", found.height), found.height)
        if rows
        else view.say(say("No process was seen in this window.")),
        body=_folded(view, header, rows, 1),
        wide=True,
    )


def findings_panel(view: View, subject: Subject) -> html.Section:
    """The findings that name any of its GPUs."""
    found = [each for each in view.report.findings if set(subject.gpus).intersection(each.gpus)]
    items = [
        html.Li(
            [
                finding_link(view, each, html.B(view.say(each.sentence))),
                html.Div(
                    [
                        view.say(
                            say(
                                "{grade} confidence, {hours} GPU-hours, since {moment}",
                                grade=say(each.confidence.grade), hours=GpuHours(each.gpu_ms),
                                moment=Moment(each.since_ms),
                            )
                        ),
                        *([", ", holder_links(view, each.holder)] if each.holder else []),
                    ],
                    className="about",
                ),
            ]
        )
        for each in found
    ]  # fmt: skip
    link = dcc.Link(view.say(say("All findings")), href="/findings" + view.query.on_every_page.search)
    return panel(
        name="findings",
        title=view.say(say("Findings")),
        question=view.say(say("What should somebody do about it?")),
        finding=view.say(say_many("{number} finding", "{number} findings", len(found)))
        if found
        else view.say(say("No finding names it.")),
        body=[*_folded_list(view, items), link],
    )


def events(view: View, subject: Subject, gpu: str | None = None) -> pl.DataFrame:
    """Events of the window, of its hosts or of one GPU on them, the newest first; of a part only those in its time."""
    since_ms, until_ms = view.report.summary.since_ms, view.report.summary.until_ms
    dates = [utc_day(day_ms) for day_ms in range(floor_ms(since_ms, DAY_MS), until_ms, DAY_MS)]
    files = view.whole.inputs.lake.files("event", hosts=subject.hosts, dates=dates)
    rows = read_frame(files, schema.EVENT, ("time", "gpu", "kind", "code", "detail"))
    rows = rows.filter(pl.col("time") >= since_ms, pl.col("time") < until_ms)
    if gpu is not None:
        rows = rows.filter(pl.col("gpu") == gpu)
    if not view.report.scope.is_all:
        rows = only_during(rows.with_columns(interval_ms=pl.lit(1)), subject.spans)
    return rows.sort("time", descending=True)


def events_panel(view: View, rows: pl.DataFrame, *, with_gpu: bool) -> html.Section:
    """What the driver or the agent said of it."""
    shown = [
        [
            view.language.moment(row["time"]), *([plain(row["gpu"] or "-", 14)] if with_gpu else []), plain(row["kind"]),
            "" if row["code"] is None else str(row["code"]), plain(row["detail"] or ""),
        ]
        for row in rows.head(_MOST).iter_rows(named=True)
    ]  # fmt: skip
    header = ["moment", *(["GPU"] if with_gpu else []), "event", "code", "detail"]
    return panel(
        name="events",
        title=view.say(say("Events")),
        question=view.say(say("What did the driver or the agent report?")),
        finding=_counted(view, say_many("{number} event", "{number} events", rows.height), rows.height)
        if shown
        else view.say(say("No event in this window.")),
        body=_folded(view, header, shown, 0),
    )


def _gpu(view: View, row: dict[str, Any], *, with_gpu: bool) -> list[Any]:
    return [gpu_link(view, row["gpu"], plain(row["gpu"], 14))] if with_gpu else []


def _counted(view: View, many: str, number: int) -> str:
    """How many there are, and of too many how many are listed."""
    if number <= _MOST:
        return view.say(say("{many} in this window.", many=many))
    return view.say(say("{many} in this window; the newest {shown} are listed.", many=many, shown=Number(_MOST)))


def _folded_list(view: View, items: list[html.Li]) -> list[html.Ul | html.Details]:
    """The first items, and the others folded away."""
    first, rest = items[:_FIRST], items[_FIRST:]
    shown = [html.Ul(first, className="plainlist")] if first else []
    return [*shown, _more(view, len(rest), html.Ul(rest, className="plainlist"))] if rest else shown


def _more(view: View, number: int, body: html.Div | html.Ul) -> html.Details:
    summary = html.Summary(view.say(say("and {number} more", number=Number(number))))
    return html.Details([summary, body], className="more")


def _folded(view: View, header: Sequence[str], rows: list[list[Any]], right: int) -> list[html.Div | html.Details]:
    """The first rows, and the others folded away, so that a page on a phone has an end."""
    heads = [view.say(say(each)) for each in header]
    tables = [table(heads, each, right=right) for each in (rows[:_FIRST], rows[_FIRST:]) if each]
    if len(tables) < 2:
        return tables
    return [tables[0], _more(view, len(rows) - _FIRST, tables[1])]

"""What the pages of a GPU and of a host have in common: stays, events and findings, as far as they are the reader's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from dash import dcc, html

from analytics.frames import read_frame
from analytics.language.quantities import GpuHours, Moment, Number, Share
from analytics.language.sentences import say, say_many
from analytics.ledger.stays import stays
from analytics.ledger.summary import totals_by
from analytics.ledger.text import plain
from analytics.readings import only_during
from dashboard.charts.panel import panel
from dashboard.charts.tables import gpu_link, holder_links, table
from fallow import schema
from fallow.clock import DAY_MS, floor_ms, utc_day

if TYPE_CHECKING:
    from dashboard.source import View

_FIRST_STAYS, _MOST_STAYS = 10, 100
_MOST_EVENTS = 50
_GIVEN = ("active", "low", "held", "reserved")


def lead(items: list[tuple[str, Any]]) -> html.Div:
    """What a GPU or a host is, in a line of facts."""
    facts = [html.Div([html.Dt(label), html.Dd(value)]) for label, value in items if value]
    return html.Div(html.Dl(facts, className="facts"), className="panel wide lead")


def nothing(view: View, sentence: str) -> html.Div:
    """Why there is no page, and where to choose."""
    link = dcc.Link(view.say(say("Choose one in the film strip")), href="/film" + view.query.on_every_page.search)
    return html.Div([html.P(view.say(sentence)), html.P(link)], className="problem", role="alert")


def others_note(view: View) -> list[html.P]:
    """Why some of the time is empty, where somebody else had it."""
    if not view.report.scope.is_personal:
        return []
    return [
        html.P(view.say(say("Only this team's time is shown: the time of others is left empty.")), className="hint")
    ]


def state_sentence(view: View, spans: pl.DataFrame) -> str:
    """Where the time of some stretches went, and how much of it was observed."""
    totals = totals_by(spans, "'all'")["all"]
    unused = sum(totals.state_ms[state] for state in ("free", "reserved", "held"))
    return view.say(
        say(
            "{unused} of {observed} observed GPU-hours went unused: {free} free, {reserved} reserved, {held} held; "
            "{active} were active. {coverage} of the time was observed.",
            unused=GpuHours(unused), observed=GpuHours(totals.observed_ms), free=GpuHours(totals.state_ms["free"]),
            reserved=GpuHours(totals.state_ms["reserved"]), held=GpuHours(totals.state_ms["held"]),
            active=GpuHours(totals.state_ms["active"]), coverage=Share(totals.coverage),
        )
    )  # fmt: skip


def stays_panel(view: View, spans: pl.DataFrame, *, with_gpu: bool) -> html.Section:
    """Who had it, for what, from when to when, and what was made of it."""
    found = stays(spans)
    header = [*(["GPU"] if with_gpu else []), "holder", "job", "from", "until", *_GIVEN]
    rows = [
        [
            *([gpu_link(view, row["gpu"], plain(row["gpu"], 12))] if with_gpu else []),
            holder_links(view, row["holder"]),
            plain(row["job"] or "-"),
            view.language.moment(row["time"]),
            view.language.moment(row["end"]),
            *(view.language.hours(row[state]) for state in _GIVEN),
        ]
        for row in found.head(_MOST_STAYS).iter_rows(named=True)
    ]
    shown = [view.say(say(each)) for each in header]
    many = say_many("{number} stay", "{number} stays", found.height)
    more = say("{stays}; the newest {shown} are listed.", stays=many, shown=Number(_MOST_STAYS))
    finding = say("{stays}.", stays=many) if found.height <= _MOST_STAYS else more
    return panel(
        name="stays",
        title=view.say(say("Who had it")),
        question=view.say(say("Who held or claimed it in the window, and what was made of it? GPU-hours by state.")),
        finding=view.say(finding) if rows else view.say(say("Nobody had it in this window.")),
        body=_folded(view, shown, rows),
        wide=True,
    )


def _folded(view: View, header: list[str], rows: list[list[Any]]) -> list[html.Div | html.Details]:
    """The first rows, and the others folded away, so that a page on a phone has an end."""
    tables = [table(header, each, right=len(_GIVEN)) for each in (rows[:_FIRST_STAYS], rows[_FIRST_STAYS:]) if each]
    if len(tables) < 2:
        return tables
    summary = html.Summary(view.say(say("and {number} more", number=Number(len(rows) - _FIRST_STAYS))))
    return [tables[0], html.Details([summary, tables[1]], className="more")]


def findings_panel(view: View, gpus: set[str]) -> html.Section:
    """The findings that name any of the GPUs."""
    found = [each for each in view.report.findings if gpus.intersection(each.gpus)]
    items = [
        html.Li(
            [
                html.B(view.say(each.sentence)), " ",
                view.say(
                    say(
                        "{grade} confidence, {hours} GPU-hours, since {moment}",
                        grade=say(each.confidence.grade), hours=GpuHours(each.gpu_ms), moment=Moment(each.since_ms),
                    )
                ),
                *([", ", holder_links(view, each.holder)] if each.holder else []),
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
        body=[html.Ul(items, className="plainlist")] * bool(items) + [link],
    )


def events(view: View, hosts: list[str], spans: pl.DataFrame, gpu: str | None = None) -> pl.DataFrame:
    """Events of the window, of some hosts or of one GPU on them, the newest first; of a part only those in its time."""
    since_ms, until_ms = view.report.summary.since_ms, view.report.summary.until_ms
    dates = [utc_day(day_ms) for day_ms in range(floor_ms(since_ms, DAY_MS), until_ms, DAY_MS)]
    files = view.whole.inputs.lake.files("event", hosts=hosts, dates=dates)
    rows = read_frame(files, schema.EVENT, ("time", "gpu", "kind", "code", "detail"))
    rows = rows.filter(pl.col("time") >= since_ms, pl.col("time") < until_ms)
    if gpu is not None:
        rows = rows.filter(pl.col("gpu") == gpu)
    if not view.report.scope.is_all:
        rows = only_during(rows.with_columns(interval_ms=pl.lit(1)), spans)
    return rows.sort("time", descending=True)


def events_panel(view: View, rows: pl.DataFrame, *, with_gpu: bool) -> html.Section:
    """What happened to it."""
    shown = [
        [
            view.language.moment(row["time"]), *([plain(row["gpu"] or "-", 14)] if with_gpu else []), plain(row["kind"]),
            "" if row["code"] is None else str(row["code"]), plain(row["detail"] or ""),
        ]
        for row in rows.head(_MOST_EVENTS).iter_rows(named=True)
    ]  # fmt: skip
    header = [view.say(say(each)) for each in ("moment", *(["GPU"] if with_gpu else []), "event", "code", "detail")]
    return panel(
        name="events",
        title=view.say(say("Events")),
        question=view.say(say("What did the driver or the agent report?")),
        finding=view.say(say_many("{number} event in this window.", "{number} events in this window.", rows.height))
        if shown
        else view.say(say("No event in this window.")),
        body=[table(header, shown)] if shown else [],
    )

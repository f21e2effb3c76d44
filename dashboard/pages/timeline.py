"""The timeline: rows of GPUs, hosts or pools over time with annotations, as a table too, and the hours of the week."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import plotly.graph_objects as go
from dash import ALL, ClientsideFunction, Input, Output, State, callback_context, dcc, html, no_update

from analytics.capacity.off_peak import HoursOfWeek, hours_of_week
from analytics.decide.annotations import Annotation
from analytics.language.sentences import Moment, Number, SentenceList, Share, Span, tr, tr_many
from analytics.report.part_tables import all_known
from analytics.tables.basis import marked
from analytics.tables.breakdowns import totals_section
from analytics.tables.chart import numbered
from analytics.tables.hour_of_week import hour_of_week
from analytics.tables.names import place_name
from analytics.tables.palette import ORDER, Palette, palette
from analytics.tables.table import LinkedCell, Table, column
from analytics.tables.verdicts import release_sentence
from analytics.tables.wording import asked_for
from dashboard.access.people import PLANNER
from dashboard.actions import abouts, annotate, annotations_in_sight, can_withdraw, carry_out, withdraw
from dashboard.files import links
from dashboard.pages.page import Page, in_words
from dashboard.render.annotations_panel import (
    ABOUT,
    ADD,
    LIST,
    OUT,
    STATUS,
    TEXT,
    WHEN,
    annotation_items,
    annotations_panel,
)
from dashboard.render.charts import draw_annotations
from dashboard.render.layout import layout
from dashboard.render.panel import graph, panel, section_panel
from dashboard.render.rows import RowLabel, TimelineRows, blocks, gpu_rows, group_rows
from dashboard.render.states import legend
from dashboard.render.strip import TOOLTIP, WORDS, gpu_words, group_words, heatmap, hover, time_axis
from dashboard.render.tables import table
from dashboard.source import LakeSource
from dashboard.timeline import (
    GPUS,
    HOSTS,
    POOLS,
    SORTS,
    Frames,
    GroupTimeline,
    PageTimeline,
    gpu_timeline,
    group_timeline,
    kind_of,
    kinds_of,
    sort_of,
)
from dashboard.times import visible, zoom_note
from dashboard.view import View
from fallow.clock import SystemClock
from fallow.outside_text import chart_text


def connect_strip(app: Any, graph: str) -> None:
    """Connect tooltip, click and zoom of a graph with a strip; only the address sends text to the server."""
    tooltip = [(TOOLTIP, "show"), (TOOLTIP, "bbox"), (TOOLTIP, "children")]
    for function, outputs, changed, state in (
        ("tooltip", tooltip, "hoverData", State(WORDS, "data")),
        ("open", [("url", "pathname"), ("url", "search")], "clickData", State(WORDS, "data")),
        ("zoom", [("url", "search")], "relayoutData", State("url", "search")),
    ):
        app.clientside_callback(
            ClientsideFunction("timeline", function),
            *(Output(*each, allow_duplicate=True) for each in outputs),
            Input(graph, changed),
            state,
            prevent_initial_call=True,
        )


GRAPH, _STRIP = "timeline-graph", "timeline-strip"

_AROUND_PX = 60
"""The marks of the time above the rows, and what is below them."""
_MOST_LISTED = 64
"""Rows of the folded table. The browser makes a component of every cell and link at once, even while it is folded."""
_MOST_LETTERS = 22

_SORT_NAMES = {"host": tr("host"), "waste": tr("unused time"), "user": tr("user")}
_ROW_NAMES = {POOLS: tr("pools"), HOSTS: tr("hosts"), GPUS: tr("GPUs")}


@dataclass(frozen=True)
class _Picture:
    """The content of the panel: frames in rows, names of some rows, label, question, browser texts, and table."""

    timeline: Frames
    rows: TimelineRows
    labels: list[tuple[float, str]]
    label: str
    question: str
    cut: str
    words: dict[str, Any]
    table: Callable[[], html.Details]


def timeline_panel(view: View, colours: Palette) -> html.Section:
    kind = kind_of(view)
    picture = _of_gpus(view, colours) if kind == GPUS else _of_groups(view, colours, kind)
    height_px = _AROUND_PX + picture.rows.height_px
    given = view.report.recommendations.fleet
    finding = asked_for(view.report) if given is None else release_sentence(given)
    paler = tr("Paler colours are sampled: seen at moments, not confirmed.") if picture.timeline.is_sampled else ""
    figure = _figure(view, picture, colours, height_px)
    orders = SORTS if kind == GPUS else SORTS[:2]
    return panel(
        name="timeline",
        title=tr("Every GPU over time"),
        question=picture.question,
        finding=SentenceList([finding, *filter(None, (picture.cut, paler))], " "),
        body=[
            html.Div(
                [
                    legend(colours, ORDER),
                    html.Div([_levels(view, kind), _sorting(view, kind, orders)], className="timeline-choices"),
                ],
                className="timeline-head",
            ),
            zoom_note(view),
            html.Div(
                graph(GRAPH, figure, SentenceList([picture.label, finding], " "), height_px),
                className="timeline-rows",
                tabIndex="0",
            ),
            *hover(colours, picture.words),
            picture.table(),
        ],
        wide=True,
    )


def _of_gpus(view: View, colours: Palette) -> _Picture:
    timeline = gpu_timeline(view)
    sort = sort_of(view)
    rows = gpu_rows(timeline, by_pool=sort == "host")
    width = Span(timeline.bin_ms)
    opens = tr("A click opens the host.") if rows.is_thin else tr("A click opens the GPU.")
    return _Picture(
        timeline=timeline,
        rows=rows,
        labels=rows.labels(_names_of_gpus(view, timeline, sort)),
        label=tr_many(
            "Timeline: the state of {number} {GPU|GPUs} in every {width} from {since} to {until}.",
            len(timeline.gpus),
            width=width,
            since=Moment(visible(view)[0]),
            until=Moment(visible(view)[1]),
        ),
        question=tr(
            "Which GPUs are idle, and since when? One row per GPU, one column per {width}; the colour is the state with"
            " the most time. {opens}",
            width=width,
            opens=opens,
        ),
        cut=""
        if len(timeline.gpus) == timeline.in_all
        else tr(
            "Shown: the {shown} of {all} GPUs with the most unused time.",
            shown=Number(len(timeline.gpus)),
            all=Number(timeline.in_all),
        ),
        words=gpu_words(view, timeline, rows),
        table=partial(_list, view, colours, timeline),
    )


def _names_of_gpus(view: View, timeline: PageTimeline, sort: str) -> list[RowLabel]:
    """Return the names that the rows are sorted by: hosts under their pools, hosts by waste, or users."""
    if sort == "host":
        return _under_pools(view, timeline.pools, timeline.hosts)
    if sort == "waste":
        return [RowLabel(row, 1, _label(view, host)) for row, host in enumerate(timeline.hosts)]
    no_user = view.translate(tr("(no user)"))
    return [
        RowLabel(row, size, no_user if name is None else _label(view, name))
        for row, size, name in blocks(timeline.users)
    ]


def _under_pools(view: View, pools: Sequence[str], hosts: Sequence[str]) -> list[RowLabel]:
    """Return the hosts; with several pools, each pool's name precedes its first host."""
    found = {row: RowLabel(row, size, _label(view, host)) for row, size, host in blocks(hosts)}
    several = len(set(pools)) > 1
    for row, _, pool in blocks(pools) if several else ():
        first = found[row]
        found[row] = RowLabel(row, first.count, f"<b>{_label(view, place_name(pool))}</b> {first.name}", is_pool=True)
    return list(found.values())


def _label(view: View, name: str) -> str:
    return chart_text(view.language.shown(name), _MOST_LETTERS)


def _of_groups(view: View, colours: Palette, kind: str) -> _Picture:
    timeline = group_timeline(view, kind)
    by_name = sort_of(view) != "waste"
    rows = group_rows(timeline, by_pool=by_name)
    width = Span(timeline.bin_ms)
    named = (
        _under_pools(view, timeline.pools, timeline.names)
        if kind == HOSTS and by_name
        else [RowLabel(row, 1, _label(view, place_name(name))) for row, name in enumerate(timeline.names)]
    )
    count = len(timeline.names)
    return _Picture(
        timeline=timeline,
        rows=rows,
        labels=rows.labels(named),
        label=tr_many(
            "Timeline: shares of the states of {number} {pool|pools} in every {width} from {since} to {until}."
            if kind == POOLS
            else "Timeline: shares of the states of {number} {host|hosts} in every {width} from {since} to {until}.",
            count,
            width=width,
            since=Moment(visible(view)[0]),
            until=Moment(visible(view)[1]),
        ),
        question=tr(
            (
                "Where are GPUs idle, and since when? One row per pool, one column per {width}; the height of a colour"
                " is its share of the GPU time, rounded to {step}. A click opens the pool."
                if kind == POOLS
                else (
                    "Where are GPUs idle, and since when? One row per host, one column per {width}; the height of a"
                    " colour is its share of the GPU time, rounded to {step}. A click opens the host."
                )
            ),
            width=width,
            step=Share(1 / timeline.lines),
        ),
        cut=""
        if count == timeline.in_all
        else tr(
            "Shown: the {shown} of {all} rows with the most unused time.",
            shown=Number(count),
            all=Number(timeline.in_all),
        ),
        words=group_words(view, timeline, rows),
        table=partial(_totals, view, colours, timeline),
    )


def _levels(view: View, kind: str) -> html.Div | None:
    """Return the levels of rows as links: pools, hosts or GPUs."""
    possible = kinds_of(view)
    if len(possible) == 1 and not view.query.pool:
        return None
    items = [
        _chosen(
            _ROW_NAMES[each],
            view.query.but(
                rows=each, sort="" if each != GPUS and view.query.sort == "user" else view.query.sort
            ).search,
            is_here=each == kind,
        )
        for each in possible
    ]
    if view.query.pool:
        every = dcc.Link(tr("all pools"), href=view.query.but(pool="", rows="").search or "?")
        items = [html.Span(every), *items]
    return html.Div([html.Span(tr("Rows"), className="label"), *items], className="timeline-sorting")


def _sorting(view: View, kind: str, orders: Sequence[str]) -> html.Div:
    """Return the orders as links: screen readers cannot read dash's own radio buttons."""
    chosen = sort_of(view) if sort_of(view) in orders else SORTS[0]
    names = {**_SORT_NAMES, "host": tr("pool") if kind == POOLS else _SORT_NAMES["host"]}
    items = [
        _chosen(
            names[name], view.query.but(sort="" if name == SORTS[0] else name).search or "?", is_here=name == chosen
        )
        for name in orders
    ]
    return html.Div([html.Span(tr("Sorted by"), className="label"), *items], className="timeline-sorting")


def _chosen(name: str, href: str, *, is_here: bool) -> html.Span:
    link = dcc.Link(name, href=href, className="here" if is_here else "")
    return html.Span(link, **({"aria-current": "true"} if is_here else {}))


def _figure(view: View, picture: _Picture, colours: Palette, height_px: int) -> go.Figure:
    figure = go.Figure(heatmap(picture.timeline, colours, picture.rows))
    since_ms, until_ms = int(picture.timeline.edges[0]), int(picture.timeline.edges[-1])
    figure.update_layout(
        layout(
            colours,
            height_px,
            xaxis=time_axis(view.language, colours, since_ms, until_ms, side="top"),
            yaxis={
                "autorange": "reversed",
                "showgrid": False,
                "tickvals": [position for position, _ in picture.labels],
                "ticktext": [name for _, name in picture.labels],
            },
            hovermode="closest",
            dragmode="zoom",
        )
    )
    moments = [each.at_ms for each in annotations_in_sight(view)]
    shown = (each if since_ms <= each <= until_ms else None for each in moments)
    draw_annotations(figure, colours, numbered(shown))
    return figure


def _totals(view: View, colours: Palette, timeline: GroupTimeline) -> html.Details:
    """Return the ledger's totals of the whole window, with links to the rows' pools or hosts."""
    section = totals_section(timeline.kind, list(zip(timeline.names, timeline.totals, strict=True)))
    named, *figures = section.columns
    linked = replace(named, read=lambda name: LinkedCell(place_name(name), named.kind, name))
    return _listed(
        view,
        colours,
        tr("The figures as a table"),
        replace(section, name="timeline", columns=(linked, *figures)),
        html.P(section.question, className="hint"),
    )


def _listed(view: View, colours: Palette, title: str, rows: Table, *notes: html.P) -> html.Details:
    """Return the first rows of a table, folded, with a note if there are more."""
    first = tr("The first {number} are listed. Choose a pool or a model to see others.", number=Number(_MOST_LISTED))
    note = [html.P(first, className="hint")] if len(rows.rows) > _MOST_LISTED else []
    listed = replace(rows, rows=rows.rows[:_MOST_LISTED])
    return html.Details([html.Summary(title), *notes, *note, table(view, colours, listed, listed.cells, "linked")])


def _list(view: View, colours: Palette, timeline: PageTimeline) -> html.Details:
    """Return the rows as a table with links, for readers who do not click into pictures."""
    columns = (
        column("gpu", tr("GPU"), "gpu", lambda row: LinkedCell(timeline.gpus[row], "gpu", timeline.gpus[row])),
        column("host", tr("host"), "host", timeline.hosts.__getitem__),
        column("user", tr("longest user"), "user", timeline.users.__getitem__, missing=tr("(no user)")),
        marked(
            column("unused_gpu_hours", tr("unused GPU-hours"), "gpu_hours", timeline.unused_ms.__getitem__),
            timeline.unconfirmed.__getitem__,
        ),
    )
    return _listed(
        view,
        colours,
        tr("The GPUs as a list"),
        Table("timeline", "", "", "", columns, tuple(range(len(timeline.gpus)))),
    )


def _annotations(view: View) -> tuple[tuple[Annotation, ...], list[str]]:
    """Return the annotations in sight, and the ids of those that the reader may remove."""
    shown = annotations_in_sight(view)
    return shown, [each.annotation_id for each in shown if can_withdraw(view, each)]


def _connect_annotations(app: Any, source: LakeSource) -> None:
    @app.callback(  # type: ignore[untyped-decorator]  # dash is untyped
        Output(STATUS, "children"),
        Output(LIST, "children"),
        Output(_STRIP, "children"),
        Output(TEXT, "value"),
        Output("version", "data", allow_duplicate=True),
        Input(ADD, "n_clicks"),
        Input({"type": OUT, "index": ALL}, "n_clicks"),
        State("url", "search"),
        State("scheme", "data"),
        State(TEXT, "value"),
        State(WHEN, "value"),
        State(ABOUT, "value"),
        prevent_initial_call=True,
    )
    def press(added: int | None, removed: list[int | None], *values: Any) -> Any:
        search, scheme, text, when, about = values
        asked = callback_context.triggered_id
        if not (added if asked == ADD else any(removed or ())):
            return [no_update] * 5
        status, _, now = carry_out(
            source,
            search,
            lambda view: (_written(view, asked, str(text or ""), str(when or ""), str(about or "")), None),
        )
        if now is None:
            return [status, *[no_update] * 4]
        shown = [annotation_items(*_annotations(now)), timeline_panel(now, palette(str(scheme)))]
        return [status, *in_words(shown, now.language), "", now.version]


def _written(view: View, asked: Any, text: str, when: str, about: str) -> str:
    now_ms = SystemClock().now_ms()
    if isinstance(asked, dict):
        withdraw(view, str(asked.get("index", "")), now_ms)
        return tr("Removed.")
    scope, _, name = about.partition(":")
    added = annotate(view, text, when, (scope, name or None), now_ms)
    summary = view.report.ledger.summary
    if summary.since_ms <= added.at_ms <= summary.until_ms:
        return tr("Written.")
    return tr("Written; {moment} is not in this window.", moment=Moment(added.at_ms))


def _hours(view: View) -> HoursOfWeek | None:
    """Return the hours of the weeks up to the window's end; computed once for all zoomed parts of the window."""

    def make() -> HoursOfWeek | None:
        spans = all_known(view.whole, view.report.scope).segments
        return hours_of_week(spans, view.report.ledger.summary.until_ms, view.zone)

    return view.kept("hours of the week", make)


def _connect(app: Any, source: LakeSource) -> None:
    """Connect the strip, whose actions change the address from which the page is made, and the annotations."""
    connect_strip(app, GRAPH)
    _connect_annotations(app, source)


def _content(view: View, colours: Palette) -> html.Div:
    files = html.Div(links(view, "gpus"), className="tools")
    hours = section_panel(view, colours, hour_of_week(_hours(view), view.part.summary.totals, view.zone))
    annotations = annotations_panel(view, *_annotations(view), abouts(view) if view.reader.may(PLANNER) else ())
    panels = [html.Div(timeline_panel(view, colours), id=_STRIP, className="wide"), annotations, hours]
    return html.Div([files, html.Div([each for each in panels if each is not None], className="panels")])


TIMELINE = Page(
    "/timeline", tr("Timeline"), _content, _connect, question=tr("Which GPU was in which state, and since when?")
)

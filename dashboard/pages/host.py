"""One host: its GPUs side by side, what the machine itself did, who had them, and what is known to be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from dash import html

from analytics.language.quantities import Number
from analytics.language.sentences import say
from analytics.ledger.text import plain
from analytics.quality.checks.values import SENTENCES
from dashboard.charts.panel import panel
from dashboard.charts.series import series_chart
from dashboard.charts.strip import state_legend
from dashboard.charts.tables import gpu_link, table
from dashboard.detail import (
    events,
    events_panel,
    findings_panel,
    lead,
    nothing,
    others_note,
    state_sentence,
    stays_panel,
)
from dashboard.film import shoot
from dashboard.pages.film import connect_strip
from dashboard.people import VIEWER
from dashboard.series import host_series
from dashboard.zoom import zoom_note

if TYPE_CHECKING:
    from dashboard.palette import Palette
    from dashboard.source import Source, View

_GRAPH = "host-graph"


class Host:
    """`/host?host=NAME`."""

    path = "/host"
    name: str = say("Host")
    role = VIEWER
    listed = False

    def connect(self, app: Any, source: Source) -> None:  # noqa: ARG002  # every page is given it
        """Tooltip, click on a GPU's row, and zoom."""
        connect_strip(app, _GRAPH)

    def content(self, view: View, colours: Palette) -> html.Div:
        """The host that the address names, as far as it is in what the reader sees."""
        host = view.query.host
        spans = view.part.inside.stretches.filter(pl.col("host") == host)
        if not host:
            return nothing(view, say("No host is named."))
        if spans.is_empty():
            return nothing(
                view,
                say(
                    "There is nothing to show of the host {host}: it is not known, or not in this window, or not of what is "
                    "chosen above or yours to see.",
                    host=plain(host),
                ),
            )
        gpus = spans["gpu"].unique().sort().to_list()
        return html.Div(
            [
                lead(_facts(view, host, gpus, spans)),
                _states(view, colours, host, gpus, spans),
                stays_panel(view, spans, with_gpu=True),
                findings_panel(view, set(gpus)),
                # what befell the host and its other GPUs is nothing of a team's
                *(
                    []
                    if view.report.scope.is_personal
                    else [events_panel(view, events(view, [host], spans), with_gpu=True), _quality(view, host)]
                ),
            ],
            className="panels",
        )


def _facts(view: View, host: str, gpus: list[str], spans: pl.DataFrame) -> list[tuple[str, Any]]:
    inventory = view.whole.inventory
    links: list[Any] = []
    for gpu in gpus:
        links += [", ", gpu_link(view, gpu, plain(gpu, 14))] if links else [gpu_link(view, gpu, plain(gpu, 14))]
    return [
        (view.say(say("host")), plain(host)),
        (view.say(say("GPUs")), html.Span(links)),
        (view.say(say("model")), ", ".join(sorted({plain(inventory.model(gpu)) for gpu in gpus}))),
        (view.say(say("pool")), ", ".join(sorted({plain(inventory.pool(gpu)) for gpu in gpus}))),
        (view.say(say("last seen")), view.language.moment(int(spans["end"].max()))),  # type: ignore[arg-type]  # not empty
    ]


def _states(view: View, colours: Palette, host: str, gpus: list[str], spans: pl.DataFrame) -> html.Section:
    film, series = shoot(view, only=gpus), host_series(view, host)
    return panel(
        name="host",
        title=view.say(say("The GPUs side by side")),
        question=view.say(say("Do its GPUs work together or wait for one another, and does the machine keep up?")),
        finding=state_sentence(view, spans),
        body=[
            state_legend(view, colours),
            *others_note(view),
            zoom_note(view),
            *series_chart(view, colours, _GRAPH, film, series),
        ],
        wide=True,
    )


def _quality(view: View, host: str) -> html.Section:
    """What was wrong with the host's rows; for whoever sees the fleet."""
    rows = view.whole.ledger.inside.rollups.quality().filter(pl.col("host") == host)
    shown = [
        [
            view.language.day(row["time"]),
            plain(row["gpu"] or host, 14),
            view.say(SENTENCES[row["kind"]]) if row["kind"] in SENTENCES else plain(row["kind"]),
            view.language.number(row["count"]),
            plain(row["example"] or ""),
        ]
        for row in rows.sort("time", descending=True).head(100).iter_rows(named=True)
    ]
    header = [view.say(say(each)) for each in ("day", "GPU", "remark", "rows", "example")]
    total = Number(int(rows["count"].sum()))
    return panel(
        name="quality",
        title=view.say(say("Data quality")),
        question=view.say(say("Can the rows of this host be believed?")),
        finding=view.say(say("{rows} rows had something wrong in them; none is used as a number.", rows=total))
        if shown
        else view.say(say("Nothing to remark.")),
        body=[table(header, shown)] if shown else [],
        wide=True,
    )

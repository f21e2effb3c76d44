"""One GPU: its states, its series, who had it and what happened to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from dash import html

from analytics.language.quantities import Amount
from analytics.language.sentences import say
from analytics.ledger.text import plain
from analytics.money.text import price_source
from dashboard.charts.panel import panel
from dashboard.charts.series import series_chart
from dashboard.charts.strip import state_legend
from dashboard.charts.tables import gpu_link, host_link
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
from dashboard.series import gpu_series
from dashboard.zoom import zoom_note

if TYPE_CHECKING:
    from dashboard.palette import Palette
    from dashboard.source import Source, View

_GRAPH = "gpu-graph"


class Gpu:
    """`/gpu?gpu=UUID`."""

    path = "/gpu"
    name: str = say("GPU")
    role = VIEWER
    listed = False

    def connect(self, app: Any, source: Source) -> None:  # noqa: ARG002  # every page is given it
        """Tooltip and zoom: a zoomed page is an address, whose rows are read for what is in sight only."""
        connect_strip(app, _GRAPH)

    def content(self, view: View, colours: Palette) -> html.Div:
        """The GPU that the address names, as far as it is in what the reader sees."""
        gpu = view.query.gpu
        spans = view.part.inside.stretches.filter(pl.col("gpu") == gpu)
        if not gpu:
            return nothing(view, say("No GPU is named."))
        if spans.is_empty():
            return nothing(
                view,
                say(
                    "There is nothing to show of the GPU {gpu}: it is not known, or not in this window, or not of what is "
                    "chosen above or yours to see.",
                    gpu=plain(gpu),
                ),
            )
        hosts = spans.sort("time")["host"].unique(maintain_order=True).to_list()
        return html.Div(
            [
                lead(_facts(view, gpu, spans, hosts)),
                _states(view, colours, gpu, spans),
                stays_panel(view, spans, with_gpu=False),
                findings_panel(view, {gpu}),
                events_panel(view, events(view, hosts, spans, gpu), with_gpu=False),
            ],
            className="panels",
        )


def _facts(view: View, gpu: str, spans: pl.DataFrame, hosts: list[str]) -> list[tuple[str, Any]]:
    device = view.whole.inventory.device(gpu, hosts[-1])
    price = view.whole.money.costs.price_of(gpu)
    beside = view.part.inside.stretches.filter(pl.col("host") == hosts[-1])["gpu"].unique().sort()
    others = [each for each in beside if each != gpu]
    links: list[Any] = []
    for each in others:
        links += [", ", gpu_link(view, each, plain(each, 14))] if links else [gpu_link(view, each, plain(each, 14))]
    cost = (
        view.say(say("{money} ({source})", money=Amount(price.hourly, price.currency), source=price_source(price)))
        if price
        else ""
    )
    return [
        (view.say(say("GPU")), plain(gpu)),
        (view.say(say("model")), plain(view.whole.inventory.model(gpu))),
        (view.say(say("host")), host_link(view, hosts[-1])),
        (view.say(say("index")), "" if device.gpu_index is None else str(device.gpu_index)),
        (view.say(say("pool")), plain(view.whole.inventory.pool(gpu))),
        (view.say(say("last seen")), view.language.moment(int(spans["end"].max()))),  # type: ignore[arg-type]  # not empty
        (view.say(say("per GPU-hour")), cost),
        (view.say(say("on the same host")), html.Span(links) if links else ""),
    ]


def _states(view: View, colours: Palette, gpu: str, spans: pl.DataFrame) -> html.Section:
    film, series = shoot(view, only=[gpu]), gpu_series(view, gpu)
    return panel(
        name="gpu",
        title=view.say(say("States and series")),
        question=view.say(say("What did it do, minute by minute, and what did that look like to the GPU itself?")),
        finding=state_sentence(view, spans),
        body=[
            state_legend(view, colours),
            *others_note(view),
            zoom_note(view),
            *series_chart(view, colours, _GRAPH, film, series),
        ],
        wide=True,
    )

"""One GPU: its states, its series, who had it and what happened to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from dash import html

from analytics.language.plain_text import plain
from analytics.language.quantities import Amount
from analytics.language.sentences import say
from analytics.render.money_text import price_source
from dashboard.access.people import VIEWER
from dashboard.charts.tables import host_link
from dashboard.detail import find, gpu_links, lead, nothing, states
from dashboard.histories import events, events_panel, findings_panel, processes_panel, stays_panel
from dashboard.pages.film import connect_strip
from dashboard.series import gpu_series

if TYPE_CHECKING:
    from dashboard.detail import Subject
    from dashboard.palette import Palette
    from dashboard.source import Source
    from dashboard.view import View

_GRAPH = "gpu-graph"
_NO_NAME = 8
"""Letters: what is shorter begins too many names."""


class Gpu:
    """`/gpu?gpu=UUID`, or as much of it as no other GPU begins with."""

    path = "/gpu"
    name: str = say("GPU")
    role = VIEWER
    listed = False

    def connect(self, app: Any, source: Source) -> None:  # noqa: ARG002  # every page is given it
        """Tooltip and zoom: a zoomed page is an address, whose rows are read for what is in sight only."""
        connect_strip(app, _GRAPH)

    def content(self, view: View, colours: Palette) -> html.Div:
        """The GPU that the address names, as far as it is in what the reader sees."""
        asked = view.query.gpu
        if not asked:
            return nothing(view, say("No GPU is named."))
        gpus = _meant(view, asked)
        if len(gpus) > 1:
            return nothing(view, say("The names of several GPUs begin with {gpu}.", gpu=plain(asked)))
        subject = find(view, "gpu", gpus[0] if gpus else asked)
        if subject is None:
            return nothing(
                view,
                say(
                    "There is nothing to show of the GPU {gpu}: it is not known, or not in this window, or not of what is "
                    "chosen above or yours to see.",
                    gpu=plain(asked),
                ),
            )
        return html.Div(
            [
                lead(_facts(view, subject)),
                _states(view, colours, subject),
                stays_panel(view, subject, with_gpu=False),
                processes_panel(view, subject, with_gpu=False),
                findings_panel(view, subject),
                events_panel(view, events(view, subject, subject.name), with_gpu=False),
            ],
            className="panels",
        )


def _meant(view: View, asked: str) -> list[str]:
    """The GPU of that name, else those whose names begin with it."""
    known = view.part.inside.stretches["gpu"].unique().sort()
    if asked in known or len(asked) < _NO_NAME:
        return [asked]
    return known.filter(known.str.starts_with(asked)).to_list()


def _facts(view: View, subject: Subject) -> list[tuple[str, Any]]:
    gpu, host = subject.name, subject.hosts[-1]
    inventory = view.whole.inventory
    index = inventory.device(gpu, host).gpu_index
    beside = view.part.inside.stretches.filter((pl.col("host") == host) & (pl.col("gpu") != gpu))["gpu"]
    return [
        (view.say(say("GPU")), plain(gpu)),
        (view.say(say("model")), plain(inventory.model(gpu))),
        (view.say(say("host")), host_link(view, host)),
        (view.say(say("index")), "" if index is None else str(index)),
        (view.say(say("pool")), plain(inventory.pool(gpu))),
        (view.say(say("last seen")), view.language.moment(subject.last_seen_ms)),
        (view.say(say("per GPU-hour")), _price(view, gpu)),
        (view.say(say("on the same host")), gpu_links(view, beside.unique().sort())),
    ]


def _price(view: View, gpu: str) -> str:
    price = view.whole.money.costs.price_of(gpu)
    if price is None:
        return ""
    return view.say(say("{money}, {source}", money=Amount(price.hourly, price.currency), source=price_source(price)))


def _states(view: View, colours: Palette, subject: Subject) -> html.Section:
    return states(
        view,
        colours,
        subject,
        graph=_GRAPH,
        series=gpu_series(view, subject.name),
        title=say("States and series"),
        question=say("What did it do, minute by minute, and what did that look like to the GPU itself?"),
    )

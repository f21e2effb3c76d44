"""What the pages of a GPU and of a host have in common: what they are about, its facts, and its states and series."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl
from dash import dcc, html

from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Share
from analytics.language.sentences import say
from analytics.ledger.summary import totals_by
from analytics.states import UNUSED
from dashboard.charts.panel import panel
from dashboard.charts.series import series_chart
from dashboard.charts.strip import state_legend
from dashboard.charts.tables import gpu_link
from dashboard.film import shoot
from dashboard.zoom import zoom_note

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dashboard.palette import Palette
    from dashboard.series import Series
    from dashboard.view import View


@dataclass(frozen=True, eq=False)
class Subject:
    """A GPU or a host by its name, with the ledger's stretches of it that the reader sees; there are some."""

    name: str
    spans: pl.DataFrame

    @cached_property
    def gpus(self) -> list[str]:
        """Its GPUs, by name."""
        return self.spans["gpu"].unique().sort().to_list()

    @cached_property
    def hosts(self) -> list[str]:
        """Where it was, in the order of time."""
        return self.spans.sort("time")["host"].unique(maintain_order=True).to_list()

    @cached_property
    def last_seen_ms(self) -> int:
        """The end of its newest row in the window."""
        return int(self.spans["end"].max())  # type: ignore[arg-type]  # not empty


def find(view: View, column: str, name: str) -> Subject | None:
    """The GPU or host (`column`) of that name; None where the reader sees nothing of it in this window."""
    spans = view.part.inside.stretches.filter(pl.col(column) == name)
    return None if spans.is_empty() else Subject(name, spans)


def nothing(view: View, sentence: str) -> html.Div:
    """Why there is no page, and where to choose."""
    link = dcc.Link(view.say(say("Choose one in the film strip")), href="/film" + view.query.on_every_page.search)
    return html.Div([html.P(view.say(sentence)), html.P(link)], className="problem", role="alert")


def lead(items: list[tuple[str, Any]]) -> html.Div:
    """What a GPU or a host is, in a line of facts."""
    facts = [html.Div([html.Dt(label), html.Dd(value)]) for label, value in items if value]
    return html.Div(html.Dl(facts, className="facts"), className="panel wide lead")


def gpu_links(view: View, gpus: Iterable[str]) -> html.Span | None:
    """To each of some GPUs; None where there is none."""
    links: list[Any] = []
    for each in gpus:
        links += [", ", gpu_link(view, each, plain(each, 14))] if links else [gpu_link(view, each, plain(each, 14))]
    return html.Span(links) if links else None


def states(
    view: View, colours: Palette, subject: Subject, *, graph: str, series: Series, title: str, question: str
) -> html.Section:
    """The states of its GPUs side by side with what was measured meanwhile, of what is in sight."""
    return panel(
        name="states",
        title=view.say(title),
        question=view.say(question),
        finding=_where_it_went(view, subject.spans),
        body=[
            state_legend(view, colours),
            *_others_note(view),
            zoom_note(view),
            *series_chart(view, colours, graph, shoot(view, only=subject.gpus), series),
        ],
        wide=True,
    )


def _others_note(view: View) -> list[html.P]:
    """Why some of the time is empty, where somebody else had it."""
    if not view.report.scope.is_personal:
        return []
    return [
        html.P(view.say(say("Only this team's time is shown: the time of others is left empty.")), className="hint")
    ]


def _where_it_went(view: View, spans: pl.DataFrame) -> str:
    """Where the time of some stretches went, and how much of it was observed."""
    totals = totals_by(spans, "'all'")["all"]
    unused = sum(totals.state_ms[state] for state in UNUSED)
    return view.say(
        say(
            "{unused} of {observed} observed GPU-hours went unused: {free} free, {reserved} reserved, {held} held; "
            "{active} were active, {low} at low use, {unavailable} unavailable. {coverage} of the time was observed.",
            unused=GpuHours(unused), observed=GpuHours(totals.observed_ms), free=GpuHours(totals.state_ms["free"]),
            reserved=GpuHours(totals.state_ms["reserved"]), held=GpuHours(totals.state_ms["held"]),
            active=GpuHours(totals.state_ms["active"]), low=GpuHours(totals.state_ms["low"]),
            unavailable=GpuHours(totals.state_ms["unavailable"]), coverage=Share(totals.coverage),
        )
    )  # fmt: skip

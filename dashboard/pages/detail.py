"""One GPU, and one host: its states with what was measured meanwhile, who had it and what happened to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl
from dash import dcc, html

from analytics.language.sentences import Amount, plain, tr
from analytics.tables.card_use import card_use_facts
from analytics.tables.history import (
    Subject,
    events,
    findings_naming,
    host_remarks,
    processes,
    where_it_went,
    who_had_it,
)
from analytics.tables.money_basis import price_source
from analytics.tables.palette import ORDER, Palette
from analytics.tables.table import Table
from dashboard.pages.page import Onward, Page, PlacedSection, all_findings, no_way, panels
from dashboard.pages.timeline import connect_strip
from dashboard.render.panel import panel
from dashboard.render.series import series_chart
from dashboard.render.states import legend
from dashboard.render.tables import address, facts_list, name_links
from dashboard.series import PageSeries, gpu_series, host_series
from dashboard.source import LakeSource
from dashboard.timeline import gpu_timeline
from dashboard.times import zoom_note
from dashboard.view import View

_FIRST = 10
"""Rows in sight."""
_LETTERS = 14
_NO_NAME = 8
"""Letters: what is shorter begins too many names."""


@dataclass(frozen=True)
class _Detail:
    """What differs between the pages of a GPU and a host; `column`: the ledger's column and the address's parameter."""

    column: str
    title: str
    question: str
    unnamed: str
    unknown: Callable[[str], str]
    facts: Callable[[View, Subject], Iterable[tuple[str, Any]]]
    series: Callable[[View, str], PageSeries]
    history: tuple[Callable[..., Table | None], ...] = (who_had_it, processes, findings_naming, events)

    @property
    def graph(self) -> str:
        return f"{self.column}-graph"

    def connect(self, app: Any, _: LakeSource) -> None:
        """Connect tooltip, click and zoom. A zoomed page has an address of its own; only rows in sight are read."""
        connect_strip(app, self.graph)

    def content(self, view: View, colours: Palette) -> html.Div:
        """Return the page of the GPU or host in the address, or why the reader does not see it."""
        asked = getattr(view.query, self.column)
        if not asked:
            return _nothing(view, self.unnamed)
        meant = _meant_gpus(view, asked) if self.column == "gpu" else [asked]
        if len(meant) > 1:
            return _nothing(view, tr("The names of several GPUs begin with {gpu}.", gpu=plain(asked)))
        subject = subject_named(view, self.column, *meant)
        if subject is None:
            return _nothing(view, self.unknown(plain(asked)))
        ways: Mapping[Any, Onward] = {findings_naming: all_findings}
        sections = (
            PlacedSection(
                partial(lambda make, view: make(view.report, subject), make),
                first=_FIRST,
                onward=ways.get(make, no_way),
            )
            for make in self.history
        )
        known = facts_list(((label, value) for label, value in self.facts(view, subject) if value))
        lead = html.Div(known, className="panel wide lead")
        return html.Div(
            [lead, self._states(view, colours, subject), *panels(view, colours, sections)], className="panels"
        )

    def _states(self, view: View, colours: Palette, subject: Subject) -> html.Section:
        """Return the panel with the states of the GPUs in sight beside the measurements of the same time."""
        others = tr("Only this team's time is shown: the time of others is left empty.")
        return panel(
            name="states",
            title=self.title,
            question=self.question,
            finding=where_it_went(subject.spans),
            body=[
                legend(colours, ORDER),
                *([html.P(others, className="hint")] if view.report.scope.is_personal else []),
                zoom_note(view),
                *series_chart(
                    view, colours, self.graph, gpu_timeline(view, only=subject.gpus), self.series(view, subject.name)
                ),
            ],
            wide=True,
        )


def subject_named(view: View, column: str, name: str) -> Subject | None:
    """Return the `gpu` or `host` of that name; None if the reader sees none of its time in this window."""
    spans = view.part.inside.segments.filter(pl.col(column) == name)
    return None if spans.is_empty() else Subject(name, column == "host", spans)


def _nothing(view: View, sentence: str) -> html.Div:
    """Return the reason for the missing page, and a link to choose a GPU or host."""
    link = dcc.Link(tr("Choose one in the timeline"), href="/timeline" + view.query.on_every_page.search)
    return html.Div([html.P(sentence), html.P(link)], className="problem", role="alert")


def _gpu_links(view: View, gpus: Iterable[str]) -> html.Span | None:
    links: list[Any] = []
    for each in gpus:
        links += [", "] * bool(links) + [dcc.Link(plain(each, _LETTERS), href=address(view, "gpu", each))]
    return html.Span(links) if links else None


def _meant_gpus(view: View, asked: str) -> list[str]:
    """Return the GPU of that name, else the GPUs whose names begin with it."""
    known = view.part.inside.segments["gpu"].unique().sort()
    if asked in known or len(asked) < _NO_NAME:
        return [asked]
    return known.filter(known.str.starts_with(asked)).to_list() or [asked]


def _gpu_facts(view: View, subject: Subject) -> Iterator[tuple[str, Any]]:
    gpu, host, inventory = subject.name, subject.hosts[-1], view.whole.inventory
    index, price = inventory.device(gpu, host).gpu_index, view.whole.money.costs.price_of(gpu)
    beside = view.part.inside.segments.filter((pl.col("host") == host) & (pl.col("gpu") != gpu))["gpu"]
    yield tr("GPU"), plain(gpu)
    yield tr("model"), plain(inventory.model(gpu))
    yield tr("host"), name_links(view, "host", host)
    yield tr("index"), "" if index is None else str(index)
    yield tr("pool"), plain(inventory.pool(gpu))
    yield tr("last observed"), view.language.moment(subject.last_seen_ms)
    for label, cell in card_use_facts(view.report.money.accounts.card_use("gpu").get(gpu)):
        yield label, view.language.shown(cell)
    if price:
        hourly = Amount(price.hourly, price.currency)
        yield tr("per GPU-hour"), tr("{money}, {source}", money=hourly, source=price_source(price))
    yield tr("on the same host"), _gpu_links(view, beside.unique().sort())


def _host_facts(view: View, subject: Subject) -> Iterator[tuple[str, Any]]:
    inventory = view.whole.inventory
    yield tr("host"), plain(subject.name)
    yield tr("GPUs"), _gpu_links(view, subject.gpus)
    yield tr("model"), ", ".join(sorted({plain(inventory.model(gpu)) for gpu in subject.gpus}))
    yield tr("pool"), ", ".join(sorted({plain(inventory.pool(gpu)) for gpu in subject.gpus}))
    yield tr("last observed"), view.language.moment(subject.last_seen_ms)


_GPU = _Detail(
    column="gpu",
    title=tr("States and series"),
    question=tr("What did the GPU do, minute by minute, and what did its sensors report?"),
    unnamed=tr("No GPU is named."),
    unknown=lambda asked: tr(
        "No data of the GPU {gpu}: it is unknown, outside this window or the filters above, or not visible to you.",
        gpu=asked,
    ),
    facts=_gpu_facts,
    series=gpu_series,
)
_HOST = _Detail(
    column="host",
    title=tr("The GPUs side by side"),
    question=tr("Do its GPUs work together or wait for one another, and does the machine keep up?"),
    unnamed=tr("No host is named."),
    unknown=lambda asked: tr(
        "No data of the host {host}: it is unknown, outside this window or the filters above, or not visible to you.",
        host=asked,
    ),
    facts=_host_facts,
    series=host_series,
    history=(*_Detail.history, host_remarks),
)
GPU_PAGE = Page(
    "/gpu", tr("GPU"), _GPU.content, _GPU.connect, listed=False, question=tr("What did this GPU do?"), has_findings=True
)
"""`?gpu=UUID`, or as much of it as no other GPU begins with."""
HOST_PAGE = Page(
    "/host",
    tr("Host"),
    _HOST.content,
    _HOST.connect,
    listed=False,
    question=tr("What did this host do?"),
    has_findings=True,
)
"""`?host=NAME`."""

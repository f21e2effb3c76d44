"""One host: its GPUs side by side, what the machine itself did, who had them, and what is known to be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from dash import html

from analytics.language.plain_text import plain
from analytics.language.quantities import Number
from analytics.language.sentences import say
from analytics.quality.checks.values import SENTENCES
from dashboard.access.people import VIEWER
from dashboard.charts.panel import panel
from dashboard.charts.tables import table
from dashboard.detail import find, gpu_links, lead, nothing, states
from dashboard.histories import events, events_panel, findings_panel, processes_panel, stays_panel
from dashboard.pages.film import connect_strip
from dashboard.series import host_series

if TYPE_CHECKING:
    from dashboard.detail import Subject
    from dashboard.palette import Palette
    from dashboard.source import Source
    from dashboard.view import View

_GRAPH = "host-graph"
_MOST_REMARKS = 100


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
        asked = view.query.host
        if not asked:
            return nothing(view, say("No host is named."))
        subject = find(view, "host", asked)
        if subject is None:
            return nothing(
                view,
                say(
                    "There is nothing to show of the host {host}: it is not known, or not in this window, or not of what is "
                    "chosen above or yours to see.",
                    host=plain(asked),
                ),
            )
        return html.Div(
            [
                lead(_facts(view, subject)),
                _states(view, colours, subject),
                stays_panel(view, subject, with_gpu=True),
                processes_panel(view, subject, with_gpu=True),
                findings_panel(view, subject),
                # what befell the host and its other GPUs is nothing of a team's
                *(
                    []
                    if view.report.scope.is_personal
                    else [events_panel(view, events(view, subject), with_gpu=True), _quality(view, asked)]
                ),
            ],
            className="panels",
        )


def _facts(view: View, subject: Subject) -> list[tuple[str, Any]]:
    inventory = view.whole.inventory
    return [
        (view.say(say("host")), plain(subject.name)),
        (view.say(say("GPUs")), gpu_links(view, subject.gpus)),
        (view.say(say("model")), ", ".join(sorted({plain(inventory.model(gpu)) for gpu in subject.gpus}))),
        (view.say(say("pool")), ", ".join(sorted({plain(inventory.pool(gpu)) for gpu in subject.gpus}))),
        (view.say(say("last seen")), view.language.moment(subject.last_seen_ms)),
    ]


def _states(view: View, colours: Palette, subject: Subject) -> html.Section:
    return states(
        view,
        colours,
        subject,
        graph=_GRAPH,
        series=host_series(view, subject.name),
        title=say("The GPUs side by side"),
        question=say("Do its GPUs work together or wait for one another, and does the machine keep up?"),
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
        for row in rows.sort("time", descending=True).head(_MOST_REMARKS).iter_rows(named=True)
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

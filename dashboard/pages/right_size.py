"""What work needs of its card, and which card would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from dash import html

from analytics.language.sentences import say
from dashboard.access.people import VIEWER
from dashboard.charts.moves import moves
from dashboard.charts.right_size import right_size, works_of
from dashboard.exports import EXPORTS, links
from fallow.clock import HOUR_MS

if TYPE_CHECKING:
    from dashboard.palette import Palette
    from dashboard.source import Source
    from dashboard.view import View


class RightSize:
    """`/right-size`."""

    path = "/right-size"
    name: str = say("Right-size")
    role = VIEWER
    listed = True

    def connect(self, app: Any, source: Source) -> None:
        """Nothing: what it shows comes with the page."""

    def content(self, view: View, colours: Palette) -> html.Div:
        """Every work on its card, and the findings about them."""
        files = html.Div(links(view, "works"), className="tools")
        return html.Div([files, html.Div([right_size(view, colours), moves(view)], className="panels")])


def works_table(view: View) -> pl.DataFrame:
    """Every work of the view: holder, account, job, model, host, GPUs, hours, peak, card, activity, coverage, kind, and what would do instead."""
    return works_of(view).select(
        "holder", "account", "job", "model", "host", pl.col("gpus").list.join(" "), (pl.col("gpu_ms") / HOUR_MS).alias("gpu_hours"),
        "peak_bytes", "card_bytes", util_p95_pct="util_pct", sm_p95_pct="sm_pct", coverage="coverage", kind="kind", instead=pl.when(pl.col("instead") != "").then("instead"),
    )  # fmt: skip


EXPORTS["works"] = works_table

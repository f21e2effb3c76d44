"""The first page: what the window came to, where it went, whether it gets better, and what to do first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import dcc, html

from analytics.language.sentences import say, say_many
from analytics.render.wording import headline
from dashboard.access.people import VIEWER
from dashboard.charts.days import days
from dashboard.charts.findings import findings
from dashboard.charts.idle import idle
from dashboard.charts.tiles import tiles
from dashboard.charts.waterfall import waterfall

if TYPE_CHECKING:
    from dashboard.palette import Palette
    from dashboard.source import Source
    from dashboard.view import View


class Overview:
    """`/`."""

    path = "/"
    name: str = say("Overview")
    role = VIEWER
    listed = True

    def connect(self, app: Any, source: Source) -> None:
        """Nothing: what it shows comes with the page."""

    def content(self, view: View, colours: Palette) -> html.Div:
        """Headline, tiles, charts and the costliest findings."""
        return html.Div(
            [
                html.P(view.say(headline(view.report)), className="headline"),
                tiles(view, colours),
                html.Div(
                    [
                        waterfall(view, colours),
                        days(view, colours),
                        findings(view),
                        idle(view, colours),
                        _remarks(view),
                    ],
                    className="panels",
                ),
            ]
        )


def _remarks(view: View) -> html.Section:
    """How many remarks there are on the data; a reader who sees one team has none, as they name others."""
    found = view.report.quality
    if view.report.scope.is_personal:
        said = say("Remarks on the data of the fleet are not shown for a single team.")
    elif found:
        said = say_many("{number} remark on the data behind these figures.", "{number} remarks on the data behind these figures.",
                        len(found))  # fmt: skip
    else:
        said = say("No remark on the data behind these figures.")
    body: list[Any] = [html.P(view.say(said), className="finding")]
    if found:
        body.append(html.Ul([html.Li(view.say(remark.sentence)) for remark in found[:4]]))
        onward = dcc.Link(view.say(say("The quality of the data")), href="/quality" + view.query.on_every_page.search)
        body.append(html.P(onward, className="onward"))
    return html.Section(
        [
            html.H2(view.say(say("Data quality")), id="remarks-title"),
            html.P(view.say(say("Can these figures be relied on?")), className="question"),
            *body,
        ],
        className="panel",
        **{"aria-labelledby": "remarks-title"},
    )

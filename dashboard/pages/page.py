"""What a page is: a path, a name, who may open it, and its sections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dash import dcc, html

from analytics.language.sentences import tr
from analytics.report.model import Report
from analytics.tables.palette import Palette
from analytics.tables.table import Table
from dashboard.access.people import VIEWER
from dashboard.exports import links
from dashboard.render.panel import section_panel
from dashboard.source import LakeSource
from dashboard.view import View

ALL_FINDINGS = tr("All findings")


@dataclass(frozen=True)
class PlacedSection:
    """A section on a page: where its table stands and how many rows are in sight, as `section_panel` takes them.

    `onward` are the words of a link to all findings; `wide` gives it the whole width, whatever the section needs.
    """

    made_by: Callable[[View], Table | None]
    table: str = "folded"
    first: int | None = None
    onward: str = ""
    wide: bool = False

    def panel(self, view: View, colours: Palette) -> html.Section | None:
        """None where the section has nothing to say to this reader."""
        section = self.made_by(view)
        if section is None:
            return None
        search = view.query.on_every_page.search
        links = (
            [html.P(dcc.Link(view.translate(self.onward), href="/findings" + search), className="onward")]
            if self.onward
            else []
        )
        return section_panel(view, colours, section, table=self.table, first=self.first, after=links, wide=self.wide)


def of_report(made_by: Callable[[Report], Table | None], **places: Any) -> PlacedSection:
    """A section that the report has as well, or could have; `places` as in PlacedSection."""
    return PlacedSection(lambda view: made_by(view.report), **places)


class Page:
    """One page. `listed` pages stand in the navigation; the others are come to from a row or a chart.

    `role` is the least that opens it, `export` the table that it offers as a file.
    """

    path: str
    name: str
    role: str = VIEWER
    listed: bool = True
    export: str = ""
    sections: tuple[PlacedSection, ...] = ()

    def connect(self, app: Any, source: LakeSource) -> None:
        """Adds the page's own callbacks; each comes to its view by `dashboard.source.view_of`, which knows who asks."""

    def panels(self, view: View, colours: Palette) -> list[html.Section]:
        return [panel for each in self.sections if (panel := each.panel(view, colours)) is not None]

    def content(self, view: View, colours: Palette) -> Any:
        """The page's components below the header: by default its sections."""
        panels = self.panels(view, colours)
        tools = [html.Div(links(view, self.export), className="tools")] if self.export else []
        return html.Div([*tools, html.Div(panels, className="panels")])

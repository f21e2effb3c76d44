"""The pages, one file each, in the order in which they are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from dashboard.pages.capacity import Capacity
from dashboard.pages.film import Film
from dashboard.pages.findings import Findings
from dashboard.pages.gpu import Gpu
from dashboard.pages.holders import Holders
from dashboard.pages.host import Host
from dashboard.pages.overview import Overview
from dashboard.pages.quality import Quality
from dashboard.pages.report import ReportPage
from dashboard.pages.right_size import RightSize
from dashboard.pages.settings import Settings

if TYPE_CHECKING:
    from analytics.sections.palette import Palette
    from dashboard.source import Source
    from dashboard.view import View


class Page(Protocol):
    """One page: its path, its name, who may open it, and a pure function from the view to what it shows.

    `listed` pages stand in the navigation; the others are come to from a row or a chart. `role` is the least that opens it.
    """

    path: str
    name: str
    role: str
    listed: bool

    def connect(self, app: Any, source: Source) -> None:
        """Adds the page's own callbacks; each comes to its view by `dashboard.view_of.view_of`, which knows who asks."""
        ...

    def content(self, view: View, colours: Palette) -> Any:
        """The page's components below the header."""
        ...


PAGES: tuple[Page, ...] = (
    Overview(),
    Film(),
    Findings(),
    Holders(),
    RightSize(),
    Capacity(),
    ReportPage(),
    Quality(),
    Settings(),
    Gpu(),
    Host(),
)

"""The pages, one file each, in the order in which they are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from dashboard.pages.overview import Overview

if TYPE_CHECKING:
    from dashboard.palette import Palette
    from dashboard.source import View


class Page(Protocol):
    """One page: its path, its name, and a pure function from the view to what it shows."""

    path: str
    name: str

    def content(self, view: View, colours: Palette) -> Any:
        """The page's components below the header."""
        ...


PAGES: tuple[Page, ...] = (Overview(),)

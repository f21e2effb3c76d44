"""How many GPUs are needed at once, and what can go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from analytics.language.sentences import say
from dashboard.people import VIEWER

if TYPE_CHECKING:
    from dashboard.palette import Palette
    from dashboard.source import Source, View


class Capacity:
    """`/capacity`."""

    path = "/capacity"
    name: str = say("Capacity")
    role = VIEWER
    listed = True

    def connect(self, app: Any, source: Source) -> None:
        """Nothing yet."""

    def content(self, view: View, colours: Palette) -> html.Div:
        """To be filled."""
        return html.Div()

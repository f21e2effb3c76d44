"""What a page is: a path, a name, who may open it, and what it shows, most often tables one below the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dash import dcc, html
from dash.development.base_component import Component

from analytics.language.language import Language
from analytics.language.sentences import tr
from analytics.tables.palette import Palette
from analytics.tables.table import Table
from dashboard.access.people import VIEWER
from dashboard.files import links
from dashboard.render.panel import section_panel
from dashboard.source import LakeSource
from dashboard.view import View


@dataclass(frozen=True)
class Page:
    """One page. `listed` pages stand in the navigation; the others are come to from a row or a chart.

    `make` makes what is below the heading, in sentences that `content` translates. `connect` adds the page's own callbacks, each of which comes to its view by
    `dashboard.source.view_of`, which knows who asks. `role` is the least that opens the page.
    """

    path: str
    name: str
    make: Callable[[View, Palette], Any]
    connect: Callable[[Any, LakeSource], None] = lambda *_: None
    role: str = VIEWER
    listed: bool = True

    def content(self, view: View, colours: Palette) -> Any:
        """The page's components below the heading, in the reader's language."""
        return in_words(self.make(view, colours), view.language)


_WORDS = ("children", "title", "placeholder", "copied_children", "aria-label")
"""Properties of components that people read."""


def in_words(tree: Any, language: Language) -> Any:
    """The same components with every sentence in the language; in names nothing stays hidden."""
    if isinstance(tree, str):
        return language.shown(tree)
    if isinstance(tree, list | tuple):
        return [in_words(each, language) for each in tree]
    if isinstance(tree, Component):
        for name in _WORDS:
            if (said := getattr(tree, name, None)) is not None:
                setattr(tree, name, in_words(said, language))
    return tree


def slider(name: str, label: str, marks: Sequence[str], place: int, look: str = "reserve") -> html.Div:
    """A slider whose id is `name`, with a place for each mark; its value is a place."""
    bar = dcc.Slider(
        id=name, min=0, max=len(marks) - 1, step=1, value=place, allow_direct_input=False, marks=dict(enumerate(marks))
    )
    label_id = f"{name}-label"
    return html.Div(
        [html.Span(label, id=label_id, className="reserve-label"), bar],
        className=look,
        role="group",
        **{"aria-labelledby": label_id},
    )


Onward: TypeAlias = Callable[[View], Mapping[str, str]]
"""The paths that links below a section lead to, with their words."""


def no_way(_: View) -> Mapping[str, str]:
    """No links onward."""
    return {}


def all_findings(_: View) -> Mapping[str, str]:
    """The way onward to all findings."""
    return {"/findings": tr("All findings")}


@dataclass(frozen=True)
class PlacedSection:
    """A section on a page: where its table stands and how many rows are in sight, as `section_panel` takes them.

    `onward` are the links below it; `wide` gives it the whole width, whatever the section needs. `for_people` sections stay on
    pages that have nothing else for people (`TablesPage.for_people`).
    """

    made_by: Callable[[View], Table | None]
    table: str = "folded"
    first: int | None = None
    onward: Onward = no_way
    wide: bool = False
    for_people: bool = False

    def panel(self, view: View, colours: Palette) -> html.Section | None:
        """None where the section has nothing to say to this reader."""
        section = self.made_by(view)
        if section is None:
            return None
        search = view.query.on_every_page.search
        after = [
            html.P(dcc.Link(words, href=path + search), className="onward") for path, words in self.onward(view).items()
        ]
        return section_panel(view, colours, section, table=self.table, first=self.first, after=after, wide=self.wide)


def panels(view: View, colours: Palette, sections: Iterable[PlacedSection]) -> list[html.Section]:
    """The panels of those sections that have something to say."""
    return [panel for each in sections if (panel := each.panel(view, colours)) is not None]


@dataclass(frozen=True)
class TablesPage:
    """The content of a page that lists tables; `export` is the table that it offers as a file.

    `for_people` is the sentence that stands for all sections but those for people, where the page is of a team or a user.
    """

    sections: tuple[PlacedSection, ...]
    export: str = ""
    for_people: str = ""

    def __call__(self, view: View, colours: Palette) -> html.Div:
        """The files, then a panel for each section."""
        if self.for_people and view.report.scope.is_personal:
            shown = panels(view, colours, (each for each in self.sections if each.for_people))
            below = [html.Div(shown, className="panels")] if shown else []
            return html.Div([html.P(self.for_people, className="headline"), *below])
        tools = [html.Div(links(view, self.export), className="tools")] if self.export else []
        return html.Div([*tools, html.Div(panels(view, colours, self.sections), className="panels")])

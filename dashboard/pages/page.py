"""What a page is: a path, a name, who may open it, and what it shows, most often tables one below the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dash import dcc, html
from dash.development.base_component import Component

from analytics.language.sentences import Language, tr
from analytics.tables.palette import Palette
from analytics.tables.table import Table
from dashboard.access.people import VIEWER
from dashboard.files import links
from dashboard.render.panel import HOW_COUNTED, METHOD, section_panel
from dashboard.source import LakeSource
from dashboard.view import View


@dataclass(frozen=True)
class Page:
    """A page. `listed` pages are in the navigation under their `name`; rows and charts lead to the others.

    `question` is the heading. `make` returns the content below it, in sentences that `content` translates. `connect`
    adds the page's callbacks, each of which gets its view from `dashboard.source.view_of`, which knows the reader.
    `role` is the lowest role that opens the page. `has_findings` is true if the page shows the findings of its window:
    the rules then run before it opens.
    """

    path: str
    name: str
    make: Callable[[View, Palette], Any]
    connect: Callable[[Any, LakeSource], None] = lambda *_: None
    role: str = VIEWER
    listed: bool = True
    question: str = ""
    has_findings: bool = False

    def content(self, view: View, colours: Palette) -> Any:
        """Return the components below the heading, in the reader's language; how they are counted comes last."""
        return in_words(method_last(self.make(view, colours)), view.language)


@dataclass(frozen=True)
class PagePlace:
    """Pages that belong together: one entry of the navigation, whose pages are its second row."""

    name: str
    pages: tuple[Page, ...]


def method_last(tree: Any) -> html.Div:
    """Return the components with everything on how they are counted in one element at the end, closed."""
    found: list[Any] = []
    rest = _without_method(tree, found)
    last = [html.Details([html.Summary(HOW_COUNTED), *found], className=f"{METHOD} of-page")] if found else []
    return html.Div([rest, *last])


def _without_method(tree: Any, found: list[Any]) -> Any:
    """Return the components without their method, whose content is added to `found` behind the summary."""
    if isinstance(tree, list | tuple):
        kept = []
        for part in tree:
            if isinstance(part, html.Details) and getattr(part, "className", "") == METHOD:
                found += part.children[1:]
            else:
                kept.append(_without_method(part, found))
        return kept
    if isinstance(tree, Component) and getattr(tree, "children", None) is not None:
        tree.children = _without_method(tree.children, found)
    return tree


_WORDS = ("children", "title", "placeholder", "copied_children", "aria-label")
"""Properties of components that people read."""


def in_words(tree: Any, language: Language) -> Any:
    """Return the components with every sentence in the language, and with control characters in names made visible."""
    if isinstance(tree, str):
        return language.shown(tree)
    if isinstance(tree, list | tuple):
        return [in_words(part, language) for part in tree]
    if isinstance(tree, Component):
        for name in _WORDS:
            if (words := getattr(tree, name, None)) is not None:
                setattr(tree, name, in_words(words, language))
    return tree


def slider(name: str, label: str, marks: Sequence[str], place: int) -> html.Div:
    """Return a slider whose id is `name`, with a place for each mark; its value is a place."""
    bar = dcc.Slider(
        id=name, min=0, max=len(marks) - 1, step=1, value=place, allow_direct_input=False, marks=dict(enumerate(marks))
    )
    label_id = f"{name}-label"
    return html.Div(
        [html.Span(label, id=label_id, className="reserve-label"), bar],
        className="reserve",
        role="group",
        **{"aria-labelledby": label_id},
    )


Onward: TypeAlias = Callable[[View], Mapping[str, str]]
"""The paths that links below a section lead to, with their words."""


def no_way(_: View) -> Mapping[str, str]:
    return {}


def all_findings(_: View) -> Mapping[str, str]:
    return {"/findings": tr("All findings")}


@dataclass(frozen=True)
class PlacedSection:
    """A section on a page; `table` and `first` place its table and limit the rows in sight, as in `section_panel`.

    `onward` are the links below it; `wide` gives it the whole width, whatever the section needs.
    """

    make: Callable[[View], Table | None]
    table: str = "folded"
    first: int | None = None
    onward: Onward = no_way
    wide: bool = False

    def panel(self, view: View, colours: Palette, *, answers: bool = False) -> html.Section | None:
        """Return the section's panel; None if the section is empty for this reader."""
        section = self.make(view)
        if section is None:
            return None
        search = view.query.on_every_page.search
        after = [
            html.P(dcc.Link(words, href=path + search), className="onward") for path, words in self.onward(view).items()
        ]
        return section_panel(
            view, colours, section, table=self.table, first=self.first, after=after, wide=self.wide, answers=answers
        )


def panels(view: View, colours: Palette, sections: Iterable[PlacedSection]) -> list[html.Section]:
    """Return the panels of the sections that are not empty."""
    return [panel for section in sections if (panel := section.panel(view, colours)) is not None]


def folded(panel: html.Section, *, on_phones: bool = False) -> html.Section:
    """Return the panel with all but its title and its answer behind these, until a reader opens it.

    A panel that is folded `on_phones` only is open at first on wider screens (assets/fallow.js).
    """
    title, question, finding, *body = panel.children
    summary = html.Summary([title, html.Span(finding.children, className="finding")])
    panel.children = [html.Details([summary, question, *body], open=on_phones)]
    panel.className = f"{panel.className} folded on-phones" if on_phones else "panel wide folded"
    return panel


@dataclass(frozen=True)
class TablesPage:
    """The content of a page that lists tables; `export` is the table that it offers as a file.

    The first of the `sections` that is not empty answers the page's question. Those of `more` are folded behind their
    titles. `for_people` is the sentence that replaces all sections if the page is about a team or a user.
    """

    sections: tuple[PlacedSection, ...]
    more: tuple[PlacedSection, ...] = ()
    export: str = ""
    for_people: str = ""

    def __call__(self, view: View, colours: Palette) -> html.Div:
        """Return the answer, the other sections, the folded sections, and the files."""
        if self.for_people and view.report.scope.is_personal:
            return html.Div(html.P(self.for_people, className="headline"))
        shown: list[html.Section] = []
        for section in self.sections:
            element = section.panel(view, colours, answers=not shown)
            shown += [] if element is None else [element]
        behind = [folded(element) for element in panels(view, colours, self.more)]
        tools = [html.Div(links(view, self.export), className="tools")] if self.export else []
        return html.Div([html.Div([*shown, *behind], className="panels"), *tools])

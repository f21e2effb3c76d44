"""A page as a tree of its elements, read by the standard library's parser."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = ("meta", "img", "br", "link", "input", "path", "rect")


@dataclass
class Element:
    """One element: its name, attributes, and all the text inside."""

    name: str
    attributes: dict[str, str | None]
    text: list[str] = field(default_factory=list)

    @property
    def words(self) -> str:
        return " ".join("".join(self.text).split())


class Page(HTMLParser):
    """Every element in the order of the page; raises where tags do not match."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(html)
        self.close()
        assert [each.name for each in self._open] == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().name == tag

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text.append(data)

    def all(self, *names: str) -> list[Element]:
        return [each for each in self.elements if each.name in names]

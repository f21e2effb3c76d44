"""What stands in the cells of tables: names that are other people's, and bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from analytics.language.plain_text import plain
from analytics.language.sentences import say
from analytics.render.html import svg

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analytics.language.languages import Language
    from analytics.language.sentences import Value

NAME_MOST = 200


def bdi(name: str, most: int = NAME_MOST) -> Markup:
    """A name, kept apart from the direction of the text around it."""
    return Markup("<bdi>{}</bdi>").format(plain(name, most))


def said(language: Language, template: str, names: Mapping[str, Markup], **values: Value) -> Markup:
    """The template in the reader's language, with names in their places: `{name}` stands for an entry of `names`."""
    marks = {name: chr(0xE000 + place) for place, name in enumerate(names)}
    sentence = escape(language.say(say(template, **marks, **values)))
    for name, mark in marks.items():
        sentence = Markup(names[name]).join(sentence.split(mark))  # noqa: S704  # it is marked up already
    return sentence


def labelled(label: str, value: str, language: Language) -> str:
    """`label: value` with the colon as the language sets it."""
    return language.say(say("{label}: {value}", label=label, value=value))


def bar(parts: Sequence[tuple[float, str, float]]) -> Markup:
    """A bar as wide as its cell: shares of the whole width with colour and opacity. The row has its figures in words."""
    shapes, at = Markup(), 0.0
    for share, colour, opacity in parts:
        shapes += svg.rect(at, 0, 200 * share, 10, {"fill": colour, "fill-opacity": f"{opacity:g}"})
        at += 200 * share
    return Markup(
        '<svg class="bar" viewBox="0 0 200 10" preserveAspectRatio="none" aria-hidden="true">{}</svg>'
    ).format(shapes)

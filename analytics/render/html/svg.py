"""Small pieces of SVG. Attributes carry the colours of light pages; the style sheet replaces them on dark ones.

So a drawing is right as well where no style sheet reaches into it, as in WeasyPrint's pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from markupsafe import Markup

from analytics.tables.palette import HATCHED, LIGHT

WIDTH = 380.0
"""Width of a drawing in its own units: text of 12 is legible on a page of 320 pixels and on half of a wide page."""

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, width and height."""

_FONT = "Inter, Liberation Sans, DejaVu Sans, sans-serif"


def number(value: float) -> str:
    """A coordinate, to a tenth."""
    return f"{round(value, 1):g}"


def drawing(width: float, height: float, parts: Iterable[Markup], name: str) -> Markup:
    """Return an SVG element of these parts. `name` labels it for screen readers; an empty name hides it from them."""
    named = Markup('role="img" aria-label="{}"').format(name) if name else Markup('aria-hidden="true"')
    return Markup(
        '<svg class="drawing" viewBox="0 0 {} {}" {} font-family="{}" font-size="12" fill="{}">{}</svg>'
    ).format(number(width), number(height), named, _FONT, LIGHT.text, Markup().join(parts))


def boxes(places: Iterable[Box], look: Mapping[str, str]) -> Markup:
    """Rectangles of one look as one shape; nothing where none has an extent."""
    path = "".join(
        f"M{number(x)} {number(y)}h{number(max(width, 0.5))}v{number(max(height, 0.5))}H{number(x)}z"
        for x, y, width, height in places
        if width > 0 and height > 0
    )
    return Markup('<path d="{}"{}/>').format(path, attributes(look)) if path else Markup()


def group(shapes: Iterable[Markup], look: Mapping[str, str]) -> Markup:
    """Shapes of one look; nothing where there is none."""
    inside = Markup().join(shapes)
    return Markup("<g{}>{}</g>").format(attributes(look), inside) if inside else inside


def filled(name: str, key: str = "") -> dict[str, str]:
    """The attributes that fill a shape with a colour, hatched in a drawing that has `hatching` of the same key."""
    if key and name in HATCHED:
        return {"fill": f"url(#{key}-{name})"}
    return {"class": f"s-{name}", "fill": LIGHT.colour(name)}


def stroked(name: str) -> dict[str, str]:
    return {"class": f"l-{name}", "stroke": LIGHT.colour(name)}


def hatching(key: str, states: Iterable[str]) -> Markup:
    """Return the patterns that `filled` names; ids begin with `key`, as they are the page's. Empty without patterns."""
    patterns = Markup().join(
        Markup(
            '<pattern id="{}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate({})">'
            '<rect width="6" height="6" class="s-{}" fill="{}"/>'
            '<path d="M0 3h6" class="h" stroke="{}" stroke-opacity=".6" stroke-width="1.1"/></pattern>'
        ).format(f"{key}-{name}", HATCHED[name], name, LIGHT.state[name], LIGHT.card)
        for name in dict.fromkeys(states)
        if name in HATCHED
    )
    return Markup("<defs>{}</defs>").format(patterns) if patterns else patterns


def curve(points: Iterable[tuple[float, float]], look: Mapping[str, str]) -> Markup:
    """A line from point to point."""
    path = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return Markup('<path d="M{}" fill="none"{}/>').format(path, attributes(look))


def outlines(shapes: Iterable[Iterable[tuple[float, float]]], look: Mapping[str, str]) -> Markup:
    """Closed figures of one look as one shape."""
    path = "".join("M" + "L".join(f"{number(x)} {number(y)}" for x, y in each) + "z" for each in shapes)
    return Markup('<path d="{}"{}/>').format(path, attributes(look)) if path else Markup()


def dots(points: Iterable[tuple[float, float]]) -> Markup:
    """Round marks in the colour of their group, as one shape: lines of no length with round ends."""
    path = "".join(f"M{number(x)} {number(y)}h0" for x, y in points)
    return Markup('<path d="{}" stroke-width="5.2" stroke-linecap="round"/>').format(path) if path else Markup()


def ring(x: float, y: float) -> Markup:
    """A hollow mark in the colour of its group."""
    return Markup('<circle cx="{}" cy="{}" r="2.6" fill="none"/>').format(number(x), number(y))


def levels(x: float, until: float, ys: Iterable[float]) -> Markup:
    """Thin lines across the drawing from x on, as one shape."""
    path = "".join(f"M{number(x)} {number(y)}H{number(until)}" for y in ys)
    return Markup('<path class="g" d="{}" stroke="{}"/>').format(path, LIGHT.line)


def hint(box: Box, lines: Iterable[str]) -> Markup:
    """A place that says something under the pointer, where a script shows it."""
    x, y, width, height = map(number, box)
    return Markup('<rect class="tip" x="{}" y="{}" width="{}" height="{}" fill="none" data-tip="{}"/>').format(
        x, y, width, height, "\n".join(filter(None, lines))
    )


def labels(places: Iterable[tuple[float, float, str]], anchor: str) -> Markup:
    """Short muted texts of one look, as `text` writes each."""
    shown = (Markup('<text x="{}" y="{}">{}</text>').format(number(x), number(y), words) for x, y, words in places)
    return Markup('<g class="m" fill="{}" font-size="10.5" text-anchor="{}">{}</g>').format(
        LIGHT.muted, anchor, Markup().join(shown)
    )


def attributes(look: Mapping[str, str]) -> Markup:
    return Markup().join(
        Markup(' {}="{}"').format(Markup(name), value)  # noqa: S704  # names of attributes are ours
        for name, value in look.items()
    )


def text(x: float, y: float, words: str, *, anchor: str = "start", kind: str = "") -> Markup:
    """A line of text with its baseline at y. `kind` is `m` for muted and small, `b` for bold."""
    look = {
        "m": Markup(' class="m" fill="{}" font-size="10.5"').format(LIGHT.muted),
        "b": Markup(' font-weight="600"'),
    }
    place = Markup() if anchor == "start" else Markup(' text-anchor="{}"').format(anchor)
    return Markup('<text x="{}" y="{}"{}{}>{}</text>').format(
        number(x), number(y), place, look.get(kind, Markup()), words
    )

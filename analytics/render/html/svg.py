"""Small pieces of SVG. Attributes carry the colours of light pages; the style sheet replaces them on dark ones.

So a drawing is right as well where no style sheet reaches into it, as in WeasyPrint's pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from markupsafe import Markup

from analytics.language.plain_text import plain
from analytics.tables.palette import FAINT, HATCHED, LIGHT

WIDTH = 380
"""Of every drawing, in its own units: with text of 12 it can be read on a page of 320 pixels and on half of a wide one."""

_FONT = "Inter, Liberation Sans, DejaVu Sans, sans-serif"


def number(value: float) -> str:
    """A coordinate, to a tenth."""
    return f"{round(value, 1):g}"


def drawing(height: float, parts: Iterable[Markup], name: str) -> Markup:
    """A whole drawing with a name for those who do not see it."""
    return Markup(
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}" font-family="{}" font-size="12" fill="{}">{}</svg>'
    ).format(WIDTH, number(height), name, _FONT, LIGHT.text, Markup().join(parts))


def rect(x: float, y: float, width: float, height: float, look: Mapping[str, str]) -> Markup:
    """A rectangle; nothing where it would have no extent."""
    if width <= 0 or height <= 0:
        return Markup()
    return Markup('<rect x="{}" y="{}" width="{}" height="{}"{}/>').format(
        number(x), number(y), number(max(width, 0.5)), number(max(height, 0.5)), attributes(look)
    )


def band(x: float, width: float, look: Mapping[str, str]) -> Markup:
    """A part of a bar that is 10 high; nothing where it would have no extent. Tables have many: it is short."""
    if width <= 0:
        return Markup()
    return Markup('<path d="M{} 0h{}v10H{}z"{}/>').format(number(x), number(width), number(x), attributes(look))


def columns(corners: Iterable[tuple[float, float, float]], width: float, look: Mapping[str, str]) -> Markup:
    """Bars of one width and look as one shape, each given as (left, top, height); nothing where none has a height."""
    path = "".join(
        f"M{number(x)} {number(y)}h{number(width)}v{number(max(height, 0.5))}H{number(x)}z"
        for x, y, height in corners
        if height > 0
    )
    return Markup('<path d="{}"{}/>').format(path, attributes(look)) if path else Markup()


def group(shapes: Iterable[Markup], look: Mapping[str, str]) -> Markup:
    """Shapes of one look; nothing where there is none."""
    inside = Markup().join(shapes)
    return Markup("<g{}>{}</g>").format(attributes(look), inside) if inside else inside


def state(name: str, key: str = "") -> dict[str, str]:
    """The attributes that fill a shape with a state, hatched in a drawing that has `hatching` of the same key."""
    if key and name in HATCHED:
        return {"fill": f"url(#{key}-{name})"}
    edge = {"stroke": LIGHT.edge, "stroke-width": ".4"} if name in FAINT else {}
    return {"class": f"s-{name}", "fill": LIGHT.state[name]} | edge


def hatching(key: str, states: Iterable[str]) -> Markup:
    """The patterns that `state` names; ids begin with the key, as they are the whole page's."""
    return Markup("<defs>{}</defs>").format(
        Markup().join(
            Markup(
                '<pattern id="{}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate({})">'
                '<rect width="6" height="6" class="s-{}" fill="{}"/>'
                '<path d="M0 3h6" stroke="#fff" stroke-opacity=".6" stroke-width="1.1"/></pattern>'
            ).format(f"{key}-{name}", HATCHED[name], name, LIGHT.state[name])
            for name in states
            if name in HATCHED
        )
    )


def line(x1: float, y1: float, x2: float, y2: float) -> Markup:
    """A thin line of the grid."""
    return Markup('<path class="g" d="M{} {}L{} {}" stroke="{}" fill="none"/>').format(
        number(x1), number(y1), number(x2), number(y2), LIGHT.grid
    )


def curve(points: Iterable[tuple[float, float]], look: Mapping[str, str]) -> Markup:
    """A line from point to point."""
    path = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return Markup('<path d="M{}" fill="none"{}/>').format(path, attributes(look))


def area(points: Iterable[tuple[float, float]], look: Mapping[str, str]) -> Markup:
    """What a line from point to point and back to the first encloses."""
    path = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return Markup('<path d="M{}z"{}/>').format(path, attributes(look))


def dots(points: Iterable[tuple[float, float]]) -> Markup:
    """Round marks in the colour of their group, as one shape: lines of no length with round ends."""
    path = "".join(f"M{number(x)} {number(y)}h0" for x, y in points)
    return Markup('<path d="{}" stroke-width="5.2" stroke-linecap="round"/>').format(path) if path else Markup()


def ring(x: float, y: float) -> Markup:
    """A hollow mark in the colour of its group."""
    return Markup('<circle cx="{}" cy="{}" r="2.6" fill="none"/>').format(number(x), number(y))


def levels(x: float, ys: Iterable[float]) -> Markup:
    """Thin lines across the drawing from x on, as one shape."""
    path = "".join(f"M{number(x)} {number(y)}H{WIDTH}" for y in ys)
    return Markup('<path class="g" d="{}" stroke="{}"/>').format(path, LIGHT.grid)


def labels(places: Iterable[tuple[float, float, str]], anchor: str) -> Markup:
    """Short muted texts of one look, as `text` writes each."""
    shown = (Markup('<text x="{}" y="{}">{}</text>').format(number(x), number(y), words) for x, y, words in places)
    return Markup('<g class="m" fill="{}" font-size="10.5" text-anchor="{}">{}</g>').format(
        LIGHT.muted, anchor, Markup().join(shown)
    )


def attributes(look: Mapping[str, str]) -> Markup:
    """The attributes of a shape."""
    return Markup().join(Markup(' {}="{}"').format(Markup(name), value) for name, value in look.items())  # noqa: S704  # names of attributes are ours


def text(x: float, y: float, words: str, *, anchor: str = "start", kind: str = "") -> Markup:
    """A line of text with its baseline at y. `kind` is `m` for muted and small, `b` for bold, `k` for dark on a bright shape."""
    look = {
        "m": Markup(' class="m" fill="{}" font-size="10.5"').format(LIGHT.muted),
        "b": Markup(' font-weight="600"'),
        "k": Markup(' class="k" font-size="11"'),
    }
    place = Markup() if anchor == "start" else Markup(' text-anchor="{}"').format(anchor)
    return Markup('<text x="{}" y="{}"{}{}>{}</text>').format(
        number(x), number(y), place, look.get(kind, Markup()), words
    )


def name(words: str, most: int) -> str:
    """A name for a drawing, cut to so many characters; the table beside it has it whole."""
    return plain(words, most)

"""Small pieces of SVG. Attributes carry the colours of light pages; the style sheet replaces those of text and lines.

So a drawing is right as well where no style sheet reaches into it, as in WeasyPrint's pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from analytics.language.plain_text import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

WIDTH = 380
"""Of every drawing, in its own units: with text of 12 it can be read on a page of 320 pixels and on half of a wide one."""

_FONT = "Inter, 'Liberation Sans', 'DejaVu Sans', sans-serif"
_TEXT, _MUTED, _LINE = "#1c2330", "#566072", "#dde1e8"


def number(value: float) -> str:
    """A coordinate, to a tenth."""
    return f"{round(value, 1):g}"


def drawing(height: float, parts: Iterable[Markup], name: str) -> Markup:
    """A whole drawing with a name for those who do not see it."""
    return Markup(
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}" font-family="{}" font-size="12" fill="{}">{}</svg>'
    ).format(WIDTH, number(height), name, _FONT, _TEXT, Markup().join(parts))


def rect(x: float, y: float, width: float, height: float, look: Mapping[str, str]) -> Markup:
    """A rectangle; nothing where it would have no extent."""
    if width <= 0 or height <= 0:
        return Markup()
    attributes = Markup().join(Markup(' {}="{}"').format(Markup(name), value) for name, value in look.items())  # noqa: S704  # names of attributes are ours
    return Markup('<rect x="{}" y="{}" width="{}" height="{}"{}/>').format(
        number(x), number(y), number(max(width, 0.5)), number(max(height, 0.5)), attributes
    )


def line(x1: float, y1: float, x2: float, y2: float) -> Markup:
    """A thin line of the grid."""
    return Markup('<path class="g" d="M{} {}L{} {}" stroke="{}" fill="none"/>').format(
        number(x1), number(y1), number(x2), number(y2), _LINE
    )


def text(x: float, y: float, words: str, *, anchor: str = "start", kind: str = "") -> Markup:
    """A line of text with its baseline at y. `kind` is `m` for muted and small, `b` for bold, `k` for dark on a bright shape."""
    look = {
        "m": Markup(' class="m" fill="{}" font-size="10.5"').format(_MUTED),
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


def isolated(words: str) -> str:
    """A name inside a sentence: its direction ends with it."""
    return f"\N{FIRST STRONG ISOLATE}{plain(words, 60)}\N{POP DIRECTIONAL ISOLATE}"

"""How the ledger's states look: colours for light and dark pages alike, and patterns, so that nothing depends on hue alone."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from analytics.states import USED_FIRST


@dataclass(frozen=True)
class Look:
    """A colour that stands out on white as on dark cards, how much of it covers the card, and lines over it.

    `lines` is what a tile of 6 by 6 has over its colour, empty for none.
    """

    colour: str
    opacity: float = 1.0
    lines: str = ""

    @property
    def rgba(self) -> tuple[int, int, int, int]:
        """As four bytes."""
        red, green, blue = (int(self.colour[at : at + 2], 16) for at in (1, 3, 5))
        return red, green, blue, round(255 * self.opacity)


LOOKS = {
    "active": Look("#2470c4"),
    "low": Look("#2470c4", 0.42),
    "held": Look("#e8751f", lines="M-1 7L7 -1M-1 1L1 -1M5 7L7 5"),
    "reserved": Look("#f0bc42", lines="M1.5 3h3"),
    "free": Look("#7d889c", 0.34),
    "unavailable": Look("#c2255c", lines="M3 0v6M0 3h6"),
    "unknown": Look("#8d70b5", 0.6, lines="M0 1.5h6"),
}


def fill(state: str, key: str) -> dict[str, str]:
    """The attributes that fill a shape with a state, in a drawing that has `patterns` of the same key."""
    look = LOOKS[state]
    if look.lines:
        return {"fill": f"url(#{key}-{state})"}
    return {"fill": look.colour} | ({} if look.opacity == 1 else {"fill-opacity": f"{look.opacity:g}"})


def patterns(key: str, states: tuple[str, ...] = USED_FIRST) -> Markup:
    """The patterns that `fill` names; ids begin with the key, as they are the whole page's."""
    return Markup("<defs>{}</defs>").format(
        Markup().join(_pattern(f"{key}-{state}", LOOKS[state]) for state in states if LOOKS[state].lines)
    )


def _pattern(name: str, look: Look) -> Markup:
    return Markup(
        '<pattern id="{}" width="6" height="6" patternUnits="userSpaceOnUse">'
        '<rect width="6" height="6" fill="{}" fill-opacity="{:g}"/>'
        '<path d="{}" fill="none" stroke="#fff" stroke-opacity=".6" stroke-width="1.1"/></pattern>'
    ).format(name, look.colour, look.opacity, look.lines)

"""How everything looks that people read: light and dark colours, hatching, type sizes, gaps, and the order of states.

Pages, reports, drawings, mails and the timeline take all of it from here. A colour has a meaning: used time is blue,
wasted time is of one warm family, and time that says nothing of waste is grey.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from analytics.states import USED_FIRST

ORDER = USED_FIRST
"""The states as a reader meets them: from used, over wasted, to not known."""

HATCHED: Mapping[str, int] = {"held": 45, "reserved": 0, "unavailable": 90, "unknown": -45}
"""Degrees of the lines over a state's colour, so that no reader depends on hue alone."""

SIZES: Mapping[str, str] = {"small": "13px", "body": "15px", "lead": "17px", "title": "22px", "figure": "28px"}
"""Every size of type on a screen: labels and tables, text, headings, names of pages, key figures."""

PRINTED: Mapping[str, str] = {"small": "7.2pt", "body": "8.5pt", "lead": "10pt", "title": "13pt", "figure": "17pt"}
"""The same sizes on paper."""

GAPS: Mapping[str, str] = {"gap-s": "4px", "gap-m": "8px", "gap-l": "16px", "gap-xl": "32px"}
"""Every distance between blocks."""

SHADED = 0.5
"""How strong the colour of the highest value is where cells are shaded: text can be read on all of them."""


@dataclass(frozen=True)
class Palette:
    """Colours of one scheme, as `#rrggbb`.

    States stand out from `card` and `page` by three to one, as do `edge`, `mark` and `soft`; texts by four and a half
    to one. Neighbours in a bar differ in lightness or in hatching as well as in hue.
    """

    state: Mapping[str, str]
    page: str
    card: str
    hover: str
    code: str
    line: str
    """Between rows, and below levels of a chart."""
    edge: str
    """Round what can be pressed or filled in."""
    text: str
    muted: str
    accent: str
    """Of links, and of what is chosen."""
    high: str
    medium: str
    low: str
    banner: str
    banner_line: str
    banner_text: str
    mark: str
    """Of what is no state, such as an estimate."""
    soft: str
    """Of an estimate's interval."""

    def colour(self, name: str) -> str:
        """Return the colour of a state, or else of a role such as `muted`, `mark` or `soft`."""
        return self.state[name] if name in self.state else str(getattr(self, name))

    @property
    def variables(self) -> str:
        """Return the custom properties of a style sheet: `--card` for a role, `--s-held` for what `colour` gives."""
        roles = {each.name.replace("_", "-"): getattr(self, each.name) for each in fields(self) if each.name != "state"}
        return properties(roles | {f"s-{name}": self.colour(name) for name in DRAWN})


LIGHT = Palette(
    state={
        "active": "#155fa8",
        "low": "#4f8ccb",
        "stalled": "#7a4a12",
        "held": "#8f2f0c",
        "reserved": "#c07e00",
        "free": "#d03f17",
        "unavailable": "#3f4754",
        "unknown": "#7d8696",
    },
    page="#f4f5f8",
    card="#ffffff",
    hover="#f6f8fb",
    code="#eef1f5",
    line="#dde1e8",
    edge="#7d8696",
    text="#1c2330",
    muted="#566072",
    accent="#155fa8",
    high="#0f6b3a",
    medium="#7d5200",
    low="#a02c2c",
    banner="#fff1c9",
    banner_line="#d9a600",
    banner_text="#4b3a00",
    mark="#155fa8",
    soft="#4f8ccb",
)

DARK = Palette(
    state={
        "active": "#4f9ff0",
        "low": "#3d74ad",
        "stalled": "#c58041",
        "held": "#dc6440",
        "reserved": "#8f6a1e",
        "free": "#ff9650",
        "unavailable": "#d3d9e2",
        "unknown": "#737e8f",
    },
    page="#0e1218",
    card="#171c25",
    hover="#1c222c",
    code="#222936",
    line="#2c3441",
    edge="#737e8f",
    text="#e8ebf1",
    muted="#a4adbc",
    accent="#7db7f7",
    high="#6ed59c",
    medium="#f0c05a",
    low="#ff9a93",
    banner="#35290a",
    banner_line="#b98d09",
    banner_text="#ffe7a3",
    mark="#4f9ff0",
    soft="#3d74ad",
)

DRAWN = (*LIGHT.state, "muted", "mark", "soft")
"""The names of colours in drawings."""


def palette(scheme: str) -> Palette:
    """Return the palette of `light` or `dark`; light for anything else."""
    return DARK if scheme == "dark" else LIGHT


def properties(values: Mapping[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in values.items())


SCALE = properties({**SIZES, **GAPS})
"""The sizes of type and the gaps as custom properties."""

_SHAPES = """.drawing{font-family:inherit}
.drawing text{fill:var(--text)}
.drawing .m,.drawing .m text{fill:var(--muted)}
.drawing .g{stroke:var(--line)}
.drawing .h{stroke:var(--card)}
.drawing .e{fill:var(--line);fill-opacity:.6}
""" + "".join(
    f".s-{name}{{fill:var(--s-{name})}}.l-{name}{{stroke:var(--s-{name})}}.i-{name}{{color:var(--s-{name})}}"
    for name in DRAWN
)

_TOKENS = {
    "SHAPES": _SHAPES,
    "LIGHT-CARD": LIGHT.card,
    "DARK-CARD": DARK.card,
    "ACCENT": LIGHT.accent[1:],
    "WASTE": LIGHT.state["free"][1:],
    "SMALL-PRINT": PRINTED["small"],
    "LIGHT": LIGHT.variables,
    "DARK": DARK.variables,
    "SCALE": SCALE,
    "PRINTED": properties(PRINTED),
}


def with_palette(text: str) -> str:
    """Return a style sheet, or a page with one, in which words such as `DARK` stand for the palette's values."""
    for token, value in _TOKENS.items():
        text = text.replace(token, value)
    return text

"""How states look: colours for light and dark, hatching, and the order in which a reader meets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analytics.states import ALLOCATED_USED_FIRST, USED_FIRST

ORDER = USED_FIRST
"""The states as a reader meets them: from used, over wasted, to not known."""

GIVEN = ALLOCATED_USED_FIRST
"""States of time that somebody was given, used first."""

FAINT = ("low", "reserved", "free")
"""States whose colour is close to that of the card in one scheme or the other: their bars have an edge."""

HATCHED: Mapping[str, int] = {"held": 45, "reserved": 0, "unavailable": 90, "unknown": -45}
"""Degrees of the lines over a state's colour, so that no reader depends on hue alone."""


@dataclass(frozen=True)
class Palette:
    """Colours of one scheme. States differ in lightness as well as in hue.

    `edge` is a line that stands out from the card, three to one: round what does not by itself. `mark` is for what is no
    state, such as an estimate, `soft` for its interval, `whole` for what it is a part of.
    """

    state: Mapping[str, str]
    text: str
    muted: str
    grid: str
    edge: str
    card: str
    mark: str
    soft: str
    whole: str

    def colour(self, name: str) -> str:
        """The colour of a state, or of `muted`, `mark`, `soft` or `whole`."""
        return self.state[name] if name in self.state else str(getattr(self, name))


LIGHT = Palette(
    state={
        "active": "#155fa8",
        "low": "#8cc3ec",
        "held": "#e8751f",
        "reserved": "#f6cb56",
        "free": "#cdd2da",
        "unavailable": "#b01e52",
        "unknown": "#9a7bbd",
    },
    text="#1c2330",
    muted="#566072",
    grid="#dde1e8",
    edge="#858e9d",
    card="#ffffff",
    mark="#155fa8",
    soft="#8cc3ec",
    whole="#cdd2da",
)

DARK = Palette(
    state={
        "active": "#4f9ff0",
        "low": "#3268a3",
        "held": "#f08b38",
        "reserved": "#f4d170",
        "free": "#454c59",
        "unavailable": "#ee6f9c",
        "unknown": "#9d7fc4",
    },
    text="#e8ebf1",
    muted="#a4adbc",
    grid="#2c3441",
    edge="#6f7a8b",
    card="#171c25",
    mark="#4f9ff0",
    soft="#3268a3",
    whole="#454c59",
)


def palette(scheme: str) -> Palette:
    """The palette of `light` or `dark`; light for anything else."""
    return DARK if scheme == "dark" else LIGHT

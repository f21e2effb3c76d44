"""Colours of the states, for a light and a dark page, and what charts need beside them."""

from __future__ import annotations

from dataclasses import dataclass

SCHEMES = ("light", "dark")


@dataclass(frozen=True)
class Palette:
    """Colours of one scheme. States differ in lightness as well as in hue, so that no reader depends on hue alone.

    `edge` is a line that stands out from the card, three to one: round what does not by itself.
    """

    state: dict[str, str]
    text: str
    muted: str
    grid: str
    edge: str
    card: str


LIGHT = Palette(
    state={
        "active": "#155fa8",
        "low": "#8cc3ec",
        "held": "#e8751f",
        "reserved": "#f6cb56",
        "free": "#cdd2da",
        "unavailable": "#2f3137",
        "unknown": "#9a7bbd",
    },
    text="#1c2330",
    muted="#596273",
    grid="#e4e7ec",
    edge="#858e9d",
    card="#ffffff",
)

DARK = Palette(
    state={
        "active": "#4f9ff0",
        "low": "#2a5d92",
        "held": "#f08b38",
        "reserved": "#f4d170",
        "free": "#454c59",
        "unavailable": "#f1f2f5",
        "unknown": "#9d7fc4",
    },
    text="#e8ebf1",
    muted="#a4adbc",
    grid="#2b323e",
    edge="#6f7a8b",
    card="#171c25",
)

FAINT = ("low", "reserved", "free")
"""States whose colour is close to that of the card in one scheme or the other: their bars have an edge."""


def palette(scheme: str) -> Palette:
    """The palette of `light` or `dark`; light for anything else."""
    return DARK if scheme == "dark" else LIGHT

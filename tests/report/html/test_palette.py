"""Colours and sizes of type: what is drawn stands out, what is written can be read, and there is one scale."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from analytics.states import UNUSED, WASTED
from analytics.tables.palette import DARK, HATCHED, LIGHT, ORDER, SHADED, SIZES, Palette, with_palette
from tests.conftest import REPOSITORY

STYLES = (
    *(REPOSITORY / "dashboard" / "assets").glob("*.css"),
    REPOSITORY / "dashboard" / "index.html",
    *(REPOSITORY / "analytics" / "render" / "html" / "templates").iterdir(),
)
BOTH = pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])


def luminance(colour: str) -> float:
    parts = [part / 255 for part in bytes.fromhex(colour[1:])]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    """Return WCAG's contrast ratio of two colours."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def over(colour: str, ground: str, strength: float) -> str:
    """Return a colour of this opacity on its ground."""
    pairs = zip(bytes.fromhex(colour[1:]), bytes.fromhex(ground[1:]), strict=True)
    return "#" + bytes(round(strength * one + (1 - strength) * other) for one, other in pairs).hex()


def is_warm(colour: str) -> bool:
    red, green, blue = bytes.fromhex(colour[1:])
    return red > green > blue


@BOTH
def test_what_is_drawn_and_written_stands_out(colours: Palette) -> None:
    for behind in (colours.card, colours.page):
        for drawn in (*colours.state.values(), colours.mark, colours.soft, colours.edge):
            assert contrast(drawn, behind) >= 3
    for behind in (colours.card, colours.page, colours.hover, colours.code):
        for written in (colours.text, colours.muted, colours.accent, colours.high, colours.medium, colours.low):
            assert contrast(written, behind) >= 4.5
    assert contrast(colours.banner_text, colours.banner) >= 4.5
    for state in ("held", "free", "active"):
        assert contrast(colours.text, over(colours.state[state], colours.card, SHADED)) >= 4.5


@BOTH
def test_wasted_time_is_warm_used_time_is_not_and_the_rest_is_grey(colours: Palette) -> None:
    assert {state for state in ORDER if is_warm(colours.state[state])} == set(UNUSED)
    for state in set(WASTED) - {*UNUSED, "low"} | {"unknown"}:
        parts = bytes.fromhex(colours.state[state][1:])
        assert max(parts) - min(parts) < 32
    # most waste is free: it is to be seen as well as any use
    assert contrast(colours.state["free"], colours.card) >= 4.5
    assert contrast(colours.state["free"], colours.card) > contrast(colours.state["low"], colours.card)


@BOTH
def test_neighbours_in_a_bar_differ_in_lightness_or_hatching_and_not_in_hue_alone(colours: Palette) -> None:
    for one, other in pairwise(ORDER):
        is_other_light = contrast(colours.state[one], colours.state[other]) >= 1.5
        assert is_other_light or HATCHED.get(one) != HATCHED.get(other)
    plain = [colours.state[state] for state in ORDER if state not in HATCHED]
    assert all(contrast(one, other) >= 1.1 for one, other in pairwise(sorted(plain, key=luminance)))


@pytest.mark.parametrize("path", STYLES, ids=lambda path: path.name)
def test_every_size_of_type_is_one_of_the_scale(path: Path) -> None:
    said = re.findall(r"font(?:-size)?:\s*([^;}\"]+)", path.read_text(encoding="utf-8"))
    sizes = [each for each in said if re.search(r"\d(?:px|pt|em|rem|%)|^0", each)]
    assert sizes == []
    assert set(re.findall(r"var\(--(\w+)\)", " ".join(said))) <= {*SIZES, "font"}


def test_five_sizes_and_no_word_left_in_a_style_sheet() -> None:
    assert len(SIZES) == 5
    for path in STYLES:
        assert not re.search(r"\b(?:LIGHT|DARK|SCALE|PRINTED|SMALL-PRINT)\b", with_palette(path.read_text()))

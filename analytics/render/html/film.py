"""The film strip: every GPU over the window as one palette image, small enough for a page that is mailed."""

from __future__ import annotations

import base64
import io

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from analytics.language.language import Language
from analytics.language.quantities import Span
from analytics.language.sentences import tr
from analytics.report.film import Film
from analytics.tables.palette import LIGHT
from fallow.clock import DAY_MS
from fallow.schema import STATES

MOST_ROWS = 250
MOST_BYTES = 6_000
"""Of the image: a third more in the page, as base64."""


def film_strip(film: Film, name: str, language: Language) -> Markup:
    """The image above an axis of days, and what a row and a point of it are."""
    codes, gpus_a_row = _lowered(film.codes)
    image = png(codes)
    while len(image) > MOST_BYTES and len(codes) > 1:
        codes, gpus_a_row = _lowered(film.codes, -(-len(codes) * 3 // 4))
        image = png(codes)
    return Markup(
        '<div class="film"><img alt="{}" src="{}"><div class="axis">{}</div></div><p class="note">{}</p>'
    ).format(
        name,
        "data:image/png;base64," + base64.b64encode(image).decode(),
        Markup().join(Markup("<span>{}</span>").format(each) for each in _ticks(film, language)),
        language.translate(_note(film, gpus_a_row)),
    )


def png(codes: NDArray[np.uint8]) -> bytes:
    """The codes as an image with a pixel each: positions in STATES, anything else is transparent."""
    height, width = codes.shape
    image = Image.frombytes("P", (width, height), np.minimum(codes, len(STATES)).tobytes())
    image.putpalette([*(part for state in STATES for part in bytes.fromhex(LIGHT.state[state][1:])), 0, 0, 0])
    target = io.BytesIO()
    image.save(target, "PNG", optimize=True, bits=4, transparency=bytes([*(255 for _ in STATES), 0]))
    return target.getvalue()


def _lowered(codes: NDArray[np.uint8], most: int = MOST_ROWS) -> tuple[NDArray[np.uint8], int]:
    """At most so many rows, and how many GPUs each stands for: in each bin the state of most of them."""
    each = max(1, -(-len(codes) // most))
    if each == 1:
        return codes, 1
    padded = np.full((-(-len(codes) // each) * each, codes.shape[1]), len(STATES), np.uint8)
    padded[: len(codes)] = np.minimum(codes, len(STATES))
    groups = padded.reshape(-1, each, codes.shape[1])
    votes = np.stack([(groups == code).sum(axis=1) for code in range(len(STATES))])
    return np.where(votes.max(axis=0) > 0, votes.argmax(axis=0), len(STATES)).astype(np.uint8), each


def _note(film: Film, gpus_a_row: int) -> str:
    if gpus_a_row == 1:
        return tr(
            "A row per GPU, the most wasted on top; each point is the state of most of {span}.", span=Span(film.bin_ms)
        )
    return tr(
        "A row per {gpus} GPUs, the most wasted on top; each point is the state of most of them in {span}.",
        gpus=gpus_a_row,
        span=Span(film.bin_ms),
    )


def _ticks(film: Film, language: Language) -> list[str]:
    """Seven days at most, evenly spread over the width."""
    until_ms = film.since_ms + film.codes.shape[1] * film.bin_ms
    days = max(1, round((until_ms - film.since_ms) / DAY_MS))
    shown = next((number for number in (7, 6, 5, 4, 3, 2) if days % number == 0), min(days, 7))
    step = (until_ms - film.since_ms) / shown
    return [language.day(round(film.since_ms + place * step)) for place in range(shown)]

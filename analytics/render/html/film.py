"""The film strip: every GPU over the window as one palette image, small enough for a page that is mailed."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup
from PIL import Image

from analytics.language.quantities import Number, Share, Span
from analytics.language.sentences import say, say_many
from analytics.ledger.summary import ratio
from analytics.render.html.cells import bdi, labelled
from analytics.render.html.chart import Chart, Table
from analytics.render.html.states import LOOKS
from analytics.states import UNUSED, USED_FIRST
from fallow.clock import DAY_MS
from fallow.schema import STATES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from analytics.language.languages import Language
    from analytics.report.figures import Film
    from analytics.report.model import Report

MOST_ROWS = 250
MOST_BYTES = 14_000
"""Of the image: a third more in the page, as base64."""
_MOST_NAMED = 12


def film_strip(report: Report, language: Language) -> Chart:
    """The strip, with the GPUs that were wasted most as its table."""
    film = report.film
    codes, gpus_a_row = _lowered(film.codes)
    image = png(codes)
    while len(image) > MOST_BYTES and len(codes) > 1:
        codes, gpus_a_row = _lowered(film.codes, -(-len(codes) * 3 // 4))
        image = png(codes)
    title = language.say("Every GPU over time")
    finding = language.say(_finding(film))
    waste = tuple(STATES.index(state) for state in UNUSED)
    rows = tuple(
        (bdi(gpu), bdi(host), *_shares(row, waste, language))
        for gpu, host, row in zip(film.gpus[:_MOST_NAMED], film.hosts, film.codes, strict=False)
    )
    rest = len(film.gpus) - len(rows)
    return Chart(
        key="f",
        title=title,
        finding=finding,
        drawing=_figure(report, image, labelled(title, finding, language), language) if codes.size else Markup(),
        table=Table(
            tuple(language.say(each) for each in ("GPU", "host", "unused", "used", "not known")),
            rows,
            words=frozenset({1}),
            rest=language.say(say_many("and {number} more GPU", "and {number} more GPUs", rest)) if rest else "",
        ),
        legend=USED_FIRST,
        note=language.say(_note(film, gpus_a_row)),
        wide=True,
    )


def png(codes: NDArray[np.uint8]) -> bytes:
    """The codes as an image with a pixel each: positions in STATES, anything else is transparent."""
    height, width = codes.shape
    image = Image.frombytes("P", (width, height), np.minimum(codes, len(STATES)).tobytes())
    looks = [LOOKS[state].rgba for state in STATES]
    image.putpalette([*(part for look in looks for part in look[:3]), 0, 0, 0])
    target = io.BytesIO()
    image.save(target, "PNG", optimize=True, bits=4, transparency=bytes([*(look[3] for look in looks), 0]))
    return target.getvalue()


def data_uri(image: bytes) -> str:
    """The image as an address of its own."""
    return "data:image/png;base64," + base64.b64encode(image).decode()


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


def _finding(film: Film) -> str:
    waste = np.isin(film.codes, [STATES.index(state) for state in UNUSED])
    known = (film.codes < len(STATES)) & (film.codes != STATES.index("unknown"))
    always = int(((waste | ~known).all(axis=1) & waste.any(axis=1)).sum())
    if not known.any():
        return say("Nothing is known of any GPU.")
    return say_many(
        "{number} GPU of {all} went unused all the time; {share} of what was seen is unused.",
        "{number} GPUs of {all} went unused all the time; {share} of what was seen is unused.",
        always, all=Number(len(film.gpus)), share=Share(ratio(int(waste.sum()), int(known.sum()))),
    )  # fmt: skip


def _note(film: Film, gpus_a_row: int) -> str:
    if gpus_a_row == 1:
        return say(
            "A row per GPU, the most wasted on top; each point is the state of most of {span}.", span=Span(film.bin_ms)
        )
    return say(
        "A row per {gpus} GPUs, the most wasted on top; each point is the state of most of them in {span}.",
        gpus=Number(gpus_a_row), span=Span(film.bin_ms),
    )  # fmt: skip


def _shares(row: NDArray[np.uint8], waste: tuple[int, ...], language: Language) -> tuple[str, str, str]:
    there = int((row < len(STATES)).sum())
    unused = int(np.isin(row, waste).sum())
    used = int(np.isin(row, [STATES.index("low"), STATES.index("active")]).sum())
    return (
        language.percent(ratio(unused, there), 0),
        language.percent(ratio(used, there), 0),
        language.percent(ratio(there - unused - used, there), 0),
    )


def _figure(report: Report, image: bytes, name: str, language: Language) -> Markup:
    """The image between an axis of days and one that says what is on top."""
    film = report.film
    ticks = _ticks(film, language)
    return Markup('<div class="film"><img alt="{}" src="{}"><div class="axis">{}</div></div>').format(
        name, data_uri(image), Markup().join(Markup("<span>{}</span>").format(each) for each in ticks)
    )


def _ticks(film: Film, language: Language) -> list[str]:
    """Seven days at most, evenly spread over the width."""
    until_ms = film.since_ms + film.codes.shape[1] * film.bin_ms
    days = max(1, round((until_ms - film.since_ms) / DAY_MS))
    shown = next((number for number in (7, 6, 5, 4, 3, 2) if days % number == 0), min(days, 7))
    step = (until_ms - film.since_ms) / shown
    return [language.day(round(film.since_ms + place * step)) for place in range(shown)]

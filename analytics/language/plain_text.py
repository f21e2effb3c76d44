"""Names, numbers and lines for plain text: in a terminal, a file or a message."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence

from fallow import outside_text
from fallow.clock import HOUR_MS, from_ms

PAGE_COLUMNS = 100
"""Width of text in files, in pipes and on wide terminals."""

_FEWEST_COLUMNS = 80


def count(number: int, thing: str) -> str:
    """Return `1 GPU` or `2 GPUs`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


plain = outside_text.plain
"""Return a name on one line."""


def wrap(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Return lines of at most `width` columns, after `first` and `rest`.

    Numbers keep their units, and paths stay whole.
    """
    joined = re.sub(r"(?<=\d) (?=%|GPU|kWh|h\b|W\b|days\b|[KMGT]?i?B\b|>=)", "\N{NO-BREAK SPACE}", text)
    lines = textwrap.wrap(
        joined,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words="/" not in text,
    )
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def page_columns() -> int:
    """Return the width of standard output: less than PAGE_COLUMNS only on a narrower terminal, and never below 80."""
    if not sys.stdout.isatty():
        return PAGE_COLUMNS
    columns = shutil.get_terminal_size((PAGE_COLUMNS, 24)).columns
    return max(_FEWEST_COLUMNS, min(columns, PAGE_COLUMNS))


def fitted_lines(
    cells: Sequence[Sequence[str]], width: int, shrinking: Iterable[tuple[str, int]], right: Collection[str] = ()
) -> list[str]:
    """Return a table as lines, the first row its head.

    If it is too wide, the first named columns shrink first, down to their least width.
    """
    names = cells[0]
    widths = dict(zip(names, (max(map(len, column)) for column in zip(*cells, strict=True)), strict=True))
    room = width - sum(widths.values()) - 2 * len(widths)
    for name, least in shrinking:
        if room < 0 and widths.get(name, 0) > least:
            given = min(-room, widths[name] - least)
            widths[name] -= given
            room += given
    return [_fitted_line(row, widths, right) for row in cells]


def _fitted_line(cells: Sequence[str], widths: Mapping[str, int], right: Collection[str]) -> str:
    shown = [
        f"{cell:>{width}}" if name in right else f"{plain(cell, width):<{width}}"
        for cell, (name, width) in zip(cells, widths.items(), strict=True)
    ]
    return ("  " + "  ".join(shown)).rstrip()


def hours(milliseconds: int) -> str:
    """Return GPU-hours with one decimal and thousands separators."""
    return f"{milliseconds / HOUR_MS:,.1f}"


def moment(moment_ms: int) -> str:
    """Return a time for people: UTC to the minute."""
    return from_ms(moment_ms).strftime("%Y-%m-%d %H:%M UTC")

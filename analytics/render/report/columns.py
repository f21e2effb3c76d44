"""A table as lines of plain text: figures to the right, names cut to what the width leaves them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.language.plain_text import plain

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_BETWEEN = 2
_NAME_LEAST = 8


def columns(head: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[int], width: int) -> list[str]:
    """The heading and a line for each row, two columns in and at most as wide as is said; `words` are cut where need be."""
    widths = [max(len(line[place]) for line in (head, *rows)) for place in range(len(head))]
    while _whole(widths) > width:
        widest = max(words, key=lambda place: widths[place])
        if widths[widest] <= _NAME_LEAST:
            break
        widths[widest] -= 1
    return [_line(line, widths, words) for line in (head, *rows)]


def _whole(widths: Sequence[int]) -> int:
    return sum(widths) + _BETWEEN * len(widths)


def _line(cells: Sequence[str], widths: Sequence[int], words: Collection[int]) -> str:
    shown = (
        f"{plain(cell, width):<{width}}" if place in words else f"{cell:>{width}}"
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return ("  " + (" " * _BETWEEN).join(shown)).rstrip()

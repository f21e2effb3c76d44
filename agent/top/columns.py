"""Tables that fit: columns with a rank, of which the least important go first when the terminal is narrow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_Line = TypeVar("_Line")

GAP = 2


@dataclass(frozen=True)
class Column(Generic[_Line]):
    """One column: its heading, the cell of a line for a width, and how wide it wants to be."""

    heading: str
    cell: Callable[[_Line, int], Text]
    width: int
    """The least that it needs."""
    rank: int = 0
    """The column with the highest rank goes first; rank 0 stays."""
    most: int = 0
    """How wide it may grow, where it may."""
    jump: int = 1
    """How much its first growth has to be: a bar of one character says nothing."""
    right: bool = False


def fit(columns: Sequence[Column[_Line]], width: int) -> list[tuple[Column[_Line], int]]:
    """The columns that have room, each with its width."""
    kept = list(columns)
    while len(kept) > 1 and _needed(kept) > width and any(each.rank for each in kept):
        kept.remove(max(kept, key=lambda each: each.rank))
    widths = {each.heading: each.width for each in kept}
    spare = width - _needed(kept)
    while growing := [each for each in kept if _growth(each, widths[each.heading]) in range(1, spare + 1)]:
        narrowest = min(growing, key=lambda each: widths[each.heading] / each.most)
        grown = _growth(narrowest, widths[narrowest.heading])
        widths[narrowest.heading] += grown
        spare -= grown
    return [(each, widths[each.heading]) for each in kept]


def heading(columns: Sequence[tuple[Column[_Line], int]], style: str) -> Text:
    """The line with the columns' names."""
    cells = [_sized(Text(each.heading, style), width, right=each.right) for each, width in columns]
    return _joined(cells, style)


def body(columns: Sequence[tuple[Column[_Line], int]], line: _Line) -> Text:
    """One line of the table."""
    return _joined([_sized(each.cell(line, width), width, right=each.right) for each, width in columns])


def _growth(column: Column[_Line], width: int) -> int:
    """By how much a column of that width would grow next; 0 where it is as wide as it gets."""
    if width >= column.most:
        return 0
    return column.jump if width == column.width else 1


def _needed(columns: Sequence[Column[_Line]]) -> int:
    return sum(each.width for each in columns) + GAP * (len(columns) - 1)


def _joined(cells: Sequence[Text], style: str = "") -> Text:
    return Text(" " * GAP, style).join(cells)


def _sized(cell: Text, width: int, *, right: bool) -> Text:
    missing = width - cell_len(cell.plain)
    if missing < 0:
        return Text(set_cell_size(cell.plain, width), cell.style)
    padding = Text(" " * missing)
    return padding + cell if right else cell + padding

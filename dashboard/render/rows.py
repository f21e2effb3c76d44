"""Where the rows of a film lie in its picture: how high they are, what separates them, and which of them are named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dashboard.film import ALL_IN_SIGHT, NOT_SEEN, GroupFilm, PageFilm

Name = TypeVar("Name", str, str | None)

_IN_SIGHT_PX = 620
"""Height in which all rows shall be: what a laptop's screen leaves below the bar."""
_MOST_ROW_PX, _MOST_GROUP_PX = 18, 120
_SCROLLED_PX = 2.0
"""Of each GPU's row, where there are more than one can have in sight at once."""
_GAP_PX = 4
_THIN_PX = 4
"""Rows that are lower than this cannot be hit with a pointer: a click opens their host."""
_LABEL_PX = 15
_LEAST_PX = 90


@dataclass(frozen=True)
class RowLabel:
    """The name of `count` rows from `first` on; of a pool it stands at its first rows."""

    first: int
    count: int
    name: str
    is_pool: bool = False


@dataclass(frozen=True)
class FilmRows:
    """`count` rows of `lines` lines, `line_px` high; before each row of `gaps` there are `gap_lines` empty ones."""

    count: int
    lines: int
    line_px: float
    gaps: tuple[int, ...] = ()
    gap_lines: int = 0

    @property
    def height_px(self) -> int:
        """Of all of them."""
        return max(_LEAST_PX, round((self.count * self.lines + len(self.gaps) * self.gap_lines) * self.line_px))

    @property
    def is_thin(self) -> bool:
        """Whether a row is lower than a pointer can hit."""
        return self.lines * self.line_px < _THIN_PX

    def middle(self, first: int, count: int) -> float:
        """Where the middle of some rows lies, counted in lines; they lie between two gaps."""
        before = sum(gap <= first for gap in self.gaps) * self.gap_lines
        return before + (first + count / 2) * self.lines - 0.5

    def spread(self, frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The lines with those that separate them."""
        places = np.repeat(np.array(self.gaps, np.int64) * self.lines, self.gap_lines)
        return np.insert(frames, places, NOT_SEEN, axis=0)

    def labels(self, blocks: Iterable[RowLabel]) -> list[tuple[float, str]]:
        """Names of blocks of rows for which there is room, at their middles: those of pools first."""
        found: dict[float, str] = {}
        for block in sorted(blocks, key=lambda each: not each.is_pool):
            middle = self.middle(block.first, block.count)
            if all(abs(middle - other) * self.line_px >= _LABEL_PX for other in found):
                found[middle] = block.name
        return sorted(found.items())


def gpu_rows(film: PageFilm, *, by_pool: bool) -> FilmRows:
    """A row for each GPU, all in sight at once where they are no more than ALL_IN_SIGHT; pools stand apart."""
    count = len(film.gpus)
    gaps = tuple(first for first, _, _ in blocks(film.pools) if first) if by_pool else ()
    room_px = _IN_SIGHT_PX - _GAP_PX * len(gaps)
    row_px = min(_MOST_ROW_PX, room_px / max(1, count)) if count <= ALL_IN_SIGHT else _SCROLLED_PX
    return FilmRows(count, 1, row_px, gaps, max(1, round(_GAP_PX / row_px)))


def group_rows(film: GroupFilm, *, by_pool: bool) -> FilmRows:
    """A row for each pool or host, with a line between them where there is room, else between pools."""
    count = len(film.names)
    row_px = _IN_SIGHT_PX / max(1, count)
    if row_px < film.lines:
        gaps = tuple(first for first, _, _ in blocks(film.pools) if first) if by_pool else ()
        return FilmRows(count, film.lines, 1, gaps, _GAP_PX)
    gap_px = min(_GAP_PX, row_px / 6)
    line_px = (min(_MOST_GROUP_PX, row_px) - gap_px) / film.lines
    return FilmRows(count, film.lines, line_px, tuple(range(1, count)), max(1, round(gap_px / line_px)))


def blocks(names: Sequence[Name]) -> Iterator[tuple[int, int, Name]]:
    """Neighbours of one name: the first row, how many, and the name."""
    row = 0
    for name, members in groupby(names):
        size = len(list(members))
        yield row, size, name
        row += size

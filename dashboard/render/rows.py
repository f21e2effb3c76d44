"""The rows of a timeline in its picture: their heights, the gaps between them, and their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dashboard.timeline import ALL_IN_SIGHT, NOT_SEEN, GroupTimeline, PageTimeline

Name = TypeVar("Name", str, str | None)

_IN_SIGHT_PX = 620
"""The height for all rows: the height of a laptop's screen below the bar."""
_MOST_ROW_PX, _MOST_GROUP_PX = 18, 120
_SCROLLED_PX = 2.0
"""The height of a GPU's row where there are more rows than fit on a screen."""
_GAP_PX = 4
_THIN_PX = 4
"""Rows below this height are too thin for a pointer: a click opens their host."""
_LABEL_PX = 15
_LEAST_PX = 90


@dataclass(frozen=True)
class RowLabel:
    """The name of `count` rows from row `first`; a pool's name is at the pool's first rows."""

    first: int
    count: int
    name: str
    is_pool: bool = False


@dataclass(frozen=True)
class TimelineRows:
    """Geometry of `count` rows of `lines` lines, `line_px` high; `gap_lines` empty lines precede the rows in `gaps`."""

    count: int
    lines: int
    line_px: float
    gaps: tuple[int, ...] = ()
    gap_lines: int = 0

    @property
    def height_px(self) -> int:
        return max(_LEAST_PX, round((self.count * self.lines + len(self.gaps) * self.gap_lines) * self.line_px))

    @property
    def is_thin(self) -> bool:
        """True where a row is too thin for a pointer."""
        return self.lines * self.line_px < _THIN_PX

    def middle(self, first: int, count: int) -> float:
        """Return the middle of some rows between two gaps, counted in lines."""
        before = sum(gap <= first for gap in self.gaps) * self.gap_lines
        return before + (first + count / 2) * self.lines - 0.5

    def spread(self, frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the lines with the empty lines of the gaps."""
        places = np.repeat(np.array(self.gaps, np.int64) * self.lines, self.gap_lines)
        return np.insert(frames, places, NOT_SEEN, axis=0)

    def labels(self, blocks: Iterable[RowLabel]) -> list[tuple[float, str]]:
        """Return the names of blocks of rows that have room, with their middles. Names of pools take precedence."""
        found: dict[float, str] = {}
        for block in sorted(blocks, key=lambda each: not each.is_pool):
            middle = self.middle(block.first, block.count)
            if all(abs(middle - other) * self.line_px >= _LABEL_PX for other in found):
                found[middle] = block.name
        return sorted(found.items())


def gpu_rows(timeline: PageTimeline, *, by_pool: bool) -> TimelineRows:
    """Return a row per GPU. Up to ALL_IN_SIGHT rows fit on a screen; with `by_pool`, gaps separate pools."""
    count = len(timeline.gpus)
    gaps = tuple(first for first, _, _ in blocks(timeline.pools) if first) if by_pool else ()
    room_px = _IN_SIGHT_PX - _GAP_PX * len(gaps)
    row_px = min(_MOST_ROW_PX, room_px / max(1, count)) if count <= ALL_IN_SIGHT else _SCROLLED_PX
    return TimelineRows(count, 1, row_px, gaps, max(1, round(_GAP_PX / row_px)))


def group_rows(timeline: GroupTimeline, *, by_pool: bool) -> TimelineRows:
    """Return a row per pool or host, with gaps between all rows where there is room, else between pools."""
    count = len(timeline.names)
    row_px = _IN_SIGHT_PX / max(1, count)
    if row_px < timeline.lines:
        gaps = tuple(first for first, _, _ in blocks(timeline.pools) if first) if by_pool else ()
        return TimelineRows(count, timeline.lines, 1, gaps, _GAP_PX)
    gap_px = min(_GAP_PX, row_px / 6)
    line_px = (min(_MOST_GROUP_PX, row_px) - gap_px) / timeline.lines
    return TimelineRows(count, timeline.lines, line_px, tuple(range(1, count)), max(1, round(gap_px / line_px)))


def blocks(names: Sequence[Name]) -> Iterator[tuple[int, int, Name]]:
    """Yield blocks of neighbouring rows with one name: the first row, the number of rows, and the name."""
    row = 0
    for name, members in groupby(names):
        size = len(list(members))
        yield row, size, name
        row += size

"""The film strip's frames: for every GPU and every stretch of time, the state that it spent most of it in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import numpy as np

from dashboard.palette import ORDER
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, floor_ms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dashboard.source import View

MOST_ROWS = 512
MOST_COLUMNS = 720
NOT_SEEN = len(ORDER)
"""The value of a frame that lies before a GPU's first row or after its last."""

_BINS_MS = (
    *(MINUTE_MS * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(HOUR_MS * hours for hours in (1, 2, 3, 4, 6, 12)),
    *(DAY_MS * days for days in (1, 2, 7, 28, 364)),
)


@dataclass(frozen=True, eq=False)
class Film:
    """`frames[row, column]` is an index into ORDER, or NOT_SEEN; row i is GPU `gpus[i]` on `hosts[i]`."""

    frames: NDArray[np.uint8]
    gpus: tuple[str, ...]
    hosts: tuple[str, ...]
    start_ms: int
    bin_ms: int
    gpus_in_all: int


def bin_width_ms(since_ms: int, until_ms: int) -> int:
    """The shortest round width that needs no more than MOST_COLUMNS frames."""
    fits = (width for width in _BINS_MS if (until_ms - since_ms) / width <= MOST_COLUMNS)
    return next(fits, _BINS_MS[-1])


def shoot(view: View) -> Film:
    """The film of a view: all GPUs by host, or where there are too many the MOST_ROWS with the most unused time."""
    since_ms, until_ms = view.report.summary.since_ms, view.report.summary.until_ms
    bin_ms = bin_width_ms(since_ms, until_ms)
    start_ms = floor_ms(since_ms, bin_ms)
    with duckdb.connect() as connection:
        connection.register(
            "spans", view.part.inside.stretches.select("gpu", "host", "state", "time", "end").to_arrow()
        )
        rows = connection.execute(
            """
            SELECT gpu, max_by(host, "time") AS host, count(*) OVER () AS gpus_in_all
            FROM spans
            GROUP BY gpu
            ORDER BY sum("end" - "time") FILTER (state IN ('free', 'reserved', 'held')) DESC NULLS LAST, gpu
            LIMIT ?
            """,
            [MOST_ROWS],
        ).fetchall()
        shown = sorted((host, gpu) for gpu, host, _ in rows)
        connection.execute("CREATE TABLE shown (gpu VARCHAR, row_number INTEGER)")
        connection.executemany("INSERT INTO shown VALUES (?, ?)", [(gpu, row) for row, (_, gpu) in enumerate(shown)])
        found = connection.execute(
            """
            WITH cut AS (
                SELECT row_number, state, "time", "end",
                       unnest(range(("time" - $start) // $bin, ("end" - 1 - $start) // $bin + 1)) AS frame
                FROM spans JOIN shown USING (gpu)
            ), shares AS (
                SELECT row_number, frame, state,
                       sum(least("end", $start + (frame + 1) * $bin) - greatest("time", $start + frame * $bin)) AS state_ms
                FROM cut GROUP BY ALL
            )
            SELECT row_number, frame, max_by(list_position($states, state) - 1, (state_ms, state)) AS state
            FROM shares GROUP BY ALL
            """,
            {"start": start_ms, "bin": bin_ms, "states": list(ORDER)},
        ).fetchnumpy()
    columns = (until_ms - 1 - start_ms) // bin_ms + 1
    frames = np.full((len(shown), columns), NOT_SEEN, dtype=np.uint8)
    frames[found["row_number"], found["frame"]] = found["state"]
    return Film(frames, tuple(gpu for _, gpu in shown), tuple(host for host, _ in shown), start_ms, bin_ms, rows[0][2])

"""What fallow promises of queue waits: what counts as waiting at the end of a window."""

from __future__ import annotations

import polars as pl
import pytest

from analytics.capacity.jobs import JOB_SCHEMA, jobs_in_window
from fallow.clock import HOUR_MS

WINDOW, NEXT = (0, 24 * HOUR_MS), (24 * HOUR_MS, 48 * HOUR_MS)


@pytest.mark.parametrize("ended_by", ["start", "withdrawn"])
@pytest.mark.parametrize(
    ("ended_ms", "waits"),
    [
        (WINDOW[1] - 1, [(WINDOW[1] - 1 - HOUR_MS, False)]),
        (WINDOW[1], [(23 * HOUR_MS, True), (0, False)]),
        (WINDOW[1] + 1, [(23 * HOUR_MS, True), (1, False)]),
        (None, [(23 * HOUR_MS, True), (24 * HOUR_MS, True)]),
    ],
    ids=str,
)
def test_a_wait_that_ends_where_two_windows_meet_is_still_open_in_the_first_and_ends_in_the_second(
    ended_by: str, ended_ms: int | None, waits: list[tuple[int, bool]]
) -> None:
    """docs/planning.md: a job that still waits counts "to the end of the window", which is outside the window."""
    job = {"job": "1", "submitted": HOUR_MS, "gpus": 1, ended_by: ended_ms}
    jobs = pl.DataFrame([job], schema=JOB_SCHEMA).with_row_index("number")
    found = [jobs_in_window(jobs, *window) for window in (WINDOW, NEXT)]
    lasted = pl.col("until") - pl.col("begin")
    assert [row for rows in found for row in rows.select(lasted, "is_open").iter_rows()] == waits

"""Labels that a trace gives by itself, worked out by hand on a few rows."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from benchmarks.labelled_trace import STEP_S, write_labels

if TYPE_CHECKING:
    from pathlib import Path


def labels(folder: Path, rows: list[tuple[int, int]]) -> list[tuple[float, float, str, str]]:
    """The labels of one pod whose rows are (step, duty cycle), as (first step, end, state, takeable)."""
    trace, written = folder / "duty.csv", folder / "labels.csv"
    lines = "".join(f"{1_662_858_720 + STEP_S * step}.0,pod,{duty}\n" for step, duty in rows)
    trace.write_text("timestamp_anon,container_ip,value\n" + lines)
    write_labels(trace, written, 1)
    found = list(csv.DictReader(written.read_text().splitlines()))
    assert {row["gpu"] for row in found} == {"trace/pod"}
    return [(_step(row["since"]), _step(row["until"]), row["state"], row["takeable"]) for row in found]


def _step(moment: str) -> float:
    return (datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp() - 1_662_858_720) / STEP_S


HOUR = 3600 / STEP_S


def test_a_pause_is_takeable_until_an_hour_before_it_ends(tmp_path: Path) -> None:
    rows = [(0, 5), *((step, 0) for step in range(1, 101)), (101, 5), (102, 0), (103, 0), (104, 5)]
    later = [(step, 5) for step in range(105, 200)]
    assert labels(tmp_path, [*rows, *later]) == [
        (0, 1, "used", "false"),
        (1, 101 - HOUR, "unused", "true"),
        (101 - HOUR, 101, "unused", "false"),
        (101, 102, "used", "false"),
        (102, 104, "", "false"),  # shorter than five minutes
        (104, 200, "used", "false"),
    ]


def test_where_the_hour_was_not_recorded_nothing_is_known_of_it(tmp_path: Path) -> None:
    """Else a use would be seen and its absence would not."""
    rows = [*((step, 0) for step in range(100)), (100, 5)]
    assert labels(tmp_path, rows) == [
        (0, 100 - HOUR, "unused", "true"), (100 - HOUR, 101 - HOUR, "unused", "false"), (101 - HOUR, 100, "unused", ""),
        (100, 101, "used", "false"),
    ]  # fmt: skip
    rows = [*((step, 0) for step in range(100)), (102, 0), (107, 5)]
    assert labels(tmp_path, rows) == [
        (0, 103 - HOUR, "unused", "true"), (103 - HOUR, 103, "unused", ""), (107, 108, "used", "false"),
    ]  # fmt: skip

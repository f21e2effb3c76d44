"""The film strip's frames against the ledger, counted the slow way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from dashboard import film
from dashboard.film import MOST_COLUMNS, NOT_SEEN, bin_width_ms, shoot
from dashboard.palette import ORDER
from dashboard.source import Source, View
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS
from tests.dashboard.conftest import inputs_of

if TYPE_CHECKING:
    from fallow.lake import Lake


def view_of(lake: Lake, since: str | None = None, until: str | None = None) -> View:
    view = Source(lambda: inputs_of(lake, since, until)).look()
    assert isinstance(view, View)
    return view


def slow_frames(view: View, strip: film.Film) -> np.ndarray:
    spent = np.zeros((*strip.frames.shape, len(ORDER)), dtype=np.int64)
    for row in view.ledger.inside.stretches.iter_rows(named=True):
        gpu, state = strip.gpus.index(row["gpu"]), ORDER.index(row["state"])
        for column in range(strip.frames.shape[1]):
            start = strip.start_ms + column * strip.bin_ms
            spent[gpu, column, state] += max(0, min(row["end"], start + strip.bin_ms) - max(row["time"], start))
    return spent


@pytest.mark.parametrize(
    ("since", "until"), [(None, None), ("2025-11-18T03:07Z", "2025-11-18T09:11Z"), ("2025-11-19", "2025-11-30")]
)
def test_each_frame_is_the_state_that_took_most_of_it(fleet_lake: Lake, since: str | None, until: str | None) -> None:
    view = view_of(fleet_lake, since, until)
    strip = shoot(view)
    spent = slow_frames(view, strip)
    seen = spent.sum(axis=2) > 0
    assert strip.frames.dtype == np.uint8
    assert ((strip.frames == NOT_SEEN) == ~seen).all()
    rows, columns = np.nonzero(seen)
    assert (spent[rows, columns, strip.frames[rows, columns]] == spent.max(axis=2)[rows, columns]).all()
    assert list(zip(strip.hosts, strip.gpus, strict=True)) == sorted(zip(strip.hosts, strip.gpus, strict=True))


def test_too_many_gpus_are_cut_to_those_with_the_most_waste(fleet_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(film, "MOST_ROWS", 3)
    view = view_of(fleet_lake)
    strip = shoot(view)
    waste = dict.fromkeys(view.ledger.inside.stretches["gpu"].unique(), 0)
    for row in view.ledger.inside.stretches.iter_rows(named=True):
        waste[row["gpu"]] += (row["end"] - row["time"]) * (row["state"] in ("free", "reserved", "held"))
    assert strip.gpus_in_all == 10
    assert set(strip.gpus) == set(sorted(waste, key=lambda gpu: (-waste[gpu], gpu))[:3])


@pytest.mark.parametrize(
    ("span_ms", "width_ms"),
    [(1, MINUTE_MS), (12 * HOUR_MS, MINUTE_MS), (14 * DAY_MS, 30 * MINUTE_MS), (360 * DAY_MS, 12 * HOUR_MS)],
)
def test_frames_are_as_short_as_fits(span_ms: int, width_ms: int) -> None:
    assert bin_width_ms(0, span_ms) == width_ms
    assert span_ms / width_ms <= MOST_COLUMNS
